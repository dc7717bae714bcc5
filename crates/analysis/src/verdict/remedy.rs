//! The shortest change with which a pod can be scheduled and starts on every node where it can be.

use std::collections::{BTreeMap, BTreeSet};

use winpool_core::api::{ObjectReference, Taint, names};
use winpool_core::plan::nodes::capability_labels;
use winpool_core::pod::{Class, System, selects_windows};
use winpool_core::words::joined;

use crate::image::known::name_of;
use crate::lint::{CORRECT_HANDLER, OTHER_QUEUE};
use crate::placement::{HOSTNAME, Obstacle};
use crate::pod::{ClassExt, Guess, similar_class};
use crate::remedy::{Edit, Rank, Remedy};
use crate::view::Node;
use crate::workload::or_default;

use super::{AdmittedPod, Cluster, PlacedBy, Refused, settled};

/// The beginning of the remedy for a pod that only has to be created again.
pub const RECREATE: &str = "delete and recreate the pod";
/// The number of nodes that the search tries, the closest first.
const TRIED: usize = 20;
/// The number of nodes that a remedy names.
const NAMED: usize = 3;
const NODE_NAME: [&str; 2] = ["spec", "nodeName"];
const CLASS: [&str; 2] = ["spec", "runtimeClassName"];
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

/// A pod that can be scheduled to a node after a number of steps.
struct Fit<'m, 'a> {
    machine: &'m Node,
    number: usize,
    steps: Remedy,
    changed: AdmittedPod<'a>,
}

impl<'a> AdmittedPod<'a> {
    /// Returns the change with which it runs wherever it can be scheduled, and can be scheduled somewhere.
    pub fn remedy(&self, cluster: &Cluster) -> Remedy {
        let machines = &*cluster.nodes;
        let system = if self.is_windows { "Windows" } else { "Linux" };
        if machines.is_empty() && self.placed_by == PlacedBy::DaemonSetBefore {
            return Remedy::advice("wait until the pod is deleted: it is for a node that does not exist");
        }
        if !machines.iter().any(|machine| machine.is_windows() == self.is_windows)
            && self.placed_by != PlacedBy::DaemonSetBefore
        {
            return Remedy::advice(format!("there is no {system} node"));
        }
        if let Some(remedy) = self.without_linux_images() {
            return Remedy::advice(remedy);
        }
        // Ignore that a node is cordoned or not ready, because that is temporary.
        let Cluster { nodes: settled, classes, .. } = cluster.settled();
        let waiting: Vec<&str> = settled.iter().filter(|node| node.is_waiting).map(|node| node.name.as_str()).collect();
        let ready: Vec<Node> = settled.iter().map(|node| Node { is_waiting: false, ..node.clone() }).collect();
        if self.lands_well(&ready).is_some() {
            return Remedy::advice(self.wait(machines));
        }
        // A node that takes pods now is better than one that may take them later.
        let at_once = if waiting.is_empty() { None } else { self.change(&settled, &classes) };
        let later = || {
            let remedy = self.change(&ready, &classes)?;
            let note = || format!("; cordoned or not ready at present: {}", joined(waiting.iter().take(NAMED)));
            Some(if waiting.is_empty() { remedy } else { remedy.and(&note()) })
        };
        at_once.or_else(later).unwrap_or_else(|| Remedy::advice(self.no_node(&ready)))
    }

    /// Returns the change with which it can be scheduled on one of these nodes, and starts wherever it can be scheduled.
    fn change(&self, settled: &[Node], classes: &BTreeMap<String, Class>) -> Option<Remedy> {
        let of_template = self.selects_as_its_class(settled).or_else(|| self.keep_off(settled));
        if let Some(remedy) = of_template.or_else(|| self.recreated(settled)) {
            return Some(remedy);
        }
        // A class also selects a build, and is for those who ask for one. A toleration keeps the pod where it runs today.
        let of_own_build = self.by_class(settled, classes, |class| self.is_of_asked_build(class));
        let of_other_build = || self.by_class(settled, classes, |_| self.asks_for_a_build());
        let remedy = of_own_build.or_else(|| self.by_tolerations(settled)).or_else(of_other_build);
        remedy.or_else(|| self.handler(settled)).or_else(|| self.by_steps(settled))
    }

    /// Suggests another handler for the class, if no node that takes the pod has its handler.
    fn handler(&self, machines: &[Node]) -> Option<Remedy> {
        let (name, class) = self.class?;
        let mut possible = machines.iter().filter(|machine| self.obstacles(machine).is_empty()).peekable();
        possible.peek()?;
        let lacks = possible.all(|machine| machine.is_windows() && machine.lacks_handler(&class.handler));
        lacks.then(|| Remedy::advice(format!("RuntimeClass {name}: {CORRECT_HANDLER}")))
    }

    /// Returns a node on which the pod can be scheduled now, if no node on which it can be scheduled is known to fail to start it.
    fn lands_well<'m>(&self, machines: &'m [Node]) -> Option<&'m Node> {
        let mut possible = machines.iter().filter(|machine| self.obstacles(machine).is_empty());
        let first = possible.clone().find(|machine| !machine.is_waiting)?;
        possible.all(|machine| self.starts(machine).0 != Some(false)).then_some(first)
    }

    /// Describes what must change on the nodes before the pod can be scheduled.
    fn wait(&self, machines: &[Node]) -> String {
        let fitting = machines.iter().filter(|machine| self.obstacles(&settled(machine)).is_empty());
        let Some(machine) = fitting.min_by_key(|machine| self.obstacles(machine).len()) else {
            return self.no_node(machines);
        };
        let steps = self.obstacles(machine).into_iter().map(|obstacle| match obstacle {
            Obstacle::Taint(taint) => {
                let wait = format!("wait until {} has lost the taint {taint}", machine.name);
                if self.placed_by == PlacedBy::Anyone || !is_removed_by_daemon_set(&taint) {
                    return wait;
                }
                let tolerate = Edit::tolerate(&taint);
                format!(
                    "if this DaemonSet is what removes the taint {taint}: {tolerate} in its template. Otherwise {wait}"
                )
            }
            _ => format!("kubectl uncordon {}", machine.name),
        });
        steps.collect::<Vec<_>>().join("; ")
    }

    /// Writes what the class selects into the template of a DaemonSet, if its controller made a pod for a node that the class does
    /// not select.
    fn selects_as_its_class(&self, machines: &[Node]) -> Option<Remedy> {
        let only = machines.first().filter(|_| self.placed_by == PlacedBy::DaemonSetBefore)?;
        let (_, class) = self.class.filter(|(_, class)| !only.labels.matches(&class.selector))?;
        let lacked =
            class.selector.iter().filter(|(key, value)| self.written_spec.node_selector.get(*key) != Some(value));
        let edits: Vec<Edit> = lacked.map(|(key, value)| Edit::select(key, value)).collect();
        (!edits.is_empty()).then(|| self.in_template(Remedy::of(edits)))
    }

    /// Keeps the pods of a DaemonSet off nodes like this one, if they cannot start there.
    fn keep_off(&self, machines: &[Node]) -> Option<Remedy> {
        let only = machines.first().filter(|_| self.placed_by == PlacedBy::DaemonSetBefore);
        let machine = only.filter(|machine| self.starts(machine).0 == Some(false))?;
        let builds: BTreeSet<_> = self.spec.image_builds().map(|(_, build)| build.to_string()).collect();
        let (key, value) = match (machine.is_windows() == self.is_windows, builds.first()) {
            (true, Some(build)) if builds.len() == 1 => (names::WINDOWS_BUILD, build.as_str()),
            (true, _) => return None,
            (false, _) => (names::OS, if self.is_windows { names::WINDOWS } else { "linux" }),
        };
        if self.written_spec.selected(key) == Some(value) {
            return Some(Remedy::advice(format!("delete the pod: its DaemonSet creates none for {}", machine.name)));
        }
        Some(self.in_template(Remedy::of(vec![Edit::select(key, value)])))
    }

    /// Suggests a new pod, if the class has changed since the API server applied it to this one.
    fn recreated(&self, machines: &[Node]) -> Option<Remedy> {
        let (name, class) = self.class.filter(|_| self.pod.is_bound)?;
        let mut again = self.with_class(name, class);
        let is_older = class.selector.iter().any(|(key, value)| self.pod.spec.node_selector.get(key) != Some(value));
        if is_older {
            // Before, winpool's class selected the build or its label.
            again.spec.node_selector.retain(|key, _| {
                class.selector.contains_key(key)
                    || key != names::WINDOWS_BUILD && capability_labels::build_of(key).is_none()
            });
        }
        again.lands_well(machines)?;
        let text = format!("{RECREATE}: RuntimeClass {name} has changed since the pod was created");
        Some(Remedy::advice(text))
    }

    /// Returns the taints that keep the pod off the node, if nothing else does.
    fn only_taints(&self, machine: &Node) -> Option<Vec<Taint>> {
        let taints = self.obstacles(machine).into_iter().map(|obstacle| match obstacle {
            Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => Some(taint),
            _ => None,
        });
        taints.collect()
    }

    /// Adds the tolerations that the pod lacks on one node, if it then starts wherever it can be scheduled.
    fn by_tolerations(&self, machines: &[Node]) -> Option<Remedy> {
        let own = machines.iter().filter(|machine| machine.is_windows() == self.is_windows);
        let mut closest: Vec<(&Node, Vec<Taint>)> = own
            .filter_map(|machine| Some((machine, self.only_taints(machine).filter(|taints| !taints.is_empty())?)))
            .collect();
        closest.sort_by_key(|(_, taints)| taints.len());
        closest.into_iter().take(TRIED).find_map(|(_, taints)| {
            let remedy = Remedy::of(taints.iter().map(Edit::tolerate).collect());
            let mut changed = self.clone();
            for edit in &remedy.edits {
                edit.apply(&mut changed.spec);
            }
            // A toleration is a sign of the system.
            let is_same = |guess: Guess| (guess.system == System::Windows) == self.is_windows;
            changed.lands_well(machines).filter(|_| changed.guess(machines).is_none_or(is_same))?;
            Some(self.describe_steps(&changed, machines, remedy))
        })
    }

    /// Returns the change with which the API server accepts the pod.
    pub fn admit(&self, refused: &Refused, cluster: &Cluster) -> Remedy {
        match refused {
            Refused::Contradiction(key) => {
                let name = self.spec.runtime_class.as_deref().unwrap_or_default();
                let why = format!(
                    "nodeSelector and RuntimeClass {name} want different values of {key}, so the API server refuses new pods of it: "
                );
                Remedy::of(vec![Edit::unselect(key)]).after(&why).and(", or name another class").undecided()
            }
            Refused::Namespace { name, key, value } => Remedy::advice(format!(
                "namespace {name} selects {key}={value}, and the pod another value, so the API server refuses new pods of it: \
                 select the same, or use a namespace that selects no nodes"
            )),
            Refused::PodSecurity(forbidden) => Remedy::advice(format!("{forbidden}: {}", forbidden.remedy())),
            Refused::Queue(why) => Remedy::advice(format!("{why}: {OTHER_QUEUE}")),
            Refused::NoClass(name) => {
                let why = format!("RuntimeClass {name} does not exist, so the API server refuses new pods of it: ");
                let settled = cluster.settled();
                let meant = similar_class(name, &settled.classes).map(|meant| Remedy::of(vec![Edit::class(meant)]));
                let by_build =
                    || self.by_class(&settled.nodes, &settled.classes, |class| self.is_of_asked_build(class));
                match meant.or_else(by_build) {
                    Some(remedy) => remedy.after(&why).undecided(),
                    None => Remedy::advice(format!("{why}create it, or name another"))
                        .and(&self.unless_class(&settled.nodes)),
                }
            }
        }
    }

    /// Names the tolerations that the pod lacks on a node: its class does not exist, and so may have them or not.
    fn unless_class(&self, machines: &[Node]) -> String {
        let own = machines.iter().filter(|machine| machine.is_windows() == self.is_windows);
        let lacking = own.filter_map(|machine| self.only_taints(machine)).min_by_key(Vec::len);
        let steps: Vec<String> = lacking.iter().flatten().map(|taint| Edit::tolerate(taint).to_string()).collect();
        if steps.is_empty() {
            return String::new();
        }
        format!(". Unless that class has it, also {}", steps.join(" and "))
    }

    /// True if the class is for the only build that the pod asks for.
    fn is_of_asked_build(&self, class: &Class) -> bool {
        let asked = self.written_spec.asked_build();
        asked.is_some() && class.image_build() == asked
    }

    /// True if the pod's selector or images name a build.
    fn asks_for_a_build(&self) -> bool {
        self.written_spec.builds().is_some() || !self.images.is_empty() || self.spec.image_builds().next().is_some()
    }

    /// Suggests a class. The DaemonSet controller ignores classes.
    fn by_class(
        &self,
        machines: &[Node],
        classes: &BTreeMap<String, Class>,
        is_wanted: impl Fn(&Class) -> bool,
    ) -> Option<Remedy> {
        if !self.is_windows || self.placed_by != PlacedBy::Anyone {
            return None;
        }
        let may = |class: &Class| selects_windows(&class.selector) && class.conflict(&self.written_spec).is_none();
        let windows = classes.iter().filter(|(_, class)| may(class) && is_wanted(class));
        let fitting = windows.filter_map(|(name, class)| {
            let candidate = self.with_class(name, class);
            let machine = candidate.lands_well(machines)?;
            // Prefer a class that certainly fits the images.
            let is_certain = candidate.starts(machine).0 == Some(true);
            Some(((!is_certain, class.preference(name)), name, candidate))
        });
        let ((is_unclear, _), name, candidate) = fitting.min_by(|a, b| a.0.cmp(&b.0))?;
        let free = self.spec.node.is_some().then(|| Edit::remove(&NODE_NAME));
        let remedy = Remedy::of(free.into_iter().chain([Edit::class(name)]).collect());
        let remedy = if self.spec.node.is_some() { remedy.undecided() } else { remedy };
        let nodes = candidate.lands_on(machines);
        Some(if is_unclear && self.spec.image_builds().next().is_some() {
            remedy
                .and(&format!("; then it can be scheduled on {nodes}, and it is not known if it starts there"))
                .undecided()
        } else {
            remedy.and(&format!("; then it runs on {nodes}"))
        })
    }

    pub fn with_class<'c>(&self, name: &'c str, class: &'c Class) -> AdmittedPod<'c>
    where
        'a: 'c,
    {
        let mut candidate = self.without_class();
        candidate.spec.node = None;
        candidate.spec.runtime_class = Some(name.to_owned());
        class.admit(&mut candidate.spec);
        AdmittedPod { class: Some((name, class)), ..candidate }
    }

    fn without_class(&self) -> Self {
        Self { spec: self.written_spec.clone(), class: None, ..self.clone() }
    }

    /// Removes the obstacles on a node where the pod starts, and then excludes the nodes where it does not start.
    fn by_steps(&self, machines: &[Node]) -> Option<Remedy> {
        let kept = (Remedy::of(Vec::new()), self.clone());
        let without_class = || Remedy::of(vec![Edit::remove(&CLASS)]).undecided();
        let dropped = self.class.is_some().then(|| (without_class(), self.without_class()));
        for (steps, candidate) in std::iter::once(kept).chain(dropped) {
            let mut closest: Vec<Fit<'_, '_>> =
                machines.iter().filter_map(|machine| candidate.fit_on(machine, &steps)).collect();
            let is_meant = |machine: &Node| {
                self.spec
                    .node_selector
                    .iter()
                    .all(|(key, wanted)| machine.labels.get(key).is_none_or(|found| found.contains(wanted.as_str())))
            };
            closest.sort_by_key(|Fit { machine, number, changed, .. }| {
                (*number, !is_meant(machine), changed.starts(machine).0 != Some(true))
            });
            for Fit { machine, steps, changed, .. } in closest.into_iter().take(TRIED) {
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
                        return Some(self.describe_steps(&changed, machines, steps));
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

    fn select(&mut self, key: &str, machine: &Node, steps: &mut Remedy) {
        let system = if machine.is_windows() { System::Windows } else { System::Linux };
        let is_placed = key == names::OS && self.spec.placed_system() == Some(system);
        if let Some(value) = machine.labels.get(key).filter(|_| !is_placed)
            && self.spec.selected(key) != Some(value)
        {
            self.edit(Edit::select(key, value), steps);
            if key == HOSTNAME {
                steps.rank = Rank::Decision;
            }
        }
    }

    /// Makes a change, and adds it to the steps.
    fn edit(&mut self, edit: Edit, steps: &mut Remedy) {
        edit.apply(&mut self.spec);
        steps.push(edit);
    }

    /// Requires one of the builds on whose nodes the pod starts. Returns false if a nodeSelector is enough, or if the pod
    /// has a node affinity of its own.
    fn select_builds(&mut self, machines: &[Node], steps: &mut Remedy) -> bool {
        let build = |machine: &Node| machine.labels.get(names::WINDOWS_BUILD).map(str::to_owned);
        let starts = |machine: &&Node| self.starts(machine).0 != Some(false);
        let (able, unable): (Vec<&Node>, Vec<&Node>) = machines.iter().partition(starts);
        let unable: BTreeSet<String> = unable.into_iter().filter_map(build).collect();
        let able: BTreeSet<String> = able.into_iter().filter_map(build).collect();
        let values: Vec<String> = able.difference(&unable).cloned().collect();
        if values.len() < 2 || !self.spec.terms.is_empty() {
            return false;
        }
        self.edit(Edit::require_builds(values), steps);
        true
    }

    fn describe_steps(&self, changed: &Self, machines: &[Node], steps: Remedy) -> Remedy {
        let starts_somewhere = || {
            let mut possible = machines.iter().filter(|machine| self.obstacles(machine).is_empty());
            possible.any(|machine| self.starts(machine).0 != Some(false))
        };
        let drops_affinity = steps.edits.contains(&Edit::require_nothing());
        let steps = if drops_affinity { steps.and("; or keep it, and add a node that satisfies it") } else { steps };
        match self.placed_by {
            PlacedBy::Anyone if starts_somewhere() => steps.after("to land only where it starts: "),
            PlacedBy::Anyone => steps.after(&format!("to land on {}: ", changed.lands_on(machines))),
            _ => self.in_template(steps),
        }
    }

    /// Returns a change of the DaemonSet that creates the pod.
    fn in_template(&self, remedy: Remedy) -> Remedy {
        let controller = self.pod.controller.as_ref();
        let object =
            controller.map(|(kind, name)| ObjectReference::namespaced(kind, or_default(&self.pod.namespace), name));
        Remedy { object, ..remedy.after("in the template of the DaemonSet: ") }
    }

    /// Names the nodes on which the pod can be scheduled.
    fn lands_on(&self, machines: &[Node]) -> String {
        let possible = machines.iter().filter(|machine| !machine.is_waiting && self.obstacles(machine).is_empty());
        let names: Vec<&str> = possible.map(|machine| &*machine.name).collect();
        match names.split_at_checked(NAMED) {
            Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(", "), rest.len()),
            _ => names.join(", "),
        }
    }

    /// Returns the pod without its obstacles on this node, if it then starts there.
    fn fit_on<'m>(&self, machine: &'m Node, steps: &Remedy) -> Option<Fit<'m, 'a>> {
        let (mut changed, mut steps) = (self.clone(), steps.clone());
        if changed.spec.node.is_some() {
            changed.edit(Edit::remove(&NODE_NAME), &mut steps);
            steps.rank = Rank::Decision;
        }
        if changed.os_label.is_some_and(|os| machine.os.as_deref().is_some_and(|own| own != os)) {
            steps.push(Edit::remove(&["metadata", "labels", names::OS]));
            steps.rank = Rank::Decision;
            changed.os_label = None;
        }
        let obstacles = changed.obstacles(machine);
        let number = steps.edits.len() + obstacles.len();
        for obstacle in obstacles {
            changed.overcome(obstacle, &mut steps)?;
        }
        let lands = changed.obstacles(machine).is_empty() && changed.starts(machine).0 != Some(false);
        lands.then_some(Fit { machine, number, steps, changed })
    }

    /// Changes the pod so that it no longer has this obstacle. Returns `None` if a change of the pod cannot remove it.
    fn overcome(&mut self, obstacle: Obstacle, steps: &mut Remedy) -> Option<()> {
        if !matches!(obstacle, Obstacle::Taint(_)) {
            steps.rank = Rank::Decision;
        }
        match obstacle {
            Obstacle::NamesAnotherNode(_) | Obstacle::Unschedulable => return None,
            // Another processor does not run the pod's images.
            _ if obstacle.is_about_processor() || self.added_by(&obstacle).is_some() => return None,
            Obstacle::Selector { key, .. }
                if self.class.is_some_and(|(_, class)| class.selector.contains_key(&key)) =>
            {
                return None;
            }
            Obstacle::Selector { key, found: Some(found), .. } => self.edit(Edit::select(&key, &found), steps),
            Obstacle::Selector { key, found: None, .. } => self.edit(Edit::unselect(&key), steps),
            Obstacle::Affinity(_) => self.edit(Edit::require_nothing(), steps),
            Obstacle::Taint(taint) | Obstacle::UnknownOperator(taint) => self.edit(Edit::tolerate(&taint), steps),
            Obstacle::Resource { name, found, .. } => {
                for container in &mut self.spec.containers {
                    container.extended_resources.remove(&name);
                }
                steps.also(&if found == "0" {
                    format!("see that the device plugin of {name} runs on the node, or do not request it")
                } else {
                    format!("request less of {name}")
                });
            }
        }
        Some(())
    }

    fn no_node(&self, machines: &[Node]) -> String {
        let is_other = |machine: &Node| self.obstacles(machine).iter().any(Obstacle::is_about_processor);
        let mut own = machines.iter().filter(|machine| machine.is_windows() == self.is_windows).peekable();
        if own.peek().is_some() && own.all(is_other) {
            return "no node has the processor that the pod selects: add one that does".to_owned();
        }
        let starting = || machines.iter().filter(|machine| self.starts(machine).0 != Some(false));
        let added = |machine: &Node| self.obstacles(machine).iter().find_map(|obstacle| self.added_by(obstacle));
        if let Some(added) = starting().find_map(added) {
            return added;
        }
        if let Some(machine) = starting().next() {
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

/// True for the taint that a new node has until the cloud provider's agent has prepared it. On Azure a DaemonSet is that agent
/// (kubernetes-sigs/cloud-provider-azure, cloud-node-manager), so that it has to tolerate the taint.
fn is_removed_by_daemon_set(taint: &Taint) -> bool {
    taint.key == "node.cloudprovider.kubernetes.io/uninitialized"
}
