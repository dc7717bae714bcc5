//! The API server, etcd or the network is gone for a while, or somebody takes the Lease.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use winpool_core::{
    api::WindowsPool,
    election::{LEASE_DURATION, RENEW_DEADLINE},
};
use winpool_e2e::{
    ApiServer, Etcd, FaultProxy, LIMIT,
    harness::{Harness, NAMESPACE, OS_WINDOWS, POOL, has_taint, label},
    lend_with, wait_for,
};

use crate::stage::{Stage, WINDOWS_2022};

/// Longer than a leader may lead without a renewal, and than any request may take.
const OUTAGE: Duration = Duration::from_secs(12);
/// A Lease that has to run out, and pauses that have grown during an outage.
const PATIENTLY: Duration = Duration::from_mins(2);

impl Stage {
    /// On an API server that is this test's own, to be mistreated.
    async fn on(server: ApiServer) -> Self {
        let harness = Harness::on(server).await;
        let proxy = FaultProxy::start(&harness.server).await.unwrap();
        Self { harness, proxy }
    }

    /// A pool and a node that is right.
    async fn with_a_pool(&self) {
        self.join("before", WINDOWS_2022).await;
        self.harness.apply_pool(json!({})).await;
        self.is_marked_in_the_end("before").await;
        let settled = |pool: &WindowsPool| pool.status.as_ref().is_some_and(|status| status.nodes.converged == 1);
        self.harness.pool_until("default", "has its node", settled).await;
    }

    /// What happens after an outage: somebody joins, and somebody has lost a taint. Both get right, in one request each.
    async fn works_again(&self) {
        let before = self.about("nodes").len();
        let none = json!({"spec": {"taints": null}});
        let nodes = self.harness.nodes();
        let edited = async || Ok(nodes.patch("before", &PatchParams::default(), &Patch::Merge(&none)).await.ok());
        wait_for("the API server takes writes", PATIENTLY, edited).await.unwrap();
        self.join("after", WINDOWS_2022).await;
        let started = Instant::now();
        for name in ["before", "after"] {
            self.is_marked_in_the_end(name).await;
        }
        println!("works again: all is right after {:.1?}", started.elapsed());
        let accepted = self.about("nodes").split_off(before);
        let accepted: Vec<_> = accepted.iter().filter(|request| *request == "patch nodes 200").collect();
        assert_eq!(accepted.len(), 2, "{:?}", self.about("nodes"));
    }

    async fn is_marked_in_the_end(&self, name: &str) {
        let nodes = self.harness.nodes();
        let marked = async || {
            let node = nodes.get(name).await.ok();
            Ok(node.filter(|node| label(node, POOL).is_some() && has_taint(node, OS_WINDOWS)))
        };
        wait_for(&format!("node {name} is right"), PATIENTLY, marked).await.unwrap();
    }
}

#[tokio::test]
async fn an_api_server_that_was_killed_and_comes_back_is_served_again() {
    let stage = Stage::on(lend_with(&[]).await.unwrap()).await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    stage.harness.server.restart().await.unwrap();
    stage.works_again().await;
    operator.stop().await;
}

#[tokio::test]
async fn an_etcd_that_was_killed_and_comes_back_is_served_again() {
    let etcd = Arc::new(Etcd::start().await.unwrap());
    let stage = Stage::on(ApiServer::start(&etcd, "registry").await.unwrap()).await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    etcd.process().kill();
    tokio::time::sleep(OUTAGE).await;
    etcd.restart().await.unwrap();
    stage.works_again().await;
    operator.stop().await;
}

#[tokio::test]
async fn an_etcd_that_stands_still_for_longer_than_a_lease_may_go_unrenewed_does_no_harm() {
    let etcd = Arc::new(Etcd::start().await.unwrap());
    let stage = Stage::on(ApiServer::start(&etcd, "registry").await.unwrap()).await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    etcd.process().pause().unwrap();
    tokio::time::sleep(OUTAGE).await;
    etcd.process().go_on().unwrap();
    stage.works_again().await;
    operator.stop().await;
}

#[tokio::test]
async fn an_api_server_that_stands_still_does_no_harm() {
    let stage = Stage::on(lend_with(&[]).await.unwrap()).await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    stage.harness.server.process().pause().unwrap();
    tokio::time::sleep(OUTAGE).await;
    stage.harness.server.process().go_on().unwrap();
    stage.works_again().await;
    operator.stop().await;
}

#[tokio::test]
async fn what_happened_during_a_partition_is_made_good_when_it_heals() {
    let stage = Stage::new().await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    stage.proxy.cut();
    stage.join("meanwhile", WINDOWS_2022).await;
    stage.harness.edit_node("before", json!({"metadata": {"labels": {POOL: null}}})).await;
    tokio::time::sleep(OUTAGE).await;
    assert!(OUTAGE > RENEW_DEADLINE);
    assert_eq!(label(&stage.harness.node("meanwhile").await, POOL), None);
    stage.proxy.mend();
    for name in ["before", "meanwhile"] {
        stage.is_marked_in_the_end(name).await;
    }
    stage.works_again().await;
    operator.stop().await;
}

#[tokio::test]
async fn a_stolen_lease_ends_all_writes_until_it_has_run_out() {
    let stage = Stage::new().await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    let leases: Api<Lease> = Api::namespaced(stage.harness.client.clone(), NAMESPACE);
    let looks = || stage.about("leases").iter().filter(|request| request.starts_with("get")).count();
    let before = looks();
    let stolen = loop {
        let mut lease = leases.get("winpool").await.unwrap();
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some("thief".to_owned());
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let sent = Instant::now();
        match leases.replace("winpool", &PostParams::default(), &lease).await {
            Ok(_) => break sent,
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => panic!("{error}"),
        }
    };
    let looked = async || Ok((looks() > before).then_some(()));
    wait_for("the operator looks whose Lease it is", LIMIT, looked).await.unwrap();
    // The answer to that look is there, and the term ends with it.
    let renewals = stage.about("leases").len();
    stage.join("meanwhile", WINDOWS_2022).await;
    stage.is_marked_in_the_end("meanwhile").await;
    let passed = stage.proxy.passed();
    let write = passed.iter().rfind(|passed| passed.summary() == "patch nodes 200").unwrap();
    let waited = write.request.received - stolen;
    println!("Lease stolen: the next write after {waited:.1?}; {renewals} requests about it before");
    assert!(waited >= LEASE_DURATION, "{waited:?}");
    operator.stop().await;
}
