//! Reads templates for cluster-autoscaler from manifests: tags of eksctl's node groups, and annotations of Cluster API.
//!
//! Sources: `cloudprovider/aws/README.md` and `cloudprovider/clusterapi/README.md` of kubernetes/autoscaler, "Scale from 0".

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use winpool_core::api::{Taint, names};

use crate::placement::HOSTNAME;

use super::template::{Requirement, Template};

const TAG: &str = "k8s.io/cluster-autoscaler/node-template/";
const LABELS: &str = "capacity.cluster-autoscaler.kubernetes.io/labels";
const TAINTS: &str = "capacity.cluster-autoscaler.kubernetes.io/taints";

/// The labels that come from the instance type.
const IMPLIED: [&str; 5] = [
    names::ARCH,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    HOSTNAME,
];

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeGroup {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Value,
    tags: BTreeMap<String, String>,
    #[serde(rename = "propagateASGTags")]
    propagate_tags: bool,
}

pub(super) fn templates(object: &Value) -> Vec<Template> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split('/').next().unwrap_or_default();
    match (group, text("kind")) {
        ("eksctl.io", "ClusterConfig") => ["nodeGroups", "managedNodeGroups"]
            .iter()
            .flat_map(|field| {
                object.get(field).and_then(Value::as_array).into_iter().flatten().map(move |of| (field, of))
            })
            .filter_map(|(field, of)| Some(eksctl(NodeGroup::deserialize(of).ok()?, *field == "managedNodeGroups")))
            .collect(),
        ("cluster.x-k8s.io", kind @ ("MachineDeployment" | "MachineSet" | "MachinePool")) => {
            cluster_api(kind, object).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn eksctl(group: NodeGroup, managed: bool) -> Template {
    let tagged = |part: &'static str| {
        let of_part = move |(key, value): (&String, &String)| {
            Some((key.strip_prefix(TAG)?.strip_prefix(part)?.to_owned(), value.clone()))
        };
        group.tags.iter().filter_map(of_part).collect::<Vec<_>>()
    };
    let (mut labels, mut taints) = (tagged("label/"), Vec::new());
    for (key, value) in tagged("taint/") {
        let (value, effect) = value.split_once(':').unwrap_or((value.as_str(), ""));
        taints.push(Taint::new(&key, value, effect));
    }
    // For a managed group, cluster-autoscaler queries EKS. With `propagateASGTags`, eksctl writes the tags itself.
    if managed || group.propagate_tags {
        labels.extend(group.labels);
        taints.extend(Vec::<Taint>::deserialize(&group.taints).unwrap_or_default());
    }
    template(format!("node group {}", group.name), "tags", &labels, taints)
}

fn cluster_api(kind: &str, object: &Value) -> Option<Template> {
    let annotation = |key: &str| object.pointer("/metadata/annotations")?.get(key)?.as_str();
    let (labels, taints) = (annotation(LABELS), annotation(TAINTS));
    labels.or(taints)?;
    let listed = |list: Option<&str>| -> Vec<String> {
        list.unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    };
    let pair = |text: &str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    let labels: Vec<_> = listed(labels).iter().filter_map(|label| pair(label)).collect();
    let taints = listed(taints).iter().filter_map(|taint| taint.parse().ok()).collect();
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Some(template(format!("{kind} {name}"), "metadata.annotations", &labels, taints))
}

fn template(name: String, field: &'static str, labels: &[(String, String)], taints: Vec<Taint>) -> Template {
    Template {
        name,
        requirements: labels.iter().map(|(key, value)| Requirement::is(key, value, field)).collect(),
        label_field: field,
        taints,
        taint_field: field,
        stopped: Vec::new(),
        weight: 0,
        implied: (&IMPLIED, &[]),
    }
}
