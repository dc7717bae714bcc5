//! Decides which taints a pool may add to nodes from now on, and which are approved.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::{Taint, TaintPolicy},
    windows::Build,
};

use super::{
    pool_consent::{Approval, CleanCheck, LaggingClass, PoolConsent},
    pools::Pool,
    tally::Tally,
    workload_check::CheckAnswer,
};

/// The nodes that a valid check covers, by taint.
type CleanNodes = BTreeMap<Taint, Arc<BTreeSet<Arc<str>>>>;

/// The facts that the decision is made from.
pub(super) struct ApprovalFacts<'a> {
    pub(super) pool: &'a Pool,
    pub(super) tally: &'a Tally,
    /// The last decision in this term.
    pub(super) before: Option<&'a PoolConsent>,
    /// The approvals that status records.
    pub(super) recorded: Vec<Approval>,
    /// True if the spec has changed since the last decision, and its selector may match more nodes. What is approved was not checked for these.
    pub(super) is_widened: bool,
    /// The newest check of this spec, and the time from its start to the end of its validity, if it is valid.
    pub(super) check: Option<&'a Result<CheckAnswer, String>>,
    pub(super) valid: Option<(Instant, Instant)>,
    pub(super) lagging: Vec<LaggingClass>,
    pub(super) planned_builds: BTreeSet<Build>,
    pub(super) images: BTreeSet<Build>,
    /// True while a kind cannot be read. Nodes wait then whatever a check found, and what it read may be old: no approval
    /// comes or goes.
    pub(super) is_blind: bool,
    /// The time of new approvals, in whole seconds.
    pub(super) now: Timestamp,
}

impl ApprovalFacts<'_> {
    /// Returns what the pool may do to nodes.
    pub(super) fn consent(self) -> PoolConsent {
        let nodes = self.clean_nodes();
        let wanted = self.pool.spec.wanted_taints().into_iter();
        let approved = wanted.filter(|taint| self.approves(taint, &nodes));
        let approved: Vec<_> = approved.map(|taint| self.approval(taint)).collect();
        let valid = self.valid.filter(|_| !nodes.is_empty());
        PoolConsent {
            approved,
            clean_check: CleanCheck { nodes, valid },
            lagging: self.lagging,
            planned_builds: self.planned_builds,
            images: self.images,
            is_blind: self.is_blind,
        }
    }

    fn answer(&self) -> Option<&CheckAnswer> {
        self.check?.as_ref().ok()
    }

    /// The nodes that a valid check covers, by taint.
    fn clean_nodes(&self) -> CleanNodes {
        let answer = self.answer().filter(|_| self.valid.is_some());
        answer.map(|answer| answer.clean.clone()).unwrap_or_default()
    }

    /// True if new nodes get this taint at once.
    fn approves(&self, taint: &Taint, clean: &CleanNodes) -> bool {
        let spec = &self.pool.spec;
        if taint.effect == "PreferNoSchedule" || !spec.enforces() || spec.taint_policy == TaintPolicy::Never {
            return false;
        }
        if spec.needs_no_check(taint) {
            return true;
        }
        if self.lags(taint) || self.holds(taint) {
            return false;
        }
        !self.is_blind && clean.contains_key(taint) || self.known(taint).is_some()
    }

    /// The approval that status records. One that was dropped stays dropped, even if the status that says so is not
    /// written yet.
    fn known(&self, taint: &Taint) -> Option<&Approval> {
        let stands = !self.is_widened && self.before.is_none_or(|before| before.approves(taint));
        self.recorded.iter().find(|known| known.taint == *taint).filter(|_| stands)
    }

    fn approval(&self, taint: Taint) -> Approval {
        Approval { since: self.known(&taint).map_or(self.now, |known| known.since), taint }
    }

    /// True if a class that exists does not tolerate the taint.
    fn lags(&self, taint: &Taint) -> bool {
        self.lagging.iter().any(|class| class.lags(taint))
    }

    /// True if a node waits for the taint and a check found out why, or failed.
    fn holds(&self, taint: &Taint) -> bool {
        let was_blind = self.before.is_some_and(|before| before.is_blind);
        let is_found =
            |check: &Result<CheckAnswer, _>| check.as_ref().map_or(true, |answer| answer.held.contains(taint));
        !self.is_blind && !was_blind && self.tally.is_held(taint) && self.check.is_some_and(is_found)
    }
}
