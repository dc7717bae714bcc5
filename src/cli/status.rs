//! `winpool status`: the state of a cluster's Windows nodes, RuntimeClasses and WindowsPools.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};
use winpool_core::{
    api::names::reason,
    explain::status::{BuildSummary, ClusterStatus, PoolSummary, SupportEnd, status},
    plan::State,
    words::count,
};

use super::{
    Common, Error, Outcome,
    cluster::{Cluster, Pods},
    live::{self, ReadError},
    output::{self, BAD, BOLD, DIM, GOOD, Table, Text, WARN},
    plan::snapshot,
};

/// Held workloads that the text names for each pool.
const NAMED: usize = 10;

/// Show the Windows nodes by build and state, the RuntimeClasses with their pods, the taints that winpool holds and for which
/// workloads, the writers that keep reverting winpool's changes, and which Windows version loses support next.
///
/// Reads the cluster, or manifests with -f. Exit code 0: winpool read the cluster, whatever its state; 1: an error.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  winpool status
  winpool status -o json | jq '.nodes'")]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
}

pub async fn run(Arguments { common }: Arguments) -> Result<Outcome, Error> {
    let (cluster, reverted) = match common.origin.files.as_slice() {
        [] => {
            let client = common.origin.connection.client().await?;
            (Cluster::live(&client).await?, reverted_nodes(&client).await?)
        }
        files => (Cluster::from_manifests(files)?, BTreeSet::new()),
    };
    let without_nodes = cluster.note_without_nodes().filter(|_| !common.origin.files.is_empty());
    let knows_pods = cluster.pods != Pods::NotGiven;
    let mut status = live::during("computing what the operator would do", || status(snapshot(cluster), &reverted));
    status.notes.extend(without_nodes);
    if !knows_pods {
        status.pods_without_class = None;
        status.runtime_classes.iter_mut().for_each(|class| class.pods = None);
    }
    output::print(common.output.format, &status, || text(&status))?;
    Ok(Outcome::Done)
}

/// Returns the nodes of which the operator's Events say that another writer keeps reverting its changes; none, with a note, if
/// Events cannot be listed.
async fn reverted_nodes(client: &Client) -> Result<BTreeSet<String>, ReadError> {
    let mut nodes = BTreeSet::new();
    let parameters = ListParams::default().fields(&format!("reason={},involvedObject.kind=Node", reason::CONTESTED));
    // Events about Nodes are in the namespace default.
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let keep = |event: Event| nodes.extend(event.involved_object.name);
    let listed = live::list("events", &events, parameters, keep).await;
    live::note_if_forbidden(listed, "nodes whose changes another writer reverts are not shown as contested")?;
    Ok(nodes)
}

fn text(status: &ClusterStatus) -> Text {
    let mut text = Text::new();
    if status.pools.is_empty() {
        text.styled("", WARN, "There is no WindowsPool, so winpool does nothing.");
    }
    for pool in &status.pools {
        pool_text(&mut text, pool);
    }
    text.gap();
    match status.nodes.values().sum::<usize>() {
        0 => text.styled("", BOLD, "There is no Windows node."),
        nodes => {
            let by_state = format!(": {}", states(&status.nodes));
            text.hanging("", "  ", BOLD, &count(nodes, "Windows node"), &by_state).table(&builds(&status.builds))
        }
    };
    if !status.runtime_classes.is_empty() {
        let mut table = Table::new(&["RUNTIMECLASS", "POOL", "STATE", "NODES", "PODS"]);
        for class in &status.runtime_classes {
            let pods = class.pods.map_or_else(|| "?".to_owned(), |pods| pods.to_string());
            let (pool, state) = (class.pool.as_deref().unwrap_or("-"), class.state.as_deref().unwrap_or("-"));
            table.row([&class.name, pool, state, &class.nodes.to_string(), &pods]);
        }
        text.gap().table(&table);
    }
    if let Some(pods) = status.pods_without_class.filter(|pods| *pods > 0) {
        let verb = if pods == 1 { "has" } else { "have" };
        text.paragraph("", &format!("{} on Windows nodes {verb} no RuntimeClass.", count(pods, "pod")));
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
    let mode = if pool.mode == "Enforce" { String::new() } else { format!(" ({})", pool.mode) };
    let head = format!("WindowsPool {}{mode}{is}", pool.name);
    text.hanging("", "  ", style, &head, &format!(" ({}): {}", pool.reason, pool.message));
    if !pool.held_taints.is_empty() {
        text.paragraph("  ", &format!("winpool holds {}, which these do not tolerate:", pool.held_taints.join(", ")));
    }
    for (workload, pods) in pool.held_for.iter().take(NAMED) {
        text.line(&format!("    {workload} ({})", count(*pods, "pod")));
    }
    let unnamed = pool.held_for.len().saturating_sub(NAMED);
    if unnamed > 0 {
        text.line(&format!("    and {unnamed} more"));
    }
    for problem in &pool.problems {
        let head = format!("{} {}", problem.reason, problem.object);
        text.hanging("  ", "    ", WARN, &head, &format!(": {}", problem.message));
    }
}

/// `3 converged, 1 held`, in the order of the states.
fn states(counts: &BTreeMap<String, usize>) -> String {
    let known = State::ALL.into_iter().map(State::as_str);
    let place = |state: &str| known.clone().position(|known| known == state).unwrap_or(usize::MAX);
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(state, _)| place(state));
    counts.iter().map(|(state, number)| format!("{number} {state}")).collect::<Vec<_>>().join(", ")
}

fn builds(builds: &[BuildSummary]) -> Table {
    let mut table = Table::new(&["BUILD", "VERSION", "SUPPORTED UNTIL", "NODES"]);
    for build in builds {
        let end = build.end_of_support.map_or_else(|| "unknown".to_owned(), |day| day.to_string());
        table.row([
            build.build.as_deref().unwrap_or("unknown"),
            build.version.as_deref().unwrap_or("unknown"),
            &end,
            &states(&build.nodes),
        ]);
    }
    table
}

fn support_text(text: &mut Text, end: &SupportEnd) {
    const YEAR: i32 = 365;
    let SupportEnd { product, nodes, day, days_left } = end;
    let when = match days_left.cmp(&0) {
        Ordering::Less => format!("lost support on {day}, {} ago", count(-days_left, "day")),
        Ordering::Equal => format!("loses support today, {day}"),
        Ordering::Greater => format!("loses support next, on {day}, in {}", count(*days_left, "day")),
    };
    let style = match days_left {
        ..0 => BAD,
        0..YEAR => WARN,
        _ => DIM,
    };
    text.styled("", style, &format!("{product} ({}) {when}.", count(*nodes, "node")));
}
