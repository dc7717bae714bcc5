//! Errors of requests to the API server.

use std::time::Duration;

use kube::core::Status;
use thiserror::Error;
use winpool_core::plan::refusal::Refusal;

use super::causes::with_causes;

/// The time limit for one request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a request to the API server failed. Reads never fail with `Stale`, `Conflict` or `NotLeading`.
#[derive(Debug, Error)]
pub enum RequestError {
    /// A `test` of the patch failed: the object has changed. Read it again and plan again.
    #[error("the object has changed since it was read")]
    Stale,
    /// Another write came first, or an object with that name exists. Read it again and plan again.
    #[error("another write came first")]
    Conflict,
    #[error("the object is gone")]
    Gone,
    /// The API server or one of its policies refuses this write, and will refuse it again.
    #[error("the API server refuses: {0}")]
    Denied(String),
    /// The API server cannot be reached, is busy, or failed.
    #[error("the request to the API server failed: {}", with_causes(.0.as_ref()))]
    Failed(#[source] Box<kube::Error>),
    #[error("the API server did not answer within {0:?}")]
    TimedOut(Duration),
    /// This process does not lead, or stopped leading before the answer. The present leader plans and writes.
    #[error("not written: this process does not lead")]
    NotLeading,
}

impl RequestError {
    /// All values of [`Self::as_str`].
    pub const REASONS: [&str; 7] = ["stale", "conflict", "gone", "denied", "failed", "timed_out", "not_leading"];

    /// True if the API server refuses this write, and will refuse it again.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }

    /// True if the account lacks the permission, or the API server does not accept the account: the same request will
    /// fail again.
    pub fn is_forbidden(&self) -> bool {
        let has_no_account = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 401);
        self.is_denied() || matches!(self, Self::Failed(error) if has_no_account(error))
    }

    /// The error in one word, for metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed_out",
            Self::NotLeading => "not_leading",
        }
    }
}

/// A part of the cluster that cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {what}: {source}")]
pub struct Unreadable {
    what: &'static str,
    #[source]
    source: RequestError,
}

impl Unreadable {
    /// Returns a function that adds to an error the objects that cannot be read.
    pub fn of(what: &'static str) -> impl FnOnce(RequestError) -> Self {
        move |source| Self { what, source }
    }
}

impl From<&RequestError> for Refusal {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::Stale => Self::Stale,
            RequestError::Conflict => Self::Conflict,
            RequestError::Gone => Self::Gone,
            RequestError::Denied(message) => Self::Denied(message.clone()),
            RequestError::Failed(_) | RequestError::TimedOut(_) | RequestError::NotLeading => {
                Self::Failed(error.to_string())
            }
        }
    }
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => refusal(status),
            other => Self::Failed(Box::new(other)),
        }
    }
}

/// Distinguishes the kinds of refusals. A failed JSON Patch `test` is 422 without causes. An invalid value is 422 with
/// causes, and so is a denial by a ValidatingAdmissionPolicy without a reason. A policy may also choose 401, 403 or
/// 413.
fn refusal(status: Box<Status>) -> RequestError {
    let has_causes = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    match status.code {
        404 => RequestError::Gone,
        409 => RequestError::Conflict,
        422 if !has_causes => RequestError::Stale,
        400 | 403 | 413 | 422 => RequestError::Denied(status.message),
        401 if has_causes => RequestError::Denied(status.message),
        _ => RequestError::Failed(Box::new(kube::Error::Api(status))),
    }
}

/// The error of a read. Only a missing permission is a refusal that makes a caller do without the objects.
fn of_read(error: kube::Error) -> RequestError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => refusal(status),
        other => RequestError::Failed(Box::new(other)),
    }
}

/// Waits for the answer to a read for up to [`REQUEST_TIMEOUT`].
pub async fn read_in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestError> {
    within(REQUEST_TIMEOUT, answer, of_read).await
}

/// Waits for an answer for up to [`REQUEST_TIMEOUT`].
pub async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestError> {
    within(REQUEST_TIMEOUT, answer, RequestError::from).await
}

/// Waits for an answer for up to `limit`. `error` says what a failure means.
pub async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, kube::Error>>,
    error: impl FnOnce(kube::Error) -> RequestError,
) -> Result<T, RequestError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(error),
        Err(_) => Err(RequestError::TimedOut(limit)),
    }
}
