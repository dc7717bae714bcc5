//! The lists that a workload check receives: every template, and after that every pod.

use winpool_core::{
    plan::ForWindows,
    pod::{Pod, PodProgress, Workload, WorkloadKind},
};

use super::{Mask, seen::NewestSets, state::WorkloadCheck};

impl WorkloadCheck {
    /// Reads a workload. All workloads have to come before the first pod.
    pub fn workload(&mut self, kind: WorkloadKind, workload: &Workload) {
        let Workload { namespace, name, controller, .. } = workload;
        let key = format!("{} {namespace}/{name}", kind.as_str());
        if workload.is_ignored {
            self.workloads.entry(key).or_default().is_ignored = true;
            return;
        }
        if workload.is_over {
            return;
        }
        let class = workload.template.runtime_class.as_ref().or_else(|| self.assigned_class(workload));
        self.uses(class.cloned().as_ref());
        let template = self.template(kind, workload);
        if let (WorkloadKind::ReplicaSet, Some((owner, name))) = (kind, controller) {
            let newest = self.newest_sets.entry(format!("{owner} {namespace}/{name}")).or_default();
            if newest.created < workload.created {
                *newest = NewestSets { created: workload.created, empty: Vec::new() };
            }
            if workload.replicas == 0 {
                if newest.created == workload.created {
                    newest.empty.push((key, template));
                }
                return;
            }
        }
        self.workloads.entry(key).or_default().template = Some(Box::new(template));
    }

    pub fn pod(&mut self, pod: &Pod) {
        if pod.progress == PodProgress::Finished || pod.is_mirror || pod.is_ignored {
            return;
        }
        self.uses(pod.spec.runtime_class.as_ref());
        let key = pod.workload();
        let known = self.workloads.get(&key);
        if known.is_some_and(|seen| seen.is_ignored) {
            return;
        }
        let template = known.and_then(|seen| seen.template.as_deref());
        let is_judged_by_template = template.is_some_and(|template| !template.is_rolling_out);
        if pod.is_terminating() && (is_judged_by_template || !self.counts_while_terminating(pod)) {
            return;
        }
        let (is_known, is_daemon_set) = (known.is_some(), template.is_some_and(|template| template.is_daemon_set));
        let own = self.untolerated(&pod.spec.tolerations);
        let on = pod.spec.node.as_deref().map(|name| self.by_name.get(name).copied());
        // A pod on a node of another system only shows what its workload tolerates.
        if on == Some(None) {
            if let Some(seen) = self.workloads.get_mut(&key) {
                seen.of_pods = Some(seen.of_pods.unwrap_or_default() | own);
            }
            return;
        }
        let on_windows = on.flatten();
        // The pod that replaces a bound one gets the tolerations of the class as it is now.
        let class = pod.spec.runtime_class.as_ref().filter(|_| on.is_some()).and_then(|name| self.class(name));
        let untolerated = own & class.map_or(Mask::MAX, |class| self.untolerated(&class.tolerations));
        let on_candidate = on_windows.map_or(0, |index| self.candidates[index]);
        let bound = if is_judged_by_template { on_candidate } else { on_candidate & untolerated };
        let for_windows = ForWindows::of(&pod.spec);
        let may_move = !is_daemon_set && (on.is_none() || !is_judged_by_template);
        let moving = if may_move {
            untolerated & !on_candidate & self.without_refuge(untolerated, &pod.spec, for_windows)
        } else {
            0
        };
        let started = on_windows.is_some() && pod.progress == PodProgress::Started;
        let matters = bound | moving != 0;
        let is_remembered = matters || is_known || started && pod.controller.is_some();
        if !is_remembered {
            return;
        }
        let is_stray = on_windows.is_some() && !started && self.is_stray(pod, for_windows);
        let only_if = if matters && for_windows == ForWindows::IfNoOtherNode { self.choice(&pod.spec) } else { None };
        let seen = self.workloads.entry(key).or_default();
        seen.started |= started;
        seen.of_pods = Some(seen.of_pods.unwrap_or_default() | own);
        if !matters {
        } else if is_stray {
            // A pod whose choice of nodes matches only Windows nodes is no stray.
            if only_if.is_some() {
                seen.count += 1;
                seen.bound.add(bound, only_if);
            } else {
                seen.others().stray_count += 1;
            }
            seen.others().strays |= bound;
        } else {
            seen.count += 1;
            seen.bound.add(bound, None);
            if moving != 0 {
                seen.others().moving.add(moving, only_if);
            }
        }
    }

    /// True if the template of this workload, which counted before, now tolerates everything, or creates no pods any
    /// more.
    pub fn is_settled(&self, kind: WorkloadKind, workload: &Workload) -> bool {
        let is_rolling_out = kind.rolls_out() && workload.is_rolling_out;
        workload.is_over || workload.is_ignored || !is_rolling_out && self.of_template(kind, workload) == 0
    }
}
