//! A cluster at a moment of the upgrade, when the operator has done its part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::plan::Now;
use winpool_core::windows::Build;
use winpool_simulation::Unfinished;

use crate::explain::forecast::{ForecastOutcome, Snapshot, forecast};
use crate::explain::pool_change;
use crate::explain::subject::WorkloadSubject;
use crate::image::Images;
use crate::placement::Obstacle;
use crate::remedy::Remedy;
use crate::verdict::{Asked, Cluster, OnNode, PodOutcome, Verdict, one_of_each};
use crate::view::assume::Assumed;
use crate::view::{Admission, Node, SeenNode, View};

use super::facts::{UpgradeFacts, is_unknown};

/// The end of the name of a node with the new version, as long as the node with the old version is there too.
const AGAIN: &str = " (upgraded)";

/// The part of a node in the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Old,
    New,
    Other,
}

/// The cluster of today and the cluster after the upgrade.
pub(super) struct Scenario {
    pub now: Snapshot,
    /// The cluster of today when the operator has done its part.
    present: ForecastOutcome,
    after: Snapshot,
    /// What pods find today.
    there: Cluster,
    /// The names of the nodes that change.
    changing: BTreeSet<String>,
    /// What pods ask of nodes.
    pub asked: Asked,
}

impl Scenario {
    /// `after` is the view with the assumptions, and `before` has the nodes without them.
    pub fn new(
        before: &[SeenNode],
        after: View,
        assumed: &Assumed,
        images: &Images,
        now: Now,
    ) -> Result<Self, Unfinished> {
        let admission = after.admission();
        let mut after = Snapshot::of(after, now);
        let known = before.iter().filter(|seen| after.nodes.contains_key(&*seen.object.name));
        let nodes = known.map(|seen| (seen.object.name.to_string(), seen.object.node.clone())).collect();
        let now = Snapshot { nodes, ..after.clone() };
        let present = forecast(&now)?;
        // The classes of today are there when the nodes change.
        after.classes = present.classes.values().cloned().collect();
        let nodes = before.iter().map(SeenNode::host).collect();
        let there = Cluster { nodes, images: images.clone(), admission, ..Cluster::default() };
        let changing = assumed.nodes.keys().cloned().collect();
        Ok(Self { now, present, there, changing, after, asked: Asked::default() })
    }

    /// Returns what is added to new pods.
    pub fn admission(&self) -> &Admission {
        &self.there.admission
    }

    /// Returns the cluster of today when the operator has done its part.
    pub fn present(&self) -> Cluster {
        self.present.cluster(&self.there)
    }

    /// Returns the three moments.
    pub fn stages(&self) -> Result<Stages, Unfinished> {
        let now = self.stage(&self.present, Role::Old);
        Ok(Stages { now, rolling: self.rolling(None)?, after: self.after(None)? })
    }

    /// Returns the moment with nodes of both versions, with a change of a pool if there is one.
    pub fn rolling(&self, change: Option<&Remedy>) -> Result<Stage, Unfinished> {
        let mut both = self.now.clone();
        let upgraded = self.changing.iter().filter_map(|name| Some((name, self.after.nodes.get(name)?)));
        both.classes.clone_from(&self.after.classes);
        both.nodes.extend(upgraded.map(|(name, node)| (format!("{name}{AGAIN}"), node.clone())));
        Ok(self.stage(&changed(both, change)?, Role::Old))
    }

    /// Returns the moment after the last node, with a change of a pool if there is one.
    pub fn after(&self, change: Option<&Remedy>) -> Result<Stage, Unfinished> {
        Ok(self.stage(&changed(self.after.clone(), change)?, Role::New))
    }

    /// Reads the cluster when the operator has done its part. The nodes that change have this role.
    fn stage(&self, outcome: &ForecastOutcome, role: Role) -> Stage {
        let mut cluster = outcome.cluster(&self.there);
        let role_of = |node: &Node| if self.changing.contains(&node.name) { role } else { Role::Other };
        let mut roles: Vec<Role> = cluster.nodes.iter().map(role_of).collect();
        for host in self.there.nodes.iter().filter(|host| self.changing.contains(&host.name)) {
            if let Some(node) = outcome.nodes.get(&format!("{}{AGAIN}", host.name)) {
                cluster.nodes.push(host.as_read(node));
                roles.push(Role::New);
            }
        }
        // One node of each group is enough.
        let asked = self.asked.clone().with_classes(cluster.classes.values());
        let alike = roles.iter().zip(&cluster.nodes).map(|(role, node)| (*role, asked.group(node)));
        let groups = one_of_each(alike);
        let roles = groups.iter().filter_map(|group| roles.get(group.index)).copied().collect();
        Stage { roles, cluster: cluster.with_one_of_each(&groups), objects: outcome.classes.clone() }
    }
}

/// Makes a change of a pool, and lets the operator do its part.
fn changed(mut snapshot: Snapshot, change: Option<&Remedy>) -> Result<ForecastOutcome, Unfinished> {
    if let Some(change) = change {
        pool_change::apply(change, &mut snapshot.pools);
    }
    forecast(&snapshot)
}

/// The three moments that each workload is asked about.
pub(super) struct Stages {
    pub now: Stage,
    pub rolling: Stage,
    pub after: Stage,
}

/// The cluster at a moment.
pub(super) struct Stage {
    /// The role of each node of the cluster.
    roles: Vec<Role>,
    pub cluster: Cluster,
    pub objects: BTreeMap<String, Arc<RuntimeClass>>,
}

impl Stage {
    /// Returns what happens to the pods of the workload on each node.
    pub fn verdict<'s>(&'s self, subject: &'s WorkloadSubject, facts: &UpgradeFacts<'_>) -> Verdict<'s> {
        let mut found = Verdict::of(subject.question(), &self.cluster);
        let mut starts: BTreeMap<Build, bool> = BTreeMap::new();
        for (on, node) in found.nodes.iter_mut().zip(&self.cluster.nodes) {
            if let (None, Some(version)) = (on.starts, node.version) {
                let has_evidence = || facts.evidence(subject, &self.cluster.classes, version.build).is_some();
                on.starts = starts.entry(version.build).or_insert_with(has_evidence).then_some(true);
            }
        }
        found
    }

    /// The nodes with the new version.
    pub fn upgraded(&self) -> impl Iterator<Item = &Node> {
        self.roles.iter().zip(&self.cluster.nodes).filter(|(role, _)| **role == Role::New).map(|(_, node)| node)
    }

    /// The answers for the nodes with this role.
    pub fn with_role<'v>(&self, role: Role, verdict: &'v Verdict<'_>) -> impl Iterator<Item = (&Node, &'v OnNode)> {
        let nodes = self.roles.iter().zip(&self.cluster.nodes).zip(&verdict.nodes);
        nodes.filter(move |((own, _), _)| **own == role).map(|((_, node), on)| (node, on))
    }

    /// True if pods can be scheduled on one of the nodes that change.
    pub fn fits_assumed(&self, verdict: &Verdict<'_>) -> bool {
        let mut changing = [Role::Old, Role::New].into_iter().flat_map(|role| self.with_role(role, verdict));
        changing.any(|(_, on)| on.is_possible())
    }

    /// True if only labels with unknown values keep pods off a node with the new version.
    pub fn has_unclear(&self, verdict: &Verdict<'_>, facts: &UpgradeFacts<'_>) -> bool {
        self.is_kept_off_by(verdict, |obstacle| is_unknown(obstacle, facts.assumed))
    }

    /// True if only such obstacles keep pods off a node with the new version.
    pub fn is_kept_off_by(&self, verdict: &Verdict<'_>, is_such: impl Fn(&Obstacle) -> bool) -> bool {
        let mut obstacles = self.with_role(Role::New, verdict).map(|(_, on)| &on.obstacles);
        obstacles.any(|obstacles| !obstacles.is_empty() && obstacles.iter().all(&is_such))
    }

    /// Returns where the pods run at this moment.
    pub fn answer(&self, verdict: &Verdict<'_>, facts: &UpgradeFacts<'_>) -> PodOutcome {
        let has_unclear = || verdict.refused.is_none() && self.has_unclear(verdict, facts);
        let has = |role: Role| self.roles.contains(&role);
        let lacks = |role| has(role) && !self.with_role(role, verdict).any(|(_, on)| on.is_possible());
        match verdict.outcome() {
            PodOutcome::NoNode if has_unclear() => PodOutcome::Unknown,
            PodOutcome::Runs | PodOutcome::Unknown if lacks(Role::New) && has_unclear() => PodOutcome::Unknown,
            PodOutcome::Runs | PodOutcome::Unknown if lacks(Role::New) => PodOutcome::OldNodesOnly,
            PodOutcome::Runs if has(Role::New) && lacks(Role::Old) => PodOutcome::NewNodesOnly,
            outcome => outcome,
        }
    }
}
