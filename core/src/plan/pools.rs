//! Pools in the form that plans use, sorted by precedence.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    mem::discriminant,
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::{Mode, Taint, TaintPolicy, WindowsPool, WindowsPoolStatus},
    labels::Labels,
    windows::Build,
};

use super::{
    pool_consent::PoolConsent,
    pool_spec::{InvalidPool, PoolSpec},
};

/// A pool: what the user wrote, what status records, and what it may do to nodes at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub spec: Arc<PoolSpec>,
    /// `status.taints`: every taint that winpool ever added for this pool, or took over from another one.
    pub managed_taints: Vec<Taint>,
    pub consent: Arc<PoolConsent>,
}

impl Pool {
    /// Validates and reads `pool`, with the taints that its status records.
    ///
    /// # Errors
    /// Fails if the pool breaks any rule of [`violations`](crate::api::validation::violations).
    pub fn read(pool: &WindowsPool) -> Result<Self, InvalidPool> {
        Ok(Self::new(PoolSpec::read(pool)?.into(), pool.status.as_ref()))
    }

    /// The pool with this spec and the taints that this status records.
    pub fn new(spec: Arc<PoolSpec>, status: Option<&WindowsPoolStatus>) -> Self {
        let consent = PoolConsent { since: added_since(status), ..PoolConsent::default() };
        Self { spec, managed_taints: managed_taints(status), consent: consent.into() }
    }

    /// The taints that winpool may add to nodes of the pool now.
    pub fn applicable_taints(&self) -> Vec<Taint> {
        if self.spec.taint_policy == TaintPolicy::Never {
            return Vec::new();
        }
        let may = |taint: &Taint| self.spec.waits_for_nobody(taint) || self.consent.may_add;
        self.spec.wanted_taints().into_iter().filter(may).collect()
    }

    /// The builds whose capability labels its nodes get: those of declared classes, and of the others as planned.
    pub(super) fn images(&self) -> BTreeSet<Build> {
        let declared = self.spec.declared.iter().map(|(hosts, _)| hosts).filter(|hosts| hosts.is_by_label());
        declared.filter_map(|hosts| hosts.build()).chain(self.consent.images.iter().copied()).collect()
    }
}

/// `status.taints`, without entries that cannot be parsed.
pub(super) fn managed_taints(status: Option<&WindowsPoolStatus>) -> Vec<Taint> {
    status.iter().flat_map(|status| &status.taints).filter_map(|listed| listed.taint.parse().ok()).collect()
}

/// The time at which winpool first added each of them to a node.
pub(super) fn added_since(status: Option<&WindowsPoolStatus>) -> BTreeMap<Taint, Timestamp> {
    let listed = status.into_iter().flat_map(|status| &status.taints);
    listed.filter_map(|listed| Some((listed.taint.parse().ok()?, listed.since.as_ref()?.0))).collect()
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolEntry {
    pub pool: Arc<Pool>,
    /// True if its nodes may be written. While its RuntimeClasses are not ready, the pool keeps the nodes that it
    /// selects, so that no younger pool takes them, and does not change them.
    pub ready: bool,
}

/// The policy that nodes are assessed by: the valid pools, oldest first, and the taints that winpool may remove.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    entries: Vec<PoolEntry>,
    suspended: BTreeSet<String>,
    removable: BTreeSet<Taint>,
    /// By pool.
    demands: BTreeMap<String, u64>,
}

impl Policy {
    /// The policy of these pools. `suspended` are the names of pools that exist and are not valid: their nodes are
    /// left as they are.
    pub fn new(entries: impl IntoIterator<Item = PoolEntry>, suspended: BTreeSet<String>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|a, b| a.pool.spec.age().cmp(&b.pool.spec.age()));
        let removable = entries
            .iter()
            .map(|entry| &entry.pool)
            .flat_map(|pool| [pool.spec.wanted_taints(), pool.spec.retired_taints.clone(), pool.managed_taints.clone()])
            .flatten()
            .filter(|taint| !taint.has_foreign_key())
            .collect();
        let demands = entries.iter().map(|entry| (entry.pool.spec.name.clone(), demands(entry))).collect();
        Self { entries, suspended, removable, demands }
    }

    /// Identifies what a pool wants of its nodes, so that a conflict with another writer is over when it wants something
    /// else. It does not depend on the node: one that keeps changing what winpool follows is a conflict too.
    pub(super) fn demands(&self, pool: Option<&str>) -> u64 {
        pool.and_then(|pool| self.demands.get(pool)).copied().unwrap_or_default()
    }

    /// The pools, oldest first.
    pub fn entries(&self) -> &[PoolEntry] {
        &self.entries
    }

    /// The same without their readiness.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.entries.iter().map(|entry| &entry.pool)
    }

    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools().find(|pool| pool.spec.name == name)
    }

    /// True if a pool with this name exists, valid or not, and is not about to be deleted.
    pub fn exists(&self, name: &str) -> bool {
        self.is_suspended(name) || self.pool(name).is_some_and(|pool| !pool.spec.deleting)
    }

    /// True if the first of these pools takes precedence over the second.
    pub fn is_older(&self, name: &str, than: &str) -> bool {
        let position = |name: &str| self.pools().position(|pool| pool.spec.name == name);
        matches!((position(name), position(than)), (Some(a), Some(b)) if a < b)
    }

    /// The enforcing pools that select a node with these labels, oldest first. The first one owns it.
    pub fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &PoolEntry> {
        self.entries.iter().filter(|entry| entry.pool.spec.enforces() && entry.pool.spec.selects(labels))
    }

    /// True if a pool with this name exists and is not valid.
    pub fn is_suspended(&self, name: &str) -> bool {
        self.suspended.contains(name)
    }

    /// The owner of a node with these labels: the oldest enforcing pool that selects it.
    pub fn owner(&self, labels: &Labels) -> Option<&PoolEntry> {
        self.selecting(labels).next()
    }

    /// True if the pool owns a node with these labels, or would own it if it enforced.
    pub(super) fn is_of(&self, pool: &Pool, labels: &Labels) -> bool {
        let is_it = |found: &Arc<Pool>| found.spec.name == pool.spec.name;
        self.owner(labels).is_some_and(|owner| is_it(&owner.pool)) || self.previews(labels).any(is_it)
    }

    /// The pools in dry run that select a node with these labels.
    pub fn previews(&self, labels: &Labels) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools().filter(|pool| pool.spec.mode == Mode::DryRun && !pool.spec.deleting && pool.spec.selects(labels))
    }

    /// All label keys that select nodes for a pool.
    pub fn selector_keys(&self) -> impl Iterator<Item = &str> {
        let keys: BTreeSet<&str> =
            self.pools().flat_map(|pool| pool.spec.node_selector.keys().map(String::as_str)).collect();
        keys.into_iter()
    }

    /// True if winpool may have added this taint to a node. The node's annotation alone is no proof, because a kubelet
    /// can forge it.
    pub fn may_remove(&self, taint: &Taint) -> bool {
        self.removable.contains(taint)
    }
}

fn demands(PoolEntry { pool, ready }: &PoolEntry) -> u64 {
    let (Pool { spec, consent, .. }, mut hasher) = (pool.as_ref(), DefaultHasher::new());
    (&spec.name, spec.enforces(), ready).hash(&mut hasher);
    (spec.wanted_taints(), &spec.retired_taints, discriminant(&spec.taint_policy)).hash(&mut hasher);
    consent.may_add.hash(&mut hasher);
    pool.images().hash(&mut hasher);
    hasher.finish()
}
