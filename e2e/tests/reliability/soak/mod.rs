//! A long run: nodes join, leave and change, others replace winpool's records, pools are edited, a tenant hinders winpool, requests meet
//! faults, the network fails, the process is stopped for a while. The operator must not grow, and at the end everything is as planned.

mod churn;
mod faults;
mod gauge;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::account::NAMESPACE;
use winpool_e2e::scene::program::Program;
use winpool_e2e::servers::faults::proxy::FaultProxy;
use winpool_e2e::servers::requests::Requests;

use crate::drift::{no_drift, writes_within};
use crate::program;

use churn::{Churn, Fleet, change_pools, last_pools};
use faults::Faults;
use gauge::Gauge;

const NODES: usize = 500;
/// The allowed growth of resident memory in the second half of the run. Allocators and page tables vary a little.
const GAIN_MB: f64 = 4.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes WINPOOL_SOAK_SECONDS, 600 if not given: make chaos-long"]
async fn the_operator_does_not_grow_and_ends_as_planned() {
    let seconds = std::env::var("WINPOOL_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(600, |seconds| seconds.parse().expect("WINPOOL_SOAK_SECONDS is a number"));
    soak(Duration::from_secs(seconds)).await;
}

async fn soak(time: Duration) {
    let Harness { server, client, account } = Harness::new().await;
    let fleet = Arc::new(Fleet::join(&client, NODES).await);
    let proxy = Arc::new(FaultProxy::start(&server).await.unwrap());
    let kubeconfig = proxy.kubeconfig(&account.token(), NAMESPACE).unwrap();
    let operator = Program::start_with(&program().await, &server, &kubeconfig, &[]).unwrap();
    let gauge = Gauge::of(operator.pid());
    operator.leads().await.unwrap();
    last_pools(&client).await;
    no_drift(&client, Duration::from_mins(2), "before the churn").await;
    let before = Requests::until_now(&client).await.unwrap();
    let at_rest = gauge.now();

    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    for seed in 0..2 {
        tasks.spawn(Churn::new(&client, &fleet, seed).run(stop.clone()));
    }
    tasks.spawn(change_pools(client.clone(), stop.clone()));
    tasks.spawn(tenants::hinder(client.clone(), stop.clone()));
    tasks.spawn(Faults::new(Arc::clone(&proxy), operator.pid()).run(stop.clone()));
    let course = gauge.record(time).await;
    stop.cancel();
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        done.push(ended.unwrap());
    }
    done.sort();

    last_pools(&client).await;
    // A leader that was cut off leads again 15 seconds later. Nodes with a conflict wait longer.
    no_drift(&client, Duration::from_mins(3), "after the churn").await;
    let requests = Requests::until_now(&client).await.unwrap().since(&before);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let late = writes_within(&client, Duration::from_secs(30)).await;
    let end = gauge.now();
    operator.leads().await.unwrap();
    println!(
        "soak: {NODES} nodes, {time:?}; {}\n  {course}\n  at rest before: {at_rest}; at rest after: {end}; requests: {}",
        done.join("; "),
        requests.text(),
    );
    assert_eq!(late, "", "nothing is written while nothing happens");
    assert!(course.gain_mb() < GAIN_MB, "memory grows: {course}");
    assert!(end.threads <= at_rest.threads + 1 && end.files <= at_rest.files + 4, "before {at_rest}, after {end}");
    operator.stop().await.unwrap();
}
