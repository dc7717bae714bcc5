//! `winpool plan`: what the operator would do now, to a live cluster or to manifests.

mod upgrade;

use std::collections::BTreeMap;

use anstyle::Style;
use winpool_analysis::explain::forecast::{
    ClassForecast, Effect, Forecast, NodeForecast, PoolForecast, WorkloadForecast, forecast_of,
};
use winpool_analysis::explain::scale;
use winpool_analysis::explain::status::{NO_POOL, unread};
use winpool_analysis::explain::upgrade::upgrade;
use winpool_analysis::finding::Finding;
use winpool_analysis::image::Images;
use winpool_analysis::lint::{Facts, check_images, check_spread};
use winpool_analysis::verdict::Asked;
use winpool_analysis::view::{Known, Policies, View, Workload};
use winpool_client::terminal::{self, Outcome, some};
use winpool_core::plan::classes::runtime_class::owner;
use winpool_core::pod::Class;
use winpool_core::words::count;
use winpool_simulation::Unfinished;

use crate::Error;
use crate::commands::options::{AllNamespaces, Common};
use crate::commands::why;
use crate::print::forecast::{change_text, changes_text, daemon_sets_text, pods_text, problem_text, tolerations_text};
use crate::print::text::{BAD, BOLD, DIM, GOOD, Text, WARN};
use crate::print::{output, progress};
use crate::read::against::Against;
use crate::read::assume::Assume;
use crate::read::forecast::{enforce, now};
use crate::read::gaps::Gaps;
use crate::read::origin::Origin;
use crate::read::registry::OptionsError;
use crate::read::resolve::Resolve;
use crate::read::view::{Seen, WITHOUT_NODES};

/// Notes about images, at most.
const IMAGE_NOTES: usize = 20;
/// Names shown of nodes to which the same happens.
const SHOWN: usize = 5;
/// Workloads shown to which the same happens.
const NAMED: usize = 20;

/// Show what the operator would change now, without changing anything.
///
/// Reads the cluster, or only manifests with -f: WindowsPools, Nodes, RuntimeClasses and Pods, such as the output of
/// `kubectl get nodes,runtimeclasses,windowspools -o yaml`. For a pool with `mode: DryRun` it shows what `mode: Enforce` would
/// change. It names the workloads whose new pods then run elsewhere or no more. With --assume it shows what an upgrade does to workloads: with the nodes of today, while nodes change one after the
/// other, and after the last one. Exit code 0: nothing to do; 2: changes are pending, a taint is held, a pool has a problem, you may
/// not list what the answer needs, a registry did not answer, or with --assume a workload is not read or does not run all the time,
/// or a pod is lost; 1: an error, or a part of the manifests cannot be read.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  winpool plan
  winpool plan -f windowspool.yaml --against cluster
  winpool plan --assume kubernetes.azure.com/agentpool=win:2025
  kubectl get nodes,runtimeclasses,windowspools -o yaml | winpool plan -f -")]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub against: Against,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub all: AllNamespaces,
}

pub async fn run(Arguments { common, against, resolve, assume, .. }: Arguments) -> Result<Outcome, Error> {
    let Seen { view, mut gaps } = read(&common.origin, &against).await?;
    let without_nodes = view.nodes.known().is_none().then(|| WITHOUT_NODES.to_owned());
    if assume.is_wanted() {
        let outcome = rehearse(view, &assume, &resolve, &common, &mut gaps).await?;
        return Ok(gaps.outcome(outcome));
    }
    let images = images_of_templates(&view, &resolve, &mut gaps).await?;
    let mut facts = Facts::with_planned_classes(&view);
    let asked = Asked::by(templates(&view).map(|workload| &workload.pod));
    facts.group(&asked.with_admission(&view.admission()));
    let spread = spread_note(&view, &facts);
    facts.add_images(images);
    let image_notes = if resolve.is_wanted() { image_notes(&view, &facts) } else { Vec::new() };
    let mut forecast = progress::during("computing what the operator would do", || of(view, facts.images()))?;
    let knows_nodes = without_nodes.is_none();
    forecast.summary.notes.extend(without_nodes.into_iter().chain(spread).chain(image_notes));
    output::print(common.output.format, &forecast, || text(&forecast, knows_nodes))?;
    Ok(gaps.outcome(if knows_nodes && is_done(&forecast) { Outcome::Done } else { Outcome::Pending }))
}

/// Prints what happens to workloads if nodes run other versions.
async fn rehearse(
    view: View,
    assume: &Assume,
    resolve: &Resolve,
    common: &Common,
    gaps: &mut Gaps,
) -> Result<Outcome, Error> {
    let images = images_of_templates(&view, resolve, gaps).await?;
    let work = || upgrade(view, &assume.assume, &images, now());
    let upgrade = progress::during("computing what happens to workloads", work)?;
    output::print(common.output.format, &upgrade, || upgrade::text(&upgrade))?;
    Ok(if upgrade.is_harmless() { Outcome::Done } else { Outcome::Pending })
}

/// The workloads that no other workload controls.
fn templates(view: &View) -> impl Iterator<Item = &Workload> {
    let workloads = view.workloads.known().into_iter().flatten().map(|(_, workload)| workload);
    workloads.filter(|workload| workload.controller.is_none() && !workload.is_over)
}

/// Looks up the images of the workloads that no other workload controls.
async fn images_of_templates(view: &View, resolve: &Resolve, gaps: &mut Gaps) -> Result<Images, OptionsError> {
    let images_of = |workload: &Workload| workload.pod.images().map(|(_, name)| name.to_owned()).collect::<Vec<_>>();
    let images = resolve.images(|| templates(view).flat_map(images_of).collect()).await?;
    gaps.in_registries |= images.has_unknown();
    Ok(images)
}

/// Reads the cluster, the manifests, or the cluster once the manifests are applied.
async fn read(origin: &Origin, against: &Against) -> Result<Seen, Error> {
    if origin.files.is_empty() {
        return origin.decisions().await;
    }
    let manifests = Seen::decisions_in(&origin.files)?;
    let Some(source) = &against.against else {
        return if manifests.view.guarded().is_none() { Err(Error::NoPool) } else { Ok(manifests) };
    };
    Ok(source.decisions().await?.with_applied(manifests))
}

/// Describes the workloads whose images do not run where their pods can be scheduled.
fn image_notes(view: &View, facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    for workload in templates(view) {
        let template = workload.manifest();
        let findings = check_images(&template, facts);
        notes.extend(
            findings.into_iter().map(|finding| format!("{}, {}: {}", finding.object, finding.field, finding.message)),
        );
    }
    let more = notes.len().saturating_sub(IMAGE_NOTES);
    notes.truncate(IMAGE_NOTES);
    if more > 0 {
        notes.push(format!("{more} more about images; winpool check --resolve-images shows all."));
    }
    notes
}

/// Names the workloads whose pods stay Pending because of the taints, although they are not for Windows.
fn spread_note(view: &View, facts: &Facts) -> Option<String> {
    let findings = templates(view).filter_map(|workload| check_spread(&workload.manifest(), facts));
    let findings: Vec<Finding> = findings.collect();
    let names: Vec<String> = findings.iter().map(|finding| finding.object.to_string()).collect();
    let Finding { message, remedy, .. } = findings.first()?;
    Some(format!("{}: {message}; {}", some(&names, SHOWN), remedy.text))
}

/// True if nothing would be written and no pool needs attention.
fn is_done(forecast: &Forecast) -> bool {
    forecast.is_empty() && forecast.summary.pools.iter().all(is_quiet)
}

fn is_quiet(pool: &PoolForecast) -> bool {
    pool.problems.is_empty() && pool.held_taints.is_empty()
}

/// Returns what the operator would do to this cluster.
fn of(mut view: View, images: &Images) -> Result<Forecast, Unfinished> {
    let in_dry_run = enforce(&mut view);
    let note = match &view.pods {
        Known::NotRead if view.workloads.known().is_none() => Some(
            "The manifests have neither pods nor workloads, so winpool does not know which pods would get tolerations, and \
             which DaemonSets hold a taint. This plan assumes none."
                .to_owned(),
        ),
        _ => None,
    };
    let no_pool = view.pools.known().is_some_and(Vec::is_empty).then(|| NO_POOL.to_owned());
    let autoscalers = view.autoscalers.clone();
    let unread = unread(&view.pods, &view.workloads, &Policies::of(&view.related));
    let outcome = forecast_of(view, images, now())?;
    let mut forecast = outcome.forecast;
    if !autoscalers.templates.is_empty() {
        let of_pools = outcome.classes.iter().filter(|(_, class)| owner(class).is_some());
        let stories = of_pools.map(|(name, class)| scale::explain(&autoscalers, name, &Class::from(class.as_ref())));
        forecast.summary.scaling = stories.collect();
    }
    let dry = in_dry_run.iter().map(|pool| {
        format!("WindowsPool {pool} is in dry run. The operator writes these changes when you set mode: Enforce.")
    });
    forecast.summary.notes = no_pool.into_iter().chain(note).chain(unread).chain(dry).collect();
    for pool in &mut forecast.summary.pools {
        if in_dry_run.contains(&pool.name) {
            "DryRun".clone_into(&mut pool.mode);
        }
    }
    Ok(forecast)
}

fn text(forecast: &Forecast, knows_nodes: bool) -> Text {
    let (mut text, summary) = (Text::new(), &forecast.summary);
    if forecast.is_empty() {
        let (style, why) = why_nothing(&summary.pools, knows_nodes);
        text.styled("", style, &why);
    } else {
        let (classes, nodes) = (summary.runtime_classes_to_change, summary.nodes_to_change);
        let of_nodes = count(summary.node_count, "node");
        let line = format!("{} and {nodes} of {of_nodes} would be written.", count(classes, "RuntimeClass"));
        text.styled("", BOLD, &line);
    }
    summary.notes.iter().for_each(|note| {
        text.wrapped("", WARN, &format!("Note: {note}"));
    });
    summary.pools.iter().for_each(|pool| pool_text(&mut text, pool));
    let has_two_steps = !forecast.runtime_classes.is_empty() && !forecast.nodes.is_empty();
    if !forecast.runtime_classes.is_empty() {
        let head = if has_two_steps { "Step 1: RuntimeClasses" } else { "RuntimeClasses" };
        text.gap().styled("", BOLD, head);
        forecast.runtime_classes.iter().for_each(|class| class_text(&mut text, class));
    }
    if !forecast.nodes.is_empty() {
        let head = if has_two_steps { "Step 2: nodes" } else { "Nodes" };
        text.gap().styled("", BOLD, head);
        nodes_text(&mut text, &forecast.nodes);
    }
    workloads_text(&mut text, &forecast.workloads);
    if !summary.silent_workloads.is_empty() {
        text.gap().paragraph(
            "",
            "These workloads have pods on Windows nodes and do not specify Windows (by os, RuntimeClass, selector or \
             affinity). The admission policy linux-by-default would send their next pods to Linux nodes:",
        );
        pods_text(&mut text, &summary.silent_workloads);
    }
    why::scaling(&mut text, &summary.scaling);
    text
}

/// Returns the reason why nothing would be written.
fn why_nothing(pools: &[PoolForecast], knows_nodes: bool) -> (Style, String) {
    if !pools.iter().all(is_quiet) {
        return (WARN, "Nothing would be written. See below for what needs attention.".to_owned());
    }
    match pools {
        [] => (WARN, "Nothing would be written.".to_owned()),
        _ if !knows_nodes => (WARN, "Nothing is known to be written.".to_owned()),
        _ => (GOOD, "winpool has nothing to change.".to_owned()),
    }
}

fn pool_text(text: &mut Text, pool: &PoolForecast) {
    let would = match pool.mode.as_str() {
        "DryRun" => "would be written if its mode were Enforce",
        _ => "to be written",
    };
    text.gap();
    text.styled("", BOLD, &format!("WindowsPool {}", pool.name));
    text.line(&format!("  {}; {}, {} {would}", pool.mode, count(pool.node_count, "node"), pool.would_change));
    let held = if pool.mode == "DryRun" { "would be held" } else { "held" };
    let taints = pool.held_taints.join(", ");
    if !pool.held_taints.is_empty() && pool.without_pods.is_empty() {
        text.styled("  ", WARN, &format!("{held}: {taints}"));
    } else if !pool.held_taints.is_empty() {
        text.styled("  ", WARN, &format!("{held}: {taints}, because with it these DaemonSets would make no pods:"));
        daemon_sets_text(text, &pool.without_pods);
        tolerations_text(text, &pool.held_taints);
    }
    if !pool.helped.is_empty() {
        text.line("  The pods of these workloads get the toleration; write it into the pod templates:");
        pods_text(text, &pool.helped);
    }
    for problem in &pool.problems {
        problem_text(text, problem);
    }
}

/// Lists the workloads whose new pods run elsewhere then, by what happens to them.
pub(super) fn workloads_text(text: &mut Text, workloads: &[WorkloadForecast]) {
    let mut by_effect: BTreeMap<Effect, Vec<&WorkloadForecast>> = BTreeMap::new();
    for workload in workloads {
        by_effect.entry(workload.effect()).or_default().push(workload);
    }
    if !workloads.is_empty() {
        text.gap().styled("", BOLD, "Workloads");
    }
    for (effect, workloads) in by_effect {
        let (style, words) = match effect {
            Effect::Stop => (BAD, "New pods of these find no node any more on which they start:"),
            Effect::MayFail => (BAD, "New pods of these may be scheduled on a node on which they do not start:"),
            Effect::FewerNodes => (WARN, "These make pods for fewer nodes:"),
            Effect::Start => (GOOD, "New pods of these find a node on which they start:"),
            Effect::FailNoMore => {
                (GOOD, "New pods of these are no longer scheduled on nodes on which they do not start:")
            }
        };
        text.styled("  ", style, words);
        for WorkloadForecast { object, path, nodes_now, nodes_after, reason, .. } in workloads.iter().take(NAMED) {
            let nodes = || format!(" ({nodes_now} -> {})", count(*nodes_after, "node"));
            let nodes = if nodes_now == nodes_after { String::new() } else { nodes() };
            let reason = reason.as_ref().filter(|_| effect <= Effect::FewerNodes);
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            text.paragraph("    ", &format!("{object}{}{nodes}{reason}", upgrade::template(path.as_ref())));
        }
        if workloads.len() > NAMED {
            text.line(&format!("    and {} more, which -o json names", workloads.len() - NAMED));
        }
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
        text.styled("  ", WARN, &format!("~ {}", terminal::some(&names, SHOWN)));
        changes_text(text, &node.changes);
    }
}
