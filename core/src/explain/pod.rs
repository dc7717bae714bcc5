//! Why a Windows pod does or does not land and start, and what would make it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde_json::json;

use crate::{
    api::{Taint, names},
    explain::scheduling::{Host, Obstacle, obstacles},
    pod::{Class, Isolation, KnownError, Pod, PodSpec, selects_windows, tolerations::toleration},
    windows::{
        Build, ContainerRuntime, KernelVersion,
        compatibility::{runs_by_hyperv_isolation, runs_by_process_isolation},
        product,
    },
    words::yaml,
};

/// A Windows node that pods may land on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What the scheduler reads.
    pub host: Host,
    /// What it runs.
    pub version: Option<KernelVersion>,
    /// What runs its containers.
    pub runtime: Option<ContainerRuntime>,
    /// Names in `status.runtimeHandlers`; `None` where the node does not list them.
    pub handlers: Option<Vec<String>>,
}

impl From<&Node> for Machine {
    fn from(node: &Node) -> Self {
        let host = Host::from(node);
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let reported = info.and_then(|info| info.kernel_version.parse().ok());
        let labelled = || {
            let build = host.labels.get(names::WINDOWS_BUILD)?.parse().ok()?;
            Some(KernelVersion { build, revision: None })
        };
        let handlers = node.status.as_ref().and_then(|status| status.runtime_handlers.as_ref());
        let names = handlers.map(|all| all.iter().map(|handler| handler.name.clone().unwrap_or_default()).collect());
        Self {
            version: reported.or_else(labelled),
            runtime: info.and_then(|info| info.container_runtime_version.parse().ok()),
            handlers: names,
            host,
        }
    }
}

/// What becomes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Namespace and name.
    pub pod: String,
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What its status says went wrong, with what that means.
    pub errors: Vec<KnownError>,
    /// The Windows nodes.
    pub nodes: Vec<Landing>,
    /// What to change; `null` if it lands and nothing is known to stop it there.
    pub remedy: Option<String>,
}

/// What becomes of the pod on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Landing {
    /// The node.
    pub name: String,
    /// Whether the scheduler may put it there.
    pub possible: bool,
    /// Whether it starts there; `null` when that cannot be told.
    pub starts: Option<bool>,
    /// Reasons against it, and what is known for it.
    pub reasons: Vec<String>,
}

/// What becomes of this pod on these nodes, where these classes exist.
#[must_use]
pub fn answer(pod: &Pod, machines: &[Machine], classes: &BTreeMap<String, Class>) -> Answer {
    let mut spec = pod.spec.clone();
    // Where it is now is no reason against other nodes: who bound it cannot be told.
    let node = spec.node.take();
    let class = spec.runtime_class.clone();
    let found = class.as_ref().and_then(|name| classes.get_key_value(name));
    if let Some((_, class)) = found {
        class.admit(&mut spec);
    }
    let candidate = Candidate { pod, spec, class: found };
    let nodes: Vec<Landing> = machines.iter().map(|machine| candidate.on(machine)).collect();
    let fine = nodes.iter().any(|landing| landing.possible && landing.starts != Some(false));
    let remedy = match (&class, found) {
        (Some(name), None) => Some(format!(
            "RuntimeClass {name} does not exist, so the API server refuses new pods of it: create it, or name another"
        )),
        _ if fine => None,
        _ if machines.is_empty() => Some("there is no Windows node".to_owned()),
        _ => Some(candidate.remedy(machines, classes)),
    };
    let namespace = if pod.namespace.is_empty() { "default" } else { &pod.namespace };
    Answer { pod: format!("{namespace}/{}", pod.name), node, errors: pod.errors.clone(), nodes, remedy }
}

/// A pod as it would be admitted.
struct Candidate<'a> {
    pod: &'a Pod,
    spec: PodSpec,
    /// Its class, with the name.
    class: Option<(&'a String, &'a Class)>,
}

impl Candidate<'_> {
    fn obstacles(&self, machine: &Machine) -> Vec<Obstacle> {
        obstacles(&self.spec, &machine.host)
    }

    fn on(&self, machine: &Machine) -> Landing {
        let obstacles = self.obstacles(machine);
        let (starts, mut why) = self.starts(machine);
        let mut reasons: Vec<String> = obstacles.iter().map(|obstacle| self.describe(obstacle)).collect();
        if !obstacles.is_empty() && starts == Some(false) {
            why = why.into_iter().map(|why| format!("if it did land: {why}")).collect();
        }
        reasons.append(&mut why);
        Landing { name: machine.host.name.clone(), possible: obstacles.is_empty(), starts, reasons }
    }

    /// The obstacle, with the class when it comes from there.
    fn describe(&self, obstacle: &Obstacle) -> String {
        match (obstacle, self.class) {
            (Obstacle::Selector { key, .. }, Some((name, class))) if class.selector.contains_key(key) => {
                format!("{obstacle} (by RuntimeClass {name})")
            }
            _ => obstacle.to_string(),
        }
    }

    /// Whether the pod starts on the node, and what is known about that.
    fn starts(&self, machine: &Machine) -> (Option<bool>, Vec<String>) {
        if let Some(os) = self.spec.os.as_ref().filter(|os| *os != names::WINDOWS) {
            let why = format!("os.name is {os}: the kubelet refuses it with PodOSNotSupported");
            return (Some(false), vec![why]);
        }
        if let Some(os) = self.pod.os_label.as_ref().filter(|os| *os != names::WINDOWS) {
            let why = format!(
                "the pod's label kubernetes.io/os is {os}: the kubelet refuses it with PodOSSelectorNodeLabelDoesNotMatch"
            );
            return (Some(false), vec![why]);
        }
        if let (Some((_, class)), Some(handlers)) = (self.class, &machine.handlers)
            && !handlers.contains(&class.handler)
        {
            let why = format!("the node has no runtime handler {}: its sandbox cannot be made", class.handler);
            return (Some(false), vec![why]);
        }
        let builds = self.builds();
        if builds.is_empty() || self.spec.is_host_process() {
            return (None, Vec::new());
        }
        let Some(version) = machine.version else { return (None, vec!["the node's build is not known".to_owned()]) };
        for build in builds {
            if !self.runs(machine, version.build, build) {
                let why = format!(
                    "an image of {} on a node of {}: \"no match for platform in manifest\" when it is pulled, or \
                     0xc0370101 when it starts",
                    named(build),
                    named(version.build)
                );
                return (Some(false), vec![why]);
            }
        }
        (Some(true), Vec::new())
    }

    fn runs(&self, machine: &Machine, host: Build, image: Build) -> bool {
        if self.class.is_some_and(|(_, class)| class.isolation() == Isolation::HyperV) {
            return runs_by_hyperv_isolation(host, image);
        }
        runs_by_process_isolation(host, machine.runtime, image)
    }

    /// The builds that the tags of the images name.
    fn builds(&self) -> BTreeSet<Build> {
        self.spec.image_builds().map(|(_, build)| build).collect()
    }

    /// The shortest change after which the pod lands on a node and nothing is known to stop it there: another class, or
    /// what one node needs.
    fn remedy(&self, machines: &[Machine], classes: &BTreeMap<String, Class>) -> String {
        if let Some(os) = self.spec.os.as_ref().filter(|os| *os != names::WINDOWS) {
            return format!("it is no Windows pod: os.name is {os}");
        }
        let mut fitting: Vec<(bool, bool, &str, &str)> = Vec::new();
        for (name, class) in classes.iter().filter(|(_, class)| selects_windows(&class.selector)) {
            let candidate = self.with_class(name, class);
            let lands = machines.iter().find(|machine| {
                let landing = candidate.on(machine);
                landing.possible && landing.starts != Some(false)
            });
            if let Some(machine) = lands {
                // A class that fits the images is better than one of which that cannot be told, and process isolation better
                // than a virtual machine.
                let certain = candidate.starts(machine).0 == Some(true);
                fitting.push((class.isolation() == Isolation::HyperV, !certain, name, &machine.host.name));
            }
        }
        fitting.sort_unstable();
        if let Some((.., class, node)) = fitting.first() {
            return format!("set runtimeClassName: {class}; then it lands on {node}");
        }
        let closest = machines
            .iter()
            .filter(|machine| self.starts(machine).0 != Some(false))
            .min_by_key(|machine| self.obstacles(machine).len());
        let Some(machine) = closest else {
            return self.no_host();
        };
        let steps: Vec<String> = self.obstacles(machine).iter().map(|obstacle| step(obstacle, machine)).collect();
        format!("to land on {}: {}", machine.host.name, steps.join("; "))
    }

    fn no_host(&self) -> String {
        let builds: Vec<String> = self.builds().into_iter().map(named).collect();
        if builds.len() > 1 {
            return format!("its images are of different builds ({}): choose tags of one", builds.join(", "));
        }
        format!(
            "no node runs its images ({}): add one that does, or choose image tags of another build",
            builds.join(", ")
        )
    }

    fn with_class<'c>(&self, name: &'c String, class: &'c Class) -> Candidate<'c>
    where
        Self: 'c,
    {
        let mut spec = self.spec.clone();
        if let Some((_, old)) = self.class {
            old.take_off(&mut spec);
        }
        spec.runtime_class = Some(name.clone());
        class.admit(&mut spec);
        Candidate { pod: self.pod, spec, class: Some((name, class)) }
    }
}

fn step(obstacle: &Obstacle, machine: &Machine) -> String {
    let tolerate = |taint: &Taint| {
        let text = yaml(&json!(toleration(taint)));
        format!("add the toleration {text}")
    };
    match obstacle {
        Obstacle::NamesAnotherNode(_) => "take spec.nodeName off".to_owned(),
        Obstacle::Unschedulable => format!("kubectl uncordon {}", machine.host.name),
        Obstacle::Selector { key, found: Some(found), .. } => format!("set nodeSelector {key}: {found}"),
        Obstacle::Selector { key, found: None, .. } => format!("take nodeSelector {key} off"),
        Obstacle::Affinity(expressions) => {
            format!("take off the required node affinity that wants {}", expressions.join(" and "))
        }
        Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => tolerate(taint),
        Obstacle::Resource { name, .. } => format!("ask for less of {name}"),
    }
}

fn named(build: Build) -> String {
    product::by_build(build).map_or_else(|| build.to_string(), |product| product.name.to_owned())
}
