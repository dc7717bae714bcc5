//! The shortest change with which a pod can be scheduled and starts on every node where it can be.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use serde_json::json;
use winpool_core::{
    api::{Isolation, Taint, names},
    plan::capability_of,
    pod::{Class, Guess, PodSpec, System, selects_windows, tolerations::toleration},
    windows::product::name_of,
    words::yaml,
};

use crate::{
    placement::Obstacle,
    pod::{ClassExt, PodSpecExt},
    view::Node,
};

use super::admitted::{AdmittedPod, PlacedBy};

/// The number of nodes that the search tries, the closest first.
const TRIED: usize = 20;
/// The number of nodes that a remedy names.
const NAMED: usize = 3;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The selections that keep a pod off other nodes: labels of one node, and in addition a required node affinity to several
/// builds. The most open one is first.
const SELECTIONS: [(&[&str], bool); 6] = [
    (&[], false),
    (&[names::OS], false),
    (&[names::OS, names::ARCH], false),
    (&[names::OS], true),
    (&[names::OS, names::WINDOWS_BUILD], false),
    (&[names::OS, HOSTNAME], false),
];

impl<'a> AdmittedPod<'a> {
    /// Returns the change, and the pod spec with it.
    pub(super) fn remedy(&self, machines: &[Node], classes: &'a BTreeMap<String, Class>) -> (String, Option<PodSpec>) {
        let system = if self.is_windows { "Windows" } else { "Linux" };
        if machines.is_empty() && self.placed_by == PlacedBy::DaemonSetBefore {
            return ("wait until the pod is deleted: it is for a node that does not exist".to_owned(), None);
        }
        if !machines.iter().any(|machine| machine.is_windows() == self.is_windows)
            && self.placed_by != PlacedBy::DaemonSetBefore
        {
            return (format!("there is no {system} node"), None);
        }
        // Ignore that a node is cordoned or not ready, because that is temporary.
        let settled: Vec<Node> = machines.iter().map(settled).collect();
        if self.lands_well(&settled).is_some() {
            return (self.wait(machines), None);
        }
        if let Some(remedy) = self.keep_off(&settled).or_else(|| self.recreated(&settled)) {
            return remedy;
        }
        // A toleration keeps the pod where it runs today. A class also selects a build, and is for those who ask for one.
        let by_tolerations = self.by_tolerations(&settled);
        let by_class = || self.by_class(&settled, classes).filter(|_| self.asks_for_a_build());
        let remedy = by_tolerations.or_else(by_class).or_else(|| self.by_steps(&settled));
        remedy.unwrap_or_else(|| (self.no_node(&settled), None))
    }

    /// Returns a node on which the pod can be scheduled, if no such node is known to fail to start it.
    fn lands_well<'m>(&self, machines: &'m [Node]) -> Option<&'m Node> {
        let mut possible = machines.iter().filter(|machine| self.obstacles(machine).is_empty());
        let first = possible.clone().next()?;
        possible.all(|machine| self.starts(machine).0 != Some(false)).then_some(first)
    }

    /// Describes what must change on the nodes before the pod can be scheduled.
    fn wait(&self, machines: &[Node]) -> String {
        let fitting = machines.iter().filter(|machine| self.obstacles(&settled(machine)).is_empty());
        let Some(machine) = fitting.min_by_key(|machine| self.obstacles(machine).len()) else {
            return self.no_node(machines);
        };
        let steps = self.obstacles(machine).into_iter().map(|obstacle| match obstacle {
            Obstacle::Taint(taint) => format!("wait until {} has lost the taint {taint}", machine.name),
            _ => format!("kubectl uncordon {}", machine.name),
        });
        steps.collect::<Vec<_>>().join("; ")
    }

    /// Keeps the pods of a DaemonSet off nodes like this one, if they cannot start there.
    fn keep_off(&self, machines: &[Node]) -> Option<(String, Option<PodSpec>)> {
        let only = machines.first().filter(|_| self.placed_by == PlacedBy::DaemonSetBefore);
        let machine = only.filter(|machine| self.starts(machine).0 == Some(false))?;
        let builds: BTreeSet<_> = self.spec.image_builds().map(|(_, build)| build.to_string()).collect();
        let (key, value) = match (machine.is_windows() == self.is_windows, builds.first()) {
            (true, Some(build)) if builds.len() == 1 => (names::WINDOWS_BUILD, build.as_str()),
            (true, _) => return None,
            (false, _) => (names::OS, if self.is_windows { names::WINDOWS } else { "linux" }),
        };
        if self.written_spec.selected(key) == Some(value) {
            return Some((format!("delete the pod: its DaemonSet creates none for {}", machine.name), None));
        }
        let mut spec = self.spec.clone();
        spec.node_selector.insert(key.to_owned(), value.to_owned());
        Some((format!("in the template of the DaemonSet: set nodeSelector {key}: {value}"), Some(spec)))
    }

    /// Suggests a new pod, if the class has changed since the API server applied it to this one.
    fn recreated(&self, machines: &[Node]) -> Option<(String, Option<PodSpec>)> {
        let (name, class) = self.class.filter(|_| self.pod.is_bound)?;
        let mut again = self.with_class(name, class);
        let is_older = class.selector.iter().any(|(key, value)| self.pod.spec.node_selector.get(key) != Some(value));
        if is_older {
            // Before, winpool's class selected the build or its label.
            again.spec.node_selector.retain(|key, _| {
                class.selector.contains_key(key) || key != names::WINDOWS_BUILD && capability_of(key).is_none()
            });
        }
        again.lands_well(machines)?;
        let text = format!("delete and recreate the pod: RuntimeClass {name} has changed since the pod was created");
        Some((text, Some(again.spec)))
    }

    /// Adds the tolerations that the pod lacks on one node, if it then starts wherever it can be scheduled.
    fn by_tolerations(&self, machines: &[Node]) -> Option<(String, Option<PodSpec>)> {
        let taints = |machine: &Node| {
            let taints = self.obstacles(machine).into_iter().map(|obstacle| match obstacle {
                Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => Some(taint),
                _ => None,
            });
            taints.collect::<Option<Vec<Taint>>>().filter(|taints| !taints.is_empty())
        };
        let own = machines.iter().filter(|machine| machine.is_windows() == self.is_windows);
        let mut closest: Vec<(&Node, Vec<Taint>)> =
            own.filter_map(|machine| Some((machine, taints(machine)?))).collect();
        closest.sort_by_key(|(_, taints)| taints.len());
        closest.into_iter().take(TRIED).find_map(|(_, taints)| {
            let mut changed = self.clone();
            changed.spec.tolerations.extend(taints.iter().map(toleration));
            // A toleration is a sign of the system.
            let is_same = |guess: Guess| (guess.system == System::Windows) == self.is_windows;
            changed.lands_well(machines).filter(|_| changed.guess(machines).is_none_or(is_same))?;
            let steps: Vec<String> = taints.iter().map(tolerate).collect();
            Some((self.describe_steps(&changed, machines, &steps), Some(changed.spec)))
        })
    }

    /// Returns the tolerations that the pod lacks on a node, if its class does not exist and so may have them or not.
    pub(super) fn unless_class_tolerates(&self, machines: &[Node]) -> String {
        let own = machines.iter().map(settled).filter(|machine| machine.is_windows() == self.is_windows);
        let lacking = own.filter_map(|machine| {
            let taints = self.obstacles(&machine).into_iter().map(|obstacle| match obstacle {
                Obstacle::Taint(taint) => Some(tolerate(&taint)),
                _ => None,
            });
            taints.collect::<Option<Vec<String>>>()
        });
        let is_missing = self.spec.runtime_class.is_some() && self.class.is_none();
        match lacking.min_by_key(Vec::len).filter(|steps| is_missing && !steps.is_empty()) {
            Some(steps) => format!(". Unless that class has it, also {}", steps.join(" and ")),
            None => String::new(),
        }
    }

    /// True if the pod's selector or images name a build.
    fn asks_for_a_build(&self) -> bool {
        self.written_spec.builds().is_some() || !self.images.is_empty() || self.spec.image_builds().next().is_some()
    }

    /// Suggests a class. The DaemonSet controller ignores classes.
    fn by_class(&self, machines: &[Node], classes: &'a BTreeMap<String, Class>) -> Option<(String, Option<PodSpec>)> {
        if !self.is_windows || self.placed_by != PlacedBy::Anyone {
            return None;
        }
        let first = if self.spec.node.is_some() { "remove spec.nodeName and " } else { "" };
        let may = |class: &Class| selects_windows(&class.selector) && class.conflict(&self.written_spec).is_none();
        let windows = classes.iter().filter(|(_, class)| may(class));
        let fitting = windows.filter_map(|(name, class)| {
            let candidate = self.with_class(name, class);
            let machine = candidate.lands_well(machines)?;
            // Prefer a class that certainly fits the images, and process isolation over a virtual machine.
            let is_certain = candidate.starts(machine).0 == Some(true);
            let rank = (class.isolation() == Isolation::HyperV, !is_certain, name);
            Some((
                rank,
                format!("{first}set runtimeClassName: {name}; then it runs on {}", candidate.lands_on(machines)),
                candidate.spec,
            ))
        });
        fitting.min_by(|a, b| a.0.cmp(&b.0)).map(|(_, text, spec)| (text, Some(spec)))
    }

    fn with_class(&self, name: &'a String, class: &'a Class) -> Self {
        let mut candidate = self.without_class();
        candidate.spec.node = None;
        candidate.spec.runtime_class = Some(name.clone());
        class.admit(&mut candidate.spec);
        Self { class: Some((name, class)), ..candidate }
    }

    fn without_class(&self) -> Self {
        Self { spec: self.written_spec.clone(), class: None, ..self.clone() }
    }

    /// Removes the obstacles on a node where the pod starts, and then excludes the nodes where it does not start.
    fn by_steps(&self, machines: &[Node]) -> Option<(String, Option<PodSpec>)> {
        let kept = (Vec::new(), self.clone());
        let dropped = self.class.is_some().then(|| (vec!["remove runtimeClassName".to_owned()], self.without_class()));
        for (steps, candidate) in std::iter::once(kept).chain(dropped) {
            let mut closest: Vec<(&Node, Vec<String>, Self)> =
                machines.iter().filter_map(|machine| candidate.fit_on(machine, &steps)).collect();
            let is_meant = |machine: &Node| {
                self.spec
                    .node_selector
                    .iter()
                    .all(|(key, wanted)| machine.labels.get(key).is_none_or(|found| found.contains(wanted.as_str())))
            };
            closest.sort_by_key(|(machine, steps, changed)| {
                (steps.len(), !is_meant(machine), changed.starts(machine).0 != Some(true))
            });
            for (machine, steps, changed) in closest.into_iter().take(TRIED) {
                for (keys, selects_builds) in SELECTIONS {
                    if !self.asks_for_a_build() && (selects_builds || keys.contains(&names::WINDOWS_BUILD)) {
                        continue;
                    }
                    let (mut steps, mut changed) = (steps.clone(), changed.clone());
                    for key in keys {
                        changed.select(key, machine, &mut steps);
                    }
                    if selects_builds && !changed.select_builds(machines, &mut steps) {
                        continue;
                    }
                    let is_refused = changed.class.is_some_and(|(_, class)| class.conflict(&changed.spec).is_some());
                    if !is_refused && changed.says_its_system(machines) && changed.lands_well(machines).is_some() {
                        return Some((self.describe_steps(&changed, machines, &steps), Some(changed.spec)));
                    }
                }
            }
        }
        None
    }

    /// True if the spec alone, without the pod's history, shows the same operating system.
    fn says_its_system(&self, machines: &[Node]) -> bool {
        let guess = self.guess(machines);
        self.is_windows == guess.is_some_and(|guess| guess.system == System::Windows)
    }

    fn select(&mut self, key: &str, machine: &Node, steps: &mut Vec<String>) {
        if let Some(value) = machine.labels.get(key)
            && self.spec.selected(key) != Some(value)
        {
            self.spec.node_selector.insert(key.to_owned(), value.to_owned());
            steps.push(format!("set nodeSelector {key}: {value}"));
        }
    }

    /// Requires one of the builds on whose nodes the pod starts. Returns false if a nodeSelector is enough, or if the pod
    /// has a node affinity of its own.
    fn select_builds(&mut self, machines: &[Node], steps: &mut Vec<String>) -> bool {
        let build = |machine: &Node| machine.labels.get(names::WINDOWS_BUILD).map(str::to_owned);
        let starts = |machine: &&Node| self.starts(machine).0 != Some(false);
        let (able, unable): (Vec<&Node>, Vec<&Node>) = machines.iter().partition(starts);
        let unable: BTreeSet<String> = unable.into_iter().filter_map(build).collect();
        let able: BTreeSet<String> = able.into_iter().filter_map(build).collect();
        let values: Vec<String> = able.difference(&unable).cloned().collect();
        if values.len() < 2 || !self.spec.terms.is_empty() {
            return false;
        }
        let key = names::WINDOWS_BUILD.to_owned();
        let requirement = NodeSelectorRequirement { key, operator: "In".to_owned(), values: Some(values) };
        steps.push(format!("add the required node affinity {}", yaml(&json!(requirement))));
        self.spec.terms.push(NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None });
        true
    }

    fn describe_steps(&self, changed: &Self, machines: &[Node], steps: &[String]) -> String {
        let starts_somewhere = || {
            let mut possible = machines.iter().filter(|machine| self.obstacles(machine).is_empty());
            possible.any(|machine| self.starts(machine).0 != Some(false))
        };
        let steps = steps.join("; ");
        match self.placed_by {
            PlacedBy::Anyone if starts_somewhere() => format!("to land only where it starts: {steps}"),
            PlacedBy::Anyone => format!("to land on {}: {steps}", changed.lands_on(machines)),
            _ => format!("in the template of the DaemonSet: {steps}"),
        }
    }

    /// Names the nodes on which the pod can be scheduled.
    fn lands_on(&self, machines: &[Node]) -> String {
        let possible = machines.iter().filter(|machine| self.obstacles(machine).is_empty());
        let names: Vec<&str> = possible.map(|machine| &*machine.name).collect();
        match names.split_at_checked(NAMED) {
            Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(", "), rest.len()),
            _ => names.join(", "),
        }
    }

    /// Returns the pod without its obstacles on this node, if it then starts there.
    fn fit_on<'m>(&self, machine: &'m Node, steps: &[String]) -> Option<(&'m Node, Vec<String>, Self)> {
        let (mut changed, mut steps) = (self.clone(), steps.to_vec());
        if changed.spec.node.take().is_some() {
            steps.push("remove spec.nodeName".to_owned());
        }
        if let Some(os) = changed.os_label.filter(|os| machine.os.as_deref().is_some_and(|own| own != *os)) {
            steps.push(format!("remove the pod's label {}: {os}", names::OS));
            changed.os_label = None;
        }
        for obstacle in changed.obstacles(machine) {
            steps.push(changed.overcome(obstacle)?);
        }
        let lands = changed.obstacles(machine).is_empty() && changed.starts(machine).0 != Some(false);
        lands.then_some((machine, steps, changed))
    }

    /// Changes the pod so that it no longer has this obstacle. Returns `None` if a change of the pod cannot remove it.
    fn overcome(&mut self, obstacle: Obstacle) -> Option<String> {
        let spec = &mut self.spec;
        Some(match obstacle {
            Obstacle::NamesAnotherNode(_) | Obstacle::Unschedulable => return None,
            // Another processor does not run the pod's images.
            _ if obstacle.is_about_processor() => return None,
            Obstacle::Selector { key, .. }
                if self.class.is_some_and(|(_, class)| class.selector.contains_key(&key)) =>
            {
                return None;
            }
            Obstacle::Selector { key, found: Some(found), .. } => {
                let step = format!("set nodeSelector {key}: {found}");
                spec.node_selector.insert(key, found);
                step
            }
            Obstacle::Selector { key, found: None, .. } => {
                spec.node_selector.remove(&key);
                format!("remove nodeSelector {key}")
            }
            Obstacle::Affinity(expressions) => {
                spec.terms.clear();
                format!("remove the required node affinity that wants {}", expressions.join(" and "))
            }
            Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => {
                let step = tolerate(&taint);
                spec.tolerations.push(toleration(&taint));
                step
            }
            Obstacle::Resource { name, .. } => {
                for container in &mut spec.containers {
                    container.extended_resources.remove(&name);
                }
                format!("request less of {name}")
            }
        })
    }

    fn no_node(&self, machines: &[Node]) -> String {
        let is_other = |machine: &Node| self.obstacles(machine).iter().any(Obstacle::is_about_processor);
        let mut own = machines.iter().filter(|machine| machine.is_windows() == self.is_windows).peekable();
        if own.peek().is_some() && own.all(is_other) {
            return "no node has the processor that the pod selects: add one that does".to_owned();
        }
        if let Some(machine) = machines.iter().find(|machine| self.starts(machine).0 != Some(false)) {
            let name = &machine.name;
            return match machine.labels.get(names::WINDOWS_BUILD) {
                None if machine.is_windows() => format!(
                    "it starts on {name}, but no label distinguishes this node from others: {} is missing, which winpool adds",
                    names::WINDOWS_BUILD
                ),
                _ => format!(
                    "it starts on {name}, but no change of the pod keeps it off nodes on which it does not start"
                ),
            };
        }
        let builds: BTreeSet<_> = self.spec.image_builds().map(|(_, build)| build).collect();
        let names: Vec<String> = builds.into_iter().map(name_of).collect();
        match names.as_slice() {
            [] => "no change of the pod makes it fit a node".to_owned(),
            [_] => format!(
                "no node runs its images ({}): add one that does, or choose image tags of another build",
                names.join(", ")
            ),
            _ => format!("its images are of different builds ({}): choose tags of one", names.join(", ")),
        }
    }
}

fn tolerate(taint: &Taint) -> String {
    format!("add the toleration {}", yaml(&json!(toleration(taint))))
}

/// Returns the node without temporary taints and cordons.
fn settled(machine: &Node) -> Node {
    let mut machine = machine.clone();
    machine.is_cordoned = false;
    machine.taints.retain(|taint| !taint.has_foreign_key());
    machine
}
