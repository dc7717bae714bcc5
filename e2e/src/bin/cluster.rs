//! A cluster to play with: two Linux nodes and three Windows ones, until it is stopped.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use winpool_e2e::{Cluster, Process, Result, SimulatedNode};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let cluster = Cluster::start().await?;
    join_nodes(&cluster).await?;
    introduce(&cluster);
    until_told_to_stop().await;
    eprintln!("stopping");
    drop(cluster);
    Ok(())
}

async fn join_nodes(cluster: &Cluster) -> Result<()> {
    let nodes = [
        SimulatedNode::linux().name("linux-a"),
        SimulatedNode::linux().name("linux-b"),
        SimulatedNode::windows("10.0.17763.6659").name("win-2019-a"),
        SimulatedNode::windows("10.0.20348.2655").name("win-2022-a"),
        SimulatedNode::windows("10.0.26100.4061").name("win-2025-a"),
    ];
    for node in nodes {
        let kubelet = node.join(&cluster.client()).await?;
        cluster.node_ready(kubelet.name()).await?;
    }
    Ok(())
}

/// The export line alone goes to standard output, so that a script can read it.
fn introduce(cluster: &Cluster) {
    let pids = cluster.processes().map(|process: &Process| process.pid().to_string());
    eprintln!("a cluster with 5 simulated nodes runs at {}", cluster.api_server().url());
    eprintln!("its logs are in {}", cluster.api_server().folder().display());
    eprintln!("its processes are {}", pids.join(" "));
    eprintln!("in another shell:\n");
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    eprintln!("\nCtrl-C (or SIGTERM) ends it and removes everything");
}

async fn until_told_to_stop() {
    // Without a handler the signal ends the process, and the guard does the rest.
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
