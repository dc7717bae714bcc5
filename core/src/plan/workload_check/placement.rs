//! The placement of pods: the nodes where a pod or the pods of a template may run, now and with the taints.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, jiff::SignedDuration};

use crate::pod::{
    Class, Pod, PodProgress, PodSpec, Target, Workload, WorkloadKind,
    affinity::matches_affinity,
    tolerations::{Tolerance, tolerance, tolerate},
};

use super::{Found, KnownNode, Mask, SeenWorkload, WorkloadCheck};

/// The time after which a waiting pod that does not say Windows is taken for a Linux pod, and the time for which a
/// terminating pod still counts after its grace period.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// The answer to "is this pod for Windows?".
pub(super) enum Says {
    Windows,
    /// Only if its node selector selects no node of another system.
    WindowsIf(BTreeMap<String, String>),
    NotWindows,
}

impl WorkloadCheck {
    pub(super) fn untolerated(&self, tolerations: &[Toleration]) -> Mask {
        let questions = self.scope.questions.iter().enumerate();
        questions
            .filter(|(_, question)| !tolerate(tolerations, &question.taint))
            .fold(0, |all, (bit, _)| all | 1 << bit)
    }

    /// The questions that a template counts against and, for a DaemonSet, those that it would count against if it were
    /// for Windows.
    pub(super) fn of_template(&mut self, kind: WorkloadKind, workload: &Workload) -> (Found, Mask) {
        let spec = &workload.template;
        let nothing = (Found::default(), 0);
        let is_daemon_set = kind == WorkloadKind::DaemonSet;
        let class = if is_daemon_set { Ok(None) } else { self.class_of(workload) };
        let Ok(class) = class else { return nothing };
        let says = Self::says(spec, class);
        let admitted = class.map(|class| {
            let mut spec = spec.clone();
            class.admit(&mut spec);
            spec
        });
        let admitted = admitted.as_ref().unwrap_or(spec);
        let untolerated = self.untolerated(&admitted.tolerations);
        if untolerated == 0 {
            return nothing;
        }
        let mask = match says {
            _ if is_daemon_set => untolerated & self.fitting_candidates(admitted),
            Says::NotWindows => 0,
            _ if self.is_told_to_tolerate(workload) => 0,
            _ => self.without_node(untolerated, untolerated, admitted),
        };
        let mut found = Found::default();
        match says {
            Says::Windows => found.add(mask, None),
            Says::WindowsIf(selector) if mask != 0 => {
                self.undecided.entry(selector.clone()).or_default();
                found.add(mask, Some(selector));
            }
            _ => {}
        }
        (found, mask)
    }

    /// True if the policy `tolerate-windows` adds the pools' tolerations to the pods of a template.
    fn is_told_to_tolerate(&self, workload: &Workload) -> bool {
        let excluded = self.scope.intolerant_namespaces.as_ref();
        excluded.is_some_and(|excluded| !excluded.contains(&workload.namespace))
            && workload.template.says_windows_to_policies()
    }

    /// The class of a template's pods, if they have one.
    pub(super) fn class_of(&self, workload: &Workload) -> Result<Option<&Class>, NoSuchClass> {
        let assigned = || {
            let class = self.scope.assign_class.as_ref()?.class(workload);
            class.filter(|name| self.scope.classes.contains_key(*name))
        };
        let Some(name) = workload.template.runtime_class.as_ref().or_else(assigned) else { return Ok(None) };
        self.scope.classes.get(name).map(Some).ok_or(NoSuchClass)
    }

    pub(super) fn says(spec: &PodSpec, class: Option<&Class>) -> Says {
        match spec.target(class) {
            Target::Windows => Says::Windows,
            Target::WindowsImage | Target::Unsaid if !spec.node_selector.is_empty() => {
                Says::WindowsIf(spec.node_selector.clone())
            }
            Target::Linux | Target::WindowsImage | Target::Unsaid => Says::NotWindows,
        }
    }

    fn fitting_candidates(&self, spec: &PodSpec) -> Mask {
        let fitting = self.scope.nodes.iter().zip(&self.candidates).filter(|(node, _)| fit(spec, node) > Tolerance::No);
        fitting.fold(0, |all, (_, candidate)| all | candidate)
    }

    /// The questions of `mask` for which a candidate fits now, and no Windows node would fit afterwards.
    pub(super) fn without_node(&self, mask: Mask, untolerated: Mask, spec: &PodSpec) -> Mask {
        let (mut fitting, mut refuge) = (0, 0);
        for (index, node) in self.scope.nodes.iter().enumerate() {
            if mask & !refuge == 0 {
                return 0;
            }
            let fit = fit(spec, node);
            if fit > Tolerance::No {
                fitting |= self.candidates[index];
            }
            if fit == Tolerance::Yes && self.coming[index] & untolerated == 0 {
                refuge |= !self.candidates[index];
            }
        }
        mask & fitting & !refuge
    }

    /// A terminating pod is about to be replaced, and its template tells by which pod. If the template is unknown, the
    /// pod counts for a while.
    pub(super) fn counts_while_terminating(&self, pod: &Pod, known: Option<&SeenWorkload>) -> bool {
        let is_recent = pod.deleted.is_some_and(|deleted| deleted.duration_since(self.scope.now) > -PATIENCE);
        let kind = pod.workload_kind();
        let is_listed = |kind: WorkloadKind| !self.unlisted.contains_key(kind.resource().1);
        let template_tells = kind.is_some_and(is_listed) && !known.is_some_and(|seen| seen.has_two_revisions);
        is_recent && pod.controller.is_some() && !template_tells
    }

    /// True for a Linux pod on a Windows node. It never started there and loses nothing.
    pub(super) fn is_stray(&self, pod: &Pod, says: &Says) -> bool {
        let has_waited = || pod.created.is_some_and(|created| self.scope.now.duration_since(created) >= PATIENCE);
        let cannot_start =
            || pod.progress == PodProgress::ImageOfAnotherSystem || pod.spec.has_linux_fields || has_waited();
        pod.spec.target(None) == Target::Linux
            || !matches!(says, Says::Windows) && pod.spec.says_no_system() && cannot_start()
    }
}

/// Tells if an admitted pod may run on the node.
fn fit(spec: &PodSpec, node: &KnownNode) -> Tolerance {
    if node.labels.matches(&spec.node_selector) && matches_affinity(&spec.terms, &node.labels, &node.name) {
        tolerance(&spec.tolerations, &node.taints)
    } else {
        Tolerance::No
    }
}

/// The class does not exist, so the API server refuses the pods.
pub(super) struct NoSuchClass;
