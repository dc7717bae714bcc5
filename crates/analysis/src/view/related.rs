//! Objects that workloads refer to by name.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kinds::group_of;
use crate::workload::get;

use super::policies::{ADMISSION, BINDING, POLICY};

/// A kind of objects that workloads refer to.
#[derive(Clone, Copy, Debug)]
pub struct RelatedKind {
    /// Its versions. A cluster may serve several, which have the same objects.
    pub api_versions: &'static [&'static str],
    pub kind: &'static str,
    pub is_namespaced: bool,
    /// A text that is in each workload which refers to one, perhaps through others; empty for what concerns all.
    pub mention: &'static str,
}

pub(crate) const KUEUE: &[&str] = &["kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"];

/// Claims with their `StorageClass`, the queues of Kueue with their flavors, and admission policies.
pub const RELATED: [RelatedKind; 7] = [
    related(&["v1"], "PersistentVolumeClaim", true, "\"persistentVolumeClaim\""),
    // Also of `volumeClaimTemplates` and of `ephemeral.volumeClaimTemplate`.
    related(&["storage.k8s.io/v1"], "StorageClass", false, "olumeClaim"),
    related(KUEUE, "LocalQueue", true, QUEUE),
    related(KUEUE, "ClusterQueue", false, QUEUE),
    related(KUEUE, "ResourceFlavor", false, QUEUE),
    related(ADMISSION, POLICY, false, ""),
    related(ADMISSION, BINDING, false, ""),
];

/// The configuration of PodSecurity that an API server reads from a file. It may be in an `AdmissionConfiguration`.
pub(crate) const CONFIGURATION: &str = "PodSecurityConfiguration";
const CONFIGURATIONS: [(&str, &str); 2] =
    [("pod-security.admission.config.k8s.io", CONFIGURATION), ("apiserver.config.k8s.io", "AdmissionConfiguration")];

/// The parameters of a `StorageClass` with the file system: drivers know the first, and some the others.
pub(crate) const FILE_SYSTEM: [&str; 3] = ["csi.storage.k8s.io/fstype", "fsType", "fstype"];
pub(crate) const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The label with the `LocalQueue` of a workload.
pub(crate) const QUEUE: &str = "kueue.x-k8s.io/queue-name";

const fn related(
    api_versions: &'static [&'static str],
    kind: &'static str,
    is_namespaced: bool,
    mention: &'static str,
) -> RelatedKind {
    RelatedKind { api_versions, kind, is_namespaced, mention }
}

/// The known objects of these kinds. One that is missing is not known, unless its kind is listed.
#[derive(Clone, Debug, Default)]
pub struct Related {
    objects: BTreeMap<(String, String, String), Value>,
    listed: BTreeMap<&'static str, Result<(), String>>,
}

impl Related {
    /// True if objects of this kind are kept.
    pub fn keeps(group: &str, kind: &str) -> bool {
        let is_in_group = |related: &RelatedKind| related.api_versions.iter().any(|version| group_of(version) == group);
        RELATED.iter().any(|related| related.kind == kind && is_in_group(related))
            || CONFIGURATIONS.contains(&(group, kind))
    }

    /// Adds an object of this kind. One that names no namespace, and needs one, is in this one.
    pub fn add(&mut self, kind: &str, namespace: &str, object: Value) {
        let is_namespaced = RELATED.iter().any(|related| related.kind == kind && related.is_namespaced);
        let own = get(&object, &["metadata", "namespace"]).and_then(Value::as_str).unwrap_or(namespace);
        let namespace = if is_namespaced { own } else { "" };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.objects.insert((kind.to_owned(), namespace.to_owned(), name.to_owned()), object);
    }

    pub fn extend(&mut self, other: Self) {
        self.objects.extend(other.objects);
        self.listed.extend(other.listed);
    }

    /// Notes that all objects of this kind are known, or why they are not.
    pub fn set_listed(&mut self, kind: &'static str, listed: Result<(), String>) {
        self.listed.insert(kind, listed);
    }

    /// Returns if all objects of this kind are known, or why they are not; `None` if nobody asked.
    pub(crate) fn listed(&self, kind: &str) -> Option<Result<(), &str>> {
        self.listed.get(kind).map(|listed| listed.as_ref().map_err(String::as_str).copied())
    }

    /// Returns the object with this name. An object without a namespace has an empty one.
    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// Returns all objects of this kind.
    pub(crate) fn all(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((of, ..), _)| of == kind).map(|(_, object)| object)
    }
}
