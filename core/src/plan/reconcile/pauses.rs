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
    /// The shortest one between two listings of workloads.
    pub listings: Duration,
    /// The time that nodes wait after the tolerations of an existing class were changed. Admission reads
    /// RuntimeClasses from a cache and writes their tolerations into each new pod.
    pub classes: Duration,
    /// The shortest one between two checks of the pods that are not scheduled, while a taint is on trial.
    pub trial_checks: Duration,
    /// The time for which a taint is on trial.
    pub trial: Duration,
    /// The pause after the first trial that failed.
    pub retry: Duration,
    /// Those of the table of pods.
    pub pods: PodPauses,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            listings: Duration::from_secs(10),
            classes: Duration::from_secs(5),
            trial_checks: Duration::from_secs(5),
            trial: Duration::from_hours(7 * 24),
            retry: Duration::from_hours(1),
            pods: PodPauses::default(),
        }
    }
}
