//! `winpool plan` predicts exactly what the operator does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool::read::forecast::snapshot;
use winpool::read::view;
use winpool_analysis::explain::forecast::{ForecastOutcome, ForecastSummary, forecast};
use winpool_client::node::ListedNode;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, windows_class};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{APPLIED, Harness, POOL, merge, merge_status};
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::{SimulatedNode, WINDOWS_BUILD};

const NODES: usize = 14;
/// winpool checks a taint that waits for the class of an older pool again after a minute.
const REST: Duration = Duration::from_secs(100);

const TAINTS: [(&str, &str, &str); 7] = [
    ("os", "windows", "NoSchedule"),
    ("os", "Windows", "NoSchedule"),
    ("os", "Win1809", "NoSchedule"),
    ("node.kubernetes.io/os", "windows", "NoSchedule"),
    ("team", "a", "NoSchedule"),
    ("team", "a", "PreferNoSchedule"),
    ("gpu", "", "NoExecute"),
];

fn text((key, value, effect): (&str, &str, &str)) -> String {
    format!("{key}={value}:{effect}")
}

/// A node with any taints, any labels, and any annotation of winpool's, including forged ones.
fn any_node(dice: &mut Dice, index: usize) -> SimulatedNode {
    let kernel =
        dice.pick(&["10.0.17763.6659", "10.0.20348.2655", "10.0.20348.1", "10.0.26100.4061", "10.0.29000.1", "odd"]);
    let mut node = SimulatedNode::windows(kernel).name(&format!("win-{index:02}"));
    node = match dice.roll(5) {
        0 => node.without_label(WINDOWS_BUILD),
        1 => node.label(WINDOWS_BUILD, "10.0.14393"),
        _ => node,
    };
    node = node.container_runtime(dice.pick(&["containerd://1.6.14", "containerd://2.0.4", "docker://Unknown"]));
    for (key, value, effect) in TAINTS {
        if dice.once_in(5)
            && node.node().spec.unwrap().taints.unwrap_or_default().iter().all(|t| t.key != key || t.effect != effect)
        {
            node = node.taint(key, value, effect);
        }
    }
    node = match dice.roll(3) {
        0 => node.label("team", "a"),
        1 => node.label("team", "b"),
        _ => node,
    };
    if dice.once_in(3) {
        let pool = dice.pick(&["a", "b", "rest", "old", "gone"]);
        node = node.label(POOL, pool);
        if !dice.once_in(4) {
            let claimed = [text(TAINTS[dice.roll(TAINTS.len())]), text(TAINTS[dice.roll(TAINTS.len())])];
            node = node.annotation(APPLIED, &json!({"pool": pool, "taints": claimed}).to_string());
        }
        // The node reports Windows all the same. The deletion of the pool `old` would wait for it.
        if dice.once_in(4) && pool != "old" {
            node = node.label("kubernetes.io/os", "linux");
        }
    }
    if dice.once_in(5) {
        node = node.label("runs.winpool.dev/10.0.20348", "true");
    }
    if dice.once_in(8) {
        node = node.annotation("winpool.dev/ignore", dice.pick(&["true", "false"]));
    }
    node
}

fn any_pool(dice: &mut Dice, name: &str) -> Value {
    let taint = |index: usize| {
        let (key, value, effect) = TAINTS[index];
        json!({"key": key, "value": value, "effect": effect})
    };
    let mut spec = json!({
        "taintPolicy": dice.pick(&["TaintAndTolerate", "TaintAndTolerate", "TaintOnly", "Never"]),
        "mode": if name != "rest" && dice.once_in(5) { "DryRun" } else { "Enforce" },
    });
    let wanted = dice.roll(4);
    if wanted < 2 {
        // Only taints that mean Windows have tolerations that winpool may add.
        let other = if spec["taintPolicy"] == "TaintAndTolerate" { 5 } else { 4 + dice.roll(2) };
        spec["taints"] = json!([taint(wanted), taint(other)]);
        spec["retiredTaints"] = json!([taint(2)]);
    } else if dice.once_in(2) {
        spec["retiredTaints"] = json!([taint(1), taint(2)]);
    }
    if name != "rest" {
        spec["nodeSelector"] = json!({"team": name});
        if dice.once_in(2) {
            spec["runtimeClassNameFormat"] = json!("{pool}-{version}");
        }
    }
    if dice.once_in(2) {
        spec["runtimeClasses"] = json!([
            {"name": "able-2022", "version": "2022", "hostMatch": "Compatible"},
            {"name": "windows-2019", "version": "2019", "handler": dice.pick(&["runhcs-wcow-process", "other"])},
        ]);
    }
    spec
}

fn any_class(dice: &mut Dice, name: &str) -> Value {
    let build = dice.pick(&["10.0.17763", "10.0.20348", "10.0.26100"]);
    let mut class = windows_class(name, &json!({BUILD: build}));
    class["handler"] = json!(dice.pick(&["runhcs-wcow-process", "runhcs-wcow-process", "example"]));
    if !dice.once_in(3) {
        let tolerated = [json!({"key": "os", "operator": "Exists"}), json!({"operator": "Exists"})];
        class["scheduling"]["tolerations"] = json!([tolerated[dice.roll(2)]]);
    }
    match dice.roll(5) {
        0 => class["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"}),
        // A policy lets winpool only add to a class that it did not create.
        2 => {
            class["metadata"]["labels"] = json!({POOL: dice.pick(&["a", "rest"])});
            class["scheduling"]["nodeSelector"].as_object_mut().unwrap().remove(BUILD);
        }
        1 => {
            class["metadata"]["labels"] =
                json!({"app.kubernetes.io/managed-by": "winpool", POOL: dice.pick(&["a", "rest", "old", "gone"])});
        }
        _ => {}
    }
    class
}

async fn fill(harness: &Harness, dice: &mut Dice) {
    for index in 0..NODES {
        harness.join_node(any_node(dice, index)).await;
    }
    let canary = SimulatedNode::server_2022("canary").without_label(WINDOWS_BUILD);
    harness.join_node(canary).await;
    for name in ["windows-2019", "windows-2022", "a-2022", "able-2022", "mine"] {
        if dice.once_in(2) {
            harness.create::<RuntimeClass>(any_class(dice, name)).await;
        }
    }
    for index in 0..2 {
        let team = dice.pick(&["a", "b"]);
        let mut spec = json!({"nodeSelector": {"kubernetes.io/os": "windows", "team": team}});
        match dice.roll(4) {
            0 => spec["nodeSelector"]["kubernetes.io/os"] = json!("linux"),
            1 => spec["tolerations"] = json!([{"operator": "Exists"}]),
            _ => {}
        }
        harness.apply(workload("DaemonSet", &format!("agent-{index}"), spec)).await;
    }
    let pools = harness.pools();
    for name in ["old", "b", "a", "rest"] {
        if dice.once_in(4) && name != "rest" {
            continue;
        }
        // What only a pool knows that goes at this moment may be forgotten before or after it is of use: it knows nothing
        // that `rest` does not know.
        let spec = if name == "old" { json!({"nodeSelector": {"team": name}}) } else { any_pool(dice, name) };
        harness.apply_pool_named(name, spec).await;
        if name == "rest" || (name != "old" && dice.once_in(2)) {
            let status = json!({"status": {"taints": [
                {"taint": text(TAINTS[0]), "atRegistration": true},
                {"taint": text(TAINTS[4])},
            ]}});
            merge_status(&pools, name, status).await;
        }
        if name == "old" {
            let finalizer = json!({"metadata": {"finalizers": ["winpool.dev/cleanup"]}});
            merge(&pools, name, finalizer).await;
            pools.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// The fields of a node that winpool can write.
fn face_of_node(node: &winpool_core::node::NodeFields) -> Value {
    let labels: BTreeMap<_, _> = node.labels.with_prefix("").collect();
    json!({"labels": labels, "taints": node.taints.to_json(), "applied": node.applied.as_deref(), "ignore": node.ignore})
}

/// The class without versions and managed fields.
fn face_of_class(class: &RuntimeClass) -> Value {
    let scheduling = class.scheduling.clone().unwrap_or_default();
    json!({
        "handler": class.handler, "overhead": class.overhead, "labels": class.labels(), "annotations": class.annotations(),
        "nodeSelector": scheduling.node_selector.unwrap_or_default(), "tolerations": scheduling.tolerations.unwrap_or_default(),
    })
}

/// The differences between the cluster and the prediction.
async fn differences(harness: &Harness, predicted: &ForecastOutcome) -> Vec<String> {
    let nodes: Api<ListedNode> = Api::all(harness.client.clone());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let actual = nodes
        .items
        .iter()
        .map(|ListedNode { object, .. }| (format!("Node/{}", object.name), face_of_node(&object.node)));
    let classes = harness.classes().list(&ListParams::default()).await.unwrap();
    let actual =
        actual.chain(classes.iter().map(|class| (format!("RuntimeClass/{}", class.name_any()), face_of_class(class))));
    let mut actual: BTreeMap<String, Value> = actual.collect();
    let nodes = predicted.nodes.iter().map(|(name, node)| (format!("Node/{name}"), face_of_node(node)));
    let classes = predicted.classes.iter().map(|(name, class)| (format!("RuntimeClass/{name}"), face_of_class(class)));
    let mut found = Vec::new();
    for (name, predicted) in nodes.chain(classes) {
        match actual.remove(&name) {
            Some(actual) if actual == predicted => {}
            actual => found.push(format!("{name}: predicted {predicted}, found {}", json!(actual))),
        }
    }
    // Nodes that winpool ignores are in no plan.
    found.extend(
        actual
            .into_keys()
            .filter(|name| name.starts_with("RuntimeClass/"))
            .map(|name| format!("{name}: not predicted")),
    );
    found
}

async fn until_as_predicted(harness: &Harness, predicted: &ForecastOutcome, when: &str) {
    let mut seen = Vec::new();
    let result = wait_for("the cluster is as predicted", REST, async || {
        seen = differences(harness, predicted).await;
        Ok(seen.is_empty().then_some(()))
    });
    result.await.unwrap_or_else(|error| panic!("{when}: {error}\n{}", seen.join("\n")));
}

async fn look(harness: &Harness) -> ForecastOutcome {
    forecast(&snapshot(view::decisions(&harness.client).await.unwrap().view)).unwrap()
}

/// Compares the cluster of this seed with the plan for it, and returns the plan's summary.
async fn is_as_planned(seed: u64) -> ForecastSummary {
    let started = Instant::now();
    // The guard refuses some of what pools ask for here.
    let harness = Harness::unguarded().await;
    fill(&harness, &mut Dice::new(seed)).await;
    let predicted = look(&harness).await;

    let operator = harness.operator().await;
    until_as_predicted(&harness, &predicted, &format!("seed {seed}")).await;
    // The repair of a label shows that the operator still runs, and did nothing else.
    harness.edit_node("canary", json!({"metadata": {"labels": {WINDOWS_BUILD: null}}})).await;
    harness.node_until("canary", "has its build", |node| node.labels().contains_key(WINDOWS_BUILD)).await;
    until_as_predicted(&harness, &predicted, &format!("seed {seed}, later")).await;
    let nothing = async || Ok(look(&harness).await.forecast.is_empty().then_some(()));
    wait_for("plan says that nothing is left to do", LIMIT, nothing).await.unwrap();
    let all_deleted = async || {
        let pools = harness.pools().list(&ListParams::default()).await?;
        Ok(pools.iter().all(|pool: &WindowsPool| pool.metadata.deletion_timestamp.is_none()).then_some(()))
    };
    wait_for(&format!("seed {seed}: deleted pools are gone"), LIMIT, all_deleted).await.unwrap();
    operator.stop().await;
    println!("seed {seed}: {:.0?}", started.elapsed());
    predicted.forecast.summary
}

#[tokio::test]
async fn winpool_plan_predicts_what_the_operator_does() {
    let summaries: Vec<ForecastSummary> = stream::iter(1..=8).map(is_as_planned).buffer_unordered(4).collect().await;
    let nodes: usize = summaries.iter().map(|summary| summary.nodes_to_change).sum();
    let classes: usize = summaries.iter().map(|summary| summary.runtime_classes_to_change).sum();
    let pools = summaries.iter().flat_map(|summary| &summary.pools);
    let held = pools.filter(|pool| !pool.held_taints.is_empty()).count();
    println!("{nodes} nodes and {classes} RuntimeClasses written, {held} pools held, all as predicted");
    assert!(nodes > 40 && classes > 16 && held > 1, "{nodes} {classes} {held}");
}
