//! `winpool images`: which Windows versions each image supports, and which nodes run it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use winpool_analysis::explain::images::{ImageReport, NodesVerdict, image_report};
use winpool_analysis::image::{Host, ImagePlatforms, Images, known};
use winpool_analysis::lint::Facts;
use winpool_analysis::view::Written;
use winpool_client::terminal::{self, Outcome};
use winpool_core::api::ObjectReference;
use winpool_core::windows::builds;
use winpool_core::words::count;

use crate::Error;
use crate::commands::options::{AllNamespaces, Common};
use crate::print::notes::show_unlisted;
use crate::print::text::{DIM, Table, Text, WARN};
use crate::print::{output, progress};
use crate::read::registry::{self, Registry};
use crate::read::resolve::look_up;
use crate::read::view::Seen;

/// Show which Windows versions each image supports, and which Windows nodes run it.
///
/// winpool asks the registry of each image of each workload, of the cluster or of the manifests with -f, and applies the
/// rule by which containerd on your Windows nodes chooses a variant. If a registry does not answer for an image, winpool
/// shows the image as unknown, with the reason. winpool changes nothing in the cluster. Exit code 0: done; 2: a registry
/// did not answer, or you may not list what the answer needs; 1: winpool cannot read the workloads, or a part of the manifests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  kubectl get nodes -o yaml | winpool images -f deploy/ -f -")]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub registry: registry::RegistryOptions,
    #[command(flatten)]
    pub all: AllNamespaces,
}

/// The systems that images support, and the nodes that run them.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagesReport {
    images: Vec<ImageReport>,
    /// Without nodes, the answers are for nodes with a containerd of today.
    nodes_are_known: bool,
    /// Resources of the cluster that you may not list.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    unlisted: BTreeSet<String>,
}

///
/// # Errors
/// Fails if the workloads cannot be read.
pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let registry = Registry::new(arguments.registry)?;
    let origin = arguments.common.origin;
    let Seen { view, mut gaps } = origin.workloads(None, false).await?;
    let used = used(&view.written);
    let mut images = Images::default();
    look_up(&registry, &used.keys().cloned().collect(), &mut images).await;
    let report = report(&Facts::of(&view), used, &images, view.forbidden());
    let is_unknown = |image: &ImageReport| image.unknown.is_some() && image.windows_nodes.is_empty();
    // Without a registry, tags may tell enough.
    gaps.in_registries = images.has_unknown() && (!registry.is_offline() || report.images.iter().any(is_unknown));
    let without_template = view.written.is_empty() && !view.refused.is_empty();
    if without_template {
        progress::note("the workloads of the manifests have no pod template, so their images are not known");
    }
    output::print(arguments.common.output.format, &report, || text(&report))?;
    Ok(gaps.outcome(if without_template { Outcome::Pending } else { Outcome::Done }))
}

/// The images, and the workloads that use each.
fn used(written: &Written) -> BTreeMap<String, BTreeSet<ObjectReference>> {
    let mut used: BTreeMap<String, BTreeSet<ObjectReference>> = BTreeMap::new();
    written.each(|_, workload| {
        for (_, image) in workload.pod.images() {
            used.entry(image.to_owned()).or_default().insert(workload.object());
        }
    });
    used
}

fn report(
    facts: &Facts,
    used: BTreeMap<String, BTreeSet<ObjectReference>>,
    images: &Images,
    unlisted: BTreeSet<String>,
) -> ImagesReport {
    let mut hosts: Vec<Host> = facts.hosts().cloned().collect();
    let nodes_are_known = !hosts.is_empty();
    if !nodes_are_known {
        let releases = builds::all().iter().filter(|product| product.is_ltsc);
        hosts = releases.map(|product| Host::supposed(product.build)).collect();
    }
    let reports = used
        .into_iter()
        .map(|(image, used_by)| image_report(&image, images, hosts.iter(), used_by.into_iter().collect()));
    ImagesReport { images: reports.collect(), nodes_are_known, unlisted }
}

/// Workloads that are named in a row.
const NAMED: usize = 3;

fn text(report: &ImagesReport) -> Text {
    let mut text = Text::new();
    if report.images.is_empty() {
        text.styled("", DIM, "winpool found no workloads, and so no images.");
        show_unlisted(&mut text, &report.unlisted);
        return text;
    }
    let mut table = Table::new(&["IMAGE", "PLATFORMS", "RUNS ON", "USED BY"]);
    for image in &report.images {
        let used_by: Vec<String> = image.used_by.iter().map(ToString::to_string).collect();
        let used_by = terminal::some(&used_by, NAMED);
        table.row([image.image.as_str(), &platforms(image), &runs_on(image), &used_by]);
    }
    text.table(&table);
    let reasons = reasons(report);
    if !reasons.is_empty() {
        text.gap();
    }
    for (image, reason) in reasons {
        text.styled("", WARN, image).paragraph("  ", &reason);
    }
    if !report.nodes_are_known {
        let note = "No Windows node is known: RUNS ON is for Windows nodes with containerd 2.4.";
        text.gap().styled("", DIM, note);
    }
    if !report.unlisted.is_empty() {
        show_unlisted(text.gap(), &report.unlisted);
    }
    text
}

fn platforms(image: &ImageReport) -> String {
    match (&image.digest, image.source) {
        (Some(digest), Some(source)) => {
            let platforms = image.platforms.clone();
            known::summary(&ImagePlatforms { digest: digest.clone(), source, platforms })
        }
        _ => "unknown".to_owned(),
    }
}

fn runs_on(image: &ImageReport) -> String {
    if image.unknown.is_some() && image.windows_nodes.is_empty() {
        return "unknown".to_owned();
    }
    let builds: BTreeSet<&str> = image.windows_nodes.iter().map(|nodes| nodes.build.as_str()).collect();
    let builds = builds.into_iter().filter_map(|build| {
        let of_build = || image.windows_nodes.iter().filter(move |nodes| nodes.build == build);
        let (runs, nodes): (usize, usize) = (
            of_build().filter(|nodes| nodes.runs).map(|nodes| nodes.node_count).sum(),
            of_build().map(|nodes| nodes.node_count).sum(),
        );
        let name = known::short_of(build);
        match runs {
            0 => None,
            runs if runs == nodes => Some(name),
            runs => Some(format!("{name} ({runs} of {})", count(nodes, "node"))),
        }
    });
    let mut builds: Vec<String> = builds.collect();
    if image.platforms.iter().any(|platform| platform.os == "linux") {
        builds.push("Linux".to_owned());
    }
    let builds = if builds.is_empty() { "no node".to_owned() } else { builds.join(", ") };
    if image.unknown.is_some() { format!("{builds} (by its tag)") } else { builds }
}

/// Returns the reasons that the columns do not show: unknown images, nodes that are older than the image, and single
/// manifests, which containerd pulls to every node.
fn reasons(report: &ImagesReport) -> Vec<(&str, String)> {
    let mut reasons = Vec::new();
    for image in &report.images {
        reasons.extend(image.unknown.clone().map(|unknown| (image.image.as_str(), unknown)));
        for NodesVerdict { node_count, runs, reason, .. } in &image.windows_nodes {
            if let Some(reason) = reason.as_ref().filter(|_| *runs && report.nodes_are_known) {
                reasons.push((image.image.as_str(), format!("{}: {reason}", count(*node_count, "node"))));
            }
        }
    }
    reasons
}
