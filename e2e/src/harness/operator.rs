//! The operator in the process of a test.

use std::{sync::Once, time::Duration};

use kube::Config;
use tracing_subscriber::{filter::Targets, fmt::layer, prelude::*};
use winpool::{Options, telemetry::DIRECTIVES};
use winpool_core::plan::reconcile::Pauses;

use super::{Account, guarded::guard};
use crate::{ApiServer, Cluster, scene};

/// The limit for a regular stop.
const LIMIT: Duration = Duration::from_secs(10);

/// The options of operators in tests: one API server serves everything, so some pauses may be short.
pub fn options() -> Options {
    let short = Duration::from_millis(500);
    Options { pauses: Pauses { listings: short, classes: short }, ..Options::default() }
}

/// The same without leader election.
pub fn alone() -> Options {
    Options { leader_election: false, ..options() }
}

/// The operator, running in this process with its own account.
pub struct Operator(scene::Operator);

impl Operator {
    /// Starts it on a cluster that has the CRD.
    pub async fn on(cluster: &Cluster) -> Self {
        let account = Account::create(cluster.api_server(), &cluster.client()).await;
        guard(cluster.api_server(), &cluster.client()).await;
        Self::start(account.config)
    }

    /// Starts it without leader election.
    pub fn start(config: Config) -> Self {
        Self::start_with(config, alone())
    }

    /// Starts it without leader election and with the pauses of an installation.
    pub fn unhurried(config: Config) -> Self {
        Self::start_with(config, Options { leader_election: false, ..Options::default() })
    }

    /// Starts it without leader election and with short pauses after refusals.
    pub fn impatient(config: Config) -> Self {
        Self::start_with(config, Options { patience: Duration::from_secs(2), ..alone() })
    }

    /// Starts it with leader election, as this administrator.
    pub fn elected(server: &ApiServer, user: &str) -> Self {
        Self::start_with(server.config_as(user, &["system:masters"]).unwrap(), options())
    }

    /// Starts it with these options.
    pub fn start_with(config: Config, options: Options) -> Self {
        logs();
        Self(scene::Operator::start_with(config, options))
    }

    /// Stops it.
    pub async fn stop(self) {
        in_time(LIMIT, self.0.stop()).await;
    }

    /// Waits until it ends by itself, without an error.
    pub async fn ended(self) {
        self.ended_within(LIMIT).await;
    }

    /// The same with another limit.
    pub async fn ended_within(mut self, limit: Duration) {
        in_time(limit, self.0.ended()).await;
    }
}

async fn in_time(limit: Duration, end: impl Future<Output = crate::Result<()>>) {
    tokio::time::timeout(limit, end).await.expect("the operator ends in time").unwrap();
}

/// Shows the operator's log when a test fails. `RUST_LOG` sets the level.
fn logs() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let filter: Targets = std::env::var("RUST_LOG").as_deref().unwrap_or(DIRECTIVES).parse().unwrap();
        tracing_subscriber::registry().with(layer().with_test_writer()).with(filter).init();
    });
}
