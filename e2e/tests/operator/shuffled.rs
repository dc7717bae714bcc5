//! Workloads of all kinds that look random, on nodes that look random, with a real scheduler. Each case has a pool and nodes
//! of its own. After the taint every pod is recreated: whatever had a node before has one again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{condition, condition_text, has_taint, node_of, unschedulable, windows_class};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, merge};
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;

use crate::rescued::{owned_by, spec, toleration, with};

/// The time after which every recreated pod has a node again.
const RECREATED: Duration = Duration::from_mins(1);
const CASES: usize = 24;
const KINDS: [&str; 8] =
    ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"];

/// The seed: always the same, unless `WINPOOL_SEED` is set.
fn seed() -> u64 {
    std::env::var("WINPOOL_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"))
}

/// A workload and its nodes.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    kind: &'static str,
    nodes: Vec<SimulatedNode>,
    /// Nodes that no pod can be scheduled to.
    cordoned: Vec<String>,
    /// The pod spec, and the one that its template has when the check runs.
    before: Value,
    after: Value,
}

impl Case {
    fn new(dice: &mut Dice, number: usize) -> Self {
        let name = format!("case-{number}");
        let (nodes, cordoned) = nodes(dice, &name);
        let mut before = pod(dice, &name);
        // No other pod of theirs has run, which would show that they are for Windows.
        if matches!(KINDS[number % KINDS.len()], "Pod" | "Job" | "CronJob") {
            before["nodeSelector"]["kubernetes.io/os"] = json!("windows");
        }
        let mut after = before.clone();
        // A change of the toleration of the pool's taint, and of no other reason to wait.
        if dice.once_in(3) && cordoned.is_empty() {
            let all = [dedicated(), toleration()[0].clone()];
            after["tolerations"] = json!(all[..=dice.roll(2)]);
        }
        Self { kind: KINDS[number % KINDS.len()], name, nodes, cordoned, before, after }
    }

    /// The workload with this pod spec. A rollout does not recreate pods.
    fn object(&self, pod: &Value) -> Value {
        let object = workload(self.kind, &self.name, pod.clone());
        match self.kind {
            "Deployment" => with(object, spec(json!({"replicas": 2, "paused": *pod != self.before}))),
            "StatefulSet" => {
                let parallel =
                    json!({"replicas": 2, "podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}});
                with(object, spec(parallel))
            }
            "DaemonSet" => with(object, spec(json!({"updateStrategy": {"type": "OnDelete"}}))),
            "ReplicaSet" | "ReplicationController" => with(object, spec(json!({"replicas": 2}))),
            "Job" => with(object, spec(json!({"suspend": true}))),
            _ => object,
        }
    }

    /// A bare pod, or a pod of a run.
    fn bare(&self, name: &str) -> Value {
        let containers = json!({"containers": [{"name": "c", "image": "servercore"}]});
        json!({"metadata": {"name": name, "labels": {"app": self.name}}, "spec": with(self.before.clone(), containers)})
    }

    /// A Job that runs once, with the pods of this one.
    fn run(&self, suffix: &str, pod: &Value) -> Value {
        let run = with(
            workload("Job", &self.name, pod.clone()),
            json!({"metadata": {"name": format!("{}-{suffix}", self.name)}}),
        );
        with(run, spec(json!({"template": {"metadata": {"labels": {"app": self.name}}}})))
    }

    async fn create(&self, harness: &Harness) {
        match self.kind {
            "Pod" => drop(harness.create_pod(self.bare(&self.name)).await),
            "Job" | "CronJob" => harness.apply(self.run("before", &self.before)).await,
            _ => harness.apply(self.object(&self.before)).await,
        }
    }

    /// The state at the time of the check.
    async fn change(&self, harness: &Harness) {
        if self.kind != "Pod" && (self.after != self.before || matches!(self.kind, "Job" | "CronJob")) {
            harness.apply(self.object(&self.after)).await;
        }
    }

    async fn recreate(&self, harness: &Harness) {
        let of_case = ListParams::default().labels(&format!("app={}", self.name));
        let now = DeleteParams::default().grace_period(0);
        match self.kind {
            "Job" => {
                let jobs: Api<Job> = Api::default_namespaced(harness.client.clone());
                drop(merge(&jobs, &self.name, spec(json!({"suspend": false}))).await);
            }
            "CronJob" => {
                let cron_job =
                    Api::<CronJob>::default_namespaced(harness.client.clone()).get(&self.name).await.unwrap();
                let owner = owned_by("batch/v1", "CronJob", &cron_job, true);
                harness.apply(with(self.run("after", &self.after), owner)).await;
            }
            _ => drop(harness.pods().delete_collection(&now, &of_case).await.unwrap()),
        }
        if self.kind == "Pod" {
            // Another name, because kwok deletes pods by name.
            harness.create_pod(self.bare(&format!("{}-again", self.name))).await;
        }
    }

    /// The number of pods that its controller wants now; `None` while it has not seen the newest object.
    async fn wanted(&self, harness: &Harness) -> Option<usize> {
        let client = || harness.client.clone();
        match self.kind {
            "DaemonSet" => {
                let set = Api::<DaemonSet>::default_namespaced(client()).get(&self.name).await.unwrap();
                let status = set.status.filter(|status| status.observed_generation == set.metadata.generation)?;
                usize::try_from(status.desired_number_scheduled).ok()
            }
            "Deployment" => {
                let deployment = Api::<Deployment>::default_namespaced(client()).get(&self.name).await.unwrap();
                let status =
                    deployment.status.filter(|status| status.observed_generation == deployment.metadata.generation);
                status.map(|_| 2)
            }
            "Job" | "CronJob" | "Pod" => Some(1),
            _ => Some(2),
        }
    }
}

/// A node of the pool, perhaps another Windows node, perhaps one of Linux.
fn nodes(dice: &mut Dice, case: &str) -> (Vec<SimulatedNode>, Vec<String>) {
    let own = format!("win-{case}");
    let mut nodes = vec![SimulatedNode::server_2022(&own).label("pool", case)];
    if dice.once_in(2) {
        nodes.push(SimulatedNode::server_2019(&format!("other-{case}")));
    }
    if dice.once_in(3) {
        nodes.push(SimulatedNode::linux().name(&format!("lin-{case}")));
    }
    let mut cordoned = Vec::new();
    for (number, node) in nodes.iter_mut().enumerate() {
        *node = node.clone().label("case", case).label("team", if number == 0 { "a" } else { "b" });
        let is_windows = node.node().metadata.name.is_some_and(|name| !name.starts_with("lin-"));
        match dice.roll(6) {
            0 if is_windows => *node = node.clone().taint("dedicated", "x", "NoSchedule"),
            1 if number == 1 && is_windows => *node = node.clone().taint("os", "windows", "NoSchedule"),
            2 if is_windows => cordoned.extend(node.node().metadata.name),
            _ => {}
        }
    }
    (nodes, cordoned)
}

fn dedicated() -> Value {
    json!({"key": "dedicated", "operator": "Exists"})
}

fn tolerations(dice: &mut Dice) -> Value {
    match dice.roll(6) {
        0 => toleration(),
        1 => json!([{"operator": "Exists"}]),
        2 => json!([dedicated()]),
        3 => json!([toleration()[0], dedicated()]),
        _ => json!([]),
    }
}

/// A pod spec for nodes of this case.
fn pod(dice: &mut Dice, case: &str) -> Value {
    let mut pod = json!({"nodeSelector": {"case": case}, "tolerations": tolerations(dice)});
    let os = ["windows", "windows", "linux"][dice.roll(3)];
    let is_in = |key: &str, values: Value| json!({"key": key, "operator": "In", "values": values});
    let required = |terms: Value| {
        let terms = json!({"nodeSelectorTerms": terms});
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    };
    match dice.roll(8) {
        0 | 1 => pod["nodeSelector"]["kubernetes.io/os"] = json!(os),
        2 => pod["nodeSelector"]["node.kubernetes.io/windows-build"] = json!("10.0.20348"),
        3 => pod["nodeSelector"]["team"] = json!("a"),
        4 => {
            let terms = json!([{"matchExpressions": [is_in("kubernetes.io/os", json!([os]))]}]);
            pod["affinity"] = required(terms);
        }
        5 => {
            let terms = json!([
                {"matchExpressions": [is_in("team", json!(["a", "c"])), is_in("case", json!([case]))]},
                {"matchExpressions": [is_in("team", json!(["ghost"]))]},
            ]);
            pod = json!({"affinity": required(terms), "tolerations": pod["tolerations"]});
        }
        6 => pod["os"] = json!({"name": "windows"}),
        _ => {}
    }
    if dice.once_in(4) {
        pod["runtimeClassName"] = json!(["tolerant", "plain", "improved"][dice.roll(3)]);
        // The API server refuses a pod whose selector contradicts its class.
        pod.pointer_mut("/nodeSelector/kubernetes.io~1os").into_iter().for_each(|os| *os = json!("windows"));
    }
    pod
}

/// The pods of each case, by the label `app`.
async fn pods(harness: &Harness) -> BTreeMap<String, Vec<Pod>> {
    let mut pods: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for pod in harness.pods().list(&ListParams::default()).await.unwrap() {
        if let Some(app) = pod.labels().get("app").filter(|_| pod.metadata.deletion_timestamp.is_none()) {
            pods.entry(app.clone()).or_default().push(pod);
        }
    }
    pods
}

fn scheduled(pods: Option<&Vec<Pod>>) -> usize {
    pods.into_iter().flatten().filter(|pod| node_of(pod).is_some()).count()
}

/// Waits until the scheduler has judged every pod, and returns the numbers of those that have a node.
async fn all_are_judged(harness: &Harness, cases: &[Case]) -> BTreeMap<String, usize> {
    let mut open = String::new();
    let judged = wait_for("every pod is scheduled or cannot be", 2 * LIMIT, async || {
        let pods = pods(harness).await;
        for case in cases {
            let of_case = pods.get(&case.name);
            let is_judged = |pod: &Pod| node_of(pod).is_some() || unschedulable(pod).is_some();
            let count = of_case.map_or(0, Vec::len);
            if Some(count) != case.wanted(harness).await || !of_case.into_iter().flatten().all(is_judged) {
                open = format!("{} {} has {count} pods", case.kind, case.name);
                return Ok(None);
            }
        }
        Ok(Some(cases.iter().map(|case| (case.name.clone(), scheduled(pods.get(&case.name)))).collect()))
    });
    judged.await.unwrap_or_else(|error| panic!("{error}: {open}, WINPOOL_SEED={}", seed()))
}

/// Waits until the pool of every case has tainted its node, or says why not.
async fn are_decided(harness: &Harness, cases: &[Case]) -> usize {
    let decided = async || {
        let pools = harness.pools().list(&ListParams::default()).await?.items;
        let is_decided = |pool: &&WindowsPool| {
            let (status, reason, _) = condition_text(pool, "TaintsApplied").unwrap_or_default();
            status == "True" || reason == "DaemonSetsNotTolerating"
        };
        let held = pools.iter().filter(|pool| condition(pool, "TaintsApplied") == Some("False")).count();
        Ok((pools.iter().filter(is_decided).count() == cases.len()).then_some(held))
    };
    wait_for("every pool has decided", LIMIT, decided).await.unwrap()
}

#[tokio::test]
async fn whatever_had_a_node_before_the_taint_has_one_after_it() {
    let mut dice = Dice::new(seed());
    let cases: Vec<Case> = (0..CASES).map(|number| Case::new(&mut dice, number)).collect();
    let harness = Harness::with_nodes(cases.iter().flat_map(|case| case.nodes.clone())).await;
    for name in cases.iter().flat_map(|case| &case.cordoned) {
        harness.edit_node(name, json!({"spec": {"unschedulable": true}})).await;
        let is_cordoned = |node: &Node| has_taint(node, "node.kubernetes.io/unschedulable:NoSchedule");
        harness.node_until(name, "is cordoned", is_cordoned).await;
    }
    let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    for (class, tolerations) in [("tolerant", toleration()), ("plain", json!(null)), ("improved", json!(null))] {
        let scheduling = with(windows.clone(), json!({"tolerations": tolerations}));
        let _: RuntimeClass =
            harness.create(with(windows_class(class, &json!({})), json!({"scheduling": scheduling}))).await;
    }
    for case in &cases {
        case.create(&harness).await;
    }
    let before = all_are_judged(&harness, &cases).await;
    for case in &cases {
        case.change(&harness).await;
    }
    let tolerations = json!({"scheduling": {"tolerations": toleration()}});
    let _: RuntimeClass = merge(&harness.classes(), "improved", tolerations).await;

    for case in &cases {
        harness.apply_pool_named(&case.name, json!({"nodeSelector": {"pool": case.name}})).await;
    }
    let _operator = harness.operator().await;
    let held = are_decided(&harness, &cases).await;
    let old: BTreeSet<String> = pods(&harness).await.into_values().flatten().filter_map(|pod| pod.uid()).collect();
    for case in &cases {
        case.recreate(&harness).await;
    }
    let started = Instant::now();
    loop {
        let mut after = pods(&harness).await;
        for pods in after.values_mut() {
            pods.retain(|pod| pod.uid().is_some_and(|uid| !old.contains(&uid)));
        }
        let lost = |case: &&Case| scheduled(after.get(&case.name)) < before[&case.name];
        let lost: Vec<&Case> = cases.iter().filter(lost).collect();
        if lost.is_empty() {
            break;
        }
        let text = || {
            serde_json::to_string(
                &lost.iter().map(|case| json!([case.kind, case.name, case.before, case.after])).collect::<Vec<_>>(),
            )
        };
        assert!(started.elapsed() < RECREATED, "WINPOOL_SEED={}: pods without a node: {}", seed(), text().unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let total: usize = before.values().sum();
    println!(
        "seed {}: {total} pods had a node, {held} of {CASES} taints were held, all have one after {seconds:.1} s",
        seed()
    );
}
