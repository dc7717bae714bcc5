//! An unfinished pod, as far as decisions need it.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use uuid::Uuid;

use crate::interner::Interner;
use crate::plan::Now;
use crate::pod::{KnownError, Placement, Placements, Pod, PodProgress, System};
use crate::words::plain;

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
    /// The time at which winpool last added tolerations to it. Stored apart, too.
    pub(crate) helped: Option<Box<Timestamp>>,
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
        placements: &mut Placements,
        texts: &mut Interner<str>,
        now: Now,
    ) -> Self {
        let node = pod.spec.node.as_deref().map(|node| texts.intern(node));
        let stage = stage(pod);
        let failures = pod.start_status.refusal.iter().chain(&pod.start_status.failures);
        let mut failures: Vec<_> = failures.take(FAILURES).copied().collect();
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
            unschedulable_since: (stage == PodStage::Unschedulable).then(|| waited.unwrap_or(now.instant)),
        };
        let uid = Uuid::try_parse(&pod.uid).ok().filter(|_| !pod.is_mirror);
        Self {
            uid: uid.unwrap_or_default(),
            workload: texts.intern(plain(&pod.workload(), WORKLOAD)),
            placement: placements.store(pod),
            node,
            stage,
            is_terminating: pod.is_terminating,
            is_ignored: pod.is_ignored,
            // Anyone who can write the pod can write a time in the future.
            helped: pod.helped.map(|time| Box::new(time.min(now.time))),
            trouble: (trouble != PodTrouble::default()).then(|| Box::new(trouble)),
        }
    }

    pub(crate) fn trouble(&self) -> &PodTrouble {
        static NONE: PodTrouble = PodTrouble { failures: Vec::new(), sandbox: None, unschedulable_since: None };
        self.trouble.as_deref().unwrap_or(&NONE)
    }

    /// True if the pod may fail because of Windows, or is unknown. The cluster decides about the rest.
    pub(crate) fn may_fail(&self) -> bool {
        self.trouble.is_some() || self.is_unknown()
    }

    /// True if winpool does not know if the pod is for Windows, because its placement is not stored.
    pub(crate) fn is_unknown(&self) -> bool {
        !self.placement.is_known && self.placement.system != Some(System::Linux)
    }

    /// True if it has started and does not say its system.
    pub(crate) fn has_unsaid_start(&self) -> bool {
        self.stage == PodStage::Started && self.placement.system.is_none()
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
