//! Who wants to lead: holds and renews the Lease.

use std::{
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
    election::{Candidate, ElectionStep, RETRY_PERIOD, Term},
};

use crate::{
    api_server::error::RequestError,
    election::Leadership,
    telemetry::{outages, words},
    write::Leases,
};

/// How long the release may take, within the time that a process has to end.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(900);
/// The shortest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

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
        match released.unwrap_or(Err(RequestError::TimedOut(RELEASE_TIMEOUT))) {
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
            ElectionStep::Look => self.look().await,
            ElectionStep::Wait(until) => until,
            ElectionStep::Acquire | ElectionStep::Renew => match self.paused_until.filter(|until| now < *until) {
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
            Err(RequestError::Conflict | RequestError::Gone) => {
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
    async fn release(&mut self) -> Result<bool, RequestError> {
        loop {
            self.candidate.observe(self.leases.read().await?, Instant::now());
            let Some(lease) = self.candidate.release(Timestamp::now()) else { return Ok(false) };
            match self.leases.write(&lease).await {
                Err(RequestError::Conflict) => {}
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

    fn failed(&mut self, error: &RequestError) -> Instant {
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
pub(super) fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| names::LEASE.to_owned());
    // The one source of randomness in the standard library: its keys come from the system.
    let unique = RandomState::new().hash_one((std::process::id(), Instant::now()));
    format!("{host}_{unique:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_have_the_same_identity() {
        assert_ne!(identity(), identity());
    }
}
