//! The acknowledged edits of foreign writers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Keys of the foreign writers' taints and labels begin like this.
pub const FOREIGN: &str = "race.example.com/";
/// The label that decides to which pool a node belongs.
pub const GROUP: &str = "race.example.com/group";

/// One change of one node: a taint as raw JSON, or a label.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    Add(Value),
    Change(Value),
    Remove(Value),
    Label(String, Option<String>),
}

/// The identity of a taint in Kubernetes.
pub fn identity(taint: &Value) -> (&str, &str) {
    (taint["key"].as_str().unwrap_or_default(), taint["effect"].as_str().unwrap_or_default())
}

impl Edit {
    /// The taints after it.
    pub fn on_taints(&self, before: &[Value]) -> Vec<Value> {
        let mut taints = before.to_vec();
        match self {
            Self::Add(taint) => taints.push(taint.clone()),
            Self::Change(taint) => {
                taints
                    .iter_mut()
                    .filter(|other| identity(other) == identity(taint))
                    .for_each(|other| *other = taint.clone());
            }
            Self::Remove(taint) => taints.retain(|other| identity(other) != identity(taint)),
            Self::Label(..) => {}
        }
        taints
    }

    /// The labels after it.
    pub fn on_labels(&self, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut labels = before.clone();
        match self {
            Self::Label(key, Some(value)) => drop(labels.insert(key.clone(), value.clone())),
            Self::Label(key, None) => drop(labels.remove(key)),
            Self::Add(_) | Self::Change(_) | Self::Remove(_) => {}
        }
        labels
    }

    /// The key of the edit and its value afterwards.
    fn end(&self) -> (String, Option<Value>) {
        let name = |taint: &Value| {
            let (key, effect) = identity(taint);
            format!("taint {key}:{effect}")
        };
        match self {
            Self::Add(taint) | Self::Change(taint) => (name(taint), Some(taint.clone())),
            Self::Remove(taint) => (name(taint), None),
            Self::Label(key, value) => (format!("label {key}"), value.clone().map(Value::from)),
        }
    }
}

/// Every edit that the API server has acknowledged, by the revision that it made: the order in which they happened.
#[derive(Default)]
pub struct Ledger {
    edits: Mutex<BTreeMap<u64, (String, Edit)>>,
    conflicts: AtomicUsize,
}

impl Ledger {
    pub fn acknowledged(&self, revision: u64, node: &str, edit: Edit) {
        let other = self.edits.lock().unwrap().insert(revision, (node.to_owned(), edit));
        assert_eq!(other, None, "one revision, one write");
    }

    pub fn refused(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    pub fn conflicts(&self) -> usize {
        self.conflicts.load(Ordering::Relaxed)
    }

    pub fn edits(&self) -> BTreeMap<u64, (String, Edit)> {
        self.edits.lock().unwrap().clone()
    }

    /// The result of the last edit of each key, by node and key.
    pub fn ends(&self) -> BTreeMap<(String, String), Option<Value>> {
        let edits = self.edits().into_values();
        edits.map(|(node, edit)| (node, edit.end())).map(|(node, (key, end))| ((node, key), end)).collect()
    }
}

/// The differences between the nodes and the ledger, including values that no writer wrote.
pub fn survivors(ledger: &Ledger, nodes: &BTreeMap<String, super::history::Version>) -> Vec<String> {
    let ends = ledger.ends();
    let mut found: BTreeMap<(String, String), Value> = BTreeMap::new();
    for (name, node) in nodes {
        for taint in node.foreign_taints() {
            found.insert((name.clone(), Edit::Add(taint.clone()).end().0), taint.clone());
        }
        for (key, value) in node.writers_labels() {
            found.insert((name.clone(), format!("label {key}")), Value::from(value.clone()));
        }
    }
    let mut faults = Vec::new();
    for ((node, key), end) in &ends {
        let actual = found.remove(&(node.clone(), key.clone()));
        if actual != *end {
            faults.push(format!("{node}, {key}: the last edit left {end:?}, found {actual:?}"));
        }
    }
    let stray = found.into_iter().filter(|((_, key), _)| !key.ends_with(GROUP));
    faults.extend(stray.map(|((node, key), value)| format!("{node}, {key}: found {value}, which no writer wrote")));
    faults
}
