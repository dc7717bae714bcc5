//! The reason why one pod fails, if Windows is the reason for certain.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::Timestamp;

use crate::api::names::reason;
use crate::api::{ObjectReference, Problem};
use crate::labels::Labels;
use crate::node::NodeObject;
use crate::plan::Now;
use crate::plan::classes::runtime_class::{ClassUsers, NAMED, owner};
use crate::plan::pods::fact::{PodFact, PodStage};
use crate::plan::pods::tolerations::{ClusterFacts, PoolHelp};
use crate::plan::pools::pool::PoolSpec;
use crate::pod::{Cause, KnownError, Placement, System, known_error};
use crate::words::{count, plain};

/// The limit of different placements that are compared with all nodes in one count. Pods with others are found when
/// these are gone.
const PLACEMENTS: usize = 100;
/// The longest list of labels in a message.
const LABELS: usize = 300;

/// A pod that fails because of Windows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFailure {
    pub pool: String,
    pub cause: Cause,
    /// Such as `Deployment shop/web`.
    pub workload: String,
    /// Namespace and name.
    pub pod: String,
    pub node: Option<Arc<str>>,
    pub explanation: Explanation,
}

/// The explanation of a failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Explanation {
    Known(&'static KnownError),
    /// No node has the labels in this text.
    NoNode(String),
    /// The problem of this RuntimeClass says why.
    OfClass(Arc<str>),
}

/// True if a node has the labels that a placement selects, by the address of the placement.
pub(crate) type Fits = BTreeMap<*const Placement, bool>;

/// Judges pods by the cluster at one moment.
pub(crate) struct Judge<'a> {
    pub facts: &'a ClusterFacts<'a>,
    /// The classes of pools that have pods.
    pub classes: &'a BTreeMap<String, ClassPods>,
    /// The time for which the network of a pod has to fail before it counts.
    pub network: Duration,
    pub now: Instant,
}

impl Judge<'_> {
    /// The reason why an unfinished pod fails at present.
    pub fn failure(&self, name: &str, pod: &PodFact, fits: &mut Fits) -> Option<PodFailure> {
        if pod.is_terminating || pod.is_ignored {
            return None;
        }
        if pod.node.is_none() {
            return self.without_node(name, pod, fits);
        }
        self.without_sandbox(name, pod).or_else(|| self.not_started(name, pod))
    }

    /// The reason why a pod was refused or failed for good. A Linux node refuses pods for Windows too.
    pub fn ended(&self, name: &str, pod: &PodFact) -> Option<PodFailure> {
        let refusal = pod.trouble().failures.first().copied().filter(|error| error.counted == Some(Cause::OsName));
        refusal.map_or_else(|| self.not_started(name, pod), |error| self.known(name, pod, error))
    }

    fn without_sandbox(&self, name: &str, pod: &PodFact) -> Option<PodFailure> {
        let sandbox = pod.trouble().sandbox.as_ref()?;
        self.host(pod)?;
        // The network of every young node fails for a moment.
        let lasts = || self.now.duration_since(sandbox.began) >= self.network;
        let is_certain = sandbox.error.counted != Some(Cause::Network) || lasts();
        is_certain.then(|| self.known(name, pod, sandbox.error)).flatten()
    }

    /// The reason why a container of the pod does not run. Linux nodes print some of the texts too, for instance about an image
    /// for another processor.
    fn not_started(&self, name: &str, pod: &PodFact) -> Option<PodFailure> {
        self.host(pod)?;
        // Without a network no container is created, so the message of a container with this text has another cause.
        let mut errors = pod.trouble().failures.iter().filter(|error| error.counted != Some(Cause::Network));
        self.known(name, pod, errors.next()?)
    }

    fn known(&self, name: &str, pod: &PodFact, error: &'static KnownError) -> Option<PodFailure> {
        self.found(name, pod, error.counted?, Explanation::Known(error))
    }

    fn found(&self, name: &str, pod: &PodFact, cause: Cause, explanation: Explanation) -> Option<PodFailure> {
        let host = self.host(pod);
        let pool = match host {
            Some(host) => self.pool_of_node(&host.node.labels)?.name.clone(),
            None => self.pool_of_placement(&pod.placement)?,
        };
        let (workload, pod) = (pod.workload.to_string(), name.to_owned());
        Some(PodFailure { pool, cause, workload, pod, node: host.map(|host| Arc::clone(&host.name)), explanation })
    }

    /// The Windows node that it is on.
    fn host(&self, pod: &PodFact) -> Option<&NodeObject> {
        let host = self.facts.nodes.object(pod.node.as_deref()?);
        host.map(AsRef::as_ref).filter(|host| !host.node.contradicts_itself())
    }

    /// The pool that owns the node, or else the oldest that selects it.
    fn pool_of_node(&self, labels: &Labels) -> Option<&PoolSpec> {
        let policy = self.facts.policy;
        let owner = policy.owner(labels).map(|entry| &entry.pool);
        owner.or_else(|| policy.previews(labels).next()).map(|pool| pool.spec.as_ref())
    }

    /// The pool of its class, or else the oldest whose nodes it may select. A pod for Linux has none.
    fn pool_of_placement(&self, placement: &Placement) -> Option<String> {
        let class = placement.class.as_deref().and_then(|name| self.class(name));
        if let Some(pool) = class.and_then(owner).filter(|pool| self.facts.policy.exists(pool)) {
            return Some(pool.to_owned());
        }
        let pool = self.facts.policy.pools().find(|pool| !pool.spec.deleting && placement.allows(&pool.spec))?;
        (placement.system != Some(System::Linux)).then(|| pool.spec.name.clone())
    }

    /// The failure of a pod that selects labels which no Windows node has. Full nodes and taints do not count.
    fn without_node(&self, name: &str, pod: &PodFact, fits: &mut Fits) -> Option<PodFailure> {
        let placement = &pod.placement;
        let waits = pod.stage == PodStage::Unschedulable && !placement.is_gated;
        if !waits || placement.system != Some(System::Windows) || self.fits(placement, fits) {
            return None;
        }
        if let Some(class) = self.class_that_says_why(pod) {
            return self.found(name, pod, Cause::NoNode, Explanation::OfClass(Arc::clone(class)));
        }
        let selector = placement.node_selector.iter();
        let mut labels: Vec<String> = selector.map(|(key, value)| format!("{key}={value}")).collect();
        if !placement.terms.is_empty() {
            labels.push("its required node affinity (for a pod of a DaemonSet, its one node)".to_owned());
        }
        self.found(name, pod, Cause::NoNode, Explanation::NoNode(plain(&labels.join(", "), LABELS)))
    }

    /// The class of the pod, if the pod waits because the class selects no node, or got another selector after the pod was
    /// created. The class then has a problem that says so.
    fn class_that_says_why<'p>(&self, pod: &'p PodFact) -> Option<&'p Arc<str>> {
        let name = pod.placement.class.as_ref()?;
        let says = |class: &ClassPods| class.is_unserved || class.created_too_early.contains_key(&pod.workload);
        self.classes.get(&**name).is_some_and(says).then_some(name)
    }

    fn class(&self, name: &str) -> Option<&RuntimeClass> {
        let mut classes = self.facts.classes.iter();
        classes.find(|class| class.metadata.name.as_deref() == Some(name)).map(AsRef::as_ref)
    }

    /// True if a node has the labels that the pod selects, as far as is known.
    fn fits(&self, placement: &Arc<Placement>, fits: &mut Fits) -> bool {
        let key = Arc::as_ptr(placement);
        if let Some(fits) = fits.get(&key) {
            return *fits;
        }
        if fits.len() >= PLACEMENTS || !placement.is_known {
            return true;
        }
        let mut nodes = self.facts.nodes.objects();
        let found = nodes.any(|object| placement.fits(&object.node.labels, &object.name));
        fits.insert(key, found);
        found
    }
}

// What status says about pods: the pods that fail because of Windows, by pool, cause and workload, and the pods of classes.

/// The limit of workloads that are kept as examples while pods are counted. Others only count.
const GROUPS: usize = 1000;
/// The limit of workloads that a pool reports.
const WORKLOADS: usize = 10;

/// What was counted of all pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSummary {
    /// The pods that fail because of Windows, by pool.
    pub pools: BTreeMap<String, PoolFailures>,
    /// The pods of each class of a pool that has some. Pods of other classes have problems of their own.
    pub classes: BTreeMap<String, ClassPods>,
    /// The pods that got tolerations, by pool.
    pub help: BTreeMap<String, PoolHelp>,
}

/// What is counted of the pods of one RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassPods {
    pub users: ClassUsers,
    /// Workloads whose unbound pods lack a toleration or a label of the selector that the class has now, with the number
    /// of those pods. A pod keeps what it got at its creation, so these have to be recreated.
    pub created_too_early: BTreeMap<Arc<str>, usize>,
    /// True if the class selects no node.
    pub is_unserved: bool,
}

impl ClassPods {
    /// The problem of the class: no node has what it selects, or pods were created before it got its selector and tolerations.
    /// The flag is true if it selects all nodes that run images of its build.
    pub fn problem(&self, class: &str, is_compatible: bool) -> Option<Problem> {
        let found = &self.created_too_early;
        let named: Vec<String> = found.iter().take(NAMED).map(|(name, count)| format!("{name} ({count})")).collect();
        let (reason, message) = if self.is_unserved {
            let compatible = if is_compatible { "" } else { COMPATIBLE };
            let message = format!(
                "selects no node and is {}; {compatible}add a node that it selects, or let the workloads use another class: \
                 winpool why pod/NAME says which nodes run their images",
                self.users.describe()
            );
            (reason::CLASS_WITHOUT_NODES, message)
        } else {
            let message = format!(
                "{} without a node, created before the class got its present selector and tolerations: pods keep those that \
                 they were created with. Delete these pods; their controllers recreate them: {}",
                count(found.values().sum::<usize>(), "pod"),
                named.join(", ")
            );
            (reason::PODS_CREATED_TOO_EARLY, message)
        };
        let problem = Problem::new(reason, ObjectReference::runtime_class(class), message);
        (self.is_unserved || !found.is_empty()).then_some(problem)
    }
}

/// The change with which a class for nodes of its own build selects others.
const COMPATIBLE: &str = "let it select all nodes that run images of its build (runtimeClassHostMatch: Compatible, or hostMatch of a \
                          declared class), ";

/// The last count of pods, if there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PodHealth {
    /// There are no Windows nodes.
    #[default]
    Off,
    /// The pods are not counted yet.
    NotYet,
    Seen {
        summary: Arc<PodSummary>,
        /// The reason why winpool does not see all pods or Events.
        unseen: Option<String>,
    },
}

impl PodHealth {
    /// The number of failing pods of this pool by cause; `None` if nothing is known.
    pub fn counts(&self, pool: &str) -> Option<BTreeMap<Cause, usize>> {
        let Self::Seen { summary, unseen } = self else { return None };
        let counts = summary.pools.get(pool).map(|failures| failures.counts.clone());
        counts.or_else(|| unseen.is_none().then(BTreeMap::new))
    }

    /// The pods of this class.
    pub(crate) fn of_class(&self, class: &str) -> Option<&ClassPods> {
        let Self::Seen { summary, .. } = self else { return None };
        summary.classes.get(class)
    }
}

/// The pods of one pool that fail because of Windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolFailures {
    /// The number of pods by cause.
    pub counts: BTreeMap<Cause, usize>,
    /// At most ten workloads, those with most pods first.
    pub workloads: Vec<WorkloadFailure>,
    /// The number of other workloads.
    pub more: usize,
}

/// A workload whose pods fail.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFailure {
    pub object: ObjectReference,
    pub cause: Cause,
    pub pods: usize,
    /// An example, the explanation, and the remedy.
    pub message: String,
    /// True if the problem of its RuntimeClass has the explanation and the remedy.
    is_of_class: bool,
}

impl WorkloadFailure {
    /// Its problem, unless that of its RuntimeClass says the same.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let problem = || Problem::new(reason::PODS_FAILING, self.object.clone(), self.message.clone());
        (!self.is_of_class).then(problem)
    }
}

/// The failures that one count found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodFailures {
    groups: BTreeMap<(String, Cause, String), FailureGroup>,
    counts: BTreeMap<(String, Cause), usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct FailureGroup {
    pods: usize,
    /// The pod whose name is the first one, so that status stays the same.
    example: PodFailure,
}

impl PodFailures {
    pub fn add(&mut self, failure: PodFailure) {
        *self.counts.entry((failure.pool.clone(), failure.cause)).or_default() += 1;
        let key = (failure.pool.clone(), failure.cause, failure.workload.clone());
        if self.groups.len() < GROUPS || self.groups.contains_key(&key) {
            let first = || FailureGroup { pods: 0, example: failure.clone() };
            let group = self.groups.entry(key).or_insert_with(first);
            group.pods += 1;
            if failure.pod < group.example.pod {
                group.example = failure;
            }
        }
    }

    pub fn report(self) -> BTreeMap<String, PoolFailures> {
        let mut pools: BTreeMap<String, PoolFailures> = BTreeMap::new();
        for ((pool, cause), number) in self.counts {
            pools.entry(pool).or_default().counts.insert(cause, number);
        }
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_by_key(|(_, group)| Reverse(group.pods));
        for ((pool, cause, workload), group) in groups {
            let pool = pools.entry(pool).or_default();
            if pool.workloads.len() < WORKLOADS {
                let message = group.message();
                let object = ObjectReference::named(&workload);
                let is_of_class = matches!(group.example.explanation, Explanation::OfClass(_));
                pool.workloads.push(WorkloadFailure { object, cause, pods: group.pods, message, is_of_class });
            } else {
                pool.more += 1;
            }
        }
        pools
    }
}

impl FailureGroup {
    fn message(&self) -> String {
        let PodFailure { pod, node, explanation, .. } = &self.example;
        let node = node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
        let (pods, fail) = (count(self.pods, "pod"), if self.pods == 1 { "fails" } else { "fail" });
        let example = format!("{pods} {fail}, such as {pod}{node}");
        match explanation {
            Explanation::Known(error) => format!("{example}: {}; {}", error.meaning, error.remedy),
            Explanation::NoNode(labels) => format!(
                "{example}: no Windows node has the labels that it selects: {labels}; add such a node, or let the workload \
                 select labels that nodes have"
            ),
            Explanation::OfClass(class) => format!("{example}: see the problem of RuntimeClass {class}"),
        }
    }
}

// Events about pods: what their own status does not say.

/// The reasons of the Events that winpool watches. The status of a pod does not say why it has no sandbox, or why a kubelet that
/// started has ended it.
pub const REASONS: [&str; 2] = ["FailedCreatePodSandBox", "NodeAffinity"];

/// A Warning about a pod with one of these reasons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodEvent {
    pub namespace: String,
    pub pod: String,
    /// The node whose kubelet wrote it.
    pub node: String,
    pub reason: String,
    pub message: String,
    /// The times of the first and the last one like it.
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
}

impl PodEvent {
    /// The known error that it reports.
    pub(crate) fn error(&self) -> Option<&'static KnownError> {
        let is_of_sandbox = |error: &&KnownError| matches!(error.counted, Some(Cause::PauseImage | Cause::Network));
        if self.is_end() { known_error(&self.reason) } else { known_error(&self.message).filter(is_of_sandbox) }
    }

    /// True if the kubelet has ended the pod.
    pub(crate) fn is_end(&self) -> bool {
        self.reason == "NodeAffinity"
    }
}

/// The moment of this time; now if it is not known or in the future.
pub(crate) fn moment(time: Option<Timestamp>, now: Now) -> Instant {
    let age = time.and_then(|time| now.time.duration_since(time).try_into().ok()).unwrap_or_default();
    now.instant.checked_sub(age).unwrap_or(now.instant)
}
