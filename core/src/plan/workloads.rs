//! Pods that use a RuntimeClass, and pods that do not say which operating system they are for.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::Taint,
    pod::{Pod, PodProgress},
    words::count,
};

/// The number of pods that are named as examples.
const NAMED: usize = 5;

/// The workloads that run on these Windows nodes and do not say that they are for Windows, each with the number of its
/// pods. An admission policy that takes such pods for Linux pods would keep them off.
pub fn silent<'a>(pods: impl IntoIterator<Item = &'a Pod>, on_nodes: impl Fn(&str) -> bool) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in pods {
        let on = pod.spec.node.as_deref().is_some_and(&on_nodes);
        if on && pod.progress == PodProgress::Started && !pod.is_terminating() && pod.spec.says_no_system() {
            *found.entry(pod.workload()).or_default() += 1;
        }
    }
    found
}

/// The unfinished pods of one RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUsers {
    /// Their number. A terminating pod still needs its handler.
    pub count: usize,
    /// A few of them, as `namespace/name`.
    pub examples: Vec<String>,
    /// Workloads whose unbound pods lack a toleration that the class has now, with the number of those pods. A pod
    /// keeps the tolerations from its creation, so these have to be recreated.
    pub created_too_early: BTreeMap<String, usize>,
}

impl ClassUsers {
    /// Counts the users of these classes among `pods`. `taints` are those that a pod of the classes has to tolerate.
    pub fn count<'a>(
        pods: impl IntoIterator<Item = &'a Pod>,
        classes: &BTreeSet<String>,
        taints: &[Taint],
    ) -> BTreeMap<String, Self> {
        let mut users: BTreeMap<String, Self> = classes.iter().map(|class| (class.clone(), Self::default())).collect();
        pods.into_iter().for_each(|pod| Self::add(&mut users, pod, taints));
        users
    }

    /// Adds a pod to the users of its class.
    pub fn add(users: &mut BTreeMap<String, Self>, pod: &Pod, taints: &[Taint]) {
        let class = pod.spec.runtime_class.as_ref().filter(|_| pod.progress != PodProgress::Finished);
        let Some(users) = class.and_then(|class| users.get_mut(class)) else { return };
        users.count += 1;
        if users.examples.len() < NAMED {
            users.examples.push(format!("{}/{}", pod.namespace, pod.name));
        }
        let waits = pod.spec.node.is_none() && !pod.is_terminating();
        if waits && !taints.iter().all(|taint| pod.spec.tolerates(taint)) {
            *users.created_too_early.entry(pod.workload()).or_default() += 1;
        }
    }

    /// Describes the users: their number and a few names.
    pub fn describe(&self) -> String {
        format!("used by {}, such as {}", count(self.count, "pod"), self.examples.join(", "))
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
    fn pods_that_run_on_windows_and_never_say_so_are_silent() {
        for (pod, is_silent) in [
            (on("win", "{}"), true),
            (on("win", "{nodeSelector: {team: windows}}"), true),
            (on("linux-node", "{}"), false),
            (Pod { progress: PodProgress::Waiting, ..on("win", "{}") }, false),
            (Pod { deleted: Some(k8s_openapi::jiff::Timestamp::UNIX_EPOCH), ..on("win", "{}") }, false),
            (on("win", "{os: {name: windows}}"), false),
            (on("win", "{runtimeClassName: windows-2019}"), false),
            (on("win", "{nodeSelector: {kubernetes.io/os: windows}}"), false),
            (on("win", "{nodeSelector: {beta.kubernetes.io/os: windows}}"), false),
        ] {
            assert_eq!(!silent([&pod], |node| node == "win").is_empty(), is_silent, "{pod:?}");
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
        let users = ClassUsers::count(&pods, &["windows-2019".to_owned()].into(), &[Taint::os_windows()]);
        let users = &users["windows-2019"];
        assert_eq!((users.count, users.created_too_early["Pod shop/web-1"]), (3, 1));
    }
}
