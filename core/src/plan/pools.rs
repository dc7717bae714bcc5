//! Pools as the plan uses them: validated, typed, in the order in which they win.

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
    /// `taints` omitted: any known Windows taint will do; `os=windows:NoSchedule` on nodes without one.
    Guard,
    /// Exactly these.
    Exactly(Vec<Taint>),
}

/// The nodes that a RuntimeClass selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Windows nodes of any build.
    Any,
    /// Nodes of this build.
    Of(Build),
    /// Nodes that run images of this build under this isolation, which carry a stamp.
    Running(Build, Isolation),
}

impl Hosts {
    /// The build of the images, if there is one.
    #[must_use]
    pub fn build(self) -> Option<Build> {
        match self {
            Self::Any => None,
            Self::Of(build) | Self::Running(build, _) => Some(build),
        }
    }
}

/// A valid pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.creationTimestamp`: the oldest pool wins.
    pub created: Option<Timestamp>,
    /// `spec.mode`.
    pub mode: Mode,
    /// `spec.nodeSelector`, without the operating system.
    pub node_selector: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: WantedTaints,
    /// `spec.retiredTaints`.
    pub retired_taints: Vec<Taint>,
    /// `spec.taintPolicy`.
    pub taint_policy: TaintPolicy,
    /// `spec.runtimeClassAdoptionPolicy`.
    pub runtime_class_adoption_policy: AdoptionPolicy,
    /// `spec.deletionPolicy`.
    pub deletion_policy: DeletionPolicy,
    /// Whether the pool is being deleted: it selects no node any more and takes its marks off.
    pub deleting: bool,
    /// `status.managedTaints`: every taint of winpool's that this pool ever put on a node or took over with one.
    pub ever_applied: Vec<Taint>,
    /// `status.approvedTaints`: nodes that register, or lose one of these, get it at once.
    pub approved: Vec<ApprovedTaint>,
    /// The last workload check that found nobody who would become unschedulable.
    pub clean_check: Arc<CleanCheck>,
    /// RuntimeClasses of the pool that do not tolerate its taints yet: the nodes that they select wait for them.
    pub lagging: Vec<LaggingClass>,
    /// The builds that its classes are planned for: a node of another build waits until its class is planned too.
    pub planned_builds: BTreeSet<Build>,
    /// `spec.runtimeClassDiscovery`.
    pub discover: bool,
    /// `spec.runtimeClassNameFormat`.
    pub runtime_class_name_format: String,
    /// `spec.buildNames`.
    pub named_builds: BTreeMap<Build, String>,
    /// `spec.runtimeClasses`, each with what it selects.
    pub declared: Vec<(Hosts, RuntimeClassSpec)>,
}

/// A pool breaks the rules of its own schema, because it was stored before they were in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("WindowsPool {name} is not valid and is left alone until it is corrected: {}", list(violations))]
pub struct InvalidPool {
    /// Name of the pool.
    pub name: String,
    /// What is wrong, at least one entry.
    pub violations: Vec<Violation>,
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Pool {
    /// Checks and reads `pool`.
    ///
    /// # Errors
    /// When the pool breaks any rule of [`violations`].
    pub fn read(pool: &WindowsPool) -> Result<Self, InvalidPool> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let violations = violations(pool);
        // What is being deleted need not be right: as much of it is cleaned up as can be read.
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

    /// The taints that the pool's RuntimeClasses have to tolerate on its account, whether winpool or somebody else puts
    /// them on.
    #[must_use]
    pub fn wanted_taints(&self) -> Vec<Taint> {
        match &self.taints {
            WantedTaints::Guard => vec![Taint::os_windows()],
            WantedTaints::Exactly(list) => list.clone(),
        }
    }

    /// The taints that winpool may put on the pool's nodes: approved ones, and those that need no workload check.
    #[must_use]
    pub fn applicable_taints(&self) -> Vec<Taint> {
        if self.taint_policy == TaintPolicy::Never {
            return Vec::new();
        }
        let may = |taint: &Taint| self.needs_no_check(taint) || self.approves(taint);
        self.wanted_taints().into_iter().filter(may).collect()
    }

    /// Whether winpool writes for this pool at all.
    #[must_use]
    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce && !self.deleting
    }

    /// Whether deleting this pool needs winpool to clean up first.
    #[must_use]
    pub fn needs_cleanup(&self) -> bool {
        self.mode == Mode::Enforce && self.deletion_policy == DeletionPolicy::Delete
    }

    /// Whether the labels are those of a Windows node that this pool selects.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        labels.get(names::OS) == Some(names::WINDOWS) && labels.matches(&self.node_selector)
    }

    /// The name of `build` in class names, if this release or the pool knows one.
    #[must_use]
    pub fn version_of(&self, build: Build) -> Option<&str> {
        let named = self.named_builds.get(&build).map(String::as_str);
        named.or_else(|| product::by_build(build).map(|product| product.version))
    }

    /// The name of the discovered RuntimeClass of `build`.
    #[must_use]
    pub fn class_name(&self, build: Build) -> String {
        match self.version_of(build) {
            Some(version) => self.format_class_name(version),
            None => self.unnamed_class_name(build),
        }
    }

    /// The name of that class as long as nobody knows a name for the build.
    #[must_use]
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

/// `status.managedTaints`, as far as it can be read.
pub(super) fn managed_taints(status: Option<&WindowsPoolStatus>) -> Vec<Taint> {
    status.iter().flat_map(|status| &status.managed_taints).filter_map(|text| text.parse().ok()).collect()
}

/// A taint of `status.approvedTaints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedTaint {
    /// The taint.
    pub taint: Taint,
    /// When it was approved, for people.
    pub since: Timestamp,
}

/// `status.approvedTaints`, as far as it can be read.
pub(super) fn approved_taints(status: Option<&WindowsPoolStatus>) -> Vec<ApprovedTaint> {
    let listed = status.iter().flat_map(|status| &status.approved_taints);
    listed
        .filter_map(|listed| Some(ApprovedTaint { taint: listed.taint.parse().ok()?, since: listed.since.0 }))
        .collect()
}

/// A pool in a [`Policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The pool.
    pub pool: Arc<Pool>,
    /// Whether its nodes may be written. While its RuntimeClasses are not right yet, the pool holds the nodes that it
    /// selects, so that no younger pool takes them meanwhile, and does nothing to them.
    pub ready: bool,
}

/// What nodes are judged by: the valid pools, oldest first, and the taints that winpool may take off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    entries: Vec<Entry>,
    suspended: BTreeSet<String>,
    removable: BTreeSet<Taint>,
}

impl Policy {
    /// The policy of these pools. `suspended` are the names of pools that exist and cannot be used, because they are
    /// not valid: nodes that carry their marks are left as they are.
    pub fn new(entries: impl IntoIterator<Item = Entry>, suspended: BTreeSet<String>) -> Self {
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
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.entries.iter().map(|entry| &entry.pool).find(|pool| pool.name == name)
    }

    /// Whether there is a pool of this name, usable or not, that is not about to go.
    #[must_use]
    pub fn exists(&self, name: &str) -> bool {
        self.is_suspended(name) || self.pool(name).is_some_and(|pool| !pool.deleting)
    }

    /// Whether the first of these pools wins over the second.
    #[must_use]
    pub fn is_older(&self, name: &str, than: &str) -> bool {
        let position = |name: &str| self.entries.iter().position(|entry| entry.pool.name == name);
        matches!((position(name), position(than)), (Some(a), Some(b)) if a < b)
    }

    /// The enforcing pools that select a node with these labels, oldest first: the first one owns it.
    pub fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &Arc<Pool>> {
        let pools = self.entries.iter().map(|entry| &entry.pool);
        pools.filter(|pool| pool.enforces() && pool.selects(labels))
    }

    /// Whether a pool of this name exists and cannot be used.
    #[must_use]
    pub fn is_suspended(&self, name: &str) -> bool {
        self.suspended.contains(name)
    }

    /// The pool that a node with these labels belongs to: the oldest enforcing one that selects it.
    #[must_use]
    pub fn owner(&self, labels: &Labels) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.pool.enforces() && entry.pool.selects(labels))
    }

    /// The pools in dry run that select a node with these labels.
    pub fn previews(&self, labels: &Labels) -> impl Iterator<Item = &Arc<Pool>> {
        let pools = self.entries.iter().map(|entry| &entry.pool);
        pools.filter(|pool| pool.mode == Mode::DryRun && !pool.deleting && pool.selects(labels))
    }

    /// Every label key that decides which pool a node belongs to.
    pub fn selector_keys(&self) -> impl Iterator<Item = &str> {
        let keys: BTreeSet<&str> =
            self.entries.iter().flat_map(|entry| entry.pool.node_selector.keys().map(String::as_str)).collect();
        keys.into_iter()
    }

    /// Whether winpool may ever have put this taint on a node: a node's own annotation is not evidence enough, because
    /// a kubelet can forge it.
    #[must_use]
    pub fn may_remove(&self, taint: &Taint) -> bool {
        self.removable.contains(taint)
    }
}
