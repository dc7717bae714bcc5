//! Errors of requests to the API server.

use std::time::Duration;

use kube::core::Status;
use thiserror::Error;
pub use winpool_core::plan::attempt::{Failure, RequestError};

use super::causes::with_causes;

/// The time limit for one request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

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

/// The error of a write.
pub fn of_write(error: kube::Error) -> RequestError {
    match error {
        kube::Error::Api(status) => refusal(status),
        other => failed(&other),
    }
}

fn failed(error: &kube::Error) -> RequestError {
    let is_unauthorized = matches!(error, kube::Error::Api(status) if status.code == 401);
    let failure = if is_unauthorized { Failure::Unauthorized } else { Failure::Failed };
    RequestError::Failed { failure, message: format!("the request to the API server failed: {}", with_causes(error)) }
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
        _ => failed(&kube::Error::Api(status)),
    }
}

/// The error of a read. Only a missing permission is a refusal that makes a caller do without the objects.
fn of_read(error: kube::Error) -> RequestError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 403 | 404) => refusal(status),
        other => failed(&other),
    }
}

/// The error of a request without an answer for so long.
pub fn timed_out(limit: Duration) -> RequestError {
    let message = format!("the API server did not answer within {limit:?}");
    RequestError::Failed { failure: Failure::TimedOut, message }
}

/// Waits for the answer to a read for up to [`REQUEST_TIMEOUT`].
pub async fn read_in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestError> {
    within(REQUEST_TIMEOUT, answer, of_read).await
}

/// Waits for an answer for up to [`REQUEST_TIMEOUT`].
pub async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, RequestError> {
    within(REQUEST_TIMEOUT, answer, of_write).await
}

/// Waits for an answer for up to `limit`. `error` says what a failure means.
pub async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, kube::Error>>,
    error: impl FnOnce(kube::Error) -> RequestError,
) -> Result<T, RequestError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(error),
        Err(_) => Err(timed_out(limit)),
    }
}
