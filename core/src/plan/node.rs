//! What a node should be.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use crate::{
    api::{Mode, Taint, names},
    labels::Labels,
    plan::capability_labels,
    windows::{Build, KernelVersion},
};

use super::{
    Applied, Consent, Entry, Policy, Pool, TaintChange, TaintList,
    taints::{self, guards},
};

/// What winpool reads of a node, as the API server sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.labels`.
    pub labels: Labels,
    /// Whether `metadata.annotations` is there at all: a JSON Patch cannot add a key to an absent map.
    pub has_annotations: bool,
    /// The annotation `winpool.dev/applied`.
    pub applied: Option<Box<str>>,
    /// The annotation `winpool.dev/ignore`.
    pub ignore: Option<Box<str>>,
    /// `spec.taints`.
    pub taints: Arc<TaintList>,
    /// `status.nodeInfo.kernelVersion`.
    pub kernel_version: Option<Arc<str>>,
    /// `status.nodeInfo.operatingSystem`.
    pub operating_system: Option<Arc<str>>,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub container_runtime: Option<Arc<str>>,
    /// Names in `status.runtimeHandlers`; `None` where the node does not list them.
    pub runtime_handlers: Option<Arc<[Box<str>]>>,
}

impl Node {
    /// The Windows version that the node reports, or else the build of a well-formed `windows-build` label.
    #[must_use]
    pub fn windows_version(&self) -> Option<KernelVersion> {
        let reported = self.kernel_version.as_deref().and_then(|text| text.parse().ok());
        reported.or_else(|| {
            let build = self.labels.get(names::WINDOWS_BUILD)?.parse().ok()?;
            Some(KernelVersion { build, revision: None })
        })
    }

    pub(crate) fn is_ignored(&self) -> bool {
        self.ignore.as_deref() == Some("true")
    }

    fn was_reimaged(&self) -> bool {
        self.labels.get(names::OS).is_some_and(|os| os != names::WINDOWS)
    }

    /// The node after this plan was accepted.
    #[must_use]
    pub fn after(&self, plan: &NodePlan) -> Self {
        let changed: BTreeMap<&str, Option<&str>> = (plan.windows_build.iter())
            .chain(&plan.capability_labels)
            .chain(&plan.pool)
            .map(|change| (change.key.as_str(), change.to.as_deref()))
            .collect();
        let kept = self.labels.with_prefix("").filter(|(key, _)| !changed.contains_key(key));
        let set = changed.iter().filter_map(|(key, to)| Some((*key, (*to)?)));
        let mut after = Self { labels: kept.chain(set).collect(), ..self.clone() };
        if let Some(change) = &plan.taints {
            after.taints = Arc::new(TaintList::new(Some(change.to.clone())));
        }
        match &plan.applied {
            Some(AnnotationChange::Write(value)) => {
                after.applied = Some(value.as_str().into());
                after.has_annotations = true;
            }
            Some(AnnotationChange::Remove) => after.applied = None,
            None => {}
        }
        after
    }

    /// A node that was reimaged may keep its old label until its kubelet reports, or report its old system for a moment after
    /// the kubelet has written the label. The kubelet restores a label that another writer changed within 10 seconds. winpool
    /// writes nothing on such a contradiction.
    pub(crate) fn contradicts_itself(&self) -> bool {
        let reported = self.operating_system.as_deref().filter(|os| !os.is_empty());
        let is_labelled = self.labels.get(names::OS) == Some(names::WINDOWS);
        reported.is_some_and(|os| (os == names::WINDOWS) != is_labelled)
    }
}

/// A label to set, or to remove when `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelChange {
    /// The label's key.
    pub key: String,
    /// The value that the node has.
    pub from: Option<String>,
    /// The value that it should have.
    pub to: Option<String>,
}

/// What happens to an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationChange {
    /// It gets this value.
    Write(String),
    /// It goes.
    Remove,
}

/// The changes that make a node right; they travel in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// `node.kubernetes.io/windows-build`.
    pub windows_build: Option<LabelChange>,
    /// Labels under `runtimeclass.winpool.dev/`.
    pub capability_labels: Vec<LabelChange>,
    /// The taint list.
    pub taints: Option<TaintChange>,
    /// The label `winpool.dev/pool`.
    pub pool: Option<LabelChange>,
    /// The annotation `winpool.dev/applied`.
    pub applied: Option<AnnotationChange>,
}

impl NodePlan {
    /// Whether the node is right as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The labels, and everything else: what can still be sent when the other part is refused.
    #[must_use]
    pub fn parts(&self) -> [Self; 2] {
        let labels = Self {
            windows_build: self.windows_build.clone(),
            capability_labels: self.capability_labels.clone(),
            ..Self::default()
        };
        let rest = Self { windows_build: None, capability_labels: Vec::new(), ..self.clone() };
        [labels, rest]
    }
}

/// Identifies what a node is to become, so that another writer who keeps reverting it is detected, whatever that writer
/// puts in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeFingerprint {
    build: Option<String>,
    capability_labels: Vec<String>,
    taints: Vec<Taint>,
    pool: Option<String>,
}

impl ChangeFingerprint {
    fn of(node: &Node, plan: &NodePlan, wanted: &[Taint]) -> Self {
        if plan.is_empty() {
            return Self::default();
        }
        let after = node.after(plan);
        let text = |key: &str| after.labels.get(key).map(str::to_owned);
        Self {
            build: text(names::WINDOWS_BUILD),
            capability_labels: after
                .labels
                .with_prefix(names::CAPABILITY_LABEL_PREFIX)
                .map(|(key, _)| key.to_owned())
                .collect(),
            taints: after.taints.taints().iter().filter(|taint| wanted.contains(taint)).cloned().collect(),
            pool: text(names::POOL),
        }
    }
}

/// State of a node, as status and metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Right as it is.
    Converged,
    /// About to be changed.
    Pending,
    /// Waits for pods on it to tolerate the taint.
    Held,
    /// Another writer keeps reverting what winpool writes.
    Contested,
    /// Cannot be made right.
    Blocked,
    /// Hands off, by annotation.
    Ignored,
}

impl State {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Converged, Self::Pending, Self::Held, Self::Contested, Self::Blocked, Self::Ignored];

    /// The name in status and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Pending => "pending",
            Self::Held => "held",
            Self::Contested => "contested",
            Self::Blocked => "blocked",
            Self::Ignored => "ignored",
        }
    }
}

/// How a node stands under a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// The pool that the node belongs to, if any.
    pub pool: Option<String>,
    /// Its Windows version, as far as it can be told.
    pub version: Option<KernelVersion>,
    /// Whether the node asks to be left alone.
    pub ignored: bool,
    /// Taints on it that keep pods off and that its pool's RuntimeClasses have to tolerate besides the pool's own.
    pub tolerate: Vec<Taint>,
    /// Taints on it that stand where a wanted one would, with another value.
    pub differing: Vec<Taint>,
    /// Taints that it lacks and may not get now.
    pub held: Vec<Taint>,
    /// Taints of winpool's that it carries, or will once the plan is done.
    pub owned: Vec<Taint>,
    /// Wanted taints that it does not carry, for whatever reason.
    pub uncarried: Vec<Taint>,
    /// The pool whose marks it carries though it does not belong to it: they are about to be taken off.
    pub releasing: Option<String>,
    /// Until when its build label is left alone, because the kubelet may be about to report that build.
    pub label_settles: Option<Instant>,
    /// What to change.
    pub plan: NodePlan,
    /// Identifies that change.
    pub fingerprint: ChangeFingerprint,
}

impl Assessment {
    /// The state that follows, but for refusals by the API server, which only the writer knows.
    #[must_use]
    pub fn state(&self) -> State {
        match self {
            Self { ignored: true, .. } => State::Ignored,
            Self { plan, label_settles, .. } if !plan.is_empty() || label_settles.is_some() => State::Pending,
            Self { held, .. } if !held.is_empty() => State::Held,
            Self { version: None, .. } => State::Blocked,
            _ => State::Converged,
        }
    }
}

/// How `node` stands under `policy`, and what has to change now.
#[must_use]
pub fn assess(node: &Node, policy: &Policy, consent: Consent<'_>) -> Assessment {
    if node.contradicts_itself() {
        return Assessment::default();
    }
    if node.was_reimaged() {
        return assess_reimaged(node, policy);
    }
    match policy.owner(&node.labels) {
        Some(Entry { pool, ready: true }) => assess_as(node, Some(pool), policy, consent),
        Some(Entry { ready: false, .. }) => Assessment::default(),
        None => assess_as(node, None, policy, consent),
    }
}

/// A node that came back as another system under its old name: it loses winpool's marks, and `windows-build` with them.
fn assess_reimaged(node: &Node, policy: &Policy) -> Assessment {
    let marks = Marks::of(node);
    if node.is_ignored() || !marks.belong_to_a_live_pool(policy) {
        return Assessment::default();
    }
    let plan = release(node, &marks, policy);
    let fingerprint = ChangeFingerprint::of(node, &plan, &[]);
    Assessment { releasing: marks.pool().map(str::to_owned), plan, fingerprint, ..Assessment::default() }
}

/// Takes winpool's marks off a node, whichever pool put them there. `windows-build` stays where it is a fact.
pub(super) fn release(node: &Node, marks: &Marks, policy: &Policy) -> NodePlan {
    let build = node.labels.get(names::WINDOWS_BUILD).filter(|_| node.was_reimaged());
    NodePlan {
        windows_build: build.map(|build| LabelChange {
            key: names::WINDOWS_BUILD.to_owned(),
            from: Some(build.to_owned()),
            to: None,
        }),
        capability_labels: capability_labels::plan(node, None),
        taints: taints::plan(node, marks.applied.as_ref(), None, policy, Consent::Given).change,
        pool: marks.label_change(None),
        applied: marks.annotation_change(None),
    }
}

/// How `node` would stand if it belonged to `pool`: the preview of a pool in dry run.
#[must_use]
pub fn assess_as(node: &Node, pool: Option<&Pool>, policy: &Policy, consent: Consent<'_>) -> Assessment {
    let version = node.windows_version();
    let mut assessment =
        Assessment { pool: pool.map(|p| p.name.clone()), version, ignored: node.is_ignored(), ..Assessment::default() };
    if let Some(pool) = pool {
        assessment.tolerate = to_tolerate(node, pool, policy);
    }
    let marks = Marks::of(node);
    if pool.is_none() && marks.belong_to_a_live_pool(policy) {
        assessment.releasing = marks.pool().map(str::to_owned);
    }
    if assessment.ignored {
        return assessment;
    }
    if marks.belong_to_a_suspended_pool(policy) {
        return Assessment::default();
    }
    let Some(pool) = pool else {
        // Marks are taken off only on evidence: a live pool that no longer wants them, or another pool that owns the node.
        if assessment.releasing.is_some() {
            assessment.plan = release(node, &marks, policy);
            assessment.fingerprint = ChangeFingerprint::of(node, &assessment.plan, &[]);
        }
        return assessment;
    };
    let taints = taints::plan(node, marks.applied.as_ref(), Some(pool), policy, consent);
    assessment.differing = taints.differing;
    assessment.held = taints.held;
    assessment.uncarried = pool.wanted_taints();
    assessment.uncarried.retain(|taint| !node.taints.taints().contains(taint));
    assessment.label_settles = consent.label_settles();
    let build = version.filter(|_| assessment.label_settles.is_none());
    assessment.plan.windows_build = build.and_then(|version| build_label(node, version.build));
    assessment.plan.capability_labels = capability_labels::plan(node, Some(pool));
    let wrote = assessment.plan.windows_build.is_some()
        || assessment.plan.capability_labels.iter().any(|label| label.to.is_some())
        || !taints.owned.is_empty();
    let wanted = (wrote || marks.are_there())
        .then(|| Applied { pool: pool.name.clone(), taints: taints.owned.iter().map(ToString::to_string).collect() });
    assessment.owned = taints.owned;
    assessment.plan.taints = taints.change;
    assessment.plan.pool = marks.label_change(wanted.as_ref());
    assessment.plan.applied = marks.annotation_change(wanted.as_ref());
    assessment.fingerprint = ChangeFingerprint::of(node, &assessment.plan, &pool.wanted_taints());
    assessment
}

fn build_label(node: &Node, build: Build) -> Option<LabelChange> {
    let from = node.labels.get(names::WINDOWS_BUILD);
    let to = build.to_string();
    (from != Some(&to)).then(|| LabelChange {
        key: names::WINDOWS_BUILD.to_owned(),
        from: from.map(str::to_owned),
        to: Some(to),
    })
}

/// Windows taints in any spelling, values that stand in the way of a wanted taint, and taints that winpool put there
/// under an older spec.
fn to_tolerate(node: &Node, pool: &Pool, policy: &Policy) -> Vec<Taint> {
    let wanted = pool.wanted_taints();
    let concerns =
        |taint: &&Taint| guards(taint) || policy.may_remove(taint) || wanted.iter().any(|w| w.same_identity(taint));
    let mut found: Vec<_> = node
        .taints
        .taints()
        .iter()
        .filter(concerns)
        .filter(|taint| !wanted.contains(taint) && !pool.retired_taints.contains(taint) && !taint.has_foreign_key())
        .cloned()
        .collect();
    found.sort();
    found
}

/// Whether the node still carries the marks of `pool` although another pool owns it now, which is to take it over. Until
/// then `pool` is the evidence of which taints are winpool's.
#[must_use]
pub fn is_to_be_taken_over(node: &Node, pool: &str, policy: &Policy) -> bool {
    !node.is_ignored() && Marks::of(node).pool() == Some(pool) && policy.owner(&node.labels).is_some()
}

/// What winpool wrote on a node besides taints, capability labels and `windows-build`.
pub(super) struct Marks<'n> {
    label: Option<&'n str>,
    annotation: Option<&'n str>,
    pub(super) applied: Option<Applied>,
}

impl<'n> Marks<'n> {
    pub(super) fn of(node: &'n Node) -> Self {
        let annotation = node.applied.as_deref();
        Self { label: node.labels.get(names::POOL), annotation, applied: annotation.and_then(Applied::parse) }
    }

    pub(super) fn are_there(&self) -> bool {
        self.label.is_some() || self.annotation.is_some()
    }

    fn pool(&self) -> Option<&str> {
        self.applied.as_ref().map(|applied| applied.pool.as_str()).or(self.label)
    }

    pub(super) fn belong_to_a_live_pool(&self, policy: &Policy) -> bool {
        let pool = self.pool().and_then(|name| policy.pool(name));
        pool.is_some_and(|pool| pool.mode == Mode::Enforce && (!pool.deleting || pool.needs_cleanup()))
    }

    fn belong_to_a_suspended_pool(&self, policy: &Policy) -> bool {
        self.pool().is_some_and(|name| policy.is_suspended(name))
    }

    fn label_change(&self, wanted: Option<&Applied>) -> Option<LabelChange> {
        let to = wanted.map(|applied| applied.pool.as_str());
        (self.label != to).then(|| LabelChange {
            key: names::POOL.to_owned(),
            from: self.label.map(str::to_owned),
            to: to.map(str::to_owned),
        })
    }

    fn annotation_change(&self, wanted: Option<&Applied>) -> Option<AnnotationChange> {
        match wanted {
            Some(wanted) if self.applied.as_ref() == Some(wanted) => None,
            Some(wanted) => Some(AnnotationChange::Write(wanted.to_annotation())),
            None => self.annotation.map(|_| AnnotationChange::Remove),
        }
    }
}
