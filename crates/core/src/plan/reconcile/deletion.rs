//! The deletion of a pool: winpool cleans its nodes, deletes or releases its classes, and then removes its finalizer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use super::step::{Note, Step};
use super::{Memory, RequestKind, Round};
use crate::api::names::{self, reason};
use crate::api::{NodeCounts, ObjectReference, Problem, Taint, number};
use crate::node::{NodeObject, NodeRecord};
use crate::plan::attempt::RequestError;
use crate::plan::classes::classes_of_others;
use crate::plan::classes::runtime_class::{is_needed_by, owner};
use crate::plan::nodes::assessment::{assess, is_being_handed_over};
use crate::plan::nodes::table::NodeTable;
use crate::plan::pools::pool::{GuardedPool, Policy};
use crate::plan::taints::{Consent, KeptTaints, kept_on};
use crate::words::{count, joined};

/// The pause before the next attempt to clean up.
const NEXT_STEP: Duration = Duration::from_secs(1);
/// The pause between tests if the API server answers at all.
const PROBE: Duration = Duration::from_secs(10);
/// The time after which status says what a deletion waits for.
const SAID_AFTER: Duration = Duration::from_secs(3);

impl Memory {
    /// The next step of cleaning up. The node controller cleans the nodes, because the policy shows the deletion.
    pub(super) fn clean_up(&mut self, round: &Round<'_>) -> Step {
        let (name, guarded, now) = (round.name(), round.guarded, round.now);
        let intended = self.intended(&round.pool);
        if let Some(publish) = self.publish(round.cluster, Some(intended)) {
            return publish;
        }
        if !guarded.has_finalizer() && !self.is_uninstalled {
            if guarded.finalizers().is_empty() {
                return Step::Wait(None);
            }
            let message = format!(
                "the pool is being deleted, and winpool is done with it; it stays until these finalizers are removed: {}",
                guarded.finalizers().join(", ")
            );
            return self.suspend(guarded, reason::DELETING, &message, now);
        }
        if let Some((_, until)) = self.of(name).retry(RequestKind::Finalizer, now.instant) {
            return Step::Wait(Some(until));
        }
        if round.pool.spec.needs_cleanup()
            && let Some(step) = self.clean_up_first(round)
        {
            return step;
        }
        self.of(name).deletion.is_done = true;
        if !guarded.has_finalizer() {
            return Step::Wait(None);
        }
        self.set_finalizer(guarded, false)
    }

    /// The next step before the finalizer may go; `None` once everything is done, or has taken too long.
    fn clean_up_first(&mut self, round: &Round<'_>) -> Option<Step> {
        let (nodes, now) = (round.tally().counts(), round.now);
        if let Some(step) = self.ask_api_server(round, nodes.pending == 0) {
            return Some(step);
        }
        match self.clean_up_nodes_and_classes(round, &nodes) {
            Ok(None) => {
                self.note_nodes_left(round, &nodes);
                None
            }
            Ok(step) => step,
            Err(why) => {
                let started = self.of(round.name()).deletion.started.unwrap_or(now.instant);
                // A pool that is treated as deleted is not.
                let says_so = !self.is_uninstalled && now.instant >= started + SAID_AFTER.min(self.patience / 2);
                let message = format!("the pool is being deleted and waits: {why}");
                let wait = if says_so {
                    self.suspend(round.guarded, reason::DELETING, &message, now)
                } else {
                    Step::Wait(None)
                };
                Some(wait.at_latest(now.instant + NEXT_STEP))
            }
        }
    }

    /// Lists the nodes with the pool's label. While nodes still have to be written the pool stays anyway, so this only
    /// tests that the API server answers.
    fn ask_api_server(&mut self, round: &Round<'_>, nodes_are_written: bool) -> Option<Step> {
        let (patience, guarded, now) = (self.patience, round.guarded, round.now.instant);
        let memory = self.of(round.name());
        let may_not = |request| memory.retry(request, now).is_some();
        let (may_not_list, may_not_read) = (may_not(RequestKind::Nodes), may_not(RequestKind::Read));
        let deletion = &mut memory.deletion;
        deletion.started.get_or_insert(now);
        let is_old = |at: Option<Instant>, age: Duration| at.is_none_or(|at| now >= at + age);
        let listed = deletion.labelled.as_ref().map(|(_, at)| *at);
        let may_list = nodes_are_written && round.cluster.nodes.is_settled() && !may_not_list;
        if may_list && is_old(listed, NEXT_STEP) {
            return Some(Step::ListLabelledNodes);
        }
        if is_old(deletion.answered, PROBE.min(patience / 2)) && !may_not_read {
            return Some(Step::ReadPool { uid: guarded.uid(), version: guarded.resource_version() });
        }
        None
    }

    /// The next step for the nodes and classes of the pool. An error says what it waits for.
    fn clean_up_nodes_and_classes(&mut self, round: &Round<'_>, nodes: &NodeCounts) -> Result<Option<Step>, String> {
        let (patience, cluster, pool) = (self.patience, round.cluster, &round.pool);
        let policy = self.policy(cluster.pools);
        let (unseen, unclean) = self.unclean_nodes(round, &policy);
        let owned: Vec<_> =
            round.cluster.classes.iter().filter(|class| owner(class) == Some(round.name())).cloned().collect();
        self.record_wanted(pool, &owned);
        let left = usize::try_from(nodes.selected).unwrap_or(usize::MAX);
        let memory = self.of(round.name());
        let deletion = &mut memory.deletion;
        deletion.progress(left.saturating_add(unseen).saturating_add(owned.len()), patience);
        let overdue = deletion.is_overdue(patience);
        if let Some((refusal, _)) = memory.retry(RequestKind::Nodes, round.now.instant).filter(|_| !overdue) {
            return Err(format!("the nodes cannot be listed: {}", refusal.message()));
        }
        // The pool is the record of what winpool added to its nodes, so anything left after it is released stays for ever.
        if let Some(why) = unclean.filter(|_| !overdue) {
            return Err(why);
        }
        if !cluster.nodes.is_settled() {
            return Err("requests are under way".to_owned());
        }
        let seen = |name: &str| cluster.nodes.tally(name).seen();
        let wanted = classes_of_others(pool, &policy, &seen, round.cluster.classes);
        let kept = kept_taints(round, &policy);
        for class in &owned {
            let handed_over = wanted.contains(&class.name_any());
            if handed_over && !overdue {
                continue;
            }
            let is_needed = handed_over || unseen > 0 || is_needed_by(class, &kept);
            if let Some(step) = self.retire_step(round, class, is_needed) {
                return Ok(Some(step));
            }
        }
        if overdue {
            return Ok(None);
        }
        let (handed_over, own): (Vec<_>, Vec<_>) = owned.iter().partition(|class| wanted.contains(&class.name_any()));
        let names = |classes: Vec<&Arc<RuntimeClass>>| joined(classes.into_iter().map(|class| class.name_any()));
        if !handed_over.is_empty() {
            return Err(format!("another pool has yet to take over RuntimeClass {}", names(handed_over)));
        }
        let still: Vec<_> = own.into_iter().filter(|class| self.waits_for_class(round, class)).collect();
        if !still.is_empty() {
            return Err(format!("RuntimeClass {} cannot be deleted or released yet", names(still)));
        }
        Ok(None)
    }

    /// True if nothing is left to do for these pools, which are treated as deleted.
    pub fn has_uninstalled(&self, pools: &[Arc<GuardedPool>], nodes: &NodeTable) -> bool {
        let is_done = |pool: &Arc<GuardedPool>| {
            let (name, version) = (pool.name_any(), pool.resource_version());
            let known = self.pools.get(&name);
            // The cache does not show winpool's last write of the pool yet.
            let is_behind =
                known.is_some_and(|known| known.behind.as_ref().is_some_and(|behind| behind.version == version));
            let retry = known.and_then(|known| known.retries.get(&RequestKind::Finalizer));
            let is_denied = retry
                .and_then(|retry| retry.last.as_ref())
                .is_some_and(|(refusal, _)| matches!(refusal, RequestError::Denied(_)));
            let is_released = is_denied || !pool.has_finalizer() && !is_behind;
            let is_clean = known.is_some_and(|known| known.deletion.is_done);
            is_clean && is_released && nodes.tally(&name).counts().pending == 0
        };
        nodes.is_settled() && pools.iter().all(is_done)
    }

    fn note_nodes_left(&mut self, round: &Round<'_>, nodes: &NodeCounts) {
        let why = [
            (nodes.selected - nodes.ignored, "that winpool cannot change"),
            (nodes.ignored, "with winpool.dev/ignore"),
        ];
        let parts = why.iter().filter(|(number, _)| *number > 0);
        let parts = joined(parts.map(|(number, what)| format!("{} {what}", count(*number, "node"))));
        let (label, name) = (names::POOL, round.name());
        let message = format!("these keep their labels and taints: {parts}; see label {label}={name}");
        let messages = Some(message).filter(|_| nodes.selected > 0).into_iter().chain(unclaimed(round));
        for message in messages {
            self.note(name, Note::Left(Problem::new(reason::DELETING, ObjectReference::windows_pool(name), message)));
        }
    }

    /// The number of nodes with the pool's label that the cache does not show, and what the cleanup of nodes waits for.
    fn unclean_nodes(&self, round: &Round<'_>, policy: &Policy) -> (usize, Option<String>) {
        let (cluster, pool, name_of_pool) = (round.cluster, &round.pool, round.name());
        let labelled = self.pools.get(name_of_pool).and_then(|memory| memory.deletion.labelled.as_ref());
        let mut unseen = labelled.map(|(nodes, _)| nodes.clone()).unwrap_or_default();
        let NodeCounts { mut pending, blocked, contested, .. } = round.tally().counts();
        let (mut handing_over, mut example) = (false, None);
        let others = || {
            let published = self.pools.values().filter_map(|memory| memory.published.as_ref());
            published.filter(|other| other.spec.name != name_of_pool)
        };
        // What a pool wants is no record: its spec may change before its status is written.
        let recorded = |taint: &Taint| others().any(|other| other.managed_taints.contains(taint));
        for (NodeObject { name, node, .. }, watched) in cluster.nodes.nodes() {
            handing_over |= is_being_handed_over(node, pool, policy, recorded);
            if node.labels.get(names::POOL) == Some(name_of_pool) {
                unseen.remove(&**name);
            }
            if NodeRecord::of(node).pool() == Some(name_of_pool) {
                let now = round.now.instant;
                let assessment = assess(node, policy, Consent::Known { name, watched, now });
                let is_releasing = assessment.releasing.as_deref() == Some(name_of_pool) && !assessment.plan.is_empty();
                // The counts follow the cache a moment later.
                if is_releasing {
                    example.get_or_insert_with(|| name.to_string());
                }
                if pending == 0 && is_releasing && !cluster.nodes.is_blocked(name, &assessment.plan, policy, now) {
                    pending = 1;
                }
            }
        }
        let example = example.or_else(|| unseen.first().cloned());
        // Nobody waits for an operator that is being uninstalled.
        let is_patient = i64::from(!self.is_uninstalled);
        let numbers = [
            (pending, "still to be cleaned"),
            (blocked * is_patient, "that the API server does not let winpool change"),
            (contested * is_patient, "that another writer keeps changing back"),
            (number(unseen.len()), "that the cache does not show, or that run another system now"),
        ];
        let hindered = numbers.into_iter().filter(|(nodes, _)| *nodes > 0);
        let mut parts: Vec<_> = hindered.map(|(nodes, what)| format!("{} {what}", count(nodes, "node"))).collect();
        parts.extend(handing_over.then(|| "another pool has yet to take over a node".to_owned()));
        let example = example.map(|node| format!(", such as {node}")).unwrap_or_default();
        (unseen.len(), (!parts.is_empty()).then(|| parts.join("; ") + &example))
    }
}

/// Says which taints of the pool's status stay on its nodes without a record. winpool did not add them, or somebody replaced the
/// record while winpool did not run.
fn unclaimed(round: &Round<'_>) -> Option<String> {
    let pool = &round.pool;
    let of_pool = round.cluster.nodes.objects().filter(|object| pool.spec.selects(&object.node.labels));
    let mut left = of_pool
        .filter_map(|object| Some((&*object.name, object.node.doubtful_taints(Some(&pool.managed_taints)).next()?)));
    let (name, taint) = left.next()?;
    let (nodes, remedy) = (count(1 + left.count(), "node"), taint.removal(name));
    Some(format!("{nodes} with a taint of the pool that no record says winpool added; if nobody else did: {remedy}"))
}

/// The taints on nodes because of which the pool's classes are needed.
fn kept_taints(round: &Round<'_>, policy: &Policy) -> Vec<KeptTaints> {
    let wanted = &round.pool.spec.tolerated_taints;
    round.cluster.nodes.objects().map(|object| kept_on(&object.node, wanted, policy)).collect()
}

/// The state of a deletion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeletionMemory {
    pub(super) started: Option<Instant>,
    /// True once nothing is left to do but to remove the finalizer.
    pub(super) is_done: bool,
    /// The time without progress while the API server answered.
    pub(super) idle: Duration,
    pub(super) answered: Option<Instant>,
    /// The amount that was left at the last progress.
    pub(super) left: Option<usize>,
    /// Nodes with the pool's label, and the time at which they were listed.
    pub(super) labelled: Option<(BTreeSet<String>, Instant)>,
}

impl DeletionMemory {
    pub(super) fn answered(&mut self, now: Instant) {
        if self.started.is_none() {
            return;
        }
        self.idle += self.answered.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.answered = Some(now);
    }

    /// Records that the probe was not accepted. A refusal is an answer too.
    pub(super) fn refused(&mut self, refusal: &RequestError, now: Instant) {
        match refusal {
            RequestError::Denied(_) => self.answered(now),
            _ => self.answered = None,
        }
    }

    pub(super) fn listed(&mut self, nodes: BTreeSet<String>, now: Instant) {
        self.answered(now);
        self.labelled = Some((nodes, now));
    }

    /// True if it has taken too long: from then on it waits for nothing.
    pub(super) fn is_overdue(&self, patience: Duration) -> bool {
        self.idle >= patience
    }

    /// Starts the time limit again if less is `left` than before. An overdue deletion stays overdue, also when winpool then releases
    /// objects.
    pub(super) fn progress(&mut self, left: usize, patience: Duration) {
        if !self.is_overdue(patience) && self.left.is_none_or(|before| left < before) {
            self.left = Some(left);
            self.idle = Duration::ZERO;
        }
    }
}
