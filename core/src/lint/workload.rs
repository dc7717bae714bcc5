//! What has a pod in it: a Pod, or something that makes pods from a template.

use serde::Deserialize;
use serde_json::Value;

use crate::pod::PodSpec;

use super::field::get;

/// An object that is, or makes, pods.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// `kind`.
    pub kind: &'a str,
    /// `metadata.namespace`; empty where the manifest has none.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// Path of the pod spec in the object.
    pub path: &'static str,
    /// The pod spec.
    pub pod: PodSpec,
    /// The pod spec as it was written, for rules that test a field by its path: the API server refuses `privileged: false`
    /// and `seLinuxOptions: {}` too, so what is absent must be told from what is empty.
    pub raw: &'a Value,
    /// Kind and name of the object that controls this one.
    pub controller: Option<(&'a str, &'a str)>,
}

/// The kinds that are read, with their API group and the path of their pod spec.
pub const KINDS: [(&str, &str, &[&str], &str); 9] = [
    ("Pod", "", &["spec"], "spec"),
    ("Deployment", "apps", &["spec", "template", "spec"], "spec.template.spec"),
    ("StatefulSet", "apps", &["spec", "template", "spec"], "spec.template.spec"),
    ("DaemonSet", "apps", &["spec", "template", "spec"], "spec.template.spec"),
    ("ReplicaSet", "apps", &["spec", "template", "spec"], "spec.template.spec"),
    ("ReplicationController", "", &["spec", "template", "spec"], "spec.template.spec"),
    ("Job", "batch", &["spec", "template", "spec"], "spec.template.spec"),
    ("CronJob", "batch", &["spec", "jobTemplate", "spec", "template", "spec"], "spec.jobTemplate.spec.template.spec"),
    ("PodTemplate", "", &["template", "spec"], "template.spec"),
];

impl<'a> Workload<'a> {
    /// Reads an object; `None` if it is of another kind or has no pod spec.
    #[must_use]
    pub fn read(object: &'a Value) -> Option<Self> {
        let text = |path: &[&str]| get(object, path).and_then(Value::as_str);
        let kind = text(&["kind"])?;
        let group = text(&["apiVersion"])?.split_once('/').map_or("", |(group, _)| group);
        let (.., keys, path) = KINDS.iter().find(|(known, of, ..)| *known == kind && *of == group)?;
        let raw = get(object, keys).filter(|spec| spec.is_object())?;
        let owners = object["metadata"]["ownerReferences"].as_array();
        let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == Value::Bool(true));
        Some(Self {
            kind,
            namespace: text(&["metadata", "namespace"]).unwrap_or_default(),
            name: text(&["metadata", "name"]).or_else(|| text(&["metadata", "generateName"])).unwrap_or_default(),
            path,
            pod: PodSpec::deserialize(raw).ok()?,
            raw,
            controller: controller.and_then(|owner| Some((owner["kind"].as_str()?, owner["name"].as_str()?))),
        })
    }

    /// `Deployment shop/web`.
    #[must_use]
    pub fn object(&self) -> String {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
    }

    /// Whether its pods are placed by the DaemonSet controller, which reads the template and never the RuntimeClass.
    #[must_use]
    pub fn is_daemon_set(&self) -> bool {
        self.kind == "DaemonSet"
    }
}
