//! Reading a live cluster for a person, who sees on a terminal how far it is.

use std::{
    fmt::Debug,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use kube::{Api, api::ListParams};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::api_server::{
    error::{RequestError, in_time},
    pages,
};

/// The cluster does not show what a command needs.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Winpool is not installed.
    #[error(
        "the cluster does not know WindowsPools: install their definition (winpool crd | kubectl apply -f -), or look at \
         manifests with -f"
    )]
    NoDefinition,
    /// A right is missing.
    #[error("not allowed to {verb} {what}: {words}; it takes the verb {verb} on {what}")]
    Forbidden {
        /// What may not be done.
        verb: &'static str,
        /// The resource.
        what: String,
        /// The API server's words.
        words: String,
    },
    /// The API server does not know who asks.
    #[error("the cluster does not accept these credentials: {0}")]
    Unauthorized(String),
    /// No answer, or none that can be used.
    #[error("cannot read {what}: {error}")]
    Failed {
        /// The resource.
        what: String,
        /// Why.
        #[source]
        error: RequestError,
    },
}

impl ReadError {
    /// What it means that this could not be done to the resource `what`.
    fn of(verb: &'static str, what: &str, error: RequestError) -> Self {
        let what = what.to_owned();
        match error {
            RequestError::Denied(words) => Self::Forbidden { verb, what, words },
            RequestError::Gone if what == "windowspools" => Self::NoDefinition,
            RequestError::Failed(error) => match *error {
                kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(status.message),
                error => Self::Failed { what, error: RequestError::Failed(Box::new(error)) },
            },
            error => Self::Failed { what, error },
        }
    }
}

/// Hands over every object of the resource `what` that `parameters` select, in pages.
pub(super) async fn list<K: Clone + Debug + DeserializeOwned>(
    what: &str,
    api: &Api<K>,
    parameters: ListParams,
    mut found: impl FnMut(K),
) -> Result<(), ReadError> {
    let mut progress = Progress::new(what);
    let listed = pages::each(api, parameters, |object| {
        progress.one();
        found(object);
    });
    listed.await.map_err(|error| ReadError::of("list", what, error))
}

/// The object of the resource `what` with this name, if there is one.
pub(super) async fn get<K: Clone + Debug + DeserializeOwned>(
    what: &str,
    api: &Api<K>,
    name: &str,
) -> Result<Option<K>, ReadError> {
    in_time(api.get_opt(name)).await.map_err(|error| ReadError::of("get", what, error))
}

/// How long a line is left as it is.
const PAUSE: Duration = Duration::from_millis(250);
/// Back to the beginning of the line, of which nothing is left.
const CLEAR: &str = "\r\u{1b}[K";

/// A line on standard error that says how much was read: on a terminal only, when it takes a while, and gone at the end.
struct Progress<'w> {
    what: &'w str,
    count: usize,
    /// When the line was written, or could have been; `None` where there is no terminal.
    written: Option<Instant>,
    visible: bool,
}

impl<'w> Progress<'w> {
    fn new(what: &'w str) -> Self {
        let written = io::stderr().is_terminal().then(Instant::now);
        Self { what, count: 0, written, visible: false }
    }

    fn one(&mut self) {
        self.count += 1;
        if self.written.is_some_and(|written| written.elapsed() >= PAUSE) {
            self.written = Some(Instant::now());
            self.visible = true;
            eprint!("{CLEAR}reading {}: {}…", self.what, with_commas(self.count));
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.visible {
            eprint!("{CLEAR}");
        }
    }
}

/// `12,000`.
fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_kept_apart() {
        for (number, text) in [(7, "7"), (999, "999"), (1000, "1,000"), (12_345, "12,345"), (1_234_567, "1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }
}
