//! The exchange with the API server about a node: the next request, and what follows from its answer.

use std::{sync::Arc, time::Instant};

use super::{
    super::{node::NodePlan, watched::Sighting},
    entry::{Entry, Need, OtherWriter, RefusedPlan},
    event::NodeNote,
    object::NodeObject,
    request::{Purpose, Request, Running},
    step::{Attempt, AttemptState, NodeAnswer, NodeStep},
    table::NodeTable,
};

impl NodeTable {
    /// Returns the next step for a node. Unless it is a wait, its answer belongs to [`Self::answer`].
    pub fn next(&mut self, name: &str, now: Instant) -> NodeStep {
        let policy = self.written_by.clone().filter(|_| !self.requests.contains_key(name));
        let Some((policy, entry)) = policy.zip(self.entries.get(name)) else { return NodeStep::Wait(None) };
        let need = entry.next(&policy, now);
        let (object, is_behind) = (Arc::clone(&entry.object), entry.is_behind);
        match need {
            Need::Nothing(until) => {
                // A taint may no longer be added, although the node has not changed.
                self.count(name, Sighting::Changed, now);
                NodeStep::Wait(until)
            }
            Need::Patch(assessment) => {
                let (seen, plan) = (object.resource_version.clone(), assessment.plan.clone());
                let (attempt, step) =
                    if is_behind { Attempt::begin_behind(object, plan) } else { Attempt::begin(object, plan, &policy) };
                self.send(Running::new(attempt, policy, assessment.pool, seen), step)
            }
            Need::FindOtherWriter(plan, until) => self.find_other_writer(&object, plan, until),
        }
    }

    /// Takes in the answer to the last step of a node. Returns the step after it.
    pub fn answer(&mut self, name: &str, answer: NodeAnswer, now: Instant) -> NodeStep {
        let Some(Request { uid, purpose }) = self.requests.remove(name) else { return NodeStep::Wait(None) };
        if self.entries.get(name).is_none_or(|entry| entry.object.uid != uid) {
            return self.next(name, now);
        }
        match (purpose, answer) {
            (Purpose::FindOtherWriter(plan, until), NodeAnswer::OtherWriter(writer)) => {
                self.back_off(name, *plan, until, writer, now)
            }
            (Purpose::FindOtherWriter(..), _) => NodeStep::Wait(None),
            (Purpose::Attempt(mut running), answer) => {
                let answer = running.attempt.in_effect(answer);
                if matches!(answer, NodeAnswer::Written(_)) {
                    self.record_write(name, &mut running, now);
                }
                let state = running.attempt.answer(answer, &running.by);
                self.continue_attempt(name, *running, state, now)
            }
        }
    }

    fn continue_attempt(&mut self, name: &str, mut running: Running, state: AttemptState, now: Instant) -> NodeStep {
        if let (
            AttemptState::Written | AttemptState::Denied(_) | AttemptState::Refused(..) | AttemptState::PlanAgain(_),
            Some(entry),
        ) = (&state, self.entries.get_mut(name))
        {
            entry.forget_failures();
        }
        if self.written_by.is_none() {
            return NodeStep::Wait(None);
        }
        match state {
            AttemptState::Next(step) => self.send(running, step),
            AttemptState::Gone => NodeStep::Wait(None),
            AttemptState::Written => {
                self.entries.get_mut(name).into_iter().for_each(Entry::forget_refusal);
                NodeStep::Wait(None)
            }
            AttemptState::Failed(reason) => self.fail(name, reason, now),
            AttemptState::Refused(plan, message) => self.refuse(name, *plan, message, now),
            AttemptState::Denied(message) => match running.attempt.split(&running.by) {
                Some(step) => self.send(running, step),
                None => self.refuse(name, running.attempt.plan().clone(), message, now),
            },
            AttemptState::PlanAgain(object) => self.plan_again(name, running, object, now),
        }
    }

    /// Continues an attempt with a node that was read, by the policy that holds now.
    fn plan_again(&mut self, name: &str, mut running: Running, object: Arc<NodeObject>, now: Instant) -> NodeStep {
        let Some((policy, entry)) = self.written_by.clone().zip(self.entries.get(name)) else {
            return NodeStep::Wait(None);
        };
        match entry.need(&object, &policy, now) {
            Need::Nothing(until) => NodeStep::Wait(until),
            Need::FindOtherWriter(plan, until) => self.find_other_writer(&object, plan, until),
            Need::Patch(assessment) => {
                let step = running.attempt.patch(object, assessment.plan.clone(), &policy);
                self.send(Running::new(running.attempt, policy, assessment.pool, running.seen), step)
            }
        }
    }

    fn send(&mut self, running: Running, step: NodeStep) -> NodeStep {
        let object = running.attempt.object();
        let (name, uid) = (Arc::clone(&object.name), object.uid.clone());
        self.requests.insert(name, Request { uid, purpose: Purpose::Attempt(Box::new(running)) });
        step
    }

    fn find_other_writer(&mut self, object: &NodeObject, plan: Box<NodePlan>, until: Instant) -> NodeStep {
        let purpose = Purpose::FindOtherWriter(plan, until);
        self.requests.insert(Arc::clone(&object.name), Request { uid: object.uid.clone(), purpose });
        NodeStep::FindOtherWriter
    }

    /// Records that a patch was accepted: the whole plan, or a part of it.
    fn record_write(&mut self, name: &str, running: &mut Running, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let (object, is_whole) = (running.attempt.object(), !running.attempt.is_split());
        entry.is_behind = entry.object.resource_version == running.seen;
        // Once for all parts, and even if the next one fails.
        if !std::mem::replace(&mut running.has_written, true) {
            entry.conflict.get_or_insert_default().written(running.by.demands(running.pool.as_deref()), now);
        }
        let since = entry.pending_since.take_if(|_| is_whole);
        let waited = since.map(|since| now.saturating_duration_since(since));
        let (pool, plan) = (running.pool.clone(), running.attempt.plan().clone().into());
        self.notes.push((Arc::clone(object), NodeNote::Written { pool, plan, waited }));
    }

    /// Waits after a refusal of this plan.
    fn refuse(&mut self, name: &str, plan: NodePlan, message: String, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        // The API server names the node. Nodes that are refused for the same reason are one problem.
        let shared = message.replace(&format!(" \"{name}\""), "").into();
        let until = now + self.patience;
        entry.wait_reasons.get_or_insert_default().refusal = Some(RefusedPlan { plan, message: shared, until });
        let note = NodeNote::Refused { message, pause: self.patience };
        self.notes.push((Arc::clone(&entry.object), note));
        self.count(name, Sighting::Changed, now);
        NodeStep::Wait(Some(until))
    }

    /// Waits, longer each time, instead of fighting over the node.
    fn back_off(&mut self, name: &str, plan: NodePlan, until: Instant, writer: String, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        if entry.other_writer().is_none_or(|known| *known.name != *writer) {
            let pause = until.saturating_duration_since(now);
            self.notes.push((Arc::clone(&entry.object), NodeNote::Contested { writer: writer.clone(), pause }));
        }
        entry.wait_reasons.get_or_insert_default().other_writer =
            Some(OtherWriter { name: writer.into(), plan, until });
        self.count(name, Sighting::Changed, now);
        NodeStep::Wait(Some(until))
    }

    fn fail(&mut self, name: &str, reason: &'static str, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        let pause = entry.fail(now);
        self.notes.push((Arc::clone(&entry.object), NodeNote::Failed { reason, pause }));
        NodeStep::Wait(Some(now + pause))
    }
}
