//! What became of the pools when the operator rests.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use crate::{
    api::{Mode, ObjectReference, Problem, Taint, WindowsPoolStatus, names},
    explain::forecast::{NodeForecast, PoolForecast, Simulation, simulation::is_windows},
    plan::{CheckScope, Held, HeldBecause, KnownNode, Node, Pool, Question, WorkloadCheck},
    pod::Class,
};

impl Simulation {
    /// What becomes of the pools that were there before.
    pub(super) fn pool_forecasts(
        &self,
        names: &[String],
        before: &BTreeMap<String, Node>,
        written: &[NodeForecast],
    ) -> Vec<PoolForecast> {
        let live = self.pools.iter().map(|guarded| {
            let (name, status) = (guarded.name_any(), guarded.status.clone().unwrap_or_default());
            let pool = guarded.read().ok();
            let held = self.memory.held_of(&name);
            let unschedulable = match held.map(|held| &held.because) {
                Some(HeldBecause::Unschedulable(found)) => found.clone(),
                _ => pool.as_ref().map(|pool| self.made_unschedulable(pool, before)).unwrap_or_default(),
            };
            let is_dry_run = pool.as_ref().is_some_and(|pool| pool.mode == Mode::DryRun);
            let writes = written.iter().filter(|node| node.pool == name).count();
            PoolForecast {
                mode: match pool {
                    None => "Invalid",
                    Some(pool) if pool.deleting => "Deleting",
                    Some(_) if is_dry_run => "DryRun",
                    Some(_) => "Enforce",
                }
                .to_owned(),
                nodes: usize::try_from(status.nodes.selected).unwrap_or_default(),
                would_change: if is_dry_run {
                    usize::try_from(status.nodes.pending).unwrap_or_default()
                } else {
                    writes
                },
                held_taints: held.iter().flat_map(|held| &held.taints).map(ToString::to_string).collect(),
                unschedulable,
                problems: self.unexplained(&name, &status).chain(status.problems).collect(),
                name,
            }
        });
        let is_gone = |name: &&String| !self.pools.iter().any(|pool| pool.name_any() == **name);
        let gone = names.iter().filter(is_gone).map(|name| PoolForecast {
            name: name.clone(),
            mode: "Deleting".to_owned(),
            would_change: written.iter().filter(|node| node.pool == *name).count(),
            ..PoolForecast::default()
        });
        live.chain(gone).collect()
    }

    /// Why taints are held if not because of workloads, and what the check left out: conditions say so, problems do not.
    fn unexplained(&self, pool: &str, status: &WindowsPoolStatus) -> impl Iterator<Item = Problem> + use<> {
        let by_workloads = |held: &Held| matches!(held.because, HeldBecause::Unschedulable(_));
        let is_partial = !self.memory.unlisted_of(pool).is_empty();
        let says_why = is_partial || self.memory.held_of(pool).is_some_and(|held| !by_workloads(held));
        let condition = status.conditions.iter().find(|condition| condition.type_ == names::condition::TAINTS_APPLIED);
        let problem = condition.filter(|_| says_why).map(|condition| Problem {
            reason: condition.reason.clone(),
            object: ObjectReference::windows_pool(pool),
            message: condition.message.clone(),
        });
        problem.into_iter()
    }

    /// `taintPolicy: Always` does not ask: who becomes unschedulable by the taints that nodes get now.
    fn made_unschedulable(&self, pool: &Pool, before: &BTreeMap<String, Node>) -> BTreeMap<String, usize> {
        if !pool.enforces() {
            return BTreeMap::new();
        }
        let windows = before.iter().filter(|(_, node)| is_windows(node));
        let windows: Vec<(&String, &Node, &Node)> =
            windows.filter_map(|(name, node)| Some((name, node, self.nodes.get(name)?))).collect();
        let nodes = windows.iter().map(|(name, before, after)| KnownNode {
            name: name.as_str().into(),
            uid: name.as_str().into(),
            labels: after.labels.clone(),
            taints: before.taints.taints().iter().filter(|taint| !taint.has_foreign_key()).cloned().collect(),
        });
        let gets = |taint: &Taint| -> BTreeSet<usize> {
            let carries = |node: &Node| node.taints.taints().contains(taint);
            let nodes = windows.iter().enumerate();
            nodes.filter(|(_, (_, before, after))| !carries(before) && carries(after)).map(|(index, _)| index).collect()
        };
        let taints = pool.wanted_taints().into_iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let questions =
            taints.map(|taint| Question { pool: pool.name.clone(), candidates: gets(&taint), taint, enforces: true });
        let scope = CheckScope {
            nodes: nodes.collect(),
            questions: questions.filter(|question| !question.candidates.is_empty()).collect(),
            classes: self.classes.iter().map(|(name, class)| (name.clone(), Class::from(class.as_ref()))).collect(),
            now: self.now.time,
            ..CheckScope::default()
        };
        let found = WorkloadCheck::start(scope).map(|check| self.listing(check)).unwrap_or_default();
        found.into_values().flat_map(|answer| answer.unschedulable).collect()
    }
}
