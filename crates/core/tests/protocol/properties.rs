//! The properties that must hold, judged by the true state and not by what a process sees or reports.

use std::time::Duration;

use serde_json::Value;
use stateright::Property;
use winpool_core::api::names::{self, condition};
use winpool_core::api::{Effect, Mode};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::pools::pool::{Policy, PoolEntry, WantedTaints};
use winpool_core::plan::taints::Consent;

use super::cluster::{Node, NodeFacts, PoolObject};
use super::model::{Fault, Protocol, Write};
use super::shared::once;
use super::state::{CACHES, State, World};

pub const FOREIGN_TAINTS: &str = "no taint of others is lost, changed or put in another place";
pub const FOREIGN_WORDS: &str = "no label or annotation of others is lost or changed";
pub const EVIDENCE: &str = "a taint of winpool's stands in the status of a pool before it stands on a node";
pub const DAEMON_SETS_KEPT: &str =
    "no DaemonSet by which a patch was decided loses its last node by it, and none before the first lists";
pub const CLASS_FIRST: &str = "a class tolerates a taint before winpool puts it on a node that the class selects";
pub const BUILD_IS_REPORTED: &str = "winpool writes the build label of the build that the node reports at that moment";
pub const CLASS_IN_USE: &str =
    "winpool deletes no class that a pod uses, as far as the watch of pods has shown, and none before its first list";
pub const RIGHT_AT_REST: &str = "where the operator rests, nodes are right and carry nothing that no pool wants";
pub const TRUTH: &str = "where the operator rests, Ready is True if and only if all is done, status names what is held, and no node is pending";
pub const NO_INSISTENCE: &str = "winpool sends no refused change again, and no change again and again, without a pause";
pub const NO_FIGHT: &str = "winpool writes nodes only so often";
const TAINTED: &str = "winpool puts on a taint";
const OVER: &str = "all has happened and the operator rests";

pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(FOREIGN_TAINTS, |model: &Protocol, state: &State| {
            let is_kept = |taint: &&Value| !model.retired.iter().any(|key| taint["key"] == *key);
            let mut nodes = state.world.nodes.truth().iter();
            nodes.all(|(name, node)| {
                node.foreign.iter().filter(is_kept).eq(state.world.others[name].0.iter().filter(is_kept))
            })
        }),
        Property::always(FOREIGN_WORDS, |_: &Protocol, state: &State| {
            let mut nodes = state.world.nodes.truth().iter();
            nodes.all(|(name, node)| node.words == state.world.others[name].1)
        }),
        Property::always(EVIDENCE, |model: &Protocol, state: &State| {
            let pools = state.world.pools.truth();
            // A pool that is released in spite of a refusal leaves the taints that it could not remove.
            let is_left = pools.is_empty() && is_refused(model, state);
            let mut nodes = state.world.nodes.truth().values().filter(|node| !is_ignored(node));
            is_left || nodes.all(|node| node.own.iter().all(|taint| pools.values().any(|pool| pool.records(taint))))
        }),
        Property::always(DAEMON_SETS_KEPT, |_: &Protocol, state: &State| !state.loses_daemon_set),
        Property::always(CLASS_FIRST, |_: &Protocol, state: &State| !state.class_behind),
        Property::always(BUILD_IS_REPORTED, |_: &Protocol, state: &State| !state.is_mislabelled),
        Property::always(CLASS_IN_USE, |_: &Protocol, state: &State| !state.deletes_in_use),
        Property::always(RIGHT_AT_REST, |model: &Protocol, state: &State| {
            !state.is_idle() || state.settled().is_some_and(|end| is_right(model, &end))
        }),
        Property::always(TRUTH, |model: &Protocol, state: &State| {
            !state.is_idle() || state.settled().is_some_and(|end| is_truthful(model, &end))
        }),
        Property::always(NO_INSISTENCE, |_: &Protocol, state: &State| !state.insists),
        Property::always(NO_FIGHT, |model: &Protocol, state: &State| state.accepted <= model.bound()),
        Property::sometimes(TAINTED, |_: &Protocol, state: &State| {
            state.world.nodes.truth().values().any(|node| !node.own.is_empty())
        }),
        Property::sometimes(OVER, |model: &Protocol, state: &State| {
            let is_done = state.done.iter().zip(model.scripts).all(|(done, script)| *done == script.len());
            is_done && state.successors == 0 && state.is_idle()
        }),
    ]
}

impl Protocol {
    fn bound(&self) -> usize {
        let events: usize = self.scripts.iter().map(|script| script.len()).sum();
        3 * (self.nodes.len() + events + self.faults.len() + usize::from(self.successors))
    }
}

/// If nothing is written for this time, nothing will be.
const QUIET: Duration = Duration::from_mins(2);
/// The number of steps after which an operator that still writes never stops.
const STEPS: usize = 3000;

impl State {
    /// The final state of the cluster if from now on no request fails and nobody else acts; `None` if the operator
    /// never stops.
    pub fn settled(&self) -> Option<Self> {
        let (world, process) = once(&self.known.settled, (self.world.clone(), self.process.clone()), || {
            let mut state = self.clone();
            let mut quiet = Duration::ZERO;
            for _ in 0..STEPS {
                let before = state.truth();
                match state.go_on() {
                    None => return Some((state.world, state.process)),
                    Some(time) => quiet += time,
                }
                if state.truth() != before {
                    quiet = Duration::ZERO;
                }
                if quiet > QUIET {
                    return Some((state.world, state.process));
                }
            }
            None
        })?;
        Some(Self { world, process, ..self.clone() })
    }

    fn truth(&self) -> impl PartialEq + use<> {
        let world = &self.world;
        (world.nodes.truth().clone(), world.pools.truth().clone(), world.classes.truth().clone())
    }

    /// The next possible action, and the time that passes with it.
    pub fn go_on(&mut self) -> Option<Duration> {
        let before = self.process.clone();
        let (request, patch) = (before.requests.keys().next(), before.node_requests.keys().next());
        let behind = CACHES.into_iter().find(|cache| self.lag_of(*cache) > 0);
        if let Some(cache) = behind {
            self.see(cache);
        } else if self.has_pods_to_see() {
            self.see_pods();
        } else if let Some(pool) = request {
            self.answer(pool, None, before.broken)?;
        } else if let Some(node) = patch {
            self.answer_node(node, None, None)?;
        } else {
            self.advance();
            if self.process == before {
                before.nodes.keys().for_each(|name| self.plan_node(name));
            }
            if self.process == before {
                let due = self.due()?;
                self.pass(due);
                return Some(due);
            }
        }
        Some(Duration::ZERO)
    }
}

fn is_ignored(node: &NodeFacts) -> bool {
    node.seen.node.ignore.as_deref() == Some("true")
}

/// The policy for nodes if every pool has what it wants.
fn as_written(world: &World) -> Policy {
    let pools = world.pools.truth().values().filter_map(|pool| pool.pool.clone());
    Policy::new(pools.map(|pool| PoolEntry { pool: pool.into(), ready: true }), [].into())
}

/// True if the node is in the state that the pools want.
fn is_node_right(node: &NodeFacts, policy: &Policy) -> bool {
    let assessment = assess(&node.seen.node, policy, Consent::Given);
    let Some(owner) = assessment.pool.as_deref().and_then(|name| policy.pool(name)) else {
        return node.own.is_empty()
            && node.seen.node.labels.get(names::POOL).is_none()
            && node.seen.node.applied.is_none();
    };
    let wanted = owner.spec.wanted_taints();
    let guarded = owner.spec.wants == Some(WantedTaints::Guard)
        && assessment.tolerate.iter().any(|t| t.effect == Effect::NoSchedule);
    let stands = |wanted| node.seen.node.taints.taints().iter().any(|taint| taint.same_identity(wanted));
    assessment.plan.is_empty()
        && node.own.iter().all(|taint| wanted.contains(taint))
        && (guarded || wanted.iter().all(stands))
        && node.seen.node.labels.get(names::WINDOWS_BUILD).is_some()
        && node.seen.node.labels.get(names::POOL).is_none_or(|name| name == owner.spec.name)
}

/// True if the taints of the node have to wait for a DaemonSet, or because pods are unknown.
fn waits(node: &NodeFacts, world: &World) -> bool {
    world.denies_pods || world.works.iter().any(|work| work.objects(node))
}

/// True if a request is refused for that long.
fn is_refused(model: &Protocol, state: &State) -> bool {
    let denials = |fault: &&Fault| matches!(fault, Fault::Denied(_));
    let is_refused = state.world.patches.iter().flatten().any(|patch| patch.is_refused);
    is_refused
        || state.world.refuses_taints
        || state.world.reverts_taints
        || model.faults.iter().filter(denials).count() > state.faults.iter().filter(denials).count()
}

fn is_right(model: &Protocol, state: &State) -> bool {
    let (world, policy) = (&state.world, as_written(&state.world));
    let mut nodes = world.nodes.truth().values().filter(|node| !is_ignored(node));
    let may_stay = is_refused(model, state) && model.patience.is_none();
    // A policy that refuses or reverts taints delays no label.
    let is_labelled = |node: &Node| {
        let is_owned = policy.owner(&node.seen.node.labels).is_some();
        !is_owned || node.seen.node.labels.get(names::WINDOWS_BUILD).is_some()
    };
    let are_labelled = !world.refuses_taints && !world.reverts_taints || nodes.clone().all(is_labelled);
    are_labelled
        && (may_stay || world.pools.truth().values().all(|pool| !pool.is_deleting()))
        && nodes.all(|node| {
            let has_owner = policy.owner(&node.seen.node.labels).is_some();
            is_node_right(node, &policy) || is_refused(model, state) || has_owner && waits(node, world)
        })
}

/// True if a status was refused, so that it may be old.
fn is_status_old(model: &Protocol, state: &State) -> bool {
    let refusal = Fault::Denied(Write::Status);
    model.faults.contains(&refusal) && !state.faults.contains(&refusal)
}

/// True if the statuses are true.
fn is_truthful(model: &Protocol, state: &State) -> bool {
    let policy = as_written(&state.world);
    let pools = state.world.pools.truth().values();
    pools.filter(|pool| !pool.is_deleting()).all(|pool| is_status_true(model, state, pool, &policy))
}

fn is_status_true(model: &Protocol, state: &State, facts: &PoolObject, policy: &Policy) -> bool {
    let Some(pool) = facts.pool.as_ref().filter(|pool| pool.spec.mode == Mode::Enforce) else {
        return facts.ready().is_some();
    };
    let is_own =
        |node: &&Node| policy.owner(&node.seen.node.labels).is_some_and(|entry| entry.pool.spec.name == pool.spec.name);
    let (world, is_right) = (&state.world, |node: &&Node| is_node_right(node, policy));
    let nodes = world.nodes.truth().values().filter(is_own).filter(|node| !is_ignored(node));
    let wrong: Vec<&Node> = nodes.filter(|node| !is_right(node)).collect();
    let (is_done, says_done) = (wrong.is_empty(), facts.ready() == Some("True"));
    let tells = facts.guarded.status.iter().flat_map(|status| &status.conditions).any(|said| {
        let mut objectors = world.works.iter().filter(|work| wrong.iter().any(|node| work.objects(node)));
        let are_named = world.denies_pods || objectors.all(|work| said.message.contains(work.name));
        said.type_ == condition::TAINTS_APPLIED && said.status != "True" && are_named
    });
    let lags = state.world.classes.truth().is_empty();
    let is_pending = facts.guarded.status.as_ref().is_some_and(|status| status.nodes.pending > 0);
    facts.ready().is_some()
        && (!is_pending || is_status_old(model, state))
        && (says_done == is_done || is_refused(model, state))
        && (is_done || tells || is_refused(model, state) || lags)
}
