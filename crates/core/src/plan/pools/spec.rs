//! Metadata and spec of a pool, in types.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use thiserror::Error;

use crate::api::{
    ANY_VERSION, DeletionPolicy, Effect, HostMatch, Isolation, Mode, ONLY_WINDOWS_TAINTS, RuntimeClassDiscovery,
    RuntimeClassSpec, Taint, TaintPolicy, WindowsPool, WindowsPoolSpec, names,
};
use crate::labels::Labels;
use crate::windows::compatibility::can_run;
use crate::windows::{Build, builds};

/// The taints that a pool wants on its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedTaints {
    /// `taints` omitted: a node keeps a Windows taint in any known spelling, and otherwise gets
    /// `os=windows:NoSchedule`.
    Guard,
    Exactly(Vec<Taint>),
}

impl WantedTaints {
    /// The taints of a node that had none.
    pub fn list(&self) -> Vec<Taint> {
        match self {
            Self::Guard => vec![Taint::os_windows()],
            Self::Exactly(list) => list.clone(),
        }
    }
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
    /// The taints that its nodes are to have; `None` with `taintPolicy: Never`.
    pub wants: Option<WantedTaints>,
    /// The taints in `spec.taints`, or the default taint. The pool's RuntimeClasses tolerate them even if the pool adds none,
    /// because another writer may add them.
    pub tolerated_taints: Vec<Taint>,
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

/// A pool that cannot be read, or that would be unsafe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("WindowsPool {name} is not valid, and winpool does nothing for it until it is corrected: {}", errors.join("; "))]
pub struct InvalidPool {
    pub name: String,
    /// The errors, at least one. Each has the path of a field, and what to write instead.
    pub errors: Vec<String>,
}

impl PoolSpec {
    /// Reads `pool`. The API server checks it by the rules of the CRD when it is written, but another version of the CRD may
    /// have had other rules. So this refuses what would be unsafe. What else is wrong, the API server refuses when winpool
    /// writes it.
    ///
    /// # Errors
    /// Fails if the pool cannot be read, or would be unsafe. One that is being deleted is read as far as possible.
    pub fn read(pool: &WindowsPool) -> Result<Self, InvalidPool> {
        let (spec, name) = (&pool.spec, pool.metadata.name.clone().unwrap_or_default());
        let deleting = pool.metadata.deletion_timestamp.is_some();
        let mut errors = unsafe_fields(spec);
        let mut named_builds = BTreeMap::new();
        for (index, named) in spec.build_names.iter().enumerate() {
            match named.build.parse() {
                Ok(build) => drop(named_builds.insert(build, named.version.clone())),
                Err(_) => errors.push(format!("spec.buildNames[{index}].{BUILD}")),
            }
        }
        let mut declared = Vec::new();
        for (index, class) in spec.runtime_classes.iter().enumerate() {
            match hosts(class, &named_builds) {
                Ok(hosts) => declared.push((hosts, class.clone())),
                Err(error) => errors.push(format!("spec.runtimeClasses[{index}].{error}")),
            }
        }
        if !errors.is_empty() && !deleting {
            return Err(InvalidPool { name, errors });
        }
        let mut node_selector = spec.node_selector.clone();
        node_selector.remove(names::OS);
        let taints = spec.taints.clone().map_or(WantedTaints::Guard, WantedTaints::Exactly);
        Ok(Self {
            created: pool.metadata.creation_timestamp.as_ref().map(|time| time.0),
            mode: spec.mode,
            node_selector,
            tolerated_taints: taints.list(),
            wants: (spec.taint_policy != TaintPolicy::Never).then_some(taints),
            retired_taints: spec.retired_taints.clone(),
            taint_policy: spec.taint_policy,
            deletion_policy: spec.deletion_policy,
            deleting,
            discover: spec.runtime_class_discovery == RuntimeClassDiscovery::Enabled,
            runtime_class_name_format: spec.runtime_class_name_format.0.clone(),
            host_match: spec.runtime_class_host_match,
            named_builds,
            declared,
            name,
        })
    }

    /// The taints that a node gets which has none.
    pub fn wanted_taints(&self) -> Vec<Taint> {
        self.wants.as_ref().map(WantedTaints::list).unwrap_or_default()
    }

    /// True if winpool writes for this pool.
    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce && !self.deleting
    }

    /// True if pods for Windows get the tolerations of this pool's Windows taints.
    pub fn adds_tolerations(&self) -> bool {
        self.enforces() && self.taint_policy == TaintPolicy::TaintAndTolerate
    }

    /// True if pods for Windows get the toleration of this taint if it is on a node of the pool, and the pool is enforced.
    pub fn helps_with(&self, taint: &Taint) -> bool {
        let is_told = taint.effect == Effect::NoSchedule && taint.marks_windows();
        is_told && self.taint_policy == TaintPolicy::TaintAndTolerate
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
        named.or_else(|| builds::by_build(build).map(|product| product.version))
    }

    /// The nodes that the discovered RuntimeClass of `build` selects.
    pub fn discovered_hosts(&self, build: Build) -> Hosts {
        let runs_it = |host: Build| host > build && can_run(build, host);
        let has_newer_hosts = builds::all().iter().any(|product| runs_it(product.build));
        match self.host_match {
            HostMatch::Compatible if has_newer_hosts => Hosts::Running(build),
            HostMatch::Compatible | HostMatch::Exact => Hosts::Of(build),
        }
    }

    /// The name of the discovered RuntimeClass of `build`; `None` if the build has no name.
    pub fn class_name(&self, build: Build) -> Option<String> {
        let format = &self.runtime_class_name_format;
        Some(format.replace("{version}", self.version_of(build)?).replace("{pool}", &self.name))
    }

    /// Pools are sorted by age: the oldest wins.
    pub(crate) fn age(&self) -> (Option<Timestamp>, &str) {
        (self.created, &self.name)
    }

    /// True if the pool adds this taint whatever `DaemonSets` there are: it keeps no pod off, or `taintPolicy` is
    /// `TaintOnly`.
    pub fn waits_for_nobody(&self, taint: &Taint) -> bool {
        !taint.effect.keeps_off() || self.taint_policy == TaintPolicy::TaintOnly
    }

    /// The wanted taints to which a `DaemonSet` may object.
    pub fn deniable_taints(&self) -> Vec<Taint> {
        self.wanted_taints().into_iter().filter(|taint| !self.waits_for_nobody(taint)).collect()
    }
}

const BUILD: &str = "build: must be 10.0.<number>, such as 10.0.20348";

/// The nodes that a declared class selects, or what is wrong with its version or build.
fn hosts(class: &RuntimeClassSpec, named: &BTreeMap<Build, String>) -> Result<Hosts, &'static str> {
    let build = match (class.version.as_deref(), class.build.as_deref()) {
        (Some(ANY_VERSION), None) => return Ok(Hosts::Any),
        (Some(version), None) => {
            let of_pool = || named.iter().find(|(_, name)| *name == version).map(|(build, _)| *build);
            let known = builds::by_version(version).map(|product| product.build).or_else(of_pool);
            known.ok_or("version: is not known; write one such as 2022, name it in spec.buildNames, or write build")?
        }
        (None, Some(build)) => build.parse().ok().ok_or(BUILD)?,
        _ => return Err("version: write exactly one of version (such as 2019) and build (such as 10.0.17763)"),
    };
    Ok(match (class.isolation, class.host_match) {
        (Isolation::HyperV, _) => Hosts::HyperV(build),
        (Isolation::Process, HostMatch::Exact) => Hosts::Of(build),
        (Isolation::Process, HostMatch::Compatible) => Hosts::Running(build),
    })
}

/// The errors that are unsafe whatever the CRD allowed when the pool was stored.
fn unsafe_fields(spec: &WindowsPoolSpec) -> Vec<String> {
    let mut errors = Vec::new();
    let mut refuse = |is_wrong: bool, field: String, error: &str| {
        if is_wrong {
            errors.push(format!("spec.{field}: {error}"));
        }
    };
    for (key, value) in &spec.node_selector {
        let field = || format!("nodeSelector[{key}]");
        refuse(key == names::OS && value != names::WINDOWS, field(), "can only be windows; leave it out");
        let is_own = key.starts_with("winpool.dev/") || key.starts_with(names::CAPABILITY_LABEL_PREFIX);
        refuse(is_own, field(), "winpool writes this label itself; use a label of your own");
    }
    let default = [Taint::os_windows()];
    let (wanted, adds_tolerations) = (spec.taints.as_deref(), spec.taint_policy == TaintPolicy::TaintAndTolerate);
    for (list, taints) in [("taints", wanted.unwrap_or_default()), ("retiredTaints", &spec.retired_taints)] {
        for (index, taint) in taints.iter().enumerate() {
            let field = |part: &str| format!("{list}[{index}]{part}");
            let is_known = [Effect::NoSchedule, Effect::PreferNoSchedule].contains(&taint.effect);
            refuse(taint.has_foreign_key(), field(".key"), "belongs to Kubernetes or to an autoscaler; choose another");
            refuse(!is_known, field(".effect"), "must be NoSchedule or PreferNoSchedule; NoExecute would evict pods");
            let lacks_help = adds_tolerations && taint.effect == Effect::NoSchedule && !taint.marks_windows();
            refuse(list == "taints" && lacks_help, field(""), ONLY_WINDOWS_TAINTS);
        }
    }
    for (index, taint) in spec.retired_taints.iter().enumerate() {
        let is_wanted = wanted.unwrap_or(&default).contains(taint);
        refuse(is_wanted, format!("retiredTaints[{index}]"), "is wanted too; remove it here or list other taints");
    }
    errors
}
