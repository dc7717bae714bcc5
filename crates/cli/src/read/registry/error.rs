//! Errors of registries.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;
use winpool_analysis::image::DocumentError;

/// An image whose platforms are unknown. The text never contains credentials.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{image}: {kind}")]
pub struct RegistryError {
    /// The full name of the image, which begins with its registry.
    pub image: String,
    pub kind: RegistryErrorKind,
}

/// The reason why the platforms of an image are unknown. The text includes the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryErrorKind {
    #[error("the registry has no such image; check the name, and the tag or digest")]
    NotFound,
    /// The registry or its token server refuses this user. Contains what is known about the credentials.
    #[error("you are not permitted to read it ({0}); log in with `docker login`, and check the name")]
    Unauthorized(String),
    /// The registry asks for a longer pause than winpool waits.
    #[error("the registry limits the rate of requests; log in with `docker login`, or try again later")]
    RateLimited,
    /// The host does not answer, or not with HTTP. Contains the host and the reason.
    #[error("cannot reach {0}")]
    Unreachable(String),
    #[error("the registry did not answer within {0:?}; try again later")]
    TimedOut(Duration),
    #[error("the registry answered with status {0}; try again later")]
    Failed(u16),
    /// The answer is larger than this number of bytes, which is more than any manifest or config.
    #[error("the answer of the registry is larger than {0} bytes and was not read; check the name")]
    TooLarge(usize),
    /// The answer is not a valid answer of a registry, or it redirects to an unsafe place.
    #[error("the answer of the registry cannot be used: {0}")]
    Invalid(String),
    #[error("it is not in the cache; run the command once without --offline")]
    Offline,
}

impl From<DocumentError> for RegistryErrorKind {
    fn from(error: DocumentError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// A file that the options name cannot be used.
#[derive(Debug, Error)]
#[error("cannot use {path}: {reason}")]
pub struct OptionsError {
    path: String,
    reason: String,
}

impl OptionsError {
    pub(super) fn new(path: &Path, reason: impl Display) -> Self {
        Self { path: path.display().to_string(), reason: reason.to_string() }
    }
}
