//! Leader election: which of several processes writes to the cluster.
//!
//! [`Elector`] holds and renews a Lease, as [`winpool_core::plan::lease`] decides. What the others see of it is
//! [`Leadership`]: the term in which this process leads, with its end. It ends by itself when no renewal is accepted, and
//! at once when the Lease is seen to be somebody else's.

use std::{
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, watch_object},
    },
};
use tokio::{sync::watch, time::sleep_until};
use tokio_util::sync::CancellationToken;
use winpool_core::{
    api::names,
    plan::lease::{Candidate, LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, Step, Term, held_by, is_held, released},
};

use crate::{
    apply::{Leases, WriteError},
    telemetry::{outages, words},
};

/// How long the release may take, within the time that a process has to end.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(900);
/// The shortest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How often a Lease may change while it is seized.
const ATTEMPTS: usize = 10;

/// Whether this process leads, and until when. Nothing is written to the cluster without it.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Term>>);

impl Leadership {
    /// Of a process that is alone.
    #[must_use]
    pub fn alone() -> Self {
        Self::until(Instant::now() + Duration::from_hours(24 * 365 * 10))
    }

    fn until(until: Instant) -> Self {
        Self(watch::Sender::new(Some(Term { number: 1, until })).subscribe())
    }

    /// The number of the term in which this process leads now.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        let term = *self.0.borrow();
        term.filter(|term| Instant::now() < term.until).map(|term| term.number)
    }

    /// Returns the number of the next term, or of the one that runs, once there is one.
    pub async fn begun(&self) -> u64 {
        let mut terms = self.0.clone();
        loop {
            terms.mark_unchanged();
            match self.term() {
                Some(number) => return number,
                None => changed(&mut terms).await,
            }
        }
    }

    /// Returns when this term is over.
    pub async fn ended(&self, number: u64) {
        let mut terms = self.0.clone();
        loop {
            let term = *terms.borrow_and_update();
            let Some(term) = term.filter(|term| term.number == number && Instant::now() < term.until) else { return };
            tokio::select! {
                () = sleep_until(term.until.into()) => {}
                () = changed(&mut terms) => {}
            }
        }
    }

    /// Does `work` as long as this term lasts; `None` if it ended before.
    pub async fn during<T>(&self, number: u64, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.ended(number) => None,
            result = work => (self.term() == Some(number)).then_some(result),
        }
    }
}

/// The next change, which never comes once nobody elects any more.
async fn changed(terms: &mut watch::Receiver<Option<Term>>) {
    if terms.changed().await.is_err() {
        std::future::pending::<Infallible>().await;
    }
}

/// Wants to lead, as long as it runs.
pub struct Elector {
    leases: Leases,
    candidate: Candidate,
    term: watch::Sender<Option<Term>>,
    events: BoxStream<'static, watcher::Result<Option<Lease>>>,
    pauses: ExponentialBackoff,
    /// After a failure: no write before.
    paused_until: Option<Instant>,
    /// Whether the last request failed, so that it is said once.
    failing: bool,
}

impl Elector {
    /// A candidate for the Lease `winpool` in this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        let leases = Leases::new(client, namespace);
        let events = watch(&leases);
        Self {
            leases,
            candidate: Candidate::new(identity()),
            term: watch::Sender::new(None),
            events,
            pauses: pauses().build(),
            paused_until: None,
            failing: false,
        }
    }

    /// Whether it leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership(self.term.subscribe())
    }

    /// Runs until `resign` is cancelled, and then lets the next one have the Lease. When the future is dropped before, the
    /// Lease has to run out.
    pub async fn run(mut self, resign: CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = resign.cancelled() => break,
                next = self.step() => next,
            };
            tokio::select! {
                biased;
                () = resign.cancelled() => break,
                event = self.events.next() => if let Some(Ok(lease)) = event {
                    self.candidate.notice(lease, Instant::now());
                },
                () = sleep_until(next.into()) => {}
            }
        }
        self.term.send_replace(None);
        let released = tokio::time::timeout(RELEASE_TIMEOUT, self.release()).await;
        match released.unwrap_or(Err(WriteError::TimedOut(RELEASE_TIMEOUT))) {
            Ok(true) => tracing::info!("Lease released"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = words(&error), "Lease not released: if this process has it, it has to run out");
            }
        }
    }

    /// Does what is next, and returns when to do the one after that.
    async fn step(&mut self) -> Instant {
        let now = Instant::now();
        match self.candidate.next(now) {
            Step::Look => self.look().await,
            Step::Wait(until) => until,
            Step::Acquire | Step::Renew => match self.paused_until.filter(|until| now < *until) {
                Some(until) => until,
                None => self.claim().await,
            },
        }
    }

    async fn look(&mut self) -> Instant {
        let now = match self.leases.read().await {
            Ok(lease) => {
                let now = Instant::now();
                self.candidate.observe(lease, now);
                self.works();
                now
            }
            Err(error) => self.failed(&error),
        };
        self.publish();
        now
    }

    async fn claim(&mut self) -> Instant {
        let (was_holder, sent) = (self.candidate.holds(), Instant::now());
        match self.leases.write(&self.candidate.claim(Timestamp::now())).await {
            Ok(lease) => {
                let now = Instant::now();
                self.candidate.accepted(lease, sent, now);
                self.works();
                self.pauses = pauses().build();
                self.publish();
                now
            }
            // The Lease changed: whose it is now matters at once.
            Err(WriteError::Conflict | WriteError::Gone) => {
                self.candidate.doubt();
                self.pause();
                if !was_holder {
                    // The watch should have told that. It may be dead without knowing it.
                    self.events = watch(&self.leases);
                }
                self.look().await
            }
            Err(error) => {
                // It may have been accepted all the same.
                self.candidate.doubt();
                self.failed(&error)
            }
        }
    }

    /// Tells whether there was something to release. A write that was just under way may have been accepted, or still be, so
    /// the Lease is read first, and again if it changed.
    async fn release(&mut self) -> Result<bool, WriteError> {
        loop {
            self.candidate.observe(self.leases.read().await?, Instant::now());
            let Some(lease) = self.candidate.release(Timestamp::now()) else { return Ok(false) };
            match self.leases.write(&lease).await {
                Err(WriteError::Conflict) => {}
                result => return result.map(|_| true),
            }
        }
    }

    fn publish(&self) {
        let term = self.candidate.term(Instant::now());
        self.term.send_if_modified(|known| std::mem::replace(known, term) != term);
    }

    fn pause(&mut self) -> Instant {
        let until = Instant::now() + self.pauses.next().unwrap_or(RETRY_PERIOD);
        self.paused_until = Some(until);
        until
    }

    fn failed(&mut self, error: &WriteError) -> Instant {
        if !std::mem::replace(&mut self.failing, true) {
            let namespace = self.leases.namespace();
            tracing::warn!(
                error = words(error),
                namespace,
                "no access to the Lease {}, without which this process cannot lead; trying again (it takes the rights to get, \
                 list, watch, create and update leases in that namespace)",
                names::LEASE,
            );
        }
        self.pause()
    }

    fn works(&mut self) {
        if std::mem::take(&mut self.failing) {
            tracing::info!("access to the Lease works again");
        }
    }
}

/// Pauses after failures, with jitter: candidates that lost the API server together do not come back together.
fn pauses() -> ExponentialBuilder {
    let builder = ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_delay(RETRY_PERIOD);
    builder.with_jitter().without_max_times()
}

fn watch(leases: &Leases) -> BoxStream<'static, watcher::Result<Option<Lease>>> {
    let events = watch_object(leases.api(), names::LEASE).backoff(watcher::ExponentialBackoff::from(pauses()));
    events.inspect(outages("Lease")).boxed()
}

/// The pod's name and something that no other process has, of the same pod neither.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| names::LEASE.to_owned());
    // The one source of randomness in the standard library: its keys come from the system.
    let unique = RandomState::new().hash_one((std::process::id(), Instant::now()));
    format!("{host}_{unique:016x}")
}

/// The Lease, taken by force: nobody else leads until it is released or its time is over.
pub struct Seized {
    leases: Leases,
    lease: Lease,
    leadership: Leadership,
}

impl Seized {
    /// Takes the Lease `winpool` in this namespace from whoever holds it, for `duration`, and returns when nobody else can
    /// write any more. For a command that has to be alone with the cluster for a while, such as one that cleans up.
    ///
    /// It takes over without waiting for the Lease to run out. A running leader sees that at once if it can, and stops
    /// writing [`RENEW_DEADLINE`] after its last renewal, which was before this, in any case. So if anybody holds the Lease,
    /// this waits for [`LEASE_DURATION`], as a candidate would: the rest is for requests that are still under way. If nobody
    /// holds it, this does not wait.
    ///
    /// Operators that run stay standby until `duration` is over since they saw it. What is written has to end before
    /// that; [`Seized::leadership`] sees to it.
    ///
    /// # Errors
    /// When the Lease cannot be read or written; [`WriteError::Conflict`] when others keep writing it.
    pub async fn take(client: Client, namespace: &str, duration: Duration) -> Result<Self, WriteError> {
        let (leases, identity) = (Leases::new(client, namespace), identity());
        for _ in 0..ATTEMPTS {
            let current = leases.read().await?;
            let others_lead = current.as_ref().is_some_and(is_held);
            let sent = Instant::now();
            let claim = held_by(current.unwrap_or_default(), &identity, duration, Timestamp::now());
            let lease = match leases.write(&claim).await {
                Ok(lease) => lease,
                Err(WriteError::Conflict | WriteError::Gone) => continue,
                Err(error) => return Err(error),
            };
            if others_lead {
                tracing::info!("waiting until the leader before has ended, {} s", LEASE_DURATION.as_secs());
                tokio::time::sleep(LEASE_DURATION).await;
            }
            let leadership =
                Leadership::until(sent + duration.saturating_sub(LEASE_DURATION.saturating_sub(RENEW_DEADLINE)));
            return Ok(Self { leases, lease, leadership });
        }
        Err(WriteError::Conflict)
    }

    /// The right to write, for an [`Applier`](crate::apply::Applier).
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Lets the next one lead.
    ///
    /// # Errors
    /// When the Lease cannot be written, or is not the one that was taken any more.
    pub async fn release(self) -> Result<(), WriteError> {
        self.leases.write(&released(self.lease, Timestamp::now())).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn work_ends_with_the_term_in_which_it_began() {
        let started = Instant::now();
        let leadership = Leadership::until(started + SHORT);
        assert_eq!(leadership.during(1, async { "done" }).await, Some("done"));
        assert_eq!(leadership.during(1, pending::<()>()).await, None);
        assert!(started.elapsed() >= SHORT);
        assert_eq!(leadership.term(), None);
        assert_eq!(leadership.during(1, async {}).await, None);
        assert_eq!(Leadership::alone().during(2, pending::<()>()).await, None, "another term than the one that runs");
    }

    #[tokio::test]
    async fn a_renewed_term_goes_on_and_another_one_does_not_continue_it() {
        let now = Instant::now();
        let terms = watch::Sender::new(Some(Term { number: 1, until: now + SHORT }));
        let leadership = Leadership(terms.subscribe());
        let renewed = async {
            terms.send_replace(Some(Term { number: 1, until: now + Duration::from_mins(1) }));
            tokio::time::sleep(2 * SHORT).await;
            "still leads"
        };
        assert_eq!(leadership.during(1, renewed).await, Some("still leads"));
        let lost_and_gained = async {
            terms.send_replace(None);
            terms.send_replace(Some(Term { number: 2, until: now + Duration::from_mins(1) }));
        };
        assert_eq!(tokio::join!(leadership.during(1, pending::<()>()), lost_and_gained).0, None);
        assert_eq!(leadership.begun().await, 2);
    }

    #[tokio::test]
    async fn leadership_is_noticed_when_it_begins() {
        let terms = watch::Sender::new(None);
        let leadership = Leadership(terms.subscribe());
        let begins = async { terms.send_replace(Some(Term { number: 3, until: Instant::now() + SHORT * 100 })) };
        assert_eq!(tokio::join!(leadership.begun(), begins).0, 3);
    }

    #[test]
    fn no_two_processes_have_the_same_identity() {
        assert_ne!(identity(), identity());
    }
}
