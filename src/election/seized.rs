//! The Lease, taken by a command that must be the only writer.

use std::time::{Duration, Instant};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::Client;
use winpool_client::error::RequestError;
use winpool_core::election::{LEASE_DURATION, RENEW_DEADLINE, claimed_by, has_holder, released};

use crate::write::Leases;

use super::{elector::identity, leadership::Leadership};

/// The number of attempts while others change the Lease.
const ATTEMPTS: usize = 10;

/// The pause between two reads of the Lease: half the pause between two renewals.
const POLL: Duration = Duration::from_secs(1);

/// The Lease, taken by force. No other process leads until it is released or expires.
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
    /// Takes the Lease `winpool` in this namespace from its holder, for `duration`, and returns when no other process
    /// can write any more. For a command that has to be the only writer for a while, such as `winpool-operator cleanup`.
    ///
    /// A process stops leading at the latest [`LEASE_DURATION`] after its last renewal. So if the Lease has a holder,
    /// this watches it for that long. A Lease that is not renewed meanwhile was left by a process that is gone. One
    /// that is renewed is taken at once, and this waits for [`LEASE_DURATION`] again. If the Lease has no holder, this
    /// does not wait.
    ///
    /// Running operators stay standby until `duration` is over, counted from when they saw it. All writes have to end
    /// before that; [`Seized::leadership`] ends then.
    ///
    /// # Errors
    /// Fails if the Lease cannot be read or written, with [`RequestError::Conflict`] if others keep writing it.
    pub async fn take(client: Client, namespace: &str, duration: Duration) -> Result<Self, RequestError> {
        let (leases, identity) = (Leases::new(client, namespace), identity());
        let (mut current, mut had_leader) = (leases.read().await?, false);
        let until = Instant::now() + LEASE_DURATION;
        let first = version(current.as_ref());
        while current.as_ref().is_some_and(has_holder) && Instant::now() < until {
            tokio::time::sleep(POLL).await;
            current = leases.read().await?;
            if version(current.as_ref()) != first {
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

    /// True if the Lease had a holder when it was taken.
    pub fn had_leader(&self) -> bool {
        self.had_leader
    }

    /// The leadership for an [`Applier`](crate::write::Applier).
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
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
