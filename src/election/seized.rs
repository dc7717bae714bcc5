//! The Lease in the hands of a command that has to be alone with the cluster.

use std::time::{Duration, Instant};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::Client;
use winpool_core::election::{LEASE_DURATION, RENEW_DEADLINE, held_by, is_held, released};

use crate::{
    api_server::error::RequestError,
    election::{Leadership, elector::identity},
    write::Leases,
};

/// How often a Lease may change while it is seized.
const ATTEMPTS: usize = 10;

/// How often it is looked whether a Lease is renewed: twice as often as a leader does that.
const LOOK: Duration = Duration::from_secs(1);

/// The Lease, taken by force: nobody else leads until it is released or its time is over.
pub struct Seized {
    leases: Leases,
    lease: Lease,
    leadership: Leadership,
    had_leader: bool,
}

fn version(lease: Option<&Lease>) -> Option<String> {
    lease.and_then(|lease| lease.metadata.resource_version.clone())
}

impl Seized {
    /// Takes the Lease `winpool` in this namespace from its holder, for `duration`, and returns when nobody else can
    /// write any more. For a command that has to be alone with the cluster for a while, such as one that cleans up.
    ///
    /// Nobody leads any more in any case [`LEASE_DURATION`] after the last renewal. So if somebody holds the Lease, this
    /// watches it for that long. One that is not renewed meanwhile is left over. One that is renewed is taken at once, and
    /// then this waits for [`LEASE_DURATION`] again. If nobody holds the Lease, this does not wait.
    ///
    /// Operators that run stay standby until `duration` is over since they saw it. What is written has to end before
    /// that; [`Seized::leadership`] sees to it.
    ///
    /// # Errors
    /// When the Lease cannot be read or written; [`RequestError::Conflict`] when others keep writing it.
    pub async fn take(client: Client, namespace: &str, duration: Duration) -> Result<Self, RequestError> {
        let (leases, identity) = (Leases::new(client, namespace), identity());
        let (mut current, mut had_leader) = (leases.read().await?, false);
        let until = Instant::now() + LEASE_DURATION;
        let first = version(current.as_ref());
        while current.as_ref().is_some_and(is_held) && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            current = leases.read().await?;
            if version(current.as_ref()) != first {
                had_leader = current.as_ref().is_some_and(is_held);
                break;
            }
        }
        for _ in 0..ATTEMPTS {
            let sent = Instant::now();
            let claim = held_by(current.unwrap_or_default(), &identity, duration, Timestamp::now());
            let lease = match leases.write(&claim).await {
                Ok(lease) => lease,
                Err(RequestError::Conflict | RequestError::Gone) => {
                    current = leases.read().await?;
                    had_leader |= current.as_ref().is_some_and(is_held);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if had_leader {
                tracing::info!("waiting until the leader before has ended, {} s", LEASE_DURATION.as_secs());
                tokio::time::sleep(LEASE_DURATION).await;
            }
            let leadership =
                Leadership::until(sent + duration.saturating_sub(LEASE_DURATION.saturating_sub(RENEW_DEADLINE)));
            return Ok(Self { leases, lease, leadership, had_leader });
        }
        Err(RequestError::Conflict)
    }

    /// Whether somebody led when it was taken.
    #[must_use]
    pub fn had_leader(&self) -> bool {
        self.had_leader
    }

    /// The right to write, for an [`Applier`](crate::write::Applier).
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Lets the next one lead.
    ///
    /// # Errors
    /// When the Lease cannot be written, or is not the one that was taken any more.
    pub async fn release(self) -> Result<(), RequestError> {
        self.leases.write(&released(self.lease, Timestamp::now())).await.map(|_| ())
    }
}
