//! Decides which taints a pool may add to nodes from now on, and which are approved.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
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
    trial::{Trial, after},
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
    /// The trials that status records. They count at the beginning of a term; after that the last decision does.
    pub(super) recorded_trials: Vec<Trial>,
    /// True if the spec has changed since the last decision.
    pub(super) is_new_spec: bool,
    /// True if the selector may match more nodes since then. What is approved was not checked for these.
    pub(super) is_widened: bool,
    pub(super) trial_lasts: Duration,
    /// The pause after the first trial that failed.
    pub(super) first_pause: Duration,
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
    /// The same by the API server's clock, which dates workloads.
    pub(super) server_now: Timestamp,
}

impl ApprovalFacts<'_> {
    /// Returns what the pool may do to nodes.
    pub(super) fn consent(self) -> PoolConsent {
        let trials = self.known_trials();
        let nodes = self.clean_nodes(&trials);
        let wanted = self.pool.spec.wanted_taints().into_iter();
        let approved = wanted.filter(|taint| self.approves(taint, &nodes, &trials));
        let approved: Vec<_> = approved.map(|taint| self.approval(taint)).collect();
        let valid = self.valid.filter(|_| !nodes.is_empty());
        PoolConsent {
            trials: self.trials(trials, &nodes, &approved),
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

    /// The nodes that a valid check covers, by taint, without taints that pause after a trial.
    fn clean_nodes(&self, trials: &[Trial]) -> CleanNodes {
        let answer = self.answer().filter(|_| self.valid.is_some());
        let mut nodes = answer.map(|answer| answer.clean.clone()).unwrap_or_default();
        for trial in trials.iter().filter(|trial| trial.pause(self.now).is_some()) {
            nodes.remove(&trial.taint);
        }
        nodes
    }

    /// The trials and holds so far, of taints that still need a check.
    fn known_trials(&self) -> Vec<Trial> {
        let wanted = self.pool.spec.checked_taints();
        let mut trials = self.before.map_or_else(|| self.recorded_trials.clone(), |before| before.trials.clone());
        trials.retain(|trial| wanted.contains(&trial.taint));
        for trial in &mut trials {
            trial.end_in_time(self.now, self.trial_lasts, self.first_pause);
            if self.is_new_spec {
                trial.end_pause(self.now);
            }
        }
        trials
    }

    /// The trials from now on. A new approval begins one, and so do a clean check without an approval, and nodes with a
    /// taint that another pool put there.
    fn trials(&self, mut trials: Vec<Trial>, clean: &CleanNodes, approved: &[Approval]) -> Vec<Trial> {
        let wanted = if self.pool.spec.enforces() { self.pool.spec.checked_taints() } else { Vec::new() };
        for taint in wanted {
            let is_approved = approved.iter().any(|approval| approval.taint == taint);
            let was_approved = match self.before {
                Some(before) => before.approves(&taint),
                None => self.recorded.iter().any(|known| known.taint == taint),
            };
            let may_come = is_approved || clean.contains_key(&taint);
            let place = trials.iter().position(|trial| trial.taint == taint);
            let takeover = self.tally.last_takeover(&taint);
            let begins = match place.map(|place| &trials[place]) {
                Some(trial) if trial.is_held() => may_come,
                Some(trial) => is_approved && !was_approved || takeover > trial.takeover,
                None => may_come && !was_approved || self.is_taken_over(&taint),
            };
            if begins {
                let before = place.map(|place| trials.remove(place));
                let until = after(self.now, self.trial_lasts);
                trials.push(Trial::begin(taint, before, takeover, self.server_now, until));
            } else if let (Some(place), None) = (place, takeover) {
                trials[place].takeover = None;
            }
        }
        trials.sort_by(|a, b| a.taint.cmp(&b.taint));
        trials
    }

    /// True if nodes came to the pool with this taint of winpool's: from another pool, or from one that had its name.
    fn is_taken_over(&self, taint: &Taint) -> bool {
        let is_recorded = self.pool.managed_taints.contains(taint);
        self.tally.last_takeover(taint).is_some() || !is_recorded && self.tally.owned().any(|owned| owned == taint)
    }

    /// True if new nodes get this taint at once.
    fn approves(&self, taint: &Taint, clean: &CleanNodes, trials: &[Trial]) -> bool {
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
        let is_clean = !self.is_blind && clean.contains_key(taint);
        // Nodes from which the taint has yet to go carry it all the same.
        let is_kept_off = trials.iter().any(|trial| trial.taint == *taint && trial.is_held());
        is_clean || !is_kept_off && self.known(taint).is_some()
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
