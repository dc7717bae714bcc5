//! Workloads without the fields that no rule reads.

use serde::Deserialize;
use serde_json::{Map, Value};
use winpool_core::api::names::IGNORE;

use crate::kinds::{WorkloadKind, group_of};
use crate::pod::{Pod, is_of_debugger};
use crate::workload::{DEFAULT_NAMESPACE, ISOLATION_ANNOTATION, WorkloadManifest};

use super::started::StartedPod;

/// Kind, namespace and name.
pub(super) type ObjectKey = (String, String, String);

/// A workload as compact JSON, without the fields that no rule reads: its status, most of its metadata, and the node that the
/// scheduler has chosen for a pod.
#[derive(Debug)]
pub struct Reduced {
    pub(super) text: Box<str>,
    /// Its identity, if it may control others.
    pub(super) owner: Option<ObjectKey>,
    /// True for a Pod or Job that has finished, and so is not scheduled again.
    pub(super) is_finished: bool,
    /// The Pod, if it is one with a container that has started.
    pub(super) started: Option<Box<StartedPod>>,
    /// Its own name, and that of its controller.
    pub(super) controller: Option<(String, String)>,
}

pub(super) fn identity(kind: &str, workload: &WorkloadManifest<'_>, name: &str) -> ObjectKey {
    (kind.to_owned(), workload.namespace().to_owned(), name.to_owned())
}

/// Returns the Pod, if it is one with a container that has started.
fn started(object: &Value) -> Option<Box<StartedPod>> {
    let is_one = object["kind"] == "Pod" && object["status"]["phase"].is_string();
    let mut pod = is_one.then(|| Pod::deserialize(object).ok()).flatten()?;
    if pod.namespace.is_empty() {
        DEFAULT_NAMESPACE.clone_into(&mut pod.namespace);
    }
    StartedPod::of(&pod).map(Box::new)
}

impl From<Value> for Reduced {
    fn from(mut object: Value) -> Self {
        let is_finished = is_finished(&object);
        let started = started(&object).filter(|_| !is_finished);
        let is_scheduled = is_scheduled(&object);
        if let Value::Object(object) = &mut object {
            object.remove("status");
            if let Some(Value::Object(spec)) = object.get_mut("spec").filter(|_| is_scheduled) {
                spec.remove("nodeName");
            }
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                // Rules read the labels and two annotations, and most objects have neither of these.
                let is_read = |value: &Value| [ISOLATION_ANNOTATION, IGNORE].iter().any(|key| value.get(key).is_some());
                metadata.retain(|key, value| key != "annotations" || is_read(value));
                let kept = [
                    "name",
                    "generateName",
                    "namespace",
                    "creationTimestamp",
                    "ownerReferences",
                    "labels",
                    "annotations",
                ];
                *metadata = kept.iter().filter_map(|key| metadata.remove_entry(*key)).collect::<Map<_, _>>();
            }
        }
        let workload = WorkloadManifest::read_all(&object).into_iter().flatten().next();
        let workload = workload.filter(|workload| workload.kind != "Pod");
        let controller = workload.as_ref().and_then(|workload| {
            let (kind, name) = workload.owner()?;
            Some((workload.object().to_string(), format!("{kind} {}/{name}", workload.namespace())))
        });
        // A run that refers to its task has no containers: its pods show them.
        let owner = workload.filter(|workload| !workload.is_assembled() || !workload.pod.containers.is_empty());
        let owner = owner.map(|workload| identity(&workload.kind, &workload, &workload.name));
        Self { text: object.to_string().into(), owner, is_finished, started, controller }
    }
}

/// True for a pod whose `nodeName` is the scheduler's choice, so that a similar pod may run on another node. The kubelet or the
/// DaemonSet controller has chosen that of a mirror pod or of a pod of a DaemonSet, its author that in a manifest, and
/// `kubectl debug` that of `node-debugger-NODE-abcde` (kubernetes/kubectl pkg/cmd/debug, `generateNodeDebugPod`).
fn is_scheduled(object: &Value) -> bool {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if is_of_debugger(text("/metadata/name"), text("/spec/nodeName")) {
        return false;
    }
    let owners = object["metadata"]["ownerReferences"].as_array();
    let is_chosen = |owner: &Value| ["DaemonSet", "Node"].iter().any(|kind| owner["kind"] == *kind);
    object["kind"] == "Pod"
        && object["status"]["phase"].is_string()
        && !owners.is_some_and(|owners| owners.iter().any(is_chosen))
}

fn is_finished(object: &Value) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    WorkloadKind::of(group_of(text("apiVersion")), text("kind")).is_some_and(|kind| kind.has_ended(object))
}
