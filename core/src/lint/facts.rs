//! What is known of the cluster that workloads are checked against: its nodes, pools and RuntimeClasses.
//!
//! All of it may be unknown. Rules say nothing where they would have to guess.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use k8s_openapi::api::{core::v1::Toleration, node::v1::RuntimeClass};

use crate::{
    api::{Taint, TaintPolicy, names},
    image::{Host, Images},
    labels::Labels,
    plan::{Entry, Node, Policy, Pool, SeenNodes, WantedTaints, plan_classes},
    pod::{Class, PodSpec, Tolerance, affinity::matches_affinity, tolerance},
    windows::{
        Build, KubernetesVersion,
        product::{PRODUCTS, by_version},
        taint::is_known_spelling,
    },
};

/// Windows nodes that are alike, as far as workloads are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct NodeKind {
    /// Their build, if it can be told.
    build: Option<Build>,
    /// The taints that keep pods off them, but for those that come and go: Kubernetes' and the autoscalers'.
    taints: BTreeSet<Taint>,
    /// Those of them that their pool takes off.
    retired: BTreeSet<Taint>,
    /// The taints that their pool wants on them.
    wanted: BTreeSet<Taint>,
    /// The taints that a pool in dry run would want on them.
    previewed: BTreeSet<Taint>,
}

impl NodeKind {
    /// Says what the pools want on nodes with these labels.
    fn under(mut self, policy: &Policy, labels: &Labels) -> Self {
        if let Some(owner) = policy.owner(labels) {
            self.retired =
                self.taints.iter().filter(|taint| owner.pool.retired_taints.contains(taint)).cloned().collect();
            self.wanted = self.wanted_by(&owner.pool);
        }
        self.previewed = policy.previews(labels).next().map(|pool| self.wanted_by(pool)).unwrap_or_default();
        self
    }

    fn wanted_by(&self, pool: &Pool) -> BTreeSet<Taint> {
        let mut stay = self.taints.iter().filter(|taint| !pool.retired_taints.contains(taint));
        let is_guarded =
            pool.taints == WantedTaints::Guard && stay.any(|taint| is_known_spelling(&taint.key, &taint.value));
        if is_guarded { BTreeSet::new() } else { keeping_off(pool) }
    }
}

/// The taints by which a pool keeps pods off its nodes.
fn keeping_off(pool: &Pool) -> BTreeSet<Taint> {
    let taints = pool.wanted_taints().into_iter().filter(|taint| taint.effect != "PreferNoSchedule");
    if pool.taint_policy == TaintPolicy::Never { BTreeSet::new() } else { taints.collect() }
}

/// What is known of a class by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup<'a> {
    /// It is there, or a pool makes it.
    Found(&'a Class),
    /// There is none of this name.
    Absent,
    /// It cannot be told.
    Unknown,
}

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    kubernetes: Option<KubernetesVersion>,
    classes_are_complete: bool,
    classes: BTreeMap<String, Class>,
    objects: Vec<Arc<RuntimeClass>>,
    pools: Vec<Arc<Pool>>,
    seen: Vec<(NodeKind, Labels)>,
    nodes: BTreeMap<NodeKind, usize>,
    labels: HashSet<(String, String)>,
    hosts: Vec<(Host, Labels, BTreeSet<Taint>)>,
    images: Images,
    /// A Windows node says that its container runtime is not containerd.
    has_node_without_containerd: bool,
}

impl Facts {
    /// Nothing is known.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Of a cluster of this version.
    #[must_use]
    pub fn of_version(kubernetes: Option<KubernetesVersion>) -> Self {
        Self { kubernetes, ..Self::default() }
    }

    /// All RuntimeClasses of the cluster have been added: there is no other, and none is yet to be made.
    pub fn classes_are_complete(&mut self) {
        self.classes_are_complete = true;
    }

    /// Adds a node; only Windows nodes count.
    pub fn add_node(&mut self, node: &Node) {
        if node.labels.get(names::OS) != Some(names::WINDOWS) {
            return;
        }
        let runtime = node.container_runtime.as_deref().filter(|runtime| !runtime.is_empty());
        self.has_node_without_containerd |= runtime.is_some_and(|runtime| !runtime.starts_with("containerd://"));
        let taints = node.taints.taints().iter();
        let kind = NodeKind {
            build: node.windows_version().map(|version| version.build),
            taints: taints
                .filter(|taint| taint.effect != "PreferNoSchedule" && !taint.has_foreign_key())
                .cloned()
                .collect(),
            ..NodeKind::default()
        };
        if let Some(kernel) = node.windows_version() {
            let architecture = node.labels.get(names::ARCH).unwrap_or("amd64").to_owned();
            let runtime = node.container_runtime.as_deref().and_then(|text| text.parse().ok());
            self.hosts.push((Host { kernel, architecture, runtime }, node.labels.clone(), kind.taints.clone()));
        }
        self.seen.push((kind, node.labels.clone()));
        self.labels.extend(node.labels.with_prefix("").map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    /// Returns whether a Windows node says that its container runtime is not containerd.
    #[must_use]
    pub fn has_node_without_containerd(&self) -> bool {
        self.has_node_without_containerd
    }

    /// Adds a RuntimeClass.
    pub fn add_class(&mut self, class: RuntimeClass) {
        self.classes.insert(class.metadata.name.clone().unwrap_or_default(), Class::from(&class));
        self.objects.push(Arc::new(class));
    }

    /// Adds a pool.
    pub fn add_pool(&mut self, pool: Pool) {
        self.pools.push(Arc::new(pool));
    }

    /// When all has been added: says what the pools want on the nodes, and adds the RuntimeClasses that they will make.
    ///
    /// Nodes are not told apart by pool, and without nodes every Windows version that has a name is expected.
    #[must_use]
    pub fn complete(mut self) -> Self {
        let entries = self.pools.iter().map(|pool| Entry { pool: Arc::clone(pool), ready: true });
        let policy = Policy::new(entries, BTreeSet::new());
        for (kind, labels) in std::mem::take(&mut self.seen) {
            *self.nodes.entry(kind.under(&policy, &labels)).or_default() += 1;
        }
        if self.classes_are_complete {
            return self;
        }
        for pool in &self.pools {
            let builds: BTreeMap<Build, usize> = match self.builds() {
                builds if builds.is_empty() => {
                    let named = pool.named_builds.keys().copied();
                    PRODUCTS.iter().map(|product| product.build).chain(named).map(|build| (build, 0)).collect()
                }
                builds => builds,
            };
            let tolerate = self.nodes.keys().flat_map(|kind| kind.taints.iter().cloned()).collect();
            let seen = SeenNodes { builds, tolerate };
            let plan = plan_classes(pool, &policy, &|_| seen.clone(), &self.objects, &|_| true);
            for class in plan.classes.into_iter().map(|class| class.desired) {
                let planned =
                    Class { handler: class.handler, selector: class.node_selector, tolerations: class.tolerations };
                self.classes.entry(class.name).or_insert(planned);
            }
        }
        self
    }

    /// Adds what registries say of the images.
    pub fn add_images(&mut self, images: Images) {
        self.images = images;
    }

    /// What registries say of the images; empty if none was asked.
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The Windows nodes whose version is known.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().map(|(host, ..)| host)
    }

    /// The Windows nodes on which a pod of this class may land, by labels and taints; if it tolerates none of them, by labels
    /// alone, because another rule speaks of taints.
    #[must_use]
    pub fn hosts_of(&self, pod: &PodSpec, class: Option<&Class>) -> Vec<&Host> {
        let mut admitted = pod.clone();
        if let Some(class) = class {
            class.admit(&mut admitted);
        }
        let selected = self.hosts.iter().filter(|(_, labels, _)| {
            admitted.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
                && matches_affinity(&admitted.terms, labels, labels.get("kubernetes.io/hostname").unwrap_or_default())
        });
        let (open, closed): (Vec<_>, Vec<_>) =
            selected.partition(|(.., taints)| untolerated(&admitted.tolerations, taints).is_empty());
        let found = if open.is_empty() { closed } else { open };
        found.into_iter().map(|(host, ..)| host).collect()
    }

    /// The version of Kubernetes, if it is known.
    #[must_use]
    pub fn kubernetes(&self) -> Option<KubernetesVersion> {
        self.kubernetes
    }

    /// The class of this name.
    #[must_use]
    pub fn class(&self, name: &str) -> Lookup<'_> {
        match self.classes.get(name) {
            Some(class) => Lookup::Found(class),
            None if self.classes_are_complete || !self.objects.is_empty() || !self.pools.is_empty() => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }

    /// The class of this pod, if it is known.
    #[must_use]
    pub fn known_class(&self, pod: &PodSpec) -> Option<&Class> {
        self.classes.get(pod.runtime_class.as_ref()?)
    }

    /// Returns whether no class exists but those that are known here.
    #[must_use]
    pub fn knows_all_classes(&self) -> bool {
        self.classes_are_complete
    }

    /// Returns whether the taint keeps pods off because the node is a Windows node: a pool wants it, or it is spelled so.
    #[must_use]
    pub fn is_windows_taint(&self, taint: &Taint) -> bool {
        is_known_spelling(&taint.key, &taint.value)
            || self.pools.iter().any(|pool| pool.wanted_taints().contains(taint) || pool.retired_taints.contains(taint))
    }

    /// The name of the known class that is spelled most like this one, if one is much like it. A name with another Windows
    /// version in it is no misspelling.
    #[must_use]
    pub fn similar_class(&self, name: &str) -> Option<&str> {
        if name.split('-').any(|word| by_version(word).is_some()) {
            return None;
        }
        let distance = |other: &str| strsim::damerau_levenshtein(name, other);
        let closest = self.classes.keys().map(|other| (distance(other), other)).min()?;
        (closest.0 * 4 <= name.chars().count()).then_some(closest.1)
    }

    /// The names of the classes that select this build.
    pub fn classes_of(&self, build: Build) -> impl Iterator<Item = &str> {
        self.classes.iter().filter(move |(_, class)| class.build() == Some(build)).map(|(name, _)| name.as_str())
    }

    /// How many Windows nodes have each build.
    #[must_use]
    pub fn builds(&self) -> BTreeMap<Build, usize> {
        let mut builds = BTreeMap::new();
        for (kind, count) in &self.nodes {
            if let Some(build) = kind.build {
                *builds.entry(build).or_default() += count;
            }
        }
        builds
    }

    /// Returns whether any Windows node is known.
    #[must_use]
    pub fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Returns whether some Windows node has this label.
    #[must_use]
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        self.labels.contains(&(key.to_owned(), value.to_owned()))
    }

    /// The sets of taints that keep pods off Windows nodes today; of manifests, once their pools are applied. Where no node
    /// is known, the default of a pool.
    #[must_use]
    pub fn barriers(&self) -> BTreeSet<BTreeSet<Taint>> {
        let barrier = |kind: &NodeKind| {
            let wanted = kind.wanted.iter().filter(|_| !self.classes_are_complete);
            kind.taints.iter().chain(wanted).cloned().collect()
        };
        if self.has_nodes() {
            return self.nodes.keys().map(barrier).collect();
        }
        self.guards(None).unwrap_or_else(|| BTreeSet::from([BTreeSet::from([Taint::os_windows()])]))
    }

    /// Returns whether a pool wants this taint on its nodes, in dry run or not.
    #[must_use]
    pub fn is_wanted(&self, taint: &Taint) -> bool {
        self.pools.iter().any(|pool| pool.wanted_taints().contains(taint))
    }

    /// The sets of taints that pods have to tolerate on the Windows nodes of these builds, or of all: those that are there
    /// and stay, and those that the pools want, in dry run too. Where no node is known, those that the pools want; `None`
    /// when there are no pools either.
    #[must_use]
    pub fn guards(&self, builds: Option<&BTreeSet<Build>>) -> Option<BTreeSet<BTreeSet<Taint>>> {
        if self.has_nodes() {
            let wanted =
                |kind: &&NodeKind| builds.is_none_or(|builds| kind.build.is_some_and(|build| builds.contains(&build)));
            let guard = |kind: &NodeKind| {
                let stay = kind.taints.difference(&kind.retired);
                stay.chain(&kind.wanted).chain(&kind.previewed).cloned().collect()
            };
            return Some(self.nodes.keys().filter(wanted).map(guard).collect());
        }
        (!self.pools.is_empty()).then(|| self.pools.iter().map(|pool| keeping_off(pool)).collect())
    }
}

/// The taints that certainly none of these tolerates.
pub(super) fn untolerated(tolerations: &[Toleration], taints: &BTreeSet<Taint>) -> Vec<Taint> {
    taints.iter().filter(|taint| tolerance(tolerations, [*taint]) == Tolerance::No).cloned().collect()
}
