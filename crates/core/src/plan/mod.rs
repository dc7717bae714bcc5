//! Decisions: the changes that each Node and RuntimeClass needs, and why. An empty plan sends nothing.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

pub mod attempt;
pub mod classes;
pub mod confinement;
pub mod nodes;
pub mod patch;
pub mod pods;
pub mod pools;
pub mod reconcile;
pub mod taints;

/// The time in which a cache shows an accepted write. After it, winpool plans by what the cache shows: others may have undone the write.
pub(crate) const SHOWN: Duration = Duration::from_secs(5);

/// The present moment, for pauses and for timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On the monotonic clock.
    pub instant: Instant,
    /// On the wall clock.
    pub time: Timestamp,
}

/// The API stores whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
