//! An unfinished pod, as far as decisions need it.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use uuid::Uuid;

use crate::{
    interner::Interner,
    labels::Labels,
    pod::{
        Class, KnownError, Pod, PodProgress, PodSpec, System, affinity,
        tolerations::{covers, normalised},
    },
    words::plain,
};

/// The longest name of a workload, in bytes. Kind and name of an owner may have any length.
const WORKLOAD: usize = 400;
/// The number of failures of one pod that are kept.
const FAILURES: usize = 8;

/// An unfinished pod. Texts that pods have in common are stored once.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFact {
    /// `metadata.uid`; nil for a pod that a kubelet makes from a file, because nobody else can change that.
    pub(crate) uid: Uuid,
    /// Such as `Deployment shop/web`, or the pod itself if it has no controller.
    pub workload: Arc<str>,
    pub placement: Arc<Placement>,
    /// `spec.nodeName`.
    pub node: Option<Arc<str>>,
    pub stage: PodStage,
    pub is_terminating: bool,
    /// True if it has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    /// Few pods have some, so it is stored apart: the table may have 150,000 pods.
    pub(crate) trouble: Option<Box<PodTrouble>>,
}

/// What keeps a pod from running.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodTrouble {
    /// The known errors because of which containers do not start, or because of which the kubelet refused the pod.
    pub failures: Vec<&'static KnownError>,
    /// The error by an Event, while the pod has no sandbox.
    pub sandbox: Option<SandboxError>,
    /// The time since which the scheduler finds no node.
    pub unschedulable_since: Option<Instant>,
}

/// The progress of an unfinished pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStage {
    /// It has no node.
    Unscheduled,
    /// It has no node, and the scheduler found none.
    Unschedulable,
    /// It has a node and, as far as its status shows, no sandbox.
    WithoutSandbox,
    /// None of its containers has run.
    Starting,
    /// One of its containers runs or has run.
    Started,
}

/// The error because of which a pod has no sandbox.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SandboxError {
    pub error: &'static KnownError,
    pub began: Instant,
}

impl PodFact {
    /// Reads a pod. `before` is what was known of it.
    pub(crate) fn of(
        pod: &Pod,
        before: Option<&Self>,
        placements: &mut Interner<Placement>,
        texts: &mut Interner<str>,
        now: Instant,
    ) -> Self {
        let node = pod.spec.node.as_deref().map(|node| texts.intern(node));
        let stage = stage(pod);
        let mut failures = failures(pod);
        let same_node = before.filter(|before| before.node == node);
        // While a container waits for its next attempt, older kubelets do not repeat why the last one failed.
        if let Some(before) = same_node.filter(|_| stage == PodStage::Starting && failures.is_empty()) {
            failures.clone_from(&before.trouble().failures);
        }
        let sandbox = same_node.and_then(|before| before.trouble().sandbox.clone());
        let waited = before.and_then(|before| before.trouble().unschedulable_since);
        let trouble = PodTrouble {
            failures,
            sandbox: sandbox.filter(|_| stage == PodStage::WithoutSandbox),
            unschedulable_since: (stage == PodStage::Unschedulable).then(|| waited.unwrap_or(now)),
        };
        let uid = Uuid::try_parse(&pod.uid).ok().filter(|_| !pod.is_mirror);
        Self {
            uid: uid.unwrap_or_default(),
            workload: texts.intern(plain(&pod.workload(), WORKLOAD)),
            placement: Placement::shared(pod, placements),
            node,
            stage,
            is_terminating: pod.is_terminating,
            is_ignored: pod.is_ignored,
            trouble: (trouble != PodTrouble::default()).then(|| Box::new(trouble)),
        }
    }

    pub(crate) fn trouble(&self) -> &PodTrouble {
        static NONE: PodTrouble = PodTrouble { failures: Vec::new(), sandbox: None, unschedulable_since: None };
        self.trouble.as_deref().unwrap_or(&NONE)
    }

    /// True if the pod may fail because of Windows. The cluster decides about the rest.
    pub(crate) fn may_fail(&self) -> bool {
        self.trouble.is_some()
    }

    /// True if winpool may add tolerations to it, should it be for Windows.
    pub(crate) fn may_be_helped(&self) -> bool {
        let Placement { system, is_gated, is_known, .. } = *self.placement;
        !self.uid.is_nil()
            && !self.is_terminating
            && !self.is_ignored
            && is_known
            && !is_gated
            && system != Some(System::Linux)
    }

    /// True if a status may depend on it.
    pub(crate) fn matters(&self) -> bool {
        self.may_fail() || self.placement.class.is_some()
    }
}

fn stage(pod: &Pod) -> PodStage {
    let status = &pod.start_status;
    match pod.progress {
        PodProgress::Started => PodStage::Started,
        _ if pod.spec.node.is_none() && status.is_unschedulable => PodStage::Unschedulable,
        _ if pod.spec.node.is_none() => PodStage::Unscheduled,
        PodProgress::Waiting if !status.has_sandbox && status.failures.is_empty() => PodStage::WithoutSandbox,
        _ => PodStage::Starting,
    }
}

fn failures(pod: &Pod) -> Vec<&'static KnownError> {
    let status = &pod.start_status;
    let all = status.refusal.into_iter().chain(status.failures.iter().copied());
    all.take(FAILURES).collect()
}

// What decides on which nodes a pod may run. Thousands of pods share few placements, so each is stored once.

/// The limit of the text of one placement, in bytes. Users can write longer ones.
const LONGEST: usize = 2048;
/// The limit of placements whose text is stored.
const STORED: usize = 8192;

/// What decides on which nodes a pod may run.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of the required node affinity. No terms mean no requirement.
    pub terms: Vec<NodeSelectorTerm>,
    /// As the API server sent them: a patch of the list tests it.
    pub tolerations: Vec<Toleration>,
    /// `runtimeClassName`.
    pub class: Option<Arc<str>>,
    /// The operating system that the pod says it is for.
    pub system: Option<System>,
    /// True if `schedulingGates` keep the scheduler off.
    pub is_gated: bool,
    /// False if the selector, the terms and the tolerations are too long to be stored.
    pub is_known: bool,
}

impl Placement {
    /// Returns the shared copy of the placement of a pod, without its text if that is too long, or if there are too many.
    pub(crate) fn shared(pod: &Pod, placements: &mut Interner<Self>) -> Arc<Self> {
        let placement = Self::of(pod);
        let fits = placement.length() <= LONGEST && placements.has_room(&placement, STORED);
        placements.intern(if fits { placement } else { placement.without_text() })
    }

    /// Reads the placement of the pods of a template.
    pub(crate) fn of_spec(spec: &PodSpec) -> Self {
        Self {
            node_selector: spec.node_selector.clone(),
            terms: spec.terms.clone(),
            tolerations: spec.tolerations.clone(),
            class: spec.runtime_class.as_deref().map(Arc::from),
            system: spec.said_system(None, || None),
            is_gated: !spec.scheduling_gates.is_empty(),
            is_known: true,
        }
    }

    /// Reads the placement of a pod. A DaemonSet pins each of its pods to one node; that counts only until the pod is there.
    fn of(pod: &Pod) -> Self {
        let mut placement = Self::of_spec(&pod.spec);
        if pod.spec.node.is_some() && pod.controller.as_ref().is_some_and(|(kind, _)| kind == "DaemonSet") {
            for term in &mut placement.terms {
                term.match_fields = None;
            }
            placement.terms.retain(|term| !affinity::is_empty(term));
        }
        placement
    }

    /// True if selector and affinity, as far as they are known, allow a node with these labels and this name.
    pub(crate) fn fits(&self, labels: &Labels, name: &str) -> bool {
        labels.matches(&self.node_selector) && affinity::matches_affinity(&self.terms, labels, name)
    }

    /// True if the pod lacks a label or a toleration that the class gives to its new pods.
    pub(crate) fn lacks(&self, class: &Class) -> bool {
        let is_selected = |(key, value): (&String, &String)| self.node_selector.get(key) == Some(value);
        let covers_all = || {
            let own = normalised(self.tolerations.iter().cloned());
            class.tolerations.iter().all(|wanted| own.iter().any(|own| covers(own, wanted)))
        };
        self.is_known && !(class.selector.iter().all(is_selected) && covers_all())
    }

    /// The length of its text, in bytes.
    fn length(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let selector = self.node_selector.iter().map(|(key, value)| key.len() + value.len());
        let terms = self.terms.iter().flat_map(requirements).map(|requirement| {
            let values = requirement.values.iter().flatten().map(|value| value.len() + size_of::<String>());
            requirement.key.len() + requirement.operator.len() + values.sum::<usize>()
        });
        let tolerations =
            self.tolerations.iter().map(|own| text(&own.key) + text(&own.value) + size_of::<Toleration>() / 4);
        selector.chain(terms).chain(tolerations).sum()
    }

    fn without_text(self) -> Self {
        let (node_selector, terms, tolerations) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { node_selector, terms, tolerations, is_known: false, ..self }
    }
}

pub(crate) fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().chain(&term.match_fields).flatten()
}

impl Eq for Placement {}

impl Hash for Placement {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.node_selector, &self.class, self.system, self.is_gated, self.is_known).hash(state);
        for requirement in self.terms.iter().flat_map(requirements) {
            (&requirement.key, &requirement.operator, &requirement.values).hash(state);
        }
        for own in &self.tolerations {
            (&own.key, &own.operator, &own.value, &own.effect, own.toleration_seconds).hash(state);
        }
    }
}
