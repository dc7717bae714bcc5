//! The Lease in the hands of a command that has to be alone with the cluster.

use std::time::{Duration, Instant};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::Client;
use winpool_core::plan::lease::{LEASE_DURATION, RENEW_DEADLINE, held_by, is_held, released};

use crate::apply::{Leases, WriteError};

use super::{Leadership, elector::identity};

/// How often a Lease may change while it is seized.
const ATTEMPTS: usize = 10;

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
