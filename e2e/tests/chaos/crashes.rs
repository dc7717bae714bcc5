//! Kills the operator (SIGKILL) before and after each of its writes. The next one has to reach the state that an operator
//! without a crash reaches.

use std::time::{Duration, Instant};

use futures::FutureExt;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use winpool_e2e::harness::POOL;
use winpool_e2e::harness::objects::BUILD;
use winpool_e2e::machine::wait::LIMIT;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::faults::schedule::Fault;
use winpool_e2e::servers::faults::traffic::Passed;

use crate::stage::{Stage, WINDOWS_2019, WINDOWS_2022, picture};

/// Longer than the operator delays a status.
const QUIET: Duration = Duration::from_millis(1500);
/// Longer than it lets nodes wait for the API server to see a class.
const VERY_QUIET: Duration = Duration::from_secs(7);

#[derive(Clone, Copy, Debug)]
enum Scenario {
    /// Nodes join a pool.
    Join,
    /// A pool with all defaults is created.
    EmptyPool,
    /// From one taint to another, which retires the first.
    TaintChange,
    /// A class gets another handler: its user deletes it, and winpool creates it again.
    HandlerChange,
    /// A pool is deleted, and the next one takes its nodes and its class over.
    HandOver,
    Deletion,
    /// A class is handed over and corrected.
    Adoption,
}

impl Scenario {
    /// Creates the nodes that exist before the operator starts.
    async fn nodes(self, stage: &Stage) {
        let client = &stage.harness.client;
        SimulatedNode::windows(WINDOWS_2019).name("win-a").without_label(BUILD).join(client).await.unwrap();
        if !matches!(self, Self::Join) {
            stage.join("win-b", WINDOWS_2022).await;
        }
    }

    /// Creates the pools that an operator reconciles before the scenario. `None`: no operator runs before.
    async fn pools(self, stage: &Stage) -> Option<&'static [&'static str]> {
        let harness = &stage.harness;
        match self {
            Self::EmptyPool | Self::Adoption => return None,
            Self::Join | Self::Deletion => harness.apply_pool(json!({})).await,
            Self::TaintChange => harness.apply_pool(taints("older/os", None)).await,
            Self::HandlerChange => harness.apply_pool(handler("first")).await,
            Self::HandOver => {
                harness.apply_pool_named("a-older", taints("older/os", None)).await;
                harness.apply_pool_named("b-younger", taints("younger/os", None)).await;
                return Some(&["a-older"]);
            }
        }
        Some(&["default"])
    }

    /// Makes the change that the operator finds when it starts.
    async fn begins(self, stage: &Stage) {
        let harness = &stage.harness;
        match self {
            Self::Join => {
                for name in ["win-b", "win-c"] {
                    stage.join(name, WINDOWS_2022).await;
                }
            }
            Self::EmptyPool => harness.apply_pool(json!({})).await,
            Self::TaintChange => harness.apply_pool(taints("younger/os", Some("older/os"))).await,
            Self::HandlerChange => {
                harness.apply_pool(handler("second")).await;
                harness.classes().delete("extra", &DeleteParams::default()).await.unwrap();
            }
            Self::HandOver => harness.delete_pool("a-older").await,
            Self::Deletion => harness.delete_pool("default").await,
            Self::Adoption => {
                let selector =
                    json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", BUILD: "10.0.20348"});
                let _: RuntimeClass = harness
                    .create(json!({
                        "metadata": {"name": "windows-2022", "labels": {POOL: "default"}}, "handler": "runhcs-wcow-process",
                        "scheduling": {"nodeSelector": selector},
                    }))
                    .await;
                harness.apply_pool(json!({})).await;
            }
        }
    }
}

fn taints(key: &str, retired: Option<&str>) -> Value {
    let taint = |key: &str| json!({"key": key, "value": "windows", "effect": "NoSchedule"});
    json!({"taints": [taint(key)], "retiredTaints": retired.map(|key| vec![taint(key)]).unwrap_or_default()})
}

fn handler(handler: &str) -> Value {
    json!({"runtimeClasses": [{"name": "extra", "version": "2022", "handler": handler}]})
}

/// Prepares the scenario until the operator starts.
async fn set_up(scenario: Scenario) -> Stage {
    let stage = Stage::new().await;
    scenario.nodes(&stage).await;
    if let Some(pools) = scenario.pools(&stage).await {
        let operator = stage.process().await;
        for pool in pools {
            stage.harness.ready(pool).await;
        }
        stage.is_quiet(QUIET).await;
        operator.kill();
    }
    scenario.begins(&stage).await;
    stage
}

async fn survive_every_crash(scenario: Scenario) {
    let started = Instant::now();
    let (expected, writes) = never_killed(scenario).boxed_local().await;
    println!("{scenario:?}: {} writes: {}", writes.len(), writes.join(", "));
    assert!(!writes.is_empty());
    let mut survived = 0;
    for (number, write) in (0..).zip(&writes) {
        for (when, fault) in [("before", Fault::Swallow), ("after", Fault::Mute)] {
            let what = format!("{scenario:?}, killed {when} write {number} ({write}), ends as if it had not been");
            let killed = killed(scenario, number, fault, &expected, &what).boxed_local();
            survived += usize::from(killed.await);
        }
    }
    println!("{scenario:?}: {survived} crashes survived, in {:.0?}", started.elapsed());
    assert!(survived >= writes.len(), "only {survived} crashes: other runs have other writes than the first");
}

/// Returns the state at the end, and the writes that led to it.
async fn never_killed(scenario: Scenario) -> (Value, Vec<String>) {
    let stage = set_up(scenario).await;
    let before = stage.writes().len();
    let operator = stage.process().await;
    stage.is_quiet(VERY_QUIET).await;
    operator.kill();
    let writes = stage.writes().split_off(before);
    (picture(&stage.harness.client).await, writes.iter().map(Passed::summary).collect())
}

/// True if there was such a write. Two writes of status can become one.
async fn killed(scenario: Scenario, number: u64, fault: Fault, expected: &Value, what: &str) -> bool {
    let stage = set_up(scenario).await;
    stage.proxy.inject(move |passing| (passing.write == Some(number)).then_some(fault));
    let operator = stage.process().await;
    let crashed = stage.proxy.faulted(1, LIMIT).await.is_ok();
    operator.kill();
    stage.proxy.calm();
    operator.start_again().unwrap();
    stage.becomes(expected, what).await;
    operator.kill();
    crashed
}

/// Each scenario is a test of its own, so that they can run alone.
macro_rules! survives {
    ($($(#[$ignored:meta])? $test:ident: $scenario:ident;)*) => {
        $(
            #[tokio::test]
            $(#[$ignored])?
            async fn $test() {
                survive_every_crash(Scenario::$scenario).await;
            }
        )*
    };
}

survives! {
    the_setup_of_an_empty_pool_survives_every_crash: EmptyPool;
    #[ignore = "takes minutes: make chaos-long"]
    a_new_handler_of_a_class_survives_every_crash: HandlerChange;
    #[ignore = "takes minutes: make chaos-long"]
    joining_nodes_survive_every_crash: Join;
    #[ignore = "takes minutes: make chaos-long"]
    a_change_of_taints_survives_every_crash: TaintChange;
    #[ignore = "takes minutes: make chaos-long"]
    a_handover_between_pools_survives_every_crash: HandOver;
    #[ignore = "takes minutes: make chaos-long"]
    the_deletion_of_a_pool_survives_every_crash: Deletion;
    #[ignore = "takes minutes: make chaos-long"]
    the_adoption_of_a_class_survives_every_crash: Adoption;
}
