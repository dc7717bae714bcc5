//! `winpool-operator cleanup`: removes winpool's changes from a cluster, after showing them.
//!
//! It takes the Lease, and then does in its own process what an operator that is uninstalled does.

mod found;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use found::{Found, list};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, Client, Config};
use thiserror::Error;
use winpool_client::causes::with_causes;
use winpool_client::error::{RequestError, Unreadable, in_time};
use winpool_client::kubeconfig::{Connection, Unusable};
use winpool_client::terminal::{Outcome, escape};
use winpool_core::api::names;
use winpool_core::election::{LEASE_DURATION, has_holder};

use crate::election::Seized;
use crate::leadership::Leadership;
use crate::operator;
use crate::telemetry::{self, LogFormat};
use crate::uninstall::InstallationObjects;
use crate::write::{Applier, Leases};

/// The time for which a running operator is paused. It suffices for the cleanup and for removing the operator.
const SEIZED: Duration = Duration::from_mins(10);
/// The same once all is done, if the operator is removed right after it. A new installation waits for it too.
const UNINSTALLED: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "winpool-system";
/// The file with the namespace of the pod that this runs in.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The time after the last write in which a running operator would restore something: it acts when its watches show the
/// write.
const SETTLE: Duration = Duration::from_secs(3);

/// The log lines of the command: what became of RuntimeClasses and pools, and what was refused.
const LOG: &str = "warn,winpool_operator::controllers::pool=info,kube_runtime=error,kube_client=off";

/// Remove winpool's labels, annotations, taints, finalizers and RuntimeClasses from a cluster, after showing them.
///
/// WindowsPools and the CRD stay; afterwards you can delete them. Everything of a pool in dry run or with deletionPolicy Retain
/// stays too. Exit code 0: nothing is left to remove; 2: something is left, and you declined or used --dry-run; 1: an error, or
/// an operator is still running, which would restore everything.
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
    #[error(
        "these are left:\n{}\nFor what the API server refuses, see the log above: run this as another user, change the policy, or \
         leave a node out with the annotation winpool.dev/ignore: \"true\". A running operator restores what was removed if its \
         Lease is not in namespace {namespace}, or if it runs with --leader-election=false: stop it. Then run this again.",
        list(.objects)
    )]
    Left { objects: Vec<String>, namespace: String },
    #[error(
        "everything is removed except the taints above; remove those of winpool yourself, because the nodes no longer record \
         them"
    )]
    Doubtful,
    #[error(
        "everything is removed, but an operator is running: it is paused for {} minutes and then restores everything. Stop it, \
         then run this again:\n  kubectl --namespace {namespace} scale deployment {installation} --replicas=0",
        SEIZED.as_secs() / 60
    )]
    StillRuns { namespace: String, installation: String },
}

/// Runs the command: shows what it would remove, asks, and removes it.
pub async fn run(arguments: Arguments) -> Result<Outcome, Box<dyn std::error::Error>> {
    telemetry::start(LogFormat::Text, LOG)?;
    let config = arguments.connection.config().await?;
    let ask = || {
        if !io::stdin().is_terminal() {
            return Err(CleanupError::NoTerminal);
        }
        Ok(asks_for_yes(&mut io::stdin().lock())?)
    };
    Ok(Box::pin(clean_up(config, &arguments, &mut io::stdout(), ask)).await?)
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
    let client = operator::connect(config.clone(), None).map_err(Unusable::from)?;
    let namespace = namespace(&client, arguments).await;
    let installation = InstallationObjects::new(client.clone(), &arguments.installation, &namespace);

    let found = Box::pin(Found::read(&client)).await?;
    let installed = Box::pin(installation.unreleased()).await.unwrap_or_else(|error| {
        let error = with_causes(&error);
        eprintln!("winpool: cannot read the objects of the installation: {}", escape(&error));
        Vec::new()
    });
    found.show(&cluster, &installed, out)?;
    // An operator may still start until it is uninstalled, and would change nodes.
    if found.is_empty() && installed.is_empty() && !arguments.uninstalling {
        return Ok(Outcome::Done);
    }
    if arguments.dry_run || !(arguments.yes || ask()?) {
        return Ok(Outcome::Pending);
    }
    let seize = Box::pin(seize(&client, &namespace)).await;
    let seized = seize.map_err(|source| CleanupError::Lease { namespace: namespace.clone(), source })?;
    let leadership = seized.as_ref().map_or_else(Leadership::alone, |seized| seized.leadership.clone());
    Box::pin(operator::uninstall(config, leadership.clone(), found.missing.clone(), SEIZED))
        .await
        .map_err(Unusable::from)?;
    tokio::time::sleep(SETTLE).await;
    let mut left: Vec<String> = Box::pin(Found::read(&client)).await?.objects().collect();
    let had_leader = seized.as_ref().is_some_and(|seized| seized.had_leader);
    let still_runs = had_leader && !arguments.uninstalling;
    if left.is_empty() {
        let applier = Applier::new(client, leadership);
        // An operator that keeps running needs its finalizers, so that it cleans up when it is removed.
        let refused = Box::pin(installation.release(&applier, |object| !still_runs || object.is_deleted())).await?;
        left.extend(refused.iter().map(ToString::to_string));
    }
    if let Some(seized) = seized {
        let wait = if arguments.uninstalling && left.is_empty() { UNINSTALLED } else { SEIZED };
        // During an uninstall, a replica may still run although none leads. If the write fails, the Lease expires, or is deleted
        // with its namespace.
        let _ = seized.release((had_leader || arguments.uninstalling).then_some(wait)).await;
    }
    if !left.is_empty() {
        return Err(CleanupError::Left { objects: left, namespace });
    }
    if still_runs {
        return Err(CleanupError::StillRuns { namespace, installation: arguments.installation.clone() });
    }
    writeln!(out, "Done.")?;
    if found.is_doubtful() { Err(CleanupError::Doubtful) } else { Ok(Outcome::Done) }
}

/// Takes the Lease, so that no operator restores what cleanup removes. `None` if there is none and it cannot be created: this user may
/// not, or its namespace is gone.
async fn seize(client: &Client, namespace: &str) -> Result<Option<Seized>, RequestError> {
    let lease = Leases::new(client.clone(), namespace).read().await?;
    if lease.as_ref().is_some_and(has_holder) {
        eprintln!("the Lease has a holder: operators stop writing within {} s", 2 * LEASE_DURATION.as_secs());
    }
    match Seized::take(client.clone(), namespace, SEIZED).await {
        Err(RequestError::Denied(_)) if lease.is_none() => Ok(None),
        seized => seized.map(Some),
    }
}

async fn namespace(client: &Client, arguments: &Arguments) -> String {
    let of_pod = || std::fs::read_to_string(POD_NAMESPACE).ok();
    if let Some(namespace) = arguments.lease_namespace.clone().or_else(of_pod) {
        return namespace;
    }
    Box::pin(namespace_of(client, &arguments.installation)).await.unwrap_or_else(|| NAMESPACE.to_owned())
}

/// The namespace of the account that this ClusterRoleBinding gives permissions to, if it is there and can be read.
async fn namespace_of(client: &Client, installation: &str) -> Option<String> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = in_time(bindings.get_opt(installation)).await.ok()??;
    binding.subjects.into_iter().flatten().find_map(|subject| subject.namespace)
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
