//! The cluster of the guides with winpool installed, to try things by hand until it is stopped.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use winpool_e2e::error::{Error, Result};
use winpool_e2e::harness::host::HostNode;
use winpool_e2e::machine::assets::Component;
use winpool_e2e::machine::process::Process;
use winpool_e2e::scene;
use winpool_e2e::servers::cluster::{Cluster, Flags};

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config");

/// Nodes that renew their leases stay ready, and an image of one system does not start on nodes of the other.
const KWOK: [&str; 2] = [
    "--node-lease-duration-seconds=40",
    concat!("--config=", env!("CARGO_MANIFEST_DIR"), "/kwok/pod-of-another-system.yaml"),
];

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
    let programs = programs();
    let cluster = Cluster::start_with(Flags { kwok: &KWOK, ..Flags::default() }).await?;
    let _host = HostNode::join(&cluster, "linux", &programs.join("winpool-operator")).await;
    scene::join(&cluster, scene::windows_servers()).await?;
    for arguments in [
        &["apply", "-k", CONFIG][..],
        &["rollout", "status", "deployment/winpool", "--namespace=winpool-system", "--timeout=60s"],
    ] {
        Component::Kubectl.run(cluster.kubeconfig(), arguments).await?;
    }

    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    introduce(&cluster, &programs);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("stopping");
    Ok(())
}

/// The directory of this binary, which has winpool too.
fn programs() -> PathBuf {
    let binary = std::env::current_exe().unwrap_or_default();
    binary.parent().unwrap_or(Path::new("")).to_owned()
}

/// Only the export line goes to standard output, so that a script can read it.
fn introduce(cluster: &Cluster, programs: &Path) {
    let pids = cluster.processes().map(|process: &Process| process.pid().to_string());
    let directory = cluster.api_server().directory().display();
    eprintln!("\nThe cluster runs at {}:", cluster.api_server().url());
    eprintln!("  1 Linux node, and 1 node each of Windows Server 2019, 2022 and 2025, simulated");
    eprintln!("  winpool, installed from config/, in 2 pods on the Linux node");
    eprintln!("  logs of the control plane and of winpool: {directory}");
    eprintln!("  processes of the control plane: {}", pids.join(" "));
    eprintln!("Ctrl-C ends and removes all of it.\n\nRun this in another terminal; winpool is then on the PATH:\n");
    println!("export KUBECONFIG={} PATH={}:$PATH", cluster.kubeconfig().display(), programs.display());
    eprintln!("\nThen continue with docs/guides/first-pool.md.\n");
}
