//! A fleet that changes all the time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::{APPLIED, merge};
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::nodes::kubelet::Kubelet;
use winpool_e2e::nodes::simulated::{SimulatedNode, WINDOWS_BUILD};

const TEAM: &str = "example.com/team";
const KERNELS: [&str; 4] = ["10.0.17763.6659", "10.0.20348.2655", "10.0.20348.2700", "10.0.26100.4061"];
/// The pause between two changes.
const PACE: Duration = Duration::from_millis(50);

/// The current nodes. Names are never reused, so that anything kept by name shows as growth.
pub struct Fleet {
    nodes: Mutex<Vec<Kubelet>>,
    joined: AtomicUsize,
}

impl Fleet {
    pub async fn join(client: &Client, count: usize) -> Self {
        let fleet = Self { nodes: Mutex::default(), joined: AtomicUsize::new(0) };
        stream::iter(0..count)
            .for_each_concurrent(16, async |number| fleet.grow(client, &mut Dice::new(number as u64)).await)
            .await;
        fleet
    }

    async fn grow(&self, client: &Client, dice: &mut Dice) {
        let number = self.joined.fetch_add(1, Ordering::Relaxed);
        let mut node = SimulatedNode::windows(dice.pick(&KERNELS)).name(&format!("soak-{number:06}"));
        node = node.label(TEAM, dice.pick(&["a", "b", "c"]));
        if dice.once_in(3) {
            node = node.without_label(WINDOWS_BUILD);
        }
        if dice.once_in(4) {
            node = node.taint("example.com/team", dice.pick(&["a", "b"]), "NoSchedule");
        }
        let kubelet = node.join(client).await.unwrap();
        self.nodes.lock().unwrap().push(kubelet);
    }

    /// Takes a node out, so that no other task changes it meanwhile.
    fn take(&self, dice: &mut Dice) -> Kubelet {
        let mut nodes = self.nodes.lock().unwrap();
        let index = dice.roll(nodes.len());
        nodes.swap_remove(index)
    }

    fn give_back(&self, kubelet: Kubelet) {
        self.nodes.lock().unwrap().push(kubelet);
    }
}

/// Changes a fleet.
pub struct Churn {
    client: Client,
    fleet: Arc<Fleet>,
    dice: Dice,
    done: BTreeMap<&'static str, usize>,
}

impl Churn {
    pub fn new(client: &Client, fleet: &Arc<Fleet>, seed: u64) -> Self {
        Self { client: client.clone(), fleet: Arc::clone(fleet), dice: Dice::new(seed), done: BTreeMap::new() }
    }

    /// Runs until it is stopped. Returns what it did.
    pub async fn run(mut self, stop: CancellationToken) -> String {
        while !stop.is_cancelled() {
            let what = self.event().await;
            *self.done.entry(what).or_default() += 1;
            tokio::time::sleep(PACE).await;
        }
        let done: Vec<String> = self.done.iter().map(|(what, count)| format!("{count} {what}")).collect();
        done.join(", ")
    }

    async fn event(&mut self) -> &'static str {
        let kubelet = self.fleet.take(&mut self.dice);
        let kernel = self.dice.pick(&KERNELS);
        match self.dice.roll(12) {
            0 | 1 => {
                kubelet.leave().await.unwrap();
                self.fleet.grow(&self.client, &mut self.dice).await;
                "left and joined"
            }
            2 => {
                self.fleet.give_back(kubelet.upgrade_in_place_without_label(kernel).await.unwrap());
                "upgraded"
            }
            3 => {
                let other = if self.dice.once_in(2) { SimulatedNode::linux() } else { SimulatedNode::windows(kernel) };
                self.fleet.give_back(kubelet.reimage(other).await.unwrap());
                "reimaged"
            }
            4 | 5 => {
                self.foreign_taint(kubelet.name()).await;
                self.fleet.give_back(kubelet);
                "tainted by others"
            }
            6 => {
                let label = json!({"metadata": {"labels": {TEAM: self.dice.pick(&["a", "b", "c"])}}});
                let nodes: Api<Node> = Api::all(self.client.clone());
                merge(&nodes, kubelet.name(), label).await;
                self.fleet.give_back(kubelet);
                "given to another team"
            }
            7 => {
                let record = self.dice.pick(&["", r#"{"pool":"a","taints":["os=win-a:NoSchedule"]}"#]);
                let record = json!({"metadata": {"annotations": {APPLIED: record}}});
                let nodes: Api<Node> = Api::all(self.client.clone());
                merge(&nodes, kubelet.name(), record).await;
                self.fleet.give_back(kubelet);
                "records replaced"
            }
            _ => {
                kubelet.heartbeat().await.unwrap();
                self.fleet.give_back(kubelet);
                "heartbeats"
            }
        }
    }

    /// Adds or removes a taint with a guarded patch.
    async fn foreign_taint(&mut self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(name).await.unwrap();
        let before = json!(node.spec.and_then(|spec| spec.taints));
        let mut after: Vec<Value> = before.as_array().cloned().unwrap_or_default();
        let all = after.len();
        after.retain(|taint| taint["key"] != "example.com/maintenance");
        if after.len() == all {
            after.push(json!({"key": "example.com/maintenance", "effect": "PreferNoSchedule"}));
        }
        let patch = json!([
            {"op": "test", "path": "/spec/taints", "value": before},
            {"op": "add", "path": "/spec/taints", "value": after},
        ]);
        let patch: JsonPatch = serde_json::from_value(patch).unwrap();
        match nodes.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await {
            Ok(_) => {}
            // winpool was faster.
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

async fn apply(client: &Client, name: &str, spec: &Value) {
    let pool =
        json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": spec});
    let pools: Api<WindowsPool> = Api::all(client.clone());
    pools.patch(name, &PatchParams::apply("soak").force(), &Patch::Apply(pool)).await.unwrap();
}

/// Edits pools until it is stopped.
pub async fn change_pools(client: Client, stop: CancellationToken) -> String {
    let taint = |value: &str| json!({"key": "os", "value": value, "effect": "NoSchedule"});
    let specs = [
        (
            "a",
            json!({"nodeSelector": {TEAM: "a"}, "runtimeClassNameFormat": "a-{version}", "taints": [taint("win-a")], "retiredTaints": [taint("windows")]}),
        ),
        ("rest", json!({"taints": [taint("Windows")], "retiredTaints": [taint("windows")]})),
        (
            "a",
            json!({"nodeSelector": {TEAM: "b"}, "runtimeClassNameFormat": "a-{version}", "retiredTaints": [taint("win-a")]}),
        ),
        ("rest", json!({"taintPolicy": "Never"})),
        ("rest", json!({"runtimeClasses": [{"name": "able-2022", "version": "2022", "hostMatch": "Compatible"}]})),
        ("a", json!({"mode": "DryRun", "nodeSelector": {TEAM: "a"}, "runtimeClassNameFormat": "a-{version}"})),
        (
            "rest",
            json!({"taints": [taint("windows"), {"key": "dedicated/os", "value": "windows", "effect": "NoSchedule"}]}),
        ),
        ("rest", json!({})),
    ];
    let mut edits = 0;
    for (name, spec) in specs.iter().cycle() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_secs(10)) => {}
        }
        apply(&client, name, spec).await;
        edits += 1;
    }
    format!("{edits} edits of pools")
}

/// The pools at rest.
pub async fn last_pools(client: &Client) {
    apply(client, "a", &json!({"nodeSelector": {TEAM: "a"}, "runtimeClassNameFormat": "a-{version}"})).await;
    apply(client, "rest", &json!({})).await;
}
