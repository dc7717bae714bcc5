//! The assessment of a node under a policy.

use std::sync::Arc;
use std::time::Instant;

use crate::api::names::{self, reason};
use crate::api::{Mode, ObjectReference, Problem, Taint};
use crate::node::{Applied, MetadataChange, NodeFields, NodePlan, NodeRecord};
use crate::plan::nodes::capability_labels;
use crate::plan::patch::STRIPPED;
use crate::plan::pools::pool::{Policy, Pool, PoolEntry, PoolSpec, TOLERATED};
use crate::plan::taints::{self, Consent, NodeTaints, is_tolerated};
use crate::windows::Build;
use crate::words::count;

/// The assessment of a node under a policy: its state, and the changes that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Assessment {
    /// The pool that the node belongs to, if any.
    pub pool: Option<String>,
    /// Its Windows build, if it is known.
    pub build: Option<Build>,
    /// True if the node has the annotation `winpool.dev/ignore`.
    pub ignored: bool,
    /// True if its labels and its report contradict each other. Only its labels and taints are known then.
    pub contradicts_itself: bool,
    /// Taints on it that keep pods off and that its pool's RuntimeClasses have to tolerate besides the pool's own.
    pub tolerate: Vec<Taint>,
    /// The taints that it has or lacks once the plan is executed.
    pub taints: NodeTaints,
    /// Wanted taints that it lacks although it contradicts itself.
    pub uncarried: Vec<Taint>,
    /// The pool that no longer owns the node, and whose labels, annotations and taints are about to be removed from it.
    pub releasing: Option<String>,
    /// The time until which its build label is left alone, because the kubelet may be about to report that build.
    pub label_settles: Option<Instant>,
    /// The changes that it needs.
    pub plan: NodePlan,
    /// Problems that do not keep winpool from changing it.
    pub(crate) flaws: Vec<NodeProblem>,
    /// What keeps winpool from making them. Only the table of nodes knows it.
    pub(crate) hindrance: Option<NodeProblem>,
}

impl Assessment {
    /// The state of the node.
    pub fn state(&self) -> NodeState {
        match self {
            Self { hindrance: Some(NodeProblem::Denied(_)), .. } => NodeState::Blocked,
            Self { hindrance: Some(NodeProblem::Contested(_)), .. } => NodeState::Contested,
            Self { ignored: true, .. } => NodeState::Ignored,
            Self { plan, label_settles, .. } if !plan.is_empty() || label_settles.is_some() => NodeState::Pending,
            Self { taints, .. } if !taints.held.is_empty() => NodeState::Held,
            Self { build: None, .. } => NodeState::Blocked,
            _ => NodeState::Converged,
        }
    }

    /// The problems of the node, as its pool's status tells them.
    pub(crate) fn problems(&self) -> impl Iterator<Item = NodeProblem> {
        let is_unknown = self.build.is_none() && !self.ignored;
        let unreadable =
            if self.contradicts_itself { NodeProblem::OperatingSystemDiffers } else { NodeProblem::BuildUnknown };
        let differing = self.taints.differing.iter().cloned().map(NodeProblem::ValueDiffers);
        let flaws = self.flaws.iter().cloned();
        is_unknown.then_some(unreadable).into_iter().chain(self.hindrance.clone()).chain(differing).chain(flaws)
    }

    /// True if its build label is to be written, now or later.
    pub(crate) fn awaits_build_label(&self) -> bool {
        self.plan.windows_build.is_some() || self.label_settles.is_some()
    }

    /// The builds whose capability labels it is to get.
    pub(crate) fn awaited_capabilities(&self) -> impl Iterator<Item = Build> {
        let missing = self.plan.capability_labels.iter().filter(|change| change.to.is_some());
        missing.filter_map(|change| capability_labels::build_of(&change.key))
    }

    /// True if it lacks wanted taints, or has taints that it is to lose.
    pub(crate) fn is_untainted(&self) -> bool {
        self.plan.taints.is_some() || !self.taints.held.is_empty() || !self.uncarried.is_empty()
    }
}

named! {
    /// State of a node, as status and metrics count it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum NodeState {
        /// It has the right labels and taints.
        Converged = "converged",
        /// winpool is about to change it.
        Pending = "pending",
        /// It lacks a taint that DaemonSets do not tolerate.
        Held = "held",
        /// Another writer keeps reverting what winpool writes.
        Contested = "contested",
        /// winpool cannot change it.
        Blocked = "blocked",
        /// It has the annotation `winpool.dev/ignore`.
        Ignored = "ignored",
    }
}

/// A problem of one node. The nodes of a pool with the same one are reported together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum NodeProblem {
    OperatingSystemDiffers,
    BuildUnknown,
    /// The message of the API server, which refuses to change the node.
    Denied(Arc<str>),
    /// The writer that keeps reverting winpool's changes.
    Contested(Arc<str>),
    ValueDiffers(Taint),
    NotTolerated,
    /// Its pool is in dry run.
    WouldChange,
}

impl NodeProblem {
    pub(crate) fn describe(&self, example: &str, nodes: usize) -> Problem {
        let nodes = count(nodes, "node");
        let (reason, message) = match self {
            Self::OperatingSystemDiffers => (
                reason::OPERATING_SYSTEM_DIFFERS,
                format!(
                    "{nodes} with the label kubernetes.io/os=windows and another operating system in \
                     status.nodeInfo.operatingSystem; winpool changes the node when they agree. Check its kubelet, and \
                     who sets the label"
                ),
            ),
            Self::BuildUnknown => (
                reason::BUILD_UNKNOWN,
                format!(
                    "{nodes} without a Windows version in status.nodeInfo.kernelVersion: winpool knows no build, or only that in \
                     the label node.kubernetes.io/windows-build; check the kubelet"
                ),
            ),
            Self::Denied(message) if **message == *STRIPPED => (reason::RECORD_REMOVED, format!("{nodes}: {message}")),
            Self::Denied(message) => (
                reason::ADMISSION_DENIED,
                format!("{nodes}: the API server refuses the change, winpool tries again within 10 minutes: {message}"),
            ),
            Self::Contested(writer) => (reason::CONTESTED, format!("{nodes}: {writer}")),
            Self::ValueDiffers(taint) => (
                reason::TAINT_VALUE_DIFFERS,
                format!(
                    "{nodes} with {taint}, whose key and effect are those of a wanted taint; winpool does not change \
                     it, and RuntimeClasses tolerate it. To replace it, add it to spec.retiredTaints"
                ),
            ),
            Self::NotTolerated => (
                reason::TAINTS_NOT_TOLERATED,
                format!(
                    "{nodes} with Windows taints whose tolerations winpool does not add to pods: of each node it adds at most \
                     {TOLERATED}, of taints in the spec of a pool, of winpool's own and of known spellings. Remove the others, or \
                     list them in spec.taints or spec.retiredTaints"
                ),
            ),
            Self::WouldChange => (reason::WOULD_CHANGE, format!("winpool would change {nodes}")),
        };
        Problem::new(reason, ObjectReference::node(example), message)
    }
}

impl NodeRecord<'_> {
    fn belongs_to_a_live_pool(&self, policy: &Policy) -> bool {
        let pool = self.pool().and_then(|name| policy.pool(name));
        pool.is_some_and(|pool| pool.spec.mode == Mode::Enforce && (!pool.spec.deleting || pool.spec.needs_cleanup()))
    }

    fn belongs_to_a_suspended_pool(&self, policy: &Policy) -> bool {
        self.pool().is_some_and(|name| policy.is_suspended(name))
    }
}

/// Assesses `node` under `policy`.
pub fn assess(node: &NodeFields, policy: &Policy, consent: Consent<'_>) -> Assessment {
    if !node.is_windows() && node.contradicts_itself() {
        return Assessment::default();
    }
    if node.was_reimaged() {
        return assess_reimaged(node, policy);
    }
    match policy.owner(&node.labels) {
        Some(PoolEntry { pool, ready: true }) => assess_as(node, Some(pool), policy, consent),
        Some(PoolEntry { ready: false, .. }) => Assessment::default(),
        None => assess_as(node, None, policy, consent),
    }
}

/// Assesses a node that came back with another operating system under its old name: winpool removes everything that it
/// added, and `windows-build`.
fn assess_reimaged(node: &NodeFields, policy: &Policy) -> Assessment {
    let record = NodeRecord::of(node);
    if node.is_ignored() || !record.belongs_to_a_live_pool(policy) {
        return Assessment::default();
    }
    let plan = release(node, &record, policy);
    Assessment { releasing: record.pool().map(str::to_owned), plan, ..Assessment::default() }
}

/// Removes what winpool added to a node, for any pool. The labels that are facts about a Windows node stay on it.
pub(crate) fn release(node: &NodeFields, record: &NodeRecord, policy: &Policy) -> NodePlan {
    let (build, capability_labels) = if node.was_reimaged() {
        (node.labels.get(names::WINDOWS_BUILD), capability_labels::removal(node))
    } else {
        (None, Vec::new())
    };
    NodePlan {
        windows_build: MetadataChange::between(names::WINDOWS_BUILD, build, None),
        capability_labels,
        taints: taints::plan(node, record.applied.as_ref(), None, policy, Consent::Given).0,
        pool: record.label_change(None),
        applied: record.annotation_change(None),
    }
}

/// Assesses `node` as if it belonged to `pool`: the preview of a pool in dry run.
pub fn assess_as(node: &NodeFields, pool: Option<&Pool>, policy: &Policy, consent: Consent<'_>) -> Assessment {
    let record = NodeRecord::of(node).or_known(consent.watched());
    let counted = Assessment {
        pool: pool.map(|pool| pool.spec.name.clone()),
        ignored: node.is_ignored(),
        ..Assessment::default()
    };
    // Only on evidence: an existing pool no longer owns the node, or another pool owns it.
    let former = record.pool().filter(|_| pool.is_none() && record.belongs_to_a_live_pool(policy));
    // Nothing releases it once a deleted pool is gone.
    let is_last_chance = former.and_then(|name| policy.pool(name)).is_some_and(|pool| pool.spec.deleting);
    if !counted.ignored && record.belongs_to_a_suspended_pool(policy) {
        return Assessment::default();
    }
    if node.contradicts_itself() && !is_last_chance {
        // It counts for its pool, without a change. Neither its build nor its taints make RuntimeClasses.
        let change = |pool| taints::plan(node, record.applied.as_ref(), Some(pool), policy, Consent::Given).0;
        let lacking = pool.filter(|_| !counted.ignored).and_then(change);
        let uncarried = lacking.map(|change| change.added).unwrap_or_default();
        return Assessment { contradicts_itself: true, uncarried, ..counted };
    }
    let known = Assessment {
        build: node.windows_build(),
        tolerate: pool.map(|pool| to_tolerate(node, pool, policy)).unwrap_or_default(),
        flaws: pool.map(|pool| flaws(node, &pool.spec, policy)).unwrap_or_default(),
        releasing: former.map(str::to_owned),
        ..counted
    };
    match (pool, former) {
        _ if known.ignored => known,
        (Some(pool), _) => owned(node, pool, policy, consent, &record, known),
        (None, Some(_)) => Assessment { plan: release(node, &record, policy), ..known },
        (None, None) => known,
    }
}

/// Assesses a node of `pool`.
fn owned(
    node: &NodeFields,
    pool: &Pool,
    policy: &Policy,
    consent: Consent<'_>,
    record: &NodeRecord,
    known: Assessment,
) -> Assessment {
    let (change, taints) = taints::plan(node, record.applied.as_ref(), Some(pool), policy, consent);
    let capability_labels = capability_labels::plan(node, &pool.images());
    let label_settles = consent.label_settles();
    let build = known.build.filter(|_| label_settles.is_none()).map(|build| build.to_string());
    let windows_build = build.and_then(|build| {
        MetadataChange::between(names::WINDOWS_BUILD, node.labels.get(names::WINDOWS_BUILD), Some(&build))
    });
    let adds_labels = windows_build.iter().chain(&capability_labels).any(|label| label.to.is_some());
    let writes = adds_labels || !taints.owned.is_empty();
    let applied = (writes || record.exists()).then(|| Applied {
        pool: pool.spec.name.clone(),
        taints: taints.owned.iter().map(ToString::to_string).collect(),
    });
    let plan = NodePlan {
        windows_build,
        capability_labels,
        taints: change,
        pool: record.label_change(applied.as_ref().map(|applied| applied.pool.as_str())),
        applied: record.annotation_change(applied.as_ref()),
    };
    Assessment { taints, label_settles, plan, ..known }
}

/// The taints on a node that the pool's RuntimeClasses have to tolerate besides the pool's own: Windows taints in any
/// spelling, taints with the key and effect of a wanted one, and taints that winpool added under an older spec.
fn to_tolerate(node: &NodeFields, pool: &Pool, policy: &Policy) -> Vec<Taint> {
    let wanted = &pool.spec.tolerated_taints;
    let is_others = |taint: &&Taint| !wanted.contains(taint) && !pool.spec.retired_taints.contains(taint);
    let concerns = |taint: &&Taint| is_tolerated(taint, wanted, policy);
    let mut found: Vec<_> = node.taints.taints().iter().filter(is_others).filter(concerns).cloned().collect();
    found.sort();
    found
}

/// The problems of a node that do not keep winpool from changing it: its kubelet reports a version that is not one of Windows,
/// although its label has a build; pods do not get the tolerations of all its Windows taints, because only the node names them or
/// there are too many.
fn flaws(node: &NodeFields, pool: &PoolSpec, policy: &Policy) -> Vec<NodeProblem> {
    let reports_other = node.kernel_version.is_some() && node.reported_build().is_none();
    let is_unreadable = reports_other && node.windows_build().is_some() && !node.is_ignored();
    let taints: Vec<_> = node.taints.taints().iter().filter(|taint| pool.helps_with(taint)).collect();
    let is_closed = taints.len() > TOLERATED || taints.iter().any(|taint| policy.precedence(taint, pool).is_none());
    let flaws = [is_unreadable.then_some(NodeProblem::BuildUnknown), is_closed.then_some(NodeProblem::NotTolerated)];
    flaws.into_iter().flatten().collect()
}

/// True if another pool owns the node now, and has yet to take it over, or to record a taint of winpool's on it that
/// `pool` has recorded. Without a record winpool never removes the taint.
pub(crate) fn is_being_handed_over(
    node: &NodeFields,
    pool: &Pool,
    policy: &Policy,
    recorded_by_others: impl Fn(&Taint) -> bool,
) -> bool {
    let record = NodeRecord::of(node);
    let claims = |taint: &Taint| record.applied.as_ref().is_some_and(|applied| applied.claims(taint));
    let is_unrecorded =
        |taint: &Taint| claims(taint) && pool.managed_taints.contains(taint) && !recorded_by_others(taint);
    !node.is_ignored()
        && policy.owner(&node.labels).is_some()
        && (record.pool() == Some(&pool.spec.name) || node.taints.taints().iter().any(is_unrecorded))
}
