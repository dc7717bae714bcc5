//! Where pods of workloads have started. A pod that does not say its system is for Windows if its workload runs there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::budget::{HISTORIES, KINDS, keep_shares, namespace};
use crate::plan::pods::fact::PodFact;
use crate::pod::Placement;

/// The workloads of which pods have started on Windows nodes since winpool began to watch, by what the pods require of their
/// node. A new template is another kind of pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodHistory {
    workloads: BTreeMap<Arc<str>, BTreeMap<u64, Starts>>,
    /// True if the kinds that are known to be for Windows have changed since this was last asked.
    pub is_changed: bool,
}

#[derive(Clone, Debug)]
struct Starts {
    /// The present pods that have started on nodes with another system.
    elsewhere: BTreeSet<Arc<str>>,
    /// The last start on a Windows node.
    last: Instant,
}

fn kind(placement: &Placement) -> u64 {
    let Placement { node_selector, terms, class, .. } = placement;
    let mut hasher = DefaultHasher::new();
    (node_selector, class, format!("{terms:?}")).hash(&mut hasher);
    hasher.finish()
}

impl PodHistory {
    /// Records that the pod has started on a Windows node.
    pub(crate) fn started(&mut self, pod: &PodFact, now: Instant) {
        let kinds = self.workloads.entry(Arc::clone(&pod.workload)).or_default();
        if kinds.len() >= KINDS {
            kinds.clear();
        }
        let known = kinds.len();
        let starts = kinds.entry(kind(&pod.placement));
        starts.or_insert(Starts { elsewhere: BTreeSet::new(), last: now }).last = now;
        self.is_changed |= kinds.len() > known;
        keep_shares(&mut self.workloads, HISTORIES, |workload, kinds| {
            (namespace(workload), kinds.values().map(|starts| starts.last).max())
        });
    }

    /// Records if a pod that has started runs on a node with another system.
    pub(crate) fn elsewhere(&mut self, name: &Arc<str>, pod: &PodFact, is_elsewhere: impl FnOnce() -> bool) {
        let kinds = self.workloads.get_mut(&pod.workload);
        let Some(Starts { elsewhere, .. }) = kinds.and_then(|kinds| kinds.get_mut(&kind(&pod.placement))) else {
            return;
        };
        let said_windows = elsewhere.is_empty();
        if is_elsewhere() {
            elsewhere.insert(Arc::clone(name));
        } else {
            elsewhere.remove(name);
        }
        self.is_changed |= elsewhere.is_empty() != said_windows;
    }

    /// True if a pod of this workload and placement has started on a Windows node, and none runs on a node with another system.
    pub(crate) fn says_windows(&self, workload: &Arc<str>, placement: &Placement) -> bool {
        let kinds = self.workloads.get(workload);
        kinds.and_then(|kinds| kinds.get(&kind(placement))).is_some_and(|starts| starts.elsewhere.is_empty())
    }
}
