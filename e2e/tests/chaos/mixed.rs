//! All faults at once, while pools and nodes change. The result is the same as without faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{BUILD, condition, has_taint, label};
use winpool_e2e::harness::{OS_WINDOWS, POOL};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError, Schedule};

use crate::stage::{Stage, WINDOWS_2019, WINDOWS_2022, WINDOWS_2025, picture};

const PERCENT: u8 = 30;
/// Includes every pause after a failure.
const PATIENTLY: Duration = Duration::from_mins(3);
/// Longer than anything that winpool delays by a second or two.
const QUIET: Duration = Duration::from_secs(4);
const SEED: &str = "WINPOOL_CHAOS_SEED";

fn given_seed() -> Option<u64> {
    std::env::var(SEED).ok().filter(|seed| !seed.is_empty()).map(|seed| seed.parse().expect("a number"))
}

#[tokio::test]
async fn all_faults_at_once_lead_to_the_same_result_as_none() {
    let expected = without_faults().await;
    with_faults(given_seed().unwrap_or(1), &expected).await;
}

#[tokio::test]
#[ignore = "takes minutes: make chaos-long"]
async fn other_faults_at_once_lead_to_the_same_result_as_none() {
    if given_seed().is_some() {
        return;
    }
    let expected = without_faults().await;
    for seed in 2..=5 {
        with_faults(seed, &expected).await;
    }
}

async fn without_faults() -> Value {
    let stage = Stage::new().await;
    let operator = stage.candidate();
    story(&stage, &AtomicBool::new(false)).await;
    wait_for("the pool is Ready", PATIENTLY, async || {
        let pool = stage.harness.pools().get("default").await?;
        let current = pool.status.as_ref().and_then(|status| status.observed_generation) == pool.metadata.generation;
        Ok((current && condition(&pool, "Ready") == Some("True")).then_some(()))
    })
    .await
    .unwrap();
    stage.is_quiet(QUIET).await;
    let end = picture(&stage.harness.client).await;
    operator.stop().await;
    end
}

async fn with_faults(seed: u64, expected: &Value) {
    println!("all faults at once, seed {seed}; once more with: make chaos SEED={seed}");
    let (stage, schedule) = (Stage::new().await, Schedule::new(seed, PERCENT));
    let deleting = Arc::new(AtomicBool::new(false));
    let at_the_end = Arc::clone(&deleting);
    stage.proxy.inject(move |passing| {
        let fault = schedule.fault(passing.asked, passing.number);
        // For a deletion, a refusal is final.
        let is_final = matches!(fault, Some(Fault::Refuse(InjectedError::Invalid | InjectedError::FailedTest)));
        fault.filter(|_| !(is_final && at_the_end.load(Ordering::Relaxed)))
    });
    let _operator = stage.patient_candidate();
    story(&stage, &deleting).await;
    let injected = stage.injected();
    stage.proxy.calm();
    stage.becomes(expected, &format!("after the faults of seed {seed} all is as without any")).await;
    let (faults, requests): (usize, usize) = (injected.values().sum(), stage.proxy.passed().len());
    println!("seed {seed}: {faults} faults in {requests} requests: {injected:?}");
    stage.is_quiet(QUIET).await;
    assert_eq!(picture(&stage.harness.client).await, *expected, "and stays so");
    assert!(faults >= 20 && injected.len() >= 8, "{injected:?}");
}

impl Stage {
    fn breaks_all_connections(&self) {
        self.proxy.cut();
        self.proxy.mend();
    }

    async fn node_gets(&self, name: &str, what: &str, holds: impl Fn(&Node) -> bool) {
        let (nodes, mut seen) = (self.harness.nodes(), None);
        let what = format!("node {name} {what}");
        let result = wait_for(&what, PATIENTLY, async || {
            let node = nodes.get(name).await?;
            seen = Some(json!({"metadata": node.metadata, "spec": node.spec}));
            Ok(holds(&node).then_some(()))
        });
        result.await.unwrap_or_else(|error| panic!("{error}; last seen: {seen:#?}; faults: {:?}", self.injected()));
    }
}

fn has(taint: &'static str) -> impl Fn(&Node) -> bool {
    move |node| has_taint(node, taint)
}

/// Every step waits for the result of the one before. Before each step all connections break, because long-lived watches
/// would meet few faults.
async fn story(stage: &Stage, deleting: &AtomicBool) {
    let harness = &stage.harness;
    let node = |name: &str, version: &str, team: &str| SimulatedNode::windows(version).name(name).label("team", team);
    harness.join_node(node("win-a", WINDOWS_2019, "a").without_label(BUILD)).await;
    harness.join_node(node("win-b", WINDOWS_2022, "a")).await;
    harness.join_node(node("win-c", WINDOWS_2022, "c")).await;
    for number in 0..8 {
        node(&format!("more-{number}"), WINDOWS_2022, "a").join(&harness.client).await.unwrap();
    }
    let leaves = harness.join_node(node("win-d", WINDOWS_2025, "a")).await;
    harness.apply_pool(json!({})).await;
    for name in ["win-a", "win-b", "win-c", "win-d"] {
        stage.node_gets(name, "is tainted", has(OS_WINDOWS)).await;
    }

    let spec = |handler: &str, selector: Value| {
        json!({
            "taints": [{"key": "example.com/os", "value": "windows", "effect": "NoSchedule"}],
            "retiredTaints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
            "runtimeClasses": [{"name": "extra", "version": "2022", "handler": handler}],
            "nodeSelector": selector,
        })
    };
    stage.breaks_all_connections();
    harness.apply_pool(spec("first", json!({}))).await;
    for name in ["win-a", "win-b", "win-c", "win-d"] {
        let changed = |node: &Node| has("example.com/os=windows:NoSchedule")(node) && !has(OS_WINDOWS)(node);
        stage.node_gets(name, "has the new taint only", changed).await;
    }

    stage.breaks_all_connections();
    harness.apply_pool(spec("second", json!({}))).await;
    let classes = harness.classes();
    let replaced = async || {
        let class = classes.get_opt("extra").await?;
        if class.as_ref().is_some_and(|class| class.handler == "first") {
            classes.delete("extra", &DeleteParams::default()).await?;
        }
        Ok(class.filter(|class| class.handler == "second"))
    };
    wait_for("the class has the second handler", PATIENTLY, replaced).await.unwrap();

    stage.breaks_all_connections();
    let other = json!({"nodeSelector": {"team": "c"}, "runtimeClassNameFormat": "{pool}-{version}"});
    harness.apply_pool_named("other", other).await;
    harness.apply_pool(spec("second", json!({"team": "a"}))).await;
    stage.node_gets("win-c", "is the other pool's", |node| label(node, POOL) == Some("other")).await;

    stage.breaks_all_connections();
    deleting.store(true, Ordering::Relaxed);
    harness.delete_pool("other").await;
    let pools = harness.pools();
    let gone = async || Ok(pools.get_opt("other").await?.is_none().then_some(()));
    wait_for("the other pool is gone", PATIENTLY, gone).await.unwrap();
    deleting.store(false, Ordering::Relaxed);

    stage.breaks_all_connections();
    leaves.leave().await.unwrap();
    harness.join_node(node("win-e", WINDOWS_2025, "a")).await;
    stage.node_gets("win-e", "is tainted", has("example.com/os=windows:NoSchedule")).await;
}
