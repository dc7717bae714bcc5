//! A cluster at a moment of the upgrade, when the operator has done its part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::plan::Now;
use winpool_core::pod::Class;
use winpool_core::windows::Build;

use crate::explain::forecast::{ForecastOutcome, Snapshot, forecast};
use crate::explain::pod::{NodeFit, TemplateFit, fits};
use crate::explain::pool_change;
use crate::placement::Obstacle;
use crate::remedy::Remedy;
use crate::view::assume::Assumed;
use crate::view::{Node, SeenNode, View};

use super::facts::{UpgradeFacts, is_unknown};
use super::result::PodOutcome;
use super::subject::UpgradeSubject;

/// The end of the name of a node with the new version, as long as the node with the old version is there too.
const AGAIN: &str = " (upgraded)";

/// The part of a node in the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The nodes as pods see them today.
    hosts: BTreeMap<String, Node>,
    /// The names of the nodes that change.
    changing: BTreeSet<String>,
}

impl Scenario {
    /// `after` is the view with the assumptions, and `before` has the nodes without them.
    pub fn new(before: &[SeenNode], after: View, assumed: &Assumed, now: Now) -> Self {
        let mut after = Snapshot::of(after, now);
        let name = |seen: &SeenNode| seen.object.name.to_string();
        let known = before.iter().filter(|seen| after.nodes.contains_key(&*seen.object.name));
        let nodes = known.map(|seen| (name(seen), seen.object.node.clone())).collect();
        let now = Snapshot { nodes, ..after.clone() };
        let present = forecast(now.clone());
        // The classes of today are there when the nodes change.
        after.classes = present.classes.values().cloned().collect();
        Self {
            now,
            present,
            hosts: before.iter().map(|seen| (name(seen), seen.host())).collect(),
            changing: assumed.nodes.keys().cloned().collect(),
            after,
        }
    }

    /// Returns the three moments.
    pub fn stages(&self) -> Stages {
        let now = self.stage(&self.present, Role::Old);
        Stages { now, rolling: self.rolling(None), after: self.after(None) }
    }

    /// Returns the moment with nodes of both versions, with a change of a pool if there is one.
    pub fn rolling(&self, change: Option<&Remedy>) -> Stage {
        let mut both = self.now.clone();
        let upgraded = self.changing.iter().filter_map(|name| Some((name, self.after.nodes.get(name)?)));
        both.classes.clone_from(&self.after.classes);
        both.nodes.extend(upgraded.map(|(name, node)| (format!("{name}{AGAIN}"), node.clone())));
        self.stage(&changed(both, change), Role::Old)
    }

    /// Returns the moment after the last node, with a change of a pool if there is one.
    pub fn after(&self, change: Option<&Remedy>) -> Stage {
        self.stage(&changed(self.after.clone(), change), Role::New)
    }

    /// Reads the cluster when the operator has done its part. The nodes that change have this role.
    fn stage(&self, outcome: &ForecastOutcome, role: Role) -> Stage {
        let windows = outcome.nodes.iter().filter(|(_, node)| node.is_windows());
        let nodes = windows.map(|(key, node)| {
            let name = key.strip_suffix(AGAIN).unwrap_or(key);
            let role = if name.len() < key.len() { Role::New } else { role };
            let role = if self.changing.contains(name) { role } else { Role::Other };
            let Node { allocatable, handlers, .. } = self.hosts.get(name).cloned().unwrap_or_default();
            (role, Node { allocatable, handlers, ..Node::of(name, node) })
        });
        let (roles, nodes) = nodes.unzip();
        let classes = outcome.classes.iter().map(|(name, class)| (name.clone(), Class::from(&**class))).collect();
        Stage { roles, nodes, classes, objects: outcome.classes.clone() }
    }
}

/// Makes a change of a pool, and lets the operator do its part.
fn changed(mut snapshot: Snapshot, change: Option<&Remedy>) -> ForecastOutcome {
    if let Some(change) = change {
        pool_change::apply(change, &mut snapshot.pools);
    }
    forecast(snapshot)
}

/// The three moments that each workload is asked about.
pub(super) struct Stages {
    pub now: Stage,
    pub rolling: Stage,
    pub after: Stage,
}

/// The Windows nodes and the RuntimeClasses at a moment.
pub(super) struct Stage {
    roles: Vec<Role>,
    pub nodes: Vec<Node>,
    pub classes: BTreeMap<String, Class>,
    pub objects: BTreeMap<String, Arc<RuntimeClass>>,
}

impl Stage {
    /// Returns what happens to the pods of the workload on each node.
    pub fn fits(&self, subject: &UpgradeSubject, facts: &UpgradeFacts<'_>) -> TemplateFit {
        let UpgradeSubject { kind, template, pods, .. } = subject;
        let images = facts.cluster.images();
        let mut found = fits(*kind, template, pods, &self.nodes, &self.classes, images);
        let mut starts: BTreeMap<Build, bool> = BTreeMap::new();
        for (fit, node) in found.nodes.iter_mut().zip(&self.nodes) {
            if let (None, Some(version)) = (fit.starts, node.version) {
                let has_evidence = || facts.evidence(subject, &self.classes, version.build).is_some();
                fit.starts = starts.entry(version.build).or_insert_with(has_evidence).then_some(true);
            }
        }
        found
    }

    /// The nodes with the new version.
    pub fn upgraded(&self) -> impl Iterator<Item = &Node> {
        self.roles.iter().zip(&self.nodes).filter(|(role, _)| **role == Role::New).map(|(_, node)| node)
    }

    /// The answers for the nodes with this role.
    pub fn with_role<'a>(&self, role: Role, fits: &'a TemplateFit) -> impl Iterator<Item = (usize, &'a NodeFit)> {
        let nodes: Vec<bool> = self.roles.iter().map(|own| *own == role).collect();
        fits.nodes.iter().enumerate().filter(move |(index, _)| nodes.get(*index) == Some(&true))
    }

    /// True if pods can be scheduled on one of the nodes that change.
    pub fn fits_assumed(&self, fits: &TemplateFit) -> bool {
        let mut changing = [Role::Old, Role::New].into_iter().flat_map(|role| self.with_role(role, fits));
        changing.any(|(_, fit)| fit.obstacles.is_empty())
    }

    /// True if only labels with unknown values keep pods off a node with the new version.
    pub fn has_unclear(&self, fits: &TemplateFit, facts: &UpgradeFacts<'_>) -> bool {
        self.is_kept_off_by(fits, |obstacle| is_unknown(obstacle, facts.assumed))
    }

    /// True if only such obstacles keep pods off a node with the new version.
    pub fn is_kept_off_by(&self, fits: &TemplateFit, is_such: impl Fn(&Obstacle) -> bool) -> bool {
        let mut obstacles = self.with_role(Role::New, fits).map(|(_, fit)| &fit.obstacles);
        obstacles.any(|obstacles| !obstacles.is_empty() && obstacles.iter().all(&is_such))
    }

    /// Returns where the pods run at this moment.
    pub fn answer(&self, fits: &TemplateFit, facts: &UpgradeFacts<'_>) -> PodOutcome {
        if fits.refused.is_some() {
            return PodOutcome::NoNode;
        }
        let possible = |role| self.with_role(role, fits).filter(|(_, fit)| fit.obstacles.is_empty());
        let all: Vec<&NodeFit> = fits.nodes.iter().filter(|fit| fit.obstacles.is_empty()).collect();
        let has_unclear = || self.has_unclear(fits, facts);
        let has = |role: Role| self.roles.contains(&role);
        if all.iter().any(|fit| fit.starts == Some(false)) {
            PodOutcome::MayNotStart
        } else if all.is_empty() {
            if has_unclear() { PodOutcome::Unknown } else { PodOutcome::NoNode }
        } else if has(Role::New) && possible(Role::New).next().is_none() {
            if has_unclear() { PodOutcome::Unknown } else { PodOutcome::OldNodesOnly }
        } else if all.iter().any(|fit| fit.starts.is_none()) {
            PodOutcome::Unknown
        } else if has(Role::Old) && has(Role::New) && possible(Role::Old).next().is_none() {
            PodOutcome::NewNodesOnly
        } else {
            PodOutcome::Runs
        }
    }
}
