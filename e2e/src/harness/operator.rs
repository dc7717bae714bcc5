//! The operator in the process of a test.

use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use kube::Config;
use tokio::runtime;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;
use winpool_core::plan::reconcile::Pauses;
use winpool_operator::Options;
use winpool_operator::telemetry::DIRECTIVES;

use crate::machine::wait::busy;
use crate::servers::api_server::ApiServer;

/// The limit for a regular stop.
const LIMIT: Duration = Duration::from_secs(10);

/// The options of operators in tests: one API server serves everything, so some pauses may be short.
pub fn options() -> Options {
    let short = Duration::from_millis(500);
    Options { pauses: Pauses { classes: short, ..Pauses::default() }, ..Options::default() }
}

/// The same without leader election.
pub fn alone() -> Options {
    Options { leader_election: false, ..options() }
}

/// The operator, running on a thread of this process with its own account.
///
/// At the latest when this is dropped it stops. A test fails if it does not end in time, or ends with an error.
pub struct Operator {
    stop: CancellationToken,
    /// Gets the result when it ends.
    result: mpsc::Receiver<Result<(), winpool_operator::Error>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Operator {
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

    pub fn start_with(config: Config, options: Options) -> Self {
        logs();
        let stop = CancellationToken::new();
        let run = winpool_operator::run(config, options, stop.clone());
        let (sender, result) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = sender.send(runtime.block_on(run));
        });
        Self { stop, result, thread: Some(thread) }
    }

    /// Stops it, while other tasks of the test go on.
    pub async fn stop(self) {
        self.stop.cancel();
        self.ended().await;
    }

    /// Waits until it ends by itself, without an error.
    pub async fn ended(self) {
        self.ended_within(LIMIT).await;
    }

    /// The same with another limit.
    pub async fn ended_within(mut self, limit: Duration) {
        tokio::task::spawn_blocking(move || self.join(limit).unwrap()).await.unwrap();
    }

    /// Waits until it ends by itself, with an error.
    pub async fn failed_within(mut self, limit: Duration) -> winpool_operator::Error {
        tokio::task::spawn_blocking(move || self.join(limit).unwrap_err()).await.unwrap()
    }

    fn join(&mut self, limit: Duration) -> Result<(), winpool_operator::Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let result = match self.result.recv_timeout(limit * busy()) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the operator does not end in time"),
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(()),
        };
        thread.join().expect("the operator does not panic");
        result
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop.cancel();
        if !thread::panicking() {
            self.join(LIMIT).unwrap();
        }
    }
}

/// Shows the operator's log when a test fails. `RUST_LOG` sets the level.
fn logs() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let filter: Targets = std::env::var("RUST_LOG").as_deref().unwrap_or(DIRECTIVES).parse().unwrap();
        tracing_subscriber::registry().with(layer().with_test_writer()).with(filter).init();
    });
}
