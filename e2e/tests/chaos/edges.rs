//! An API server that refuses one kind of write for ever, or answers it late.

use std::time::Duration;

use serde_json::json;
use winpool_e2e::{Fault, Refusal};

use crate::stage::{ALL, Stage, WINDOWS_2022, hits};

#[tokio::test]
async fn a_status_that_always_conflicts_is_not_written_again_and_again() {
    const WRITES: usize = 8;
    let stage = Stage::new().await;
    let harness = &stage.harness;
    stage.join("win", WINDOWS_2022).await;
    let operator = stage.operator();
    harness.apply_until_ready(json!({})).await;
    stage.proxy.inject(hits("patch", "windowspools/status", ALL, Fault::Refuse(Refusal::Conflict)));
    stage.join("second", WINDOWS_2022).await;
    stage.proxy.faulted(WRITES, Duration::from_mins(2)).await.unwrap();
    let times: Vec<_> = stage.proxy.passed().iter().filter(|p| p.fault.is_some()).map(|p| p.request.received).collect();
    let took = times[WRITES - 1] - times[0];
    assert!(took > Duration::from_secs(3), "{WRITES} writes in {took:?}");
    stage.proxy.calm();
    harness.nodes_until("default", "counts both nodes", |nodes| nodes.converged == 2).await;
    operator.stop().await;
}
