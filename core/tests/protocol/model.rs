//! The model: every order in which the operator, its successor, people and other controllers may act.

use stateright::{Model, Property};
use winpool_core::{api::names, plan::WantedTaints};

use crate::{
    operator::{Operator, Write, standing},
    world::{
        Edit, History, Node, Others, Pools, Stranger, TEAM, as_written, bare_node, node, not_retired, pools,
        words_of_others,
    },
};

/// What is left out of the protocol, to see that it is missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    Nothing,
    /// Node patches test nothing.
    NoGuard,
    /// Nodes are let through before the status that records their taints is accepted.
    EvidenceAfterwards,
    /// Whatever a node's annotation names is taken off it.
    NoEvidence,
    /// A status may replace one that it was not computed from.
    UnguardedStatus,
    /// A pool goes as soon as the cache shows no marks of it.
    BlindDeletion,
    /// A new leader takes its cached pools for what they are.
    TrustsOldCaches,
    /// Requests of a former leader may arrive when the next one is at work.
    NoFence,
}

/// The events of one scene. Each happens at most once, at any time, in any order.
pub struct Protocol {
    pub broken: Break,
    pub edits: &'static [Edit],
    pub strangers: &'static [Stranger],
    /// How often the process that leads is replaced by one that begins anew, with caches as old as they may be.
    pub successors: u8,
    /// The first part of keys whose taints some pool retires: winpool may replace them, whosever they are.
    pub retired: &'static [&'static str],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub node: History<Node>,
    pub pools: History<Pools>,
    pub others: Others,
    pub operator: Operator,
    /// Requests under way, in the order in which they were sent.
    pub writes: Vec<Write>,
    /// How many of them were sent by a process that leads no more.
    pub orphaned: usize,
    /// Node patches that were accepted.
    pub accepted: usize,
    edits: Vec<Edit>,
    strangers: Vec<Stranger>,
    successors: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Somebody writes to the node.
    Write(Stranger),
    /// Somebody writes to the pools.
    Edit(Edit),
    /// The next version of the node arrives in the operator's cache.
    SeeNode,
    /// The next version of the pools does.
    SeePools,
    /// The node controller runs.
    PlanNode,
    /// The pool controller runs for this pool.
    Reconcile(&'static str),
    /// A request arrives.
    Deliver(usize),
    /// Another process leads, with caches of these versions.
    Succeed { node: usize, pools: usize },
}

/// How many versions a successor's caches may be behind, one less.
const KEPT: usize = 3;

impl Protocol {
    fn operators_actions(state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        if state.operator.node < state.node.latest() {
            actions.push(Action::SeeNode);
        }
        if state.operator.pools < state.pools.latest() {
            actions.push(Action::SeePools);
        }
        actions.extend((0..state.writes.len()).map(Action::Deliver));
        actions.push(Action::PlanNode);
        actions.extend(state.pools.at(state.operator.pools).iter().map(|pool| Action::Reconcile(pool.name)));
        actions
    }

    /// Whether the operator has nothing left to do, whatever others might do next.
    pub fn rests(&self, state: &State) -> bool {
        let up_to_date = state.operator.node == state.node.latest() && state.operator.pools == state.pools.latest();
        up_to_date
            && state.writes.is_empty()
            && Self::operators_actions(state).into_iter().all(|action| self.next_state(state, action).is_none())
    }

    fn bound(&self) -> usize {
        2 * (1 + self.edits.len() + self.strangers.len() + usize::from(self.successors))
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            node: History::new(node(bare_node())),
            pools: History::new(pools(Vec::new())),
            others: Others { taints: Vec::new(), team: "a" },
            operator: Operator::default(),
            writes: Vec::new(),
            orphaned: 0,
            accepted: 0,
            edits: self.edits.to_vec(),
            strangers: self.strangers.to_vec(),
            successors: self.successors,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(Self::operators_actions(state));
        actions.extend(state.strangers.iter().copied().map(Action::Write));
        actions.extend(state.edits.iter().copied().map(Action::Edit));
        if state.successors > 0 {
            for node in 0..=state.node.latest() {
                actions.extend((0..=state.pools.latest()).map(|pools| Action::Succeed { node, pools }));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(stranger) => {
                let (node, others) = stranger.apply(state.node.truth(), &state.others)?;
                state.node.push(node);
                state.others = others;
                state.strangers.retain(|left| *left != stranger);
            }
            Action::Edit(edit) => {
                let number = state.edits.len();
                state.pools.push(pools(edit.apply(number, state.pools.truth())?));
                state.edits.retain(|left| *left != edit);
            }
            Action::SeeNode => state.operator.node += 1,
            Action::SeePools => state.operator.see_pools(&state.pools),
            Action::PlanNode => state.plan_node(self.broken),
            Action::Reconcile(name) => state.reconcile(name, self.broken),
            Action::Deliver(number) => state.deliver(number, self.broken),
            Action::Succeed { node, pools } => {
                state.successors -= 1;
                state.operator = Operator::begin(node, pools);
                if self.broken == Break::NoFence {
                    state.orphaned = state.writes.len();
                } else {
                    state.writes.clear();
                }
            }
        }
        let kept = if state.successors > 0 { KEPT } else { 1 };
        state.operator.node = state.node.forget(state.operator.node, kept);
        state.operator.pools = state.pools.forget(state.operator.pools, kept);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FOREIGN_TAINTS, |model: &Protocol, state: &State| {
                not_retired(&state.node.truth().foreign, model.retired)
                    .eq(not_retired(&state.others.taints, model.retired))
            }),
            Property::always(FOREIGN_WORDS, |_: &Protocol, state: &State| {
                let mut expected = words_of_others(&bare_node());
                expected["labels"][TEAM] = state.others.team.into();
                state.node.truth().words == expected
            }),
            Property::always(EVIDENCE, |_: &Protocol, state: &State| {
                let pools = state.pools.truth();
                state.node.truth().own.iter().all(|taint| pools.iter().any(|pool| pool.has_evidence(taint)))
            }),
            Property::always(RIGHT_AT_REST, |model: &Protocol, state: &State| !model.rests(state) || is_right(state)),
            Property::always(NO_FIGHT, |model: &Protocol, state: &State| state.accepted <= model.bound()),
            Property::sometimes(TAINTED, |_: &Protocol, state: &State| !state.node.truth().own.is_empty()),
            Property::sometimes(OVER, |model: &Protocol, state: &State| {
                state.edits.is_empty() && state.strangers.is_empty() && state.successors == 0 && model.rests(state)
            }),
        ]
    }
}

pub const FOREIGN_TAINTS: &str = "no taint of others is lost, changed or put in another place";
pub const FOREIGN_WORDS: &str = "no label or annotation of others is lost or changed";
pub const EVIDENCE: &str = "a taint of winpool's stands in the status of a pool before it stands on the node";
pub const RIGHT_AT_REST: &str = "where the operator rests, the node is right and carries nothing that no pool wants";
pub const NO_FIGHT: &str = "winpool writes the node only so often";
const TAINTED: &str = "winpool puts on a taint";
const OVER: &str = "all has happened and the operator rests";

/// Judged by what is true, not by what anybody sees or any annotation says.
fn is_right(state: &State) -> bool {
    let (pools, node) = (state.pools.truth(), state.node.truth());
    let judges = as_written(pools);
    let standing = standing(node, &judges);
    let labels = &node.seen.labels;
    let Some(owner) = standing.pool.as_deref().and_then(|name| judges.1.pool(name)) else {
        return node.own.is_empty() && labels.get(names::POOL).is_none() && node.seen.applied.is_none();
    };
    let wanted = owner.wanted_taints();
    let guarded = owner.taints == WantedTaints::Guard && standing.tolerate.iter().any(|t| t.effect == "NoSchedule");
    let stands = |wanted| node.seen.taints.taints().iter().any(|taint| taint.same_identity(wanted));
    standing.plan.is_empty()
        && pools.iter().all(|pool| !pool.deleting)
        && node.own.iter().all(|taint| wanted.contains(taint))
        && (guarded || wanted.iter().all(stands))
        && labels.get(names::WINDOWS_BUILD) == Some("10.0.20348")
        && labels.get(names::POOL).is_none_or(|name| name == owner.name)
}
