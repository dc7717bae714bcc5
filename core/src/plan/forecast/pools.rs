//! What becomes of the pools, and what needs attention.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{Mode, Problem, Taint, TaintPolicy, names::reason};

use super::{
    super::{ClassAction, ClassesPlan, Entry, Held, Pool, describe, stranded},
    PoolForecast,
    rehearsal::Rehearsal,
    view::View,
};

impl Rehearsal {
    pub fn problem(&mut self, pool: &Pool, reason: &str, object: String, message: String) {
        let problem = Problem { reason: reason.to_owned(), object, message };
        self.problems.entry(pool.name.clone()).or_default().push(problem);
    }

    /// What needs attention in this round; that of earlier rounds is forgotten.
    pub fn note_problems(&mut self, pool: &Pool, plan: &ClassesPlan, view: &View) {
        self.problems.insert(pool.name.clone(), plan.problems.clone());
        for planned in &plan.classes {
            if let ClassAction::Conflict(problem) = &planned.action {
                self.problems.entry(pool.name.clone()).or_default().push(problem.clone());
            } else if pool.mode == Mode::DryRun
                && let Some(what) = describe(&planned.action)
            {
                let object = format!("RuntimeClass/{}", planned.desired.name);
                self.problem(pool, reason::WOULD_CHANGE, object, what);
            }
        }
        if let Some(example) = view.unreadable.first() {
            let message = format!(
                "{} node(s) report no Windows build in status.nodeInfo.kernelVersion and carry no well-formed label \
                 node.kubernetes.io/windows-build",
                view.unreadable.len()
            );
            self.problem(pool, reason::BUILD_UNKNOWN, format!("Node/{example}"), message);
        }
        for (taint, nodes) in &view.differing {
            let message = format!(
                "{} node(s) carry {taint}, whose key and effect are those of a wanted taint; it is left alone. To \
                 replace it, add it to spec.retiredTaints",
                nodes.len()
            );
            let example = nodes.first().map(String::as_str).unwrap_or_default();
            self.problem(pool, reason::TAINT_VALUE_DIFFERS, format!("Node/{example}"), message);
        }
    }

    pub fn pool_forecasts(&self) -> Vec<PoolForecast> {
        let policy = self.policy();
        let mut views = self.observe(&policy);
        let invalid = self.invalid.iter().map(|pool| PoolForecast {
            name: pool.name.clone(),
            mode: "Invalid".to_owned(),
            problems: vec![Problem {
                reason: reason::INVALID_SPEC.to_owned(),
                object: format!("WindowsPool/{}", pool.name),
                message: pool.to_string(),
            }],
            ..PoolForecast::default()
        });
        let valid = policy.entries().iter().map(|Entry { pool, .. }| {
            let view = views.remove(&pool.name).unwrap_or_default();
            let mut problems = self.problems.get(&pool.name).cloned().unwrap_or_default();
            let mut stranded = BTreeMap::new();
            match self.looks.get(&pool.name) {
                Some(Some(Held::Stranded(found))) => stranded.clone_from(found),
                Some(Some(Held::PodsUnreadable(words))) => problems.push(Problem {
                    reason: reason::WORKLOADS_NOT_TOLERATING.to_owned(),
                    object: "Pod".to_owned(),
                    message: format!("it cannot be read which pods tolerate the taints: {words}"),
                }),
                _ if pool.taint_policy == TaintPolicy::Always && pool.enforces() => {
                    stranded = self.stranded_by_force(pool);
                }
                _ => {}
            }
            let held = if view.waiting.is_empty() { BTreeSet::new() } else { pool.held.clone() };
            PoolForecast {
                name: pool.name.clone(),
                mode: if pool.mode == Mode::DryRun { "DryRun" } else { "Enforce" }.to_owned(),
                nodes: view.nodes,
                would_change: if pool.mode == Mode::DryRun { view.pending } else { 0 },
                held_taints: held.iter().map(ToString::to_string).collect(),
                stranded,
                problems,
            }
        });
        let gone = self.gone.iter().map(|name| PoolForecast {
            name: name.clone(),
            mode: "Deleting".to_owned(),
            ..PoolForecast::default()
        });
        valid.chain(invalid).chain(gone).collect()
    }

    /// `taintPolicy: Always` does not ask: these lose their place on the nodes that get a taint now.
    fn stranded_by_force(&self, pool: &Pool) -> BTreeMap<String, usize> {
        let taints: Vec<Taint> =
            pool.applicable_taints().into_iter().filter(|taint| taint.effect != "PreferNoSchedule").collect();
        let gets = |node: &str| taints.iter().any(|taint| self.reasons.adds(node, taint));
        stranded(self.pods.iter().flatten(), gets, &taints)
    }
}
