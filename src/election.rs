//! Leader election: of several processes, only the leader writes to the cluster.
//!
//! [`Elector`] acquires and renews a Lease, as [`winpool_core::election`] decides. It shares [`Leadership`] with the
//! rest of the process: the term in which this process leads, and its end. A term ends by itself when no renewal is
//! accepted, and at once when another process holds the Lease.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use winpool_client::causes::shortened;
use winpool_client::error::{RequestError, timed_out};
use winpool_client::watches;
use winpool_core::api::names;
use winpool_core::election::{
    Candidate, ElectionStep, LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, Term, claimed_by, has_holder, released,
};
use winpool_core::plan::attempt::{Attempt, FAILED, Pauses, with_jitter};

use crate::leadership::{CLEANUP_BUDGET, Leadership};
use crate::telemetry::outages;
use crate::write::Leases;

/// The time limit for the release, within the time that a process has to end.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(900);
/// The pauses after a request that failed.
const PAUSES: Pauses = Pauses { longest: RETRY_PERIOD, ..FAILED };

/// A candidate, for as long as it runs.
pub struct Elector {
    leases: Leases,
    candidate: Candidate,
    term: watch::Sender<Option<Term>>,
    events: BoxStream<'static, watcher::Result<Option<Lease>>>,
    attempt: Attempt,
    /// True if the last request failed, so that a failure is logged once.
    failing: bool,
}

impl Elector {
    /// Creates a candidate for the Lease `winpool` in this namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        let leases = Leases::new(client, namespace);
        let events = watch(&leases);
        Self {
            leases,
            candidate: Candidate::new(identity()),
            term: watch::Sender::new(None),
            events,
            attempt: Attempt::default(),
            failing: false,
        }
    }

    pub fn leadership(&self) -> Leadership {
        Leadership(self.term.subscribe())
    }

    /// Runs until `resign` is cancelled, and then releases the Lease. If the future is dropped before, the Lease has
    /// to expire. Returns early, and true, if the API server's history went back. A process that leads when `uninstalled` is
    /// cancelled goes on leading until it has cleaned up, even if its Lease is deleted.
    pub async fn run(mut self, resign: CancellationToken, uninstalled: CancellationToken) -> bool {
        while !self.candidate.history_went_back() {
            let next = tokio::select! {
                biased;
                () = resign.cancelled() => break,
                next = self.step() => next,
            };
            tokio::select! {
                biased;
                () = resign.cancelled() => break,
                () = uninstalled.cancelled(), if self.term.borrow().is_some() => {
                    let until = Instant::now() + CLEANUP_BUDGET;
                    self.term.send_modify(|term| *term = term.map(|term| Term { until, ..term }));
                    return false;
                }
                event = self.events.next() => if let Some(Ok(lease)) = event {
                    self.candidate.notice(lease, Instant::now());
                },
                () = sleep_until(next.into()) => {}
            }
        }
        self.term.send_replace(None);
        let released = tokio::time::timeout(RELEASE_TIMEOUT, self.release()).await;
        match released.unwrap_or(Err(timed_out(RELEASE_TIMEOUT))) {
            Ok(true) => tracing::info!("Lease released"),
            Ok(false) => {}
            Err(error) => tracing::warn!(error = shortened(&error), "Lease not released; if it is held, it expires"),
        }
        self.candidate.history_went_back()
    }

    /// Takes the next step, and returns the time of the one after it.
    async fn step(&mut self) -> Instant {
        let now = Instant::now();
        match self.candidate.next(now) {
            ElectionStep::Read => self.read_lease().await,
            ElectionStep::Wait(until) => until,
            ElectionStep::Acquire | ElectionStep::Renew => match self.attempt.pause(now) {
                Some(((), until)) => *until,
                None => self.claim().await,
            },
        }
    }

    async fn read_lease(&mut self) -> Instant {
        let now = match self.leases.read().await {
            Ok(lease) => {
                let now = Instant::now();
                self.candidate.observe(lease, now);
                // If the Lease has to be written next, only that shows if access works.
                if matches!(self.candidate.next(now), ElectionStep::Wait(_)) {
                    self.works();
                }
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
                self.attempt = Attempt::default();
                self.publish();
                now
            }
            // The Lease has changed: its holder has to be known at once.
            Err(RequestError::Conflict | RequestError::Gone) => {
                self.candidate.doubt();
                self.pause();
                if !was_holder {
                    // The watch should have reported that. It may be broken without an error.
                    self.events = watch(&self.leases);
                }
                self.read_lease().await
            }
            Err(error) => {
                // The request may have been accepted nevertheless.
                self.candidate.doubt();
                self.failed(&error)
            }
        }
    }

    /// True if there was something to release. The Lease is read first, and again if it changed, because a
    /// write in progress may have been accepted.
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
        let (now, identity) = (Instant::now(), &self.candidate.identity);
        now + self.attempt.failed((), |failures| with_jitter(PAUSES.after(failures), identity, failures), now)
    }

    fn failed(&mut self, error: &RequestError) -> Instant {
        if !std::mem::replace(&mut self.failing, true) {
            let namespace = &self.leases.namespace;
            tracing::warn!(
                error = shortened(error),
                namespace,
                "no access to the Lease {}, without which this process cannot lead; trying again (it needs the permissions \
                 get, list, watch, create and update for leases in that namespace)",
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

fn watch(leases: &Leases) -> BoxStream<'static, watcher::Result<Option<Lease>>> {
    watches::object(leases.api.clone(), names::LEASE).inspect(outages("Lease")).boxed()
}

/// The pod's name and a random number, so that two processes of the same pod differ.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| names::LEASE.to_owned());
    // The one source of randomness in the standard library: the system chooses its keys.
    let unique = RandomState::new().hash_one((std::process::id(), Instant::now()));
    format!("{host}_{unique:016x}")
}

// The Lease, taken by a command that must be the only writer.

/// The number of attempts while others change the Lease.
const ATTEMPTS: usize = 10;

/// The pause between two reads of the Lease: half the pause between two renewals.
const POLL: Duration = Duration::from_secs(1);

/// The Lease, taken by force. No other process leads until it is released or expires.
pub struct Seized {
    leases: Leases,
    lease: Lease,
    /// That of an [`Applier`](crate::write::Applier).
    pub leadership: Leadership,
    /// True if the Lease had a holder when it was taken.
    pub had_leader: bool,
}

impl Seized {
    /// Takes the Lease `winpool` in this namespace from its holder, for `duration`, and returns when no other process
    /// can write any more. For a command that has to be the only writer for a while, such as `winpool-operator cleanup`.
    ///
    /// A process stops leading at the latest [`LEASE_DURATION`] after its last renewal. So if the Lease has a holder,
    /// this watches it for that long. A Lease that is not renewed meanwhile was left by a process that is gone. One
    /// that is renewed is taken at once, and this waits for [`LEASE_DURATION`] again. If the Lease has no holder, this
    /// does not wait.
    ///
    /// Running operators stay standby until `duration` is over, counted from when they saw it. All writes have to end
    /// before that; `leadership` ends then.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read or written, with [`RequestError::Conflict`] if others keep writing it.
    pub async fn take(client: Client, namespace: &str, duration: Duration) -> Result<Self, RequestError> {
        let (leases, identity) = (Leases::new(client, namespace), identity());
        let (mut current, mut had_leader) = (leases.read().await?, false);
        let until = Instant::now() + LEASE_DURATION;
        let first = current.as_ref().and_then(ResourceExt::resource_version);
        while current.as_ref().is_some_and(has_holder) && Instant::now() < until {
            tokio::time::sleep(POLL).await;
            current = leases.read().await?;
            if current.as_ref().and_then(ResourceExt::resource_version) != first {
                had_leader = current.as_ref().is_some_and(has_holder);
                break;
            }
        }
        for _ in 0..ATTEMPTS {
            let sent = Instant::now();
            let claim = claimed_by(current.unwrap_or_default(), &identity, duration, Timestamp::now());
            let lease = match leases.write(&claim).await {
                Ok(lease) => lease,
                Err(RequestError::Conflict | RequestError::Gone) => {
                    current = leases.read().await?;
                    had_leader |= current.as_ref().is_some_and(has_holder);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if had_leader {
                tracing::info!("waiting until the previous leader has stopped, {} s", LEASE_DURATION.as_secs());
                tokio::time::sleep(LEASE_DURATION).await;
            }
            let leadership =
                Leadership::until(sent + duration.saturating_sub(LEASE_DURATION.saturating_sub(RENEW_DEADLINE)));
            return Ok(Self { leases, lease, leadership, had_leader });
        }
        Err(RequestError::Conflict)
    }

    /// Releases the Lease, so that the next process can lead, at once or after this time.
    pub async fn release(self, wait: Option<Duration>) -> Result<(), RequestError> {
        let (lease, now) = (self.lease, Timestamp::now());
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let lease = match wait {
            Some(wait) => claimed_by(lease, &holder, wait, now),
            None => released(lease, now),
        };
        self.leases.write(&lease).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::telemetry::LogFormat;
    use crate::telemetry::tests::Lines;

    /// Answers like an API server in which the namespace of the Lease does not exist, and counts the attempts to create
    /// the Lease.
    fn without_namespace(attempts: watch::Sender<usize>) -> Client {
        let answer = move |request: Request<Body>| {
            let attempts = attempts.clone();
            async move {
                let missing = match (request.method(), request.uri().query().unwrap_or_default()) {
                    (&Method::POST, _) => {
                        attempts.send_modify(|count| *count += 1);
                        "namespaces \"nowhere\" not found"
                    }
                    (_, query) if query.contains("fieldSelector") => std::future::pending().await,
                    _ => "leases.coordination.k8s.io \"winpool\" not found",
                };
                let status = json!({"kind": "Status", "status": "Failure", "message": missing, "reason": "NotFound", "code": 404});
                Ok::<_, kube::Error>(
                    Response::builder().status(404).body(Body::from(status.to_string().into_bytes())).unwrap(),
                )
            }
        };
        Client::new(service_fn(answer), "default")
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_created_is_reported_once_with_the_reason() {
        let (lines, _guard) = Lines::record(LogFormat::Text);
        let attempts = watch::Sender::new(0);
        let elector = Elector::new(without_namespace(attempts.clone()), "nowhere");
        tokio::select! {
            _ = elector.run(CancellationToken::new(), CancellationToken::new()) => unreachable!("nobody asks it to resign"),
            attempted = async { attempts.subscribe().wait_for(|count| *count == 3).await.map(drop) } => attempted.unwrap(),
        }
        let text = lines.text();
        assert_eq!(text.matches("no access to the Lease").count(), 1, "{text}");
        assert!(text.contains("namespace nowhere does not exist") && !text.contains("works again"), "{text}");
    }

    #[test]
    fn no_two_processes_have_the_same_identity() {
        assert_ne!(identity(), identity());
    }
}
