//! Correct writers: they read, change one thing, and write only if nothing has changed since.

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::Patch as JsonPatch;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use winpool_e2e::machine::dice::Dice;

use super::history::{Version, nodes};
use super::ledger::{Edit, FOREIGN, GROUP, Ledger, identity};

/// Few, so that writers often undo each other's edits: a node is then as winpool cached it, though it has changed.
const KEYS: usize = 1;
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

/// The kind of request for a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The whole object, with the resourceVersion that was read: most controllers.
    Replace,
    /// A JSON Patch that tests what it was computed from: winpool's own way.
    Tested,
    /// A strategic merge patch with the resourceVersion that was read: the node-lifecycle controller's way. `kubectl taint`
    /// sends the same without the resourceVersion, and loses what others wrote meanwhile.
    Strategic,
}

const WAYS: [Way; 3] = [Way::Replace, Way::Tested, Way::Strategic];

/// Edits nodes as fast as it can until it is stopped.
pub struct Writer {
    pub names: Vec<String>,
    pub nodes: Api<DynamicObject>,
    pub dice: Dice,
    pub ledger: Arc<Ledger>,
}

impl Writer {
    pub fn new(client: &Client, names: Vec<String>, seed: u64, ledger: &Arc<Ledger>) -> Self {
        Self { names, nodes: nodes(client), dice: Dice::new(seed), ledger: Arc::clone(ledger) }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.edit().await;
        }
    }

    /// Tries one edit of one node.
    async fn edit(&mut self) {
        let name = self.names[self.dice.roll(self.names.len())].clone();
        let node = self.nodes.get(&name).await.unwrap();
        let version = Version::of(&node);
        let edit = any_edit(&mut self.dice, &version);
        let way = WAYS[self.dice.roll(WAYS.len())];
        match send(&self.nodes, &node, &edit, way).await {
            Ok(written) => {
                let revision = written.resource_version().unwrap().parse().unwrap();
                assert_ne!(revision, version.revision, "{edit:?} changes something");
                self.ledger.acknowledged(revision, &name, edit);
            }
            // 422 is a failed test.
            Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => self.ledger.refused(),
            Err(error) => panic!("{name}, {edit:?}, {way:?}: {error}"),
        }
    }
}

/// A random change of this node.
fn any_edit(dice: &mut Dice, node: &Version) -> Edit {
    match dice.roll(10) {
        0 => {
            let other = if node.labels.get(GROUP).is_some_and(|group| group == "a") { "b" } else { "a" };
            Edit::Label(GROUP.to_owned(), Some(other.to_owned()))
        }
        1 | 2 => {
            let key = format!("{FOREIGN}label-{}", dice.roll(KEYS));
            let value = (!node.labels.contains_key(&key) || dice.once_in(2)).then(|| any_value(dice));
            Edit::Label(key, value)
        }
        _ => {
            let key = format!("{FOREIGN}taint-{}", dice.roll(KEYS));
            let mut taint = json!({"key": key, "value": any_value(dice), "effect": dice.pick(&EFFECTS)});
            if dice.once_in(2) {
                taint["timeAdded"] =
                    json!(Timestamp::from_second(1_700_000_000 + i64::try_from(dice.roll(1 << 20)).unwrap()).unwrap());
            }
            let there = node.taints.iter().find(|other| identity(other) == identity(&taint));
            match there {
                None => Edit::Add(taint),
                Some(there) if dice.once_in(2) => Edit::Remove(there.clone()),
                Some(_) => Edit::Change(taint),
            }
        }
    }
}

/// Another one each time, so that every edit changes something.
fn any_value(dice: &mut Dice) -> String {
    format!("{:08x}", dice.roll(1 << 32))
}

async fn send(nodes: &Api<DynamicObject>, node: &DynamicObject, edit: &Edit, way: Way) -> kube::Result<DynamicObject> {
    let (name, manager) = (node.name_any(), Some("racer".to_owned()));
    let raw = &node.data["spec"]["taints"];
    let taints = json!(edit.on_taints(raw.as_array().map(Vec::as_slice).unwrap_or_default()));
    let parameters = PatchParams { field_manager: manager.clone(), ..PatchParams::default() };
    match way {
        Way::Replace => {
            let mut changed = node.clone();
            if let Edit::Label(..) = edit {
                changed.metadata.labels = Some(edit.on_labels(node.labels()));
            } else {
                changed.data["spec"]["taints"] = taints;
            }
            nodes.replace(&name, &PostParams { field_manager: manager, ..PostParams::default() }, &changed).await
        }
        Way::Tested => {
            let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": node.uid()})];
            if let Edit::Label(key, value) = edit {
                let label = format!("/metadata/labels/{}", key.replace('/', "~1"));
                patch.push(json!({"op": "test", "path": label, "value": node.labels().get(key)}));
                patch.push(match value {
                    Some(value) => json!({"op": "add", "path": label, "value": value}),
                    None => json!({"op": "remove", "path": label}),
                });
            } else {
                patch.push(json!({"op": "test", "path": "/spec/taints", "value": raw}));
                patch.push(json!({"op": "add", "path": "/spec/taints", "value": taints}));
            }
            let patch: JsonPatch = serde_json::from_value(Value::from(patch)).unwrap();
            nodes.patch(&name, &parameters, &Patch::Json::<()>(patch)).await
        }
        Way::Strategic => {
            let mut patch = json!({"metadata": {"resourceVersion": node.resource_version()}});
            if let Edit::Label(key, value) = edit {
                patch["metadata"]["labels"] = json!(BTreeMap::from([(key, value)]));
            } else {
                patch["spec"]["taints"] = taints;
            }
            nodes.patch(&name, &parameters, &Patch::Strategic(patch)).await
        }
    }
}

/// Acts like `kubectl taint`, as winpool: adds and removes its taint with a strategic merge patch of the list that it read,
/// without a test.
pub async fn careless_operator(client: Client, names: Vec<String>, stop: CancellationToken) {
    let nodes = nodes(&client);
    let parameters = PatchParams { field_manager: Some("winpool".to_owned()), ..PatchParams::default() };
    while !stop.is_cancelled() {
        for name in &names {
            let node = nodes.get(name).await.unwrap();
            let mut taints = Version::of(&node).taints;
            let all = taints.len();
            taints.retain(|taint| identity(taint).0 != "os");
            if taints.len() == all {
                taints.push(json!({"key": "os", "value": "windows", "effect": "NoSchedule"}));
            }
            let patch = Patch::Strategic(json!({"spec": {"taints": taints}}));
            nodes.patch(name, &parameters, &patch).await.unwrap();
        }
    }
}
