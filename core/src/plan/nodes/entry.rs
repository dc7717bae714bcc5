//! The record of one node: everything that this process knows about it.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::plan::{
    assessment::{Assessment, assess},
    conflict::WriteConflict,
    consent::Consent,
    contribution::Contribution,
    node::NodePlan,
    pools::Policy,
    watched::Watched,
};

use super::object::NodeObject;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The record of one node. Fields that few nodes have are stored elsewhere, because there are thousands of nodes.
#[derive(Clone, Default)]
pub(super) struct Entry {
    /// The node as the watch last showed it.
    pub(super) object: Arc<NodeObject>,
    pub(super) watched: Watched,
    /// A slice, because a `Vec` that is collected from larger items keeps their memory.
    pub(super) contributions: Box<[Arc<Contribution>]>,
    /// Pools that select the node and do not own it, each with the pool that does.
    pub(super) overlaps: Vec<(String, String)>,
    /// The time at which the node first needed a write.
    pub(super) pending_since: Option<Instant>,
    /// Recent writes, to notice another writer that reverts them.
    pub(super) conflict: Option<Box<WriteConflict<u64>>>,
    pub(super) wait_reasons: Option<Box<WaitReasons>>,
    /// True while the watch does not show a patch that was accepted.
    pub(super) is_behind: bool,
}

/// The reasons for which a node waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WaitReasons {
    pub(super) refusal: Option<RefusedPlan>,
    pub(super) other_writer: Option<OtherWriter>,
    pub(super) failure: Option<FailedAttempts>,
}

/// A plan that the API server refused, or a part of it. It is kept while the node seems to need another plan: the watch
/// may be behind, and show the node as it was before the other part was accepted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RefusedPlan {
    pub(super) plan: NodePlan,
    /// The message of the API server or of the policy that refused, without the name of the node.
    pub(super) message: Arc<str>,
    /// The time of the next attempt.
    pub(super) until: Instant,
}

/// The writer that reverts a change of the node, and the end of the back-off.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OtherWriter {
    pub(super) name: Arc<str>,
    pub(super) plan: NodePlan,
    pub(super) until: Instant,
}

/// Attempts that failed in a row, and the time of the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FailedAttempts {
    count: u32,
    pub(super) until: Instant,
}

/// The next need of a node.
pub(super) enum Need {
    /// Nothing before this moment, unless the node changes.
    Nothing(Option<Instant>),
    Patch(Box<Assessment>),
    /// Another writer keeps reverting this plan; winpool backs off until this moment.
    FindOtherWriter(Box<NodePlan>, Instant),
}

impl Entry {
    /// The facts from which it is decided if the node may get a taint.
    pub(super) fn consent(&self, now: Instant) -> Consent<'_> {
        Consent::Known { name: &self.object.name, watched: &self.watched, now }
    }

    /// Returns the need of the node by this policy. `object` is the node as the watch shows it, or as it was read for an
    /// attempt.
    pub(super) fn need(&self, object: &NodeObject, policy: &Policy, now: Instant) -> Need {
        let assessment = assess(&object.node, policy, self.consent(now));
        if assessment.plan.is_empty() {
            return Need::Nothing(assessment.label_settles);
        }
        if let Some(refusal) = self.refusal(&assessment.plan, now) {
            return Need::Nothing(Some(refusal.until));
        }
        match (self.pause(policy, assessment.pool.as_deref(), now), self.other_writer()) {
            (None, _) => Need::Patch(Box::new(assessment)),
            (Some(_), Some(writer)) if now < writer.until => Need::Nothing(Some(writer.until)),
            (Some(pause), _) => Need::FindOtherWriter(assessment.plan.into(), now + pause),
        }
    }

    /// Returns the need of the node, as far as the watch shows it.
    pub(super) fn next(&self, policy: &Policy, now: Instant) -> Need {
        let failure = self.wait_reasons.as_ref().and_then(|wait_reasons| wait_reasons.failure);
        if let Some(failure) = failure.filter(|failure| now < failure.until) {
            return Need::Nothing(Some(failure.until));
        }
        self.need(&self.object, policy, now)
    }

    /// The refusal of this plan that was the last answer to it.
    pub(super) fn last_refusal(&self, plan: &NodePlan) -> Option<&RefusedPlan> {
        self.wait_reasons.as_ref()?.refusal.as_ref().filter(|refusal| refusal.plan == *plan)
    }

    /// The refusal because of which this plan is not sent now.
    pub(super) fn refusal(&self, plan: &NodePlan, now: Instant) -> Option<&RefusedPlan> {
        self.last_refusal(plan).filter(|refusal| now < refusal.until)
    }

    pub(super) fn other_writer(&self) -> Option<&OtherWriter> {
        self.wait_reasons.as_ref()?.other_writer.as_ref()
    }

    /// The time for which the node is not changed for its pool because another writer keeps reverting that.
    pub(super) fn pause(&self, policy: &Policy, pool: Option<&str>, now: Instant) -> Option<Duration> {
        self.conflict.as_ref()?.pause(&policy.demands(pool), now)
    }

    /// Records a failed attempt. Returns the pause before the next one: exponential, and up to twice as long, by the
    /// name of the node, so that nodes which failed together are not tried together.
    pub(super) fn fail(&mut self, now: Instant) -> Duration {
        let failure = &mut self.wait_reasons.get_or_insert_default().failure;
        let count = failure.map_or(1, |failure| failure.count.saturating_add(1));
        let pause = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow((count - 1).min(10)));
        let pause = pause + pause.mul_f64(share(&self.object.name, count));
        *failure = Some(FailedAttempts { count, until: now + pause });
        pause
    }

    /// Forgets earlier failures, because the API server answers.
    pub(super) fn forget_failures(&mut self) {
        if let Some(wait_reasons) = &mut self.wait_reasons {
            wait_reasons.failure = None;
        }
    }

    /// Forgets earlier refusals, because a whole plan was accepted.
    pub(super) fn forget_refusal(&mut self) {
        if let Some(wait_reasons) = &mut self.wait_reasons {
            wait_reasons.refusal = None;
        }
    }

    /// Forgets everything that another process may have changed since.
    pub(super) fn begin_term(&mut self) {
        (self.conflict, self.wait_reasons, self.is_behind) = (None, None, false);
    }
}

/// A number from 0 to 1 that differs from node to node and from attempt to attempt.
fn share(name: &str, count: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (name, count).hash(&mut hasher);
    f64::from(u16::try_from(hasher.finish() & 0xFFFF).unwrap_or_default()) / f64::from(u16::MAX)
}

/// Shows only what decides. `resourceVersion` stands for the fields of the node.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut contributions = DefaultHasher::new();
        (&self.contributions, &self.overlaps).hash(&mut contributions);
        f.debug_struct("Entry")
            .field("object", &(&self.object.uid, &self.object.resource_version))
            .field("watched", &self.watched)
            .field("contributions", &contributions.finish())
            .field("conflict", &self.conflict)
            .field("wait_reasons", &self.wait_reasons)
            .field("is_behind", &self.is_behind)
            .finish_non_exhaustive()
    }
}
