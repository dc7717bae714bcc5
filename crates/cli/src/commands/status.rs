//! `winpool status`: the state of a cluster's Windows nodes, RuntimeClasses and WindowsPools.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::jiff::civil::Date;
use winpool_analysis::explain::installation::{Installation, InstallationState};
use winpool_analysis::explain::status::{BuildSummary, ClusterStatus, NO_POOL, PoolSummary, SupportEnd, status};
use winpool_client::terminal::Outcome;
use winpool_core::api::names::reason;
use winpool_core::plan::nodes::assessment::NodeState;
use winpool_core::words::{count, joined};

use crate::Error;
use crate::commands::options::{AllNamespaces, Common};
use crate::print::forecast::{daemon_sets_text, parts, parts_text, problem_text, tolerations_text};
use crate::print::notes::notes_text;
use crate::print::text::{BAD, BOLD, DIM, GOOD, Table, Text, WARN};
use crate::print::{output, progress};
use crate::read::assume::Assume;
use crate::read::forecast::snapshot;
use crate::read::gaps::Lacks;
use crate::read::installation;
use crate::read::live::{self, ReadError};
use crate::read::view::{self, Seen, WITHOUT_NODES, WITHOUT_POOLS};

/// `DaemonSets` that hold taints, as many as the text names for each pool.
const NAMED: usize = 10;

/// Show if winpool is installed and works, and the state of the Windows nodes, RuntimeClasses and taints.
///
/// Shows the nodes by build and state, the RuntimeClasses with their pods, held taints with each DaemonSet that would make no
/// pods because of them, other writers that keep reverting winpool's changes, and the next end of support. The states are those that the
/// pools report; if a pool reports nothing yet, and with --assume, winpool computes what the operator would do. Reads the cluster, or
/// manifests with -f. Exit code 0: winpool is installed and works, whatever the state of the nodes; 2: it is not installed
/// or does not work, the manifests have no nodes or no WindowsPool, or you may not list what the answer needs; 1: an error, or a part of the manifests cannot be read.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  winpool status
  winpool status -o json | jq '.nodesByState'")]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub all: AllNamespaces,
}

pub async fn run(Arguments { common, assume, .. }: Arguments) -> Result<Outcome, Error> {
    let mut installed = None;
    let mut lacks = Lacks::default();
    let is_assumed = assume.is_wanted();
    let seen = match common.origin.files.as_slice() {
        [] => {
            let client = live::client(&common.origin.connection).await?;
            installed = installation::read(&client, &mut lacks).await?;
            let mut seen = match view::state(&client, is_assumed).await {
                // There is no pool to read. The installation says so, with what to do.
                Err(ReadError::NoDefinition) if installed.is_some() => {
                    let status =
                        ClusterStatus { installation: installed, notes: lacks.notes, ..ClusterStatus::default() };
                    output::print(common.output.format, &status, || {
                        let mut text = installation_text(&status);
                        notes_text(&mut text, &status.notes);
                        text
                    })?;
                    return Ok(Outcome::Pending);
                }
                seen => seen?,
            };
            seen.gaps.add(lacks.gaps);
            seen
        }
        files => Seen::decisions_in(files)?,
    };
    let Seen { mut view, gaps } = seen;
    let [knows_nodes, knows_pools] = [view.nodes.known().is_some(), view.pools.known().is_some()];
    let without_pools = (!knows_pools).then(|| WITHOUT_POOLS.to_owned());
    let missing = (!knows_nodes).then(|| WITHOUT_NODES.to_owned()).into_iter().chain(without_pools);
    let assumed = assume.note(&mut view)?;
    let mut status = progress::during("computing the status", || status(&snapshot(view), is_assumed))?;
    status.notes = assumed.into_iter().chain(status.notes).chain(missing).chain(lacks.notes).collect();
    let is_broken = installed.as_ref().is_some_and(|installation| installation.state != InstallationState::Healthy);
    status.installation = installed;
    output::print(common.output.format, &status, || text(&status, knows_nodes, knows_pools))?;
    let is_known = knows_nodes && knows_pools;
    Ok(gaps.outcome(if is_broken || !is_known { Outcome::Pending } else { Outcome::Done }))
}

/// The state of the installation, if it is known.
fn installation_text(status: &ClusterStatus) -> Text {
    let mut text = Text::new();
    if let Some(installation) = &status.installation {
        show(&mut text, installation);
    }
    text
}

/// Adds the state of the installation.
fn show(text: &mut Text, installation: &Installation) {
    match installation.state {
        InstallationState::Missing => {
            text.styled("", BAD, "winpool is not installed in this cluster:");
        }
        InstallationState::Broken => {
            text.styled("", BAD, "The installation of winpool does not work:");
        }
        InstallationState::Healthy => healthy(text, installation),
    }
    for problem in &installation.problems {
        text.paragraph("  ", &problem.problem).paragraph("    ", &problem.remedy);
    }
}

fn healthy(text: &mut Text, installation: &Installation) {
    let Installation { namespace, image, replicas, ready, leader, .. } = installation;
    let leads = leader.as_ref().map(|leader| format!("; {leader} leads")).unwrap_or_default();
    let runs = match namespace {
        Some(namespace) => {
            let of = image.as_ref().map(|image| format!(" ({image})")).unwrap_or_default();
            format!(" in the namespace {namespace}{of}: {ready} of {} ready{leads}.", count(*replicas, "replica"))
        }
        None => format!(", but not as a Deployment in this cluster{leads}."),
    };
    text.hanging("", "  ", GOOD, "winpool runs", &runs);
}

fn text(status: &ClusterStatus, knows_nodes: bool, knows_pools: bool) -> Text {
    let mut text = installation_text(status);
    if status.installation.is_some() {
        text.gap();
    }
    if status.pools.is_empty() && knows_pools {
        text.styled("", WARN, NO_POOL);
    }
    for pool in &status.pools {
        pool_text(&mut text, pool);
    }
    match status.nodes_by_state.values().sum::<usize>() {
        0 if !knows_nodes => {}
        0 => drop(text.gap().styled("", BOLD, "There is no Windows node.")),
        nodes => {
            let by_state = format!(": {}", states(&status.nodes_by_state));
            text.gap().hanging("", "  ", BOLD, &count(nodes, "Windows node"), &by_state).table(&builds(&status.builds));
        }
    }
    if !status.runtime_classes.is_empty() {
        let mut table = Table::new(&["RUNTIMECLASS", "POOL", "STATE", "SELECTS", "PODS"]);
        for class in &status.runtime_classes {
            let pods = class.pods.map_or_else(|| "?".to_owned(), |pods| pods.to_string());
            let (pool, state) = (class.pool.as_deref().unwrap_or("-"), class.state.as_deref().unwrap_or("-"));
            table.row([&class.name, pool, state, &count(class.node_count, "node"), &pods]);
        }
        text.gap().table(&table);
    }
    if status.pods_that_end > 0 {
        let is_one = status.pods_that_end == 1;
        let (verb, them, their) = if is_one { ("selects", "it", "its") } else { ("select", "them", "their") };
        let end = format!(" {verb} labels that {their} node does not have: the kubelet ends {them} when it starts.");
        text.hanging("", "", WARN, &count(status.pods_that_end, "pod"), &end);
    }
    if let Some(end) = &status.support_ends_next {
        text.gap();
        support_text(&mut text, end);
    }
    for note in &status.notes {
        text.gap().paragraph("", &format!("Note: {note}"));
    }
    text
}

fn pool_text(text: &mut Text, pool: &PoolSummary) {
    let (style, is) = match pool.ready.as_str() {
        "True" => (GOOD, " is ready"),
        "False" => (BAD, " is not ready"),
        _ => (WARN, ": Ready is Unknown"),
    };
    let is_dry_run = pool.reason == reason::DRY_RUN;
    let mode = if pool.mode == "Enforce" || is_dry_run { String::new() } else { format!(" ({})", pool.mode) };
    let (is, why) = if is_dry_run { ("", String::new()) } else { (is, format!(" ({})", pool.reason)) };
    let head = format!("WindowsPool {}{mode}{is}", pool.name);
    let message = summary(pool).unwrap_or_else(|| pool.message.clone());
    let mut parts = parts(&message);
    text.hanging("", "  ", style, &head, &format!("{why}: {}", parts.next().unwrap_or_default()));
    parts_text(text, parts);
    if !pool.held_for.is_empty() {
        let holds = if pool.mode == "DryRun" { "would hold" } else { "holds" };
        let taints = pool.held_taints.join(", ");
        text.paragraph(
            "  ",
            &format!("winpool {holds} {taints}, because with it these DaemonSets would make no pods:"),
        );
    }
    daemon_sets_text(text, pool.held_for.iter().take(NAMED));
    let unnamed = pool.held_for.len().saturating_sub(NAMED);
    if unnamed > 0 {
        text.line(&format!("    and {unnamed} more"));
    }
    if !pool.held_for.is_empty() {
        tolerations_text(text, &pool.held_taints);
    }
    if !pool.helped_workloads.is_empty() {
        let names = joined(pool.helped_workloads.iter().map(|workload| &workload.name));
        text.paragraph(
            "  ",
            &format!("winpool added the toleration to pods of {names}; write it into the pod templates"),
        );
    }
    if let Some(failing) = &pool.failing_pods {
        text.hanging("  ", "    ", WARN, "WorkloadsHealthy", &format!(": {failing}"));
    }
    for problem in &pool.problems {
        problem_text(text, problem);
    }
}

/// Returns why the pool is not ready, if the text names the details below: `1 taint held for 5 DaemonSets, 1 RuntimeClass in
/// conflict`.
fn summary(pool: &PoolSummary) -> Option<String> {
    if ![reason::DAEMON_SETS_NOT_TOLERATING, reason::CLASS_CONFLICT].contains(&pool.reason.as_str()) {
        return None;
    }
    let (taints, sets) = (pool.held_taints.len(), pool.held_for.len());
    let held = (sets > 0).then(|| format!("{} held for {}", count(taints, "taint"), count(sets, "DaemonSet")));
    let conflicts = pool.problems.iter().filter(|problem| problem.reason == reason::CLASS_CONFLICT).count();
    let conflicts = (conflicts > 0).then(|| format!("{} in conflict", count(conflicts, "RuntimeClass")));
    let parts: Vec<String> = held.into_iter().chain(conflicts).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `3 converged, 1 held`, in the order of the states.
fn states(counts: &BTreeMap<String, usize>) -> String {
    let states = NodeState::ALL.into_iter().map(NodeState::as_str);
    let place = |state: &str| states.clone().position(|candidate| candidate == state).unwrap_or(usize::MAX);
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(state, _)| place(state));
    counts.iter().map(|(state, number)| format!("{number} {state}")).collect::<Vec<_>>().join(", ")
}

fn builds(builds: &[BuildSummary]) -> Table {
    let mut table = Table::new(&["BUILD", "VERSION", "SUPPORT ENDS", "WINDOWS NODES"]);
    for build in builds {
        let or_unknown = |day: Option<Date>| day.map_or_else(|| "unknown".to_owned(), |day| day.to_string());
        let by_vendor = build.vendors.iter().map(|(vendor, day)| format!(", {vendor} {}", or_unknown(*day)));
        let end: String = [or_unknown(build.end_of_support)].into_iter().chain(by_vendor).collect();
        table.row([
            build.build.as_deref().unwrap_or("unknown"),
            build.version.as_deref().unwrap_or("unknown"),
            &end,
            &build.node_count.to_string(),
        ]);
    }
    table
}

fn support_text(text: &mut Text, end: &SupportEnd) {
    const YEAR: i32 = 365;
    let SupportEnd { product, node_count, by, day, days_left } = end;
    let when = match days_left.cmp(&0) {
        Ordering::Less => format!("ended {day}, {} ago", count(-days_left, "day")),
        Ordering::Equal => format!("ends today, {day}"),
        Ordering::Greater => format!("ends {day}, in {}", count(*days_left, "day")),
    };
    let style = match days_left {
        ..0 => BAD,
        0..YEAR => WARN,
        _ => DIM,
    };
    text.styled("", style, &format!("{product} ({}): {by}'s support {when}.", count(*node_count, "node")));
}
