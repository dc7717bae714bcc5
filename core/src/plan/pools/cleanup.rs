//! The plan for removing winpool from a cluster: every pool releases its nodes and classes.

use k8s_openapi::api::node::v1::RuntimeClass;

use crate::{
    api::{Taint, names},
    plan::{
        classes::runtime_class::{ClassRetirement, KEPT_TAINT, KeptTaints, is_needed_by, release_class, retire_class},
        nodes::{
            assessment::release,
            capability_labels::{self, LabelUsers},
            node::{NodeFields, NodePlan, NodeRecord},
        },
        pods::table::ClassUsers,
        pools::pool::{GuardedPool, Policy, policy_of},
        taints::kept_on,
    },
};

/// The rules for nodes and classes when winpool is removed.
#[derive(Clone, Debug)]
pub struct Cleanup {
    policy: Policy,
}

/// The plan for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRelease {
    pub plan: NodePlan,
    /// True if the node has the annotation `winpool.dev/ignore` and is not changed.
    pub ignored: bool,
    /// Taints that stay although the node's annotation says that winpool added them: no pool knows them, and a kubelet
    /// can forge the annotation.
    pub doubtful: Vec<Taint>,
}

impl Cleanup {
    /// Plans the removal of these pools, as if all of them were deleted.
    pub fn new(pools: &[GuardedPool]) -> Self {
        let deleted: Vec<GuardedPool> = pools.iter().map(GuardedPool::deleted).collect();
        Self { policy: policy_of(&deleted) }
    }

    /// The policy for the patches of nodes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// True if winpool may have changed the node.
    pub fn concerns(node: &NodeFields) -> bool {
        NodeRecord::of(node).exists() || node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX).next().is_some()
    }

    /// Plans the release of this node, also from capability labels that have no users.
    pub fn node(&self, node: &NodeFields, users: &LabelUsers) -> NodeRelease {
        let record = NodeRecord::of(node);
        let mut labels = capability_labels::removal(node);
        labels.retain(|change| users.of(&change.key).is_none());
        let goes = record.exists() || !labels.is_empty();
        if !goes || node.is_ignored() {
            return NodeRelease { ignored: goes, ..NodeRelease::default() };
        }
        let claimed: Vec<Taint> =
            record.applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok()).collect();
        let is_doubtful =
            |taint: &&Taint| claimed.contains(taint) && !taint.has_foreign_key() && !self.policy.may_remove(taint);
        let doubtful = node.taints.taints().iter().filter(is_doubtful).cloned().collect();
        let mut plan = release(node, &record, &self.policy);
        if !node.was_reimaged() {
            plan.capability_labels = labels;
        }
        NodeRelease { plan, ignored: false, doubtful }
    }

    /// The taints on a node because of which classes of the pools are needed: those that stay if it is not cleaned up, or
    /// after that.
    pub fn kept_taints(&self, node: &NodeFields) -> Option<KeptTaints> {
        let wanted: Vec<_> = self.policy.pools().flat_map(|pool| pool.spec.wanted_taints()).collect();
        let after = node.after(&self.node(node, &LabelUsers::default()).plan);
        Some(kept_on(&after, &wanted, &self.policy)).filter(|(_, taints)| !taints.is_empty())
    }

    /// Plans the end of a class with these users. It is released instead of deleted if nodes keep a taint that it tolerates.
    pub fn class(class: &RuntimeClass, users: Result<&ClassUsers, &str>, kept: &[KeptTaints]) -> ClassRetirement {
        match retire_class(class, users) {
            ClassRetirement::Delete if is_needed_by(class, kept) => release_class(class, KEPT_TAINT.to_owned()),
            end => end,
        }
    }
}
