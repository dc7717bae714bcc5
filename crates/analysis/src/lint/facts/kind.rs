//! Windows nodes that are equivalent for workloads.

use std::collections::BTreeSet;

use winpool_core::{
    api::{Mode, Taint, TaintPolicy},
    labels::Labels,
    plan::pools::pool::{Policy, Pool, WantedTaints},
    windows::{Build, ContainerRuntime, compatibility::WindowsHost},
};

use crate::view::Node;

/// Windows nodes that are equivalent for workloads, except for their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeKind {
    /// The build, if it is known.
    pub build: Option<Build>,
    /// The container runtime, if the node reports it.
    pub runtime: Option<ContainerRuntime>,
    /// The taints that keep pods off, except the temporary ones of Kubernetes and of autoscalers.
    pub taints: BTreeSet<Taint>,
    /// Those of these taints that the pool removes.
    pub retired: BTreeSet<Taint>,
    /// The taints that the pool adds.
    pub wanted: BTreeSet<Taint>,
    /// How its pool adds taints, or the pool in dry run if no other selects it.
    pub treatment: Option<Treatment>,
    /// True if the pool has a status. Then the taints of the node are what winpool has added so far.
    pub is_reported: bool,
    /// The taints that a pool in dry run would add.
    pub previewed: BTreeSet<Taint>,
    /// Those of all these taints whose toleration winpool adds to pods that say that they are for Windows.
    pub tolerated: BTreeSet<Taint>,
}

/// How a pool adds taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lint) struct Treatment {
    /// False for a pool in dry run.
    pub is_enforced: bool,
    /// True if it adds them even if `DaemonSets` do not tolerate them.
    pub is_forced: bool,
}

impl Treatment {
    pub fn of(pool: &Pool) -> Self {
        let spec = &pool.spec;
        Self { is_enforced: spec.mode == Mode::Enforce, is_forced: spec.taint_policy == TaintPolicy::TaintOnly }
    }
}

impl NodeKind {
    /// Returns the kind of this node, without pools.
    pub fn of(node: &Node) -> Self {
        let taints = node.taints.iter();
        Self {
            build: node.version.map(|version| version.build),
            runtime: node.runtime,
            taints: taints
                .filter(|taint| taint.effect != "PreferNoSchedule" && !taint.has_foreign_key())
                .cloned()
                .collect(),
            ..Self::default()
        }
    }

    /// What decides which images its nodes run.
    pub fn host(&self) -> Option<WindowsHost> {
        Some(WindowsHost { build: self.build?, runtime: self.runtime })
    }

    /// True if its pool adds taints even if `DaemonSets` do not tolerate them.
    pub fn is_forced(&self) -> bool {
        self.treatment.is_some_and(|treatment| treatment.is_forced)
    }

    /// Adds the taints that the pools want on nodes with these labels.
    pub fn apply(&mut self, policy: &Policy, labels: &Labels, is_reported: impl Fn(&Pool) -> bool) {
        if let Some(owner) = policy.owner(labels) {
            self.is_reported = is_reported(&owner.pool);
            self.retired =
                self.taints.iter().filter(|taint| owner.pool.spec.retired_taints.contains(taint)).cloned().collect();
            self.wanted = self.wanted_by(&owner.pool);
            self.treatment = Some(Treatment::of(&owner.pool));
            self.tolerated.extend(tolerated(&owner.pool, self.taints.union(&self.wanted)));
        }
        if let Some(pool) = policy.previews(labels).next() {
            self.previewed = self.wanted_by(pool);
            self.treatment = self.treatment.or(Some(Treatment::of(pool)));
            self.tolerated.extend(tolerated(pool, &self.previewed));
        }
    }

    fn wanted_by(&self, pool: &Pool) -> BTreeSet<Taint> {
        let mut stay = self.taints.iter().filter(|taint| !pool.spec.retired_taints.contains(taint));
        let is_guarded = pool.spec.taints == WantedTaints::Guard && stay.any(Taint::marks_windows);
        if is_guarded { BTreeSet::new() } else { keeping_off(pool) }
    }
}

/// Returns the taints with which a pool keeps pods off its nodes.
pub(super) fn keeping_off(pool: &Pool) -> BTreeSet<Taint> {
    let taints = pool.spec.wanted_taints().into_iter().filter(|taint| taint.effect != "PreferNoSchedule");
    if pool.spec.taint_policy == TaintPolicy::Never { BTreeSet::new() } else { taints.collect() }
}

/// Returns those that it adds even if `DaemonSets` do not tolerate them.
pub(super) fn forced(pool: &Pool) -> BTreeSet<Taint> {
    if pool.spec.taint_policy == TaintPolicy::TaintOnly { keeping_off(pool) } else { BTreeSet::new() }
}

/// Returns those of the taints on nodes of this pool whose toleration winpool adds to pods, when the pool is enforced.
pub(super) fn tolerated<'a>(pool: &Pool, taints: impl IntoIterator<Item = &'a Taint>) -> BTreeSet<Taint> {
    let is_tolerated = |taint: &&Taint| taint.effect == "NoSchedule" && taint.marks_windows();
    let taints = taints.into_iter().filter(is_tolerated).cloned();
    if pool.spec.taint_policy == TaintPolicy::TaintAndTolerate { taints.collect() } else { BTreeSet::new() }
}
