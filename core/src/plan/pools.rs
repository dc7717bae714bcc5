//! Pools in the form that plans use: validated, typed, and sorted by precedence.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use thiserror::Error;

use crate::{
    api::{
        ANY_VERSION, AdoptionPolicy, DeletionPolicy, HostMatch, Isolation, Mode, RuntimeClassDiscovery,
        RuntimeClassSpec, Taint, TaintPolicy, WindowsPool, WindowsPoolStatus, names,
        validation::{Violation, violations},
    },
    labels::Labels,
    windows::{Build, product},
};

use super::{CleanCheck, LaggingClass};

/// The taints that a pool wants on its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedTaints {
    /// `taints` omitted: a node keeps a Windows taint in any known spelling, and otherwise gets
    /// `os=windows:NoSchedule`.
    Guard,
    Exactly(Vec<Taint>),
}

/// The nodes that a RuntimeClass selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Windows nodes of any build.
    Any,
    /// Nodes of this build.
    Of(Build),
    /// Nodes with the capability label for images of this build under this isolation.
    Running(Build, Isolation),
}

impl Hosts {
    /// The build of the images, if the class has one.
    pub fn build(self) -> Option<Build> {
        match self {
            Self::Any => None,
            Self::Of(build) | Self::Running(build, _) => Some(build),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    /// `metadata.creationTimestamp`: the oldest pool wins.
    pub created: Option<Timestamp>,
    pub mode: Mode,
    /// `spec.nodeSelector`, without the operating system.
    pub node_selector: BTreeMap<String, String>,
    pub taints: WantedTaints,
    pub retired_taints: Vec<Taint>,
    pub taint_policy: TaintPolicy,
    pub runtime_class_adoption_policy: AdoptionPolicy,
    pub deletion_policy: DeletionPolicy,
    /// True if the pool is being deleted: it selects no node any more, and winpool cleans up its nodes.
    pub deleting: bool,
    /// `status.managedTaints`: every taint that winpool ever added for this pool, or took over from another one.
    pub ever_applied: Vec<Taint>,
    /// `status.approvedTaints`: nodes that register, or lose one of these, get it at once.
    pub approved: Vec<Approval>,
    /// The last workload check that found no workload which would become unschedulable.
    pub clean_check: Arc<CleanCheck>,
    /// The pool's RuntimeClasses that do not tolerate its taints yet. The nodes that they select wait for them.
    pub lagging: Vec<LaggingClass>,
    /// The builds that have a planned class. A node of another build waits until its class is planned too.
    pub planned_builds: BTreeSet<Build>,
    /// `spec.runtimeClassDiscovery`.
    pub discover: bool,
    pub runtime_class_name_format: String,
    /// `spec.buildNames`.
    pub named_builds: BTreeMap<Build, String>,
    /// `spec.runtimeClasses`, each with the hosts that it selects.
    pub declared: Vec<(Hosts, RuntimeClassSpec)>,
}

/// The error for a pool that breaks the rules of the CRD. It was stored before these rules were in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("WindowsPool {name} is not valid and is left alone until it is corrected: {}", list(violations))]
pub struct InvalidPool {
    pub name: String,
    /// The errors, at least one.
    pub violations: Vec<Violation>,
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Pool {
    /// Validates and reads `pool`.
    ///
    /// # Errors
    /// Fails if the pool breaks any rule of [`violations`].
    pub fn read(pool: &WindowsPool) -> Result<Self, InvalidPool> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let violations = violations(pool);
        // A pool that is being deleted need not be valid: as much of it is cleaned up as can be read.
        if !violations.is_empty() && pool.metadata.deletion_timestamp.is_none() {
            return Err(InvalidPool { name, violations });
        }
        let spec = &pool.spec;
        let named_builds: BTreeMap<Build, String> = spec
            .build_names
            .iter()
            .filter_map(|named| Some((named.build.parse().ok()?, named.version.clone())))
            .collect();
        let build_of = |class: &RuntimeClassSpec| match (&class.build, &class.version) {
            (Some(build), _) => build.parse().ok(),
            (None, Some(version)) => product::by_version(version)
                .map(|product| product.build)
                .or_else(|| named_builds.iter().find(|(_, name)| *name == version).map(|(build, _)| *build)),
            (None, None) => None,
        };
        let hosts = |class: &RuntimeClassSpec| match (class.version.as_deref(), class.isolation, class.host_match) {
            (Some(ANY_VERSION), ..) => Some(Hosts::Any),
            (_, Isolation::Process, HostMatch::Exact) => Some(Hosts::Of(build_of(class)?)),
            (_, isolation, _) => Some(Hosts::Running(build_of(class)?, isolation)),
        };
        let declared = spec.runtime_classes.iter().filter_map(|class| Some((hosts(class)?, class.clone()))).collect();
        let mut node_selector = spec.node_selector.clone();
        node_selector.remove(names::OS);
        Ok(Self {
            created: pool.metadata.creation_timestamp.as_ref().map(|time| time.0),
            mode: spec.mode,
            node_selector,
            taints: spec.taints.clone().map_or(WantedTaints::Guard, WantedTaints::Exactly),
            retired_taints: spec.retired_taints.clone(),
            taint_policy: spec.taint_policy,
            runtime_class_adoption_policy: spec.runtime_class_adoption_policy,
            deletion_policy: spec.deletion_policy,
            deleting: pool.metadata.deletion_timestamp.is_some(),
            ever_applied: managed_taints(pool.status.as_ref()),
            approved: approved_taints(pool.status.as_ref()),
            clean_check: Arc::default(),
            lagging: Vec::new(),
            planned_builds: BTreeSet::new(),
            discover: spec.runtime_class_discovery == RuntimeClassDiscovery::Enabled,
            runtime_class_name_format: spec.runtime_class_name_format.clone(),
            named_builds,
            declared,
            name,
        })
    }

    /// The taints that the pool's RuntimeClasses have to tolerate for it, even if another writer adds them.
    pub fn wanted_taints(&self) -> Vec<Taint> {
        match &self.taints {
            WantedTaints::Guard => vec![Taint::os_windows()],
            WantedTaints::Exactly(list) => list.clone(),
        }
    }

    /// The taints that winpool may add to the pool's nodes: approved ones, and those that need no workload check.
    pub fn applicable_taints(&self) -> Vec<Taint> {
        if self.taint_policy == TaintPolicy::Never {
            return Vec::new();
        }
        let may = |taint: &Taint| self.needs_no_check(taint) || self.approves(taint);
        self.wanted_taints().into_iter().filter(may).collect()
    }

    /// True if winpool writes for this pool.
    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce && !self.deleting
    }

    /// True if winpool has to clean up before this pool can be deleted.
    pub fn needs_cleanup(&self) -> bool {
        self.mode == Mode::Enforce && self.deletion_policy == DeletionPolicy::Delete
    }

    /// True if these are the labels of a Windows node that this pool selects.
    pub fn selects(&self, labels: &Labels) -> bool {
        labels.get(names::OS) == Some(names::WINDOWS) && labels.matches(&self.node_selector)
    }

    /// The name of `build` in class names, if this release or the pool has one.
    pub fn version_of(&self, build: Build) -> Option<&str> {
        let named = self.named_builds.get(&build).map(String::as_str);
        named.or_else(|| product::by_build(build).map(|product| product.version))
    }

    /// The name of the discovered RuntimeClass of `build`.
    pub fn class_name(&self, build: Build) -> String {
        match self.version_of(build) {
            Some(version) => self.format_class_name(version),
            None => self.unnamed_class_name(build),
        }
    }

    /// The name of that class if the build has no name.
    pub fn unnamed_class_name(&self, build: Build) -> String {
        self.format_class_name(&format!("build-{}", build.number()))
    }

    fn format_class_name(&self, version: &str) -> String {
        self.runtime_class_name_format.replace("{version}", version).replace("{pool}", &self.name)
    }

    fn age(&self) -> (Option<Timestamp>, &str) {
        (self.created, &self.name)
    }
}

/// `status.managedTaints`, without entries that cannot be parsed.
pub(super) fn managed_taints(status: Option<&WindowsPoolStatus>) -> Vec<Taint> {
    status.iter().flat_map(|status| &status.managed_taints).filter_map(|text| text.parse().ok()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub taint: Taint,
    /// The time of the approval, for users.
    pub since: Timestamp,
}

/// `status.approvedTaints`, without entries that cannot be parsed.
pub(super) fn approved_taints(status: Option<&WindowsPoolStatus>) -> Vec<Approval> {
    let listed = status.iter().flat_map(|status| &status.approved_taints);
    listed.filter_map(|listed| Some(Approval { taint: listed.taint.parse().ok()?, since: listed.since.0 })).collect()
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
}

impl Policy {
    /// The policy of these pools. `suspended` are the names of pools that exist and are not valid: their nodes are
    /// left as they are.
    pub fn new(entries: impl IntoIterator<Item = PoolEntry>, suspended: BTreeSet<String>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|a, b| a.pool.age().cmp(&b.pool.age()));
        let removable = entries
            .iter()
            .map(|entry| &entry.pool)
            .flat_map(|pool| [pool.wanted_taints(), pool.retired_taints.clone(), pool.ever_applied.clone()])
            .flatten()
            .filter(|taint| !taint.has_foreign_key())
            .collect();
        Self { entries, suspended, removable }
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
        self.pools().find(|pool| pool.name == name)
    }

    /// True if a pool with this name exists, valid or not, and is not about to be deleted.
    pub fn exists(&self, name: &str) -> bool {
        self.is_suspended(name) || self.pool(name).is_some_and(|pool| !pool.deleting)
    }

    /// True if the first of these pools takes precedence over the second.
    pub fn is_older(&self, name: &str, than: &str) -> bool {
        let position = |name: &str| self.pools().position(|pool| pool.name == name);
        matches!((position(name), position(than)), (Some(a), Some(b)) if a < b)
    }

    /// The enforcing pools that select a node with these labels, oldest first. The first one owns it.
    pub fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &PoolEntry> {
        self.entries.iter().filter(|entry| entry.pool.enforces() && entry.pool.selects(labels))
    }

    /// True if a pool with this name exists and is not valid.
    pub fn is_suspended(&self, name: &str) -> bool {
        self.suspended.contains(name)
    }

    /// The owner of a node with these labels: the oldest enforcing pool that selects it.
    pub fn owner(&self, labels: &Labels) -> Option<&PoolEntry> {
        self.selecting(labels).next()
    }

    /// The pools in dry run that select a node with these labels.
    pub fn previews(&self, labels: &Labels) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools().filter(|pool| pool.mode == Mode::DryRun && !pool.deleting && pool.selects(labels))
    }

    /// All label keys that select nodes for a pool.
    pub fn selector_keys(&self) -> impl Iterator<Item = &str> {
        let keys: BTreeSet<&str> =
            self.pools().flat_map(|pool| pool.node_selector.keys().map(String::as_str)).collect();
        keys.into_iter()
    }

    /// True if winpool may have added this taint to a node. The node's annotation alone is no proof, because a kubelet
    /// can forge it.
    pub fn may_remove(&self, taint: &Taint) -> bool {
        self.removable.contains(taint)
    }
}
