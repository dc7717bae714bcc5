//! Pods that use a RuntimeClass.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::Taint,
    pod::{Pod, PodProgress, Workload, WorkloadKind},
    words::{count, joined},
};

/// The number of pods that are named as examples.
const NAMED: usize = 5;

/// The scheduling that a RuntimeClass gives to its new pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassScheduling {
    /// The selector of the class.
    pub selector: BTreeMap<String, String>,
    /// The taints that its pods have to tolerate.
    pub tolerate: Vec<Taint>,
    /// True if no node has the selector, so that workloads without pods matter too: their next pod waits.
    pub is_unserved: bool,
}

impl ClassScheduling {
    /// True if the pod was created with the class as it is.
    fn is_applied_to(&self, pod: &Pod) -> bool {
        self.tolerate.iter().all(|taint| pod.spec.tolerates(taint))
            && self.selector.iter().all(|(key, value)| pod.spec.node_selector.get(key) == Some(value))
    }
}

/// Describes the users of a class, or says that pods cannot be listed.
pub(super) fn describe_users(users: Result<&ClassUsers, &str>) -> String {
    users.map_or_else(|message| format!("pods cannot be listed: {message}"), ClassUsers::describe)
}

/// The unfinished pods of one RuntimeClass, and the workloads that create such pods if no node serves the class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUsers {
    /// Their number. A terminating pod still needs its handler.
    pub count: usize,
    /// A few of them, as `namespace/name`.
    pub examples: Vec<String>,
    /// Workloads whose unbound pods lack a toleration or a label of the selector that the class has now, with the number
    /// of those pods. A pod keeps what it got at its creation, so these have to be recreated.
    pub created_too_early: BTreeMap<String, usize>,
    /// The workloads, such as `CronJob shop/report`; none if a node serves the class.
    pub workloads: BTreeSet<String>,
}

impl ClassUsers {
    /// Counts the users of these classes.
    pub fn count<'a>(
        pods: impl IntoIterator<Item = &'a Pod>,
        workloads: impl IntoIterator<Item = (WorkloadKind, &'a Workload)>,
        classes: &BTreeMap<String, ClassScheduling>,
    ) -> BTreeMap<String, Self> {
        let mut users: BTreeMap<String, Self> = classes.keys().map(|class| (class.clone(), Self::default())).collect();
        pods.into_iter().for_each(|pod| Self::add(&mut users, pod, classes));
        workloads.into_iter().for_each(|(kind, workload)| Self::add_workload(&mut users, kind, workload, classes));
        users
    }

    /// Adds a pod, unless it has finished, to the users of its class.
    pub fn add(users: &mut BTreeMap<String, Self>, pod: &Pod, classes: &BTreeMap<String, ClassScheduling>) {
        let class = pod.spec.runtime_class.as_ref().filter(|_| pod.progress != PodProgress::Finished);
        let Some((users, scheduling)) = class.and_then(|class| users.get_mut(class).zip(classes.get(class))) else {
            return;
        };
        users.count += 1;
        if users.examples.len() < NAMED {
            users.examples.push(format!("{}/{}", pod.namespace, pod.name));
        }
        let waits = pod.spec.node.is_none() && !pod.is_terminating();
        if waits && !scheduling.is_applied_to(pod) {
            *users.created_too_early.entry(pod.workload()).or_default() += 1;
        }
    }

    /// Adds a workload to the users of its class, if no node serves the class.
    pub fn add_workload(
        users: &mut BTreeMap<String, Self>,
        kind: WorkloadKind,
        workload: &Workload,
        classes: &BTreeMap<String, ClassScheduling>,
    ) {
        // A workload of a kind that is listed stands for those that it controls.
        let is_listed = |(kind, _): &(String, String)| WorkloadKind::by_name(kind).is_some();
        if workload.is_over || workload.controller.as_ref().is_some_and(is_listed) {
            return;
        }
        let class = workload.template.runtime_class.as_ref();
        let class = class.filter(|class| classes.get(*class).is_some_and(|scheduling| scheduling.is_unserved));
        let Some(users) = class.and_then(|class| users.get_mut(class)) else { return };
        users.workloads.insert(format!("{} {}/{}", kind.as_str(), workload.namespace, workload.name));
        if users.workloads.len() > NAMED {
            users.workloads.pop_last();
        }
    }

    /// True if there are none.
    pub fn are_none(&self) -> bool {
        self.count == 0 && self.workloads.is_empty()
    }

    /// Describes the users: their number and a few names.
    pub fn describe(&self) -> String {
        let pods =
            (self.count > 0).then(|| format!("{}, such as {}", count(self.count, "pod"), self.examples.join(", ")));
        let workloads = (!self.workloads.is_empty()).then(|| format!("the next pods of {}", joined(&self.workloads)));
        format!("used by {}", pods.into_iter().chain(workloads).collect::<Vec<_>>().join(", and by "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodSpec;

    fn on(node: &str, spec: &str) -> Pod {
        let spec: PodSpec = serde_yaml::from_str(spec).unwrap();
        Pod {
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            spec: PodSpec { node: Some(node.to_owned()).filter(|node| !node.is_empty()), ..spec },
            progress: PodProgress::Started,
            ..Pod::default()
        }
    }

    #[test]
    fn a_class_is_in_use_until_its_last_pod_has_finished() {
        let of_class = |node: &str| on(node, "{runtimeClassName: windows-2019}");
        let pods = [
            of_class("win"),
            Pod { deleted: Some(k8s_openapi::jiff::Timestamp::UNIX_EPOCH), ..of_class("win") },
            of_class(""),
            Pod { progress: PodProgress::Finished, ..of_class("win") },
            on("win", "{}"),
        ];
        let (selector, tolerate) = ([("a".to_owned(), "b".to_owned())].into(), vec![Taint::os_windows()]);
        let (none, too_early) = (ClassScheduling::default(), Some(&1));
        let (by_taint, by_label) =
            (ClassScheduling { tolerate, ..none.clone() }, ClassScheduling { selector, ..none.clone() });
        for (scheduling, expected) in [(by_taint, too_early), (by_label, too_early), (none, None)] {
            let users = ClassUsers::count(&pods, [], &[("windows-2019".to_owned(), scheduling)].into());
            let users = &users["windows-2019"];
            assert_eq!((users.count, users.created_too_early.get("Pod shop/web-1")), (3, expected));
        }
    }
}
