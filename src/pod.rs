//! Pods, read only when it matters who would be stranded or who uses a class: never watched, never cached.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, Pod, PodStatus, Toleration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::ListParams};
use serde::Deserialize;
use winpool_core::plan::{self, PodProgress, tells_the_system};

use crate::{apply::WriteError, pages};

/// A Pod as winpool reads it; serde skips all other fields.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
pub struct ListedPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ListedSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedSpec {
    node_name: Option<String>,
    runtime_class_name: Option<String>,
    os: Option<ListedOs>,
    #[serde(default)]
    node_selector: BTreeMap<String, String>,
    #[serde(default)]
    tolerations: Vec<Toleration>,
    affinity: Option<ListedAffinity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedAffinity {
    node_affinity: Option<ListedNodeAffinity>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

impl ListedSpec {
    /// Whether required node affinity says something about the operating system.
    fn os_affinity(&self) -> bool {
        let required = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()?.required.as_ref());
        let terms = required.iter().flat_map(|required| &required.node_selector_terms);
        let mut expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
        expressions.any(|expression| tells_the_system(&expression.key))
    }
}

#[derive(Clone, Debug, Deserialize)]
struct ListedOs {
    name: String,
}

/// Selects pods that have not finished.
pub(crate) fn unfinished() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

/// All pods of the cluster that have not finished, in pages.
///
/// # Errors
/// When they cannot be listed.
pub async fn list_unfinished(pods: &Api<ListedPod>) -> Result<Vec<plan::Pod>, WriteError> {
    let mut found = Vec::new();
    pages::each(pods, unfinished(), |pod| found.push(plan::Pod::from(pod))).await?;
    Ok(found)
}

impl From<ListedPod> for plan::Pod {
    fn from(ListedPod { metadata, spec, status }: ListedPod) -> Self {
        let os_affinity = spec.os_affinity();
        let controller = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            controller: controller.map(|owner| (owner.kind.clone(), owner.name.clone())),
            template_hash: metadata.labels.and_then(|mut labels| labels.remove("pod-template-hash")),
            node: spec.node_name,
            runtime_class: spec.runtime_class_name,
            os: spec.os.map(|os| os.name),
            node_selector: spec.node_selector,
            os_affinity,
            tolerations: spec.tolerations,
            progress: progress(&status),
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }
}

fn progress(status: &PodStatus) -> PodProgress {
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let seen = || containers().flat_map(|container| container.state.iter().chain(&container.last_state));
    let mut waiting = seen().filter_map(|state| state.waiting.as_ref()?.message.as_deref());
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => PodProgress::Finished,
        Some("Running") => PodProgress::Started,
        _ if seen().any(|state| state.running.is_some() || state.terminated.is_some()) => PodProgress::Started,
        _ if waiting.any(says_another_system) => PodProgress::ImageOfAnotherSystem,
        _ => PodProgress::Waiting,
    }
}

/// containerd's words for an image that has no variant for Windows.
fn says_another_system(message: &str) -> bool {
    message.contains("no match for platform in manifest") || message.contains("no matching manifest for windows")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value, status: &Value) -> plan::Pod {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f7", "uid": "u", "controller": true});
        let metadata = json!({
            "name": "web-5d8f7-x", "namespace": "shop", "labels": {"pod-template-hash": "5d8f7"}, "ownerReferences": [owner],
        });
        let pod: ListedPod =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap();
        pod.into()
    }

    #[test]
    fn what_plans_need_is_read() {
        let pod = read(
            &json!({
                "nodeName": "win", "runtimeClassName": "windows-2019", "os": {"name": "windows"},
                "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "containers": [],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]},
                ]}}},
            }),
            &json!({"phase": "Running"}),
        );
        assert_eq!(pod.workload(), "Deployment shop/web");
        assert_eq!((pod.node.as_deref(), pod.runtime_class.as_deref()), (Some("win"), Some("windows-2019")));
        assert_eq!((pod.os.as_deref(), pod.node_selector["a"].as_str()), (Some("windows"), "b"));
        assert_eq!((pod.tolerations.len(), pod.os_affinity), (1, true));
        assert_eq!((pod.progress, pod.terminating), (PodProgress::Started, false));
    }

    #[test]
    fn a_pod_whose_image_is_not_for_windows_never_started() {
        let waiting = |message: &str| {
            let state = json!({"waiting": {"reason": "ErrImagePull", "message": message}});
            let container =
                json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            read(&json!({"nodeName": "win"}), &json!({"phase": "Pending", "containerStatuses": [container]}))
        };
        let stray = waiting("failed to pull image: no match for platform in manifest: not found");
        assert_eq!(stray.progress, PodProgress::ImageOfAnotherSystem);
        assert_eq!(waiting("back-off pulling image").progress, PodProgress::Waiting);
    }
}
