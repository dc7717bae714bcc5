//! The cluster that workloads are checked against: its nodes, pools and RuntimeClasses.
//!
//! Each of these may be unknown. Rules report nothing if they would have to guess.

mod gmsa;
mod runs;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::repeat_n;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Toleration;
use kube::ResourceExt;
use serde_json::Value;
use winpool_core::api::{Mode, Taint, names};
use winpool_core::labels::Labels;
use winpool_core::node::NodeFields;
use winpool_core::plan::Now;
use winpool_core::plan::classes::runtime_class::owner;
use winpool_core::plan::classes::{is_declared, plan_classes};
use winpool_core::plan::nodes::assessment::{assess, assess_as};
use winpool_core::plan::nodes::numbers::NodeSummary;
use winpool_core::plan::pools::pool::{Policy, Pool, PoolEntry, PoolSpec};
use winpool_core::plan::taints::Consent;
use winpool_core::pod::{ARCH_KEYS, Class, OS_KEYS, System, Tolerance, is_on_windows_only, tolerance};
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, by_version};
use winpool_core::windows::container_runtime::RuntimeName;

use crate::explain::forecast::{Simulation, Snapshot};
use crate::image::{Host, Images};
use crate::kubernetes::KubernetesVersion;
use crate::placement::{Obstacle, lacked_affinity, obstacles, selects};
use crate::pod::{ClassExt, Guess, Pod, PodSpec, Target, similar_class};
use crate::remedy::Remedy;
use crate::system::{self, system_of_nodes};
use crate::verdict::{Asked, Group, one_of_each, settled};
use crate::view::{Added, Admission, Known, Node, Related, SeenNode, View, after, relabelled};
use crate::workload::WorkloadManifest;

use gmsa::GmsaFacts;

/// The tolerations that winpool adds to new pods, by the name of the workload and the path of the pod spec.
type AddedTolerations = BTreeMap<String, Vec<Taint>>;

/// The number of selections of nodes that are kept.
const SELECTIONS: usize = 500;

fn key_of(workload: &WorkloadManifest<'_>) -> String {
    format!("{} {}", workload.object(), workload.path)
}

/// A Windows node, and others that are like it.
#[derive(Clone, Debug, Default)]
struct WindowsNode {
    /// The node without what passes by itself.
    there: Node,
    /// What decides which images it runs, if its version is known.
    host: Option<Host>,
    /// The number of nodes that are like it.
    number: usize,
    /// The taints that keep off pods for Windows once the operator has changed the node, and pools in dry run too.
    finished: BTreeSet<Taint>,
    /// The taints that keep off other pods: in manifests also those that the operator adds.
    barrier: BTreeSet<Taint>,
    /// The same if the operator holds every taint to which a `DaemonSet` may object.
    while_held: BTreeSet<Taint>,
    /// Its pool, or a pool in dry run if no other selects it.
    pool: Option<Arc<Pool>>,
}

impl WindowsNode {
    /// Returns a node of the view. `is_settled` is true if its pool has a status, and in a live cluster even without a pool: then the
    /// taints of the node are those that winpool has added so far.
    fn of(seen: &SeenNode, policy: &Policy, is_settled: impl Fn(Option<&Arc<Pool>>) -> bool) -> Self {
        let mut node = seen.object.node.clone();
        label_build(&mut node);
        let there = settled(&seen.host().as_read(&node));
        let changed = |consent| keeping_off(after(&node, &assess(&node, policy, consent).plan).taints.taints());
        let owner = policy.owner(&node.labels).map(|entry| &entry.pool);
        let mut finished = changed(Consent::Given);
        let [barrier, while_held] = if is_settled(owner) {
            [(); 2].map(|()| keeping_off(&there.taints))
        } else {
            [finished.clone(), changed(Consent::Withheld)]
        };
        let preview = policy.previews(&node.labels).next();
        if let Some(pool) = preview {
            let added = assess_as(&node, Some(pool), policy, Consent::Given).plan.taints.map(|change| change.added);
            finished.extend(keeping_off(&added.unwrap_or_default()));
        }
        let pool = owner.or(preview).cloned();
        Self { host: there.host(), there, number: 1, finished, barrier, while_held, pool }
    }

    /// Returns a node as this pool makes it, if no other node is known that the pods may be on.
    fn supposed(pool: &Arc<Pool>) -> Self {
        let finished = keeping_off(&pool.spec.wanted_taints());
        let while_held = finished.iter().filter(|taint| pool.spec.waits_for_nobody(taint)).cloned().collect();
        Self { barrier: finished.clone(), finished, while_held, ..Self::default() }
    }

    /// True if the pod selects the node, or its author has put it there.
    fn is_for(&self, pod: &PodSpec, class: Option<&Class>) -> bool {
        match &pod.node {
            Some(name) => self.there.name == *name,
            None => selects(pod, class, &self.there.labels),
        }
    }

    /// Returns what decides which images it runs, once for each node that is like it.
    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.host.iter().flat_map(|host| repeat_n(host, self.number))
    }

    fn build(&self) -> Option<Build> {
        self.there.version.map(|version| version.build)
    }
}

/// The facts of a view that rules read, in the form in which they ask for them.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The version of Kubernetes, if it is known.
    pub kubernetes: Option<KubernetesVersion>,
    /// The classes that exist, and those that pools will create.
    classes: BTreeMap<String, Class>,
    /// The classes that exist, each with the pool that manages it.
    owners: BTreeMap<String, Option<String>>,
    /// How much is known of the classes that exist.
    existing: Known<()>,
    pools: Vec<Arc<Pool>>,
    /// The Windows nodes.
    nodes: Known<Vec<WindowsNode>>,
    /// The indices of the nodes that pods select, by what they ask.
    selections: Arc<Mutex<HashMap<String, Arc<[usize]>>>>,
    /// A Windows node of each pool.
    supposed: Vec<WindowsNode>,
    /// The other nodes.
    other_nodes: Vec<Node>,
    /// The classes among them that do not exist yet, with the pool that creates each.
    pub(super) to_come: BTreeMap<String, Arc<Pool>>,
    /// The classes that only a pool in dry run would create. A workload that named one would get no pods.
    pub(super) in_dry_run: BTreeMap<String, Arc<Pool>>,
    /// True if a Windows node gets addresses for its pods from EKS.
    pub(super) is_on_eks: bool,
    /// True if `DaemonSets` hold the taints that pools would add.
    pub(super) taints_are_held: bool,
    /// True if no taint is assumed to keep pods off Windows nodes.
    are_nodes_open: bool,
    /// Workloads of which containers have started on a Windows node. True if none has started on another one.
    on_windows: Arc<BTreeMap<String, bool>>,
    /// The labels of namespaces, as far as they are known.
    pub(super) namespaces: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    /// What is added to new pods.
    pub(super) admission: Admission,
    /// The objects that workloads refer to, as far as they are known.
    pub(super) related: Arc<Related>,
    /// The tolerations that winpool adds to new pods, by workload; `None` if that is not known.
    added: Option<Arc<AddedTolerations>>,
    /// The builds to which no rule suggests to pin a pod.
    pub(super) retired: BTreeSet<Build>,
    images: Images,
    pub(super) credential_specs: Known<BTreeSet<String>>,
    pub(super) gmsa: GmsaFacts,
}

impl Facts {
    /// Returns facts about no cluster: everything is unknown.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the facts of a view with the RuntimeClasses that the pools will create, also those of pools in dry run. Pools that
    /// are not valid are left out.
    pub fn of(view: &View) -> Self {
        let facts = Self::read(view, view.classes.map(|_| ()));
        let is_certain = facts.existing.is_complete() && !facts.knows_nodes();
        if is_certain { facts } else { facts.with_classes_of_pools(view) }
    }

    /// Returns the same as if the pools had created these RuntimeClasses.
    pub fn with_planned_classes(view: &View) -> Self {
        let facts = Self::read(view, Known::NotRead).with_classes_of_pools(view);
        Self { in_dry_run: BTreeMap::new(), ..facts }
    }

    fn read(view: &View, existing: Known<()>) -> Self {
        let pools = view.guarded().into_iter().flatten().filter_map(|pool| Some((pool, Arc::new(pool.read().ok()?))));
        let (reported, pools): (Vec<_>, Vec<_>) = pools.map(|(pool, read)| (pool.status.is_some(), read)).unzip();
        let reported: BTreeSet<_> =
            pools.iter().zip(reported).filter(|(_, is)| *is).map(|(pool, _)| pool.spec.name.clone()).collect();
        let is_live = existing.is_complete() || existing.is_forbidden();
        let is_settled =
            |pool: Option<&Arc<Pool>>| is_live || pool.is_some_and(|pool| reported.contains(&pool.spec.name));
        let policy = policy_of_pools(&pools);
        let is_windows = |seen: &&SeenNode| seen.object.node.is_windows();
        let nodes = view.nodes.map(|nodes| {
            nodes.iter().filter(is_windows).map(|seen| WindowsNode::of(seen, &policy, is_settled)).collect()
        });
        let all = view.nodes.known().into_iter().flatten();
        let other_nodes = all.filter(|seen| !is_windows(seen)).map(|seen| settled(&seen.host())).collect();
        let classes = || view.classes.known().into_iter().flatten();
        let name_of = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        // What was written has its own record, because the pods may not be kept beside it.
        let started = if view.written.is_empty() { &view.started() } else { &view.written.started };
        Self {
            kubernetes: view.kubernetes,
            classes: view.class_fields(),
            owners: classes().map(|class| (class.name_any(), owner(class).map(str::to_owned))).collect(),
            existing,
            nodes,
            selections: Arc::default(),
            supposed: pools.iter().map(WindowsNode::supposed).collect(),
            other_nodes,
            on_windows: Arc::new(started.on_windows()),
            images: Images::default(),
            credential_specs: view.credential_specs.map(|all| all.iter().filter_map(|(_, one)| name_of(one)).collect()),
            gmsa: GmsaFacts::of(&view.permissions, &view.webhooks),
            pools,
            to_come: BTreeMap::new(),
            in_dry_run: BTreeMap::new(),
            is_on_eks: view.nodes.known().into_iter().flatten().any(SeenNode::is_on_eks),
            namespaces: Arc::new(view.namespace_labels.clone()),
            admission: view.admission(),
            related: Arc::clone(&view.related),
            taints_are_held: false,
            are_nodes_open: false,
            added: None,
            retired: BTreeSet::new(),
        }
    }

    /// Adds the RuntimeClasses that the pools will create. Every pool gets classes for the builds of all nodes. If no node
    /// is known, it gets classes for all known Windows versions and for the builds that it names.
    fn with_classes_of_pools(mut self, view: &View) -> Self {
        let policy = policy_of_pools(&self.pools);
        let objects = view.classes.known().map_or(&[][..], Vec::as_slice);
        for pool in &self.pools {
            let builds: BTreeMap<Build, usize> = match self.builds() {
                builds if builds.is_empty() && !self.nodes.is_complete() => {
                    let named = pool.spec.named_builds.keys().copied();
                    builds::all().iter().map(|product| product.build).chain(named).map(|build| (build, 0)).collect()
                }
                builds => builds,
            };
            let tolerate = self.windows().flat_map(|node| keeping_off(&node.there.taints)).collect();
            let seen = NodeSummary { builds, tolerate, ..NodeSummary::default() };
            let plan = plan_classes(pool, &policy, &|_| seen.clone(), objects, &|_| true);
            for class in plan.classes.into_iter().map(|class| class.desired) {
                let planned =
                    Class { handler: class.handler, selector: class.node_selector, tolerations: class.tolerations };
                if self.existing.is_complete() && !self.classes.contains_key(&class.name) {
                    self.to_come.insert(class.name.clone(), Arc::clone(pool));
                }
                if pool.spec.mode == Mode::DryRun && !self.classes.contains_key(&class.name) {
                    self.in_dry_run.insert(class.name.clone(), Arc::clone(pool));
                }
                self.classes.entry(class.name).or_insert(planned);
            }
        }
        self
    }

    /// Returns the Windows nodes that are known.
    fn windows(&self) -> impl Iterator<Item = &WindowsNode> {
        self.nodes.known().into_iter().flatten()
    }

    /// True if a Windows node that the pod selects reports a container runtime other than containerd.
    pub fn has_node_without_containerd(&self, pod: &PodSpec, class: Option<&Class>) -> bool {
        self.selected(pod, class)
            .any(|node| node.there.runtime.is_some_and(|runtime| runtime.name != RuntimeName::Containerd))
    }

    /// True if the pod selects nodes that are known, and none of them has the runtime handler of its class.
    pub(super) fn lacks_handler(&self, pod: &PodSpec, class: &Class) -> bool {
        let mut nodes = self.selected(pod, Some(class)).peekable();
        nodes.peek().is_some() && nodes.all(|node| node.there.lacks_handler(&class.handler))
    }

    /// Reads the workloads of the view, which are those that rules are asked about: what they ask of nodes, and which tolerations the
    /// operator adds to their new pods when pools in dry run are enforced.
    pub fn read_workloads(&mut self, view: &View, now: Now) {
        if !self.has_nodes() {
            return;
        }
        let (mut keys, mut new) = (Vec::new(), Vec::new());
        view.written.each(|_, workload| {
            keys.push(key_of(workload));
            new.push((Pod::from(workload), self.started_on_windows(workload) == Some(true)));
        });
        self.group(&Asked::by(new.iter().map(|(pod, _)| &pod.spec)).with_admission(&self.admission));
        if !self.pools.is_empty() {
            let mut snapshot = Snapshot::without_workloads(view, now).enforced();
            snapshot.nodes.values_mut().for_each(label_build);
            let added = Simulation::new(snapshot).added_tolerations(new);
            self.added = Some(Arc::new(keys.into_iter().zip(added).collect()));
        }
    }

    /// Keeps one node of those that pods cannot tell apart if they ask this. Rules are then asked about no other pods.
    pub fn group(&mut self, asked: &Asked) {
        let asked = asked.clone().with_classes(self.classes.values());
        if let Some(nodes) = self.nodes.known_mut() {
            let alike = nodes.iter().map(|node| {
                let WindowsNode { there, finished, barrier, while_held, pool, .. } = node;
                (asked.group(there), finished, barrier, while_held, pool.as_ref().map(|pool| &pool.spec.name))
            });
            let groups = one_of_each(alike);
            let one = |group: Group| Some(WindowsNode { number: group.nodes, ..nodes.get(group.index)?.clone() });
            *nodes = groups.into_iter().filter_map(one).collect();
            self.selections = Arc::default();
        }
        let mut seen = BTreeSet::new();
        self.other_nodes.retain(|node| seen.insert(asked.group(node)));
    }

    /// Adds the platforms of images, as registries report them.
    pub fn add_images(&mut self, images: Images) {
        self.images = images;
    }

    /// Returns the platforms of images, as registries report them; empty if no registry was queried.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Returns the Windows nodes whose version is known.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.windows().flat_map(WindowsNode::hosts)
    }

    /// Returns the Windows nodes on which a pod of this class can be scheduled, by labels and taints. If the pod
    /// tolerates the taints of none of them, returns the nodes that match by labels, because another rule reports the
    /// taints.
    pub fn hosts_of(&self, pod: &PodSpec, class: Option<&Class>, tolerations: &[Toleration]) -> Vec<&Host> {
        let (open, closed): (Vec<_>, Vec<_>) =
            self.selected(pod, class).partition(|node| untolerated(tolerations, &node.there.taints).is_empty());
        let found = if open.is_empty() { closed } else { open };
        found.into_iter().flat_map(WindowsNode::hosts).collect()
    }

    /// Returns the Windows nodes whose labels this pod selects, by itself and by its class. Thousands of pods ask for few selections.
    fn selected(&self, pod: &PodSpec, class: Option<&Class>) -> impl Iterator<Item = &WindowsNode> {
        let asked = format!("{:?}", (&pod.node, &pod.node_selector, &pod.terms, class.map(|class| &class.selector)));
        let nodes = self.nodes.known().map_or(&[][..], Vec::as_slice);
        let mut selections = self.selections.lock().unwrap_or_else(PoisonError::into_inner);
        if selections.len() == SELECTIONS {
            selections.clear();
        }
        let find =
            || (0..nodes.len()).filter(|index| nodes.get(*index).is_some_and(|node| node.is_for(pod, class))).collect();
        let found: Arc<[usize]> = Arc::clone(selections.entry(asked).or_insert_with(find));
        (0..found.len()).filter_map(move |index| nodes.get(*found.get(index)?))
    }

    /// True if it is known whether there is a class of this name: all classes are known, or pools of the manifests create them.
    pub fn knows_class(&self, name: &str) -> bool {
        self.classes.contains_key(name)
            || self.existing.is_complete()
            || !self.existing.is_forbidden() && !self.pools.is_empty()
    }

    /// True if there is certainly no class of the pod's `runtimeClassName`. Manifests of a WindowsPool do not show which
    /// classes exist for other systems.
    pub fn lacks_class_of(&self, pod: &PodSpec) -> bool {
        let name = pod.runtime_class.as_deref().unwrap_or_default();
        let is_windows = |guess: Guess| guess.system == System::Windows && guess.is_certain();
        // No class says anything about a pod whose class is not there.
        let guess = || system::guess(pod, None, self.labels());
        let is_told = || guess().is_some_and(is_windows) || is_for_windows(name) || self.similar_class(name).is_some();
        !self.classes.contains_key(name) && self.knows_class(name) && (self.existing.is_complete() || is_told())
    }

    /// Returns the known classes, by name.
    pub fn classes(&self) -> &BTreeMap<String, Class> {
        &self.classes
    }

    /// Returns the system that the pod is for, by itself or by labels that only nodes of one system have.
    pub fn guess(&self, pod: &PodSpec) -> Option<Guess> {
        system::guess(pod, self.meant_class(pod), self.labels())
    }

    /// Returns how the pod says its system, by itself or by labels that only nodes of one system have.
    pub fn target(&self, pod: &PodSpec) -> Target {
        Target::of(self.guess(pod))
    }

    /// Reads the objects that workloads refer to.
    pub fn refer_to(&mut self, view: &View) {
        self.admission = view.admission();
        self.related = Arc::clone(&view.related);
    }

    /// Returns the pods of the workload with what their namespace, Kueue and policies add, and what that is.
    pub(super) fn admitted(&self, workload: &WorkloadManifest<'_>) -> (PodSpec, Added<'_>) {
        let mut admitted = workload.pod.clone();
        let added = self.admission.admit(workload.creation(), &mut admitted);
        (admitted, added)
    }

    /// Returns the system that the workload is for, also by the nodes on which its pods have started.
    pub fn guess_of(&self, workload: &WorkloadManifest<'_>) -> Option<Guess> {
        self.guess_of_admitted(&self.admitted(workload).0, workload)
    }

    /// Returns the same for pods with what their namespace and Kueue add.
    pub(super) fn guess_of_admitted(&self, admitted: &PodSpec, workload: &WorkloadManifest<'_>) -> Option<Guess> {
        system::or_by_history(self.guess(admitted), self.started_on_windows(workload) == Some(true))
    }

    /// Returns true if containers of the workload have started, and only on Windows nodes; false if also on others; `None` if
    /// on no Windows node.
    pub fn started_on_windows(&self, workload: &WorkloadManifest<'_>) -> Option<bool> {
        self.on_windows.get(&workload.object().to_string()).copied()
    }

    /// True if the pod may be scheduled to Linux nodes: it selects a known one, or none is known.
    pub fn may_be_on_linux(&self, pod: &PodSpec) -> bool {
        let class = self.meant_class(pod);
        let selects_all = pod.node_selector.is_empty() && pod.terms.is_empty();
        selects_all
            || self.other_nodes.is_empty()
            || self.other_nodes.iter().any(|node| selects(pod, class, &node.labels))
    }

    /// True if a known Linux node takes the pod, or none is known.
    pub fn linux_takes(&self, pod: &PodSpec) -> bool {
        let is_small = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Resource { .. });
        let takes = |node: &Node| obstacles(pod, node).iter().all(is_small);
        self.other_nodes.is_empty() || self.other_nodes.iter().any(takes)
    }

    /// Returns the system of the nodes that the pod selects, if these are of one system.
    pub fn system_of_nodes(&self, pod: &PodSpec) -> Option<System> {
        system_of_nodes(pod, self.meant_class(pod), self.labels())
    }

    /// Returns the labels of each node, and true for a Windows node.
    fn labels(&self) -> impl Iterator<Item = (bool, &Labels)> {
        let windows = self.windows().map(|node| (true, &node.there.labels));
        windows.chain(self.other_nodes.iter().map(|node| (false, &node.labels)))
    }

    pub fn known_class(&self, pod: &PodSpec) -> Option<&Class> {
        self.classes.get(pod.runtime_class.as_ref()?)
    }

    /// Returns the class of the pod or, if its name is misspelled, the one that it means: a misspelled name is one problem.
    pub fn meant_class(&self, pod: &PodSpec) -> Option<&Class> {
        let name = pod.runtime_class.as_deref()?;
        let meant = if self.lacks_class_of(pod) { self.similar_class(name) } else { None };
        self.classes.get(meant.unwrap_or(name))
    }

    /// True if the taint marks Windows nodes: a pool adds or removes it, or it is a known spelling.
    pub fn is_windows_taint(&self, taint: &Taint) -> bool {
        taint.marks_windows()
            || self
                .pools
                .iter()
                .any(|pool| pool.spec.tolerated_taints.contains(taint) || pool.spec.retired_taints.contains(taint))
    }

    /// Returns the known class that somebody who wrote this name probably means.
    pub fn similar_class(&self, name: &str) -> Option<&str> {
        similar_class(name, &self.classes)
    }

    /// Returns the change of the pool that makes the class of this name with which its pods run on every node that runs their
    /// images, if the class is for nodes of its own build alone.
    pub fn compatible(&self, name: &str) -> Option<Remedy> {
        let build = self.classes.get(name)?.build()?;
        let is_discovered = |spec: &PoolSpec| spec.discover && spec.class_name(build).as_deref() == Some(name);
        let may = |pool: &Pool| self.owners.get(name).is_none_or(|owner| owner.as_ref() == Some(&pool.spec.name));
        let makes = |pool: &Pool| is_declared(pool, name) || is_discovered(&pool.spec);
        let pool = self.pools.iter().find(|pool| may(pool) && makes(pool))?;
        Some(Remedy::compatible(&pool.spec, name)?.in_object())
    }

    /// Returns the classes to suggest whose nodes run images of this build, the most suitable first.
    pub fn classes_of(&self, build: Build) -> impl Iterator<Item = (&str, &Class)> {
        let is_usable = |name: &String, class: &Class| {
            !self.in_dry_run.contains_key(name) && class.build().is_none_or(|hosts| !self.retired.contains(&hosts))
        };
        let of_build = |(name, class): &(&String, &Class)| class.image_build() == Some(build) && is_usable(name, class);
        let of_build = self.classes.iter().filter(of_build);
        let mut classes: Vec<_> = of_build.map(|(name, class)| (name.as_str(), class)).collect();
        classes.sort_by_key(|(name, class)| class.preference(name));
        classes.into_iter()
    }

    /// Returns the number of Windows nodes of each build.
    pub fn builds(&self) -> BTreeMap<Build, usize> {
        let mut builds = BTreeMap::new();
        for node in self.windows() {
            if let Some(build) = node.build() {
                *builds.entry(build).or_default() += node.number;
            }
        }
        builds
    }

    /// Returns the value of this label that nodes of this build have, and no others; `None` if there are several.
    pub fn value_of_build(&self, build: Build, key: &str) -> Option<&str> {
        let values = |of_build: bool| -> BTreeSet<&str> {
            let nodes = self.windows().filter(|node| (node.build() == Some(build)) == of_build);
            nodes.filter_map(|node| node.there.labels.get(key)).collect()
        };
        let (own, others) = (values(true), values(false));
        let mut only = own.difference(&others);
        only.next().copied().filter(|_| only.next().is_none())
    }

    /// Returns the builds of the Windows nodes whose labels this pod selects.
    pub fn builds_of(&self, pod: &PodSpec, class: Option<&Class>) -> BTreeSet<Build> {
        self.selected(pod, class).filter_map(WindowsNode::build).collect()
    }

    /// Returns the labels that the pod and its class select and no known Windows node has. Other rules are about builds.
    pub fn labels_of_no_node<'a>(&self, pod: &'a PodSpec, class: Option<&'a Class>) -> Vec<(&'a str, &'a str)> {
        let of_class = class.into_iter().flat_map(|class| &class.selector);
        let selected = pod.node_selector.iter().chain(of_class).map(|(key, value)| (key.as_str(), value.as_str()));
        let is_there =
            |(key, value): (&str, &str)| self.windows().any(|node| node.there.labels.get(key) == Some(value));
        selected.filter(|label| self.has_nodes() && !is_on_every(label.0) && !is_there(*label)).collect()
    }

    /// Returns what the required node affinity of the pod wants and the closest Windows node lacks, if no such node has it. Other rules
    /// are about builds.
    pub fn affinity_of_no_node(&self, pod: &PodSpec) -> Option<Vec<String>> {
        let lacked =
            self.windows().map(|WindowsNode { there, .. }| lacked_affinity(&pod.terms, &there.labels, &there.name));
        let closest = lacked.map(Option::unwrap_or_default).min_by_key(Vec::len)?;
        let is_for_others = |expression: &String| is_on_every(expression.split(' ').next().unwrap_or_default());
        (!closest.is_empty() && !closest.iter().any(is_for_others)).then_some(closest)
    }

    /// True if a Windows node has this name.
    pub fn is_windows_node(&self, name: &str) -> bool {
        self.windows().any(|node| node.there.name == name)
    }

    /// True if a Windows node is known.
    pub fn has_nodes(&self) -> bool {
        self.windows().next().is_some()
    }

    /// True if the Windows nodes are known, even if there is none.
    pub fn knows_nodes(&self) -> bool {
        self.has_nodes() || self.nodes.is_complete()
    }

    /// True if winpool knows the taints that Windows nodes have or get.
    pub fn knows_taints(&self) -> bool {
        self.has_nodes() || !self.pools.is_empty()
    }

    /// Returns the sets of taints that currently keep pods off the Windows nodes that this pod selects. For manifests,
    /// these include the taints that their pools add, unless the pool has a status or `DaemonSets` hold its taints. If no node
    /// is known, returns what the pools add, or the default taint of a pool.
    pub fn barriers(&self, pod: &PodSpec) -> BTreeSet<BTreeSet<Taint>> {
        if self.are_nodes_open {
            return BTreeSet::from([BTreeSet::new()]);
        }
        if !self.knows_taints() {
            return BTreeSet::from([BTreeSet::from([Taint::os_windows()])]);
        }
        let barrier = |node: &WindowsNode| if self.taints_are_held { &node.while_held } else { &node.barrier }.clone();
        if self.has_nodes() {
            self.selected(pod, None).map(barrier).collect()
        } else {
            self.supposed.iter().map(barrier).collect()
        }
    }

    /// Returns the facts as if no taint kept pods off Windows nodes: manifests may be applied to clusters that are not known.
    pub fn with_open_nodes(&self) -> Self {
        Self { are_nodes_open: true, ..self.clone() }
    }

    /// Returns the facts with which no rule suggests to pin a pod to these builds.
    pub fn retiring(&self, retired: &BTreeSet<Build>) -> Self {
        Self { retired: retired.clone(), ..self.clone() }
    }

    fn is_live(&self) -> bool {
        self.existing.is_complete() || self.existing.is_forbidden()
    }

    /// Returns the facts with the taints of pools held, if that makes a difference.
    pub(super) fn with_held_taints(&self) -> Option<Self> {
        let known: Vec<&WindowsNode> = self.windows().collect();
        let known = if known.is_empty() { self.supposed.iter().collect() } else { known };
        let differs = known.iter().any(|node| node.while_held != node.barrier);
        (differs && !self.is_live()).then(|| Self { taints_are_held: true, ..self.clone() })
    }

    /// True if a known Windows node has this taint.
    pub(super) fn is_on_a_node(&self, taint: &Taint) -> bool {
        self.windows().any(|node| node.there.taints.contains(taint))
    }

    /// True if a pool, in dry run or not, wants this taint on its nodes.
    pub fn is_wanted(&self, taint: &Taint) -> bool {
        self.pools.iter().any(|pool| pool.spec.wanted_taints().contains(taint))
    }

    /// Returns the tolerations that winpool adds to new pods of this workload. If no node is known: for the taints that the pools want,
    /// if all of them add tolerations and the pod says that it is for Windows.
    pub fn added_by_winpool(&self, workload: &WorkloadManifest<'_>) -> BTreeSet<Taint> {
        let known_class = self.known_class(&workload.pod);
        // The operator adds nothing to pods that fit no node yet.
        if let Some(added) = self.added.as_ref().filter(|_| self.selected(&workload.pod, known_class).next().is_some())
        {
            return added.get(&key_of(workload)).into_iter().flatten().cloned().collect();
        }
        let has_class = workload.pod.runtime_class.is_none() || known_class.is_some();
        if !has_class || Pod::from(workload).is_ignored || workload.pod.target(known_class) != Target::Windows {
            return BTreeSet::new();
        }
        let wanted = |pool: &Arc<Pool>| -> BTreeSet<Taint> {
            keeping_off(&pool.spec.wanted_taints()).into_iter().filter(|taint| pool.spec.helps_with(taint)).collect()
        };
        let is_in_all = |taint: &Taint| self.pools.iter().all(|pool| wanted(pool).contains(taint));
        self.pools.iter().flat_map(wanted).filter(is_in_all).collect()
    }

    /// Returns the pools of the nodes that this pod selects. If no such node is known, all pools count.
    pub(super) fn pools_of(&self, pod: &PodSpec, class: Option<&Class>) -> Vec<&PoolSpec> {
        let of_nodes: Vec<&Arc<Pool>> = self.selected(pod, class).filter_map(|node| node.pool.as_ref()).collect();
        let pools = if of_nodes.is_empty() { self.pools.iter().collect() } else { of_nodes };
        pools.into_iter().map(|pool| &*pool.spec).collect()
    }

    /// Returns the sets of taints that a pod must tolerate on the Windows nodes that it selects: the existing taints that
    /// stay, and those that the pools want, including pools in dry run. If it selects none, the nodes of its builds count. If
    /// no node has its builds or its other labels, returns the taints that the pools want, which such nodes will get. If no
    /// node is known, returns the same, or `None` if there are no pools.
    pub fn guards(&self, pod: &PodSpec, class: Option<&Class>) -> Option<BTreeSet<BTreeSet<Taint>>> {
        if !self.knows_taints() {
            return None;
        }
        let guard = |node: &WindowsNode| node.finished.clone();
        let mut guards: BTreeSet<_> = self.selected(pod, class).map(guard).collect();
        if guards.is_empty() && self.labels_of_no_node(pod, class).is_empty() {
            let builds = pod.wanted_builds(class);
            let is_wanted = |node: &&WindowsNode| {
                builds.as_ref().is_none_or(|builds| node.build().is_some_and(|build| builds.contains(&build)))
            };
            guards = self.windows().filter(is_wanted).map(guard).collect();
        }
        Some(if guards.is_empty() { self.supposed.iter().map(guard).collect() } else { guards })
    }
}

/// Sets the label of the build, which the kubelet writes and the operator corrects.
fn label_build(node: &mut NodeFields) {
    if let Some(build) = node.windows_build().filter(|_| node.is_windows()) {
        node.labels = relabelled(&node.labels, [(names::WINDOWS_BUILD, Some(&*build.to_string()))]);
    }
}

/// True for labels of all Windows nodes, and for that of the build.
fn is_on_every(key: &str) -> bool {
    OS_KEYS.contains(&key) || ARCH_KEYS.contains(&key) || is_on_windows_only(key)
}

/// Returns those of these taints that keep pods off, except the temporary ones of Kubernetes and of autoscalers.
fn keeping_off(taints: &[Taint]) -> BTreeSet<Taint> {
    taints.iter().filter(|taint| taint.effect.keeps_off() && !taint.has_foreign_key()).cloned().collect()
}

/// Returns the policy of these pools, which are valid.
fn policy_of_pools(pools: &[Arc<Pool>]) -> Policy {
    let entries = pools.iter().map(|pool| PoolEntry { pool: Arc::clone(pool), ready: true });
    Policy::new(entries, BTreeSet::new())
}

/// True if the name of a class says that it is for Windows.
fn is_for_windows(name: &str) -> bool {
    name.split('-').any(|word| word == names::WINDOWS || by_version(word).is_some())
}

/// Returns the taints that certainly none of these tolerations tolerates.
pub(super) fn untolerated<'t>(tolerations: &[Toleration], taints: impl IntoIterator<Item = &'t Taint>) -> Vec<Taint> {
    taints.into_iter().filter(|taint| tolerance(tolerations, [*taint]) == Tolerance::No).cloned().collect()
}
