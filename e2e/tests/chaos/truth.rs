//! A request that hangs delays only the pool that sent it.

use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, condition};
use winpool_e2e::machine::wait::LIMIT;
use winpool_e2e::servers::faults::schedule::Fault;

use crate::stage::{Stage, WINDOWS_2022};

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
