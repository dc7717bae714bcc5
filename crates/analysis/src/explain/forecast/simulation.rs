//! A copy of a cluster in memory, in which the operator runs until it has nothing left to do.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::api::{Problem, Taint, names};
use winpool_core::plan::classes::runtime_class::owner;
use winpool_core::plan::pods::{ClassPods, ClusterFacts, PodTable, TolerationRequest, UnknownPods};
use winpool_core::plan::pools::pool::{Pool, policy_of};
use winpool_core::plan::reconcile::taints::HeldTaints;
use winpool_core::pod::{self as operator, Class, PodProgress};
use winpool_simulation::Cluster;

use crate::pod::{ClassExt, Pod, table_of};
use crate::view::{Known, Request, Workload};

use super::snapshot::Snapshot;

/// The uid of pods that have none. winpool adds tolerations only to pods that have one.
const UID: &str = "00000000-0000-4000-8000-000000000001";

/// A cluster in memory, with the operator, and its pods and workloads.
pub struct Simulation<'s> {
    pub(super) cluster: Cluster,
    snapshot: &'s Snapshot,
}

/// True for a pod of a manifest with `nodeName`: the scheduler does not place it, so taints do not matter to it.
fn is_placed_by_author(pod: &Pod) -> bool {
    pod.spec.node.is_some() && !pod.is_bound && pod.progress == PodProgress::Waiting
}

/// True for a pod that the API server does not have yet.
fn is_new(pod: &Pod) -> bool {
    pod.creation(Request::Pod).request == Request::Pod
}

/// The pod as the operator sees it in a cluster, where every pod has a uid.
fn existing(pod: &Pod) -> operator::Pod {
    operator::Pod { uid: UID.to_owned(), ..operator::Pod::from(pod) }
}

/// A pod that the workload would create; `None` for a DaemonSet, whose controller makes none that winpool could change.
pub fn new_pod(workload: &Workload) -> Option<Pod> {
    (!workload.is_daemon_set()).then(|| workload.new_pod())
}

impl<'s> Simulation<'s> {
    /// Returns the cluster of this snapshot, with an operator that has no state yet and has seen no pods.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let mut cluster = Cluster::new(snapshot.nodes.clone(), snapshot.now);
        snapshot.pools.iter().for_each(|pool| cluster.put_pool(pool));
        for class in &snapshot.classes {
            cluster.put_class(RuntimeClass::clone(class));
        }
        cluster.watch();
        Self { cluster, snapshot }
    }

    /// The pods that a scheduler or a controller places.
    fn placed_pods(&self) -> impl Iterator<Item = &'s Pod> {
        self.snapshot.pods.known().into_iter().flatten().filter(|pod| !is_placed_by_author(pod))
    }

    fn workloads(&self) -> impl Iterator<Item = &'s Workload> {
        self.snapshot.workloads.known().into_iter().flatten().map(|(_, workload)| workload)
    }

    /// Shows all pods and `DaemonSets` to the operator, as its watches do. A plan for manifests assumes that no pod needs a
    /// toleration, and says so.
    pub(super) fn watch_pods(&mut self) {
        let (Snapshot { pods, workloads, admission, .. }, now) = (self.snapshot, self.cluster.now);
        let mut table = table_of(self.placed_pods().map(existing), now);
        table.daemon_sets.begin_list();
        for workload in self.workloads().filter(|workload| workload.is_daemon_set()) {
            let mut set = workload.clone();
            admission.admit_by_policies(workload.creation(), &mut set.pod);
            table.daemon_sets.see(&(&set).into(), now.instant);
        }
        table.daemon_sets.end_list(now.instant);
        let denied = |reason: &str| UnknownPods::Denied(reason.to_owned());
        self.cluster.pods = table;
        self.cluster.unknown_pods = if let Known::Forbidden(reason) = pods { Some(denied(reason)) } else { None };
        self.cluster.unknown_daemon_sets = workloads.refused().get("daemonsets").map(|reason| denied(reason));
    }

    /// Returns the reason why taints of the pool are held, if it is known.
    pub(super) fn held(&mut self, pool: &Pool) -> Option<HeldTaints> {
        self.cluster.with_cluster(|cluster, memory, _| memory.held(cluster, pool, &memory.objections(cluster, pool)))
    }

    /// Returns the problems of the pools' classes that pods use, each with the pool: no node has what the class selects, or pods were
    /// created before it selected that.
    pub(super) fn class_problems(&mut self) -> Vec<(String, Problem)> {
        let Cluster { pools, classes, operator, pods, now, .. } = &mut self.cluster;
        let all: Vec<_> = classes.values().cloned().collect();
        pods.count(&ClusterFacts { nodes: &operator.windows, policy: &policy_of(pools), classes: &all }, *now);
        let summary = pods.summary().cloned().unwrap_or_default();
        let of_class = |(name, pods): (&String, &ClassPods)| {
            let class = classes.get(name)?;
            let is_compatible = Class::from(&**class).build().is_none();
            Some((owner(class)?.to_owned(), pods.problem(name, is_compatible)?))
        };
        summary.classes.iter().filter_map(of_class).collect()
    }

    /// The number of pods that would get tolerations, by pool and workload. A workload without pods has none: its next pods
    /// would get them.
    pub(super) fn helped(&self) -> BTreeMap<String, BTreeMap<String, usize>> {
        let have_pods: BTreeSet<String> = self.placed_pods().map(Pod::workload).collect();
        let templates = self.workloads().filter(|workload| workload.controller.is_none() && !workload.is_over);
        let of_templates = templates.filter_map(new_pod);
        let of_templates: Vec<Pod> = of_templates.filter(|pod| !have_pods.contains(&pod.workload())).collect();
        let pods = || self.placed_pods().chain(&of_templates);
        let of_new = self.pod_table(pods().filter(|pod| is_new(pod)).filter_map(|pod| self.created(pod)));
        let [by_new, by_existing] = [&of_new, &self.cluster.pods]
            .map(|table| table.help.lacking().map(|(name, pool)| (&**name, pool)).collect::<BTreeMap<_, _>>());
        let mut helped: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for pod in pods() {
            let lacking = if is_new(pod) { &by_new } else { &by_existing };
            let Some(pool) = lacking.get(&*format!("{}/{}", pod.namespace, pod.name)) else { continue };
            let workload = pod.workload();
            let counts = have_pods.contains(&workload);
            *helped.entry((*pool).clone()).or_default().entry(workload).or_default() += usize::from(counts);
        }
        helped
    }

    /// Returns the taints whose tolerations the operator adds to each of these new pods. The flag is true for a pod of a workload
    /// whose pods have started, and only on Windows nodes.
    pub fn added_tolerations(&self, new: impl IntoIterator<Item = (Pod, bool)>) -> Vec<Vec<Taint>> {
        let mut number = 0;
        let created = new.into_iter().map(|(mut pod, has_run_there)| {
            // The operator remembers it. A pod that says the system stands for this.
            if has_run_there && pod.spec.said_system(None, || None).is_none() {
                pod.spec.node_selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
            }
            pod.name = number.to_string();
            number += 1;
            self.created(&pod)
        });
        let mut table = self.pod_table(created.collect::<Vec<_>>().into_iter().flatten());
        let mut added = vec![Vec::new(); number];
        while let Some(TolerationRequest { namespace, pod, taints, .. }) = table.next_help(self.cluster.now.instant) {
            // A namespace has a few requests at a time.
            table.helped(&format!("{namespace}/{pod}"), Ok(()), self.cluster.now);
            if let Some(found) = pod.parse().ok().and_then(|index: usize| added.get_mut(index)) {
                *found = taints;
            }
        }
        added
    }

    /// The operator's table of these pods alone, which it has looked at.
    fn pod_table(&self, pods: impl IntoIterator<Item = operator::Pod>) -> PodTable {
        let now = self.cluster.now;
        let mut table = table_of(pods, now);
        table.look(Some(self.cluster.windows_nodes()), now.instant);
        table
    }

    /// The pod as the API server has it, which gives a uid to a new pod, and what its RuntimeClass adds. `None` if it refuses the
    /// pod because the class selects other nodes.
    fn created(&self, pod: &Pod) -> Option<operator::Pod> {
        if !is_new(pod) {
            return Some(existing(pod));
        }
        let mut new = pod.clone();
        self.snapshot.admission.admit_by_policies(pod.creation(Request::Pod), &mut new.spec);
        let class = new.spec.runtime_class.as_ref().and_then(|name| self.cluster.classes.get(name));
        if let Some(class) = class {
            let class = Class::from(&**class);
            if class.conflict(&new.spec).is_some() {
                return None;
            }
            class.admit(&mut new.spec);
        }
        let mut new = existing(&new);
        // The operator waits for the scheduler's first answer.
        new.start_status.is_unschedulable = true;
        Some(new)
    }
}
