//! The cost of the policies: far below the limits of CEL with the largest pool, and milliseconds for each request.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use winpool_core::api::Taint;
use winpool_e2e::harness::objects::{label, taints, taints_at_registration};
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::manifests;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{admitted, admitted_until, assert_no_panic, class_status, install, pod, pods, pool};

/// A name of the greatest length: a prefix of 253 characters and a name of 63.
fn key(number: usize) -> String {
    format!("{}/{}{number:03}", "p".repeat(253), "n".repeat(60))
}

fn text(number: usize) -> String {
    format!("{}{number:03}", "v".repeat(60))
}

fn taint(number: usize) -> Taint {
    Taint::new(&format!("{}{number:03}/os", "p".repeat(250)), &format!("win{}", &text(number)[3..]), "NoSchedule")
}

/// A pool in which everything is as large as the schema allows.
fn largest_pool() -> (Value, Value) {
    let taints: Vec<Taint> = (0..16).map(taint).collect();
    let retired: Vec<Taint> = (100..116).map(taint).collect();
    let selector: serde_json::Map<String, Value> = (0..32).map(|n| (key(n), json!(text(n)))).collect();
    let declared: Vec<Value> = (0..32)
        .map(|n| json!({"name": format!("{}{n:03}", "c".repeat(60)), "version": "2022", "nodeSelector": selector}))
        .collect();
    let classes: Vec<Value> = (0..64)
        .map(|n| {
            let name = format!("{}{n:03}", "c".repeat(60));
            json!({"name": name, "build": "10.0.20348", "isolation": "Process", "handler": text(0), "state": "Applied", "nodes": 1})
        })
        .collect();
    let ever: Vec<String> = taints.iter().chain(&retired).map(ToString::to_string).collect();
    let builds: Vec<Value> =
        (0..32).map(|n| json!({"build": format!("10.0.{n}"), "nodes": 1, "runtimeClass": text(n)})).collect();
    let last = format!("{}{:03}", "c".repeat(60), 63);
    let spec = json!({
        "taints": taints, "retiredTaints": retired, "nodeSelector": selector, "runtimeClasses": declared,
        "podDefaults": {"runtimeClassName": last, "fromImageTags": true},
    });
    (
        spec,
        json!({"taints": taints_at_registration(ever.iter().map(String::as_str)), "runtimeClasses": classes, "builds": builds}),
    )
}

/// The policies still work for pods ten times larger than real ones. Over the cost limit of CEL they would do nothing.
#[tokio::test]
async fn the_largest_pool_with_huge_nodes_and_pods_is_far_from_the_limits() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let (spec, status) = largest_pool();
    pool(&harness, "default", spec.clone(), status).await;
    for component in ["born-tainted", "assign-class", "tolerate-windows", "linux-by-default"] {
        install(&harness.client, component).await;
    }
    let class = spec["podDefaults"]["runtimeClassName"].clone();
    let _: RuntimeClass = harness.create(json!({"metadata": {"name": class}, "handler": "h"})).await;
    let mut node = SimulatedNode::server_2022("win");
    for (key, value) in spec["nodeSelector"].as_object().unwrap() {
        node = node.label(key, value.as_str().unwrap());
    }
    for number in 200..1200 {
        node = node.taint(&format!("{}{number:04}", "t".repeat(59)), &text(number % 1000), "NoSchedule");
    }
    let tainted = |node: &Node| taints(node).len() == 1000 + 16 + 1 && label(node, POOL) == Some("default");
    admitted_until(&harness.nodes(), &json!(node.node()), "a node with 1000 taints gets 16 more", tainted).await;

    let tolerations: Vec<Value> = (0..500).map(|n| json!({"key": format!("t{n}"), "operator": "Exists"})).collect();
    let containers: Vec<Value> = (0..100)
        .map(|n| json!({"name": format!("c{n}"), "image": format!("{}:{}", "i".repeat(200), "t".repeat(120))}))
        .collect();
    let huge = pod(&json!({"os": {"name": "windows"}, "tolerations": tolerations, "containers": containers}));
    let tolerating = |pod: &Pod| {
        let spec = pod.spec.as_ref().unwrap();
        let added =
            spec.tolerations.iter().flatten().filter(|t| t.key.as_ref().is_some_and(|key| key.starts_with("ppp")));
        added.count() == 32 && json!(spec.runtime_class_name) == class
    };
    let default = pods(&harness.client, "default");
    admitted_until(
        &default,
        &huge,
        "a pod with 500 tolerations and 100 containers gets a class and 32 more",
        tolerating,
    )
    .await;
    let silent = pod(&json!({"tolerations": tolerations, "containers": containers}));
    let moved = |pod: &Pod| json!(pod)["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux";
    admitted_until(&default, &silent, "it gets its selector", moved).await;
    assert_no_panic(&harness.server);
}

/// The median times of dry-run creations with and without policies, in turns, so that other load on the machine slows
/// down both.
async fn medians<K>(with: (&Api<K>, &Value), without: (&Api<K>, &Value)) -> [Duration; 2]
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..600 {
        for (times, (api, object)) in times.iter_mut().zip([with, without]) {
            let started = Instant::now();
            admitted(api, object).await.unwrap();
            // The first ones are slower.
            if round >= 100 {
                times.push(started.elapsed());
            }
        }
    }
    times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    })
}

/// Installs a component whose policies leave out the objects in `kube-system`.
async fn install_without_kube_system(client: &Client, component: &str) {
    let others = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]});
    let mut objects = manifests::component(component).unwrap();
    for policy in objects.iter_mut().filter(|object| object.data["spec"]["matchConstraints"].is_object()) {
        policy.data["spec"]["matchConstraints"]["namespaceSelector"] = json!({"matchExpressions": [others]});
    }
    manifests::apply(client, &objects).await.unwrap();
}

fn tell(what: &str, [with, without]: [Duration; 2]) {
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!("{what}: {with:.1?} with, {without:.1?} without, {ratio:.2} times");
}

/// `cargo test -p winpool-e2e --test operator policies::cost -- --ignored --nocapture`
#[tokio::test]
#[ignore = "a measurement, not a test: run it alone"]
async fn measure_what_each_policy_adds_to_a_create() {
    needs!(MUTATING_ADMISSION_POLICY);
    let windows = pod(&json!({"os": {"name": "windows"}}));
    let silent = pod(&json!({}));
    for component in ["born-tainted", "assign-class", "tolerate-windows", "linux-by-default"] {
        let harness = Harness::new().await;
        let class = class_status("windows-2022", "10.0.20348", "Applied");
        let status = json!({"taints": taints_at_registration(["os=windows:NoSchedule"]), "runtimeClasses": [class]});
        pool(&harness, "default", json!({"podDefaults": {"runtimeClassName": "windows-2022"}}), status).await;
        let _: RuntimeClass = harness.create(json!({"metadata": {"name": "windows-2022"}, "handler": "h"})).await;
        install_without_kube_system(&harness.client, component).await;
        if component == "born-tainted" {
            let nodes = harness.nodes();
            let node = SimulatedNode::server_2022("win");
            let linux = json!(node.clone().label("kubernetes.io/os", "linux").node());
            let node = json!(node.node());
            let tainted = |node: &Node| label(node, POOL).is_some();
            admitted_until(&nodes, &node, "in force", tainted).await;
            tell("born-tainted, Windows node", medians((&nodes, &node), (&nodes, &linux)).await);
            continue;
        }
        let (with, without) = (pods(&harness.client, "default"), pods(&harness.client, "kube-system"));
        let (concerned, mark) = match component {
            "assign-class" => (&windows, "winpool.dev/class-from"),
            "tolerate-windows" => (&windows, "Win1809"),
            _ => (&silent, "linux"),
        };
        let changed = |pod: &Pod| json!(pod).to_string().contains(mark);
        admitted_until(&with, concerned, "in force", changed).await;
        for (what, pod) in [("Windows pod", &windows), ("pod that says nothing", &silent)] {
            tell(&format!("{component}, {what}"), medians((&with, pod), (&without, pod)).await);
        }
    }
}
