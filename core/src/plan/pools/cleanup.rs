//! The plan for removing winpool from a cluster: every pool releases its nodes and classes.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;

use crate::{
    api::{Taint, WindowsPool},
    plan::{
        classes::{
            is_declared,
            runtime_class::{
                ClassRetirement, KEPT_TAINT, KeptTaints, is_made_by_winpool, is_needed_by, owner, release_class,
                selected_build,
            },
        },
        nodes::{
            assessment::release,
            capability_labels::{self, LabelUsers},
            node::{NodeFields, NodePlan, NodeRecord},
        },
        pools::pool::{Policy, Pool, PoolEntry},
        taints::kept_on,
    },
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
pub struct NodeRelease {
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

    /// Plans the release of this node. A cleanup of everything removes its capability labels, unless they have users.
    pub fn node(&self, node: &NodeFields, users: &LabelUsers) -> NodeRelease {
        let record = NodeRecord::of(node);
        let mut labels = capability_labels::removal(node);
        labels.retain(|change| users.of(&change.key).is_none());
        let goes = match self.extent {
            Extent::Everything => record.exists() || !labels.is_empty(),
            Extent::AsPoolsSay => record.belongs_to_a_live_pool(&self.policy),
        };
        if !goes || node.is_ignored() {
            return NodeRelease { ignored: goes, ..NodeRelease::default() };
        }
        let claimed: Vec<Taint> =
            record.applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok()).collect();
        let is_doubtful =
            |taint: &&Taint| claimed.contains(taint) && !taint.has_foreign_key() && !self.policy.may_remove(taint);
        let doubtful = node.taints.taints().iter().filter(is_doubtful).cloned().collect();
        let mut plan = release(node, &record, &self.policy);
        if self.extent == Extent::Everything && !node.was_reimaged() {
            plan.capability_labels = labels;
        }
        NodeRelease { plan, ignored: false, doubtful }
    }

    /// The taints on a node because of which classes of the pools are needed: those that stay if it is not cleaned up, or
    /// after that.
    pub fn kept_taints(&self, node: &NodeFields) -> Option<KeptTaints> {
        let wanted: Vec<_> = self.policy.pools().flat_map(|pool| pool.spec.wanted_taints()).collect();
        Some(kept_on(node, &wanted, &self.policy)).filter(|(_, taints)| !taints.is_empty())
    }

    /// Releases a class instead of deleting it if nodes keep a taint that it tolerates. A cleanup that follows the pools also
    /// releases a copy, with winpool's labels, of a class that winpool created.
    pub fn spare(&self, class: &RuntimeClass, end: ClassRetirement, kept: &[KeptTaints]) -> ClassRetirement {
        if end != ClassRetirement::Delete {
            return end;
        }
        if is_needed_by(class, kept) {
            return release_class(class, KEPT_TAINT.to_owned());
        }
        if self.extent == Extent::Everything {
            return end;
        }
        let name = class.name_any();
        let is_wanted = |pool: &Arc<Pool>| {
            let is_discovered = |build| pool.spec.discover && pool.spec.class_name(build) == name;
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
            Extent::AsPoolsSay => pool().is_some_and(|pool| pool.spec.needs_cleanup()),
        }
    }
}
