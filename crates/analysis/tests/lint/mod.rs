//! The rules for workloads, one by one, and all of them on anything.

mod admission;
mod blockers;
mod documentation;
mod example_remedies;
mod examples;
mod gmsa;
mod images;
mod linux;
mod objects;
mod placement;
mod related;
mod remedies;
mod robustness;
mod rules;
mod target;
mod wellformed;

use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::{Value, json};
use winpool_analysis::finding::Finding;
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::{Facts, check, rule};
use winpool_analysis::view::{Known, SeenNode, View};
use winpool_analysis::workload::WorkloadManifest;
use winpool_core::api::{Taint, WindowsPool};
use winpool_core::node::{NodeFields, NodeObject, TaintList};

/// The first example in the comment of a rule. The rule may need more than that to be broken.
fn example(id: &str) -> Value {
    let rule = rule(id).unwrap();
    let (label, _) = rule.examples().next().unwrap();
    examples::of(rule, label).remove(0)
}

/// A workload of this kind with this merged into its pod spec. Containers that say nothing of resources get some.
fn workload(kind: &str, spec: &Value) -> Value {
    let mut pod = json!({"containers": [{"name": "c", "image": "example.com/app:1.0"}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    for list in ["containers", "initContainers"] {
        for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let container = container.as_object_mut().unwrap();
            container.entry("resources").or_insert_with(|| json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        }
    }
    let metadata = json!({"name": "web", "namespace": "shop"});
    match kind {
        "Pod" => json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": pod}),
        "Job" => {
            json!({"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": pod}}})
        }
        _ => json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": pod}}}),
    }
}

fn findings(object: &Value, facts: &Facts) -> Vec<Finding> {
    check(&WorkloadManifest::read(object).unwrap().unwrap(), facts)
}

/// The names of the rules that a workload breaks.
fn broken(kind: &str, spec: &Value, facts: &Facts) -> Vec<String> {
    findings(&workload(kind, spec), facts).into_iter().map(|finding| finding.rule).collect()
}

/// A Windows node with these taints and further labels.
fn node(build: &str, taints: &[&str], labels: &[(&str, &str)]) -> SeenNode {
    let taints = taints.iter().map(|taint| json!(taint.parse::<Taint>().unwrap())).collect();
    let own = [("kubernetes.io/os", "windows"), ("node.kubernetes.io/windows-build", build)];
    let labels = own.iter().chain(labels).copied().collect();
    seen(NodeFields { labels, taints: Arc::new(TaintList::new(Some(taints))), ..NodeFields::default() })
}

fn seen(node: NodeFields) -> SeenNode {
    SeenNode { object: NodeObject { node, ..NodeObject::default() }, ..SeenNode::default() }
}

/// The node with this container runtime.
fn running(runtime: Option<&str>, mut node: SeenNode) -> SeenNode {
    node.object.node.container_runtime = runtime.map(Into::into);
    node
}

/// A view of these nodes.
fn view(nodes: impl IntoIterator<Item = SeenNode>) -> View {
    View { nodes: Known::Partial(nodes.into_iter().collect()), ..View::default() }
}

fn class_object(class: &Value) -> Arc<RuntimeClass> {
    Arc::new(serde_json::from_value(class.clone()).unwrap())
}

/// Manifests of these nodes (build, taints), pools and classes.
fn manifests(nodes: &[(&str, &[&str])], pools: &[Value], classes: &[Value]) -> View {
    let mut view = view(nodes.iter().map(|(build, taints)| node(build, taints, &[])));
    view.kubernetes = Some(KubernetesVersion { major: 1, minor: 36 });
    for class in classes {
        view.classes.add(class_object(class));
    }
    for spec in pools {
        let pool: WindowsPool = serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": spec})).unwrap();
        view.pools.add((None, pool.into()));
    }
    view
}

/// The facts about a cluster of these nodes (build, taints), pools and classes.
fn cluster(nodes: &[(&str, &[&str])], pools: &[Value], classes: &[Value]) -> Facts {
    Facts::of(&manifests(nodes, pools, classes))
}
