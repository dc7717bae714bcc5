//! Short messages for errors: the API server's own words, or the reason why it could not be reached.

use std::error::Error;
use std::fmt;

use kube::core::Status;
use kube::runtime::watcher;
use winpool_core::words::plain;

/// The error and its causes, each said once. Only the innermost cause says why a server cannot be reached.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = message_of(error);
    let mut cause = behind(error);
    while let Some(error) = cause {
        let message = message_of(error);
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = behind(error);
    }
    text
}

/// The causes that the error's own message does not repeat.
fn behind<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    use kube::Error::{Api, HyperError, Service};
    let says_all = matches!(of_kube(error), Some(Api(_) | Service(_) | HyperError(_)));
    error.source().filter(|_| !says_all && !error.is::<watcher::Error>())
}

/// kube wraps its errors in boxes; as a source, such an error is the box.
fn of_kube<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e kube::Error> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    error.downcast_ref().or_else(boxed)
}

/// kube shows an answer for developers: the whole `Status`, twice.
fn message_of(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = of_kube(error) {
        return match error {
            kube::Error::Api(status) => said(status),
            kube::Error::Service(cause) => with_causes(&**cause),
            kube::Error::HyperError(cause) => with_causes(cause),
            other => other.to_string(),
        };
    }
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::InitialListFailed(cause)) => format!("cannot list: {}", with_causes(cause)),
        Some(watcher::Error::WatchStartFailed(cause)) => format!("cannot watch: {}", with_causes(cause)),
        Some(watcher::Error::WatchFailed(cause)) => format!("the watch broke: {}", with_causes(cause)),
        Some(watcher::Error::WatchError(status)) => format!("the watch ended: {}", said(status)),
        Some(watcher::Error::NoResourceVersion) | None => error.to_string(),
    }
}

/// Formats a status as `429 Too many requests, please try again later`.
fn said(status: &Status) -> String {
    let message = if status.message.is_empty() { &status.reason } else { &status.message };
    let message = message.trim().trim_end_matches('.');
    match (status.code, message) {
        (0, message) => message.to_owned(),
        (code, "") => code.to_string(),
        (code, message) => format!("{code} {message}"),
    }
}

/// Bytes of the longest text from others in one field of a log line.
const SHORT: usize = 1024;

/// Text from others for a log line, cut if it is too long.
pub fn shortened(text: &impl fmt::Display) -> String {
    plain(&text.to_string(), SHORT)
}

/// An error with its causes, for a log line.
pub fn failure(error: &(dyn Error + 'static)) -> String {
    shortened(&with_causes(error))
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;
    use crate::error::of_write;

    /// An error of one layer that wraps that of another.
    #[derive(Debug)]
    struct Layer(&'static str, io::Error);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    fn busy() -> kube::Error {
        let message = "Too many requests, please try again later.";
        kube::Error::Api(Status::failure(message, "Failed to parse error data").with_code(429).boxed())
    }

    fn refused() -> kube::Error {
        kube::Error::Service(Layer("client error (Connect)", io::ErrorKind::ConnectionRefused.into()).into())
    }

    #[test]
    fn an_answer_is_its_code_and_message() {
        assert_eq!(with_causes(&busy()), "429 Too many requests, please try again later");
        let nothing = kube::Error::Api(Status::failure("", "").with_code(502).boxed());
        assert_eq!(with_causes(&nothing), "502");
        let message = r#"nodes is forbidden: User "a" cannot list resource "nodes""#;
        let forbidden = kube::Error::Api(Status::failure(message, "Forbidden").with_code(403).boxed());
        assert_eq!(with_causes(&forbidden), format!("403 {message}"));
    }

    #[test]
    fn an_unreachable_host_is_named_with_the_cause() {
        assert_eq!(with_causes(&refused()), "client error (Connect): connection refused");
    }

    #[test]
    fn whatever_failed_says_it_once() {
        for (error, message) in [(busy(), "429 Too many requests, please try again later"), (refused(), "refused")] {
            let failed = of_write(error);
            let text = with_causes(&failed);
            assert!(text.starts_with("the request to the API server failed: "), "{text}");
            assert_eq!(text, failed.to_string(), "the causes are in the message");
            assert!(text.ends_with(message) && text.matches(message).count() == 1, "{text}");
        }
        let watch = watcher::Error::InitialListFailed(busy());
        assert_eq!(with_causes(&watch), "cannot list: 429 Too many requests, please try again later");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(shortened(&"short"), "short");
        let long = shortened(&"ü".repeat(5000));
        assert_eq!(long.len(), SHORT + "…".len());
        assert!(long.ends_with("ü…"));
    }
}
