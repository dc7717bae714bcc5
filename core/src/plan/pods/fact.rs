//! An unfinished pod, as far as decisions need it.

use std::{sync::Arc, time::Instant};

use uuid::Uuid;

use crate::{
    interner::Interner,
    pod::{ContainerFailure, KnownError, Pod, PodProgress, System},
    words::plain,
};

use super::placement::Placement;

/// The longest name of a workload, in bytes. Kind and name of an owner may have any length.
const WORKLOAD: usize = 400;
/// The longest image in a failure, in bytes.
const IMAGE: usize = 512;
/// The number of failures of one pod that are kept.
const FAILURES: usize = 8;

/// An unfinished pod. Texts that pods have in common are stored once.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFact {
    /// `metadata.uid`; nil for a pod that a kubelet makes from a file, because nobody else can change that.
    pub(super) uid: Uuid,
    /// Such as `Deployment shop/web`, or the pod itself if it has no controller.
    pub workload: Arc<str>,
    pub placement: Arc<Placement>,
    /// `spec.nodeName`.
    pub node: Option<Arc<str>>,
    pub stage: PodStage,
    pub is_terminating: bool,
    /// True if it has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    /// The known errors because of which containers do not start, or because of which the kubelet refused the pod.
    pub(super) failures: Box<[ContainerFailure]>,
    /// The error by an Event, while the pod has no sandbox.
    pub(super) sandbox: Option<Box<SandboxError>>,
    /// The time since which the scheduler finds no node.
    pub(super) unschedulable_since: Option<Instant>,
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
pub(super) struct SandboxError {
    pub error: &'static KnownError,
    pub began: Instant,
}

impl PodFact {
    /// Reads a pod. `before` is what was known of it.
    pub(super) fn of(
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
            failures.clone_from(&before.failures);
        }
        let sandbox = same_node.and_then(|before| before.sandbox.clone()).filter(|_| stage == PodStage::WithoutSandbox);
        let waited = before.and_then(|before| before.unschedulable_since);
        let unschedulable_since = (stage == PodStage::Unschedulable).then(|| waited.unwrap_or(now));
        let uid = Uuid::try_parse(&pod.uid).ok().filter(|_| !pod.is_mirror);
        Self {
            uid: uid.unwrap_or_default(),
            workload: texts.intern(plain(&pod.workload(), WORKLOAD)),
            placement: Placement::shared(pod, placements),
            node,
            stage,
            is_terminating: pod.is_terminating,
            is_ignored: pod.is_ignored,
            failures,
            sandbox,
            unschedulable_since,
        }
    }

    /// True if the pod may fail because of Windows. The cluster decides about the rest.
    pub(super) fn may_fail(&self) -> bool {
        self.stage == PodStage::Unschedulable || !self.failures.is_empty() || self.sandbox.is_some()
    }

    /// True if winpool may add tolerations to it, should it be for Windows.
    pub(super) fn may_be_helped(&self) -> bool {
        let Placement { system, is_gated, is_known, .. } = *self.placement;
        !self.uid.is_nil()
            && !self.is_terminating
            && !self.is_ignored
            && is_known
            && !is_gated
            && system != Some(System::Linux)
    }

    /// True if a status may depend on it.
    pub(super) fn matters(&self) -> bool {
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

/// The failures that count.
fn failures(pod: &Pod) -> Box<[ContainerFailure]> {
    let status = &pod.start_status;
    let refusal = status.refusal.map(|error| ContainerFailure { image: String::new(), error });
    let of_containers = status.failures.iter().map(|failure| {
        let image = if failure.image.len() <= IMAGE { failure.image.clone() } else { String::new() };
        ContainerFailure { image, error: failure.error }
    });
    let all = refusal.into_iter().chain(of_containers);
    all.filter(|failure| failure.error.counted.is_some()).take(FAILURES).collect()
}
