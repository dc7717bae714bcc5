//! Pods, as far as taints and RuntimeClasses concern them: who would be stranded, who uses a class.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{core::v1::Toleration, node::v1::RuntimeClass};

use crate::api::{Taint, names};

use super::{ClassAction, ClassesPlan, Held, lacks_tolerations, tolerations::tolerate};

/// What winpool reads of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Kind and name of the controller that made it.
    pub controller: Option<(String, String)>,
    /// The label `pod-template-hash`, which a Deployment gives its `ReplicaSets` and their pods.
    pub template_hash: Option<String>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// `spec.runtimeClassName`.
    pub runtime_class: Option<String>,
    /// `spec.os.name`.
    pub os: Option<String>,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Whether its required node affinity says something about the operating system or the Windows build.
    pub os_affinity: bool,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// How far it came.
    pub progress: PodProgress,
    /// Whether it has a deletionTimestamp.
    pub terminating: bool,
}

/// How far a pod came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodProgress {
    /// None of its containers has run yet.
    #[default]
    Waiting,
    /// None of its containers has run, and the kubelet says that the image is not for the node's operating system.
    ImageOfAnotherSystem,
    /// One of its containers runs or has run.
    Started,
    /// `status.phase` is Succeeded or Failed.
    Finished,
}

impl Pod {
    /// `Deployment shop/web`, or the pod itself when nothing controls it. A `ReplicaSet` of a Deployment is named for the
    /// Deployment and the hash of its template.
    #[must_use]
    pub fn workload(&self) -> String {
        let (kind, name) = match &self.controller {
            None => ("Pod", self.name.as_str()),
            Some((kind, name)) if kind == "ReplicaSet" => match self.deployment(name) {
                Some(deployment) => ("Deployment", deployment),
                None => ("ReplicaSet", name.as_str()),
            },
            Some((kind, name)) => (kind.as_str(), name.as_str()),
        };
        format!("{kind} {}/{name}", self.namespace)
    }

    fn deployment<'a>(&self, replica_set: &'a str) -> Option<&'a str> {
        replica_set.strip_suffix(self.template_hash.as_deref()?)?.strip_suffix('-')
    }

    /// Whether it tolerates `taint`.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        tolerate(&self.tolerations, taint)
    }

    /// A Linux pod that landed on a Windows node: it never started there and loses nothing.
    fn is_a_stray_of_linux(&self) -> bool {
        let linux = |os: Option<&String>| os.is_some_and(|os| os == "linux");
        let says_linux = linux(self.os.as_ref()) || linux(self.node_selector.get(names::OS));
        match self.progress {
            PodProgress::ImageOfAnotherSystem => true,
            PodProgress::Waiting => says_linux,
            PodProgress::Started | PodProgress::Finished => false,
        }
    }
}

/// The workloads with pods on these nodes that do not tolerate all of `taints`: the next pod of each would find no node.
/// Sorted, each once, with the number of its pods.
pub fn stranded<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    on_nodes: impl Fn(&str) -> bool,
    taints: &[Taint],
) -> BTreeMap<String, usize> {
    let mut stranded = BTreeMap::new();
    for pod in pods {
        let concerned =
            pod.progress != PodProgress::Finished && !pod.terminating && pod.node.as_deref().is_some_and(&on_nodes);
        if concerned && !pod.is_a_stray_of_linux() && !taints.iter().all(|taint| pod.tolerates(taint)) {
            *stranded.entry(pod.workload()).or_default() += 1;
        }
    }
    stranded
}

/// Why `taints` have to wait: workloads on the nodes that lack them, or RuntimeClasses of somebody else that select those
/// nodes, do not tolerate them. `pods` are the unfinished ones of the cluster, or why they cannot be read.
#[must_use]
pub fn held_back(
    pods: Result<&[Pod], &str>,
    on_nodes: impl Fn(&str) -> bool,
    taints: &BTreeSet<Taint>,
    classes: &ClassesPlan,
    existing: &[Arc<RuntimeClass>],
) -> Option<Held> {
    let pods = match pods {
        Ok(pods) => pods,
        Err(words) => return Some(Held::PodsUnreadable(words.to_owned())),
    };
    let wanted: Vec<Taint> = taints.iter().cloned().collect();
    let mut found = stranded(pods, on_nodes, &wanted);
    found.extend(untolerating_classes(classes, existing, taints, pods));
    (!found.is_empty()).then_some(Held::Stranded(found))
}

/// Somebody else's classes that select the pool's nodes: their pods would be kept off.
fn untolerating_classes(
    plan: &ClassesPlan,
    existing: &[Arc<RuntimeClass>],
    taints: &BTreeSet<Taint>,
    pods: &[Pod],
) -> BTreeMap<String, usize> {
    let conflicts = plan.classes.iter().filter(|planned| matches!(planned.action, ClassAction::Conflict(_)));
    let names: BTreeSet<&str> = conflicts.map(|planned| planned.desired.name.as_str()).collect();
    let name = |class: &RuntimeClass| class.metadata.name.clone().unwrap_or_default();
    let lacking = existing.iter().filter(|class| names.contains(name(class).as_str()));
    let lacking = lacking.filter(|class| lacks_tolerations(class, taints));
    lacking
        .map(|class| {
            let name = name(class);
            let users = pods.iter().filter(|pod| pod.runtime_class.as_ref() == Some(&name)).count();
            (format!("RuntimeClass {name}"), users)
        })
        .collect()
}

/// The workloads that run on these nodes, which are Windows nodes, and say nowhere that they are for Windows: a policy
/// that takes such pods for Linux would strand them. Each with the number of its pods.
pub fn silent<'a>(pods: impl IntoIterator<Item = &'a Pod>, on_nodes: impl Fn(&str) -> bool) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in pods {
        let runs =
            pod.progress == PodProgress::Started && !pod.terminating && pod.node.as_deref().is_some_and(&on_nodes);
        let says = pod.os.is_some()
            || pod.runtime_class.is_some()
            || pod.os_affinity
            || pod.node_selector.keys().any(|key| tells_the_system(key));
        if runs && !says {
            *found.entry(pod.workload()).or_default() += 1;
        }
    }
    found
}

/// Whether a node label of this key says which operating system the node runs.
#[must_use]
pub fn tells_the_system(key: &str) -> bool {
    [names::OS, names::WINDOWS_BUILD, "beta.kubernetes.io/os"].contains(&key)
}

/// The pods that use the class and have not finished. One that is terminating still needs its handler.
pub fn users_of_class<'a>(pods: impl IntoIterator<Item = &'a Pod>, class: &str) -> Vec<&'a Pod> {
    let uses = |pod: &&Pod| pod.progress != PodProgress::Finished && pod.runtime_class.as_deref() == Some(class);
    pods.into_iter().filter(uses).collect()
}

/// The workloads whose unbound pods name the class and lack a toleration for one of `taints`, because they were created
/// before the class had it. Tolerations are baked into a pod: these have to be created again.
pub fn created_too_early<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    class: &str,
    taints: &[Taint],
) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in users_of_class(pods, class).into_iter().filter(|pod| pod.node.is_none() && !pod.terminating) {
        if !taints.iter().all(|taint| pod.tolerates(taint)) {
            *found.entry(pod.workload()).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tolerating(key: &str, operator: &str, value: Option<&str>, effect: Option<&str>) -> Pod {
        let text = |text: &str| Some(text.to_owned());
        let toleration = Toleration {
            key: (!key.is_empty()).then(|| key.to_owned()),
            operator: (!operator.is_empty()).then(|| operator.to_owned()),
            value: value.and_then(text),
            effect: effect.and_then(text),
            toleration_seconds: None,
        };
        Pod { tolerations: vec![toleration], ..on("win") }
    }

    fn on(node: &str) -> Pod {
        Pod {
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            node: Some(node.to_owned()),
            progress: PodProgress::Started,
            ..Pod::default()
        }
    }

    fn stranded_by_os_windows(pods: &[Pod]) -> Vec<String> {
        stranded(pods, |node| node == "win", &[Taint::os_windows()]).into_keys().collect()
    }

    #[test]
    fn tolerations_are_read_as_the_scheduler_reads_them() {
        for (pod, tolerated) in [
            (tolerating("os", "Equal", Some("windows"), Some("NoSchedule")), true),
            (tolerating("os", "", Some("windows"), None), true),
            (tolerating("os", "Exists", None, None), true),
            (tolerating("", "Exists", None, None), true),
            (tolerating("", "Exists", None, Some("NoExecute")), false),
            (tolerating("os", "Equal", Some("Windows"), None), false),
            (tolerating("os", "Equal", None, None), false),
            (tolerating("OS", "Exists", None, None), false),
            (on("win"), false),
        ] {
            assert_eq!(pod.tolerates(&Taint::os_windows()), tolerated, "{:?}", pod.tolerations);
        }
        assert!(on("win").tolerates(&Taint::new("os", "windows", "PreferNoSchedule")));
    }

    #[test]
    fn only_pods_that_would_lose_their_place_are_stranded() {
        let linux = Some("linux".to_owned());
        for (pod, counts) in [
            (on("win"), true),
            (on("linux-node"), false),
            (Pod { node: None, ..on("win") }, false),
            (Pod { progress: PodProgress::Finished, ..on("win") }, false),
            (Pod { terminating: true, ..on("win") }, false),
            (Pod { os: linux.clone(), progress: PodProgress::Waiting, ..on("win") }, false),
            (Pod { progress: PodProgress::ImageOfAnotherSystem, ..on("win") }, false),
            (Pod { os: linux, ..on("win") }, true),
            (Pod { progress: PodProgress::Waiting, ..on("win") }, true),
        ] {
            assert_eq!(!stranded_by_os_windows(std::slice::from_ref(&pod)).is_empty(), counts, "{pod:?}");
        }
    }

    #[test]
    fn pods_that_run_on_windows_and_never_say_so_are_silent() {
        let selector = |key: &str| BTreeMap::from([(key.to_owned(), "windows".to_owned())]);
        for (pod, is_silent) in [
            (on("win"), true),
            (Pod { node_selector: selector("team"), ..on("win") }, true),
            (on("linux-node"), false),
            (Pod { progress: PodProgress::Waiting, ..on("win") }, false),
            (Pod { terminating: true, ..on("win") }, false),
            (Pod { os: Some("windows".to_owned()), ..on("win") }, false),
            (Pod { runtime_class: Some("windows-2019".to_owned()), ..on("win") }, false),
            (Pod { os_affinity: true, ..on("win") }, false),
            (Pod { node_selector: selector("kubernetes.io/os"), ..on("win") }, false),
            (Pod { node_selector: selector("beta.kubernetes.io/os"), ..on("win") }, false),
        ] {
            assert_eq!(!silent([&pod], |node| node == "win").is_empty(), is_silent, "{pod:?}");
        }
    }

    #[test]
    fn pods_are_named_for_what_made_them() {
        let of = |kind: &str, name: &str, hash: Option<&str>| Pod {
            controller: Some((kind.to_owned(), name.to_owned())),
            template_hash: hash.map(str::to_owned),
            ..on("win")
        };
        let pods = [
            of("ReplicaSet", "web-5d8f7", Some("5d8f7")),
            of("ReplicaSet", "web-5d8f7", Some("5d8f7")),
            of("ReplicaSet", "bare", None),
            of("DaemonSet", "logs", None),
            on("win"),
        ];
        let names = ["DaemonSet shop/logs", "Deployment shop/web", "Pod shop/web-1", "ReplicaSet shop/bare"];
        assert_eq!(stranded_by_os_windows(&pods), names);
        assert_eq!(stranded(&pods, |_| true, &[Taint::os_windows()])["Deployment shop/web"], 2);
    }

    #[test]
    fn a_class_is_in_use_until_its_last_pod_has_finished() {
        let class = |pod: Pod| Pod { runtime_class: Some("windows-2019".to_owned()), ..pod };
        let pods = [
            class(on("win")),
            class(Pod { terminating: true, ..on("win") }),
            class(Pod { node: None, ..on("win") }),
            class(Pod { progress: PodProgress::Finished, ..on("win") }),
            on("win"),
        ];
        assert_eq!(users_of_class(&pods, "windows-2019").len(), 3);
        assert_eq!(created_too_early(&pods, "windows-2019", &[Taint::os_windows()])["Pod shop/web-1"], 1);
    }
}
