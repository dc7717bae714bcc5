//! Finds the writer that reverts winpool's changes of a node, from the node's managedFields.

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
};
use kube::{Api, core::PartialObjectMeta};
use serde_json::Value;
use winpool_client::error::in_time;
use winpool_core::api::names;

/// A label of nodes from a known provisioner, and the place where their taints and labels are configured.
const REMEDIES: [(&str, &str); 3] = [
    ("kubernetes.azure.com/agentpool", "set the same taint and label on the AKS node pool, whose API keeps its own"),
    (
        "node.openshift.io/os_id",
        "set the same taint in the kubelet configuration of the Windows Machine Config Operator",
    ),
    ("karpenter.sh/nodepool", "set the same taint in the Karpenter NodePool"),
];

/// Describes the other writer: the field manager that last wrote taints or labels, if a fresh read shows one, and the
/// setting to change if the node's provisioner is known.
pub async fn find(nodes: &Api<PartialObjectMeta<Node>>, name: &str) -> String {
    let Ok(node) = in_time(nodes.get_metadata(name)).await else { return describe(None, &ObjectMeta::default()) };
    describe(last_manager(&node.metadata), &node.metadata)
}

fn describe(manager: Option<&str>, node: &ObjectMeta) -> String {
    let labels = node.labels.as_ref();
    let known = REMEDIES.iter().find(|(label, _)| labels.is_some_and(|labels| labels.contains_key(*label)));
    let remedy = known.map_or(
        "find out which controller writes its taints and labels, or set winpool.dev/ignore on it",
        |(_, remedy)| remedy,
    );
    let cause = match manager {
        Some(manager) => format!("another writer keeps reverting winpool's changes (field manager: {manager})"),
        None => "another writer keeps reverting winpool's changes, or the kubelet keeps reporting another version"
            .to_owned(),
    };
    format!("{cause}; {remedy}")
}

/// The manager other than winpool with the newest write of taints or labels. Removing the last item of a field leaves
/// no manager in managedFields.
fn last_manager(node: &ObjectMeta) -> Option<&str> {
    let entries = node.managed_fields.iter().flatten();
    let others = entries.filter(|entry| entry.manager.as_deref() != Some(names::FIELD_MANAGER));
    let writers = others.filter(|entry| writes_labels_or_taints(entry));
    writers.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.as_deref()
}

fn writes_labels_or_taints(entry: &ManagedFieldsEntry) -> bool {
    let Some(fields) = &entry.fields_v1 else { return false };
    let has =
        |path: &[&str]| path.iter().try_fold(&fields.0, |value, key| value.get(key)).is_some_and(Value::is_object);
    let label = format!("f:{}", names::WINDOWS_BUILD);
    has(&["f:spec", "f:taints"]) || has(&["f:metadata", "f:labels", &label])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: &Value, managers: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"labels": labels, "managedFields": managers})).unwrap()
    }

    #[test]
    fn the_newest_writer_of_taints_or_labels_is_named_and_winpool_never() {
        let entry = |manager: &str, time: &str, fields: &Value| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields});
        let taints = json!({"f:spec": {"f:taints": {}}});
        let status = json!({"f:status": {"f:conditions": {}}});
        let label = json!({"f:metadata": {"f:labels": {"f:node.kubernetes.io/windows-build": {}}}});
        let found = node(
            &json!({}),
            &json!([
                entry("old", "2026-01-01T00:00:00Z", &taints),
                entry("new", "2026-01-02T00:00:00Z", &label),
                entry("kubelet", "2026-01-04T00:00:00Z", &status),
                entry("winpool", "2026-01-03T00:00:00Z", &taints),
            ]),
        );
        assert_eq!(last_manager(&found), Some("new"));
        assert_eq!(last_manager(&ObjectMeta::default()), None);
    }

    #[test]
    fn known_provisioners_have_a_remedy() {
        for (label, words) in [
            ("kubernetes.azure.com/agentpool", "AKS node pool"),
            ("node.openshift.io/os_id", "Windows Machine Config Operator"),
            ("karpenter.sh/nodepool", "Karpenter NodePool"),
            ("other", "winpool.dev/ignore"),
        ] {
            let node = node(&json!({label: "x"}), &json!([]));
            let text = describe(last_manager(&node), &node);
            assert!(text.contains(words) && text.contains("the kubelet keeps reporting"), "{text}");
        }
    }
}
