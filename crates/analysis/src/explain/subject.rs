//! The workloads of a cluster, each with the template of its pods.

use std::collections::{BTreeMap, BTreeSet};

use winpool_core::api::{ObjectReference, Taint};
use winpool_core::pod::tolerations::toleration;
use winpool_core::pod::{self as operator, Class};
use winpool_core::windows::Build;

use super::forecast::{Simulation, Snapshot, new_pod};
use crate::kinds::WorkloadKind;
use crate::pod::{ClassExt, Pod, PodSpec};
use crate::verdict::{Cluster, History, PlacedBy, Subject};
use crate::view::Started;
use crate::view::assume::Assumed;
use crate::workload::DEFAULT_NAMESPACE;

/// A workload.
#[derive(Clone)]
pub struct WorkloadSubject {
    pub object: ObjectReference,
    /// Its kind, if winpool knows the field with its template.
    pub kind: Option<&'static WorkloadKind>,
    /// The path of the pod spec, if the object has several.
    pub path: Option<String>,
    /// A pod as the template says.
    pub template: Pod,
    history: History,
    /// The builds of the nodes on which its containers have started.
    pub started_on: BTreeSet<Build>,
    /// Kind and name of the object that controls it.
    controller: Option<(String, String)>,
    /// The nodes to which its pods are bound.
    bound_to: BTreeSet<String>,
}

impl WorkloadSubject {
    /// Returns the workload with another template.
    pub fn changed(&self, spec: PodSpec) -> Self {
        Self { template: Pod { spec, ..self.template.clone() }, ..self.clone() }
    }

    /// Returns the question about its new pods.
    pub fn question(&self) -> Subject<'_> {
        Subject { pod: &self.template, placed_by: PlacedBy::of(self.kind), history: self.history }
    }

    /// True if one of its pods is on a node that changes.
    pub fn is_on(&self, assumed: &Assumed) -> bool {
        self.bound_to.iter().any(|node| assumed.nodes.contains_key(node))
    }

    /// True if it is the object, or the object controls it.
    pub fn stands_for(&self, object: &ObjectReference) -> bool {
        let is_controlled = |(kind, name): &(String, String)| {
            (kind, name, &self.object.namespace) == (&object.kind, &object.name, &object.namespace)
        };
        self.object == *object || self.controller.as_ref().is_some_and(is_controlled)
    }
}

/// Returns the workloads with a template, and those of other kinds that pods name as their controller. Pods of the
/// latter tell what the template says.
pub fn subjects(snapshot: &Snapshot, started: &Started, there: &Cluster) -> Vec<WorkloadSubject> {
    let mut pods: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for pod in snapshot.pods.known().into_iter().flatten().filter(|pod| !pod.is_mirror && pod.controller.is_some()) {
        pods.entry(pod.workload()).or_default().push(pod);
    }
    let workloads: Vec<_> = snapshot.workloads.known().into_iter().flatten().collect();
    let listed: BTreeSet<String> = workloads.iter().map(|(_, workload)| workload.object().to_string()).collect();
    let mut with_children: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for (child, own) in &pods {
        for name in [Some(child.as_str()), started.controller(child)].into_iter().flatten() {
            with_children.entry(name).or_default().extend(own);
        }
    }
    let systems: BTreeMap<&str, bool> = there.nodes.iter().map(|node| (&*node.name, node.is_windows())).collect();
    let subject = |object, kind, template, pods: &[&Pod], started_on| WorkloadSubject {
        object,
        kind,
        path: None,
        template,
        history: History::of(pods.iter().copied(), |name| systems.get(name).copied()),
        started_on,
        controller: None,
        bound_to: pods.iter().filter_map(|pod| pod.spec.node.clone()).collect(),
    };
    let is_owned = |name: &str| started.controller(name).is_some_and(|controller| listed.contains(controller));
    let cluster = Simulation::new(snapshot);
    let on_windows = started.on_windows();
    let new = workloads.iter().enumerate().filter_map(|(index, (_, workload))| {
        let has_run_there = on_windows.get(&workload.object().to_string()) == Some(&true);
        Some((index, (new_pod(workload)?, has_run_there)))
    });
    let (places, new): (Vec<usize>, Vec<_>) = new.unzip();
    let added: BTreeMap<usize, Vec<Taint>> = places.into_iter().zip(cluster.added_tolerations(new)).collect();
    let mut found = Vec::new();
    for (index, (kind, workload)) in workloads.into_iter().enumerate() {
        let name = workload.object().to_string();
        let is_left_over = workload.controller.is_some() && (is_owned(&name) || workload.replicas == 0);
        if workload.is_over || is_left_over {
            continue;
        }
        let own = with_children.get(&*name).map_or(&[][..], Vec::as_slice);
        let mut template = workload.pod();
        template.spec.tolerations.extend(added.get(&index).into_iter().flatten().map(toleration));
        let (controller, path) = (workload.controller.clone(), workload.own_path().map(str::to_owned));
        let of_object = subject(workload.object(), Some(kind), template, own, started.builds(&name));
        found.push(WorkloadSubject { path, controller, ..of_object });
    }
    for (name, own) in &pods {
        let is_shown = |pod: &&Pod| {
            let (kind, controller) = pod.controller.clone().unwrap_or_default();
            listed.contains(&format!("{kind} {}/{controller}", pod.namespace))
        };
        if listed.contains(name) || is_owned(name) || own.iter().any(is_shown) {
            continue;
        }
        let Some((newest, (kind, rest))) = own.iter().max_by_key(|pod| pod.created).zip(name.split_once(' ')) else {
            continue;
        };
        let (namespace, own_name) = rest.split_once('/').unwrap_or_default();
        let object = reference(kind, namespace, own_name);
        found.push(subject(
            object,
            newest.workload_kind(),
            template_of(newest, &there.classes),
            own,
            started.builds(name),
        ));
    }
    found.sort_by(|a, b| (&a.object.namespace, &a.object, &a.path).cmp(&(&b.object.namespace, &b.object, &b.path)));
    found
}

/// Returns the pod as its template said, as far as that can be determined.
fn template_of(pod: &Pod, classes: &BTreeMap<String, Class>) -> Pod {
    let mut spec = pod.spec.clone();
    spec.node = None;
    if pod.workload_kind().is_some_and(WorkloadKind::is_daemon_set) {
        // The DaemonSet controller replaces the affinity of the template with its own.
        spec.terms.clear();
    }
    if let Some((name, class)) = pod.spec.runtime_class.as_ref().and_then(|name| classes.get_key_value(name)) {
        class.remove_from(&mut spec);
        spec.runtime_class = Some(name.clone());
    }
    let operator = operator::Pod { namespace: pod.namespace.clone(), ..operator::Pod::default() };
    Pod { operator, spec, os_label: pod.os_label.clone(), ..Pod::default() }
}

pub fn reference(kind: &str, namespace: &str, name: &str) -> ObjectReference {
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
    ObjectReference { kind: kind.to_owned(), namespace: Some(namespace.to_owned()), name: name.to_owned() }
}
