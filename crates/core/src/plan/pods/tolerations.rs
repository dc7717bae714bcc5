//! Which tolerations a pod lacks: is it for Windows, and on which nodes of which pools may it run?

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use json_patch::Patch;
use k8s_openapi::{
    api::{
        core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration},
        node::v1::RuntimeClass,
    },
    jiff::Timestamp,
};
use kube::ResourceExt;

use crate::{
    api::{
        ObjectReference, Problem, Taint,
        names::{self, reason},
    },
    node::NodeObject,
    plan::{
        Now, SHOWN,
        nodes::table::NodeTable,
        patch::{REVERTED, toleration_patch},
        pods::{
            fact::{PodFact, PodStage},
            history::PodHistory,
        },
        pools::{
            objector::Objector,
            pool::{Policy, PoolSpec},
        },
        refusal::RequestError,
        whole_seconds,
    },
    pod::{
        Class, Placement, System, affinity, placement::requirements, selects_windows, tolerate, tolerations::toleration,
    },
    words::plain,
};

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
pub(crate) type LackedTolerations = BTreeMap<Taint, String>;

impl Placement {
    /// True if the pod itself may show that it is for Windows.
    pub(crate) fn may_show_windows(&self) -> bool {
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
    pub(crate) fn allows(&self, pool: &PoolSpec) -> bool {
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

/// The facts besides pods by which pods are counted.
pub struct ClusterFacts<'a> {
    /// The Windows nodes.
    pub nodes: &'a NodeTable,
    pub policy: &'a Policy,
    pub classes: &'a [Arc<RuntimeClass>],
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

    pub(crate) fn has_pool(&self, pool: &PoolSpec) -> bool {
        self.pools.iter().any(|known| **known == *pool)
    }

    /// True if it has the same pools, with the same taints for as long.
    pub(crate) fn has_pools_of(&self, other: &Self) -> bool {
        self.since == other.since && other.pools.iter().all(|pool| self.has_pool(pool))
    }

    /// True if the `DaemonSet` came later than a taint that it does not tolerate.
    pub(crate) fn had_taints_before(&self, set: &Objector) -> bool {
        self.since.values().flatten().any(|(taint, since)| set.lacks(taint) && !set.is_older(Some(*since)))
    }

    /// The time at which winpool first added each taint of the pool to a node.
    pub(crate) fn since(&self, pool: &str) -> BTreeMap<Taint, Timestamp> {
        self.since.get(pool).cloned().unwrap_or_default()
    }

    /// True if this is the name of a Windows node.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn are_named(&self, key: &str, value: &str) -> bool {
        match key {
            NAME => self.has(value),
            key => self.nodes.iter().any(|(object, _)| object.node.labels.get(key) == Some(value)),
        }
    }

    /// The tolerations that the pod lacks, if it is for Windows.
    pub(crate) fn lacked_by(&mut self, pod: &PodFact, history: &PodHistory) -> LackedTolerations {
        let is_for_windows = |found: &&Found| found.says_windows || history.says_windows(&pod.workload, &pod.placement);
        self.found(&pod.placement).filter(is_for_windows).map(|found| found.lacks.clone()).unwrap_or_default()
    }

    /// The pools with nodes that the pod fits but for taints, if it does not show that it is for Windows.
    pub(crate) fn pools_closed_to(&mut self, pod: &PodFact) -> BTreeSet<String> {
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

    pub(crate) fn says_windows(&self, placement: &Placement) -> bool {
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
                if pool.helps_with(&taint) {
                    lacks.entry(taint).or_insert_with(|| pool.name.clone());
                }
            }
        }
        lacks.retain(|taint, _| !tolerate(&placement.tolerations, taint));
        lacks
    }
}

// The queue in which pods for Windows get the tolerations that they lack.
//
// The table knows which pods may be for Windows. An interpreter asks for the next patch, sends it, and passes on the answer.
// Pods that wait for a node come before pods that run, and namespaces take turns, so that nobody who creates thousands of
// pods delays the pods of others.

/// The first pause of a workload whose pods may not be changed, and the longest one.
const REFUSED: [Duration; 2] = [Duration::from_mins(1), Duration::from_hours(1)];
/// The longest wait for the scheduler's first answer about a pod. While it looks at a pod, it may lose a change of it, and
/// then looks again only after up to 5 minutes (kube-scheduler, `handleSchedulingFailure`: it reads the pod, and queues what
/// it has read, but not under one lock). Another scheduler may give no answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// The pause after a request that failed.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest time for which a node without a taint waits for its pods.
const AWAITED: Duration = Duration::from_mins(2);
/// The number of times in a row that the test of a patch fails before that is a refusal: a webhook may change every patch.
const STALE: u32 = 5;
/// The limit of workloads whose refusals are remembered, and of those that are remembered as helped.
const WORKLOADS: usize = 1000;
/// The end of the message with which `winpool-confine-pods` refuses a change of a pod that is being deleted. winpool never
/// asks for the other pods that this message names.
pub const IS_ENDING: &str = "are not being deleted";
/// The longest message of a refusal.
const MESSAGE: usize = 300;

/// A pod that gets tolerations.
#[derive(Clone, Debug, PartialEq)]
pub struct TolerationRequest {
    pub namespace: String,
    pub pod: String,
    pub patch: Patch,
    /// The taints that the pod tolerates afterwards.
    pub taints: Vec<Taint>,
}

/// The answer to such a request: the tolerations that the pod has then.
pub type TolerationAnswer = Result<Vec<Toleration>, RequestError>;

/// A pod that lacks tolerations.
#[derive(Clone, Debug, Default)]
struct LackingPod {
    lacks: LackedTolerations,
    /// The node that it has.
    node: Option<Arc<str>>,
    /// The time until which the node waits for it; `None` once winpool has tried to patch it, or a pod like it.
    awaited_until: Option<Instant>,
    /// True until the scheduler has answered.
    is_new: bool,
    /// The number of patches in a row whose test failed.
    stale: u32,
}

/// Pods in their order, each namespace in turn.
#[derive(Clone, Debug, Default)]
struct Turns {
    pods: BTreeMap<String, VecDeque<Arc<str>>>,
    last: String,
}

impl Turns {
    fn add(&mut self, name: Arc<str>) {
        self.pods.entry(parts(&name).0.to_owned()).or_default().push_back(name);
    }

    fn next(&mut self) -> Option<Arc<str>> {
        let after = self.pods.range::<String, _>((std::ops::Bound::Excluded(&self.last), std::ops::Bound::Unbounded));
        let turn = after.map(|(turn, _)| turn).next().or_else(|| self.pods.keys().next())?.clone();
        let of_namespace = self.pods.get_mut(&turn)?;
        let name = of_namespace.pop_front();
        if of_namespace.is_empty() {
            self.pods.remove(&turn);
        }
        self.last = turn;
        name
    }
}

/// The namespace and the name of a pod in the table.
fn parts(pod: &str) -> (&str, &str) {
    pod.split_once('/').unwrap_or_default()
}

/// Why pods of a workload do not get tolerations.
#[derive(Clone, Debug)]
struct WorkloadRefusal {
    pools: BTreeSet<String>,
    message: String,
    failures: u32,
    until: Instant,
}

/// The pods of one pool that got tolerations, and those that may not get them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolHelp {
    /// The workloads whose pods got tolerations, each with the time of the last one.
    pub helped: BTreeMap<Arc<str>, Timestamp>,
    /// The workloads whose pods may not be changed, with the reason.
    pub refused: BTreeMap<Arc<str>, String>,
    /// The workloads whose pods have waited for long, do not say their system, and fit a node but for its taint.
    pub unclear: BTreeSet<Arc<str>>,
}

impl PoolHelp {
    /// A problem for each workload whose pods may not be changed, and for each whose pods do not say their system.
    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        let unclear = self.unclear.iter().map(|workload| {
            let message = "pods of this workload have found no node for 10 minutes. They do not say their operating system, and \
                           fit a node of this pool but for its taint; if they are for Windows, add nodeSelector: \
                           {kubernetes.io/os: windows} to the pod template";
            Problem::new(reason::SYSTEM_NOT_STATED, ObjectReference::named(workload), message)
        });
        let refused = self.refused.iter().map(|(workload, why)| {
            let message = format!(
                "pods of this workload lack the toleration of the pool's taint, and winpool may not add it: {why}; add the \
                 toleration to the pod template"
            );
            Problem::new(reason::TOLERATION_REFUSED, ObjectReference::named(workload), message)
        });
        refused.chain(unclear)
    }
}

/// The pods that lack tolerations, and the requests for them.
#[derive(Clone, Debug, Default)]
pub struct HelpQueue {
    lacking: BTreeMap<Arc<str>, LackingPod>,
    waiting: Turns,
    running: Turns,
    queued: BTreeSet<Arc<str>>,
    in_flight: BTreeMap<Arc<str>, LackedTolerations>,
    later: BTreeSet<(Instant, Arc<str>)>,
    refusals: BTreeMap<Arc<str>, WorkloadRefusal>,
    helped: BTreeMap<(String, Arc<str>), Timestamp>,
}

impl HelpQueue {
    /// Sets the tolerations that a pod lacks, and queues it if there are some.
    pub fn set(&mut self, name: &Arc<str>, lacks: LackedTolerations, pod: &PodFact, now: Instant) {
        if lacks.is_empty() {
            return self.forget(name);
        }
        let lacking = self.lacking.entry(Arc::clone(name)).or_default();
        let is_changed = lacking.lacks != lacks || lacking.node != pod.node;
        let was_new = std::mem::replace(&mut lacking.is_new, pod.stage == PodStage::Unscheduled);
        if is_changed {
            (lacking.lacks, lacking.node, lacking.awaited_until) = (lacks, pod.node.clone(), Some(now + AWAITED));
        }
        if is_changed && lacking.is_new {
            self.later.insert((now + FIRST_ANSWER, Arc::clone(name)));
        } else if is_changed || was_new && !lacking.is_new {
            self.queue(name);
        }
    }

    /// The nodes on which pods run that are to get tolerations before the nodes get taints, and the time at which these are
    /// fewer nodes although nothing happens.
    pub fn awaited(&self, now: Instant) -> (BTreeSet<Arc<str>>, Option<Instant>) {
        let awaited = self.lacking.values().filter_map(|pod| pod.node.clone().zip(pod.awaited_until));
        let awaited = awaited.filter(|(_, until)| now < *until);
        let (nodes, until): (BTreeSet<Arc<str>>, Vec<Instant>) = awaited.unzip();
        (nodes, until.into_iter().min())
    }

    /// The pods that lack tolerations, each with a pool that wants one.
    pub fn lacking(&self) -> impl Iterator<Item = (&Arc<str>, &String)> {
        self.lacking.iter().filter_map(|(name, pod)| Some((name, pod.lacks.first_key_value()?.1)))
    }

    /// The pod lacks no toleration, or is gone.
    pub fn forget(&mut self, name: &str) {
        self.lacking.remove(name);
    }

    fn queue(&mut self, name: &Arc<str>) {
        let Some(lacking) = self.lacking.get(name) else { return };
        if self.queued.insert(Arc::clone(name)) {
            let turns = if lacking.node.is_some() { &mut self.running } else { &mut self.waiting };
            turns.add(Arc::clone(name));
        }
    }

    /// The next request, if one is due. `pod` returns the pod with a name.
    pub fn next<'p>(&mut self, pod: impl Fn(&str) -> Option<&'p PodFact>, now: Instant) -> Option<TolerationRequest> {
        while self.due().is_some_and(|until| until <= now)
            && let Some((_, name)) = self.later.pop_first()
        {
            self.queue(&name);
        }
        loop {
            let name = self.waiting.next().or_else(|| self.running.next())?;
            self.queued.remove(&name);
            let Some((fact, lacking)) = pod(&name).zip(self.lacking.get(&name)) else { continue };
            if self.in_flight.contains_key(&name) {
                continue;
            }
            let refused_until = self.refusals.get(&fact.workload).map(|refusal| refusal.until);
            if let Some(until) = refused_until.filter(|until| now < *until) {
                // It would be refused too, so its node need not wait.
                if let Some(lacking) = self.lacking.get_mut(&name) {
                    lacking.awaited_until = None;
                }
                self.later.insert((until, name));
                continue;
            }
            let taints: Vec<Taint> = lacking.lacks.keys().cloned().collect();
            let added: Vec<Toleration> = taints.iter().map(toleration).collect();
            let patch = toleration_patch(&fact.uid.to_string(), &fact.placement.tolerations, &added);
            let (namespace, pod) = parts(&name);
            let request = TolerationRequest { namespace: namespace.to_owned(), pod: pod.to_owned(), patch, taints };
            self.in_flight.insert(Arc::clone(&name), lacking.lacks.clone());
            return Some(request);
        }
    }

    /// The time of the next request, if all present ones wait.
    pub fn due(&self) -> Option<Instant> {
        self.later.first().map(|(until, _)| *until)
    }

    /// Takes in the answer to a request for a pod of this workload. Returns true if a status may say something else now.
    pub fn answer(&mut self, name: &str, workload: Option<Arc<str>>, answer: TolerationAnswer, now: Now) -> bool {
        let Some((name, asked)) = self.in_flight.remove_entry(name) else { return false };
        let Some(workload) = workload else { return false };
        let lacks_still = |tolerations: &[Toleration]| asked.keys().any(|taint| !tolerate(tolerations, taint));
        let stale = self.lacking.get_mut(&name).map(|lacking| std::mem::take(&mut lacking.stale)).unwrap_or_default();
        let is_stale = matches!(answer, Err(RequestError::Stale | RequestError::Conflict));
        let is_tried = !is_stale && !matches!(answer, Err(RequestError::Failed { .. }));
        if let Some(lacking) = self.lacking.get_mut(&name).filter(|_| is_tried) {
            lacking.awaited_until = None;
        }
        let message = match answer {
            Ok(tolerations) if !lacks_still(&tolerations) => {
                // Until the watch shows it, if it has not done so already. If it never does, the test of the next patch fails.
                self.later.insert((now.instant + SHOWN, name));
                self.refusals.remove(&workload);
                let time = whole_seconds(now.time);
                for pool in asked.into_values() {
                    self.helped.insert((pool, Arc::clone(&workload)), time);
                }
                self.forget_oldest();
                return true;
            }
            Ok(_) => REVERTED.to_owned(),
            Err(RequestError::Denied(message)) if !message.contains(IS_ENDING) => message,
            // The pod is being deleted, and the watch has yet to show that. The other pods of its workload need not wait.
            Err(RequestError::Denied(_) | RequestError::Gone) => return false,
            Err(_) if is_stale && stale + 1 >= STALE => {
                "the test of the patch fails although the pod is as it was seen".to_owned()
            }
            Err(RequestError::Stale | RequestError::Conflict | RequestError::Failed { .. }) => {
                if let Some(lacking) = self.lacking.get_mut(&name) {
                    lacking.stale = stale + u32::from(is_stale);
                }
                self.later.insert((now.instant + AGAIN, name));
                return false;
            }
        };
        self.refuse(name, workload, asked, &message, now.instant);
        true
    }

    /// Lets the workload wait, twice as long each time.
    fn refuse(&mut self, name: Arc<str>, workload: Arc<str>, asked: LackedTolerations, message: &str, now: Instant) {
        let [first, longest] = REFUSED;
        // The API server names the pod. Pods that are refused for the same reason are one problem.
        let (_, pod) = parts(&name);
        let message = plain(&message.replace(&format!("\"{pod}\" "), ""), MESSAGE);
        let failures = self.refusals.get(&workload).map_or(0, |known| {
            // Several pods of the workload may have been asked about at the same time.
            if now < known.until { known.failures } else { known.failures + 1 }
        });
        let until = now + longest.min(first * 2_u32.pow(failures.min(10)));
        self.later.insert((until, name));
        let pools = asked.into_values().collect();
        self.refusals.insert(workload, WorkloadRefusal { pools, message, failures, until });
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        if self.refusals.len() > WORKLOADS {
            let first = self.refusals.iter().min_by_key(|(_, refusal)| refusal.until);
            let first = first.map(|(workload, _)| Arc::clone(workload));
            first.and_then(|workload| self.refusals.remove(&workload));
        }
        if self.helped.len() > WORKLOADS {
            let oldest = self.helped.iter().min_by_key(|(_, last)| **last).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.helped.remove(&key));
        }
    }

    /// Forgets the requests of an earlier term of leadership.
    pub fn begin_term(&mut self) {
        self.in_flight.clear();
        self.refusals.clear();
        self.helped.clear();
        self.later.clear();
        for name in self.lacking.keys().cloned().collect::<Vec<_>>() {
            self.queue(&name);
        }
    }

    /// What to report, by pool. `pod` returns the pod with a name.
    pub fn report<'p>(&mut self, pod: impl Fn(&str) -> Option<&'p PodFact>) -> BTreeMap<String, PoolHelp> {
        let lacking: BTreeSet<&Arc<str>> = self.lacking.keys().filter_map(|name| Some(&pod(name)?.workload)).collect();
        self.refusals.retain(|workload, _| lacking.contains(workload));
        let mut pools: BTreeMap<String, PoolHelp> = BTreeMap::new();
        for ((pool, workload), last) in &self.helped {
            pools.entry(pool.clone()).or_default().helped.insert(Arc::clone(workload), *last);
        }
        for (workload, refusal) in &self.refusals {
            for pool in &refusal.pools {
                let refused = &mut pools.entry(pool.clone()).or_default().refused;
                refused.insert(Arc::clone(workload), refusal.message.clone());
            }
        }
        pools
    }
}
