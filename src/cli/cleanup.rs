//! `winpool cleanup`: takes winpool out of a cluster, after showing what goes.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Write},
    sync::Arc,
    time::Duration,
};

use kube::{Client, Config, ResourceExt};
use thiserror::Error;
use winpool_core::{
    api::names,
    plan::{
        Extent, Retirement,
        lease::{LEASE_DURATION, is_held},
    },
};

use crate::{
    apply::{Applier, Leases, WriteError},
    causes::with_causes,
    cleanup::{Cleaner, Findings, Leftover, Unreadable},
    index::Index,
    installation::{Held, Installation},
    leader::{Leadership, Seized},
    metrics::Metrics,
    operator,
};

use super::{
    Outcome,
    connect::{ConnectError, Connection},
    output::escape,
};

/// Names shown of each kind.
const SHOWN: usize = 20;
/// How long an operator that runs stands by: the whole of the cleanup, and the time to remove it.
const SEIZED: Duration = Duration::from_mins(10);
/// Where the manifests put winpool.
const NAMESPACE: &str = "winpool-system";
/// In a pod, its namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Take winpool's marks, finalizers and RuntimeClasses out of a cluster, after showing them.
///
/// WindowsPools and their definition stay, but nothing holds up their deletion any more. Exit code 0: nothing of
/// winpool's is left to take off; 2: there is something, and it was not to be done; 1: it could not be done.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would be taken off, and do nothing.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Which cluster.
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace of the operator; if not given, that of the pod that this runs in, or else winpool-system.
    #[arg(long, env = "WINPOOL_LEASE_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of the operator's ClusterRoleBinding and of what was installed with it.
    #[arg(long, env = "WINPOOL_INSTALLATION", default_value = Installation::DEFAULT_NAME)]
    pub installation: String,
}

/// Nothing, or not everything, was taken off.
#[derive(Debug, Error)]
pub enum Error {
    /// No cluster to talk to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster cannot be looked at.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The operator cannot be told to stand by.
    #[error(
        "cannot take the Lease {} in namespace {namespace}, which keeps an operator that runs from putting everything \
         back; nothing was done: {source}",
        names::LEASE
    )]
    Lease {
        /// Where it was looked for.
        namespace: String,
        /// Why not.
        #[source]
        source: WriteError,
    },
    /// Nobody can answer the question.
    #[error("there is no terminal to ask on; nothing was done. Look at what --dry-run shows, then run it with --yes")]
    NoTerminal,
    /// The terminal does not work.
    #[error("cannot write or read: {0}")]
    Terminal(#[from] io::Error),
    /// Something is left.
    #[error("not everything was taken off:\n{}\n{}", list(.0), remedy(.0))]
    Left(Vec<Leftover>),
    /// Taints are left that nobody can say of whose they are.
    #[error(
        "all but the taints above was taken off; take those off yourself that are winpool's, now that the nodes no \
         longer say so"
    )]
    Doubtful,
}

fn list(left: &[Leftover]) -> String {
    let more = left.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("and {more} more"));
    let lines = left.iter().take(SHOWN).map(ToString::to_string).chain(more);
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn remedy(left: &[Leftover]) -> &'static str {
    if left.iter().any(|left| matches!(left.why, Some(WriteError::Denied(_)))) {
        "What is refused needs another user or another policy; a node can be left out with the annotation \
         winpool.dev/ignore: \"true\". Then run this again."
    } else {
        "Run this again, once the API server answers and nothing else writes these objects."
    }
}

/// Runs the command for a person: shows, asks, does.
///
/// # Errors
/// When not everything could be taken off.
pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let config = arguments.connection.config().await?;
    let ask = || {
        if !io::stdin().is_terminal() {
            return Err(Error::NoTerminal);
        }
        Ok(asks_for_yes(&mut io::stdin().lock())?)
    };
    clean_up(config, &arguments, &mut io::stdout(), ask).await
}

fn asks_for_yes(answers: &mut impl BufRead) -> io::Result<bool> {
    eprint!("Take all of this off? [y/N] ");
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// The same on any cluster, with the text going to `out` and the question to `ask`.
///
/// # Errors
/// When not everything could be taken off.
pub async fn clean_up(
    config: Config,
    arguments: &Arguments,
    out: &mut (impl Write + Send),
    ask: impl FnOnce() -> Result<bool, Error>,
) -> Result<Outcome, Error> {
    let cluster = config.cluster_url.to_string();
    let client = operator::connect(config, None).map_err(ConnectError::from)?;
    let metrics = Arc::new(Metrics::new(Arc::new(Index::default())));
    let applier = |leadership| Applier::new(client.clone(), leadership, Arc::clone(&metrics));
    // Nothing is written through this one.
    let looker = Cleaner::new(client.clone(), applier(Leadership::alone()), Extent::Everything);
    let namespace = namespace(arguments);
    let installation = Installation::new(client.clone(), &arguments.installation, &namespace);

    let findings = looker.look().await?;
    let held = Box::pin(installation.held()).await.unwrap_or_else(|error| {
        let error = with_causes(&error);
        eprintln!("winpool: cannot see whether winpool itself is being removed: {}", escape(&error));
        Vec::new()
    });
    show(&cluster, &findings, &held, out)?;
    if findings.is_empty() && held.is_empty() {
        return Ok(Outcome::Done);
    }
    if arguments.dry_run || !(arguments.yes || ask()?) {
        return Ok(Outcome::Pending);
    }
    let doubtful = !findings.doubtful.is_empty();
    let alone = Box::pin(Alone::get(&client, &namespace)).await.map_err(|source| Error::Lease { namespace, source })?;
    let applier = applier(alone.leadership());
    let cleaner = Cleaner::new(client.clone(), applier.clone(), Extent::Everything);
    let mut left = Box::pin(cleaner.run(findings, &|line| eprintln!("{}", escape(&line)))).await?;
    if left.is_empty() {
        left = Box::pin(installation.let_go(&held, &applier)).await;
    }
    let operator_stands_by = Box::pin(alone.end()).await;
    if !left.is_empty() {
        return Err(Error::Left(left));
    }
    writeln!(out, "Done.")?;
    if operator_stands_by {
        let minutes = SEIZED.as_secs() / 60;
        writeln!(out, "An operator that still runs begins anew within {minutes} minutes: remove it now.")?;
    }
    if doubtful { Err(Error::Doubtful) } else { Ok(Outcome::Done) }
}

/// Nobody else writes: no operator undoes what is taken off.
struct Alone {
    /// `None` where no operator has ever stood for election.
    seized: Option<Seized>,
    /// Whether an operator led before.
    from_leader: bool,
}

impl Alone {
    async fn get(client: &Client, namespace: &str) -> Result<Self, WriteError> {
        let Some(lease) = Leases::new(client.clone(), namespace).read().await? else {
            return Ok(Self { seized: None, from_leader: false });
        };
        let from_leader = is_held(&lease);
        if from_leader {
            eprintln!("an operator runs: it is told to stand by, which takes {} s", LEASE_DURATION.as_secs());
        }
        let seized = Seized::take(client.clone(), namespace, SEIZED).await?;
        Ok(Self { seized: Some(seized), from_leader })
    }

    fn leadership(&self) -> Leadership {
        self.seized.as_ref().map_or_else(Leadership::alone, Seized::leadership)
    }

    /// Tells whether an operator that led before stands by, which it does until the Lease runs out.
    async fn end(self) -> bool {
        if let Some(seized) = self.seized.filter(|_| !self.from_leader) {
            // If that fails, it runs out by itself, or goes with its namespace.
            let _ = seized.release().await;
        }
        self.from_leader
    }
}

fn namespace(arguments: &Arguments) -> String {
    let of_pod = || std::fs::read_to_string(POD_NAMESPACE).ok();
    arguments.lease_namespace.clone().or_else(of_pod).unwrap_or_else(|| NAMESPACE.to_owned())
}

fn show(cluster: &str, findings: &Findings, held: &[Held], out: &mut impl Write) -> io::Result<()> {
    if findings.is_empty() && held.is_empty() {
        writeln!(out, "There is nothing of winpool's to take off in {cluster}.")?;
    } else {
        writeln!(out, "winpool's in {cluster}:")?;
    }
    show_nodes(findings, out)?;
    let (deleted, released): (Vec<_>, Vec<_>) =
        findings.classes.iter().partition(|(_, end)| matches!(end, Retirement::Delete));
    if !deleted.is_empty() {
        let names = deleted.iter().map(|(class, _)| class.name_any());
        writeln!(out, "\n{} RuntimeClass(es) to delete, used by no pod:\n  {}", deleted.len(), some(names))?;
    }
    if !released.is_empty() {
        writeln!(out, "\n{} RuntimeClass(es) that stay and lose winpool's labels:", released.len())?;
    }
    for (class, end) in released {
        if let Retirement::Release { why, .. } = end {
            writeln!(out, "  {}: {}", class.name_any(), escape(why))?;
        }
    }
    let (going, staying): (Vec<_>, Vec<_>) = findings.pools.iter().partition(|pool| pool.deletion_timestamp.is_some());
    for (pools, what) in [(staying, "that stay"), (going, "being deleted, which then go")] {
        if !pools.is_empty() {
            let names = pools.iter().map(|pool| pool.name.clone().unwrap_or_default());
            let (count, finalizer) = (pools.len(), names::CLEANUP);
            writeln!(out, "\n{count} WindowsPool(s) {what}, with the finalizer {finalizer}:\n  {}", some(names))?;
        }
    }
    if !held.is_empty() {
        writeln!(out, "\nwinpool itself, being deleted, which then goes:")?;
        for held in held {
            writeln!(out, "  {}", held.object())?;
        }
    }
    show_what_stays(findings, out)
}

fn show_nodes(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    if findings.nodes.is_empty() {
        return Ok(());
    }
    let names = findings.nodes.iter().map(|(node, _)| node.name().to_owned());
    writeln!(out, "\n{} Node(s) with winpool's labels and annotation:\n  {}", findings.nodes.len(), some(names))?;
    let mut taints: BTreeMap<String, usize> = BTreeMap::new();
    for taint in findings.nodes.iter().flat_map(|(_, plan)| plan.taints.iter().flat_map(|change| &change.removed)) {
        *taints.entry(taint.to_string()).or_default() += 1;
    }
    for (taint, count) in taints {
        writeln!(out, "  {count} with the taint {taint}, which winpool put on")?;
    }
    Ok(())
}

fn show_what_stays(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    if !findings.ignored.is_empty() {
        let (count, names) = (findings.ignored.len(), some(findings.ignored.iter().cloned()));
        writeln!(
            out,
            "\nLeft alone: {count} Node(s) with {}: \"true\", which keep their marks:\n  {names}",
            names::IGNORE
        )?;
    }
    if !findings.doubtful.is_empty() {
        writeln!(out, "\nLeft alone: taints that their node says are winpool's, but that no WindowsPool knows:")?;
    }
    for (node, taint) in findings.doubtful.iter().take(SHOWN) {
        let (key, effect) = (&taint.key, &taint.effect);
        writeln!(out, "  {taint}; if it is winpool's: kubectl taint nodes {node} {key}:{effect}-")?;
    }
    if let Some(more) = findings.doubtful.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more")?;
    }
    Ok(())
}

/// The first of these names, and how many there are besides.
fn some(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, yes) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no\n", false), ("yy\n", false)]
        {
            assert_eq!(asks_for_yes(&mut answer.as_bytes()).unwrap(), yes, "{answer:?}");
        }
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = |count: usize| (0..count).map(|number| format!("n{number}"));
        assert_eq!(some(names(3)), "n0, n1, n2");
        assert!(some(names(SHOWN)).ends_with(", n19"));
        assert!(some(names(SHOWN + 2)).ends_with(", n19 and 2 more"));
    }
}
