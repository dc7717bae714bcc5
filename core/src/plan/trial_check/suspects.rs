//! The pods that a check keeps for the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::plan::node_choice::NodeChoice;

/// The time after which excused pods are judged again, because workloads and nodes change. It is longer if there are many.
const EXCUSES_LAST: Duration = Duration::from_mins(1);
/// The limit of workloads that one check reads by name.
pub(super) const ASKED: usize = 50;
/// The longest text of a placement that is compared with nodes of other systems. Every user can write longer ones.
pub(super) const PLACEMENT: usize = 4096;

/// A pod that waits only because of taints on trial, as far as is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The start of the first check that found it.
    pub(super) seen: Instant,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Kind and name of its controller, or of the pod itself.
    pub(super) owner: (String, String),
    /// Identifies its workload, its placement and the trials.
    pub(super) key: u64,
    /// The trials without whose taints it would fit a node.
    pub(super) trials: BTreeSet<usize>,
    /// Those nodes.
    pub(super) nodes: BTreeSet<Arc<str>>,
    /// It is for Windows only if this matches no node of another system.
    pub(super) only_if: Option<NodeChoice>,
}

/// The pods that a check found, for the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Suspects {
    /// Pods that may object, by uid.
    pub(super) pods: BTreeMap<String, Suspect>,
    /// The workloads and placements of pods that wait and may not object.
    pub(super) excused: BTreeSet<u64>,
    /// The time at which the first of them was judged.
    pub(super) excused_since: Option<Instant>,
}

impl Suspects {
    pub(super) fn forget_old_excuses(&mut self, now: Instant) {
        let batches = u32::try_from(1 + self.excused.len() / ASKED).unwrap_or(u32::MAX);
        if self.excused_since.is_some_and(|since| now >= since + EXCUSES_LAST * batches) {
            (self.excused, self.excused_since) = (BTreeSet::new(), None);
        }
    }
}

/// A number for a value of any length.
pub(in super::super) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
