//! A request that fails or hangs delays only the nodes and classes that need it, and status reports it.

use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use winpool_core::api::{ClassState, WindowsPool};
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::objects::{BUILD, condition, has_taint, label, problems, taint};
use winpool_e2e::machine::wait::LIMIT;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};

use crate::stage::{ALL, Stage, WINDOWS_2019, WINDOWS_2022, hits};

const INTERNAL: Fault = Fault::Refuse(InjectedError::Internal);
const DEDICATED: &str = "example.com/os=windows:NoSchedule";

/// True if the pool counts this many nodes, is not Ready, and names the class among its problems.
fn lacks(class: &'static str, nodes: i64) -> impl Fn(&WindowsPool) -> bool {
    move |pool| {
        let counts = pool.status.as_ref().is_some_and(|status| status.nodes.selected == nodes);
        counts && condition(pool, "Ready") == Some("False") && problems(pool).contains(class)
    }
}

fn states(pool: &WindowsPool) -> Vec<(&str, ClassState)> {
    let classes = pool.status.iter().flat_map(|status| &status.runtime_classes);
    classes.map(|class| (class.name.as_str(), class.state)).collect()
}

/// Joins a node whose class cannot be created, and a node that does not need that class. `restart`: they join while no
/// operator runs.
async fn only_the_node_of_that_class_waits(restart: bool) {
    let stage = Stage::new().await;
    let harness = &stage.harness;
    stage.join("first", WINDOWS_2022).await;
    let mut running = Some(stage.operator());
    harness.apply_until_ready(json!({})).await;
    if let Some(operator) = running.take_if(|_| restart) {
        operator.stop().await;
    }
    stage.proxy.inject(hits("create", "runtimeclasses", ALL, INTERNAL));
    stage.join("waiting", WINDOWS_2019).await;
    stage.join("second", WINDOWS_2022).await;
    let _operator = running.unwrap_or_else(|| stage.operator());
    harness.is_tainted("second").await;
    let pool = harness.pool_until("default", "names the class that it lacks", lacks("windows-2019", 3)).await;
    let expected = [("windows-2019", ClassState::Pending), ("windows-2022", ClassState::Applied)];
    assert_eq!(states(&pool), expected);
    assert!(!has_taint(&harness.node("waiting").await, OS_WINDOWS), "it waits for its class");
    stage.proxy.calm();
    harness.is_tainted("waiting").await;
    harness.ready("default").await;
}

#[tokio::test]
async fn a_class_that_cannot_be_created_delays_only_its_own_nodes() {
    Box::pin(only_the_node_of_that_class_waits(false)).await;
}

#[tokio::test]
async fn after_a_restart_a_failing_class_delays_only_its_own_nodes() {
    Box::pin(only_the_node_of_that_class_waits(true)).await;
}

#[tokio::test]
async fn a_class_that_cannot_be_changed_delays_only_the_new_taint() {
    let stage = Stage::new().await;
    let harness = &stage.harness;
    stage.join("first", WINDOWS_2022).await;
    let _operator = stage.operator();
    harness.apply_until_ready(json!({})).await;
    stage.proxy.inject(hits("patch", "runtimeclasses", ALL, INTERNAL));
    harness.apply_pool(json!({"taints": [taint(OS_WINDOWS), taint(DEDICATED)]})).await;
    stage.join("second", WINDOWS_2022).await;
    harness.pool_until("default", "names the class that it cannot change", lacks("windows-2022", 2)).await;
    harness.is_tainted("second").await;
    for name in ["first", "second"] {
        assert!(!has_taint(&harness.node(name).await, DEDICATED), "{name}");
    }
    stage.proxy.calm();
    for name in ["first", "second"] {
        harness.node_until(name, "has both taints", |node| has_taint(node, DEDICATED)).await;
    }
    harness.ready("default").await;
}

#[tokio::test]
async fn nodes_get_their_labels_while_daemon_sets_cannot_be_listed() {
    let stage = Stage::new().await;
    let harness = &stage.harness;
    stage.join("win", WINDOWS_2022).await;
    harness.edit_node("win", json!({"metadata": {"labels": {BUILD: null}}})).await;
    stage.proxy.inject(hits("list", "daemonsets", ALL, INTERNAL));
    let _operator = stage.operator();
    harness.apply_pool(json!({})).await;
    let node = harness.node_until("win", "has its label", |node| label(node, BUILD).is_some()).await;
    assert!(!has_taint(&node, OS_WINDOWS));
    let not_ready = |pool: &WindowsPool| matches!(condition(pool, "Ready"), Some("False" | "Unknown"));
    harness.pool_until("default", "is not Ready", not_ready).await;
    stage.proxy.calm();
    harness.is_tainted("win").await;
    harness.ready("default").await;
}

#[tokio::test]
async fn pools_whose_class_writes_hang_do_not_delay_another_pool() {
    const SLOW: usize = 6;
    let stage = Stage::new().await;
    let harness = &stage.harness;
    stage.join("win", WINDOWS_2022).await;
    let operator = stage.operator();
    let slow: Vec<String> = (0..SLOW).map(|number| format!("slow-{number}")).collect();
    for name in &slow {
        let declared = json!([{"name": name, "version": "2022"}]);
        harness.apply_pool_named(name, json!({"nodeSelector": {"none": "such"}, "runtimeClasses": declared})).await;
        let is_applied = |pool: &WindowsPool| condition(pool, "RuntimeClassesApplied") == Some("True");
        harness.pool_until(name, "has its class", is_applied).await;
    }
    harness.apply_until_ready(json!({})).await;

    stage.proxy.inject(|passing| {
        let hangs = passing.asked.verb == "patch" && passing.path.contains("/runtimeclasses/slow-");
        hangs.then_some(Fault::Swallow)
    });
    let change = Patch::Merge(json!({"scheduling": {"nodeSelector": {BUILD: "10.0.17763"}}}));
    for name in &slow {
        harness.classes().patch(name, &PatchParams::default(), &change).await.unwrap();
    }
    stage.proxy.faulted(1, LIMIT).await.unwrap();
    let three_changes = async {
        for policy in ["TaintOnly", "TaintAndTolerate", "TaintOnly"] {
            harness.apply_until_ready(json!({"taintPolicy": policy})).await;
        }
    };
    tokio::time::timeout(LIMIT, three_changes).await.expect("the other pool is brought up to date in time");
    stage.proxy.calm();
    for name in &slow {
        let is_restored = |class: &RuntimeClass| {
            json!(class.scheduling)["nodeSelector"][BUILD] == "10.0.20348" && class.name_any() == *name
        };
        harness.class_until(name, "is restored", is_restored).await;
    }
    tokio::time::timeout(Duration::from_secs(20), operator.stop()).await.unwrap();
}
