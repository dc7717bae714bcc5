//! `winpool-operator cleanup`: removes winpool's changes from a cluster, after showing them.

pub mod cleaner;
mod list;
mod operators;
mod show;

use std::{
    io::{self, BufRead, IsTerminal, Write},
    sync::Arc,
    time::Duration,
};

use cleaner::{Cleaner, Leftover, LeftoverReason};
use kube::{Client, Config};
use list::list;
use operators::{SEIZED, commands_to_stop, namespace_of};
use show::show;
use thiserror::Error;
use winpool_client::{
    causes::with_causes,
    error::{RequestError, Unreadable},
    kubeconfig::{Connection, Unusable},
    terminal::{Outcome, escape},
};
use winpool_core::{
    api::names,
    election::{LEASE_DURATION, is_held},
};

use crate::{
    election::{Leadership, Seized},
    metrics::Metrics,
    nodes::SharedNodes,
    operator,
    uninstall::InstallationObjects,
    write::{Applier, Leases},
};

pub use operators::StillRuns;

/// The same once all is done, if the operator is removed right after it. A new installation waits for it too.
const UNINSTALLED: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "winpool-system";
/// The file with the namespace of the pod that this runs in.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The time after the last write in which a running operator would restore something: it acts when its watches show the
/// write.
const SETTLE: Duration = Duration::from_secs(3);

/// Remove winpool's labels, annotations, taints, finalizers and RuntimeClasses from a cluster, after showing them.
///
/// WindowsPools and the CRD stay; afterwards you can delete them. Exit code 0: nothing is left to remove; 2: something is left,
/// and you declined or used --dry-run; 1: an error, or an operator is still running, which would restore everything.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool-operator cleanup --dry-run
  winpool-operator cleanup --yes")]
pub struct Arguments {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what winpool would remove, and change nothing.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Allow a running operator, because it is removed right after this, as `helm uninstall` does.
    #[arg(long)]
    pub uninstalling: bool,
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace of the operator. If not set: the one of the pod that this runs in, then the one of the ServiceAccount in the
    /// ClusterRoleBinding, then winpool-system.
    #[arg(long, env = "WINPOOL_LEASE_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of the operator's ClusterRoleBinding and of the objects installed with it.
    #[arg(long, env = "WINPOOL_INSTALLATION", default_value = InstallationObjects::DEFAULT_NAME)]
    pub installation: String,
}

/// A cleanup that is incomplete or did not start.
#[derive(Debug, Error)]
pub enum CleanupError {
    #[error(transparent)]
    Connect(#[from] Unusable),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(
        "cannot take the Lease {} in namespace {namespace}, which pauses a running operator; nothing was changed: {source}",
        names::LEASE
    )]
    Lease {
        namespace: String,
        #[source]
        source: RequestError,
    },
    #[error("there is no terminal to ask on; nothing was changed. Run it with --dry-run, and then with --yes")]
    NoTerminal,
    #[error("cannot write or read: {0}")]
    Terminal(#[from] io::Error),
    #[error("winpool could not remove everything:\n{}\n{}", list(.0), remedy(.0))]
    Left(Vec<Leftover>),
    #[error("{0}")]
    StillRuns(StillRuns),
    #[error(
        "everything is removed except the taints above; remove those of winpool yourself, because the nodes no longer record \
         them"
    )]
    Doubtful,
}

fn remedy(left: &[Leftover]) -> &'static str {
    if left.iter().any(Leftover::is_denied) {
        "The API server refuses a part of this. Run it as another user, change the policy, or leave a node out with the \
         annotation winpool.dev/ignore: \"true\". Then run this again."
    } else {
        "Run this again, once the API server answers and nothing else writes these objects."
    }
}

/// Runs the command: shows what it would remove, asks, and removes it.
pub async fn run(arguments: Arguments) -> Result<Outcome, CleanupError> {
    let config = arguments.connection.config().await?;
    let ask = || {
        if !io::stdin().is_terminal() {
            return Err(CleanupError::NoTerminal);
        }
        Ok(asks_for_yes(&mut io::stdin().lock())?)
    };
    Box::pin(clean_up(config, &arguments, &mut io::stdout(), ask)).await
}

fn asks_for_yes(answers: &mut impl BufRead) -> io::Result<bool> {
    eprint!("Remove all of this? [y/N] ");
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Runs the command on the cluster of this configuration; writes the text to `out` and asks with `ask`.
pub async fn clean_up(
    config: Config,
    arguments: &Arguments,
    out: &mut (impl Write + Send),
    ask: impl FnOnce() -> Result<bool, CleanupError>,
) -> Result<Outcome, CleanupError> {
    let cluster = config.cluster_url.to_string();
    let client = operator::connect(config, None).map_err(Unusable::from)?;
    let metrics = Arc::new(Metrics::new(Arc::new(SharedNodes::default())));
    let applier = |leadership| Applier::new(client.clone(), leadership, Arc::clone(&metrics));
    let reader = Cleaner::new(client.clone(), applier(Leadership::alone()));
    let namespace = namespace(&client, arguments).await;
    let installation = InstallationObjects::new(client.clone(), &arguments.installation, &namespace);

    let managed = Box::pin(reader.find()).await?;
    let held = Box::pin(installation.held()).await.unwrap_or_else(|error| {
        let error = with_causes(&error);
        eprintln!("winpool: cannot read the objects of the installation: {}", escape(&error));
        Vec::new()
    });
    show(&cluster, &managed, &held, out)?;
    let nothing_found = managed.is_empty() && held.is_empty();
    if !nothing_found && (arguments.dry_run || !(arguments.yes || ask()?)) {
        return Ok(Outcome::Pending);
    }
    let mut still_runs = StillRuns { namespace: namespace.clone(), ..StillRuns::default() };
    if nothing_found {
        if !arguments.dry_run {
            still_runs.commands = commands(&client, arguments).await;
        }
        return if still_runs.is_empty() { Ok(Outcome::Done) } else { Err(CleanupError::StillRuns(still_runs)) };
    }
    let doubtful = !managed.doubtful.is_empty();
    let seized =
        Box::pin(seize(&client, &namespace)).await.map_err(|source| CleanupError::Lease { namespace, source })?;
    let had_leader = seized.as_ref().is_some_and(Seized::had_leader);
    let applier = applier(seized.as_ref().map_or_else(Leadership::alone, Seized::leadership));
    let cleaner = Cleaner::new(client.clone(), applier.clone());
    let mut left = Box::pin(cleaner.run(managed, &|line| eprintln!("{}", escape(&line)))).await?;
    if left.is_empty() {
        tokio::time::sleep(SETTLE).await;
        let found = Box::pin(reader.find()).await?;
        left.extend(found.objects().map(|object| Leftover { object, why: LeftoverReason::CameBack }));
    }
    (still_runs.came_back, left) = left.into_iter().partition(Leftover::came_back);
    still_runs.stands_by = had_leader && !arguments.uninstalling;
    still_runs.commands = commands(&client, arguments).await;
    if !held.is_empty() && left.is_empty() && still_runs.came_back.is_empty() {
        // An operator that keeps running needs its finalizers, so that it cleans up when it is removed.
        left = Box::pin(installation.release(&applier, |held| still_runs.is_empty() || held.is_deleted())).await?;
    }
    if let Some(seized) = seized {
        let wait = if arguments.uninstalling && left.is_empty() { UNINSTALLED } else { SEIZED };
        // If that fails, the Lease expires, or is deleted with its namespace.
        let _ = seized.release(had_leader.then_some(wait)).await;
    }
    if !left.is_empty() {
        return Err(CleanupError::Left(left));
    }
    if !still_runs.is_empty() {
        return Err(CleanupError::StillRuns(still_runs));
    }
    writeln!(out, "Done.")?;
    if doubtful { Err(CleanupError::Doubtful) } else { Ok(Outcome::Done) }
}

/// Returns the commands that stop installed operators; none if the user is uninstalling anyway.
async fn commands(client: &Client, arguments: &Arguments) -> Vec<String> {
    if arguments.uninstalling {
        return Vec::new();
    }
    Box::pin(commands_to_stop(client)).await.unwrap_or_else(|error| {
        let error = with_causes(&error);
        eprintln!("winpool: cannot find out if an operator is installed: {}", escape(&error));
        Vec::new()
    })
}

/// Takes the Lease, so that no operator restores what cleanup removes. `None` if no operator has ever created it.
async fn seize(client: &Client, namespace: &str) -> Result<Option<Seized>, RequestError> {
    let Some(lease) = Leases::new(client.clone(), namespace).read().await? else { return Ok(None) };
    if is_held(&lease) {
        eprintln!("the Lease is held: operators stop writing within {} s", 2 * LEASE_DURATION.as_secs());
    }
    Seized::take(client.clone(), namespace, SEIZED).await.map(Some)
}

async fn namespace(client: &Client, arguments: &Arguments) -> String {
    let of_pod = || std::fs::read_to_string(POD_NAMESPACE).ok();
    if let Some(namespace) = arguments.lease_namespace.clone().or_else(of_pod) {
        return namespace;
    }
    Box::pin(namespace_of(client, &arguments.installation)).await.unwrap_or_else(|| NAMESPACE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_confirm() {
        for (answer, yes) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no\n", false), ("yy\n", false)]
        {
            assert_eq!(asks_for_yes(&mut answer.as_bytes()).unwrap(), yes, "{answer:?}");
        }
    }
}
