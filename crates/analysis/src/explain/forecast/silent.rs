//! Workloads that do not say which operating system they are for.

use std::collections::BTreeMap;

use winpool_core::pod::{OS_KEYS, PodProgress, SYSTEM_LABELS, is_on_windows_only};

use crate::pod::{Pod, PodSpec};

/// The workloads that run on these Windows nodes and do not say that they are for Windows, each with the number of its
/// pods. An admission policy that takes such pods for Linux pods would keep them off.
pub(super) fn silent<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    on_nodes: impl Fn(&str) -> bool,
) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in pods {
        let on = pod.spec.node.as_deref().is_some_and(&on_nodes);
        if on && pod.progress == PodProgress::Started && !pod.is_terminating && says_no_system(&pod.spec) {
            *found.entry(pod.workload()).or_default() += 1;
        }
    }
    found
}

/// True if nothing in the pod specifies an operating system.
fn says_no_system(pod: &PodSpec) -> bool {
    let tells = |key: &str| OS_KEYS.contains(&key) || SYSTEM_LABELS.contains(&key) || is_on_windows_only(key);
    let mut affinity = pod.terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    pod.os.is_none()
        && pod.runtime_class.is_none()
        && !pod.has_windows_options
        && !pod.node_selector.keys().any(|key| tells(key))
        && !affinity.any(|expression| tells(&expression.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(node: &str, spec: &str) -> Pod {
        let mut pod = Pod { spec: serde_yaml::from_str(spec).unwrap(), ..Pod::default() };
        "web-1".clone_into(&mut pod.name);
        "shop".clone_into(&mut pod.namespace);
        (pod.spec.node, pod.progress) = (Some(node.to_owned()), PodProgress::Started);
        pod
    }

    #[test]
    fn pods_that_run_on_windows_and_never_say_so_are_silent() {
        let (mut waiting, mut terminating) = (on("win", "{}"), on("win", "{}"));
        (waiting.progress, terminating.is_terminating) = (PodProgress::Waiting, true);
        for (pod, is_silent) in [
            (on("win", "{}"), true),
            (on("win", "{nodeSelector: {team: windows}}"), true),
            (on("linux-node", "{}"), false),
            (waiting, false),
            (terminating, false),
            (on("win", "{os: {name: windows}}"), false),
            (on("win", "{runtimeClassName: windows-2019}"), false),
            (on("win", "{nodeSelector: {kubernetes.io/os: windows}}"), false),
            (on("win", "{nodeSelector: {beta.kubernetes.io/os: windows}}"), false),
        ] {
            assert_eq!(!silent([&pod], |node| node == "win").is_empty(), is_silent, "{pod:?}");
        }
    }
}
