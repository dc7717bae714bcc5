//! The cluster of the guides with winpool at work, to try things by hand until it is stopped.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use winpool::telemetry::{self, LogFormat};
use winpool_e2e::scene::{self, Operator};
use winpool_e2e::{Cluster, Error, Process, Result, SimulatedNode};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    // Before the handlers exist a signal simply ends the process, and the guard cleans up.
    let cluster = Cluster::start().await?;
    scene::join(&cluster, scene::windows_servers().into_iter().chain([SimulatedNode::linux()])).await?;
    scene::install_crd(&cluster.client()).await?;
    if let Err(error) = telemetry::start(LogFormat::Text) {
        eprintln!("cluster: no log of the operator, because of RUST_LOG: {error}");
    }
    let mut operator = Operator::start(cluster.api_server().config()?);

    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    introduce(&cluster);
    tokio::select! {
        end = operator.ended() => {
            return end.and(Err(Error::OperatorEnded("nobody had told it to".to_owned())));
        }
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("stopping");
    operator.stop().await
}

/// Only the export line goes to standard output, so that a script can read it.
fn introduce(cluster: &Cluster) {
    let pids = cluster.processes().map(|process: &Process| process.pid().to_string());
    eprintln!(
        "\na Linux node and one each of Windows Server 2019, 2022 and 2025, simulated, run at {}",
        cluster.api_server().url()
    );
    eprintln!("the operator runs in this process, {}, and logs here", std::process::id());
    eprintln!("the control plane is processes {}", pids.join(" "));
    eprintln!("its logs are in {}", cluster.api_server().directory().display());
    eprintln!("Ctrl-C (or SIGTERM) ends and removes all of it\n\nin another terminal:\n");
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    eprintln!("kubectl get nodes\n\ndocs/guides/first-pool.md goes on from here\n");
}
