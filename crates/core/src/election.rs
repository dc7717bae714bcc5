//! Leader election by a Lease, with the algorithm of client-go: decides the next step from what was seen of the Lease.
//!
//! Clocks of different machines are never compared. For another candidate the Lease expires when its duration has
//! passed on that candidate's own clock since the Lease last changed. The holder stops earlier, counted from *before*
//! it sent its last renewal. So others always wait longer than the holder leads.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

/// The time that other candidates wait after the last change of the Lease before they take it.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// The time for which a renewal is valid. The rest of [`LEASE_DURATION`] is for requests that are still in flight.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The pause between renewals.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A period in which one candidate leads without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The number of this term in its process.
    pub number: u64,
    /// The end, unless it is renewed.
    pub until: Instant,
}

/// The next step of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// Read the Lease: it is unknown, or known from an unreliable source.
    Read,
    /// Write [`Candidate::claim`]: the Lease has no holder, or has expired.
    Acquire,
    /// Write [`Candidate::claim`]: this candidate is the holder.
    Renew,
    /// Do nothing until then, unless the Lease changes.
    Wait(Instant),
}

/// A process that wants to lead.
#[derive(Debug)]
pub struct Candidate {
    /// No other process has the same.
    pub identity: String,
    seen: Option<SeenLease>,
    doubtful: bool,
    term: Option<Term>,
    terms: u64,
    /// The newest resourceVersion of the Lease, from an answer or a watch.
    newest: u64,
    went_back: bool,
}

#[derive(Debug)]
struct SeenLease {
    lease: Option<Lease>,
    /// The last holder. It is kept when the Lease is deleted, because the holder may not know that yet.
    holder: Option<Holder>,
    changed: Instant,
}

#[derive(Debug)]
struct Holder {
    identity: String,
    duration: Duration,
}

impl Candidate {
    /// A candidate that has seen nothing yet. No other process may ever have the same identity.
    pub fn new(identity: String) -> Self {
        Self { identity, seen: None, doubtful: false, term: None, terms: 0, newest: 0, went_back: false }
    }

    pub fn next(&self, now: Instant) -> ElectionStep {
        let Some(seen) = self.seen.as_ref().filter(|_| !self.doubtful) else { return ElectionStep::Read };
        let Some(holder) = &seen.holder else { return ElectionStep::Acquire };
        let term = self.term(now);
        // A deleted Lease belongs to its holder only while that leads: another candidate may have held it last.
        if holder.identity == self.identity && (seen.lease.is_some() || term.is_some()) {
            let renew_at = term.and_then(|term| term.until.checked_sub(RENEW_DEADLINE.saturating_sub(RETRY_PERIOD)));
            let renewed = renew_at.filter(|at| now < *at && seen.lease.is_some());
            return renewed.map_or(ElectionStep::Renew, ElectionStep::Wait);
        }
        let runs_out = seen.changed + holder.duration;
        if now < runs_out { ElectionStep::Wait(runs_out) } else { ElectionStep::Acquire }
    }

    /// The term in which this candidate leads at `now`.
    pub fn term(&self, now: Instant) -> Option<Term> {
        self.term.filter(|term| now < term.until)
    }

    /// True if the Lease names this candidate, as far as it knows.
    pub fn holds(&self) -> bool {
        let holder = self.seen.as_ref().and_then(|seen| seen.holder.as_ref());
        holder.is_some_and(|holder| holder.identity == self.identity)
    }

    /// True if the API server answered an older Lease than one that was there before: its state was restored from a
    /// backup. Everything that this process knows about the cluster may then be wrong.
    ///
    /// Answers come from the newest state, and API servers count versions upwards:
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
    pub fn history_went_back(&self) -> bool {
        self.went_back
    }

    /// Records the API server's answer: the Lease, or that it does not exist. Leadership ends if the Lease names
    /// another process.
    pub fn observe(&mut self, lease: Option<Lease>, now: Instant) {
        self.went_back |= lease.as_ref().and_then(version).is_some_and(|version| version < self.newest);
        self.see(lease, now);
    }

    fn see(&mut self, lease: Option<Lease>, now: Instant) {
        self.newest = self.newest.max(lease.as_ref().and_then(version).unwrap_or_default());
        self.doubtful = false;
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if self.seen.as_ref().is_some_and(|seen| version(&seen.lease) == version(&lease)) {
            return;
        }
        let holder = match &lease {
            Some(lease) => holder(lease),
            None => self.seen.take().and_then(|seen| seen.holder),
        };
        self.seen = Some(SeenLease { lease, holder, changed: now });
        if !self.holds() {
            self.term = None;
        }
    }

    /// Records the Lease from a watch, which may be late: a holder reads the Lease again before it believes that it
    /// lost it.
    pub fn notice(&mut self, lease: Option<Lease>, now: Instant) {
        if !self.holds() {
            self.see(lease, now);
        } else if lease.as_ref().and_then(holder).is_none_or(|holder| holder.identity != self.identity) {
            self.doubtful = true;
        }
    }

    /// Forgets the Lease, because a write of it was refused.
    pub fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Records that the API server accepted this claim, which was sent at `sent`.
    pub fn accepted(&mut self, lease: Lease, sent: Instant, now: Instant) {
        let running = self.term(now);
        self.observe(Some(lease), now);
        self.terms += u64::from(running.is_none());
        self.term = Some(Term { number: self.terms, until: sent + RENEW_DEADLINE });
    }

    /// The Lease to write in order to acquire or renew it.
    pub fn claim(&self, now: Timestamp) -> Lease {
        let lease = self.seen.as_ref().and_then(|seen| seen.lease.clone());
        claimed_by(lease.unwrap_or_default(), &self.identity, LEASE_DURATION, now)
    }

    /// The Lease to write in order to release it; `None` if this candidate does not hold it.
    pub fn release(&self, now: Timestamp) -> Option<Lease> {
        let lease = self.seen.as_ref()?.lease.clone().filter(|_| self.holds())?;
        Some(released(lease, now))
    }
}

/// Returns `lease` with `identity` as its holder for `duration`, from `now`.
pub fn claimed_by(mut lease: Lease, identity: &str, duration: Duration, now: Timestamp) -> Lease {
    let before = lease.spec.take().unwrap_or_default();
    let is_new = lease.metadata.resource_version.is_none();
    let renews = before.holder_identity.as_deref() == Some(identity);
    let transitions = before.lease_transitions.unwrap_or_default();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
        renew_time: Some(MicroTime(now)),
        acquire_time: before.acquire_time.filter(|_| renews).or(Some(MicroTime(now))),
        lease_transitions: Some(transitions.saturating_add(i32::from(!renews && !is_new))),
        ..before
    });
    lease
}

/// Returns `lease` without a holder.
pub fn released(mut lease: Lease, now: Timestamp) -> Lease {
    let before = lease.spec.take().unwrap_or_default();
    let renew_time = Some(MicroTime(now));
    lease.spec = Some(LeaseSpec { holder_identity: None, lease_duration_seconds: Some(1), renew_time, ..before });
    lease
}

/// True if the Lease has a holder, even an expired one.
pub fn has_holder(lease: &Lease) -> bool {
    holder(lease).is_some()
}

fn version(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

fn holder(lease: &Lease) -> Option<Holder> {
    let spec = lease.spec.as_ref()?;
    let identity = spec.holder_identity.clone().filter(|identity| !identity.is_empty())?;
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Some(Holder { identity, duration: seconds.map_or(LEASE_DURATION, Duration::from_secs) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOTHING: Duration = Duration::ZERO;

    fn held(version: u32, holder: &str) -> Lease {
        let mut lease = claimed_by(Lease::default(), holder, LEASE_DURATION, Timestamp::UNIX_EPOCH);
        lease.metadata.resource_version = Some(version.to_string());
        lease
    }

    #[test]
    fn the_next_step_follows_from_who_holds_the_lease_and_when_it_changed() {
        let seen = Instant::now();
        let cases: [(&str, Option<Lease>, Duration, ElectionStep); 8] = [
            ("there is no Lease", None, NOTHING, ElectionStep::Acquire),
            ("nobody holds it", Some(held(1, "")), NOTHING, ElectionStep::Acquire),
            ("another holds it", Some(held(1, "b")), NOTHING, ElectionStep::Wait(seen + LEASE_DURATION)),
            (
                "almost run out",
                Some(held(1, "b")),
                Duration::from_millis(14_999),
                ElectionStep::Wait(seen + LEASE_DURATION),
            ),
            ("run out", Some(held(1, "b")), LEASE_DURATION, ElectionStep::Acquire),
            ("held by this one, which does not lead", Some(held(1, "a")), NOTHING, ElectionStep::Renew),
            (
                "another holds it for long",
                Some(long(held(1, "b"))),
                LEASE_DURATION,
                ElectionStep::Wait(seen + 600 * SECOND),
            ),
            ("without a spec", Some(Lease { spec: None, ..held(1, "b") }), NOTHING, ElectionStep::Acquire),
        ];
        for (what, lease, later, step) in cases {
            let mut candidate = Candidate::new("a".to_owned());
            assert_eq!(candidate.next(seen), ElectionStep::Read, "{what}");
            candidate.observe(lease, seen);
            assert_eq!(candidate.next(seen + later), step, "{what}");
            assert_eq!(candidate.term(seen + later), None, "{what}: nobody leads before a write was accepted");
        }
    }

    fn long(lease: Lease) -> Lease {
        claimed_by(lease, "b", 600 * SECOND, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn an_unchanged_lease_that_is_seen_again_still_expires() {
        let start = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        for second in 0..15 {
            candidate.observe(Some(held(1, "b")), start + second * SECOND);
        }
        assert_eq!(candidate.next(start + LEASE_DURATION), ElectionStep::Acquire);
        candidate.observe(Some(held(2, "b")), start + LEASE_DURATION);
        assert_eq!(candidate.next(start + LEASE_DURATION), ElectionStep::Wait(start + 2 * LEASE_DURATION));
    }

    #[test]
    fn leadership_counts_from_before_the_renewal_was_sent_and_ends_by_itself() {
        let sent = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        candidate.observe(None, sent);
        candidate.accepted(held(1, "a"), sent, sent + SECOND);
        let until = sent + RENEW_DEADLINE;
        assert_eq!(candidate.term(sent + SECOND), Some(Term { number: 1, until }));
        assert_eq!(candidate.next(sent + SECOND), ElectionStep::Wait(sent + RETRY_PERIOD));
        assert_eq!(candidate.next(sent + RETRY_PERIOD), ElectionStep::Renew);
        assert_eq!(candidate.term(until), None);
        assert_eq!(candidate.next(until), ElectionStep::Renew, "the Lease is still its own");

        candidate.accepted(held(2, "a"), until, until);
        assert_eq!(candidate.term(until), Some(Term { number: 2, until: until + RENEW_DEADLINE }), "a term of its own");
        let renewed = until + RETRY_PERIOD;
        candidate.accepted(held(3, "a"), renewed, renewed);
        assert_eq!(candidate.term(renewed), Some(Term { number: 2, until: renewed + RENEW_DEADLINE }), "the same");
    }

    #[test]
    fn a_stolen_lease_ends_leadership_at_once_and_a_late_event_does_not() {
        let now = Instant::now();
        let leader = || {
            let mut candidate = Candidate::new("a".to_owned());
            candidate.observe(Some(held(1, "b")), now);
            candidate.accepted(held(2, "a"), now, now);
            candidate
        };
        let mut candidate = leader();
        candidate.notice(Some(held(2, "a")), now);
        assert_eq!(candidate.next(now), ElectionStep::Wait(now + RETRY_PERIOD), "its own write comes back");
        candidate.notice(Some(held(1, "b")), now);
        assert_eq!(candidate.next(now), ElectionStep::Read, "it makes sure");
        assert!(candidate.term(now).is_some());
        candidate.observe(Some(held(2, "a")), now);
        assert_eq!(candidate.next(now), ElectionStep::Wait(now + RETRY_PERIOD));

        candidate.observe(Some(held(3, "b")), now);
        assert_eq!(candidate.term(now), None);
        assert_eq!(candidate.next(now), ElectionStep::Wait(now + LEASE_DURATION));
        assert_eq!(candidate.release(Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn an_answer_that_is_older_than_another_shows_that_the_history_went_back() {
        let now = Instant::now();
        let mut candidate = Candidate::new("a".to_owned());
        for lease in [Some(held(9, "b")), None, Some(held(10, "b")), Some(held(10, "b"))] {
            candidate.observe(lease, now);
            candidate.notice(Some(held(8, "b")), now);
            assert!(!candidate.history_went_back(), "a watch may be late");
        }
        candidate.notice(Some(held(12, "b")), now);
        candidate.observe(Some(held(11, "b")), now);
        assert!(candidate.history_went_back(), "the watch has shown a newer one");
        candidate.observe(Some(held(13, "b")), now);
        assert!(candidate.history_went_back(), "for ever");
    }

    #[test]
    fn a_deleted_lease_is_recreated_by_its_holder_at_once_and_by_others_when_the_holder_cannot_lead_any_more() {
        let start = Instant::now();
        let deleted = start + 3 * SECOND;
        let mut holder = Candidate::new("a".to_owned());
        holder.observe(None, start);
        holder.accepted(held(1, "a"), start, start);
        holder.observe(None, start);
        assert_eq!(holder.next(start), ElectionStep::Renew);
        assert_eq!(holder.claim(Timestamp::UNIX_EPOCH).metadata.resource_version, None, "a new Lease");
        assert!(holder.term(start).is_some());
        let ended = start + RENEW_DEADLINE;
        assert_eq!(
            holder.next(ended),
            ElectionStep::Wait(start + LEASE_DURATION),
            "another one may have held it in between"
        );

        let mut other = Candidate::new("b".to_owned());
        other.observe(Some(held(1, "a")), start);
        other.observe(None, deleted);
        other.observe(None, deleted + SECOND);
        assert_eq!(other.next(deleted), ElectionStep::Wait(deleted + LEASE_DURATION));
        assert_eq!(other.next(deleted + LEASE_DURATION), ElectionStep::Acquire);
    }

    #[test]
    fn a_claim_keeps_what_a_renewal_must_not_change_and_counts_changes_of_the_holder() {
        let (first, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        let spec = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap();
            (spec.holder_identity, spec.acquire_time, spec.renew_time, spec.lease_transitions)
        };
        let of = |identity: &str| Some(identity.to_owned());
        let (first_time, later_time) = (Some(MicroTime(first)), Some(MicroTime(later)));
        let mut lease = claimed_by(Lease::default(), "a", LEASE_DURATION, first);
        assert_eq!(spec(&lease), (of("a"), first_time.clone(), first_time.clone(), Some(0)));
        lease.metadata.resource_version = of("1");
        lease.metadata.labels = Some([("kept".to_owned(), String::new())].into());
        let renewed = claimed_by(lease.clone(), "a", LEASE_DURATION, later);
        assert_eq!(spec(&renewed), (of("a"), first_time.clone(), later_time.clone(), Some(0)));
        assert_eq!(renewed.metadata, lease.metadata, "guarded by the version that was read");
        let taken = claimed_by(lease.clone(), "b", LEASE_DURATION, later);
        assert_eq!(spec(&taken), (of("b"), later_time.clone(), later_time.clone(), Some(1)));
        let free = released(taken, later);
        assert_eq!(spec(&free), (None, later_time.clone(), later_time, Some(1)));
        assert!(!has_holder(&free) && has_holder(&lease));
    }
}
