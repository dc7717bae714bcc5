//! The plan for removing winpool from a cluster: every pool releases its nodes and classes.

use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::api::{Taint, WindowsPool, names};

use super::{Node, NodePlan, Policy, Pool, PoolEntry, assessment::release, is_made_by_winpool, marks::Marks, owner};

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
        let deleted = pools.into_iter().filter_map(|mut pool| {
            pool.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::UNIX_EPOCH));
            Pool::read(&pool).ok()
        });
        let entries = deleted.map(|pool| PoolEntry { pool: pool.into(), ready: true });
        Self { extent, policy: Policy::new(entries, [].into()) }
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

    /// True if the cleanup deletes or releases this class.
    pub fn concerns_class(&self, class: &RuntimeClass) -> bool {
        let pool = || self.policy.pool(owner(class)?);
        match self.extent {
            Extent::Everything => owner(class).is_some() || is_made_by_winpool(class),
            Extent::AsPoolsSay => pool().is_some_and(|pool| pool.needs_cleanup()),
        }
    }
}
