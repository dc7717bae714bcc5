//! The placement of pods: the nodes where a pod or the pods of a template may run, now and with the taints.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::NodeSelectorTerm, jiff::SignedDuration};
use winpool_core::{
    api::names,
    plan::{
        ForWindows,
        node_groups::{GroupedNode, NodeGroups},
    },
    pod::{
        Class, OS_KEYS, Pod, PodProgress, PodSpec, Target, Tolerance, Workload, WorkloadKind, affinity::holds,
        tolerance,
    },
};

use super::{
    Mask,
    seen::{Confirmed, SeenTemplate},
    state::WorkloadCheck,
};

/// The time after which a waiting pod that does not say Windows is taken for a Linux pod, and the time for which a
/// terminating pod still counts after its grace period.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

impl WorkloadCheck {
    /// The class of a template's pods, if they have one and it exists.
    fn class_of(&self, kind: WorkloadKind, workload: &Workload) -> Option<&Class> {
        // The DaemonSet controller ignores classes.
        if kind == WorkloadKind::DaemonSet {
            return None;
        }
        let name = workload.template.runtime_class.as_ref().or_else(|| self.assigned_class(workload))?;
        self.class(name)
    }

    /// The taints that the pods of a template do not tolerate.
    pub(super) fn of_template(&self, kind: WorkloadKind, workload: &Workload) -> Mask {
        let spec = &workload.template;
        // The scheduler does not place pods of a template with `nodeName`.
        if spec.node.is_some() || kind != WorkloadKind::DaemonSet && self.is_told_to_tolerate(workload) {
            return 0;
        }
        let class = self.class_of(kind, workload);
        self.untolerated(&spec.tolerations) & class.map_or(Mask::MAX, |class| self.untolerated(&class.tolerations))
    }

    pub(super) fn template(&mut self, kind: WorkloadKind, workload: &Workload) -> SeenTemplate {
        let is_daemon_set = kind == WorkloadKind::DaemonSet;
        let is_rolling_out = kind.rolls_out() && workload.is_rolling_out;
        let mut seen = SeenTemplate {
            untolerated: self.of_template(kind, workload),
            is_rolling_out,
            // Old pods of the other kinds stay as they are when the template changes.
            is_shown_by_pods: !is_rolling_out && (kind.rolls_out() || kind == WorkloadKind::Job),
            is_daemon_set,
            found: Confirmed::default(),
        };
        // The API server refuses pods of a class that does not exist.
        let class = workload.template.runtime_class.as_ref();
        let is_refused = !is_daemon_set && class.is_some_and(|name| self.class(name).is_none());
        if seen.untolerated == 0 || is_refused {
            return seen;
        }
        let mut spec = workload.template.clone();
        if let Some(class) = self.class_of(kind, workload) {
            class.admit(&mut spec);
        }
        // The class of a DaemonSet does not place its pods, but says what they are for.
        let for_windows = ForWindows::with(&spec, class.and_then(|name| self.class(name)));
        let mask = match for_windows {
            ForWindows::No => 0,
            // It needs every node that it fits.
            _ if is_daemon_set => seen.untolerated & self.reach(&spec, for_windows, seen.untolerated).0,
            _ => self.without_refuge(seen.untolerated, &spec, for_windows),
        };
        if mask != 0 {
            let only_if = if for_windows == ForWindows::IfNoOtherNode { self.choice(&spec) } else { None };
            seen.found.add(mask, only_if);
        }
        seen
    }

    /// The questions of `untolerated` about nodes that an admitted pod could be on, if no other node would remain for it.
    pub(super) fn without_refuge(&self, untolerated: Mask, spec: &PodSpec, for_windows: ForWindows) -> Mask {
        if for_windows == ForWindows::No || untolerated == 0 {
            return 0;
        }
        let (reached, refuge) = self.reach(spec, for_windows, untolerated);
        untolerated & reached & !refuge
    }

    /// The questions about nodes that an admitted pod could be on, and those for which it has a refuge: a node that
    /// serves, is no candidate, and whose taints it tolerates. Taints and conditions of the former nodes are passing.
    fn reach(&self, spec: &PodSpec, for_windows: ForWindows, untolerated: Mask) -> (Mask, Mask) {
        let (mut reached, mut refuge, mut fits_any) = (0, 0, false);
        for nodes in self.groups.get_or_init(|| self.grouped()).fitting(spec) {
            let Some((index, node)) = nodes.first().map(|index| (*index, &self.scope.nodes[*index])) else { continue };
            fits_any = true;
            reached |= self.concerned[index];
            let stays_free = self.coming[index] & untolerated == 0;
            if node.serves && stays_free && tolerance(&spec.tolerations, &node.taints) == Tolerance::Yes {
                refuge |= !self.candidates[index];
            }
        }
        if !fits_any && for_windows == ForWindows::Yes {
            for (bit, question) in self.scope.questions.iter().enumerate() {
                let may_come = question.to_approve.as_ref().is_some_and(|pool| !contradicts(spec, &pool.labels));
                reached |= Mask::from(may_come) << bit;
            }
        }
        (reached, refuge)
    }

    /// The nodes in groups that are equal to every pod whose node selector and affinity allow them.
    fn grouped(&self) -> NodeGroups {
        let mut classes = HashMap::new();
        let grouped = self.scope.nodes.iter().enumerate().map(|(index, node)| {
            let masks = (self.concerned[index], self.coming[index], self.candidates[index]);
            let next = classes.len();
            let class = *classes.entry((masks, node.serves, &node.taints)).or_insert(next);
            GroupedNode { labels: node.labels.clone(), name: Arc::clone(&node.name), class }
        });
        NodeGroups::new(grouped.collect())
    }

    /// A terminating pod is about to be replaced. Where no template tells by which pod, it counts for a while.
    pub(super) fn counts_while_terminating(&self, pod: &Pod) -> bool {
        let is_recent = pod.deleted.is_some_and(|deleted| deleted.duration_since(self.scope.now) > -PATIENCE);
        let is_gone = || {
            let kind = pod.workload_kind().filter(|kind| !self.unlisted.contains_key(kind.resource().1));
            kind.is_some() && !self.workloads.contains_key(&pod.workload())
        };
        is_recent && pod.has_owner && !is_gone()
    }

    /// True for a Linux pod on a Windows node. It never started there and loses nothing.
    pub(super) fn is_stray(&self, pod: &Pod, for_windows: ForWindows) -> bool {
        let has_waited = || pod.created.is_some_and(|created| self.scope.now.duration_since(created) >= PATIENCE);
        let cannot_start =
            || pod.progress == PodProgress::ImageOfAnotherSystem || pod.spec.has_linux_fields || has_waited();
        pod.spec.target(None) == Target::Linux
            || for_windows != ForWindows::Yes && pod.spec.says_no_system() && cannot_start()
    }
}

/// True if no Windows node with these labels, and any others, can meet node selector and required affinity of the pod.
fn contradicts(spec: &PodSpec, labels: &BTreeMap<String, String>) -> bool {
    let known = |key: &str| {
        let is_os = OS_KEYS.contains(&key);
        if is_os { Some(names::WINDOWS) } else { labels.get(key).map(String::as_str) }
    };
    let differs = |(key, value): (&String, &String)| known(key).is_some_and(|known| known != value);
    let fails = |term: &NodeSelectorTerm| {
        let mut known = term.match_expressions.iter().flatten().filter_map(|e| Some((e, known(&e.key)?)));
        known.any(|(expression, value)| !holds(expression, Some(value)))
    };
    spec.node_selector.iter().any(differs) || !spec.terms.is_empty() && spec.selecting_terms().all(fails)
}
