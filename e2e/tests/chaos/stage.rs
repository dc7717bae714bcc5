//! An API server behind a proxy that injects faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, names};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::account::NAMESPACE;
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::machine::process::Process;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::program::start_winpool;
use winpool_e2e::servers::faults::proxy::FaultProxy;
use winpool_e2e::servers::faults::schedule::Fault;
use winpool_e2e::servers::faults::traffic::{Passed, Passing};
use winpool_operator::Options;

pub const WINDOWS_2019: &str = "10.0.17763.6659";
pub const WINDOWS_2022: &str = "10.0.20348.2655";
pub const WINDOWS_2025: &str = "10.0.26100.4061";

/// Longer than any test.
pub const FOR_EVER: Duration = Duration::from_hours(1);

pub struct Stage {
    pub harness: Harness,
    pub proxy: FaultProxy,
}

/// An operator that soon repeats a refused request, with the other pauses of an installation.
fn options() -> Options {
    Options { patience: Duration::from_secs(2), ..Options::default() }
}

impl Stage {
    pub async fn new() -> Self {
        let harness = Harness::new().await;
        let proxy = FaultProxy::start(&harness.server).await.unwrap();
        Self { harness, proxy }
    }

    /// The configuration of an operator behind the proxy, with the permissions of an installation.
    pub fn config(&self) -> Config {
        self.proxy.config(&self.harness.account.config).unwrap()
    }

    /// Starts an operator behind the proxy, in this process.
    pub fn operator(&self) -> Operator {
        Operator::start_with(self.config(), Options { leader_election: false, ..options() })
    }

    /// Starts an operator with leader election.
    pub fn candidate(&self) -> Operator {
        Operator::start_with(self.config(), options())
    }

    /// Starts one that gives up a deletion only after ten seconds without progress.
    pub fn patient_candidate(&self) -> Operator {
        Operator::start_with(self.config(), Options { patience: Duration::from_secs(10), ..options() })
    }

    /// Starts an operator behind the proxy as a process, without leader election.
    pub async fn process(&self) -> Process {
        let kubeconfig = self.proxy.kubeconfig(&self.harness.account.token(), NAMESPACE).unwrap();
        start_winpool(&kubeconfig, &["--leader-election", "false"]).await.unwrap()
    }

    pub async fn join(&self, name: &str, version: &str) {
        self.harness.join_node(SimulatedNode::windows(version).name(name)).await;
    }

    /// Returns the requests for single objects of this kind since the last call of `inject`, with the codes of the
    /// server's responses, even if those were lost.
    pub fn about(&self, resource: &str) -> Vec<String> {
        let passed = self.proxy.passed();
        let about = passed.iter().filter(|passed| passed.request.asked.resource == resource);
        let about = about.filter(|passed| !matches!(passed.request.asked.verb, "list" | "watch"));
        about.map(Passed::summary).collect()
    }

    /// The number of requests with this summary since the last call of `inject`, such as `patch nodes 200`.
    pub fn count(&self, summary: &str) -> usize {
        self.proxy.passed().iter().filter(|passed| passed.summary() == summary).count()
    }

    /// Waits until there are this many such requests.
    pub async fn until_about(&self, resource: &str, count: usize) -> Vec<String> {
        let enough = async || Ok(Some(self.about(resource)).filter(|requests| requests.len() >= count));
        let result = wait_for(&format!("{count} requests about {resource}"), LIMIT, enough).await;
        result.unwrap_or_else(|error| panic!("{error}; so far: {:?}", self.about(resource)))
    }

    /// Returns the writes so far, without Events and Leases.
    pub fn writes(&self) -> Vec<Passed> {
        self.proxy.passed().into_iter().filter(|passed| passed.request.write.is_some()).collect()
    }

    /// Waits until nothing was written for this time.
    pub async fn is_quiet(&self, time: Duration) {
        let started = Instant::now();
        wait_for("nothing is written any more", Duration::from_mins(3), async || {
            let last = self.writes().last().map_or(started, |passed| passed.request.received);
            Ok((last.max(started).elapsed() >= time).then_some(()))
        })
        .await
        .unwrap();
    }

    /// Counts the requests by the fault that they met.
    pub fn injected(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for fault in self.proxy.passed().iter().filter_map(|passed| passed.fault) {
            *counts.entry(fault.name()).or_default() += 1;
        }
        counts
    }

    /// Waits until the cluster looks as expected.
    pub async fn becomes(&self, expected: &Value, what: &str) {
        let mut seen = Value::Null;
        let result = wait_for(what, Duration::from_mins(4), async || {
            seen = picture(&self.harness.client).await;
            Ok((seen == *expected).then_some(()))
        });
        result.await.unwrap_or_else(|error| panic!("{error}: {expected:#}\nbut: {seen:#}"));
    }

    /// Cuts the network and restores it with other rules, so that watches restart.
    pub async fn interrupt(
        &self,
        meanwhile: impl Future<Output = ()>,
        rule: impl Fn(&Passing) -> Option<Fault> + Send + Sync + 'static,
    ) {
        self.proxy.cut();
        meanwhile.await;
        self.proxy.inject(rule);
        self.proxy.mend();
    }
}

/// A rule: requests with these numbers among those of the same verb and resource meet this fault.
pub fn hits(
    verb: &'static str,
    resource: &'static str,
    numbers: std::ops::Range<u64>,
    fault: Fault,
) -> impl Fn(&Passing) -> Option<Fault> + Send + Sync + 'static {
    move |passing| {
        let asked = passing.asked;
        let hit = asked.verb == verb && asked.resource == resource && numbers.contains(&passing.number);
        hit.then_some(fault)
    }
}

pub const ALL: std::ops::Range<u64> = 0..u64::MAX;

/// Nodes, classes and pools as JSON, without what differs between two equal clusters: ids, versions and times.
pub async fn picture(client: &Client) -> Value {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let nodes: BTreeMap<String, Value> = nodes.into_iter().map(|node| (node.name_any(), of_node(&node))).collect();
    let classes = Api::<RuntimeClass>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let classes: BTreeMap<String, Value> =
        classes.into_iter().map(|class| (class.name_any(), of_class(&class))).collect();
    let pools = Api::<WindowsPool>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let pools: BTreeMap<String, Value> = pools.into_iter().map(|pool| (pool.name_any(), of_pool(&pool))).collect();
    json!({"nodes": nodes, "classes": classes, "pools": pools})
}

/// The taints are sorted: other writers add theirs before or after winpool's.
fn of_node(node: &Node) -> Value {
    let mut taints: Vec<_> =
        node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).map(|taint| json!(taint).to_string()).collect();
    taints.sort();
    let mut annotations = json!(node.annotations());
    if let Some(record) = annotations.get_mut(names::APPLIED) {
        // A node that was slow to get a taint has nothing to replace.
        let mut applied: Value = serde_json::from_str(record.as_str().unwrap()).unwrap();
        applied.as_object_mut().map(|applied| applied.remove("replaced"));
        *record = applied.to_string().into();
    }
    json!({"labels": node.labels(), "annotations": annotations, "taints": taints})
}

fn of_class(class: &RuntimeClass) -> Value {
    json!({
        "labels": class.labels(), "annotations": class.annotations(), "handler": class.handler,
        "scheduling": class.scheduling, "overhead": class.overhead,
    })
}

fn of_pool(pool: &WindowsPool) -> Value {
    let mut status = json!(pool.status);
    status.get_mut("lastSeen").map(Value::take);
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    for taint in status["taints"].as_array_mut().into_iter().flatten() {
        taint["since"] = Value::Null;
    }
    for class in status["runtimeClasses"].as_array_mut().into_iter().flatten() {
        class["uid"] = class["uid"].is_string().into();
    }
    json!({"finalizers": pool.finalizers(), "going": pool.metadata.deletion_timestamp.is_some(), "spec": pool.spec, "status": status})
}
