//! The cluster that workloads are checked against: its nodes, pools and RuntimeClasses.
//!
//! Each of these may be unknown. Rules report nothing if they would have to guess.

mod gmsa;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_n;
use std::sync::Arc;

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
use winpool_core::pod::{ARCH_KEYS, Class, OS_KEYS, System, is_on_windows_only};
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, by_version};
use winpool_core::windows::container_runtime::RuntimeName;
use winpool_simulation::request;

use crate::explain::forecast::{Simulation, Snapshot};
use crate::image::{Host, Images};
use crate::kubernetes::KubernetesVersion;
use crate::placement::{Obstacle, label_obstacles};
use crate::pod::{ClassExt, Guess, Pod, PodSpec, Target, similar_class};
use crate::pod_security::Violations;
use crate::remedy::Remedy;
use crate::system;
use crate::verdict::{self, AdmittedPod, Asked, Cluster, Group, History, OnNode, PlacedBy, one_of_each, settled};
use crate::view::{Known, Node, Related, SeenNode, View};
use crate::workload::WorkloadManifest;

use gmsa::GmsaFacts;

/// The tolerations that winpool adds to new pods, by the name of the workload and the path of the pod spec.
type AddedTolerations = BTreeMap<String, Vec<Taint>>;

fn key_of(workload: &WorkloadManifest<'_>) -> String {
    format!("{} {}", workload.object(), workload.path)
}

/// What counts beside a Windows node of the cluster: what it has today, and the number of nodes that are like it.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// What decides which images it runs, if its version is known.
    host: Option<Host>,
    number: usize,
    /// The taints that it has.
    present: BTreeSet<Taint>,
    /// The taints that keep off pods that are not for Windows: in manifests also those that the operator adds.
    barrier: BTreeSet<Taint>,
    /// The same if the operator holds every taint to which a `DaemonSet` may object.
    while_held: BTreeSet<Taint>,
    /// Its pool, or a pool in dry run if no other selects it.
    pool: Option<Arc<Pool>>,
}

impl Standing {
    /// Returns a node of the view with the taints that it has when winpool has nothing left to do, and pools in dry run are
    /// enforced. `is_settled` is true if its pool has a status, and in a live cluster even without a pool: then the taints of the node
    /// are those that winpool has added so far.
    fn of(seen: &SeenNode, policy: &Policy, is_settled: impl Fn(Option<&Arc<Pool>>) -> bool) -> (Node, Self) {
        let mut node = seen.object.node.clone();
        label_build(&mut node);
        let there = settled(&seen.host().as_read(&node));
        let changed = |consent| keeping_off(request::node(&node, &assess(&node, policy, consent).plan).taints.taints());
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
        let (host, pool) = (there.host(), owner.or(preview).cloned());
        let present = there.taints.iter().cloned().collect();
        let standing = Self { host, number: 1, present, barrier, while_held, pool };
        (Node { taints: finished.into_iter().collect(), ..there }, standing)
    }

    /// Returns a node as this pool makes it, if no other node is known that the pods may be on.
    fn supposed(pool: &Arc<Pool>) -> (Node, Self) {
        let finished = keeping_off(&pool.spec.wanted_taints());
        let while_held = finished.iter().filter(|taint| pool.spec.waits_for_nobody(taint)).cloned().collect();
        let node = Node { taints: finished.iter().cloned().collect(), ..Node::default() };
        (node, Self { barrier: finished, while_held, ..Self::default() })
    }

    /// Returns what decides which images it runs, once for each node that is like it.
    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.host.iter().flat_map(|host| repeat_n(host, self.number))
    }

    fn build(&self) -> Option<Build> {
        self.host.as_ref().map(|host| host.kernel.build)
    }
}

/// The facts of a view that rules read, in the form in which they ask for them.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The version of Kubernetes, if it is known.
    pub kubernetes: Option<KubernetesVersion>,
    /// What new pods find when winpool has nothing left to do: the Windows nodes come first, and each node stands for all that are like
    /// it.
    pub(super) cluster: Cluster,
    /// What counts beside each of the Windows nodes, in their order, if nodes are known.
    windows: Known<Vec<Standing>>,
    /// The classes that exist, each with the pool that manages it.
    owners: BTreeMap<String, Option<String>>,
    /// How much is known of the classes that exist.
    existing: Known<()>,
    pools: Vec<Arc<Pool>>,
    /// A Windows node of each pool.
    supposed: Vec<(Node, Standing)>,
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
    /// The objects that workloads refer to, as far as they are known.
    pub(super) related: Arc<Related>,
    /// The tolerations that winpool adds to new pods, by workload; `None` if that is not known.
    added: Option<Arc<AddedTolerations>>,
    /// The builds to which no rule suggests to pin a pod.
    pub(super) retired: BTreeSet<Build>,
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
        let (windows, others): (Vec<_>, Vec<_>) = view.nodes.known().into_iter().flatten().partition(is_windows);
        let windows = windows.into_iter().map(|seen| Standing::of(seen, &policy, is_settled));
        let (mut nodes, standings): (Vec<Node>, Vec<_>) = windows.unzip();
        nodes.extend(others.into_iter().map(|seen| settled(&seen.host())));
        let classes = || view.classes.known().into_iter().flatten();
        let name_of = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        Self {
            kubernetes: view.kubernetes,
            cluster: Cluster { nodes, ..view.cluster(&Images::default()) },
            windows: view.nodes.map(|_| standings),
            owners: classes().map(|class| (class.name_any(), owner(class).map(str::to_owned))).collect(),
            existing,
            supposed: pools.iter().map(Standing::supposed).collect(),
            on_windows: Arc::new(view.started().on_windows()),
            credential_specs: view.credential_specs.map(|all| all.iter().filter_map(|(_, one)| name_of(one)).collect()),
            gmsa: GmsaFacts::of(&view.permissions, &view.webhooks),
            pools,
            to_come: BTreeMap::new(),
            in_dry_run: BTreeMap::new(),
            is_on_eks: view.nodes.known().into_iter().flatten().any(SeenNode::is_on_eks),
            namespaces: Arc::new(view.namespace_labels.clone()),
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
                builds if builds.is_empty() && !self.windows.is_complete() => {
                    let named = pool.spec.named_builds.keys().copied();
                    builds::all().iter().map(|product| product.build).chain(named).map(|build| (build, 0)).collect()
                }
                builds => builds,
            };
            let tolerate = self.windows().flat_map(|(_, standing)| keeping_off(&standing.present)).collect();
            let seen = NodeSummary { builds, tolerate, ..NodeSummary::default() };
            let plan = plan_classes(pool, &policy, &|_| seen.clone(), objects, &|_| true);
            for class in plan.classes.into_iter().map(|class| class.desired) {
                let planned =
                    Class { handler: class.handler, selector: class.node_selector, tolerations: class.tolerations };
                if self.existing.is_complete() && !self.classes().contains_key(&class.name) {
                    self.to_come.insert(class.name.clone(), Arc::clone(pool));
                }
                if pool.spec.mode == Mode::DryRun && !self.classes().contains_key(&class.name) {
                    self.in_dry_run.insert(class.name.clone(), Arc::clone(pool));
                }
                self.cluster.classes.entry(class.name).or_insert(planned);
            }
        }
        self
    }

    /// Returns the Windows nodes that are known.
    fn windows(&self) -> impl Iterator<Item = (&Node, &Standing)> {
        self.cluster.nodes.iter().zip(self.windows.known().into_iter().flatten())
    }

    /// Returns the other nodes.
    fn others(&self) -> &[Node] {
        let windows = self.windows.known().map_or(0, Vec::len);
        self.cluster.nodes.get(windows..).unwrap_or_default()
    }

    /// Returns new pods of the workload as the API server admits them here. `pod` is such a pod.
    pub(crate) fn admitted<'f>(&'f self, pod: &'f Pod, workload: &WorkloadManifest<'_>) -> AdmittedPod<'f> {
        let placed_by = if workload.is_daemon_set() { PlacedBy::DaemonSet } else { PlacedBy::Anyone };
        let on_windows = self.started_on_windows(workload);
        let history = History { on_windows: on_windows.is_some(), elsewhere: on_windows == Some(false) };
        AdmittedPod::of(verdict::Subject { pod, placed_by, history }, &self.cluster).0
    }

    /// Returns a new pod of the workload with the class that it means.
    pub(crate) fn pod_of(&self, workload: &WorkloadManifest<'_>) -> Pod {
        // Rules of their own read the label and try PodSecurity.
        let mut pod = Pod { os_label: None, violations: Violations::default(), ..workload.pod() };
        // The remedies of findings name the DaemonSet.
        pod.controller = workload.is_daemon_set().then(|| (workload.kind.clone(), workload.name.clone()));
        if let Some(meant) = self.meant(&pod.spec) {
            pod.spec.runtime_class = Some(meant.to_owned());
        }
        pod
    }

    /// Returns the Windows nodes that these pods select, whatever else keeps them off.
    fn selected<'f>(&'f self, pods: &AdmittedPod<'_>) -> impl Iterator<Item = (&'f Node, &'f Standing)> {
        self.windows().filter(|(node, _)| pods.selects(node))
    }

    /// True if a Windows node that the pods select reports a container runtime other than containerd.
    pub(super) fn has_node_without_containerd(&self, pods: &AdmittedPod<'_>) -> bool {
        self.selected(pods).any(|(node, _)| node.runtime.is_some_and(|runtime| runtime.name != RuntimeName::Containerd))
    }

    /// True if the pods select nodes that are known, and none of them has the runtime handler of their class.
    pub(super) fn lacks_handler(&self, pods: &AdmittedPod<'_>) -> bool {
        let Some((_, class)) = pods.class else { return false };
        let mut nodes = self.selected(pods).peekable();
        nodes.peek().is_some() && nodes.all(|(node, _)| node.lacks_handler(&class.handler))
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
            new.push((workload.new_pod(), self.started_on_windows(workload) == Some(true)));
        });
        self.group(&Asked::by(new.iter().map(|(pod, _)| &pod.spec)).with_admission(&self.cluster.admission));
        if !self.pools.is_empty() {
            let mut snapshot = Snapshot::without_workloads(view, now).enforced();
            snapshot.nodes.values_mut().for_each(label_build);
            let added = Simulation::new(&snapshot).added_tolerations(new);
            self.added = Some(Arc::new(keys.into_iter().zip(added).collect()));
        }
    }

    /// Keeps one node of those that pods cannot tell apart if they ask this. Rules are then asked about no other pods.
    pub fn group(&mut self, asked: &Asked) {
        let asked = asked.clone().with_classes(self.classes().values());
        let windows = self.windows().map(|(node, Standing { present, barrier, while_held, pool, .. })| {
            (asked.group(node), Some((present, barrier, while_held, pool.as_ref().map(|pool| &pool.spec.name))))
        });
        let groups = one_of_each(windows.chain(self.others().iter().map(|node| (asked.group(node), None))));
        self.cluster = self.cluster.with_one_of_each(&groups);
        if let Some(standings) = self.windows.known_mut() {
            let one = |group: &Group| Some(Standing { number: group.nodes, ..standings.get(group.index)?.clone() });
            *standings = groups.iter().filter_map(one).collect();
        }
    }

    /// Adds the platforms of images, as registries report them.
    pub fn add_images(&mut self, images: Images) {
        self.cluster.images = images;
    }

    /// Returns the platforms of images, as registries report them; empty if no registry was queried.
    pub fn images(&self) -> &Images {
        &self.cluster.images
    }

    /// Returns the Windows nodes whose version is known.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.windows().flat_map(|(_, standing)| standing.hosts())
    }

    /// Returns the Windows nodes on which the pods can be scheduled. If they can be scheduled on none of them, returns those that they
    /// select, because another rule reports what keeps them off.
    pub(super) fn hosts_of(&self, pods: &AdmittedPod<'_>) -> Vec<&Host> {
        let (open, closed): (Vec<_>, Vec<_>) =
            self.selected(pods).partition(|(node, _)| pods.obstacles(node).is_empty());
        let found = if open.is_empty() { closed } else { open };
        found.into_iter().flat_map(|(_, standing)| standing.hosts()).collect()
    }

    /// True if it is known whether there is a class of this name: all classes are known, or pools of the manifests create them.
    pub fn knows_class(&self, name: &str) -> bool {
        self.classes().contains_key(name)
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
        !self.classes().contains_key(name) && self.knows_class(name) && (self.existing.is_complete() || is_told())
    }

    /// Returns the known classes, by name.
    pub fn classes(&self) -> &BTreeMap<String, Class> {
        &self.cluster.classes
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
        self.cluster.admission = view.admission();
        self.related = Arc::clone(&view.related);
    }

    /// Returns the system that the workload is for, also by the nodes on which its pods have started.
    pub fn guess_of(&self, workload: &WorkloadManifest<'_>) -> Option<Guess> {
        let pod = self.pod_of(workload);
        self.guess_of_admitted(&self.admitted(&pod, workload))
    }

    /// Returns the same for pods as the API server admits them.
    pub(super) fn guess_of_admitted(&self, pods: &AdmittedPod<'_>) -> Option<Guess> {
        system::or_by_history(pods.guess(&self.cluster.nodes), pods.history.is_on_windows_only())
    }

    /// Returns true if containers of the workload have started, and only on Windows nodes; false if also on others; `None` if
    /// on no Windows node.
    pub fn started_on_windows(&self, workload: &WorkloadManifest<'_>) -> Option<bool> {
        self.on_windows.get(&workload.object().to_string()).copied()
    }

    /// True if the pods may be scheduled to Linux nodes: they select a known one, or none is known.
    pub(super) fn may_be_on_linux(&self, pods: &AdmittedPod<'_>) -> bool {
        let others = self.others();
        others.is_empty() || others.iter().any(|node| pods.selects(node))
    }

    /// True if a known Linux node takes the pods, or none is known.
    pub(super) fn linux_takes(&self, pods: &AdmittedPod<'_>) -> bool {
        let is_small = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Resource { .. });
        let takes = |node: &Node| pods.obstacles(node).iter().all(is_small);
        self.others().is_empty() || self.others().iter().any(takes)
    }

    /// Returns the labels of each node, and true for a Windows node.
    fn labels(&self) -> impl Iterator<Item = (bool, &Labels)> {
        self.cluster.nodes.iter().map(|node| (node.is_windows(), &node.labels))
    }

    pub fn known_class(&self, pod: &PodSpec) -> Option<&Class> {
        self.classes().get(pod.runtime_class.as_ref()?)
    }

    /// Returns the class of the pod or, if its name is misspelled, the one that it means: a misspelled name is one problem.
    pub fn meant_class(&self, pod: &PodSpec) -> Option<&Class> {
        self.classes().get(self.meant(pod).or(pod.runtime_class.as_deref())?)
    }

    /// Returns the name of the class that the pod means, if it is misspelled.
    fn meant(&self, pod: &PodSpec) -> Option<&str> {
        self.similar_class(pod.runtime_class.as_deref()?).filter(|_| self.lacks_class_of(pod))
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
        similar_class(name, self.classes())
    }

    /// Returns the change of the pool that makes the class of this name with which its pods run on every node that runs their
    /// images, if the class is for nodes of its own build alone.
    pub fn compatible(&self, name: &str) -> Option<Remedy> {
        let build = self.classes().get(name)?.build()?;
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
        let of_build = self.classes().iter().filter(of_build);
        let mut classes: Vec<_> = of_build.map(|(name, class)| (name.as_str(), class)).collect();
        classes.sort_by_key(|(name, class)| class.preference(name));
        classes.into_iter()
    }

    /// Returns the number of Windows nodes of each build.
    pub fn builds(&self) -> BTreeMap<Build, usize> {
        let mut builds = BTreeMap::new();
        for (_, standing) in self.windows() {
            if let Some(build) = standing.build() {
                *builds.entry(build).or_default() += standing.number;
            }
        }
        builds
    }

    /// Returns the value of this label that nodes of this build have, and no others; `None` if there are several.
    pub fn value_of_build(&self, build: Build, key: &str) -> Option<&str> {
        let values = |of_build: bool| -> BTreeSet<&str> {
            let nodes = self.windows().filter(|(_, standing)| (standing.build() == Some(build)) == of_build);
            nodes.filter_map(|(node, _)| node.labels.get(key)).collect()
        };
        let (own, others) = (values(true), values(false));
        let mut only = own.difference(&others);
        only.next().copied().filter(|_| only.next().is_none())
    }

    /// Returns the builds of the Windows nodes that these pods select.
    pub(crate) fn builds_of(&self, pods: &AdmittedPod<'_>) -> BTreeSet<Build> {
        self.selected(pods).filter_map(|(_, standing)| standing.build()).collect()
    }

    /// Returns what the namespace or the queue of these pods adds to them that keeps them on nodes of this build.
    pub(crate) fn added_for(&self, pods: &AdmittedPod<'_>, build: Build) -> Option<String> {
        let label = Obstacle::Selector { key: names::WINDOWS_BUILD.to_owned(), wanted: build.to_string(), found: None };
        let others = self.windows().filter(|(_, standing)| standing.build() != Some(build));
        let added = |node: &Node| pods.label_obstacles(node).iter().find_map(|obstacle| pods.added_by(obstacle));
        let of_others: Option<Vec<String>> = others.map(|(node, _)| added(node)).collect();
        let is_only = || self.builds_of(pods) == BTreeSet::from([build]);
        pods.added_by(&label).or_else(|| of_others?.pop().filter(|_| is_only()))
    }

    /// Returns the Windows node that has the most of what the pods select, and what it lacks, if they select none. Without builds that no
    /// node has, and the operating system: other rules are about these.
    pub(super) fn closest(&self, pods: &AdmittedPod<'_>) -> Option<(&Node, Vec<Obstacle>)> {
        let is_there = |key: &str, value: &str| self.windows().any(|(node, _)| node.labels.get(key) == Some(value));
        let counts = |obstacle: &Obstacle, node: &Node| match obstacle {
            Obstacle::Selector { key, wanted, .. } => tells_apart(key, node) || is_there(key, wanted),
            Obstacle::Affinity(expressions) => {
                expressions.iter().all(|expression| tells_apart(expression.split(' ').next().unwrap_or_default(), node))
            }
            _ => false,
        };
        let lacked = self.windows().map(|(node, _)| {
            let lacked = pods.label_obstacles(node).into_iter().filter(|obstacle| counts(obstacle, node));
            (node, lacked.collect::<Vec<_>>())
        });
        lacked.min_by_key(|(_, lacked)| lacked.len()).filter(|(_, lacked)| !lacked.is_empty())
    }

    /// True if all nodes are known, and each that the template of a DaemonSet selects has the labels of its class.
    pub(super) fn has_class_on_all(&self, pods: &AdmittedPod<'_>) -> bool {
        let is_selected = |node: &&Node| label_obstacles(&pods.spec, node).is_empty();
        let mut selected = self.cluster.nodes.iter().filter(is_selected);
        self.knows_all_nodes() && self.has_nodes() && selected.all(|node| pods.label_obstacles(node).is_empty())
    }

    /// Returns what happens to the pods on the node on which their author has put them. `None` if it is not known.
    pub(super) fn chosen(&self, pods: &AdmittedPod<'_>) -> Option<(&Node, OnNode)> {
        let name = pods.spec.node.as_ref()?;
        let node = self.cluster.node(name)?;
        Some((node, pods.on(node)))
    }

    /// True if a Windows node is known.
    pub fn has_nodes(&self) -> bool {
        self.windows().next().is_some()
    }

    /// True if the Windows nodes are known, even if there is none.
    pub fn knows_nodes(&self) -> bool {
        self.has_nodes() || self.knows_all_nodes()
    }

    /// True if there are no other nodes than the known ones.
    pub(super) fn knows_all_nodes(&self) -> bool {
        self.windows.is_complete()
    }

    /// True if winpool knows the taints that Windows nodes have or get.
    pub fn knows_taints(&self) -> bool {
        self.has_nodes() || !self.pools.is_empty()
    }

    /// Returns the sets of taints that currently keep pods off the Windows nodes that this pod selects. For manifests,
    /// these include the taints that their pools add, unless the pool has a status or `DaemonSets` hold its taints. If no node
    /// is known, returns what the pools add, or the default taint of a pool.
    pub(super) fn barriers(&self, pods: &AdmittedPod<'_>) -> BTreeSet<BTreeSet<Taint>> {
        if self.are_nodes_open {
            return BTreeSet::from([BTreeSet::new()]);
        }
        if !self.knows_taints() {
            return BTreeSet::from([BTreeSet::from([Taint::os_windows()])]);
        }
        let barrier =
            |standing: &Standing| if self.taints_are_held { &standing.while_held } else { &standing.barrier }.clone();
        if self.has_nodes() {
            self.selected(pods).map(|(_, standing)| barrier(standing)).collect()
        } else {
            self.supposed.iter().map(|(_, standing)| barrier(standing)).collect()
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
        let known: Vec<&Standing> = self.windows().map(|(_, standing)| standing).collect();
        let known = if known.is_empty() { self.supposed.iter().map(|(_, standing)| standing).collect() } else { known };
        let differs = known.iter().any(|standing| standing.while_held != standing.barrier);
        (differs && !self.is_live()).then(|| Self { taints_are_held: true, ..self.clone() })
    }

    /// True if a known Windows node has this taint.
    pub(super) fn is_on_a_node(&self, taint: &Taint) -> bool {
        self.windows().any(|(_, standing)| standing.present.contains(taint))
    }

    /// True if a pool, in dry run or not, wants this taint on its nodes.
    pub fn is_wanted(&self, taint: &Taint) -> bool {
        self.pools.iter().any(|pool| pool.spec.wanted_taints().contains(taint))
    }

    /// Returns the tolerations that winpool adds to new pods of this workload. If no node is known: for the taints that the pools want,
    /// if all of them add tolerations and the pod says that it is for Windows.
    pub(super) fn added_by_winpool(&self, workload: &WorkloadManifest<'_>, pods: &AdmittedPod<'_>) -> BTreeSet<Taint> {
        let known_class = self.known_class(&workload.pod);
        // The operator adds nothing to pods that fit no node yet.
        if let Some(added) = self.added.as_ref().filter(|_| self.selected(pods).next().is_some()) {
            return added.get(&key_of(workload)).into_iter().flatten().cloned().collect();
        }
        let has_class = workload.pod.runtime_class.is_none() || known_class.is_some();
        if !has_class || workload.has_ignored_pods || workload.pod.target(known_class) != Target::Windows {
            return BTreeSet::new();
        }
        let wanted = |pool: &Arc<Pool>| -> BTreeSet<Taint> {
            keeping_off(&pool.spec.wanted_taints()).into_iter().filter(|taint| pool.spec.helps_with(taint)).collect()
        };
        let is_in_all = |taint: &Taint| self.pools.iter().all(|pool| wanted(pool).contains(taint));
        self.pools.iter().flat_map(wanted).filter(is_in_all).collect()
    }

    /// Returns the pools of the nodes that this pod selects. If no such node is known, all pools count.
    pub(super) fn pools_of(&self, pods: &AdmittedPod<'_>) -> Vec<&PoolSpec> {
        let of_nodes: Vec<&Arc<Pool>> =
            self.selected(pods).filter_map(|(_, standing)| standing.pool.as_ref()).collect();
        let pools = if of_nodes.is_empty() { self.pools.iter().collect() } else { of_nodes };
        pools.into_iter().map(|pool| &*pool.spec).collect()
    }

    /// Returns, for each Windows node that the pods select, the taints that they do not tolerate: the existing ones that stay, and those
    /// that the pools want, including pools in dry run. If they select none, the nodes of their builds count. If no node has their builds
    /// or their other labels, the taints count that the pools want, which such nodes will get. If no node is known, the same, or `None` if
    /// there are no pools.
    pub(super) fn untolerated(&self, pods: &AdmittedPod<'_>) -> Option<BTreeSet<Vec<Taint>>> {
        if !self.knows_taints() {
            return None;
        }
        let mut nodes: Vec<&Node> = self.selected(pods).map(|(node, _)| node).collect();
        if nodes.is_empty() && self.closest(pods).is_none() {
            let builds = pods.written_spec.wanted_builds(pods.class.map(|(_, class)| class));
            let is_wanted = |standing: &Standing| {
                builds.as_ref().is_none_or(|builds| standing.build().is_some_and(|build| builds.contains(&build)))
            };
            nodes = self.windows().filter(|(_, standing)| is_wanted(standing)).map(|(node, _)| node).collect();
        }
        if nodes.is_empty() {
            nodes = self.supposed.iter().map(|(node, _)| node).collect();
        }
        Some(nodes.into_iter().map(|node| pods.untolerated(node)).collect())
    }
}

/// Sets the label of the build, which the kubelet writes and the operator corrects.
fn label_build(node: &mut NodeFields) {
    if let Some(build) = node.windows_build().filter(|_| node.is_windows()) {
        node.labels = request::labels(&node.labels, [(names::WINDOWS_BUILD, Some(&*build.to_string()))]);
    }
}

/// True for a label that tells Windows nodes apart, other than that of the build, or of the processor if the node has none.
fn tells_apart(key: &str, node: &Node) -> bool {
    let is_unknown = ARCH_KEYS.contains(&key) && node.labels.get(key).is_none();
    !OS_KEYS.contains(&key) && !is_on_windows_only(key) && !is_unknown
}

/// Returns those of these taints that keep pods off, except the temporary ones of Kubernetes and of autoscalers.
fn keeping_off<'t>(taints: impl IntoIterator<Item = &'t Taint>) -> BTreeSet<Taint> {
    taints.into_iter().filter(|taint| taint.effect.keeps_off() && !taint.has_foreign_key()).cloned().collect()
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
