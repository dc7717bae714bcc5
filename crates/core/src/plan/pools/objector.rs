//! `DaemonSets` that would lose pods by a taint. Their controller makes no pod for a node whose taint the template does not
//! tolerate, so nothing waits, and no toleration can be added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::Taint;
use crate::labels::Labels;
use crate::plan::pools::spec::PoolSpec;
use crate::pod::{self, Placement, System, tolerate};

const KIND: &str = "DaemonSet ";

/// The `DaemonSets` by name, such as `DaemonSet shop/agent`, without ignored ones.
#[derive(Clone, Debug, Default)]
pub struct DaemonSets {
    /// Each with the last list that showed it.
    sets: BTreeMap<Arc<str>, (Objector, u32)>,
    list: u32,
    /// True if the last list was complete and no other one has begun.
    pub is_complete: bool,
    /// True if one has changed since [`PodTable::look`](crate::plan::pods::PodTable::look) was last called.
    pub are_changed: bool,
}

impl DaemonSets {
    /// A list of all of them begins.
    pub fn begin_list(&mut self) {
        (self.list, self.is_complete) = (self.list.wrapping_add(1), false);
    }

    /// The list is complete.
    pub fn end_list(&mut self, now: Instant) {
        for (set, _) in self.sets.values_mut().filter(|(_, list)| *list != self.list) {
            set.gone.get_or_insert(now);
        }
        (self.is_complete, self.are_changed) = (true, true);
    }

    /// Takes in a `DaemonSet`, as a list or the watch shows it.
    pub fn see(&mut self, set: &pod::DaemonSet, now: Instant) {
        if set.is_over {
            return self.deleted(&set.namespace, &set.name, now);
        }
        self.are_changed = true;
        let name: Arc<str> = name(&set.namespace, &set.name).into();
        if set.is_ignored {
            self.sets.remove(&*name);
            return;
        }
        let before = self.sets.get(&name).map(|(before, _)| before.created);
        let seen = Objector {
            name: Arc::clone(&name),
            uid: set.uid.as_str().into(),
            placement: Arc::new(Placement::of_spec(&set.template)),
            created: before.map_or(set.created, |before| before.min(set.created)),
            gone: None,
            runs_on: BTreeSet::new(),
        };
        self.sets.insert(name, (seen, self.list));
    }

    /// The `DaemonSet` was deleted.
    pub fn deleted(&mut self, namespace: &str, set: &str, now: Instant) {
        if let Some((set, _)) = self.sets.get_mut(&*name(namespace, set)) {
            set.gone.get_or_insert(now);
            self.are_changed = true;
        }
    }

    /// The `DaemonSet` with this name held a taint of a pool with this selector when the status was written. If it is gone, it
    /// counts as gone from now on: nobody knows since when.
    pub(crate) fn recall(&mut self, name: &str, node_selector: &BTreeMap<String, String>, now: Instant) {
        self.sets.entry(name.into()).or_insert_with(|| {
            let (node_selector, system) = (node_selector.clone(), Some(System::Windows));
            let placement = Arc::new(Placement { node_selector, system, ..Placement::default() });
            (Objector { name: name.into(), placement, gone: Some(now), ..Objector::default() }, self.list)
        });
    }

    /// Forgets those that have been gone for this time.
    pub fn forget(&mut self, after: Duration, now: Instant) {
        let before = self.sets.len();
        self.sets.retain(|_, (set, _)| set.gone.is_none_or(|gone| now.duration_since(gone) < after));
        self.are_changed |= self.sets.len() != before;
    }

    /// The time at which the next one is forgotten.
    pub fn due(&self, after: Duration) -> Option<Instant> {
        self.sets.values().filter_map(|(set, _)| set.gone).min().map(|gone| gone + after)
    }

    /// All of them. Nothing is known of the nodes that they run on.
    pub fn iter(&self) -> impl Iterator<Item = Objector> {
        self.sets.values().map(|(set, _)| set.clone())
    }
}

fn name(namespace: &str, set: &str) -> String {
    format!("{KIND}{namespace}/{set}")
}

/// True for the name of a `DaemonSet`.
pub(crate) fn is_daemon_set(workload: &str) -> bool {
    workload.starts_with(KIND)
}

/// A `DaemonSet` for Windows. It objects to taints that it does not tolerate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objector {
    /// Such as `DaemonSet shop/agent`.
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub(crate) placement: Arc<Placement>,
    /// `metadata.creationTimestamp` of it, or of the earlier one of its name that it has replaced.
    created: Option<Timestamp>,
    /// The time since which it is gone. Another one of its name may be about to replace it.
    pub(crate) gone: Option<Instant>,
    /// The nodes on which its pods have started, if it is younger than a taint.
    pub(crate) runs_on: BTreeSet<Arc<str>>,
}

impl Objector {
    /// True if it keeps a taint, which winpool first added `since`, off a node with these labels and this name.
    pub fn objects(&self, taint: &Taint, since: Option<Timestamp>, labels: &Labels, node: &str) -> bool {
        self.lacks(taint) && self.placement.fits(labels, node) && self.holds(since, node)
    }

    /// True if it keeps the taint off new nodes of the pool.
    pub(crate) fn would_run_in(&self, pool: &PoolSpec, taint: &Taint, since: Option<Timestamp>) -> bool {
        self.lacks(taint) && self.is_older(since) && self.placement.allows(pool)
    }

    /// True if it counts: it is older than the taint, or its pod has started on the node. One that came later and runs nowhere
    /// must not count, because then every tenant could keep the taint off all nodes.
    pub(crate) fn holds(&self, since: Option<Timestamp>, node: &str) -> bool {
        self.is_older(since) || self.runs_on.contains(node)
    }

    /// True if it is older than a taint that winpool first added `since`.
    pub(crate) fn is_older(&self, since: Option<Timestamp>) -> bool {
        since.zip(self.created).is_none_or(|(since, created)| created <= since)
    }

    pub(crate) fn lacks(&self, taint: &Taint) -> bool {
        taint.effect.keeps_off() && !tolerate(&self.placement.tolerations, taint)
    }
}
