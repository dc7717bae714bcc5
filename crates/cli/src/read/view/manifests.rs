//! Reads manifests into a view.

use std::io::Read;
use std::marker::PhantomData;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_analysis::autoscalers::{Autoscalers, are_read_from};
use winpool_analysis::finding::Finding;
use winpool_analysis::kinds::{WorkloadKind, is_own};
use winpool_analysis::lint::wellformed::{check_malformed, check_old_class, check_without_template};
use winpool_analysis::pod::{Pod, PodEvent};
use winpool_analysis::snapshot;
use winpool_analysis::view::{GMSA_GROUP, Known, Position, Reduced, Related, SeenNode, View, Workload};
use winpool_analysis::workload::WorkloadManifest;
use winpool_core::api::{ObjectReference, names};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::pod::PodProgress;

use crate::manifests::{self, Copies, InputError, Keep, Manifest};
use crate::read::gaps::Gaps;

use super::assembled::assembled;
use super::cluster::{RBAC, SeenOnWire, is_of_deployment, labels};
use super::event;
use super::needs::Needs;
use super::seen::Seen;

/// The nodes that one of a snapshot stands for, at most. Kubernetes supports 5,000.
const MOST_NODES: usize = 15_000;

/// `stdin` is read in place of `-`.
pub(super) fn read<N: Needs>(paths: &[PathBuf], stdin: impl Read, namespace: &str) -> Result<Seen, InputError> {
    let manifests = manifests::read::<Kept<N>>(paths, stdin)?;
    let gaps = Gaps::of_manifests(manifests.are_complete);
    let (mut view, mut templates) = (View::default(), Vec::new());
    for (source, Kept { part, .. }) in manifests.found {
        match part {
            ManifestObject::Template(object) => templates.push(object),
            part => part.add_to(&mut view, source, namespace),
        }
    }
    if !N::FINISHED
        && let Known::Partial(pods) = &mut view.pods
    {
        pods.retain(|pod| pod.progress != PodProgress::Finished);
    }
    view.autoscalers = Autoscalers::read(&templates, Vec::new());
    if N::DECODED {
        view.sort();
    }
    Ok(Seen { view, gaps })
}

enum ManifestObject {
    /// A node, and the number of nodes that it stands for.
    Node(Box<SeenNode>, usize),
    Service(Value),
    CredentialSpec(Value),
    Pool(Box<GuardedPool>),
    /// A RuntimeClass, with a finding if no API server serves its version.
    Class(Box<RuntimeClass>, Option<Finding>),
    /// An object that describes the nodes that an autoscaler can create.
    Template(Value),
    Pod(Box<Pod>, Option<Reduced>),
    Event(Box<PodEvent>),
    /// An object with its workloads, one for each pod template.
    Workload(&'static WorkloadKind, Vec<Workload>, Option<Reduced>),
    /// A pod or workload as it was written.
    Written(Reduced),
    /// A workload of another kind, for commands that do not read its templates.
    Unread(ObjectReference),
    /// A workload without a pod spec, or with one that cannot be read, and the part of it that can.
    Refused(Vec<Finding>, Option<Reduced>),
    /// A namespace. Its labels say whose its workloads are; no rule checks it.
    Namespace(Value),
    /// An object that workloads refer to, with its kind. No rule checks it.
    Related(Value, String),
    /// A role or a binding, with its kind. No rule checks it.
    Permission(Value, String),
    Skipped(String),
}

/// An object with what a command needs of it.
struct Kept<N> {
    part: ManifestObject,
    needs: PhantomData<N>,
}

impl<N: Needs> Keep for Kept<N> {
    const COPIES: Copies = N::COPIES;

    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        let (api_version, kind) = (manifest.api_version.clone(), manifest.kind.clone());
        let manifest = Manifest { api_version, kind, value: manifest.typed() };
        let is_decoded = N::DECODED && (!N::OBJECTS || is_decoded(&manifest));
        let part = if is_decoded { decoded(manifest, N::WRITTEN)? } else { Some(written(manifest)?) };
        Ok(part.map(|part| Self { part, needs: PhantomData }))
    }
}

/// True for a pod or workload with a pod spec that the operator reads, and for an object that describes nodes of an autoscaler.
fn is_decoded(manifest: &Manifest) -> bool {
    let kind = WorkloadKind::of(manifest.group(), &manifest.kind);
    let is_listed = kind.is_some_and(|kind| kind.has_template() || kind.name == "Pod");
    let has_pods = || WorkloadManifest::read_all(&manifest.value).is_ok_and(|workloads| !workloads.is_empty());
    is_listed && !is_of_deployment(&manifest.value) && has_pods() || are_read_from(manifest.group(), &manifest.kind)
}

/// Reads an object for commands that need it as it was written.
fn written(manifest: Manifest) -> Result<ManifestObject, serde_json::Error> {
    let manifest = Manifest { value: assembled(manifest.value), ..manifest };
    match WorkloadManifest::read_all(&manifest.value) {
        Ok(workloads) if !workloads.is_empty() => return Ok(ManifestObject::Written(manifest.value.into())),
        Ok(_) => {}
        Err(_) => {
            let (findings, rest) = check_malformed(&manifest.value);
            let is_readable = |rest: &Value| matches!(WorkloadManifest::read(rest), Ok(Some(_)));
            return Ok(ManifestObject::Refused(findings, rest.filter(is_readable).map(Reduced::from)));
        }
    }
    if is_own(manifest.group(), &manifest.kind) {
        return Ok(ManifestObject::Refused(check_without_template(&manifest.value), None));
    }
    Ok(if manifest.is("", "Service") {
        ManifestObject::Service(manifest.value)
    } else if manifest.is(GMSA_GROUP, "GMSACredentialSpec") {
        ManifestObject::CredentialSpec(manifest.value)
    } else if manifest.is("", "Namespace") {
        ManifestObject::Namespace(manifest.value)
    } else if Related::keeps(manifest.group(), &manifest.kind) {
        ManifestObject::Related(manifest.value, manifest.kind)
    } else if manifest.group() == RBAC {
        ManifestObject::Permission(manifest.value, manifest.kind)
    } else {
        let kind = manifest.kind.clone();
        of_cluster(manifest)?.unwrap_or(ManifestObject::Skipped(kind))
    })
}

/// Reads an object for commands that need it as the operator reads it, and pods and workloads also as they were
/// written if they are `written`. Returns `None` for an object of another kind.
fn decoded(mut manifest: Manifest, is_written: bool) -> Result<Option<ManifestObject>, serde_json::Error> {
    if let Value::Object(fields) = &mut manifest.value {
        // kubectl reads an object without a name too.
        fields.entry("metadata").or_insert_with(|| json!({}));
    }
    let kind = WorkloadKind::of(manifest.group(), &manifest.kind).filter(|kind| kind.has_template());
    let text = |value| is_written.then(|| Reduced::from(value));
    Ok(Some(if let Some(kind) = kind {
        let workloads = decode(&manifest.value, |object| Workload::read_all(kind, object))?;
        ManifestObject::Workload(kind, workloads, text(manifest.value))
    } else if manifest.is("", "Pod") {
        ManifestObject::Pod(Box::new(decode(&manifest.value, Pod::of_manifest)?), text(manifest.value))
    } else if is_written && (manifest.is("", "Event") || manifest.is("events.k8s.io", "Event")) {
        let group = manifest.group().to_owned();
        return Ok(event::read(&group, manifest.value)?.map(|event| ManifestObject::Event(event.into())));
    } else if are_read_from(manifest.group(), &manifest.kind) {
        ManifestObject::Template(manifest.value)
    } else if manifest.is("", "Namespace") {
        ManifestObject::Namespace(manifest.value)
    } else if Related::keeps(manifest.group(), &manifest.kind) {
        ManifestObject::Related(manifest.value, manifest.kind)
    } else {
        let workload = if is_written { None } else { unread(&mut manifest) };
        return Ok(of_cluster(manifest)?.or(workload));
    }))
}

/// Returns the object if it is of another kind and creates pods.
fn unread(manifest: &mut Manifest) -> Option<ManifestObject> {
    if is_own(manifest.group(), &manifest.kind) {
        return None;
    }
    manifest.value = assembled(mem::take(&mut manifest.value));
    let workloads = WorkloadManifest::read_all(&manifest.value).ok()?;
    workloads.first().map(|workload| ManifestObject::Unread(workload.object()))
}

/// Reads a node, a pool or a RuntimeClass. Returns `None` for an object of another kind.
fn of_cluster(manifest: Manifest) -> Result<Option<ManifestObject>, serde_json::Error> {
    Ok(Some(if manifest.is("", "Node") {
        let number = number_of_nodes(&manifest.value);
        ManifestObject::Node(Box::new(SeenOnWire::try_from(manifest.value)?.0), number)
    } else if manifest.is(names::GROUP, "WindowsPool") {
        ManifestObject::Pool(manifest.into_pool()?)
    } else if manifest.is("node.k8s.io", "RuntimeClass") {
        class(manifest)?
    } else {
        return Ok(None);
    }))
}

/// Returns the number of equal nodes that a node of a snapshot stands for.
fn number_of_nodes(node: &Value) -> usize {
    let number = node["metadata"]["annotations"][snapshot::NODES].as_str();
    number.and_then(|number| number.parse().ok()).unwrap_or(1).min(MOST_NODES)
}

/// Reads a RuntimeClass. Version `v1beta1` has the fields of `v1`.
fn class(mut manifest: Manifest) -> Result<ManifestObject, serde_json::Error> {
    let is_old = manifest.api_version == "node.k8s.io/v1beta1";
    let finding = is_old.then(|| check_old_class(&manifest.value, &manifest.api_version));
    if is_old {
        manifest.value["apiVersion"] = "node.k8s.io/v1".into();
    }
    Ok(ManifestObject::Class(Box::new(RuntimeClass::deserialize(manifest.value)?), finding))
}

/// Reads a pod or workload. The error names the field that has the wrong type.
fn decode<T>(
    object: &Value,
    read: impl FnOnce(&Value) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    read(object).map_err(|error| {
        let finding = check_malformed(object).0.into_iter().next();
        let named = finding.map(|finding| format!("{}: {}", finding.field, finding.message));
        named.map_or(error, <serde_json::Error as serde::de::Error>::custom)
    })
}

impl ManifestObject {
    fn add_to(self, view: &mut View, source: Position, namespace: &str) {
        match self {
            Self::Node(mut node, number) => {
                node.source = Some(source);
                for index in 1..number {
                    let mut equal = SeenNode::clone(&node);
                    equal.object.name = format!("{}-{index}", node.object.name).into();
                    view.nodes.add(equal);
                }
                view.nodes.add(*node);
            }
            Self::Service(service) => view.services.add((Some(source), service)),
            Self::CredentialSpec(object) => view.credential_specs.add((Some(source), object)),
            Self::Pool(pool) => view.pools.add((Some(source), *pool)),
            Self::Class(class, finding) => {
                view.refused.extend(finding.map(|finding| (source, finding)));
                view.classes.add((*class).into());
            }
            Self::Pod(mut pod, text) => {
                set_namespace(&mut pod.namespace, namespace);
                if let Some(text) = text {
                    view.written.add(Some(source.clone()), text);
                }
                view.pods.add(*pod);
            }
            Self::Event(mut event) => {
                set_namespace(&mut event.namespace, namespace);
                view.events.add(*event);
            }
            Self::Workload(kind, workloads, text) => {
                if let Some(text) = text {
                    view.written.add(Some(source.clone()), text);
                }
                for mut workload in workloads {
                    set_namespace(&mut workload.namespace, namespace);
                    view.workloads.of_kind(kind).add(workload);
                }
            }
            Self::Unread(object) => view.unread.push(object),
            Self::Written(text) => view.written.add(Some(source), text),
            Self::Refused(findings, rest) => {
                view.refused.extend(findings.into_iter().map(|finding| (source.clone(), finding)));
                if let Some(rest) = rest {
                    view.written.add(Some(source), rest);
                }
            }
            Self::Namespace(namespace) => {
                *view.skipped.entry("Namespace".to_owned()).or_default() += 1;
                view.namespace_labels.extend(labels(&namespace));
            }
            Self::Related(object, kind) => {
                Arc::make_mut(&mut view.related).add(&kind, namespace, object);
                *view.skipped.entry(kind).or_default() += 1;
            }
            Self::Permission(object, kind) => {
                *view.skipped.entry(kind).or_default() += 1;
                view.permissions.add(object);
            }
            Self::Skipped(kind) => *view.skipped.entry(kind).or_default() += 1,
            Self::Template(_) => {}
        }
    }
}

/// Sets the namespace of an object that names none.
fn set_namespace(written: &mut String, namespace: &str) {
    if written.is_empty() {
        namespace.clone_into(written);
    }
}
