//! Pools as they are watched. A pool that cannot be decoded must not stop the watch of the others.

use std::{borrow::Borrow, collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{WindowsPool, WindowsPoolStatus, names, validation::Violation};

use super::{
    pool_spec::{InvalidPool, PoolSpec},
    pools::{Policy, Pool, PoolEntry},
};

/// A pool that may not decode, with its status. The status is read separately, because the taints that it records are
/// needed even if the spec cannot be read.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = WindowsPool)]
#[serde(try_from = "Value")]
pub struct GuardedPool {
    pub metadata: ObjectMeta,
    /// The pool, or the decoding error.
    pool: Result<WindowsPool, String>,
    /// Its spec, read once; or the rules that it breaks.
    spec: Result<Arc<PoolSpec>, InvalidPool>,
    /// `status`, if it can be decoded.
    pub status: Option<WindowsPoolStatus>,
    /// An object with `status.taints` as the API server sent it, which guards the next status.
    pub recorded: Option<Value>,
}

impl TryFrom<Value> for GuardedPool {
    type Error = serde_json::Error;

    fn try_from(mut object: Value) -> Result<Self, Self::Error> {
        let written = object.as_object_mut().and_then(|object| object.remove("status")).filter(Value::is_object);
        let status = written.as_ref().and_then(readable);
        let pool = read(&object).map(|pool| WindowsPool { status: status.clone(), ..pool });
        let recorded = written.map(|status| json!({"taints": status.get("taints")}));
        let metadata = ObjectMeta::deserialize(&object["metadata"])?;
        Ok(Self { spec: spec_of(&metadata, &pool), metadata, pool, status, recorded })
    }
}

/// The status, or only the members and list items that this release can decode: another release may have written
/// others. The taints and uids that the status records must not be lost with them.
fn readable(status: &Value) -> Option<WindowsPoolStatus> {
    if let Ok(status) = WindowsPoolStatus::deserialize(status) {
        return Some(status);
    }
    let decodes = |key: &str, value: &Value| WindowsPoolStatus::deserialize(json!({ key: value })).is_ok();
    let members = status.as_object()?.iter().filter_map(|(key, value)| {
        let items =
            value.as_array().map(|items| items.iter().filter(|item| decodes(key, &json!([item]))).cloned().collect());
        let value = items.map_or_else(|| value.clone(), Value::Array);
        decodes(key, &value).then(|| (key.clone(), value))
    });
    WindowsPoolStatus::deserialize(Value::Object(members.collect())).ok()
}

/// The part of a status that guards the next one.
pub(super) fn recorded(status: &WindowsPoolStatus) -> Value {
    json!({"taints": json!(status).get("taints")})
}

/// serde also decodes an object from a list of its members. `spec: []` is an error in a pool, and would be an empty
/// spec.
fn read(object: &Value) -> Result<WindowsPool, String> {
    let pool = WindowsPool::deserialize(object).map_err(|error| error.to_string())?;
    let spec = serde_json::to_value(&pool.spec).map_err(|error| error.to_string())?;
    let list = object.get("spec").and_then(|written| list_for_object("spec", written, &spec));
    list.map_or(Ok(pool), |path| Err(format!("{path} is a list; write an object")))
}

/// The path of a list in a place where an object was decoded.
fn list_for_object(path: &str, written: &Value, read: &Value) -> Option<String> {
    match (written, read) {
        (Value::Array(_), Value::Object(_)) => Some(path.to_owned()),
        (Value::Object(written), Value::Object(read)) => {
            read.iter().find_map(|(key, read)| list_for_object(&format!("{path}.{key}"), written.get(key)?, read))
        }
        (Value::Array(written), Value::Array(read)) => {
            let mut items = written.iter().zip(read).enumerate();
            items.find_map(|(index, (written, read))| list_for_object(&format!("{path}[{index}]"), written, read))
        }
        _ => None,
    }
}

impl From<WindowsPool> for GuardedPool {
    fn from(pool: WindowsPool) -> Self {
        let status = pool.status.clone();
        let (metadata, recorded, pool) = (pool.metadata.clone(), status.as_ref().map(recorded), Ok(pool));
        Self { spec: spec_of(&metadata, &pool), metadata, recorded, status, pool }
    }
}

impl GuardedPool {
    /// The pool as it was decoded, or the decoding error.
    pub fn pool(&self) -> Result<&WindowsPool, &str> {
        self.pool.as_ref().map_err(String::as_str)
    }

    /// True if its status has the taints of this one: winpool acts on them as soon as they are recorded.
    pub(super) fn records(&self, status: &WindowsPoolStatus) -> bool {
        self.status.as_ref().is_some_and(|stored| stored.taints == status.taints)
    }

    /// True if the deletion of the pool waits for winpool.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers().iter().any(|finalizer| finalizer == names::CLEANUP)
    }

    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The pool in the form that plans use.
    ///
    /// # Errors
    /// Fails if it cannot be decoded, or breaks a rule.
    pub fn read(&self) -> Result<Pool, InvalidPool> {
        Ok(Pool::new(Arc::clone(self.spec.as_ref().map_err(Clone::clone)?), self.status.as_ref()))
    }
}

fn spec_of(metadata: &ObjectMeta, pool: &Result<WindowsPool, String>) -> Result<Arc<PoolSpec>, InvalidPool> {
    match pool {
        Ok(pool) => PoolSpec::read(pool).map(Arc::new),
        Err(error) => {
            let violation = Violation { field: "spec".to_owned(), message: error.clone() };
            let name = metadata.name.clone().unwrap_or_default();
            Err(InvalidPool { name, violations: vec![violation] })
        }
    }
}

/// The valid pools, and the names of the others.
pub fn read_all<P: Borrow<GuardedPool>>(pools: &[P]) -> (Vec<Arc<Pool>>, BTreeSet<String>) {
    let (mut valid, mut invalid) = (Vec::new(), BTreeSet::new());
    for guarded in pools {
        match guarded.borrow().read() {
            Ok(pool) => valid.push(Arc::new(pool)),
            Err(error) => drop(invalid.insert(error.name)),
        }
    }
    (valid, invalid)
}

/// The policy of these pools. It assumes that all of their RuntimeClasses are ready.
pub fn policy_of<P: Borrow<GuardedPool>>(pools: &[P]) -> Policy {
    let (valid, invalid) = read_all(pools);
    Policy::new(valid.into_iter().map(|pool| PoolEntry { pool, ready: true }), invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_no_object() {
        let read =
            |spec: Value| GuardedPool::deserialize(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap().pool;
        let named = json!(["10.0.29000", "preview"]);
        for (spec, path) in [
            (json!([]), "spec"),
            (json!({"podDefaults": []}), "spec.podDefaults"),
            (
                json!({"taints": [{"key": "a", "effect": "NoSchedule"}, ["os", "windows", "NoSchedule"]]}),
                "spec.taints[1]",
            ),
            (json!({"buildNames": [named]}), "spec.buildNames[0]"),
        ] {
            assert_eq!(read(spec.clone()), Err(format!("{path} is a list; write an object")), "{spec}");
        }
        let spec =
            json!({"podDefaults": {}, "taints": [{"key": "a", "effect": "NoSchedule"}], "nodeSelector": {"a": "b"}});
        assert!(read(spec).is_ok());
    }
}
