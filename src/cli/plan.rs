//! `winpool plan`: what the operator would do now, to a live cluster or to manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use anstyle::Style;
use k8s_openapi::{api::node::v1::RuntimeClass, jiff::Timestamp};
use serde_json::Value;
use winpool_core::{
    api::Mode,
    explain::{
        forecast::{Change, ClassForecast, Forecast, NodeForecast, PoolForecast, Snapshot, forecast},
        status::unread,
    },
    lint::{self, Facts, check_images},
    plan::{GuardedPool, owner, reconcile::Now},
    pod::Class,
    words::{count, yaml},
};

use super::{
    Common, Error, Outcome,
    cluster::{Cluster, Pods},
    live,
    output::{self, BAD, BOLD, DIM, GOOD, Text, WARN},
    resolve::Resolve,
};

/// Notes about images, at most.
const IMAGE_NOTES: usize = 20;
/// Names shown of nodes to which the same happens.
const SHOWN: usize = 5;

/// Show what the operator would change now, without changing anything.
///
/// Reads the cluster, or only manifests with -f: WindowsPools, Nodes, RuntimeClasses and Pods, such as the output of
/// `kubectl get nodes,runtimeclasses,windowspools -o yaml`. For a pool with `mode: DryRun` it shows what `mode: Enforce` would
/// change. Exit code 0: nothing to do; 2: changes are pending, a taint is held, or a pool has a problem; 1: an error.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  winpool plan
  winpool plan -f windowspool.yaml --live
  kubectl get nodes,runtimeclasses,windowspools -o yaml | winpool plan -f -")]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Plan the WindowsPools of -f against the cluster, together with the pools that it has.
    #[arg(long, requires = "files")]
    pub live: bool,
    #[command(flatten)]
    pub resolve: Resolve,
}

pub async fn run(Arguments { common, live, resolve }: Arguments) -> Result<Outcome, Error> {
    let origin = &common.origin;
    let mut cluster = match (origin.files.is_empty(), live) {
        (false, false) => Cluster::default(),
        _ => Cluster::live(&origin.connection.client().await?).await?,
    };
    if !origin.files.is_empty() {
        let manifests = Cluster::from_manifests(&origin.files)?;
        if manifests.pools.is_empty() {
            return Err(Error::NoPool);
        }
        for pool in &manifests.pools {
            pool.read()?;
        }
        if live {
            manifests.pools.into_iter().for_each(|pool| propose(&mut cluster.pools, pool));
        } else {
            cluster = manifests;
        }
    }
    let is_offline = !origin.files.is_empty() && !live;
    let without_nodes = cluster.note_without_nodes().filter(|_| is_offline);
    let image_notes = image_notes(&cluster, &resolve).await?;
    let mut forecast = live::during("computing what the operator would do", || of(cluster));
    forecast.summary.notes.extend(without_nodes.into_iter().chain(image_notes));
    output::print(common.output.format, &forecast, || text(&forecast))?;
    Ok(if is_done(&forecast) { Outcome::Done } else { Outcome::Pending })
}

/// Describes the workloads whose images do not run where their pods can be scheduled; empty unless registries are queried.
async fn image_notes(cluster: &Cluster, resolve: &Resolve) -> Result<Vec<String>, Error> {
    if !resolve.is_wanted() {
        return Ok(Vec::new());
    }
    let mut facts = Facts::none();
    cluster.nodes.iter().for_each(|node| facts.add_node(&node.seen));
    cluster.classes.iter().for_each(|class| facts.add_class(RuntimeClass::clone(class)));
    cluster.pools.iter().filter_map(|pool| pool.read().ok()).for_each(|pool| facts.add_pool(pool));
    let templates =
        || cluster.workloads.iter().filter(|(_, workload)| workload.controller.is_none() && !workload.is_over);
    let images = templates().flat_map(|(_, workload)| workload.template.images());
    let images = resolve.images(|| images.map(|(_, name)| name.to_owned()).collect()).await?;
    let mut facts = facts.complete();
    facts.add_images(images);
    let mut notes = Vec::new();
    for (kind, workload) in templates() {
        let template = lint::Workload::of_template(kind.as_str(), workload);
        let found = check_images(&template, &facts);
        notes.extend(found.into_iter().map(|found| format!("{}, {}: {}", found.object, found.field, found.message)));
    }
    let more = notes.len().saturating_sub(IMAGE_NOTES);
    notes.truncate(IMAGE_NOTES);
    if more > 0 {
        notes.push(format!("{more} more about images; winpool check --resolve-images shows all."));
    }
    Ok(notes)
}

/// Returns true if nothing would be written and no pool needs attention.
fn is_done(forecast: &Forecast) -> bool {
    forecast.is_empty() && forecast.summary.pools.iter().all(is_quiet)
}

fn is_quiet(pool: &PoolForecast) -> bool {
    pool.problems.is_empty() && pool.held_taints.is_empty()
}

/// Adds a proposed pool to those of the cluster, or replaces the pool with its name.
fn propose(pools: &mut Vec<GuardedPool>, proposed: GuardedPool) {
    let Some(existing) = pools.iter().position(|pool| pool.metadata.name == proposed.metadata.name) else {
        pools.push(proposed);
        return;
    };
    match (&mut pools[existing].pool, proposed.pool) {
        (Ok(existing), Ok(pool)) => existing.spec = pool.spec,
        (existing, pool) => *existing = pool,
    }
}

/// Returns what the operator would do to this cluster.
pub fn of(mut cluster: Cluster) -> Forecast {
    let in_dry_run = enforce(&mut cluster.pools);
    let note = match &cluster.pods {
        Pods::NotGiven if cluster.workloads.is_empty() => Some(
            "The manifests have neither pods nor workloads, so winpool does not know which workloads a taint \
             would make unschedulable. This plan assumes none. The operator checks them before it adds a taint."
                .to_owned(),
        ),
        _ => None,
    };
    let no_pool = cluster.pools.is_empty().then(|| "There is no WindowsPool, so winpool does nothing.".to_owned());
    let autoscalers = cluster.control_plane.autoscalers.clone();
    let snapshot = snapshot(cluster);
    let unread = unread(&snapshot);
    let outcome = forecast(snapshot);
    let mut forecast = outcome.forecast;
    if !autoscalers.templates.is_empty() {
        let of_pools = outcome.classes.iter().filter(|(_, class)| owner(class).is_some());
        let stories = of_pools.map(|(name, class)| autoscalers.explain(name, &Class::from(class.as_ref())));
        forecast.summary.scaling = stories.collect();
    }
    let dry = in_dry_run.iter().map(|pool| {
        format!("WindowsPool {pool} is in dry run: the operator writes what is shown here once it has mode: Enforce.")
    });
    forecast.summary.notes = no_pool.into_iter().chain(note).chain(unread).chain(dry).collect();
    for pool in &mut forecast.summary.pools {
        if in_dry_run.contains(&pool.name) {
            "DryRun".clone_into(&mut pool.mode);
        }
    }
    forecast
}

/// Sets all pools to Enforce, and returns the names of those in dry run.
pub(super) fn enforce(pools: &mut [GuardedPool]) -> BTreeSet<String> {
    let dry = pools.iter_mut().filter_map(|guarded| {
        let name = guarded.metadata.name.clone()?;
        let pool = guarded.pool.as_mut().ok().filter(|pool| pool.spec.mode == Mode::DryRun)?;
        pool.spec.mode = Mode::Enforce;
        Some(name)
    });
    dry.collect()
}

/// Converts the cluster to the input of decisions.
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
        other_nodes: cluster.other_nodes.into_iter().map(|node| node.seen.labels).collect(),
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
        let of_nodes = count(summary.nodes, "node");
        let line = format!("{} and {nodes} of {of_nodes} would be written.", count(classes, "RuntimeClass"));
        text.styled("", BOLD, &line);
    }
    summary.notes.iter().for_each(|note| {
        text.wrapped("", WARN, &format!("Note: {note}"));
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
    super::why::scaling(&mut text, &summary.scaling);
    text
}

/// Returns the reason why nothing would be written.
fn why_nothing(pools: &[PoolForecast]) -> (Style, String) {
    if !pools.iter().all(is_quiet) {
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
        text.wrapped("      ", DIM, &change.reason);
    }
    class.changes.iter().for_each(|change| change_text(text, change));
}

/// Prints nodes with the same changes as one group.
fn nodes_text(text: &mut Text, nodes: &[NodeForecast]) {
    let named = nodes.iter().map(|node| (format!("{:?}", node.changes), node.name.as_str(), node));
    for (node, names) in output::alike(named) {
        text.styled("  ", WARN, &format!("~ {}", output::some(&names, SHOWN)));
        changes_text(text, &node.changes);
    }
}

/// Prints the changes of a node, each with its reason.
pub(super) fn changes_text(text: &mut Text, changes: &[Change]) {
    for change in changes {
        change_text(text, change);
        text.wrapped("          ", DIM, &change.reason);
    }
}

fn change_text(text: &mut Text, Change { field, from, to, .. }: &Change) {
    match (from, to) {
        (Value::Null, to) => text.wrapped("      ", GOOD, &format!("+ {field}: {}", shown(to))),
        (from, Value::Null) => text.wrapped("      ", BAD, &format!("- {field}: {}", shown(from))),
        (from, to) => text.wrapped("      ", WARN, &format!("~ {field}: {} -> {}", shown(from), shown(to))),
    };
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| yaml(value), str::to_owned)
}
