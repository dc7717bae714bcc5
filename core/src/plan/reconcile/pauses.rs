//! Pauses between requests.

use std::time::Duration;

use super::super::pods::PodPauses;

/// The pause between reads of what cannot be watched: facts about the control plane.
pub const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// The pause between status writes, unless one records a taint.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before winpool reads a pool again that the cache shows in an old version.
pub(super) const CACHE_BEHIND: Duration = Duration::from_secs(1);

/// Pauses that may be shorter where one API server serves everything, as in tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pauses {
    /// The time that nodes wait after the tolerations of an existing class were changed. Admission reads
    /// RuntimeClasses from a cache and writes their tolerations into each new pod.
    pub classes: Duration,
    /// Those of the table of pods.
    pub pods: PodPauses,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { classes: Duration::from_secs(5), pods: PodPauses::default() }
    }
}
