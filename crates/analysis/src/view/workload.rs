//! Workloads: Pods, and objects that create pods from a template.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde::de::Error;
use serde_json::Value;
use winpool_core::api::ObjectReference;
use winpool_core::pod::{self as operator, DaemonSet, WireMetadata};

use crate::kinds::{TEMPLATE, WorkloadKind, group_of, is_own, template_at};
use crate::pod::{Pod, PodSpec};
use crate::pod_security::Violations;
use crate::workload::{WorkloadManifest, get, is_ignored, or_default};

use super::{Creation, Request};

/// A Pod, or an object that creates pods, with one of its pod templates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    pub api_version: String,
    pub kind: String,
    /// `metadata.namespace`; empty if the manifest has none.
    pub namespace: String,
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    pub created: Option<Timestamp>,
    /// Kind and name of the object that controls it.
    pub controller: Option<(String, String)>,
    /// True if it creates no more pods: it is being deleted, or has finished.
    pub is_over: bool,
    /// True if it or its template has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    /// True if its pods have this annotation.
    pub has_ignored_pods: bool,
    pub replicas: i64,
    /// The label `kubernetes.io/os` of its pods, which the kubelet compares with the node's label.
    pub os_label: Option<String>,
    /// The checks of PodSecurity that its pods do not pass, for decisions: a rule tries them on what was written.
    pub violations: Violations,
    /// The pod spec.
    pub pod: PodSpec,
    /// The path of the pod spec in the object.
    pub path: Cow<'static, str>,
}

impl Workload {
    /// Returns a workload for each pod template of an object of this kind. One of Kubernetes itself that has no template has an empty
    /// one.
    ///
    /// # Errors
    /// Fails if the metadata or a template cannot be read.
    pub fn read_all(kind: &'static WorkloadKind, object: &Value) -> Result<Vec<Self>, serde_json::Error> {
        WireMetadata::deserialize(&object["metadata"])?;
        let found = WorkloadManifest::read_all(object).map_err(serde_json::Error::custom)?;
        if found.is_empty() && kind.is_own() {
            return Ok(vec![Self::without_template(object)]);
        }
        let judged = |WorkloadManifest { workload, raw, metadata, .. }: WorkloadManifest<'_>| {
            Option::<WireMetadata>::deserialize(metadata)?;
            Ok(Self { violations: Violations::of(raw, metadata), ..workload })
        };
        found.into_iter().map(judged).collect()
    }

    /// Reads an object with a kind and a version, but not its pod template.
    pub(crate) fn without_template(object: &Value) -> Self {
        let text = |path: &[&str]| get(object, path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&["apiVersion"]), text(&["kind"]));
        let known = WorkloadKind::of(group_of(&api_version), &kind);
        // Rules read names of objects that the API server refuses.
        let metadata = WireMetadata::deserialize(&object["metadata"]).unwrap_or_default();
        let name = Some(text(&["metadata", "name"])).filter(|name| !name.is_empty());
        Self {
            namespace: text(&["metadata", "namespace"]),
            name: name.unwrap_or_else(|| text(&["metadata", "generateName"])),
            created: metadata.created(),
            controller: metadata.controller(),
            is_over: metadata.deletion_timestamp.is_some() || known.is_some_and(|kind| kind.has_ended(object)),
            is_ignored: is_ignored(&object["metadata"]),
            uid: metadata.uid.unwrap_or_default(),
            replicas: object["spec"]["replicas"].as_i64().unwrap_or(1),
            path: known.and_then(|kind| kind.path).unwrap_or(TEMPLATE).into(),
            api_version,
            kind,
            ..Self::default()
        }
    }

    /// Returns its namespace, or that of objects that name none.
    pub fn namespace(&self) -> &str {
        or_default(&self.namespace)
    }

    pub fn object(&self) -> ObjectReference {
        ObjectReference::namespaced(&self.kind, self.namespace(), &self.name)
    }

    /// Returns the path of the pod spec if the object may have several.
    pub fn own_path(&self) -> Option<&str> {
        (!is_own(group_of(&self.api_version), &self.kind)).then_some(&*self.path)
    }

    /// Returns the JSON Pointer of the pod template in the object; empty for a Pod.
    pub fn template(&self) -> String {
        template_at(&self.path)
    }

    /// True if the DaemonSet controller places its pods. It reads the template and ignores the RuntimeClass.
    pub fn is_daemon_set(&self) -> bool {
        self.kind == "DaemonSet"
    }

    /// True if a RuntimeClass in it helps. The DaemonSet controller ignores it, and Argo Workflows has no field for it.
    pub fn takes_class(&self) -> bool {
        !self.is_daemon_set() && group_of(&self.api_version) != "argoproj.io"
    }

    /// Returns the workload for rules about what its pods ask of nodes. Rules about single fields find nothing in it.
    pub fn manifest(&self) -> WorkloadManifest<'_> {
        let nothing = &Value::Null;
        let workload = self.clone();
        WorkloadManifest { workload, raw: nothing, metadata: nothing, pieces: nothing, written: nothing }
    }

    /// Returns the request with which the API server gets its template, or its new pods.
    pub fn creation(&self) -> Creation<'_> {
        let request = match &*self.kind {
            "DaemonSet" | "Pod" if self.created.is_some() => Request::Earlier,
            "DaemonSet" => Request::DaemonSet,
            _ => Request::Pod,
        };
        let is_ignored = if self.is_daemon_set() { self.is_ignored } else { self.has_ignored_pods };
        Creation { namespace: self.namespace(), request, is_ignored }
    }

    /// Returns a new pod as the operator finds it.
    pub fn new_pod(&self) -> Pod {
        let mut pod = self.pod();
        (pod.created, pod.is_ignored) = (None, self.has_ignored_pods);
        pod.name = format!("{} {} {}", self.kind, self.name, self.path);
        pod.controller = (self.kind != "Pod").then(|| (self.kind.clone(), self.name.clone()));
        pod
    }

    /// Returns a pod as its template says. That of a Pod or DaemonSet that exists is not new: policies have seen it.
    pub fn pod(&self) -> Pod {
        let Creation { request, is_ignored, .. } = self.creation();
        let created = self.created.filter(|_| request == Request::Earlier);
        let namespace = self.namespace.clone();
        let operator = operator::Pod { namespace, is_ignored, created, ..operator::Pod::default() };
        let (os_label, violations) = (self.os_label.clone(), self.violations.clone());
        Pod { operator, spec: self.pod.clone(), os_label, violations, ..Pod::default() }
    }
}

impl From<&Workload> for DaemonSet {
    fn from(workload: &Workload) -> Self {
        let Workload { namespace, name, uid, created, is_over, is_ignored, pod, .. } = workload.clone();
        let (template, resource_version) = (pod.operator, String::new());
        Self { namespace, name, uid, resource_version, created, is_over, is_ignored, template }
    }
}
