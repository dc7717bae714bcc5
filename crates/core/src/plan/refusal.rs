//! Requests that were not accepted, and the pauses before winpool sends them again.

use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The reason why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A test of the patch failed: the object has changed since the patch was computed.
    Stale,
    /// Another write came first, or an object with the name exists already.
    Conflict,
    /// The object is gone.
    Gone,
    /// The API server, or a policy in it, refuses the request and will refuse it again.
    Denied(String),
    /// The API server failed, or did not answer in time.
    Failed(String),
}

impl Refusal {
    /// The reason, as a message.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Denied(message) | Self::Failed(message) => message,
            Self::Stale | Self::Conflict | Self::Gone => "the object keeps changing",
        }
    }

    /// True if the object has changed, or is gone, since the request was computed.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Stale | Self::Conflict | Self::Gone)
    }

    /// The pause after this many failures in a row.
    pub(crate) fn pause(&self, failures: u32, patience: Duration) -> Duration {
        match self {
            Self::Denied(message) => refusal_pause(message, patience),
            _ => growing_pause(failures),
        }
    }
}

/// The pause after this many failures in a row: half a second after the first, then twice as long each time, up to a minute.
pub(crate) fn growing_pause(failures: u32) -> Duration {
    LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(failures.saturating_sub(1).min(10)))
}

/// The pause after the API server refused a write with this message. A policy refuses the same write again. But administrators
/// give and take permissions at any time.
pub(crate) fn refusal_pause(message: &str, patience: Duration) -> Duration {
    // The text of the API server's authorizer: `User "x" cannot patch resource "nodes" in API group "" at the cluster scope`.
    let names_user = message.split_once("User \"").is_some_and(|(_, rest)| rest.contains("\" cannot "));
    if names_user { patience.min(LONGEST_PAUSE) } else { patience }
}
