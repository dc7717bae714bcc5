//! Workloads as they are written: Pods, and objects that create pods from a template.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use winpool_core::api::names;

use crate::kinds::{TEMPLATE, WorkloadKind, group_of, is_own};
use crate::pod::PodSpec;
use crate::view::{QUEUE, Workload};

/// The namespace of objects in manifests that name none, unless the user names it.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The annotation of the feature gate `HyperVContainer`, which Kubernetes 1.21 removed.
pub const ISOLATION_ANNOTATION: &str = "experimental.windows.kubernetes.io/isolation-type";

/// A workload, and the JSON that it was read from.
#[derive(Clone, Debug)]
pub struct WorkloadManifest<'a> {
    pub workload: Workload,
    /// The pod spec as written, for rules that test a field by its path. The API server also refuses `privileged:
    /// false` and `seLinuxOptions: {}`, so these rules distinguish absent fields from empty ones.
    pub raw: &'a Value,
    /// `metadata` of the Pod or of the template; `null` if there is none.
    pub metadata: &'a Value,
    /// The paths of the parts of an assembled pod spec; `null` for others.
    pub pieces: &'a Value,
    /// The whole object.
    pub written: &'a Value,
}

impl Deref for WorkloadManifest<'_> {
    type Target = Workload;

    fn deref(&self) -> &Workload {
        &self.workload
    }
}

/// A workload that cannot be read, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Malformed(String);

/// The paths of pod specs in objects of other kinds, such as the `ScaledJob` of KEDA and the Fleet of Agones.
const SHAPES: [&str; 3] = [TEMPLATE, "spec.jobTargetRef.template.spec", "spec.template.spec.template.spec"];

/// A kind whose template has fields of a pod spec, but no list of containers: the runners of actions-runner-controller before its
/// scale sets.
const RUNNERS: (&str, &str) = ("actions.summerwind.dev", "RunnerDeployment");

/// The field of `spec` in which winpool puts the pods of an object whose controller assembles them from fields of its own.
pub const ASSEMBLED: &str = "assembledPods";
/// The field beside such a pod spec that has the path of each of its parts in the object.
pub const PIECES: &str = "pieces";

impl<'a> WorkloadManifest<'a> {
    /// Reads an object. Returns `None` if it has no pod spec: it creates no pods, or it is a patch of kustomize for a workload.
    /// An object of an unknown kind creates pods if it has a pod spec with containers at one of the `SHAPES`.
    ///
    /// # Errors
    /// Fails if the API server would refuse the workload because its pod spec is malformed.
    pub fn read(object: &'a Value) -> Result<Option<Self>, Malformed> {
        let text = |path: &[&str]| get(object, path).and_then(Value::as_str);
        let (Some(kind), Some(api_version)) = (text(&["kind"]), text(&["apiVersion"])) else { return Ok(None) };
        let path_of_kind = WorkloadKind::of(group_of(api_version), kind).and_then(|kind| kind.path);
        let has_containers = |path: &&str| {
            let keys: Vec<&str> = path.split('.').chain(["containers"]).collect();
            get(object, &keys).is_some_and(Value::is_array)
        };
        let is_runner = (group_of(api_version), kind) == RUNNERS;
        let by_shape = || SHAPES.iter().copied().find(|path| is_runner || has_containers(path));
        let Some(path) = path_of_kind.or_else(by_shape) else { return Ok(None) };
        Self::at(object, path.into(), path_of_kind.is_some())
    }

    /// Reads an object. An object of an unknown kind has one workload for each pod template below `spec`, such as a `JobSet`.
    ///
    /// # Errors
    /// Fails if the API server would refuse the workload because its pod spec is malformed.
    pub fn read_all(object: &'a Value) -> Result<Vec<Self>, Malformed> {
        let text = |field: &str| object[field].as_str();
        let (Some(kind), Some(api_version)) = (text("kind"), text("apiVersion")) else { return Ok(Vec::new()) };
        let mut paths = Vec::new();
        if let Some(pods) = object["spec"][ASSEMBLED].as_array() {
            paths.extend((0..pods.len()).map(|index| format!("spec.{ASSEMBLED}[{index}].spec")));
        } else if !is_own(group_of(api_version), kind) {
            find_templates(&object["spec"], "spec", 0, &mut paths);
        }
        let workloads: Vec<Self> =
            paths.into_iter().filter_map(|path| Self::at(object, path.into(), false).ok()?).collect();
        if workloads.is_empty() { Ok(Self::read(object)?.into_iter().collect()) } else { Ok(workloads) }
    }

    /// Reads the pod spec at this path of an object with a kind and a version.
    fn at(object: &'a Value, path: Cow<'static, str>, is_known: bool) -> Result<Option<Self>, Malformed> {
        let Some(raw) = at_path(object, &path) else { return Ok(None) };
        if !raw.is_object() {
            return Err(Malformed(format!("{path} is not an object")));
        }
        let pod = match PodSpec::deserialize(raw) {
            Ok(pod) => pod,
            // The template of another kind need not be that of pods.
            Err(_) if !is_known => return Ok(None),
            Err(error) => return Err(Malformed(format!("{path}: {error}"))),
        };
        let parent = path.rsplit_once('.').map_or(Some(object), |(parent, _)| at_path(object, parent));
        let metadata = parent.and_then(|parent| get(parent, &["metadata"])).unwrap_or(&Value::Null);
        let of_job = &object["spec"]["jobTemplate"]["metadata"];
        let queue = [&object["metadata"], of_job, metadata].into_iter().find_map(|own| own["labels"][QUEUE].as_str());
        let (of_object, has_ignored_pods) = (Workload::without_template(object), is_ignored(metadata));
        let workload = Workload {
            is_ignored: of_object.is_ignored || has_ignored_pods,
            has_ignored_pods,
            os_label: metadata["labels"][names::OS].as_str().map(str::to_owned),
            pod: PodSpec { queue: queue.map(str::to_owned), ..pod },
            path,
            ..of_object
        };
        let pieces = parent.map_or(&Value::Null, |parent| &parent[PIECES]);
        Ok(Some(Self { workload, raw, metadata, pieces, written: object }))
    }

    /// Returns the kind and name of the object that controls this one, as they are written.
    pub(crate) fn owner(&self) -> Option<(&'a str, &'a str)> {
        let owners = self.written["metadata"]["ownerReferences"].as_array()?;
        let controller = owners.iter().find(|owner| owner["controller"] == true)?;
        Some((controller["kind"].as_str()?, controller["name"].as_str()?))
    }

    /// Returns the `volumeClaimTemplates` of a `StatefulSet`; `null` if there are none.
    pub(crate) fn claims(&self) -> &'a Value {
        &self.written["spec"]["volumeClaimTemplates"]
    }

    /// True if the object has `spec.selector`.
    pub(crate) fn has_selector(&self) -> bool {
        !self.written["spec"]["selector"].is_null()
    }

    /// Returns the labels of its pods.
    pub fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::deserialize(&self.metadata["labels"]).unwrap_or_default()
    }

    /// Returns the path in the object of a field of the pod spec, or of `metadata`, which is next to it.
    pub fn field(&self, field: &str) -> String {
        let is_part =
            |part: &str| field.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        let pieces = self.pieces.as_object().into_iter().flatten();
        let piece = pieces.filter(|(part, _)| is_part(part)).max_by_key(|(part, _)| part.len());
        match (piece.and_then(|(part, path)| Some((part, path.as_str()?))), self.pieces[""].as_str()) {
            (Some((part, path)), _) => format!("{path}{}", field.get(part.len()..).unwrap_or_default()),
            (None, Some(path)) => format!("{path}.{field}"),
            (None, None) if field.starts_with("metadata.") => format!("{}{field}", self.path.trim_end_matches("spec")),
            (None, None) => format!("{}.{field}", self.path),
        }
    }

    /// True if its controller assembles its pods, so that no pod template in the object can be edited.
    pub fn is_assembled(&self) -> bool {
        self.pieces.is_object()
    }

    /// True if it has a whole pod template that can be edited. That of an unknown kind may lack fields of one.
    pub fn is_editable(&self) -> bool {
        WorkloadKind::of(group_of(&self.api_version), &self.kind).is_some() && !self.is_assembled()
    }
}

/// True if winpool ignores the object of this metadata.
pub(crate) fn is_ignored(metadata: &Value) -> bool {
    metadata["annotations"][names::IGNORE] == "true"
}

/// The largest number of pod templates that are read of an object, and of fields around them.
const TEMPLATES: usize = 64;
const DEPTH: usize = 12;

/// Finds the pod templates below this field: objects with a `spec` that has a list of containers with images.
fn find_templates(value: &Value, path: &str, depth: usize, paths: &mut Vec<String>) {
    let has_image = |container: &Value| container["image"].is_string();
    let is_pod_spec =
        |spec: &Value| spec["containers"].as_array().is_some_and(|list| !list.is_empty() && list.iter().all(has_image));
    if depth > DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter().filter(|(key, _)| !key.contains(['.', '['])) {
                let path = format!("{path}.{key}");
                if key == "spec" && is_pod_spec(field) {
                    paths.extend((paths.len() < TEMPLATES).then_some(path));
                } else {
                    find_templates(field, &path, depth + 1, paths);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_templates(item, &format!("{path}[{index}]"), depth + 1, paths);
            }
        }
        _ => {}
    }
}

/// Returns the value at a path such as `spec.tasks[0].template.spec`.
fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let step = |value: &'a Value, part: &str| {
        let mut parts = part.split('[');
        let field = value.get(parts.next()?)?;
        parts.try_fold(field, |list, index| list.get(index.strip_suffix(']')?.parse::<usize>().ok()?))
    };
    path.split('.').try_fold(object, step).filter(|value| !value.is_null())
}

/// Returns the value at a path. `null` counts as absent, as for the API server.
pub fn get<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// Returns `metadata.namespace` of a namespaced object; `default` if it names none.
pub fn namespace_of(object: &Value) -> &str {
    or_default(get(object, &["metadata", "namespace"]).and_then(Value::as_str).unwrap_or_default())
}

/// Returns the namespace, or that of objects that name none.
pub(crate) fn or_default(namespace: &str) -> &str {
    if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace }
}
