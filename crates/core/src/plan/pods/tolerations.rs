//! Which tolerations a pod lacks: is it for Windows, and on which nodes of which pools may it run?

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use json_patch::Patch;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::names::{self, reason};
use crate::api::{ObjectReference, Problem, Taint};
use crate::budget::{FOUND, PATCHES_OF_NAMESPACE, WORKLOADS, keep_shares, namespace};
use crate::node::NodeObject;
use crate::plan::SHOWN;
use crate::plan::attempt::{Attempt, FAILED, Pauses, RequestError};
use crate::plan::nodes::others::{NAME, OtherNodes, names_nodes};
use crate::plan::nodes::table::NodeTable;
use crate::plan::patch::{REVERTED, toleration_patch};
use crate::plan::pods::fact::{PodFact, PodStage};
use crate::plan::pods::history::PodHistory;
use crate::plan::pools::objector::Objector;
use crate::plan::pools::pool::{Policy, Pool, PoolSpec, TOLERATED};
use crate::pod::placement::requirements;
use crate::pod::tolerations::toleration;
use crate::pod::{Class, Placement, System, affinity, selects_windows, tolerate};
use crate::words::plain;

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

    /// True if it names only nodes, or groups of them, for which `are_named` is true.
    pub(crate) fn names_only(&self, are_named: impl Fn(&str, &str) -> bool) -> bool {
        let in_term = |term: &NodeSelectorTerm| {
            requirements(term).any(|NodeSelectorRequirement { key, operator, values }| {
                let mut values = values.iter().flatten().peekable();
                names_nodes(key)
                    && operator == "In"
                    && values.peek().is_some()
                    && values.all(|value| are_named(key, value))
            })
        };
        let mut terms = self.terms.iter().filter(|term| !affinity::is_empty(term)).peekable();
        self.node_selector.iter().any(|(key, value)| names_nodes(key) && are_named(key, value))
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
    pub(crate) others: OtherNodes,
    /// The names of those of them that report Windows. Their label has just changed.
    doubtful: BTreeSet<Arc<str>>,
    pub(crate) policy: Policy,
    /// The names of RuntimeClasses that select Windows nodes.
    classes: BTreeSet<String>,
    /// What was found, by the address of the placement, which is not used again as long as it is known here.
    found: HashMap<usize, Found>,
}

#[derive(Clone, Debug)]
struct Found {
    _placement: Weak<Placement>,
    says_windows: bool,
    /// The tolerations of the Windows taints that it may meet, without those that it has.
    lacks: LackedTolerations,
    /// Those that it has.
    has: LackedTolerations,
}

impl WindowsNodes {
    /// `others` are the other nodes, and `reimaged` those of them that had winpool's label before.
    pub fn of(facts: &ClusterFacts<'_>, others: OtherNodes, reimaged: &NodeTable) -> Self {
        let policy = facts.policy;
        let doubtful = reimaged.objects().filter(|object| object.node.contradicts_itself());
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
            others,
            doubtful: doubtful.map(|object| Arc::clone(&object.name)).collect(),
            policy: policy.clone(),
            classes: facts.classes.iter().filter(for_windows).map(|class| class.name_any()).collect(),
            found: HashMap::new(),
        }
    }

    /// The pools that add tolerations.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &PoolSpec> {
        self.policy.pools().map(|pool| &*pool.spec).filter(|spec| spec.adds_tolerations())
    }

    /// True if pods were looked at for this pool as it is now.
    pub fn has_pool(&self, pool: &PoolSpec) -> bool {
        self.pools().any(|known| known == pool)
    }

    /// True if it has the same pools, with the same taints for as long.
    pub(crate) fn has_pools_of(&self, other: &Self) -> bool {
        let since = |pool: &Arc<Pool>| (pool.spec.name.clone(), pool.consent.since.clone());
        self.policy.pools().map(since).eq(other.policy.pools().map(since))
            && other.pools().all(|pool| self.has_pool(pool))
    }

    /// True if the `DaemonSet` came later than a taint that it does not tolerate.
    pub(crate) fn had_taints_before(&self, set: &Objector) -> bool {
        let mut since = self.policy.pools().flat_map(|pool| &pool.consent.since);
        since.any(|(taint, since)| set.lacks(taint) && !set.is_older(Some(*since)))
    }

    /// The time at which winpool first added each taint of the pool to a node.
    pub(crate) fn since(&self, pool: &str) -> BTreeMap<Taint, Timestamp> {
        self.policy.pool(pool).map(|pool| pool.consent.since.clone()).unwrap_or_default()
    }

    /// True if this is the name of a Windows node.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// True if the pod is on a node that exists and has another system, as its label and its report say.
    pub(crate) fn is_elsewhere(&self, pod: &PodFact) -> bool {
        pod.node.as_ref().is_some_and(|node| self.others.has(node) && !self.doubtful.contains(node))
    }

    /// True if this is a Windows node or a group of them, to which no other node belongs.
    fn are_named(&self, key: &str, value: &str) -> bool {
        match key {
            NAME => self.has(value),
            key => {
                let is_in = |(object, _): &(Arc<NodeObject>, _)| object.node.labels.get(key) == Some(value);
                self.nodes.iter().any(is_in) && self.others.first_of(key, value).is_none()
            }
        }
    }

    /// The tolerations that the pod lacks, if it is for Windows.
    pub(crate) fn lacked_by(&mut self, pod: &PodFact, history: &PodHistory) -> LackedTolerations {
        let is_for_windows = |found: &Found| found.says_windows || history.says_windows(&pod.workload, &pod.placement);
        let found = self.found(&pod.placement);
        if found.lacks.is_empty() || !is_for_windows(found) { BTreeMap::new() } else { found.lacks.clone() }
    }

    /// The tolerations of the pod that winpool may have added.
    pub(crate) fn added_to(&mut self, pod: &PodFact) -> LackedTolerations {
        self.found(&pod.placement).has.clone()
    }

    /// The pools with nodes that the pod fits but for taints, if it does not show that it is for Windows.
    pub(crate) fn pools_closed_to(&mut self, pod: &PodFact) -> BTreeSet<String> {
        let found = Some(self.found(&pod.placement)).filter(|found| !found.says_windows);
        found.into_iter().flat_map(|found| found.lacks.values().cloned()).collect()
    }

    /// What was found of the placement.
    fn found(&mut self, placement: &Arc<Placement>) -> &Found {
        let key = Arc::as_ptr(placement).addr();
        if !self.found.contains_key(&key) {
            let (says_windows, (has, lacks)) = (self.says_windows(placement), self.tolerations(placement));
            if self.found.len() >= FOUND {
                self.found.clear();
            }
            self.found.insert(key, Found { _placement: Arc::downgrade(placement), says_windows, lacks, has });
        }
        &self.found[&key]
    }

    pub(crate) fn says_windows(&self, placement: &Placement) -> bool {
        let by_class = || placement.class.as_deref().is_some_and(|class| self.classes.contains(class));
        placement.system == Some(System::Windows)
            || by_class()
            || placement.names_only(|key, value| self.are_named(key, value))
    }

    /// The tolerations of Windows taints on the nodes that a pod with this placement fits: those that it has, and those that it
    /// lacks.
    fn tolerations(&self, placement: &Placement) -> (LackedTolerations, LackedTolerations) {
        let fits = |(object, _): &&(Arc<NodeObject>, _)| placement.fits(&object.node.labels, &object.name);
        let fits: Vec<_> = self.nodes.iter().filter(fits).collect();
        let mut lacks = BTreeMap::new();
        for pool in self.pools() {
            let is_its = |(_, owner): &&(Arc<NodeObject>, Option<String>)| owner.as_ref() == Some(&pool.name);
            let own: Vec<_> = fits.iter().copied().filter(is_its).collect();
            let waits_for_its_first = || fits.is_empty() && !self.nodes.iter().any(|node| is_its(&node));
            if own.is_empty() && !(placement.allows(pool) && waits_for_its_first()) {
                continue;
            }
            let on_nodes = own.iter().flat_map(|(object, _)| object.node.taints.taints());
            let taints = pool.tolerated_taints.iter().chain(on_nodes).filter(|taint| pool.helps_with(taint));
            let known = taints.filter_map(|taint| Some((self.policy.precedence(taint, pool)?, taint)));
            lacks.extend(known.map(|key| (key, &pool.name)));
        }
        let lacks = lacks.into_iter().take(TOLERATED).map(|((_, taint), pool)| (taint.clone(), pool.clone()));
        lacks.partition(|(taint, _)| tolerate(&placement.tolerations, taint))
    }
}

// The queue in which pods for Windows get the tolerations that they lack.
//
// The table knows which pods may be for Windows. An interpreter asks for the next patch, sends it, and passes on the answer.
// Pods that wait for a node come before pods that run, and namespaces take turns, so that nobody who creates thousands of
// pods delays the pods of others.

/// The pauses of a workload whose pods may not be changed.
const REFUSED: Pauses = Pauses { first: Duration::from_mins(1), longest: Duration::from_hours(1) };
/// The longest wait for the scheduler's first answer about a pod. While it looks at a pod, it may lose a change of it, and
/// then looks again only after up to 5 minutes (kube-scheduler, `handleSchedulingFailure`: it reads the pod, and queues what
/// it has read, but not under one lock). Another scheduler may give no answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// The longest time for which a node without a taint waits for its pods, from the first one.
const AWAITED: Duration = Duration::from_mins(2);
/// The number of times in a row that the patch of a pod fails before that is a refusal, if those of other pods do not: a webhook
/// may change every patch, and the API server refuses a pod that is too large for etcd as if it had failed.
const ATTEMPTS: u32 = 8;
const SLOW: Duration = Duration::from_secs(1);
/// The time for which all requests fail before that is an outage, whose end ends all pauses.
const OUTAGE: Duration = Duration::from_secs(2);
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

/// The answer to such a request. What was stored, the watch shows.
pub type TolerationAnswer = Result<(), RequestError>;

/// A pod that lacks tolerations.
#[derive(Clone, Debug, Default)]
struct LackingPod {
    lacks: LackedTolerations,
    /// The node that it has.
    node: Option<Arc<str>>,
    /// True until winpool has tried to patch it, or a pod like it.
    is_awaited: bool,
    /// True until the scheduler has answered.
    is_new: bool,
    /// The time until which the watch has to show a patch that was accepted.
    accepted: Option<Instant>,
    attempt: Attempt,
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

    /// The next pod of a namespace that may have a turn.
    fn next(&mut self, may: impl Fn(&str) -> bool) -> Option<Arc<str>> {
        let after = self.pods.range::<String, _>((std::ops::Bound::Excluded(&self.last), std::ops::Bound::Unbounded));
        let turn = after.map(|(turn, _)| turn).chain(self.pods.keys()).find(|turn| may(turn))?.clone();
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
    /// True if no request for any pod has been answered for a minute.
    is_general: bool,
}

/// The pods of one pool that got tolerations, and those that may not get them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolHelp {
    /// The workloads whose pods got tolerations, each with the time of the last one.
    pub helped: BTreeMap<Arc<str>, Timestamp>,
    /// The workloads whose pods may not be changed, each with the reason of the problem and why.
    pub refused: BTreeMap<Arc<str>, (&'static str, String)>,
    /// The workloads whose pods have waited for long, do not say their system, and fit a node but for its taint. With the name of a node
    /// of another system, if it is in the group of nodes that the pods select.
    pub unclear: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// The namespaces with pods whose placement is not stored.
    pub unknown: BTreeSet<String>,
}

impl PoolHelp {
    /// A problem for each workload whose pods may not be changed, and for each whose pods do not say their system.
    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        let unclear = self.unclear.iter().map(|(workload, odd)| {
            let odd = odd.as_ref().map(|odd| format!(" (node {odd} of the group that they select has another system)"));
            let message = format!(
                "pods of this workload find no node. They do not say their operating system, and fit a node of this pool but for its \
                 taint{}; if they are for Windows, add nodeSelector: {{kubernetes.io/os: windows}} to the pod template",
                odd.unwrap_or_default()
            );
            Problem::new(reason::SYSTEM_NOT_STATED, ObjectReference::named(workload), message)
        });
        let refused = self.refused.iter().map(|(workload, (reason, why))| {
            let message = format!(
                "pods of this workload lack the toleration of the pool's taint, and winpool may not add it: {why}; add the \
                 toleration to the pod template"
            );
            Problem::new(reason, ObjectReference::named(workload), message)
        });
        let unknown = self.unknown.iter().map(|namespace| {
            let message = "winpool does not read some pods of this namespace, and adds no toleration to them: their nodeSelector, \
                           affinity and tolerations are longer than 16 KiB, or the namespace has too many different ones";
            let object = ObjectReference::namespace(namespace);
            Problem::new(reason::PODS_NOT_SEEN, object, message)
        });
        unknown.chain(refused).chain(unclear)
    }
}

/// The pods that lack tolerations, and the requests for them.
#[derive(Clone, Debug, Default)]
pub struct HelpQueue {
    lacking: BTreeMap<Arc<str>, LackingPod>,
    waiting: Turns,
    running: Turns,
    queued: BTreeSet<Arc<str>>,
    in_flight: BTreeMap<Arc<str>, (LackedTolerations, Instant)>,
    /// Namespaces whose last answer was slow.
    slow: BTreeSet<String>,
    /// The nodes that wait for pods, each with the end of that.
    awaited: BTreeMap<Arc<str>, Instant>,
    later: BTreeSet<(Instant, Arc<str>)>,
    refusals: BTreeMap<Arc<str>, Attempt<WorkloadRefusal>>,
    helped: BTreeMap<(String, Arc<str>), Timestamp>,
    /// The time since which all requests fail, if the last one did.
    failing_since: Option<Instant>,
    /// True if a status may say something else since this was last asked.
    pub has_news: bool,
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
            (lacking.lacks, lacking.node, lacking.is_awaited) = (lacks, pod.node.clone(), true);
            lacking.accepted = None;
            if let Some(node) = &pod.node {
                self.awaited.entry(Arc::clone(node)).or_insert(now + AWAITED);
            }
        }
        if is_changed && lacking.is_new {
            self.later.insert((now + FIRST_ANSWER, Arc::clone(name)));
        } else if is_changed || was_new && !lacking.is_new {
            self.queue(name);
        }
    }

    /// The nodes on which pods run that are to get tolerations before the nodes get taints, and the time at which these are
    /// fewer nodes although nothing happens.
    pub fn awaited(&mut self, now: Instant) -> (BTreeSet<Arc<str>>, Option<Instant>) {
        let nodes: BTreeSet<_> =
            self.lacking.values().filter(|pod| pod.is_awaited).filter_map(|pod| pod.node.as_ref()).collect();
        self.awaited.retain(|node, _| nodes.contains(node));
        let awaited = self.awaited.iter().filter(|(_, until)| now < **until);
        let (nodes, until): (_, Vec<Instant>) = awaited.map(|(node, until)| (Arc::clone(node), *until)).unzip();
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
            let of = |namespace: &str| self.in_flight.keys().filter(|name| parts(name).0 == namespace).count();
            let may =
                |namespace: &str| of(namespace) < PATCHES_OF_NAMESPACE[usize::from(self.slow.contains(namespace))];
            let name = self.waiting.next(may).or_else(|| self.running.next(may))?;
            self.queued.remove(&name);
            let Some((fact, lacking)) = pod(&name).zip(self.lacking.get_mut(&name)) else { continue };
            if self.in_flight.contains_key(&name) {
                continue;
            }
            if let Some(&(_, until)) = self.refusals.get(&fact.workload).and_then(|refusal| refusal.pause(now)) {
                // It would be refused too, so its node need not wait.
                lacking.is_awaited = false;
                self.later.insert((until, name));
                continue;
            }
            if lacking.accepted.take_if(|until| *until <= now).is_some() {
                let (workload, asked) = (Arc::clone(&fact.workload), lacking.lacks.clone());
                self.refuse(name, workload, asked, REVERTED, false, now);
                continue;
            }
            let taints: Vec<Taint> = lacking.lacks.keys().cloned().collect();
            let added: Vec<Toleration> = taints.iter().map(toleration).collect();
            let patch = toleration_patch(&fact.uid.to_string(), &fact.placement.tolerations, &added);
            let (namespace, pod) = parts(&name);
            let request = TolerationRequest { namespace: namespace.to_owned(), pod: pod.to_owned(), patch, taints };
            self.in_flight.insert(Arc::clone(&name), (lacking.lacks.clone(), now));
            return Some(request);
        }
    }

    /// The time of the next request, if all present ones wait.
    pub fn due(&self) -> Option<Instant> {
        self.later.first().map(|(until, _)| *until)
    }

    /// Takes in the answer to a request for a pod of this workload.
    pub fn answer(&mut self, name: &str, workload: Option<Arc<str>>, answer: TolerationAnswer, now: Instant) {
        let Some((name, (asked, sent))) = self.in_flight.remove_entry(name) else { return };
        let namespace = parts(&name).0;
        self.slow.remove(namespace);
        self.slow.extend((now.duration_since(sent) >= SLOW).then(|| namespace.to_owned()));
        let Some(workload) = workload else { return };
        let is_down = matches!(answer, Err(RequestError::Failed { .. }));
        let is_late = matches!(answer, Err(RequestError::Stale | RequestError::Conflict));
        let since = if is_down { Some(*self.failing_since.get_or_insert(now)) } else { self.failing_since.take() };
        let down = since.map_or(Duration::ZERO, |since| now.duration_since(since));
        if !is_down && down >= OUTAGE {
            self.refusals.retain(|_, attempt| !attempt.last.as_ref().is_some_and(|(refusal, _)| refusal.is_general));
            for (_, name) in std::mem::take(&mut self.later) {
                self.queue(&name);
            }
        }
        // Otherwise the watch has shown the pod before.
        let Some(lacking) = self.lacking.get_mut(&name) else { return };
        lacking.is_awaited &= is_down || is_late;
        if !(is_down || is_late) {
            lacking.attempt = Attempt::default();
        }
        let message = match answer {
            Ok(()) => {
                lacking.accepted = Some(now + SHOWN);
                self.later.insert((now + SHOWN, name));
                return;
            }
            Err(RequestError::Denied(message)) if !message.contains(IS_ENDING) => message,
            // The pod is being deleted, and the watch has yet to show that. The other pods of its workload need not wait.
            Err(RequestError::Denied(_) | RequestError::Gone) => return,
            Err(error) => {
                let pause = lacking.attempt.failed((), |failures| FAILED.after(failures), now);
                if lacking.attempt.failures < ATTEMPTS {
                    self.later.insert((now + pause, name));
                    return;
                }
                match error {
                    RequestError::Failed { message, .. } => message,
                    _ => "the test of the patch fails although the pod is as it was seen".to_owned(),
                }
            }
        };
        let is_general = is_down && down >= REFUSED.first;
        self.refuse(name, workload, asked, &message, is_general, now);
    }

    /// winpool added these tolerations to a pod of the workload.
    pub fn was_helped(&mut self, added: LackedTolerations, workload: &Arc<str>, time: Timestamp) {
        for pool in added.into_values() {
            let last = self.helped.entry((pool, Arc::clone(workload))).or_default();
            if *last < time {
                (*last, self.has_news) = (time, true);
                self.refusals.remove(workload);
            }
        }
        self.forget_oldest();
    }

    /// Lets the workload wait, twice as long each time unless requests fail for all pods.
    fn refuse(
        &mut self,
        name: Arc<str>,
        workload: Arc<str>,
        asked: LackedTolerations,
        message: &str,
        is_general: bool,
        now: Instant,
    ) {
        // The API server names the pod. Pods that are refused for the same reason are one problem.
        let (_, pod) = parts(&name);
        let message = plain(&message.replace(&format!("\"{pod}\" "), ""), MESSAGE);
        let known = self.refusals.entry(workload).or_default();
        // Several pods of the workload may have been asked about at the same time.
        if known.failures == 0 || known.pause(now).is_none() && !is_general {
            known.failures += 1;
        }
        let until = now + REFUSED.after(known.failures);
        known.last = Some((WorkloadRefusal { pools: asked.into_values().collect(), message, is_general }, until));
        self.later.insert((until, name));
        self.has_news = true;
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        keep_shares(&mut self.refusals, WORKLOADS, |workload, refusal| {
            (namespace(workload), refusal.last.as_ref().map(|(_, until)| *until))
        });
        keep_shares(&mut self.helped, WORKLOADS, |(_, workload), last| (namespace(workload), *last));
    }

    /// Forgets the requests of an earlier term of leadership.
    pub fn begin_term(&mut self) {
        let Self { lacking, awaited, helped, .. } = std::mem::take(self);
        let names: Vec<_> = lacking.keys().cloned().collect();
        *self = Self { lacking, awaited, helped, ..Self::default() };
        for name in names {
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
        // One namespace may have pods of which each is too large for etcd.
        let refusals =
            || self.refusals.iter().filter_map(|(workload, attempt)| Some((workload, &attempt.last.as_ref()?.0)));
        let general = refusals().filter(|(_, refusal)| refusal.is_general);
        let is_general = general.map(|(workload, _)| namespace(workload)).collect::<BTreeSet<_>>().len() > 1;
        for (workload, refusal) in refusals() {
            let is_general = is_general && refusal.is_general;
            let reason = if is_general { reason::TOLERATIONS_FAIL } else { reason::TOLERATION_REFUSED };
            for pool in &refusal.pools {
                let refused = &mut pools.entry(pool.clone()).or_default().refused;
                refused.insert(Arc::clone(workload), (reason, refusal.message.clone()));
            }
        }
        pools
    }
}
