//! Wrong clocks. winpool measures time with its monotonic clock. Timestamps that others wrote must not matter.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use winpool_core::election::LEASE_DURATION;
use winpool_e2e::harness::objects::{condition, has_taint};
use winpool_e2e::harness::{OS_WINDOWS, merge_status};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::lend;
use winpool_operator::election::Elector;

use crate::stage::{Stage, WINDOWS_2022};

const HOUR: Duration = Duration::from_hours(1);

/// A holder with this clock renews the Lease this many times and then stops. Until then the candidate must not lead.
/// Returns the time from the last renewal until it leads.
async fn outlast(client: Client, namespace: &str, clock: impl Fn() -> Timestamp, renewals: usize) -> Duration {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let held = |version: Option<String>| Lease {
        metadata: serde_json::from_value(json!({"name": "winpool", "resourceVersion": version})).unwrap(),
        spec: Some(LeaseSpec {
            holder_identity: Some("wrong".to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(clock())),
            ..LeaseSpec::default()
        }),
    };
    let mut last = Instant::now();
    let mut lease = leases.create(&PostParams::default(), &held(None)).await.unwrap();
    let (elector, resign) = (Elector::new(client, namespace), CancellationToken::new());
    let leadership = elector.leadership();
    let candidate = tokio::spawn(elector.run(resign.clone(), CancellationToken::new()));
    for _ in 0..renewals {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(leadership.term(), None, "the Lease is renewed");
        last = Instant::now();
        lease =
            leases.replace("winpool", &PostParams::default(), &held(lease.metadata.resource_version)).await.unwrap();
    }
    wait_for("the candidate leads", LIMIT, async || Ok(leadership.term())).await.unwrap();
    let waited = last.elapsed();
    resign.cancel();
    candidate.await.unwrap();
    waited
}

#[tokio::test]
async fn a_lease_expires_by_the_candidates_clock_whatever_time_its_holder_wrote() {
    let server = lend().await.unwrap();
    let (ahead, behind) = tokio::join!(
        outlast(server.client(), "default", || Timestamp::now() + HOUR, 0),
        // By the written times the Lease would have expired.
        outlast(server.client(), "kube-public", || Timestamp::now() - HOUR, 9),
    );
    println!("holder an hour ahead: taken over after {ahead:.1?}; an hour behind: {behind:.1?} after its last renewal");
    for waited in [ahead, behind] {
        assert!(waited >= LEASE_DURATION && waited < LEASE_DURATION + Duration::from_secs(10), "{waited:?}");
    }
}

#[tokio::test]
async fn timestamps_of_other_writers_change_nothing() {
    let stage = Stage::new().await;
    let name = "win";
    stage.harness.join_node(SimulatedNode::windows(WINDOWS_2022).name(name)).await;
    let far = ["1970-01-01T00:00:00Z", "2999-12-31T23:59:59Z"];
    let theirs: Vec<_> = far
        .iter()
        .enumerate()
        .map(|(number, time)| json!({"key": format!("example.com/{number}"), "effect": "PreferNoSchedule", "timeAdded": time}))
        .collect();
    stage.harness.edit_node(name, json!({"spec": {"taints": theirs}})).await;
    let operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    let node = stage.harness.is_marked(name).await;
    assert!(has_taint(&node, OS_WINDOWS));
    let kept = json!(node.spec.unwrap().taints);
    for taint in &theirs {
        assert!(kept.as_array().unwrap().contains(taint), "{taint} in {kept}");
    }
    operator.stop().await;

    // An operator whose clock was wrong has written the status.
    for (time, count) in far.into_iter().zip([2, 3]) {
        let pool = stage.harness.pools().get("default").await.unwrap();
        let mut status = json!(pool.status);
        for condition in status["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = json!(time);
        }
        merge_status(&stage.harness.pools(), "default", json!({"status": {"conditions": status["conditions"]}})).await;
        let operator = stage.operator();
        stage.join(&format!("after-{}", &time[..4]), WINDOWS_2022).await;
        let pool = stage
            .harness
            .nodes_until("default", "has the node too", |nodes| [nodes.selected, nodes.converged] == [count; 2])
            .await;
        assert_eq!(condition(&pool, "Ready"), Some("True"));
        operator.stop().await;
    }
}
