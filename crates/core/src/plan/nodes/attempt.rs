//! One attempt to change a node: a guarded patch, and the parts of the plan one by one if the whole is refused.

use std::{fmt, sync::Arc, time::Instant};

use json_patch::Patch;

use crate::plan::{
    nodes::node::{NodeObject, NodePlan},
    patch::{REVERTED, STRIPPED, node_patch},
    pools::pool::Policy,
    refusal::Refusal,
};

/// The next step for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeStep {
    /// Send this patch.
    Patch {
        patch: Patch,
        /// The changes that the patch makes.
        plan: Box<NodePlan>,
    },
    /// Do nothing until the node changes, or until this moment.
    Wait(Option<Instant>),
}

/// The answer to a patch of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAnswer {
    /// The patch was accepted. The node has this version now, if the answer shows it.
    Written(Option<Box<str>>),
    /// The patch was accepted, but the node does not have the record that it was to get.
    Stripped,
    Refused(Refusal),
}

/// An attempt to execute a plan. It decides nothing about the plan itself.
#[derive(Clone, PartialEq)]
pub struct Attempt {
    /// The node that the patch in flight was computed from.
    pub(crate) object: Arc<NodeObject>,
    /// The plan in flight.
    pub(crate) plan: NodePlan,
    part: PlanPart,
    /// The parts that were refused, and the last message.
    denied: Option<(NodePlan, String)>,
}

/// The extent of the plan in flight.
#[derive(Clone, Debug, PartialEq)]
enum PlanPart {
    Whole,
    /// The labels of a plan that was refused as a whole. The rest, which is here, follows.
    Labels(Box<NodePlan>),
    /// The rest of such a plan.
    Rest,
}

/// The course of an attempt after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptState {
    Next(NodeStep),
    /// The plan was executed.
    Written,
    /// The node does not exist any more.
    Gone,
    /// The whole plan was refused. [`Attempt::split`] sends its parts.
    Denied(String),
    /// This part of the plan was refused.
    Refused(Box<NodePlan>, String),
    /// The node has changed since the patch was computed.
    Stale,
    Failed,
}

/// `resourceVersion` and the plans stand for the fields of the node.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, plan, part, denied } = self;
        write!(f, "{:?} {plan:?} {part:?} {denied:?}", (&object.uid, &object.resource_version))
    }
}

impl Attempt {
    /// Begins with a patch of this node.
    pub fn begin(object: Arc<NodeObject>, plan: NodePlan, policy: &Policy) -> (Self, NodeStep) {
        let attempt = Self { object, plan, part: PlanPart::Whole, denied: None };
        let step = attempt.send(policy);
        (attempt, step)
    }

    /// Sends the labels and the rest of a refused plan apart, so that a refused taint does not delay the label. `None`
    /// if the plan has one part.
    pub fn split(&mut self, policy: &Policy) -> Option<NodeStep> {
        let [labels, rest] = self.plan.parts();
        if labels.is_empty() || rest.is_empty() {
            return None;
        }
        (self.plan, self.part) = (labels, PlanPart::Labels(rest.into()));
        Some(self.send(policy))
    }

    /// True if it sends the parts of a plan.
    pub fn is_split(&self) -> bool {
        self.part != PlanPart::Whole
    }

    /// The answer as it counts: a patch that is accepted and changes nothing is refused.
    pub fn in_effect(&self, answer: NodeAnswer) -> NodeAnswer {
        match answer {
            NodeAnswer::Written(Some(version)) if version == self.object.resource_version => {
                NodeAnswer::Refused(Refusal::Denied(REVERTED.to_owned()))
            }
            answer => answer,
        }
    }

    /// Takes in the answer to its last step.
    pub fn answer(&mut self, answer: NodeAnswer, policy: &Policy) -> AttemptState {
        match self.in_effect(answer) {
            NodeAnswer::Written(version) => self.next_part(policy, Ok(version)),
            NodeAnswer::Stripped => AttemptState::Refused(self.plan.clone().into(), STRIPPED.to_owned()),
            NodeAnswer::Refused(Refusal::Denied(message)) if self.is_split() => self.next_part(policy, Err(message)),
            NodeAnswer::Refused(Refusal::Denied(message)) => AttemptState::Denied(message),
            NodeAnswer::Refused(Refusal::Stale | Refusal::Conflict) => AttemptState::Stale,
            NodeAnswer::Refused(Refusal::Gone) => AttemptState::Gone,
            NodeAnswer::Refused(Refusal::Failed(_)) => AttemptState::Failed,
        }
    }

    fn send(&self, policy: &Policy) -> NodeStep {
        let patch = node_patch(&self.object.uid, &self.object.node, &self.plan, policy);
        NodeStep::Patch { patch, plan: self.plan.clone().into() }
    }

    /// Continues after a part, or the whole plan, was accepted and made this version, or the part was refused with this
    /// message.
    fn next_part(&mut self, policy: &Policy, result: Result<Option<Box<str>>, String>) -> AttemptState {
        match result {
            Err(message) => {
                let plan = match self.denied.take() {
                    Some((labels, _)) => labels.with_rest(&self.plan),
                    None => self.plan.clone(),
                };
                self.denied = Some((plan, message));
            }
            Ok(version) => {
                // Computed, because a fresh read could contain changes that the next part was not computed from.
                let node = self.object.node.after(&self.plan);
                let resource_version = version.unwrap_or_default();
                self.object = Arc::new(NodeObject { resource_version, node, ..NodeObject::clone(&self.object) });
            }
        }
        if let PlanPart::Labels(rest) = &mut self.part {
            (self.plan, self.part) = (std::mem::take(&mut **rest), PlanPart::Rest);
            return AttemptState::Next(self.send(policy));
        }
        match self.denied.take() {
            Some((plan, message)) => AttemptState::Refused(plan.into(), message),
            None => AttemptState::Written,
        }
    }
}
