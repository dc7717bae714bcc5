//! The cluster of the model: one node, some pools, and all that others may do to them.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{Arc, LazyLock, Mutex},
};

use serde_json::{Value, json};
use winpool_core::{
    api::{Taint, names},
    plan::{Entry, Node as Seen, Policy, Pool},
};

use crate::common::{self, read};

/// A value of which there is one copy. States are many, and what they are made of is little: so they are compared, hashed
/// and copied by its number.
pub struct Shared<T>(Arc<(usize, T)>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.1.fmt(f)
    }
}

impl<T> Shared<T> {
    pub fn number(&self) -> usize {
        self.0.0
    }
}

/// Where the copies are.
type Copies<K, T> = LazyLock<Mutex<HashMap<K, Shared<T>>>>;

fn share<K: Clone + Eq + Hash, T>(copies: &Copies<K, T>, key: K, make: impl FnOnce(K) -> T) -> Shared<T> {
    let mut copies = copies.lock().unwrap();
    let number = copies.len();
    copies.entry(key.clone()).or_insert_with(|| Shared(Arc::new((number, make(key))))).clone()
}

/// The node, with all that is asked of it again and again.
#[derive(Debug)]
pub struct NodeFacts {
    pub object: Value,
    pub seen: Seen,
    /// Taints of others.
    pub foreign: Vec<Value>,
    /// Taints that winpool put on it, whatever its annotation says.
    pub own: Vec<Taint>,
    /// Labels and annotations that are not winpool's to write.
    pub words: Value,
}

pub type Node = Shared<NodeFacts>;

pub fn node(object: Value) -> Node {
    static NODES: Copies<Value, NodeFacts> = LazyLock::new(Mutex::default);
    share(&NODES, object, |object| NodeFacts {
        seen: read(&object),
        foreign: foreign_taints(raw_taints(&object)),
        own: own_taints(&object),
        words: words_of_others(&object),
        object,
    })
}

pub type Pools = Shared<Vec<PoolRecord>>;

pub fn pools(pools: Vec<PoolRecord>) -> Pools {
    static POOLS: Copies<Vec<PoolRecord>, Vec<PoolRecord>> = LazyLock::new(Mutex::default);
    share(&POOLS, pools, |pools| pools)
}

/// What nodes are judged by: pools, and whether each is ready.
pub type Judges = Shared<(Judging, Policy)>;
type Judging = Vec<(PoolRecord, bool)>;

pub fn judges(pools: Judging) -> Judges {
    static JUDGES: Copies<Judging, (Judging, Policy)> = LazyLock::new(Mutex::default);
    share(&JUDGES, pools, |pools| {
        let entries = pools.iter().map(|(pool, ready)| Entry { pool: pool.pool(), ready: *ready });
        let policy = Policy::new(entries, [].into());
        (pools, policy)
    })
}

/// Versions of an object that somebody may still see, oldest first. The last one is true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct History<T>(Vec<T>);

impl<T> History<T> {
    pub fn new(first: T) -> Self {
        Self(vec![first])
    }

    pub fn truth(&self) -> &T {
        self.0.last().unwrap()
    }

    pub fn at(&self, version: usize) -> &T {
        &self.0[version]
    }

    pub fn latest(&self) -> usize {
        self.0.len() - 1
    }

    pub fn push(&mut self, version: T) {
        self.0.push(version);
    }

    /// Forgets what is older than `seen` and not among the `kept` newest; returns the new place of `seen`.
    pub fn forget(&mut self, seen: usize, kept: usize) -> usize {
        let forgotten = seen.min(self.0.len().saturating_sub(kept));
        self.0.drain(..forgotten);
        seen - forgotten
    }
}

/// A WindowsPool, as far as the protocol needs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolRecord {
    pub name: &'static str,
    pub uid: u8,
    /// YAML, but for `taintPolicy`.
    pub spec: &'static str,
    pub deleting: bool,
    pub finalizer: bool,
    /// `status.taints`; `None` before the first status.
    pub evidence: Option<Vec<Taint>>,
}

impl PoolRecord {
    pub fn new(name: &'static str, uid: u8, spec: &'static str) -> Self {
        Self { name, uid, spec, deleting: false, finalizer: false, evidence: None }
    }

    pub fn has_evidence(&self, taint: &Taint) -> bool {
        self.evidence.iter().flatten().any(|known| known == taint)
    }

    /// The object as the API server has it, without the fields that nothing here reads.
    pub fn object(&self) -> Value {
        // The first of the alphabet is the oldest.
        let created = format!("2026-01-0{}T00:00:00Z", if self.name < "b" { 1 } else { 2 });
        let mut object = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool",
            "metadata": {"name": self.name, "uid": self.uid.to_string(), "creationTimestamp": created},
            "spec": {"taintPolicy": "Always"},
        });
        json_patch::merge(&mut object["spec"], &common::yaml(self.spec));
        if self.finalizer {
            object["metadata"]["finalizers"] = json!([names::CLEANUP]);
        }
        if self.deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-03T00:00:00Z");
        }
        if let Some(evidence) = &self.evidence {
            let texts: Vec<_> = evidence.iter().map(ToString::to_string).collect();
            object["status"] = if texts.is_empty() { json!({}) } else { json!({"taints": texts}) };
        }
        object
    }

    /// The pool as the product reads it.
    pub fn pool(&self) -> Arc<Pool> {
        static READ: Copies<PoolRecord, Arc<Pool>> = LazyLock::new(Mutex::default);
        let read = |record: Self| Arc::new(Pool::read(&serde_json::from_value(record.object()).unwrap()).unwrap());
        Arc::clone(&share(&READ, self.clone(), read))
    }
}

/// What nodes would be judged by if all these pools were ready.
pub fn as_written(pools: &Pools) -> Judges {
    judges(pools.iter().map(|pool| (pool.clone(), true)).collect())
}

/// What people and other controllers do to the pools, each at most once, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    Create(&'static str, &'static str),
    Respecify(&'static str, &'static str),
    Delete(&'static str),
}

impl Edit {
    /// The pools afterwards; `None` where this cannot be done. `number` makes uids differ.
    pub fn apply(self, number: usize, pools: &[PoolRecord]) -> Option<Vec<PoolRecord>> {
        let mut pools = pools.to_vec();
        let place = |name| pools.iter().position(|pool| pool.name == name);
        match self {
            Self::Create(name, spec) => {
                if place(name).is_some() {
                    return None;
                }
                pools.push(PoolRecord::new(name, u8::try_from(number).unwrap() + 10, spec));
                pools.sort_by_key(|pool| pool.name);
            }
            Self::Respecify(name, spec) => {
                let place = place(name).filter(|place| !pools[*place].deleting)?;
                pools[place].spec = spec;
            }
            Self::Delete(name) => {
                let place = place(name).filter(|place| !pools[*place].deleting)?;
                if pools[place].finalizer {
                    pools[place].deleting = true;
                } else {
                    pools.remove(place);
                }
            }
        }
        Some(pools)
    }
}

/// What other writers do to the node, each at most once, in any order, and correctly: they lose nothing of anybody's. Their
/// taints carry `timeAdded`, so that they can be told from winpool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stranger {
    /// Adds a taint with this key and value, before or after those that are there.
    Adds(&'static str, &'static str, End),
    /// Gives the taint another value.
    Changes(&'static str, &'static str),
    Removes(&'static str),
    /// Changes the label that pools select by.
    Labels(&'static str),
    /// Claims in the annotation that winpool added this taint too.
    Forges(&'static str),
    /// Writes what nobody reads: a heartbeat.
    Beats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    First,
    Last,
}

/// The label of others that pools here select by.
pub const TEAM: &str = "team";

pub fn bare_node() -> Value {
    json!({
        "metadata": {
            "name": "win", "uid": common::UID,
            "labels": {names::OS: names::WINDOWS, TEAM: "a", "example.com/rack": "7"},
            "annotations": {"example.com/owner": "ops"},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"nodeInfo": {"kernelVersion": "10.0.20348.2655", "operatingSystem": "windows"}},
    })
}

/// What the node would look like without winpool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Others {
    pub taints: Vec<Value>,
    pub team: &'static str,
}

impl Stranger {
    /// The node and what is left without winpool afterwards; `None` where this cannot be done.
    pub fn apply(self, on: &Node, others: &Others) -> Option<(Node, Others)> {
        let (mut node, mut others) = (on.object.clone(), others.clone());
        let mut taints = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        match self {
            Self::Adds(key, value, end) => {
                if taints.iter().any(|taint| taint["key"] == key) {
                    return None;
                }
                let taint =
                    json!({"key": key, "value": value, "effect": "NoSchedule", "timeAdded": "2026-01-02T00:00:00Z"});
                for list in [&mut taints, &mut others.taints] {
                    match end {
                        End::First => list.insert(0, taint.clone()),
                        End::Last => list.push(taint.clone()),
                    }
                }
            }
            Self::Changes(key, value) => {
                for list in [&mut taints, &mut others.taints] {
                    list.iter_mut().find(|taint| taint["key"] == key && is_foreign(taint))?["value"] = json!(value);
                }
            }
            Self::Removes(key) => {
                for list in [&mut taints, &mut others.taints] {
                    let place = list.iter().position(|taint| taint["key"] == key && is_foreign(taint))?;
                    list.remove(place);
                }
            }
            Self::Labels(team) => {
                others.team = team;
                node["metadata"]["labels"][TEAM] = json!(team);
            }
            Self::Forges(claim) => {
                let applied = node.pointer("/metadata/annotations/winpool.dev~1applied").and_then(Value::as_str);
                let mut applied: Value = serde_json::from_str(applied?).unwrap();
                applied["taints"].as_array_mut().unwrap().push(json!(claim));
                node["metadata"]["annotations"][names::APPLIED] = json!(applied.to_string());
            }
            Self::Beats => node["status"]["beat"] = json!(true),
        }
        if taints.is_empty() {
            node["spec"].as_object_mut().unwrap().remove("taints");
        } else {
            node["spec"]["taints"] = json!(taints);
        }
        Some((self::node(node), others))
    }
}

fn is_foreign(taint: &Value) -> bool {
    taint.get("timeAdded").is_some()
}

fn foreign_taints(taints: &[Value]) -> Vec<Value> {
    taints.iter().filter(|taint| is_foreign(taint)).cloned().collect()
}

/// Without those that some pool retires: winpool may replace them, whosever they are.
pub fn not_retired<'t>(taints: &'t [Value], retired: &'t [&str]) -> impl Iterator<Item = &'t Value> {
    taints.iter().filter(move |taint| !retired.iter().any(|key| taint["key"] == *key))
}

fn raw_taints(node: &Value) -> &[Value] {
    node.pointer("/spec/taints").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn own_taints(node: &Value) -> Vec<Taint> {
    let list = read(node).taints;
    raw_taints(node)
        .iter()
        .zip(list.taints())
        .filter(|(raw, _)| !is_foreign(raw))
        .map(|(_, taint)| taint.clone())
        .collect()
}

pub fn words_of_others(node: &Value) -> Value {
    let mut metadata = node["metadata"].clone();
    for map in ["labels", "annotations"] {
        let Some(map) = metadata.get_mut(map).and_then(Value::as_object_mut) else { continue };
        map.retain(|key, _| !key.starts_with("winpool.dev/") && key != names::WINDOWS_BUILD);
    }
    metadata
}
