//! A state of the model, and the operator's turns in it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::cluster::{Classes, Nodes, Pools, Work};
use super::model::Fault;
use super::operator::{Operator, Pods, Process};
use super::shared::{Beside, Copies, History, Results, once};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each of which a scene or an event sets")]
pub struct World {
    pub nodes: History<Nodes>,
    pub pools: History<Pools>,
    pub classes: History<Classes>,
    pub works: Vec<Work>,
    /// The taints and metadata of other writers on nodes.
    pub others: BTreeMap<&'static str, (Vec<Value>, Value)>,
    /// The number of nodes, pools and classes created so far.
    pub made: usize,
    /// True if an admission policy refuses every change of taints.
    pub refuses_taints: bool,
    /// True if one reverts every change of taints.
    pub reverts_taints: bool,
    /// True if winpool may not watch pods.
    pub denies_pods: bool,
    /// The patches of nodes in the last ten minutes, in scenes that are about them.
    pub patches: Option<Vec<SentPatch>>,
}

/// A patch that the API server refused or accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SentPatch {
    pub node: &'static str,
    /// Identifies its changes.
    pub changes: u128,
    pub is_refused: bool,
    /// In seconds.
    pub age: u64,
}

/// The time for which winpool does not send a refused change again, in seconds.
pub const PAUSE: u64 = 600;
/// The pause after the third write of a change, in seconds.
const FIRST_PAUSE: u64 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each of which a scene or an event sets")]
pub struct State {
    pub world: World,
    pub process: Process,
    /// Node patches that a former leader sent.
    pub orphans: Vec<(&'static str, Process)>,
    /// Node patches that were accepted.
    pub accepted: usize,
    /// True if a DaemonSet that winpool knew lost its last node by a taint of winpool's.
    pub loses_daemon_set: bool,
    /// True if winpool put a taint on a node whose class does not tolerate it.
    pub class_behind: bool,
    /// True if winpool wrote a build label that the node does not report.
    pub is_mislabelled: bool,
    /// True if winpool deleted a class that a pod uses.
    pub deletes_in_use: bool,
    /// True in scenes in which the watches of pods and `DaemonSets` take their time. In the others they show none.
    pub follows_pods: bool,
    /// True if winpool sent a refused change again too early, or a change that was reverted too often.
    pub insists: bool,
    /// The position in each script.
    pub done: Vec<usize>,
    pub faults: Vec<Fault>,
    pub successors: u8,
    /// The number of versions that the caches of a new leader are still behind the state in which it began.
    pub slack: usize,
    pub known: Beside<Known>,
}

/// What was computed in this scene.
#[derive(Default)]
pub struct Known {
    pub processes: Copies<u128, Operator>,
    turns: Results<(Process, Turn), Process>,
    pub settled: Results<(World, Process), Option<(World, Process)>>,
}

/// A cache of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    Nodes,
    Pools,
    Classes,
}

pub const CACHES: [Cache; 3] = [Cache::Nodes, Cache::Pools, Cache::Classes];

impl State {
    /// Gives the process a turn. The result is computed once for each process.
    pub fn turn(&mut self, what: Turn, work: impl FnOnce(&mut Operator)) {
        let (process, keeps_due) = (self.process.clone(), matches!(what, Turn::Advance | Turn::PlanNode(_)));
        self.process = once(&self.known.turns, (process.clone(), what), || {
            let mut after = Operator::clone(&process);
            after.wake = after.wake.filter(|_| keeps_due);
            work(&mut after);
            after.share(&self.known.processes)
        });
    }

    pub fn advance(&mut self) {
        self.turn(Turn::Advance, Operator::advance);
    }

    pub fn plan_node(&mut self, name: &'static str) {
        self.turn(Turn::PlanNode(name), |process| process.plan_node(name));
    }

    /// The next version arrives in this cache.
    pub fn see(&mut self, cache: Cache) {
        match cache {
            Cache::Nodes => {
                let nodes = self.world.nodes.see();
                self.turn(Turn::SeeNodes(nodes.clone()), |process| process.watch_nodes(nodes));
            }
            Cache::Pools => {
                let pools = self.world.pools.see();
                self.turn(Turn::SeePools(pools.clone()), |process| process.pools = pools);
            }
            Cache::Classes => {
                let classes = self.world.classes.see();
                self.turn(Turn::SeeClasses(classes.clone()), |process| process.classes = classes);
            }
        }
    }

    /// The pods and `DaemonSets` as the watches will show them.
    fn pods(&self) -> Pods {
        if self.world.denies_pods { Pods::Denied } else { Pods::Seen(self.world.works.clone()) }
    }

    /// True if the watches of pods and `DaemonSets` have something to show.
    pub fn has_pods_to_see(&self) -> bool {
        self.follows_pods && self.process.pods != self.pods()
    }

    /// They show what they have missed, or the lists are complete.
    pub fn see_pods(&mut self) {
        let pods = self.pods();
        self.turn(Turn::SeePods(pods.clone()), |process| process.pods = pods);
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.turn(Turn::Pass(time), |process| process.now += time);
        if let Some(patches) = &mut self.world.patches {
            for patch in patches.iter_mut() {
                patch.age += time.as_secs();
            }
            // A refused patch is the excuse of a state until its next attempt, which may be a minute late.
            patches.retain(|patch| patch.age < if patch.is_refused { PAUSE + 200 } else { FIRST_PAUSE });
        }
    }

    /// Until something is due.
    pub fn due(&self) -> Option<Duration> {
        let wake = self.process.wake?;
        // Whole seconds make fewer states.
        let wait = wake.duration_since(self.process.now);
        (!wait.is_zero()).then(|| Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)))
    }

    /// The number of versions that this cache is behind.
    pub fn lag_of(&self, cache: Cache) -> usize {
        match cache {
            Cache::Nodes => self.world.nodes.lag(),
            Cache::Pools => self.world.pools.lag(),
            Cache::Classes => self.world.classes.lag(),
        }
    }

    pub fn lag(&self) -> usize {
        CACHES.into_iter().map(|cache| self.lag_of(cache)).max().unwrap_or_default()
    }

    /// True if the operator has nothing left to do at this moment.
    pub fn is_idle(&self) -> bool {
        let process = &self.process;
        let works = !process.requests.is_empty() || !process.node_requests.is_empty();
        !works && self.lag() == 0 && !self.has_pods_to_see() && {
            let mut after = self.clone();
            after.advance();
            process.nodes.keys().for_each(|name| after.plan_node(name));
            after.process == *process
        }
    }
}

/// A request to a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    Advance,
    PlanNode(&'static str),
    SeeNodes(Nodes),
    SeePools(Pools),
    SeeClasses(Classes),
    SeePods(Pods),
    Pass(Duration),
    /// The request for a pool was answered; the number selects the answer.
    Answer(&'static str, u128),
    /// The request for a node was answered; the number selects the answer.
    AnswerNode(&'static str, u128),
}
