//! The taint list of a node, changes of it, and winpool's record of the taints that it added.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::Taint;

/// `spec.taints` of a node as the API server sent it, with its parsed form.
///
/// A patch tests and writes the raw JSON, so that `timeAdded` and fields unknown to this client survive, and so that a
/// value which the API server omits is not tested as `""`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaintList {
    raw: Option<Vec<Value>>,
    taints: Vec<Taint>,
}

impl TaintList {
    /// The list of this raw JSON; `None` if the node has no `spec.taints`.
    pub fn new(raw: Option<Vec<Value>>) -> Self {
        let taints = raw.iter().flatten().map(taint_of).collect();
        Self { raw, taints }
    }

    /// The API server's JSON; `null` if the node has no `spec.taints`.
    pub fn to_json(&self) -> Value {
        self.raw.clone().map_or(Value::Null, Value::Array)
    }

    /// The taints in their order.
    pub fn taints(&self) -> &[Taint] {
        &self.taints
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Value, &Taint)> {
        self.raw.iter().flatten().zip(&self.taints)
    }
}

fn taint_of(raw: &Value) -> Taint {
    let part = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default();
    Taint::new(part("key"), part("value"), part("effect"))
}

/// The annotation `winpool.dev/applied`: the pool that manages the node, and the taints that winpool added.
///
/// A kubelet can write it on its own node, so it is only a hint: see [`Policy::may_remove`](super::Policy::may_remove).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub pool: String,
    /// The taints that winpool added, as `key=value:effect`.
    #[serde(default)]
    pub taints: Vec<String>,
}

impl Applied {
    /// Parses the annotation. One that does not parse names no pool and no taint.
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// The annotation's value, as compact JSON.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// A change of the taint list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintChange {
    /// The whole list to write.
    pub to: Vec<Value>,
    /// Taints that the new list adds.
    pub added: Vec<Taint>,
    /// Taints that the new list lacks.
    pub removed: Vec<Taint>,
}
