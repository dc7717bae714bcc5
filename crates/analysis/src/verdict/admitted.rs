//! A pod as the API server admits it, and what happens to it on each node.

use winpool_core::api::Taint;
use winpool_core::pod::{Class, OS_KEYS, System, selects_windows};

use crate::image::Images;
use crate::placement::{Obstacle, label_obstacles, obstacles, selector_obstacles};
use crate::pod::{ClassExt, Guess, Pod, PodSpec};
use crate::pod_security::Forbidden;
use crate::system::{self, or_by_history};
use crate::view::{Added, Node, Queued, Request};
use crate::workload::or_default;

use super::kubelet::kubelet_refuses;
use super::{Cluster, History, OnNode, PlacedBy, Subject};

/// The reason why no new pod reaches the scheduler.
pub enum Refused {
    /// No RuntimeClass has this name.
    NoClass(String),
    /// The pod and its RuntimeClass select different values of this label.
    Contradiction(String),
    /// The pod and its namespace select different values of this label.
    Namespace { name: String, key: String, value: String },
    /// The PodSecurity level of its namespace forbids it.
    PodSecurity(Forbidden),
    /// The API server accepts it, and Kueue never starts it. The text has the reasons.
    Queue(String),
}

impl Refused {
    /// True if the reason is its RuntimeClass, so that it is not known what the pod would have.
    pub fn is_by_class(&self) -> bool {
        matches!(self, Self::NoClass(_) | Self::Contradiction(_))
    }
}

/// Returns the system that a pod is for, by itself and by labels of these nodes.
fn guess(spec: &PodSpec, class: Option<&Class>, nodes: &[Node]) -> Option<Guess> {
    system::guess(spec, class, nodes.iter().map(|machine| (machine.is_windows(), &machine.labels)))
}

/// A pod as the API server admits it or, for a DaemonSet, its template.
#[derive(Clone)]
pub struct AdmittedPod<'a> {
    pub pod: &'a Pod,
    pub is_windows: bool,
    pub history: History,
    pub placed_by: PlacedBy,
    pub spec: PodSpec,
    /// The spec as its author wrote it, without the fields of the class, as far as winpool can determine.
    pub written_spec: PodSpec,
    /// The pod's label `kubernetes.io/os`.
    pub os_label: Option<&'a str>,
    /// The name and fields of its RuntimeClass.
    pub class: Option<(&'a str, &'a Class)>,
    /// The platforms of its images, as registries report them.
    pub images: &'a Images,
    /// What its namespace, Kueue and policies add.
    pub added: Added<'a>,
}

impl<'a> AdmittedPod<'a> {
    pub fn of(subject: Subject<'a>, cluster: &'a Cluster) -> (Self, Option<Refused>) {
        let Subject { pod, placed_by, history } = subject;
        let mut spec = pod.spec.clone();
        if pod.is_bound && !pod.is_mirror || placed_by == PlacedBy::DaemonSetBefore {
            // The scheduler chose this node; it may place a similar pod on another node. The kubelet chose that of a mirror pod.
            spec.node = None;
        }
        if placed_by == PlacedBy::DaemonSetBefore {
            // The DaemonSet controller replaces the affinity of the template with its own.
            spec.terms.clear();
        }
        let namespace = or_default(&pod.namespace);
        let creation = pod.creation(match placed_by {
            PlacedBy::Anyone => Request::Pod,
            PlacedBy::DaemonSet => Request::DaemonSet,
            PlacedBy::DaemonSetBefore => Request::Earlier,
        });
        let added = if pod.is_bound { Added::default() } else { cluster.admission.admit(creation, &mut spec) };
        let by_namespace = added.conflict.map(|(key, value)| {
            let (name, key, value) = (namespace.to_owned(), key.clone(), value.clone());
            Refused::Namespace { name, key, value }
        });
        let found = spec.runtime_class.as_ref().and_then(|name| cluster.classes.get_key_value(name));
        let found = found.map(|(name, class)| (name.as_str(), class));
        let missing = spec.runtime_class.clone().filter(|_| found.is_none());
        // In a bound pod the class has changed since the pod was created. It needs a new pod, unless a new one would be for
        // another system.
        let counts = |key: &&str| !pod.is_bound || OS_KEYS.contains(key);
        let conflict = found.and_then(|(_, class)| class.conflict(&spec)).filter(counts);
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
        // Its author named the class; the label may come from the defaults of a chart.
        let by_class = found.filter(|_| conflict.is_some_and(|key| OS_KEYS.contains(&key)));
        let guessed = guess(&spec, found.map(|(_, class)| class), &cluster.nodes);
        let is_windows = match by_class {
            Some((_, class)) => selects_windows(&class.selector),
            None => or_by_history(guessed, history.is_on_windows_only())
                .is_some_and(|guess| guess.system == System::Windows),
        };
        let refused = by_namespace.or_else(|| missing.map(Refused::NoClass));
        let refused = refused.or_else(|| Some(Refused::Contradiction(conflict?.to_owned())));
        let level = cluster.admission.level_of(namespace).filter(|_| !pod.is_bound);
        let forbidden = || Some(Refused::PodSecurity(level?.refuses(namespace, &pod.violations)?));
        let never = || Some(Refused::Queue(added.queued.as_ref()?.never()?));
        let refused = refused.or_else(forbidden).or_else(never);
        let admitted = Self {
            pod,
            is_windows,
            history,
            placed_by,
            spec,
            written_spec,
            os_label: pod.os_label.as_deref(),
            class: found,
            images: &cluster.images,
            added,
        };
        (admitted, refused)
    }

    /// Returns the spec without what its class adds, and with the name of the class.
    pub fn template(&self) -> PodSpec {
        let mut template = self.written_spec.clone();
        template.runtime_class.clone_from(&self.spec.runtime_class);
        template
    }

    /// Returns the system that it is for, without its history.
    pub fn guess(&self, nodes: &[Node]) -> Option<Guess> {
        guess(&self.spec, self.class.map(|(_, class)| class), nodes)
    }

    pub fn obstacles(&self, machine: &Node) -> Vec<Obstacle> {
        match self.placed_by {
            PlacedBy::DaemonSet => self.daemon_set_obstacles(machine),
            PlacedBy::Anyone | PlacedBy::DaemonSetBefore => {
                let mut found = obstacles(&self.spec, machine);
                // Its flavor may tolerate them.
                found.retain(|obstacle| self.unknown_flavor().is_none() || !matches!(obstacle, Obstacle::Taint(_)));
                found
            }
        }
    }

    /// Returns what the pods and their class select and the node does not have, also if their author put them there by name. Without the
    /// labels of its class the pods of a DaemonSet stay Pending.
    pub fn label_obstacles(&self, machine: &Node) -> Vec<Obstacle> {
        let mut found = label_obstacles(&self.spec, machine);
        let of_class = self.class.into_iter().flat_map(|(_, class)| &class.selector);
        let of_class = of_class.filter(|(key, value)| self.spec.node_selector.get(*key) != Some(*value));
        found.extend(selector_obstacles(of_class, machine));
        found
    }

    /// True if the pods select the node, or their author has put them there.
    pub fn selects(&self, machine: &Node) -> bool {
        match &self.spec.node {
            Some(name) => machine.name == *name,
            None => self.label_obstacles(machine).is_empty(),
        }
    }

    /// Returns the taints of the node that the pods do not tolerate.
    pub fn untolerated(&self, machine: &Node) -> Vec<Taint> {
        let taint = |obstacle| if let Obstacle::Taint(taint) = obstacle { Some(taint) } else { None };
        self.obstacles(machine).into_iter().filter_map(taint).collect()
    }

    /// Returns why it is not known with which flavor Kueue starts it, if so.
    pub fn unknown_flavor(&self) -> Option<&String> {
        self.added.queued.as_ref().and_then(Queued::unknown)
    }

    pub fn on(&self, node: &Node) -> OnNode {
        let obstacles = self.obstacles(node);
        let (starts, why) = self.starts(node);
        OnNode { obstacles, starts, why }
    }

    /// Returns the namespace or the queue, in words, that makes the pods select the label of this obstacle. No change of the pods overcomes
    /// it.
    pub fn added_by(&self, obstacle: &Obstacle) -> Option<String> {
        let Obstacle::Selector { key, wanted, .. } = obstacle else { return None };
        let by_namespace = self.added.selector.is_some_and(|selector| selector.get(key) == Some(wanted));
        let by_queue = self.added.queued.as_ref().is_some_and(|queued| queued.adds(key));
        let namespace = or_default(&self.pod.namespace);
        let (who, change) = match (by_namespace, self.pod.spec.queue.as_deref()) {
            (true, _) => (format!("namespace {namespace}"), "change its node selector, or use another namespace"),
            (false, Some(queue)) if by_queue => {
                (format!("the ResourceFlavor of LocalQueue {queue}"), "change it, or use another queue")
            }
            _ => return None,
        };
        Some(format!("{who} selects {key}={wanted} for all pods: {change}"))
    }

    /// Describes the obstacle, and names the class if the class causes it.
    pub fn describe(&self, obstacle: &Obstacle) -> String {
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
    pub fn starts(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
        match (self.starts_once_there(machine), self.unknown_flavor()) {
            ((Some(false), why), _) => (Some(false), why),
            (_, Some(unknown)) => (None, vec![unknown.clone()]),
            (starts, None) => starts,
        }
    }

    fn starts_once_there(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
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
            (false, true) if self.history.is_on_both() => self.starts_on_windows(machine),
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
        if let Some((_, class)) = self.class.filter(|(_, class)| machine.lacks_handler(&class.handler)) {
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
