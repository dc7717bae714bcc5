//! Taking winpool out of a cluster: every pool gives up what it put on nodes and which classes it owns.

use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::api::{Taint, WindowsPool, names};

use super::{
    Entry, Node, NodePlan, Policy, Pool, is_made_by_winpool,
    node::{Marks, release},
    owner,
};

/// How much goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that is winpool's, whatever pools say about their end, and also if their pool is no more.
    Everything,
    /// What would go if every pool were deleted now: with `deletionPolicy: Retain` or in dry run nothing.
    AsPoolsSay,
}

/// What nodes and classes are judged by when winpool leaves.
#[derive(Clone, Debug)]
pub struct Cleanup {
    extent: Extent,
    policy: Policy,
}

/// What happens to a node when winpool leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeParting {
    /// What to take off.
    pub plan: NodePlan,
    /// Whether it keeps its marks, because it asks to be left alone.
    pub ignored: bool,
    /// Taints that stay although the node's annotation names them as winpool's: no pool knows them, and a kubelet can
    /// forge the annotation.
    pub doubtful: Vec<Taint>,
}

impl Cleanup {
    /// The end of these pools, which need not be valid.
    #[must_use]
    pub fn new(pools: impl IntoIterator<Item = WindowsPool>, extent: Extent) -> Self {
        let deleted = pools.into_iter().filter_map(|mut pool| {
            pool.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::UNIX_EPOCH));
            Pool::read(&pool).ok()
        });
        let entries = deleted.map(|pool| Entry { pool: pool.into(), ready: true });
        Self { extent, policy: Policy::new(entries, [].into()) }
    }

    /// What the patches of nodes are made with.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What happens to this node.
    #[must_use]
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

    /// Whether this class is deleted or released.
    #[must_use]
    pub fn concerns_class(&self, class: &RuntimeClass) -> bool {
        let pool = || self.policy.pool(owner(class)?);
        match self.extent {
            Extent::Everything => owner(class).is_some() || is_made_by_winpool(class),
            Extent::AsPoolsSay => pool().is_some_and(|pool| pool.needs_cleanup()),
        }
    }
}
