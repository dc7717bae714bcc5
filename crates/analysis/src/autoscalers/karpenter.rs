//! Reads Karpenter's NodePools and node classes as untyped objects, because each provider has its own node classes.
//!
//! Sources: `pkg/apis/v1/labels.go`, `pkg/scheduling/requirements.go` and `pkg/controllers/provisioning/` of
//! sigs.k8s.io/karpenter 1.14, and the documentation of EC2NodeClass.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::Value;
use winpool_core::api::quantity::amount;
use winpool_core::api::{Taint, names};
use winpool_core::windows::builds;

use super::template::{Requirement, Template, current};

pub const REQUIREMENTS: &str = "spec.template.spec.requirements";
const LABELS: &str = "spec.template.metadata.labels";

/// Labels with which Karpenter chooses among instance types, so that a NodePool need not set them.
const WELL_KNOWN: [&str; 8] = [
    names::OS,
    names::ARCH,
    names::WINDOWS_BUILD,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
];
/// Prefixes of the labels that providers add.
const OF_PROVIDERS: [&str; 4] =
    ["karpenter.k8s.aws/", "karpenter.azure.com/", "karpenter.kwok.sh/", "topology.k8s.aws/"];

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodePool {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    weight: i64,
    replicas: Option<i64>,
    limits: BTreeMap<String, Value>,
    template: NodeTemplate,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeTemplate {
    metadata: Metadata,
    spec: NodeSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeSpec {
    node_class_ref: NodeClassRef,
    requirements: Vec<Requirement>,
    taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeClassRef {
    group: String,
    kind: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
    message: String,
}

/// Returns the templates of the NodePools among these objects.
pub(super) fn templates(objects: &[Value]) -> Vec<Template> {
    let pools = objects.iter().filter(|object| is(object, "karpenter.sh", "NodePool"));
    pools.map(|pool| template(pool, objects)).collect()
}

fn is(object: &Value, group: &str, kind: &str) -> bool {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    text("kind") == kind && text("apiVersion").split_once('/').is_some_and(|(of_object, _)| of_object == group)
}

fn template(object: &Value, objects: &[Value]) -> Template {
    let (pool, unreadable) = match NodePool::deserialize(object) {
        Ok(pool) => (pool, None),
        Err(error) => {
            let metadata = object.get("metadata").map(Metadata::deserialize).and_then(Result::ok).unwrap_or_default();
            (NodePool { metadata, ..NodePool::default() }, Some(format!("it cannot be read: {error}")))
        }
    };
    let NodeTemplate { metadata, spec } = pool.spec.template;
    let mut requirements = Vec::new();
    requirements.extend(spec.requirements.into_iter().map(|listed| Requirement {
        key: current(&listed.key).to_owned(),
        field: REQUIREMENTS.to_owned(),
        ..listed
    }));
    requirements.extend(metadata.labels.iter().map(|(key, value)| Requirement::is(current(key), value, LABELS)));
    requirements.push(Requirement::is("karpenter.sh/nodepool", &pool.metadata.name, "metadata.name"));
    let class = &spec.node_class_ref;
    let label = format!("{}/{}", class.group, class.kind.to_lowercase());
    requirements.push(Requirement::is(&label, &class.name, "spec.template.spec.nodeClassRef"));
    let mut stopped: Vec<String> = unreadable.into_iter().collect();
    stopped.extend(stops(&pool.metadata, pool.spec.replicas, &pool.spec.limits, &pool.status));
    if let Some(kind) = NODE_CLASSES.iter().find(|kind| kind.group == class.group) {
        match kind.requirements(class, objects) {
            Ok(of_class) => requirements.extend(of_class),
            Err(why) => stopped.push(why),
        }
    }
    Template {
        name: format!("NodePool {}", pool.metadata.name),
        requirements,
        label_field: LABELS,
        taints: spec.taints,
        taint_field: "spec.template.spec.taints",
        stopped,
        weight: pool.spec.weight,
        implied: (&WELL_KNOWN, &OF_PROVIDERS),
    }
}

/// Returns the reasons why a NodePool creates no nodes for any pod.
fn stops(metadata: &Metadata, replicas: Option<i64>, limits: &BTreeMap<String, Value>, status: &Status) -> Vec<String> {
    let mut stops = Vec::new();
    if metadata.deletion_timestamp.is_some() {
        stops.push("metadata.deletionTimestamp: it is being deleted".to_owned());
    }
    if replicas.is_some() {
        stops.push("spec.replicas: a static NodePool creates no nodes for pending pods".to_owned());
    }
    let is_zero = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        amount(&Quantity(text)) == Some(0)
    };
    stops.extend(limits.iter().filter(|(_, value)| is_zero(value)).map(|(name, _)| format!("spec.limits.{name} is 0")));
    let not_ready =
        status.conditions.iter().find(|condition| condition.r#type == "Ready" && condition.status == "False");
    stops.extend(not_ready.map(|condition| format!("status: it is not Ready: {}", condition.message)));
    stops
}

/// A kind of node class whose image tells the system of its nodes.
struct NodeClassKind {
    group: &'static str,
    kind: &'static str,
    /// The fields that name the image; the first that is set counts.
    images: &'static [&'static str],
}

/// The image family of an `AKSNodeClass` may be of Windows since Azure/karpenter-provider-azure#1726.
const NODE_CLASSES: [NodeClassKind; 2] = [
    NodeClassKind {
        group: "karpenter.k8s.aws",
        kind: "EC2NodeClass",
        images: &["/spec/amiFamily", "/spec/amiSelectorTerms/0/alias"],
    },
    NodeClassKind { group: "karpenter.azure.com", kind: "AKSNodeClass", images: &["/spec/imageFamily"] },
];

impl NodeClassKind {
    /// Returns the requirements that follow from the node class; none if these objects contain no node classes.
    fn requirements(&self, class: &NodeClassRef, objects: &[Value]) -> Result<Vec<Requirement>, String> {
        let field = format!("{} {}", self.kind, class.name);
        let mut classes = objects.iter().filter(|object| is(object, self.group, self.kind)).peekable();
        if classes.peek().is_none() {
            return Ok(Vec::new());
        }
        let named = |object: &&Value| object.pointer("/metadata/name").and_then(Value::as_str) == Some(&class.name);
        let object =
            classes.find(named).ok_or_else(|| format!("spec.template.spec.nodeClassRef: there is no {field}"))?;
        let image = self.images.iter().find_map(|field| object.pointer(field).and_then(Value::as_str));
        let family = image.unwrap_or_default().to_lowercase();
        let family = family.split('@').next().unwrap_or_default();
        Ok(match family.strip_prefix("windows") {
            Some(version) => {
                let build = builds::by_version(version).map(|product| product.build.to_string());
                let build = build.map(|build| Requirement::is(names::WINDOWS_BUILD, &build, &field));
                [Requirement::is(names::OS, names::WINDOWS, &field)].into_iter().chain(build).collect()
            }
            // A custom image: Karpenter treats it as Linux unless the NodePool specifies the system.
            None if family.is_empty() || family == "custom" => Vec::new(),
            None => vec![Requirement::is(names::OS, "linux", &field)],
        })
    }
}
