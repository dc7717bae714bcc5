//! The present moment.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

/// The present moment, for pauses and for timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On the monotonic clock.
    pub instant: Instant,
    /// On the wall clock.
    pub time: Timestamp,
}

/// The API stores whole seconds.
pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
