//! Which tolerations a pod lacks: is it for Windows, and on which nodes of which pools may it run?

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{NodeSelectorRequirement, NodeSelectorTerm},
        node::v1::RuntimeClass,
    },
    jiff::Timestamp,
};
use kube::ResourceExt;

use crate::{
    api::{Taint, names},
    plan::{nodes::NodeObject, pool_spec::PoolSpec},
    pod::{Class, System, affinity, selects_windows, tolerate},
};

use super::{daemon_set::Objector, fact::PodFact, health::ClusterFacts, history::PodHistory, placement::Placement};

/// Labels by which clouds, installers and autoscalers name a group of nodes. The nodes of a group have one system. (Azure:
/// learn.microsoft.com/azure/aks/use-labels; EKS: docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html and
/// eksctl.io; GKE: cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels; karpenter.sh; kops.sigs.k8s.io.)
const NODE_GROUPS: [&str; 7] = [
    "agentpool",
    "kubernetes.azure.com/agentpool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "karpenter.sh/nodepool",
    "kops.k8s.io/instancegroup",
];
const HOSTNAME: &str = "kubernetes.io/hostname";
const NAME: &str = "metadata.name";

/// True if a label with this key names a node, or a group of nodes.
fn names_nodes(key: &str) -> bool {
    NODE_GROUPS.contains(&key) || key == HOSTNAME || key == NAME
}

/// The tolerations that a pod lacks, each with a pool that wants its taint.
pub(super) type LackedTolerations = BTreeMap<Taint, String>;

impl Placement {
    /// True if the pod itself may show that it is for Windows.
    pub(super) fn may_show_windows(&self) -> bool {
        let by_name = self.node_selector.keys().any(|key| names_nodes(key))
            || self.terms.iter().flat_map(requirements).any(|requirement| names_nodes(&requirement.key));
        match self.system {
            Some(System::Windows) => true,
            Some(System::Linux) => false,
            None => self.class.is_some() || by_name,
        }
    }

    /// True if it names only Windows nodes, or groups of them.
    fn names_windows(&self, nodes: &WindowsNodes) -> bool {
        let in_term = |term: &NodeSelectorTerm| {
            requirements(term).any(|NodeSelectorRequirement { key, operator, values }| {
                let mut values = values.iter().flatten().peekable();
                names_nodes(key)
                    && operator == "In"
                    && values.peek().is_some()
                    && values.all(|value| nodes.are_named(key, value))
            })
        };
        let mut terms = self.terms.iter().filter(|term| !affinity::is_empty(term)).peekable();
        self.node_selector.iter().any(|(key, value)| names_nodes(key) && nodes.are_named(key, value))
            || terms.peek().is_some() && terms.all(in_term)
    }

    /// True if a pod may run on nodes of the pool, as far as what it requires shows.
    pub(super) fn allows(&self, pool: &PoolSpec) -> bool {
        let agrees =
            |(key, value): (&String, &String)| self.node_selector.get(key).is_none_or(|selected| selected == value);
        let is_windows = self.node_selector.get(names::OS).is_none_or(|os| os == names::WINDOWS);
        let contradicts = |requirement: &NodeSelectorRequirement| {
            let value = pool.node_selector.get(&requirement.key).map(String::as_str);
            let value = if requirement.key == names::OS { Some(names::WINDOWS) } else { value };
            value.is_some_and(|value| !affinity::holds(requirement, Some(value)))
        };
        let is_open = |term: &NodeSelectorTerm| !term.match_expressions.iter().flatten().any(contradicts);
        let mut terms = self.terms.iter().filter(|term| !affinity::is_empty(term)).peekable();
        is_windows && pool.node_selector.iter().all(agrees) && (terms.peek().is_none() || terms.any(is_open))
    }
}

fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().chain(&term.match_fields).flatten()
}

/// The Windows nodes, pools and RuntimeClasses at one moment, and what was found of each placement.
#[derive(Clone, Debug, Default)]
pub struct WindowsNodes {
    /// Each with the name of the pool that owns it.
    nodes: Vec<(Arc<NodeObject>, Option<String>)>,
    /// The names of the nodes.
    names: BTreeSet<Arc<str>>,
    /// The pools that add tolerations.
    pools: Vec<Arc<PoolSpec>>,
    /// The taints of each pool with the time at which winpool first added them to a node.
    since: BTreeMap<String, BTreeMap<Taint, Timestamp>>,
    /// The names of RuntimeClasses that select Windows nodes.
    classes: BTreeSet<String>,
    /// What was found, by the address of the placement, which is kept for that reason.
    found: HashMap<usize, Found>,
}

#[derive(Clone, Debug)]
struct Found {
    _placement: Arc<Placement>,
    says_windows: bool,
    lacks: LackedTolerations,
}

impl WindowsNodes {
    pub fn of(facts: &ClusterFacts<'_>) -> Self {
        let policy = facts.policy;
        let with_owner = |object: &Arc<NodeObject>| {
            let owner = policy.owner(&object.node.labels).map(|entry| entry.pool.spec.name.clone());
            (Arc::clone(object), owner)
        };
        let for_windows = |class: &&Arc<RuntimeClass>| selects_windows(&Class::from(class.as_ref()).selector);
        let nodes = facts.nodes.objects().filter(|object| !object.node.contradicts_itself());
        let nodes: Vec<_> = nodes.map(with_owner).collect();
        Self {
            names: nodes.iter().map(|(object, _)| Arc::clone(&object.name)).collect(),
            nodes,
            since: policy.pools().map(|pool| (pool.spec.name.clone(), pool.consent.since.clone())).collect(),
            pools: policy.pools().map(|pool| &pool.spec).filter(|spec| spec.adds_tolerations()).cloned().collect(),
            classes: facts.classes.iter().filter(for_windows).map(|class| class.name_any()).collect(),
            found: HashMap::new(),
        }
    }

    pub(super) fn has_pool(&self, pool: &PoolSpec) -> bool {
        self.pools.iter().any(|known| **known == *pool)
    }

    /// True if it has the same pools, with the same taints for as long.
    pub(super) fn has_pools_of(&self, other: &Self) -> bool {
        self.since == other.since && other.pools.iter().all(|pool| self.has_pool(pool))
    }

    /// True if the `DaemonSet` came later than a taint that it does not tolerate.
    pub(super) fn had_taints_before(&self, set: &Objector) -> bool {
        self.since.values().flatten().any(|(taint, since)| set.lacks(taint) && !set.is_older(Some(*since)))
    }

    /// The time at which winpool first added each taint of the pool to a node.
    pub(super) fn since(&self, pool: &str) -> BTreeMap<Taint, Timestamp> {
        self.since.get(pool).cloned().unwrap_or_default()
    }

    /// True if this is the name of a Windows node.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn are_named(&self, key: &str, value: &str) -> bool {
        match key {
            NAME => self.has(value),
            key => self.nodes.iter().any(|(object, _)| object.node.labels.get(key) == Some(value)),
        }
    }

    /// The tolerations that the pod lacks, if it is for Windows.
    pub(super) fn lacked_by(&mut self, pod: &PodFact, history: &PodHistory) -> LackedTolerations {
        let is_known = history.says_windows(&pod.workload, &pod.placement);
        let found = self.found(&pod.placement).filter(|found| found.says_windows || is_known);
        found.map(|found| found.lacks.clone()).unwrap_or_default()
    }

    /// The pools with nodes that the pod fits but for taints, if it does not show that it is for Windows.
    pub(super) fn pools_closed_to(&mut self, pod: &PodFact) -> BTreeSet<String> {
        let found = self.found(&pod.placement).filter(|found| !found.says_windows);
        found.into_iter().flat_map(|found| found.lacks.values().cloned()).collect()
    }

    /// What was found of the placement, if it lacks tolerations.
    fn found(&mut self, placement: &Arc<Placement>) -> Option<&Found> {
        let key = Arc::as_ptr(placement).addr();
        if !self.found.contains_key(&key) {
            let (says_windows, lacks) = (self.says_windows(placement), self.lacks(placement));
            self.found.insert(key, Found { _placement: Arc::clone(placement), says_windows, lacks });
        }
        self.found.get(&key).filter(|found| !found.lacks.is_empty())
    }

    pub(super) fn says_windows(&self, placement: &Placement) -> bool {
        let by_class = || placement.class.as_deref().is_some_and(|class| self.classes.contains(class));
        placement.system == Some(System::Windows) || by_class() || placement.names_windows(self)
    }

    /// The tolerations of Windows taints that a pod with this placement lacks, on the nodes that it fits.
    fn lacks(&self, placement: &Placement) -> LackedTolerations {
        let fits = |(object, _): &&(Arc<NodeObject>, _)| placement.fits(&object.node.labels, &object.name);
        let fits: Vec<_> = self.nodes.iter().filter(fits).collect();
        let mut lacks = LackedTolerations::new();
        for pool in &self.pools {
            let is_its = |(_, owner): &&(Arc<NodeObject>, Option<String>)| owner.as_ref() == Some(&pool.name);
            let own: Vec<_> = fits.iter().copied().filter(is_its).collect();
            let waits_for_its_first = || fits.is_empty() && !self.nodes.iter().any(|node| is_its(&node));
            if own.is_empty() && !(placement.allows(pool) && waits_for_its_first()) {
                continue;
            }
            let on_nodes = own.iter().flat_map(|(object, _)| object.node.taints.taints()).cloned();
            for taint in pool.wanted_taints().into_iter().chain(on_nodes) {
                if taint.effect == "NoSchedule" && taint.marks_windows() {
                    lacks.entry(taint).or_insert_with(|| pool.name.clone());
                }
            }
        }
        lacks.retain(|taint, _| !tolerate(&placement.tolerations, taint));
        lacks
    }
}
