//! The look at pods: who would be stranded by a taint, and which pods were created too early.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::{
    api::{Mode, Problem, Taint, names::reason},
    plan::{ClassesPlan, Held, Node, Pod, Policy, Pool, assess, assess_as, created_too_early, held_back},
};

use crate::{apply::WriteError, pod};

use super::{Error, LOOK_AGAIN, State};

/// A look at who would be stranded.
#[derive(Clone)]
pub(super) struct Look {
    /// The taints that it was about.
    taints: BTreeSet<Taint>,
    /// Why they are held, if they are.
    pub held: Option<Held>,
    until: Instant,
}

impl Look {
    fn is_good_for(&self, taints: &BTreeSet<Taint>) -> bool {
        self.taints == *taints && (self.held.is_none() || Instant::now() < self.until)
    }
}

/// Pods that were created before their class tolerated a taint.
#[derive(Clone, Default)]
pub(super) struct Early {
    /// Classes that got tolerations, as long as such pods are found.
    classes: BTreeSet<String>,
    pub problems: Vec<Problem>,
    until: Option<Instant>,
}

impl State {
    /// Taints that this pool may not put on yet: those that it never put on, as long as no look let them through.
    pub(super) fn held_taints(&self, pool: &Pool) -> BTreeSet<Taint> {
        let unjudged = pool.unjudged_taints();
        let let_through = |look: &Look| look.held.is_none() && look.taints == unjudged;
        if self.progress(&pool.name, |progress| progress.look.as_ref().is_some_and(let_through)) {
            return BTreeSet::new();
        }
        unjudged
    }

    /// Looks who would be stranded by the taints that `pool` has never put on and that `waiting` nodes lack, unless it
    /// was looked lately. The answer stands in the progress of the pool. Where no node lacks one there is nothing to
    /// judge: the first that does will be looked at.
    pub(super) async fn look_at_workloads(
        &self,
        pool: &Pool,
        policy: &Policy,
        waiting: usize,
        classes: &ClassesPlan,
        existing: &[Arc<RuntimeClass>],
    ) -> Result<(), Error> {
        let taints = pool.unjudged_taints();
        let good =
            self.progress(&pool.name, |progress| progress.look.as_ref().is_some_and(|look| look.is_good_for(&taints)));
        if taints.is_empty() || good || waiting == 0 {
            return Ok(());
        }
        let held = self.who_is_stranded(pool, policy, &taints, classes, existing).await?;
        self.progress(&pool.name, |progress| {
            progress.look = Some(Look { taints, held, until: Instant::now() + LOOK_AGAIN });
        });
        Ok(())
    }

    async fn who_is_stranded(
        &self,
        pool: &Pool,
        policy: &Policy,
        taints: &BTreeSet<Taint>,
        classes: &ClassesPlan,
        existing: &[Arc<RuntimeClass>],
    ) -> Result<Option<Held>, Error> {
        let nodes = self.waiting_nodes(pool, policy);
        let pods = self.unfinished_pods(&pool.name).await?;
        let pods = pods.as_deref().map_err(String::as_str);
        Ok(held_back(pods, |node| nodes.contains(node), taints, classes, existing))
    }

    /// The nodes that lack one of the taints which the pool holds, or would hold if it were enforced.
    fn waiting_nodes(&self, pool: &Pool, policy: &Policy) -> BTreeSet<String> {
        let waits = |node: &Node| match pool.mode {
            Mode::Enforce => Some(assess(node, policy)).filter(|standing| standing.pool.as_ref() == Some(&pool.name)),
            Mode::DryRun => pool.selects(&node.labels).then(|| assess_as(node, Some(pool), policy)),
        };
        let nodes = self.shared.nodes.state();
        let waiting = nodes.iter().filter(|node| waits(&node.seen).is_some_and(|standing| standing.held));
        waiting.map(|node| node.name().to_owned()).collect()
    }

    /// All unfinished pods, or why the API server does not show them.
    pub(super) async fn unfinished_pods(&self, pool: &str) -> Result<Result<Vec<Pod>, String>, Error> {
        match pod::list_unfinished(&self.shared.pods).await {
            Ok(pods) => Ok(Ok(pods)),
            Err(WriteError::Denied(words)) => Ok(Err(words)),
            Err(source) => Err(Error { pool: pool.to_owned(), object: "pods".to_owned(), source }),
        }
    }

    /// Counts and names the unbound pods that were created before these classes had all their tolerations. A pod keeps
    /// the tolerations that it was created with.
    pub(super) async fn find_early_pods(&self, pool: &Pool, changed: Vec<String>) -> Result<(), Error> {
        let mut early = self.progress(&pool.name, |progress| progress.early.clone());
        let due = !changed.is_empty() || early.until.is_some_and(|until| Instant::now() >= until);
        early.classes.extend(changed);
        if !due || early.classes.is_empty() {
            return Ok(());
        }
        // Without the right to list pods there is nothing to tell.
        let pods = self.unfinished_pods(&pool.name).await?.unwrap_or_default();
        let taints = pool.wanted_taints();
        let found: BTreeMap<String, BTreeMap<String, usize>> = early
            .classes
            .iter()
            .map(|class| (class.clone(), created_too_early(&pods, class, &taints)))
            .filter(|(_, pods)| !pods.is_empty())
            .collect();
        early.classes = found.keys().cloned().collect();
        early.problems = found.iter().map(|(class, pods)| too_early(class, pods)).collect();
        early.until = (!found.is_empty()).then(|| Instant::now() + LOOK_AGAIN);
        self.progress(&pool.name, |progress| progress.early = early);
        Ok(())
    }

    /// When it has to be looked at pods again, or a postponed write is due.
    pub(super) fn next_try(&self, pool: &str) -> Option<Duration> {
        let next = self.progress(pool, |progress| {
            let look = progress.look.iter().filter(|look| look.held.is_some()).map(|look| look.until);
            let postponed = progress.postponed.values().map(|postponed| postponed.until);
            let ends = progress.refused_ends.values().copied();
            look.chain(progress.early.until).chain(postponed).chain(ends).filter(|until| *until > Instant::now()).min()
        })?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}

fn too_early(class: &str, pods: &BTreeMap<String, usize>) -> Problem {
    let named: Vec<String> = pods.iter().take(5).map(|(name, count)| format!("{name} ({count})")).collect();
    Problem {
        reason: reason::PODS_CREATED_TOO_EARLY.to_owned(),
        object: format!("RuntimeClass/{class}"),
        message: format!(
            "{} pod(s) that wait for a node were created before the class tolerated the pool's taints, and keep the \
             tolerations that they have; delete them so that they are created again: {}",
            pods.values().sum::<usize>(),
            named.join(", ")
        ),
    }
}
