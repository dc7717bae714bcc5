//! The nodes on which a pod can be scheduled and start, and the change that it needs.

mod daemon_set;
mod images;
mod node_fit;
mod remedy;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::{
    api::{ObjectReference, names},
    pod::{Class, Guess, KnownError, Pod, PodSpec, System, Workload, WorkloadKind},
};

use crate::{
    image::Images,
    lint::{Finding, workload::or_default},
    placement::{Obstacle, obstacles},
    pod::{ClassExt, PodSpecExt, daemon_set_node},
    system::{self, doubt},
    view::Node,
};

pub(super) use node_fit::{NodeFit, TemplateFit, ending, fits};

use node_fit::{ends_with_upgrade, kubelet_refuses};

/// The result for a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// The pod, or the workload that creates it.
    pub object: ObjectReference,
    /// The operating system that winpool assumes the pod is for: `windows` or `linux`.
    pub system: String,
    /// The only sign of that system, if winpool is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<&'static str>,
    /// The node that the pod is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `spec.schedulerName`, if it is not the default scheduler. The answer is that of the default scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The reasons for which the API server refuses the pod, or the pods of the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Finding>,
    /// The known errors in the pod's status, with their meaning.
    pub errors: Vec<KnownError>,
    /// The nodes of that operating system, and others on which the pod can be scheduled. For a pod of a DaemonSet: its
    /// own node.
    pub nodes: Vec<NodeResult>,
    /// Labels of its node that the pod selects and an in-place upgrade of Windows changes. The kubelet then ends the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_with_upgrade: Option<String>,
    /// The change that the pod needs; `null` if it can be scheduled, and is not known to fail on any node where it can
    /// be.
    pub remedy: Option<String>,
    /// What the answer lacks, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The pod spec with that change, if the change is in the pod.
    #[serde(skip)]
    pub remedied: Option<PodSpec>,
}

/// The result for the pod on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResult {
    /// The name of the node.
    pub name: String,
    /// True if the scheduler may place the pod there.
    pub possible: bool,
    /// True if the pod starts there; `null` if winpool cannot determine it.
    pub starts: Option<bool>,
    /// The reasons against this node, and known facts in favour of it.
    pub reasons: Vec<String>,
}

/// Explains this pod on these nodes, with these RuntimeClasses and the platforms of its images, as registries report them.
pub fn answer(pod: &Pod, machines: &[Node], classes: &BTreeMap<String, Class>, images: &Images) -> PodExplanation {
    let chosen = daemon_set_node(pod);
    let is_asked = |machine: &&Node| chosen.is_none_or(|name| machine.name == name);
    let machines: Vec<Node> = machines.iter().filter(is_asked).cloned().collect();
    let placed_by = if chosen.is_some() { PlacedBy::DaemonSetBefore } else { PlacedBy::Anyone };
    let object = ObjectReference::namespaced("Pod", or_default(&pod.namespace), &pod.name);
    let explanation = explanation(pod, std::slice::from_ref(pod), placed_by, &machines, classes, images);
    PodExplanation {
        object,
        node: pod.spec.node.clone(),
        ends_with_upgrade: ends_with_upgrade(pod, &machines),
        ..explanation
    }
}

/// Explains the pods of this template; `pods` are its current pods.
pub fn answer_template(
    kind: WorkloadKind,
    workload: &Workload,
    pods: &[Pod],
    machines: &[Node],
    classes: &BTreeMap<String, Class>,
    images: &Images,
) -> PodExplanation {
    let mut errors: Vec<KnownError> = Vec::new();
    for error in pods.iter().flat_map(|pod| &pod.errors) {
        if !errors.contains(error) {
            errors.push(*error);
        }
    }
    let (spec, os_label) = (workload.template.clone(), workload.os_label.clone());
    let pod = Pod { spec, os_label, errors, ..Pod::default() };
    let object = ObjectReference::namespaced(kind.as_str(), or_default(&workload.namespace), &workload.name);
    let placed_by = PlacedBy::of(Some(kind));
    PodExplanation { object, ..explanation(&pod, pods, placed_by, machines, classes, images) }
}

/// Explains a pod, or the template of `pods` as a pod.
fn explanation(
    pod: &Pod,
    pods: &[Pod],
    placed_by: PlacedBy,
    machines: &[Node],
    classes: &BTreeMap<String, Class>,
    images: &Images,
) -> PodExplanation {
    let Admitted { candidate, refused } = Admitted::of(pod, pods, placed_by, machines, classes, images);
    let of_system = |machine: &Node| machine.is_windows() == candidate.is_windows;
    let results = machines.iter().map(|machine| (of_system(machine), candidate.on(machine)));
    let nodes: Vec<NodeResult> = results.filter(|(own, result)| *own || result.possible).map(|(_, l)| l).collect();
    let lands = nodes.iter().any(|result| result.possible);
    let starts = nodes.iter().all(|result| !result.possible || result.starts != Some(false));
    let (remedy, remedied) = match refused {
        Some(remedy) => (Some(remedy + &candidate.unless_class_tolerates(machines)), None),
        None if lands && starts => (None, None),
        None => {
            let (remedy, remedied) = candidate.remedy(machines, classes);
            (Some(remedy), remedied)
        }
    };
    let gates = candidate.spec.scheduling_gates.join(", ");
    let wait = (!gates.is_empty())
        .then(|| format!("wait until its schedulingGates ({gates}) are removed: the scheduler ignores it until then"));
    let remedy = match (wait, remedy) {
        (Some(wait), Some(remedy)) => Some(format!("{wait}. Then {remedy}")),
        (wait, remedy) => wait.or(remedy),
    };
    PodExplanation {
        object: ObjectReference::default(),
        system: if candidate.is_windows { names::WINDOWS } else { "linux" }.to_owned(),
        doubt: candidate.guess(machines).and_then(doubt),
        node: None,
        scheduler: pod.spec.scheduler.clone(),
        refused: Vec::new(),
        errors: pod.errors.clone(),
        nodes,
        ends_with_upgrade: None,
        remedy,
        notes: Vec::new(),
        remedied,
    }
}

/// A pod as the API server admits it, or the reason why it does not.
struct Admitted<'a> {
    candidate: AdmittedPod<'a>,
    refused: Option<String>,
}

impl<'a> Admitted<'a> {
    fn of(
        pod: &'a Pod,
        pods: &[Pod],
        placed_by: PlacedBy,
        machines: &[Node],
        classes: &'a BTreeMap<String, Class>,
        images: &'a Images,
    ) -> Self {
        let mut spec = pod.spec.clone();
        if pod.is_bound && !pod.is_mirror || placed_by == PlacedBy::DaemonSetBefore {
            // The scheduler chose this node; it may place a similar pod on another node. The kubelet chose that of a mirror pod.
            spec.node = None;
        }
        if placed_by == PlacedBy::DaemonSetBefore {
            // The DaemonSet controller replaces the affinity of the template with its own.
            spec.terms.clear();
        }
        let found = spec.runtime_class.as_ref().and_then(|name| classes.get_key_value(name));
        let missing = spec.runtime_class.clone().filter(|_| found.is_none());
        // If they contradict in a bound pod, the class has changed since the pod was created.
        let conflict = found.filter(|_| !pod.is_bound).and_then(|(name, class)| Some((name, class.conflict(&spec)?)));
        let (mut written_spec, mut spec) = (spec.clone(), spec);
        match found.filter(|_| pod.is_bound) {
            Some((_, class)) => class.remove_from(&mut written_spec),
            None => written_spec.runtime_class = None,
        }
        // The API server applies a class when it creates a pod, and not again if the class changes.
        let is_admitted = pod.is_bound && pod.spec.node.is_none();
        if let Some((_, class)) = found.filter(|_| placed_by != PlacedBy::DaemonSet && !is_admitted) {
            class.admit(&mut spec);
        }
        let candidate = AdmittedPod {
            pod,
            is_windows: is_windows(pods, &spec, found.map(|(_, class)| class), machines),
            placed_by,
            spec,
            written_spec,
            os_label: pod.os_label.as_deref(),
            class: found,
            images,
        };
        let refused = match (missing, conflict) {
            (Some(name), _) => Some(format!(
                "RuntimeClass {name} does not exist, so the API server refuses new pods of it: create it, or name another"
            )),
            (None, Some((name, key))) => Some(format!(
                "nodeSelector and RuntimeClass {name} want different values of {key}, so the API server refuses new pods of it: \
                 remove {key} from nodeSelector, or name another class"
            )),
            (None, None) => None,
        };
        Self { candidate, refused }
    }
}

/// True if pods of this spec are for Windows. If it does not specify a system, they are for Linux, unless those
/// that exist have run on Windows.
fn is_windows(pods: &[Pod], spec: &PodSpec, class: Option<&Class>, machines: &[Node]) -> bool {
    let has_run_on_windows = || {
        let hosts = pods.iter().filter_map(|pod| pod.ran_on.as_ref());
        let mut hosts = hosts.filter_map(|name| machines.iter().find(|machine| machine.name == *name)).peekable();
        hosts.peek().is_some() && hosts.all(Node::is_windows)
    };
    match guess(spec, class, machines) {
        Some(guess) => guess.system == System::Windows,
        None => has_run_on_windows(),
    }
}

/// Returns the system that a pod is for, by itself and by labels of these nodes.
fn guess(spec: &PodSpec, class: Option<&Class>, machines: &[Node]) -> Option<Guess> {
    system::guess(spec, class, machines.iter().map(|machine| (machine.is_windows(), &machine.labels)))
}

/// The component that decides on which nodes the pod runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlacedBy {
    /// The scheduler, or the author by `nodeName`.
    Anyone,
    /// The DaemonSet controller, from a template.
    DaemonSet,
    /// The DaemonSet controller, which has already created this pod for its node.
    DaemonSetBefore,
}

impl PlacedBy {
    /// Returns what places the pods of a template.
    fn of(kind: Option<WorkloadKind>) -> Self {
        if kind == Some(WorkloadKind::DaemonSet) { Self::DaemonSet } else { Self::Anyone }
    }
}

/// A pod as the API server admits it or, for a DaemonSet, its template.
#[derive(Clone)]
struct AdmittedPod<'a> {
    pod: &'a Pod,
    is_windows: bool,
    placed_by: PlacedBy,
    spec: PodSpec,
    /// The spec as its author wrote it, without the fields of the class, as far as winpool can determine.
    written_spec: PodSpec,
    /// The pod's label `kubernetes.io/os`.
    os_label: Option<&'a str>,
    /// The name and fields of its RuntimeClass.
    class: Option<(&'a String, &'a Class)>,
    /// The platforms of its images, as registries report them.
    images: &'a Images,
}

impl AdmittedPod<'_> {
    fn guess(&self, machines: &[Node]) -> Option<Guess> {
        guess(&self.spec, self.class.map(|(_, class)| class), machines)
    }

    fn obstacles(&self, machine: &Node) -> Vec<Obstacle> {
        match self.placed_by {
            PlacedBy::DaemonSet => self.daemon_set_obstacles(machine),
            PlacedBy::Anyone | PlacedBy::DaemonSetBefore => obstacles(&self.spec, machine),
        }
    }

    fn on(&self, machine: &Node) -> NodeResult {
        let obstacles = self.obstacles(machine);
        let (starts, mut why) = self.starts(machine);
        let mut reasons: Vec<String> = obstacles.iter().map(|obstacle| self.describe(obstacle)).collect();
        if !obstacles.is_empty() && starts == Some(false) {
            why = why.into_iter().map(|why| format!("if scheduled: {why}")).collect();
        }
        reasons.append(&mut why);
        NodeResult { name: machine.name.clone(), possible: obstacles.is_empty(), starts, reasons }
    }

    /// Describes the obstacle, and names the class if the class causes it.
    fn describe(&self, obstacle: &Obstacle) -> String {
        match (obstacle, self.class) {
            (Obstacle::Selector { key, wanted, .. }, Some((name, class)))
                if class.selector.get(key) == Some(wanted) =>
            {
                format!("{obstacle} (by RuntimeClass {name})")
            }
            _ => obstacle.to_string(),
        }
    }

    /// True if the pod starts on the node, false if it does not, and `None` if that is unknown; and the
    /// reasons.
    fn starts(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
        let no = |why: String| (Some(false), vec![why]);
        if let Some(why) = self.stays_pending(machine) {
            return no(why);
        }
        if let Some(why) = self.is_refused_by_kubelet(machine) {
            return no(why);
        }
        let differs = |os: &&str| machine.os.as_deref().is_some_and(|own| own != *os);
        if let Some(os) = self.spec.os.as_deref().filter(differs) {
            let on = machine.os();
            return no(format!(
                "os.name is {os} and the node runs {on}: the kubelet refuses it with PodOSNotSupported"
            ));
        }
        if let Some(os) = self.os_label.filter(differs) {
            return no(format!(
                "the pod's label kubernetes.io/os is {os} and the node runs {}: the kubelet refuses it with \
                 PodOSSelectorNodeLabelDoesNotMatch",
                machine.os()
            ));
        }
        match (self.is_windows, machine.is_windows()) {
            (true, true) => self.starts_on_windows(machine),
            (true, false) => no(format!("a Windows pod does not start on a node that runs {}", machine.os())),
            (false, true) => {
                no("nothing shows that the pod is for Windows, and a Linux pod does not start on a Windows node"
                    .to_owned())
            }
            (false, false) if self.obstacles(machine).iter().any(Obstacle::is_about_processor) => (None, Vec::new()),
            (false, false) => self.images_start_on_linux(machine),
        }
    }

    /// Returns the reason if the kubelet refuses a pod that `nodeName` places on the node without the scheduler.
    fn is_refused_by_kubelet(&self, machine: &Node) -> Option<String> {
        self.spec.node.as_ref().filter(|name| **name == machine.name && self.placed_by == PlacedBy::Anyone)?;
        let obstacle = kubelet_refuses(&self.spec, machine).into_iter().next()?;
        Some(format!("spec.nodeName puts it there, and the kubelet refuses it: {}", self.describe(&obstacle)))
    }

    fn starts_on_windows(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
        if let (Some((_, class)), Some(handlers)) = (self.class, &machine.handlers)
            && !handlers.iter().any(|handler| **handler == *class.handler)
        {
            let why = format!("the node has no runtime handler {}: its sandbox cannot be created", class.handler);
            return (Some(false), vec![why]);
        }
        // Host-process containers run on every build (KEP 1981).
        if self.spec.is_host_process() && self.images.is_empty() {
            return (Some(true), Vec::new());
        }
        self.images_start(machine)
    }
}
