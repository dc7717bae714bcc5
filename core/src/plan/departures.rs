//! The time at which a capability label may leave a node.
//!
//! A kubelet that starts checks the pods on its node again, and ends those that select a label which the node lacks.
//! So a label that no pool wants any more stays while an unfinished pod on the node, or a pod without a node, selects
//! it. A pod can still be created with the old selector for a moment after a class changed, because API servers read
//! classes from a cache. Therefore winpool first waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    capability_labels,
    label_users::LabelSearch,
    pools::{Policy, SelectedLabels},
};

/// The time between the moment at which no RuntimeClass selects a label any more and the first search for pods.
pub const ADMITS_LATE: Duration = Duration::from_mins(1);
/// The times at which labels stopped being selected, as far as this process knows.
#[derive(Clone, Debug)]
pub(super) struct Departures {
    /// The start of the term. Another process may have changed a class just before.
    began: Option<Instant>,
    left: BTreeMap<String, Instant>,
    /// The labels that a pool wants or a class selects.
    selected: BTreeSet<String>,
    /// Those that a class selects although no pool wants them.
    held: BTreeSet<String>,
    pause: Duration,
}

impl Default for Departures {
    fn default() -> Self {
        let (left, selected, held) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { began: None, left, selected, held, pause: ADMITS_LATE }
    }
}

/// The next step for the labels that pods may need.
pub(super) enum NextSearch {
    For(BTreeSet<String>),
    /// Nothing is to be done before this moment.
    Wait(Option<Instant>),
}

impl Departures {
    /// The same with another pause.
    pub(super) fn after(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Takes in the policy that nodes are written by from now on; `None` if this process does not lead.
    pub(super) fn follow(&mut self, policy: Option<&Policy>, now: Instant) {
        let Some(policy) = policy else {
            *self = Self::default().after(self.pause);
            return;
        };
        self.began.get_or_insert(now);
        let SelectedLabels { by_pools, by_others } = policy.selected_labels();
        self.held = by_pools | by_others;
        let (selected, pause) = (&wanted_labels(policy) | &self.held, self.pause);
        self.left.retain(|key, since| !selected.contains(key) && now < *since + pause);
        self.left.extend(self.selected.difference(&selected).map(|key| (key.clone(), now)));
        self.selected = selected;
    }

    /// Returns the labels of this node that are to be searched for among pods. `leaving` are those that it keeps only
    /// because pods may need them, and `found` is the last search.
    pub(super) fn search(
        &self,
        leaving: &[String],
        found: Option<&LabelSearch>,
        patience: Duration,
        now: Instant,
    ) -> NextSearch {
        let due = |key: &str| {
            let began = self.began.filter(|_| !self.held.contains(key))?;
            let first = self.left.get(key).map_or(began, |left| began.max(*left)) + self.pause;
            let again = found.and_then(|found| found.again(key, patience));
            Some(again.map_or(first, |again| first.max(again)))
        };
        let dues = leaving.iter().filter_map(|key| Some((key, due(key)?)));
        let (ripe, later): (Vec<_>, Vec<_>) = dues.partition(|(_, due)| *due <= now);
        if ripe.is_empty() {
            return NextSearch::Wait(later.into_iter().map(|(_, due)| due).min());
        }
        NextSearch::For(ripe.into_iter().map(|(key, _)| key.clone()).collect())
    }
}

/// The capability labels that pools want on nodes.
pub(super) fn wanted_labels(policy: &Policy) -> BTreeSet<String> {
    let pools = policy.pools().filter(|pool| pool.spec.enforces());
    pools.flat_map(|pool| capability_labels::wanted(pool)).collect()
}
