//! Where pods of workloads have started. A pod that does not say its system is for Windows if its workload runs there.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::plan::pods::fact::PodFact;
use crate::pod::Placement;

/// The limit of workloads that are remembered. When it is reached, the half with the oldest last start is forgotten.
const WORKLOADS: usize = 16_384;

/// A workload, and what its pods require of their node. A new template is another kind.
pub(crate) type PodKind = (Arc<str>, u64);

/// The systems of the nodes on which pods of each kind have started since winpool began to watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodHistory(BTreeMap<PodKind, Starts>);

#[derive(Clone, Copy, Debug)]
struct Starts {
    on_windows: bool,
    elsewhere: bool,
    last: Instant,
}

pub(crate) fn kind(workload: &Arc<str>, placement: &Placement) -> PodKind {
    let Placement { node_selector, terms, class, .. } = placement;
    let mut hasher = DefaultHasher::new();
    (node_selector, class, format!("{terms:?}")).hash(&mut hasher);
    (Arc::clone(workload), hasher.finish())
}

impl PodHistory {
    /// Records that the pod has started. Returns true if its kind is now known to be for Windows, or no longer.
    pub(crate) fn started(&mut self, pod: &PodFact, is_on_windows: bool, now: Instant) -> bool {
        if self.0.len() >= WORKLOADS {
            let mut all: Vec<_> = self.0.iter().map(|(kind, starts)| (starts.last, kind.clone())).collect();
            all.sort_unstable();
            for (_, kind) in all.drain(..WORKLOADS / 2) {
                self.0.remove(&kind);
            }
        }
        let starts = self.0.entry(kind(&pod.workload, &pod.placement)).or_insert(Starts {
            on_windows: false,
            elsewhere: false,
            last: now,
        });
        let before = starts.says_windows();
        starts.on_windows |= is_on_windows;
        starts.elsewhere |= !is_on_windows;
        starts.last = now;
        starts.says_windows() != before
    }

    /// True if a pod of this workload and placement has started on a Windows node, and none on another.
    pub(crate) fn says_windows(&self, workload: &Arc<str>, placement: &Placement) -> bool {
        self.0.get(&kind(workload, placement)).is_some_and(Starts::says_windows)
    }
}

impl Starts {
    fn says_windows(&self) -> bool {
        self.on_windows && !self.elsewhere
    }
}
