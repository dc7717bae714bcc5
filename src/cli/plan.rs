//! `winpool plan`: what the operator would do now, to a live cluster or to manifests.

use std::{collections::BTreeMap, time::Instant};

use anstyle::Style;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use winpool_core::{
    api::{Problem, names::reason},
    explain::forecast::{Change, ClassForecast, Forecast, NodeForecast, PoolForecast, Snapshot, forecast},
    plan::reconcile::Now,
    words::count,
};

use super::{
    Common, Error, Outcome,
    cluster::{Cluster, Pods},
    output::{self, BAD, BOLD, DIM, GOOD, Text, WARN},
};

/// Names shown of nodes to which the same happens.
const SHOWN: usize = 5;

/// Show what the operator would do now, and write nothing.
///
/// Looks at the cluster, or with -f at manifests only: WindowsPools, Nodes, RuntimeClasses and Pods, as files or as what
/// `kubectl get nodes,runtimeclasses,windowspools -o yaml` prints. Exit code 0: nothing to do; 2: changes are pending;
/// 1: error.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// Where to look and how to print.
    #[command(flatten)]
    pub common: Common,
}

/// Runs the command.
///
/// # Errors
/// When it cannot be told what would be done.
pub async fn run(Arguments { common }: Arguments) -> Result<Outcome, Error> {
    let forecast = if common.origin.files.is_empty() {
        of(Cluster::live(&common.origin.connection.client().await?).await?)
    } else {
        let cluster = Cluster::from_manifests(&common.origin.files)?;
        if cluster.pools.is_empty() {
            return Err(Error::NoPool);
        }
        for pool in &cluster.pools {
            pool.read()?;
        }
        of(cluster)
    };
    output::print(common.output.format, &forecast, || text(&forecast))?;
    Ok(if forecast.is_empty() { Outcome::Done } else { Outcome::Pending })
}

/// What the operator would do to this cluster.
#[must_use]
pub fn of(cluster: Cluster) -> Forecast {
    let note = match &cluster.pods {
        Pods::NotGiven if cluster.workloads.is_empty() => Some(
            "The manifests have neither pods nor workloads, so it is not known who would become unschedulable by a \
             taint: this plan takes it that nobody would. The operator checks that before it puts a taint on."
                .to_owned(),
        ),
        Pods::Unreadable(words) => Some(format!("Pods cannot be listed, by you at least: {words}")),
        Pods::NotGiven | Pods::Listed(_) => None,
    };
    let no_pool = cluster.pools.is_empty().then(|| "There is no WindowsPool, so winpool does nothing.".to_owned());
    let mut forecast = forecast(snapshot(cluster)).forecast;
    forecast.summary.notes = no_pool.into_iter().chain(note).collect();
    forecast
}

/// The cluster as decisions see it.
#[must_use]
pub fn snapshot(cluster: Cluster) -> Snapshot {
    Snapshot {
        pools: cluster.pools,
        nodes: cluster.nodes.into_iter().map(|node| (node.name().to_owned(), node.seen)).collect(),
        classes: cluster.classes,
        pods: match cluster.pods {
            Pods::NotGiven => Ok(Vec::new()),
            Pods::Unreadable(words) => Err(words),
            Pods::Listed(pods) => Ok(pods),
        },
        other_nodes: cluster.other_nodes,
        workloads: cluster.workloads,
        unlisted: cluster.unlisted,
        control_plane: cluster.control_plane,
        now: Now { instant: Instant::now(), time: Timestamp::now() },
    }
}

fn text(forecast: &Forecast) -> Text {
    let (mut text, summary) = (Text::new(), &forecast.summary);
    if forecast.is_empty() {
        let (style, why) = why_nothing(&summary.pools);
        text.styled("", style, &why);
    } else {
        let (classes, nodes) = (summary.runtime_classes_to_change, summary.nodes_to_change);
        let classes = count(classes, "RuntimeClass");
        let line = format!("winpool would write {classes} and {nodes} of {}.", count(summary.nodes, "node"));
        text.styled("", BOLD, &line);
    }
    summary.notes.iter().for_each(|note| {
        text.styled("", WARN, &format!("Note: {note}"));
    });
    summary.pools.iter().for_each(|pool| pool_text(&mut text, pool));
    if !forecast.runtime_classes.is_empty() {
        text.gap().styled("", BOLD, "RuntimeClasses, first");
        forecast.runtime_classes.iter().for_each(|class| class_text(&mut text, class));
    }
    if !forecast.nodes.is_empty() {
        let after = if forecast.runtime_classes.is_empty() { "Nodes" } else { "Nodes, then" };
        text.gap().styled("", BOLD, after);
        nodes_text(&mut text, &forecast.nodes);
    }
    if !summary.silent_workloads.is_empty() {
        text.gap().paragraph(
            "",
            "These run on Windows nodes and say nowhere that they are for Windows (no os, RuntimeClass, selector or \
             affinity); a policy that takes such pods for Linux would strand them:",
        );
        workloads_text(&mut text, &summary.silent_workloads);
    }
    text
}

/// Nothing is written where all is right, but not only there.
fn why_nothing(pools: &[PoolForecast]) -> (Style, String) {
    let in_dry_run = || pools.iter().filter(|pool| pool.mode == "DryRun");
    let nodes: usize = in_dry_run().map(|pool| pool.would_change).sum();
    let problems = in_dry_run().flat_map(|pool| &pool.problems);
    let is_class = |problem: &&Problem| problem.reason == reason::WOULD_CHANGE && problem.object.kind == "RuntimeClass";
    let classes = problems.filter(is_class).count();
    if nodes + classes > 0 {
        let what = format!("{} and {}", count(classes, "RuntimeClass"), count(nodes, "node"));
        return (WARN, format!("The mode is DryRun; with mode: Enforce winpool would write {what}."));
    }
    if pools.iter().any(|pool| !pool.problems.is_empty() || !pool.held_taints.is_empty()) {
        return (WARN, "Nothing would be written; what needs attention is named below.".to_owned());
    }
    match pools {
        [] => (WARN, "Nothing would be written.".to_owned()),
        _ => (GOOD, "Nothing to do: everything is as it should be.".to_owned()),
    }
}

fn pool_text(text: &mut Text, pool: &PoolForecast) {
    let would = match pool.mode.as_str() {
        "DryRun" => "would be written if its mode were Enforce",
        _ => "to be written",
    };
    text.gap();
    text.styled("", BOLD, &format!("WindowsPool {}", pool.name));
    text.line(&format!("  {}; {}, {} {would}", pool.mode, count(pool.nodes, "node"), pool.would_change));
    let taints = pool.held_taints.join(", ");
    if !pool.held_taints.is_empty() {
        text.styled("  ", WARN, &format!("held: {taints}, as long as these do not tolerate it:"));
    } else if !pool.unschedulable.is_empty() {
        text.styled("  ", BAD, "taintPolicy is Always, so these would become unschedulable:");
    }
    workloads_text(text, &pool.unschedulable);
    for problem in &pool.problems {
        text.styled("  ", WARN, &format!("{} {}:", problem.reason, problem.object));
        text.paragraph("    ", &problem.message);
    }
}

fn workloads_text(text: &mut Text, workloads: &BTreeMap<String, usize>) {
    for (workload, pods) in workloads {
        text.line(&format!("    {workload} ({})", count(*pods, "pod")));
    }
}

fn class_text(text: &mut Text, class: &ClassForecast) {
    let (sign, style) = match class.action {
        "Create" => ("+", GOOD),
        "Delete" => ("-", BAD),
        _ => ("~", WARN),
    };
    text.styled("  ", style, &format!("{sign} {} ({})", class.name, class.action));
    if let Some(change) = class.changes.first() {
        text.styled("      ", DIM, &change.reason);
    }
    class.changes.iter().for_each(|change| change_text(text, change));
}

/// Nodes to which the same happens for the same reason stand together.
fn nodes_text(text: &mut Text, nodes: &[NodeForecast]) {
    let mut groups: Vec<(&NodeForecast, Vec<&str>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        let index = *known.entry(format!("{:?}", node.changes)).or_insert(groups.len());
        match groups.get_mut(index) {
            Some((_, names)) => names.push(&node.name),
            None => groups.push((node, vec![&node.name])),
        }
    }
    for (node, names) in groups {
        let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.styled("  ", WARN, &format!("~ {shown}{more}"));
        for change in &node.changes {
            change_text(text, change);
            text.styled("          ", DIM, &change.reason);
        }
    }
}

fn change_text(text: &mut Text, Change { field, from, to, .. }: &Change) {
    match (from, to) {
        (Value::Null, to) => text.styled("      ", GOOD, &format!("+ {field}: {}", shown(to))),
        (from, Value::Null) => text.styled("      ", BAD, &format!("- {field}: {}", shown(from))),
        (from, to) => text.styled("      ", WARN, &format!("~ {field}: {} -> {}", shown(from), shown(to))),
    };
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
