//! A cluster in memory with an API server and the operator. Its clock advances only when the caller sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use winpool_core::api::{Problem, Taint, WindowsPoolStatus, names};
use winpool_core::node::{NodeFields, NodeObject};
use winpool_core::plan::Now;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::classes::runtime_class::owner;
use winpool_core::plan::nodes::{NodeAnswer, NodeEvent, NodeStep, NodeTable, OtherNodes};
use winpool_core::plan::patch::finalizers;
use winpool_core::plan::pods::{
    ClassPods, ClusterFacts, PodHealth, PodTable, TolerationRequest, UnknownPods, WindowsNodes,
};
use winpool_core::plan::pools::pool::{GuardedPool, Policy, Pool, policy_of};
use winpool_core::plan::reconcile::taints::HeldTaints;
use winpool_core::plan::reconcile::{Answer, CachedCluster, ClassRequest, Memory, Pauses, Step, next};
use winpool_core::pod::{self as operator, Class, PodProgress};

use crate::kinds::WorkloadKind;
use crate::pod::{ClassExt, Pod, table_of};
use crate::view::{Admission, Known, Request, Workload, after, changed_pool};

use super::class_request::apply_request;
use super::snapshot::Snapshot;

/// The time before the operator retries a refused request, and the time that a deletion waits without progress.
const PATIENCE: Duration = Duration::from_mins(10);

/// The uid of pods that have none. winpool adds tolerations only to pods that have one.
const UID: &str = "00000000-0000-4000-8000-000000000001";

/// A cluster in memory, with the operator.
pub struct Simulation {
    pub(super) pools: Vec<Arc<GuardedPool>>,
    /// The nodes by name. The name is also the uid.
    pub(super) nodes: BTreeMap<String, NodeFields>,
    /// The RuntimeClasses by name.
    pub(super) classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// The unfinished pods, or the reason why they cannot be listed.
    pub(super) pods: Result<Vec<Pod>, String>,
    /// The objects that create pods from a template.
    pub(super) workloads: Vec<(&'static WorkloadKind, Workload)>,
    /// The state that the operator keeps in memory.
    pub(super) memory: Memory,
    /// The policy by which the operator changes nodes.
    pub(super) published: Option<Arc<Policy>>,
    /// The operator's tables of Windows nodes, and of nodes that came back with another system.
    windows: NodeTable,
    reimaged: NodeTable,
    /// The operator's table of pods.
    table: PodTable,
    /// The reason why the operator does not know the pods, if it does not.
    pub(super) unknown_pods: Option<UnknownPods>,
    /// The reason why the operator does not know the `DaemonSets`, if it does not.
    unknown_daemon_sets: Option<UnknownPods>,
    /// What the API server adds to new pods.
    admission: Admission,
    /// The current time.
    pub(super) now: Now,
    version: u64,
}

/// True for a pod of a manifest with `nodeName`: the scheduler does not place it, so taints do not matter to it.
fn is_placed_by_author(pod: &Pod) -> bool {
    pod.spec.node.is_some() && !pod.is_bound && pod.progress == PodProgress::Waiting
}

/// A pod that the workload would create; `None` for a DaemonSet, whose controller makes none that winpool could change.
pub fn new_pod(kind: &'static WorkloadKind, workload: &Workload) -> Option<Pod> {
    (!kind.is_daemon_set()).then(|| workload.new_pod())
}

impl Simulation {
    /// Returns the cluster of this snapshot, with an operator that has no state yet.
    pub fn new(snapshot: Snapshot) -> Self {
        let pods = match snapshot.pods {
            Known::Complete(pods) | Known::Partial(pods) => Ok(pods),
            Known::Forbidden(message) => Err(message),
            // A plan for manifests assumes that no pod needs a toleration, and says so.
            Known::NotRead => Ok(Vec::new()),
        };
        let unknown_pods = pods.as_ref().err().cloned().map(UnknownPods::Denied);
        let workloads = snapshot.workloads.known().into_iter().flatten();
        let stored = |(kind, workload): (&'static WorkloadKind, &Workload)| {
            let mut stored = workload.clone();
            if kind.is_daemon_set() {
                snapshot.admission.admit_by_policies(workload.creation(), &mut stored.pod);
            }
            (kind, stored)
        };
        let workloads = workloads.map(stored).collect();
        let refused = snapshot.workloads.refused();
        let refused = refused.get("daemonsets");
        let unknown_daemon_sets = refused.map(|reason| UnknownPods::Denied((*reason).to_owned()));
        let mut simulation = Self {
            pools: Vec::new(),
            nodes: snapshot.nodes,
            classes: BTreeMap::new(),
            pods,
            workloads,
            memory: Memory::new(PATIENCE, Pauses::default()),
            published: None,
            windows: NodeTable::new(PATIENCE),
            reimaged: NodeTable::new(PATIENCE),
            table: PodTable::default(),
            unknown_pods,
            unknown_daemon_sets,
            admission: snapshot.admission,
            now: snapshot.now,
            version: 0,
        };
        for mut pool in snapshot.pools {
            let name = pool.name_any();
            pool.metadata.uid.get_or_insert(name);
            pool.metadata.resource_version = Some(simulation.next_version());
            simulation.pools.push(Arc::new(pool));
        }
        for mut class in snapshot.classes {
            let name = class.name_any();
            let metadata = &mut Arc::make_mut(&mut class).metadata;
            metadata.uid.get_or_insert_with(|| name.clone());
            metadata.resource_version = Some(simulation.next_version());
            simulation.classes.insert(name, class);
        }
        simulation.watch_pods();
        simulation.watch();
        simulation
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn update_pool(&mut self, name: &str, change: impl FnOnce(&mut GuardedPool)) {
        let version = self.next_version();
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.name_any() == name) {
            let pool = Arc::make_mut(pool);
            change(pool);
            pool.metadata.resource_version = Some(version);
        }
    }

    /// Adds or replaces this class.
    fn put_class(&mut self, mut class: RuntimeClass) -> Arc<RuntimeClass> {
        class.metadata.resource_version = Some(self.next_version());
        let (name, class) = (class.name_any(), Arc::new(class));
        self.classes.insert(name, Arc::clone(&class));
        class
    }

    /// Shows all nodes to the operator, as its watch does.
    fn watch(&mut self) {
        let (policy, now) = (self.memory.policy(&self.pools), self.now.instant);
        for table in [&mut self.windows, &mut self.reimaged] {
            table.count_by(policy.clone(), now);
        }
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            let Some(object) = self.object(&name) else { continue };
            let (mut shows, mut hides) = (&mut self.windows, &mut self.reimaged);
            if !object.node.is_windows() {
                std::mem::swap(&mut shows, &mut hides);
            }
            hides.observe(NodeEvent::Deleted(Arc::clone(&object.name)), now);
            shows.observe(NodeEvent::Seen(object), now);
        }
    }

    /// The pods that a scheduler or a controller places.
    fn placed_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().flatten().filter(|pod| !is_placed_by_author(pod))
    }

    /// Shows all pods to the operator, as its watch does.
    fn watch_pods(&mut self) {
        self.table = table_of(self.placed_pods().map(operator::Pod::from), self.now);
        self.table.daemon_sets.begin_list();
        for (_, set) in self.workloads.iter().filter(|(kind, _)| kind.is_daemon_set()) {
            self.table.daemon_sets.see(&set.into(), self.now.instant);
        }
        self.table.daemon_sets.end_list(self.now.instant);
    }

    fn object(&mut self, name: &str) -> Option<Arc<NodeObject>> {
        let resource_version = self.next_version().into();
        let node = self.nodes.get(name)?.clone();
        Some(Arc::new(NodeObject { name: name.into(), uid: name.into(), resource_version, node, other_writer: None }))
    }

    /// The Windows nodes, pools and RuntimeClasses by which the operator decides which pods lack tolerations.
    fn windows_nodes(&self) -> WindowsNodes {
        let classes: Vec<_> = self.classes.values().cloned().collect();
        let mut others = OtherNodes::default();
        for (name, node) in self.nodes.iter().filter(|(name, _)| self.windows.object(name).is_none()) {
            others.see(name.as_str().into(), &node.labels);
        }
        let facts = ClusterFacts { nodes: &self.windows, policy: &policy_of(&self.pools), classes: &classes };
        WindowsNodes::of(&facts, others, &self.reimaged)
    }

    /// Shows the cluster and the present moment to the operator.
    fn with_cluster<T>(&mut self, work: impl FnOnce(&mut CachedCluster<'_>, &mut Memory, Now) -> T) -> T {
        self.table.look(Some(self.windows_nodes()), self.now.instant);
        let classes: Vec<_> = self.classes.values().cloned().collect();
        let mut cluster = CachedCluster {
            pools: &self.pools,
            classes: &classes,
            nodes: &mut self.windows,
            unconfined: None,
            outages: BTreeMap::new(),
            pods: self.unknown_pods.clone().map_or(Ok(&self.table), Err),
            unknown_daemon_sets: self.unknown_daemon_sets.clone(),
            // A forecast does without.
            health: PodHealth::Off,
        };
        work(&mut cluster, &mut self.memory, self.now)
    }

    /// Returns the reason why taints of the pool are held, if it is known.
    pub(super) fn held(&mut self, pool: &Pool) -> Option<HeldTaints> {
        self.with_cluster(|cluster, memory, _| memory.held(cluster, pool, &memory.objections(cluster, pool)))
    }

    /// Returns the problems of the pools' classes that pods use, each with the pool: no node has what the class selects, or pods were
    /// created before it selected that.
    pub(super) fn class_problems(&mut self) -> Vec<(String, Problem)> {
        let classes: Vec<_> = self.classes.values().cloned().collect();
        let facts = ClusterFacts { nodes: &self.windows, policy: &policy_of(&self.pools), classes: &classes };
        self.table.count(&facts, self.now);
        let summary = self.table.summary().cloned().unwrap_or_default();
        let of_class = |(name, pods): (&String, &ClassPods)| {
            let class = self.classes.get(name)?;
            let is_compatible = Class::from(&**class).build().is_none();
            Some((owner(class)?.to_owned(), pods.problem(name, is_compatible)?))
        };
        summary.classes.iter().filter_map(of_class).collect()
    }

    /// The number of pods that would get tolerations, by pool and workload. A workload without pods has none: its next pods
    /// would get them.
    pub(super) fn helped(&self) -> BTreeMap<String, BTreeMap<String, usize>> {
        let have_pods: BTreeSet<String> = self.placed_pods().map(Pod::workload).collect();
        let templates = self.workloads.iter().map(|(kind, workload)| (*kind, workload));
        let templates = templates.filter(|(_, workload)| workload.controller.is_none() && !workload.is_over);
        let new = templates.filter_map(|(kind, workload)| new_pod(kind, workload));
        let new = new.filter(|pod| !have_pods.contains(&pod.workload()));
        let new = new.filter_map(|pod| self.created(&pod));
        let pods = self.placed_pods().filter_map(|pod| self.created(pod)).chain(new);
        let pods: Vec<_> = pods.collect();
        let workloads: BTreeMap<String, String> =
            pods.iter().map(|pod| (format!("{}/{}", pod.namespace, pod.name), pod.workload())).collect();
        let mut helped: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for (pod, pool) in self.pod_table(pods).help.lacking() {
            let Some(workload) = workloads.get(&**pod) else { continue };
            let number = helped.entry(pool.clone()).or_default().entry(workload.clone()).or_default();
            *number += usize::from(have_pods.contains(workload));
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
        while let Some(TolerationRequest { namespace, pod, taints, .. }) = table.next_help(self.now.instant) {
            // A namespace has a few requests at a time.
            table.helped(&format!("{namespace}/{pod}"), Ok(()), self.now);
            if let Some(found) = pod.parse().ok().and_then(|index: usize| added.get_mut(index)) {
                *found = taints;
            }
        }
        added
    }

    /// The operator's table of these pods alone, which it has looked at.
    fn pod_table(&self, pods: impl IntoIterator<Item = operator::Pod>) -> PodTable {
        let mut table = table_of(pods, self.now);
        table.look(Some(self.windows_nodes()), self.now.instant);
        table
    }

    /// The pod as the API server has it, which gives a uid to a new pod, and what its RuntimeClass adds. `None` if it refuses the
    /// pod because the class selects other nodes.
    fn created(&self, pod: &Pod) -> Option<operator::Pod> {
        let creation = pod.creation(Request::Pod);
        let is_new = creation.request == Request::Pod;
        let mut pod = pod.clone();
        UID.clone_into(&mut pod.uid);
        self.admission.admit_by_policies(creation, &mut pod.spec);
        if let Some(class) = pod.spec.runtime_class.as_ref().filter(|_| is_new).and_then(|name| self.classes.get(name))
        {
            let class = Class::from(&**class);
            if class.conflict(&pod.spec).is_some() {
                return None;
            }
            class.admit(&mut pod.spec);
        }
        let mut pod = operator::Pod::from(&pod);
        // The operator waits for the scheduler's first answer.
        pod.start_status.is_unschedulable |= is_new;
        Some(pod)
    }

    /// Executes one step of the reconciliation of this pool.
    fn step(&mut self, pool: &str) -> Step {
        let step = self.with_cluster(|cluster, memory, now| next(cluster, memory, pool, now));
        let answer = self.execute(pool, &step);
        self.memory.answer(pool, &step, answer, self.now.instant);
        step
    }

    fn execute(&mut self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Wait(_) => Answer::Done,
            Step::Publish(policy) => {
                self.published = Some(Arc::clone(policy));
                for table in [&mut self.windows, &mut self.reimaged] {
                    table.write_by(Some(Arc::clone(policy)), self.now.instant);
                }
                Answer::Done
            }
            Step::ReadPool { .. } => {
                let found = self.pools.iter().find(|found| found.name_any() == pool);
                Answer::Pool(found.map(|found| Box::new(found.metadata.clone())))
            }
            Step::SetFinalizer(wanted) => {
                self.update_pool(pool, |pool| pool.metadata.finalizers = Some(finalizers(&pool.metadata, *wanted)));
                let answer = self.written(pool);
                self.pools.retain(|pool| pool.metadata.deletion_timestamp.is_none() || !pool.finalizers().is_empty());
                answer
            }
            Step::Class(class) => self.request(&class.name, &class.request),
            Step::ListLabelledNodes => {
                let is_marked = |node: &NodeFields| node.labels.get(names::POOL) == Some(pool) && !node.is_ignored();
                let marked = self.nodes.iter().filter(|(_, node)| is_marked(node));
                Answer::Nodes(marked.map(|(name, _)| name.clone()).collect())
            }
            Step::WriteStatus { status, .. } => {
                self.update_pool(pool, |pool| {
                    *pool = changed_pool(pool, |pool| pool.status = Some(WindowsPoolStatus::clone(status)));
                    // A pool that cannot be decoded has a status too.
                    pool.status = Some(WindowsPoolStatus::clone(status));
                });
                self.written(pool)
            }
        }
    }

    fn written(&self, name: &str) -> Answer {
        let pool = self.pools.iter().find(|pool| pool.name_any() == name);
        pool.map_or(Answer::Refused(RequestError::Gone), |pool| Answer::Written(Box::new(GuardedPool::clone(pool))))
    }

    fn request(&mut self, name: &str, request: &ClassRequest) -> Answer {
        let uid = format!("{name}-{}", self.version);
        match apply_request(request, self.classes.get(name).map(AsRef::as_ref), uid) {
            Err(refusal) => Answer::Refused(refusal),
            Ok(Some(class)) => Answer::Class(Some(self.put_class(class))),
            Ok(None) => {
                self.classes.remove(name);
                Answer::Done
            }
        }
    }

    /// Executes the steps of every node until it waits. Returns true if a node changed, and the time at which one is due
    /// again.
    fn write_nodes(&mut self) -> (bool, Option<Instant>) {
        let (mut wrote, mut due) = (false, None);
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            let now = self.now.instant;
            let mut step = self.table_of(&name).next(&name, now);
            let until = loop {
                let answer = match step {
                    NodeStep::Wait(until) => break until,
                    NodeStep::Patch { plan, .. } => {
                        wrote = true;
                        self.nodes.entry(name.clone()).and_modify(|node| *node = after(node, &plan));
                        NodeAnswer::Written(None)
                    }
                };
                step = self.table_of(&name).answer(&name, answer, now);
            };
            due = due.into_iter().chain(until).min();
        }
        if wrote {
            self.watch();
        }
        (wrote, due)
    }

    fn table_of(&mut self, name: &str) -> &mut NodeTable {
        let is_windows = self.nodes.get(name).is_some_and(NodeFields::is_windows);
        if is_windows { &mut self.windows } else { &mut self.reimaged }
    }

    /// Runs until the operator has nothing to do except wait for other writers.
    pub(super) fn run(&mut self) {
        /// The operator has finished if it writes nothing for this long.
        const QUIET: Duration = Duration::from_secs(45);
        /// The limit for a loop that never finishes.
        const ROUNDS: usize = 20_000;
        let mut last_write = self.now.instant;
        for _ in 0..ROUNDS {
            let (mut wrote, mut dues) = (false, Vec::new());
            for pool in self.pools.iter().map(|pool| pool.name_any()).collect::<Vec<_>>() {
                match self.step(&pool) {
                    Step::Wait(until) => dues.extend(until),
                    _ => wrote = true,
                }
            }
            let (wrote_nodes, due) = self.write_nodes();
            (wrote, dues) = (wrote | wrote_nodes, dues.into_iter().chain(due).collect());
            if wrote {
                last_write = self.now.instant;
                continue;
            }
            let is_soon = |due: &Instant| due.duration_since(last_write) <= QUIET;
            let next = dues.into_iter().filter(|due| *due > self.now.instant).min().filter(is_soon);
            let Some(due) = next else { return };
            self.now.instant = due;
        }
    }
}
