//! What the API server does with a request: the object after it, or the refusal. Callers keep the objects, and give them their
//! resource versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::{Patch, PatchOperation, TestOperation};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_core::labels::Labels;
use winpool_core::node::{MetadataChange, NodeFields, NodePlan, TaintList};
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::patch::runtime_class_patch;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::plan::reconcile::ClassRequest;

/// Applies a JSON Patch as the API server does. The json-patch crate fails a `test` of an absent member; the API server
/// passes it if `null` is expected and the map is there, and fails it if the map itself is absent.
///
/// # Errors
/// Fails if a test or another operation does, with its text.
pub fn apply(object: &Value, patch: &Patch) -> Result<Value, String> {
    let mut result = object.clone();
    for operation in &patch.0 {
        if !expects_absence(operation, &result) {
            json_patch::patch(&mut result, std::slice::from_ref(operation))
                .map_err(|error| format!("{operation}: {error}"))?;
        }
    }
    Ok(result)
}

fn expects_absence(operation: &PatchOperation, object: &Value) -> bool {
    let PatchOperation::Test(TestOperation { path, value: Value::Null }) = operation else { return false };
    let Some((parent, key)) = path.split_back() else { return false };
    let map = object.pointer(parent.as_str()).and_then(Value::as_object);
    map.is_some_and(|map| !map.contains_key(key.decoded().as_ref()))
}

/// Returns the class after this request; `None` if it is gone. A new class gets `uid`.
///
/// # Errors
/// Fails if the class differs from the one that the request was computed from.
pub fn class(
    request: &ClassRequest,
    current: Option<&RuntimeClass>,
    uid: String,
) -> Result<Option<RuntimeClass>, RequestError> {
    let is_seen = |seen: (Option<String>, Option<String>), class: &RuntimeClass| {
        if seen == (class.uid(), class.resource_version()) { Ok(()) } else { Err(RequestError::Conflict) }
    };
    match (request, current) {
        (ClassRequest::Create(_), Some(_)) => Err(RequestError::Conflict),
        (ClassRequest::Create(class), None) => {
            let mut class = RuntimeClass::clone(class);
            class.metadata.uid = Some(uid);
            Ok(Some(class))
        }
        (ClassRequest::Patch { uid, version, changes }, Some(class)) => {
            is_seen((Some(uid.clone()), Some(version.clone())), class)?;
            let failed = |message: String| RequestError::failed(&message);
            let after = apply(&json!(class), &runtime_class_patch(uid, version, changes)).map_err(failed)?;
            serde_json::from_value(after).map(Some).map_err(|error| failed(error.to_string()))
        }
        (ClassRequest::Delete(seen), Some(class)) => {
            is_seen((seen.uid(), seen.resource_version()), class)?;
            let mut kept = class.clone();
            kept.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            Ok(Some(kept).filter(|class| !class.finalizers().is_empty()))
        }
        (ClassRequest::Patch { .. } | ClassRequest::Delete(_), None) => Err(RequestError::Gone),
    }
}

/// Returns the node after the patch of this plan. The tests of the core compare it with the patch itself.
pub fn node(node: &NodeFields, plan: &NodePlan) -> NodeFields {
    let labels = labels(&node.labels, plan.labels().map(|change| (change.key.as_str(), change.to.as_deref())));
    let mut after = NodeFields { labels, ..node.clone() };
    if let Some(change) = &plan.taints {
        after.taints = Arc::new(TaintList::new(Some(change.to.clone())));
    }
    if let Some(MetadataChange { to, .. }) = &plan.applied {
        after.applied = to.as_deref().map(Into::into);
        after.has_annotations |= to.is_some();
    }
    after
}

/// Returns the labels after changes: each sets a key to a value, or removes it.
pub fn labels<'a>(labels: &Labels, changes: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Labels {
    let mut after: BTreeMap<&str, &str> = labels.with_prefix("").collect();
    for (key, value) in changes {
        match value {
            Some(value) => drop(after.insert(key, value)),
            None => drop(after.remove(key)),
        }
    }
    after.into_iter().collect()
}

/// Returns the pool with this change, if it could be decoded, or else the same pool.
pub fn changed_pool(pool: &GuardedPool, change: impl FnOnce(&mut WindowsPool)) -> GuardedPool {
    let Ok(WindowsPool { spec, .. }) = pool.pool() else { return pool.clone() };
    let (metadata, status) = (pool.metadata.clone(), pool.status.clone());
    let mut changed = WindowsPool { metadata, spec: spec.clone(), status };
    change(&mut changed);
    changed.into()
}
