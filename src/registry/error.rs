//! Why a registry does not say what an image was built for.

use std::time::Duration;

use thiserror::Error;

/// An image whose platforms stay unknown. It never holds credentials, nor text that a registry chose.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{image}: {problem}")]
pub struct RegistryError {
    /// The full name of the image.
    pub image: String,
    /// The reason.
    pub problem: Problem,
}

/// Why the platforms of an image are unknown, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The registry does not have the image.
    #[error("{host} has no such image; check its name, and its tag or digest")]
    NotFound {
        /// The registry.
        host: String,
    },
    /// The registry does not show the image to this user.
    #[error("{host} does not permit to read it ({}); log in with `docker login`, and check the name", .reason.as_deref().unwrap_or("no credentials fit"))]
    Unauthorized {
        /// The registry or its token server.
        host: String,
        /// What is known about the credentials that were used.
        reason: Option<String>,
    },
    /// The registry asks for fewer requests.
    #[error("{host} limits the rate of requests{}; log in, or try again later", .after.map_or_else(String::new, |after| format!(" for {} s", after.as_secs())))]
    RateLimited {
        /// The registry.
        host: String,
        /// How long it asks to wait.
        after: Option<Duration>,
    },
    /// Nothing answers, or not with HTTP.
    #[error("cannot reach {host}: {reason}")]
    Unreachable {
        /// The registry, or the host that it refers to.
        host: String,
        /// The error of the connection.
        reason: String,
    },
    /// The answer did not come in time.
    #[error("{host} did not answer within {limit:?}; try again later")]
    TimedOut {
        /// The registry.
        host: String,
        /// For all requests of one image.
        limit: Duration,
    },
    /// The registry failed.
    #[error("{host} answered with status {status}; try again later")]
    Failed {
        /// The registry, or the host that it refers to.
        host: String,
        /// The HTTP status.
        status: u16,
    },
    /// The answer is larger than any manifest or config.
    #[error(
        "the answer of {host} is larger than {limit} bytes, and was not read; the image is not one that winpool can read"
    )]
    TooLarge {
        /// The registry, or the host that it refers to.
        host: String,
        /// The largest answer that is read.
        limit: usize,
    },
    /// The answer is not one of a registry, or not safe to follow.
    #[error("the answer of {host} cannot be used: {reason}")]
    Invalid {
        /// The registry, or the host that it refers to.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// With `--offline`, an image that was not cached.
    #[error("it is not in the cache; run the command once without --offline")]
    Offline,
}

impl Problem {
    /// Returns true if other images of the same registry will fail as well.
    pub(super) fn is_of_the_host(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Unreachable { .. } | Self::TimedOut { .. })
    }
}

/// The options cannot be used.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The Docker configuration is not JSON of the expected form. The text of the error would repeat values.
    #[error(
        "{path} is not a Docker configuration: line {line}, column {column} cannot be read; name another file with --registry-config"
    )]
    Configuration {
        /// Its path.
        path: String,
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// No certificate in the file.
    #[error("{path} has no certificate that can be used; --registry-ca needs a file in PEM format")]
    Certificates {
        /// Its path.
        path: String,
    },
}
