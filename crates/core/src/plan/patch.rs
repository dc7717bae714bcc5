//! Turns plans into guarded JSON Patches.
//!
//! `spec.taints` is a list without merge keys, so every write replaces all of it. Therefore each patch first *tests*
//! the values it was computed from: a concurrent write makes the patch fail instead of losing the other writer's
//! taint.
//!
//! A patch of a node leaves out the tests of two values:
//! - `metadata.resourceVersion`, which every heartbeat changes.
//! - `status`, except for the version if a label follows from it. The API server decodes the whole status for one test
//!   in it. Nothing is lost, because the tested labels change first: a kubelet that registers its node again writes
//!   `kubernetes.io/os` and `windows-build` before it reports another system or build. A kubelet that only reports
//!   leaves a node whose label names the old build. No RuntimeClass of the new build selects that node until winpool
//!   has written the label, and that patch tests the version.
//!
//! The other tests stay in every patch: metadata and spec are decoded anyway, because the patch writes them.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{WindowsPoolStatus, names};
use crate::node::{MetadataChange, NodeFields, NodePlan};
use crate::plan::pools::pool::Policy;

/// The reason for which a patch that the API server accepted has no effect. Others that come after admission leave
/// another version.
pub const REVERTED: &str = "a mutating webhook or admission policy reverts it, so that nothing changes; exclude \
                            winpool's ServiceAccount from it";

/// The reason for which a patch of a node that the API server accepted is a refusal nevertheless.
pub(crate) const STRIPPED: &str = "a mutating webhook or admission policy removes the annotation winpool.dev/applied, in which \
                                   winpool records its taints; exclude winpool's ServiceAccount from it";

/// The patch that applies `plan` to the node with this uid.
pub fn node_patch(uid: &str, node: &NodeFields, plan: &NodePlan, policy: &Policy) -> Patch {
    let mut patch = Operations::of(json!(uid));
    patch.test(&["spec", "taints"], node.taints.to_json());
    if let Some(version) = &node.kernel_version
        && needs_version(node, plan)
    {
        patch.test(&["status", "nodeInfo", "kernelVersion"], json!(**version));
    }
    let own = [names::OS, names::WINDOWS_BUILD, names::POOL];
    let capability_labels = plan.capability_labels.iter().map(|change| change.key.as_str());
    for key in own.into_iter().chain(policy.selector_keys().filter(|key| !own.contains(key))).chain(capability_labels) {
        patch.test(&["metadata", "labels", key], json!(node.labels.get(key)));
    }
    if node.has_annotations {
        patch.test(&["metadata", "annotations", names::APPLIED], json!(node.applied.as_deref()));
        patch.test(&["metadata", "annotations", names::IGNORE], json!(node.ignore));
    } else {
        patch.test(&["metadata", "annotations"], Value::Null);
    }

    for MetadataChange { key, to, .. } in plan.labels() {
        patch.set(&["metadata", "labels", key], json!(to));
    }
    if let Some(change) = &plan.taints {
        patch.set(&["spec", "taints"], Value::Array(change.to.clone()));
    }
    if let Some(MetadataChange { key, to, .. }) = &plan.applied {
        if !node.has_annotations {
            patch.set(&["metadata", "annotations"], json!({}));
        }
        patch.set(&["metadata", "annotations", key], json!(to));
    }
    Patch(patch.0)
}

/// True if a label follows from the version that the node reports, or if no label shows the build that it reports.
fn needs_version(node: &NodeFields, plan: &NodePlan) -> bool {
    let build = node.windows_build().map(|build| build.to_string());
    plan.windows_build.is_some()
        || !plan.capability_labels.is_empty()
        || node.labels.get(names::WINDOWS_BUILD) != build.as_deref()
}

/// A change of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// Path from the object's root.
    pub path: Vec<&'static str>,
    /// The value to write; `null` removes the field.
    pub to: Value,
}

impl FieldChange {
    pub(crate) fn new(path: &[&'static str], to: &impl Serialize) -> Self {
        Self { path: path.to_vec(), to: json!(to) }
    }
}

/// The patch that applies `changes` to a RuntimeClass if it is still the object that was read.
///
/// The patch *sets* resourceVersion instead of testing it, so that the API server answers a stale one with 409
/// Conflict.
pub fn runtime_class_patch(uid: &str, resource_version: &str, changes: &[FieldChange]) -> Patch {
    let mut patch = Operations::of(json!(uid));
    patch.set(&["metadata", "resourceVersion"], json!(resource_version));
    for FieldChange { path, to } in changes {
        patch.set(path, to.clone());
    }
    Patch(patch.0)
}

/// The patch that replaces the status of the pool with this uid. `seen` is the status that it was computed from, as
/// the API server sent it. A status that records other taints is not replaced, because nodes may have them already.
pub fn status_patch(uid: &str, seen: Option<&Value>, status: &WindowsPoolStatus) -> Patch {
    let mut patch = Operations::of(json!(uid));
    match seen {
        Some(seen) => patch.test(&["status", "taints"], json!(seen.get("taints"))),
        None => patch.test(&["status"], Value::Null),
    }
    patch.set(&["status"], json!(status));
    Patch(patch.0)
}

/// The patch that adds these tolerations to a pod, if it still has those that were seen. Adding twice would double them.
pub fn toleration_patch(uid: &str, seen: &[Toleration], added: &[Toleration]) -> Patch {
    let mut patch = Operations::of(json!(uid));
    patch.test(&["spec", "tolerations"], if seen.is_empty() { Value::Null } else { json!(seen) });
    patch.set(&["spec", "tolerations"], json!([seen, added].concat()));
    Patch(patch.0)
}

/// The finalizers of an object with winpool's own, or without it. All others stay.
pub fn finalizers(object: &ObjectMeta, wanted: bool) -> Vec<String> {
    let mut finalizers = object.finalizers.clone().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != names::CLEANUP);
    finalizers.extend(wanted.then(|| names::CLEANUP.to_owned()));
    finalizers
}

/// The patch that adds winpool's finalizer to the pool, or removes it.
pub fn finalizer_patch(pool: &ObjectMeta, wanted: bool) -> Patch {
    let mut patch = Operations::of(json!(pool.uid));
    patch.test(&["metadata", "finalizers"], json!(pool.finalizers));
    patch.set(&["metadata", "finalizers"], json!(finalizers(pool, wanted)));
    Patch(patch.0)
}

struct Operations(Vec<PatchOperation>);

impl Operations {
    /// Begins the patch of the object with this uid.
    fn of(uid: Value) -> Self {
        Self(vec![PatchOperation::Test(TestOperation { path: pointer(&["metadata", "uid"]), value: uid })])
    }

    fn test(&mut self, path: &[&str], value: Value) {
        self.0.push(PatchOperation::Test(TestOperation { path: pointer(path), value }));
    }

    /// Adds or replaces the member; `null` removes it.
    fn set(&mut self, path: &[&str], value: Value) {
        let path = pointer(path);
        self.0.push(match value {
            Value::Null => PatchOperation::Remove(RemoveOperation { path }),
            value => PatchOperation::Add(AddOperation { path, value }),
        });
    }
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}
