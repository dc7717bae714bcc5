//! The plan for removing winpool from a cluster: every pool releases its nodes and classes.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;

use crate::api::{Taint, WindowsPool, names};

use super::{
    ClassRetirement, Node, NodePlan, Policy, Pool, PoolEntry,
    assessment::release,
    classes::is_declared,
    is_made_by_winpool,
    marks::Marks,
    owner, release_class,
    runtime_class::{KEPT_TAINT, selected_build, tolerates_any},
};

/// The extent of a cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything of winpool's, even if a pool has `deletionPolicy: Retain` or no longer exists.
    Everything,
    /// The same as deleting every pool now: pools with `deletionPolicy: Retain` or in dry run release nothing.
    AsPoolsSay,
}

/// The rules for nodes and classes when winpool is removed.
#[derive(Clone, Debug)]
pub struct Cleanup {
    extent: Extent,
    policy: Policy,
    /// The uids in `status.runtimeClasses` of the pools.
    recorded: BTreeSet<String>,
}

/// The plan for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeParting {
    pub plan: NodePlan,
    /// True if the node has the annotation `winpool.dev/ignore` and is not changed.
    pub ignored: bool,
    /// Taints that stay although the node's annotation says that winpool added them: no pool knows them, and a kubelet
    /// can forge the annotation.
    pub doubtful: Vec<Taint>,
}

impl Cleanup {
    /// Plans the removal of these pools. They need not be valid.
    pub fn new(pools: impl IntoIterator<Item = WindowsPool>, extent: Extent) -> Self {
        let mut recorded = BTreeSet::new();
        let deleted = pools.into_iter().filter_map(|mut pool| {
            let classes = pool.status.iter().flat_map(|status| &status.runtime_classes);
            recorded.extend(classes.filter_map(|class| class.uid.clone()));
            pool.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::UNIX_EPOCH));
            Pool::read(&pool).ok()
        });
        let entries = deleted.map(|pool| PoolEntry { pool: pool.into(), ready: true });
        let policy = Policy::new(entries, [].into());
        Self { extent, policy, recorded }
    }

    /// The policy for the patches of nodes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn node(&self, node: &Node) -> NodeParting {
        let marks = Marks::of(node);
        let has_capability_labels = node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX).next().is_some();
        let goes = match self.extent {
            Extent::Everything => marks.are_there() || has_capability_labels,
            Extent::AsPoolsSay => marks.belong_to_a_live_pool(&self.policy),
        };
        if !goes || node.is_ignored() {
            return NodeParting { ignored: goes, ..NodeParting::default() };
        }
        let claimed: Vec<Taint> =
            marks.applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok()).collect();
        let is_doubtful =
            |taint: &&Taint| claimed.contains(taint) && !taint.has_foreign_key() && !self.policy.may_remove(taint);
        let doubtful = node.taints.taints().iter().filter(is_doubtful).cloned().collect();
        NodeParting { plan: release(node, &marks, &self.policy), ignored: false, doubtful }
    }

    /// winpool's taints on a node that is not cleaned up.
    pub fn kept_taints(&self, node: &Node) -> impl Iterator<Item = Taint> {
        node.taints.taints().iter().filter(|taint| self.policy.may_remove(taint)).cloned()
    }

    /// Releases a class instead of deleting it if its pool would do so: nodes keep a taint that it tolerates, or it is a
    /// copy, with winpool's labels, of a class that winpool created.
    pub fn spare(&self, class: &RuntimeClass, end: ClassRetirement, kept: &BTreeSet<Taint>) -> ClassRetirement {
        if self.extent == Extent::Everything || end != ClassRetirement::Delete {
            return end;
        }
        if tolerates_any(class, kept) {
            return release_class(class, KEPT_TAINT.to_owned());
        }
        let name = class.name_any();
        let is_wanted = |pool: &Arc<Pool>| {
            let is_discovered = |build| pool.discover && pool.class_name(build) == name;
            is_declared(pool, &name) || selected_build(class).is_some_and(is_discovered)
        };
        let is_recorded = class.uid().is_some_and(|uid| self.recorded.contains(&uid));
        if is_recorded || owner(class).and_then(|pool| self.policy.pool(pool)).is_some_and(is_wanted) {
            return end;
        }
        release_class(class, "winpool has no record that it created this class".to_owned())
    }

    /// True if the cleanup deletes or releases this class.
    pub fn concerns_class(&self, class: &RuntimeClass) -> bool {
        let pool = || self.policy.pool(owner(class)?);
        match self.extent {
            Extent::Everything => owner(class).is_some() || is_made_by_winpool(class),
            Extent::AsPoolsSay => pool().is_some_and(|pool| pool.needs_cleanup()),
        }
    }
}
