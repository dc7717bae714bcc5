//! The model: every order in which the operator, its successor, users, kubelets and other controllers may act.

use std::collections::BTreeMap;
use std::time::Duration;

use stateright::Model;

use super::cluster::{self, Nodes};
use super::events::Event;
use super::operator::{Operator, Pods, Process};
use super::shared::{Beside, History};
use super::state::{CACHES, Cache, Known, State, World};

/// A safeguard of the protocol that is left out, to see that its absence is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Break {
    Nothing,
    /// Node patches test nothing.
    NoGuard,
    /// Nodes are written before the status that records their taints is accepted.
    EvidenceAfterwards,
    /// Whatever a node's annotation names is taken off it.
    NoEvidence,
    /// A status may replace one that it was not computed from, and a new leader does not check for that first.
    UnguardedStatus,
    /// A pool is released as soon as the cache shows nothing of it.
    BlindDeletion,
    /// A new leader takes its cached pools for current.
    TrustsOldCaches,
    /// Requests of a former leader may arrive after the next one has begun.
    NoFence,
    /// Nodes may register with taints before the classes tolerate them.
    EarlyRegistration,
    /// Nodes do not wait for their classes.
    NoLag,
    /// Taints are added whatever `DaemonSets` need.
    ObjectorsIgnored,
    /// `DaemonSets` count whatever their age.
    AgesIgnored,
    /// A refused change is sent again at once.
    ForgetsRefusals,
    /// Writes are not counted, so that no back-off begins.
    ForgetsWrites,
    /// A patch that is accepted has an effect.
    TrustsAnswers,
    /// Nobody watches nodes that came back with another system.
    NoReimaged,
    /// A plan that is refused as a whole is not sent in parts.
    NoParts,
    /// The tables of pods and `DaemonSets` are complete before their first lists are.
    TrustsUnlistedPods,
}

/// Requests that fail, each at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A write of this kind gets a 500 and is not executed.
    Fails(Write),
    /// It is executed, and the answer is lost.
    Lost(Write),
    /// Admission refuses it.
    Denied(Write),
    /// The API server answers 409.
    Conflicts(Write),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    Node,
    Class,
    Status,
    Finalizer,
}

/// One scene.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each of which a scene or an event sets")]
pub struct Protocol {
    pub broken: Break,
    /// The only property to check; all if `None`.
    pub only: Option<&'static str>,
    /// The initial nodes, each with its team.
    pub nodes: &'static [(&'static str, &'static str)],
    /// Actions before the scene begins.
    pub before: &'static [Event],
    /// Actions after that, while no process led.
    pub away: &'static [Event],
    /// Actions of others: each list in its order, and the lists in any order.
    pub scripts: &'static [&'static [Event]],
    pub faults: &'static [Fault],
    /// The number of times that a new process takes over the lead, with caches of any age.
    pub successors: u8,
    /// The number of versions of nodes, pools and classes that the caches of a new leader may begin with.
    pub kept: [usize; 3],
    /// True if the policy `born-tainted` is installed.
    pub born_tainted: bool,
    /// True if the watches of pods and `DaemonSets` take their time. Otherwise they show none.
    pub follows_pods: bool,
    pub patience: Option<Duration>,
    /// The number of patches of one node that may be accepted within ten seconds, in scenes that count them: winpool
    /// must not insist.
    pub most_writes: Option<usize>,
    /// Keys of taints that a pool retires: winpool may replace them, whoever added them.
    pub retired: &'static [&'static str],
    /// The number of versions that each cache may be behind.
    pub lag: usize,
    /// True if several events may happen before the loop continues.
    pub lazy: bool,
}

pub const SCENE: Protocol = Protocol {
    broken: Break::Nothing,
    only: None,
    nodes: &[("n1", "a")],
    before: &[],
    away: &[],
    scripts: &[],
    faults: &[],
    successors: 0,
    kept: [2, 2, 2],
    born_tainted: false,
    follows_pods: false,
    patience: None,
    most_writes: None,
    retired: &[],
    lag: 1,
    lazy: false,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The next event of the script of this number.
    Happens(usize, Event),
    /// The next version of all of them arrives in the operator's cache.
    See(Cache),
    /// The watches of pods and `DaemonSets` show what they have missed.
    SeePods,
    /// The loop continues until it waits.
    Advance,
    /// The node controller reconciles a node.
    PlanNode(&'static str),
    /// The request for a pool is answered.
    Answer(&'static str, Option<Fault>),
    /// The request for a node is answered.
    AnswerNode(&'static str, Option<Fault>),
    /// Everything waits, and time passes until something is due.
    Wait,
    /// Another process leads, with caches of these versions.
    Succeed { nodes: usize, pools: usize, classes: usize },
    /// A patch of a former leader arrives.
    Orphan(usize),
}

impl Protocol {
    /// A process that begins to lead with the caches as they are.
    fn begin(&self, world: &World, known: &Known) -> Process {
        let (nodes, pools, classes) = (world.nodes.seen(), world.pools.seen(), world.classes.seen());
        let mut process = Operator::begin(nodes.clone(), pools.clone(), classes.clone(), self.broken, self.patience);
        if self.follows_pods {
            process.pods = Pods::Unlisted;
        }
        process.share(&known.processes)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let nodes = self.nodes.iter().map(|(name, team)| (*name, cluster::node(cluster::bare_node(name, team, 0))));
        let nodes: Nodes = nodes.collect();
        let world = World {
            others: nodes.iter().map(|(name, node)| (*name, (Vec::new(), node.words.clone()))).collect(),
            nodes: History::new(nodes),
            pools: History::new(BTreeMap::new()),
            classes: History::new(BTreeMap::new()),
            works: Vec::new(),
            made: 0,
            refuses_taints: false,
            reverts_taints: false,
            denies_pods: false,
            patches: None,
        };
        let known = Beside::<Known>::default();
        let process = self.begin(&world, &known);
        let mut state = State {
            world,
            process,
            orphans: Vec::new(),
            accepted: 0,
            loses_daemon_set: false,
            class_behind: false,
            is_mislabelled: false,
            deletes_in_use: false,
            follows_pods: self.follows_pods,
            insists: false,
            done: vec![0; self.scripts.len()],
            faults: self.faults.to_vec(),
            successors: self.successors,
            slack: 0,
            known,
        };
        state.advance();
        for event in self.before {
            event.apply(&mut state.world, self.born_tainted).unwrap();
            state = state.settled().unwrap();
        }
        for event in self.away {
            event.apply(&mut state.world, self.born_tainted).unwrap();
        }
        if !self.away.is_empty() {
            state.world.nodes.forget_all();
            state.world.pools.forget_all();
            state.world.classes.forget_all();
            state.process = self.begin(&state.world, &state.known);
            state.advance();
        }
        state.accepted = 0;
        state.world.patches = self.most_writes.map(|_| Vec::new());
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let (world, process) = (&state.world, &state.process);
        actions.extend(CACHES.into_iter().filter(|cache| state.lag_of(*cache) > 0).map(Action::See));
        if state.lag() > self.lag.max(state.slack) {
            return;
        }
        actions.extend(state.has_pods_to_see().then_some(Action::SeePods));
        actions.extend(self.lazy.then_some(Action::Advance));
        actions.extend(process.nodes.keys().map(|name| Action::PlanNode(name)));
        let outcomes = || [None].into_iter().chain(state.faults.iter().copied().map(Some));
        for pool in process.requests.keys() {
            actions.extend(outcomes().map(|outcome| Action::Answer(pool, outcome)));
        }
        for node in process.node_requests.keys() {
            actions.extend(outcomes().map(|outcome| Action::AnswerNode(node, outcome)));
        }
        actions.push(Action::Wait);
        for (number, (script, done)) in self.scripts.iter().zip(&state.done).enumerate() {
            actions.extend(script.get(*done).map(|event| Action::Happens(number, *event)));
        }
        actions.extend((0..state.orphans.len()).map(Action::Orphan));
        if state.successors > 0 {
            for nodes in world.nodes.places() {
                for pools in world.pools.places() {
                    actions.extend(world.classes.places().map(|classes| Action::Succeed { nodes, pools, classes }));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Happens(number, event) => {
                event.apply(&mut state.world, self.born_tainted)?;
                if let Event::Join(name, _) = event {
                    state.notice_class_behind(name, &[]);
                }
                state.done[number] += 1;
            }
            Action::See(cache) => state.see(cache),
            Action::SeePods => state.see_pods(),
            Action::Advance => state.advance(),
            Action::PlanNode(name) => state.plan_node(name),
            Action::Answer(pool, outcome) => state.answer(pool, outcome, self.broken)?,
            Action::AnswerNode(node, outcome) => state.answer_node(node, outcome, self.most_writes)?,
            Action::Wait => {
                if !state.is_idle() {
                    return None;
                }
                state.pass(state.due()?);
            }
            Action::Succeed { nodes, pools, classes } => {
                state.successors -= 1;
                let former = state.process.clone();
                state.world.nodes.begin_at(nodes);
                state.world.pools.begin_at(pools);
                state.world.classes.begin_at(classes);
                state.process = self.begin(&state.world, &state.known);
                if self.broken == Break::NoFence {
                    state.orphans.extend(former.node_requests.keys().map(|name| (*name, former.clone())));
                }
                state.slack = state.lag();
            }
            Action::Orphan(number) => {
                let (name, former) = state.orphans.remove(number);
                let _ = state.deliver(name, &former.node_requests[name].1, None);
            }
        }
        state.slack = state.slack.min(state.lag());
        if !self.lazy {
            state.advance();
        }
        let [nodes, pools, classes] = if state.successors > 0 { self.kept } else { [1, 1, 1] };
        state.world.nodes.forget(nodes);
        state.world.pools.forget(pools);
        state.world.classes.forget(classes);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        let mut properties = super::properties::all();
        properties.retain(|property| self.only.is_none_or(|only| property.name == only));
        properties
    }
}
