//! Accessors for objects.

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, WindowsPoolStatus};

use crate::nodes::simulated::WINDOWS_BUILD;

/// The label with the Windows build of a node.
pub const BUILD: &str = WINDOWS_BUILD;
/// The taint that the API server adds to every new node. Without a controller manager it stays.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready:NoSchedule";

/// The status of a condition of a pool.
pub fn condition<'a>(pool: &'a WindowsPool, name: &str) -> Option<&'a str> {
    let conditions = &pool.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == name).map(|condition| condition.status.as_str())
}

/// Status, reason and message of a condition of a pool.
pub fn condition_text(pool: &WindowsPool, name: &str) -> Option<(String, String, String)> {
    let conditions = &pool.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == name)?;
    Some((condition.status.clone(), condition.reason.clone(), condition.message.clone()))
}

/// True if the pool holds a taint because of workloads that do not tolerate it.
pub fn is_held(pool: &WindowsPool) -> bool {
    condition_text(pool, "TaintsApplied").is_some_and(|(_, reason, _)| reason == "DaemonSetsNotTolerating")
}

/// The problems in the pool's status as JSON.
pub fn problems(pool: &WindowsPool) -> String {
    json!(pool.status.as_ref().map(|status| &status.problems)).to_string()
}

/// True if the class tolerates this taint, written as `key=value:effect`.
pub fn tolerates(class: &RuntimeClass, taint: &str) -> bool {
    let scheduling = scheduling(class);
    let text = |toleration: &Value| {
        let part = |key: &str| toleration[key].as_str().unwrap_or_default().to_owned();
        format!("{}={}:{}", part("key"), part("value"), part("effect"))
    };
    scheduling["tolerations"]
        .as_array()
        .is_some_and(|tolerations| tolerations.iter().any(|toleration| text(toleration) == taint))
}

/// `key=value:effect` of each taint, in order.
pub fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.map(text).collect()
}

/// A taint as JSON.
pub fn taint(text: &str) -> Value {
    json!(text.parse::<winpool_core::api::Taint>().unwrap())
}

/// [`taints`] without [`NOT_READY`].
pub fn lasting_taints(node: &Node) -> Vec<String> {
    let mut taints = taints(node);
    taints.retain(|taint| taint != NOT_READY);
    taints
}

/// True if the node has this taint, written as `key=value:effect`.
pub fn has_taint(node: &Node, taint: &str) -> bool {
    taints(node).iter().any(|other| other == taint)
}

fn text(taint: &Taint) -> String {
    let Taint { key, value, effect, .. } = taint;
    value
        .as_deref()
        .filter(|value| !value.is_empty())
        .map_or_else(|| format!("{key}:{effect}"), |value| format!("{key}={value}:{effect}"))
}

pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.labels().get(key).map(String::as_str)
}

/// Everything on a node that winpool changes and restores. The build label is a fact about the node: it stays.
pub fn face(node: &Node) -> Value {
    let mut labels = node.labels().clone();
    labels.remove(BUILD);
    json!({
        "labels": labels,
        "annotations": node.annotations(),
        "taints": node.spec.as_ref().and_then(|spec| spec.taints.clone()),
    })
}

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The scheduler's message if it found no node for the pod.
pub fn unschedulable(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    let is_refused = scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable");
    scheduled.message.as_deref().filter(|_| is_refused)
}

/// A RuntimeClass that runs pods by process isolation on amd64 Windows nodes with these labels.
pub fn windows_class(name: &str, labels: &Value) -> Value {
    let mut selector = json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"});
    selector.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "handler": "runhcs-wcow-process", "scheduling": {"nodeSelector": selector}})
}

/// `scheduling` of a class as JSON.
pub fn scheduling(class: &RuntimeClass) -> Value {
    json!(class.scheduling)
}

/// `status.taints` with these taints, with which nodes may register.
pub fn taints_at_registration<'a>(taints: impl IntoIterator<Item = &'a str>) -> Value {
    taints.into_iter().map(|taint| json!({"taint": taint, "atRegistration": true})).collect()
}

/// The taints in `status.taints`.
pub fn recorded_in(status: &WindowsPoolStatus) -> Vec<String> {
    status.taints.iter().map(|listed| listed.taint.clone()).collect()
}
