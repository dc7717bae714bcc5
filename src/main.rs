//! The command `winpool`.

use std::{net::SocketAddr, process::ExitCode};

use clap::{ArgAction, Parser, Subcommand};
use kube::Config;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use winpool::{
    Options,
    cli::{Outcome, cleanup, output},
    installation::Installation,
    telemetry::{self, LogFormat},
};

/// Makes Windows nodes safe to run beside Linux ones.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator.
    Run(Run),
    Cleanup(cleanup::Arguments),
    /// Print the CustomResourceDefinition.
    Crd,
    /// Print the version.
    Version,
}

#[derive(clap::Args)]
struct Run {
    /// Address of /metrics, /healthz and /readyz.
    #[arg(long, env = "WINPOOL_LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Nodes written at the same time; each takes one connection.
    #[arg(long, env = "WINPOOL_CONCURRENCY", default_value_t = Options::DEFAULT_CONCURRENCY,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Whether several replicas may run: only the one that holds the Lease writes.
    #[arg(long, env = "WINPOOL_LEADER_ELECTION", value_name = "true|false", default_value_t = true,
          action = ArgAction::Set)]
    leader_election: bool,
    /// Namespace of the Lease; the pod's own, or that of the kubeconfig's context, if not given.
    #[arg(long, env = "WINPOOL_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// Name of the operator's ClusterRoleBinding and of what was installed with it. When that is being deleted, the
    /// operator takes its marks off the cluster and ends.
    #[arg(long, env = "WINPOOL_INSTALLATION", default_value = Installation::DEFAULT_NAME)]
    installation: String,
    /// How log lines are written; `RUST_LOG` sets the level.
    #[arg(long, env = "WINPOOL_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

#[tokio::main]
async fn main() -> ExitCode {
    match execute(Cli::parse().command).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("winpool: {}", output::escape_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

async fn execute(command: Command) -> Result<Outcome, Box<dyn std::error::Error>> {
    match command {
        Command::Run(arguments) => run(arguments).await?,
        Command::Cleanup(arguments) => return Ok(cleanup::run(arguments).await?),
        Command::Crd => print!("{}", winpool::crd_yaml()?),
        Command::Version => println!("winpool {}", env!("CARGO_PKG_VERSION")),
    }
    Ok(Outcome::Done)
}

async fn run(arguments: Run) -> Result<(), Box<dyn std::error::Error>> {
    telemetry::start(arguments.log_format)?;
    let config = Config::infer().await?;
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn({
        let stop = stop.clone();
        async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.cancel();
        }
    });
    let options = Options {
        listen: Some(arguments.listen),
        concurrency: arguments.concurrency,
        leader_election: arguments.leader_election,
        lease_namespace: arguments.lease_namespace,
        installation: Some(arguments.installation),
        ..Options::default()
    };
    Ok(winpool::run(config, options, stop).await?)
}
