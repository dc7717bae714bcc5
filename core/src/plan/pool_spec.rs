//! Metadata and spec of a pool, validated and typed.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use thiserror::Error;

use crate::{
    api::{
        ANY_VERSION, DeletionPolicy, HostMatch, Isolation, Mode, RuntimeClassDiscovery, RuntimeClassSpec, Taint,
        TaintPolicy, WindowsPool, names,
        validation::{Violation, violations},
    },
    labels::Labels,
    windows::{Build, compatibility::can_run, product},
};

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
    /// Nodes with the capability label for images of this build.
    Running(Build),
    /// Windows nodes of any build, for images of this build under Hyper-V isolation.
    HyperV(Build),
}

impl Hosts {
    /// True if the class selects a capability label.
    pub fn is_by_label(self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// The build of the images, if the class has one.
    pub fn build(self) -> Option<Build> {
        match self {
            Self::Any => None,
            Self::Of(build) | Self::Running(build) | Self::HyperV(build) => Some(build),
        }
    }
}

/// The field of a pool that decides on which nodes the pods of a RuntimeClass run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMatchField {
    /// `spec.runtimeClassHostMatch`.
    Discovered,
    /// `hostMatch` of the class at this position in `spec.runtimeClasses`.
    Declared(usize),
}

impl HostMatchField {
    /// Returns the command that sets the field to `Compatible` in the pool of this name.
    pub fn command(self, pool: &str) -> String {
        let patch = match self {
            Self::Discovered => r#"merge -p '{"spec":{"runtimeClassHostMatch":"Compatible"}}'"#.to_owned(),
            Self::Declared(position) => format!(
                r#"json -p '[{{"op":"add","path":"/spec/runtimeClasses/{position}/hostMatch","value":"Compatible"}}]'"#
            ),
        };
        format!("kubectl patch windowspool {pool} --type {patch}")
    }
}

/// Metadata and spec of a pool. It is read once, when the watch shows the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    pub name: String,
    /// `metadata.creationTimestamp`: the oldest pool wins.
    pub created: Option<Timestamp>,
    /// True if the pool is being deleted: it selects no node any more, and winpool cleans up its nodes.
    pub deleting: bool,
    pub mode: Mode,
    /// `spec.nodeSelector`, without the operating system.
    pub node_selector: BTreeMap<String, String>,
    pub taints: WantedTaints,
    pub retired_taints: Vec<Taint>,
    pub taint_policy: TaintPolicy,
    pub deletion_policy: DeletionPolicy,
    /// `spec.runtimeClassDiscovery`.
    pub discover: bool,
    pub runtime_class_name_format: String,
    /// `spec.runtimeClassHostMatch`.
    pub host_match: HostMatch,
    /// `spec.buildNames`.
    pub named_builds: BTreeMap<Build, String>,
    /// `spec.runtimeClasses`, each with the hosts that it selects.
    pub declared: Vec<(Hosts, RuntimeClassSpec)>,
}

/// The error for a pool that breaks the rules of the CRD. It was stored before these rules were in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("WindowsPool {name} is not valid, and winpool does nothing for it until it is corrected: {}", list(violations))]
pub struct InvalidPool {
    pub name: String,
    /// The errors, at least one.
    pub violations: Vec<Violation>,
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl PoolSpec {
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
            (_, Isolation::HyperV, _) => Some(Hosts::HyperV(build_of(class)?)),
            (_, Isolation::Process, HostMatch::Exact) => Some(Hosts::Of(build_of(class)?)),
            (_, Isolation::Process, HostMatch::Compatible) => Some(Hosts::Running(build_of(class)?)),
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
            deletion_policy: spec.deletion_policy,
            deleting: pool.metadata.deletion_timestamp.is_some(),
            discover: spec.runtime_class_discovery == RuntimeClassDiscovery::Enabled,
            runtime_class_name_format: spec.runtime_class_name_format.clone(),
            host_match: spec.runtime_class_host_match,
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

    /// True if winpool writes for this pool.
    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce && !self.deleting
    }

    /// True if pods for Windows get the tolerations of this pool's Windows taints.
    pub fn adds_tolerations(&self) -> bool {
        self.enforces() && self.taint_policy == TaintPolicy::TaintAndTolerate
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

    /// Returns the field that keeps the pods of this RuntimeClass of the pool on nodes of its own build. If you set it to
    /// `Compatible`, they run on every node that runs their images. `None` if the class is not for nodes of its own build alone.
    pub fn exact_host_match(&self, class: &str) -> Option<HostMatchField> {
        match self.declared.iter().enumerate().find(|(_, (_, declared))| declared.name == class) {
            None => (self.host_match == HostMatch::Exact).then_some(HostMatchField::Discovered),
            Some((position, (Hosts::Of(_), _))) => Some(HostMatchField::Declared(position)),
            Some(_) => None,
        }
    }

    /// The nodes that the discovered RuntimeClass of `build` selects. A build without a name may be invented.
    pub fn discovered_hosts(&self, build: Build) -> Hosts {
        let runs_it = |host: Build| host > build && can_run(build, host);
        let has_newer_hosts = product::PRODUCTS.iter().any(|product| runs_it(product.build));
        match self.host_match {
            HostMatch::Compatible if has_newer_hosts && self.version_of(build).is_some() => Hosts::Running(build),
            HostMatch::Compatible | HostMatch::Exact => Hosts::Of(build),
        }
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

    /// Pools are sorted by age: the oldest wins.
    pub(super) fn age(&self) -> (Option<Timestamp>, &str) {
        (self.created, &self.name)
    }

    /// True if the pool adds this taint whatever `DaemonSets` there are: it keeps no pod off, or `taintPolicy` is
    /// `TaintOnly`.
    pub fn waits_for_nobody(&self, taint: &Taint) -> bool {
        taint.effect == "PreferNoSchedule" || self.taint_policy == TaintPolicy::TaintOnly
    }

    /// The wanted taints to which a `DaemonSet` may object.
    pub fn deniable_taints(&self) -> Vec<Taint> {
        let wanted = if self.taint_policy == TaintPolicy::Never { Vec::new() } else { self.wanted_taints() };
        wanted.into_iter().filter(|taint| !self.waits_for_nobody(taint)).collect()
    }
}
