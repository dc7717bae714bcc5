//! `winpool blockers`: lists what prevents you from retiring a Windows version.

use std::collections::BTreeSet;

use anstyle::Style;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;
use winpool_analysis::explain::blockers::{Blocker, Group, Pin, RetiredWindows, group, pool_blockers};
use winpool_analysis::explain::groups::By;
use winpool_analysis::explain::images::{Move, moved, other_tags};
use winpool_analysis::explain::report::{MovableWorkload, UnclearWorkload};
use winpool_analysis::image::Images;
use winpool_analysis::kubernetes::KubernetesSupport;
use winpool_analysis::lint::Facts;
use winpool_analysis::pod::Target;
use winpool_analysis::view::{View, Written};
use winpool_client::terminal::Outcome;
use winpool_core::api::Isolation;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::windows::builds::Product;
use winpool_core::words::count;

use crate::Error;
use crate::commands::options::{AllNamespaces, Grouping, Version};
use crate::commands::values;
use crate::print::located::{About, Located, groups};
use crate::print::notes::{notes_text, show_unlisted};
use crate::print::output::{self, Output};
use crate::print::text::{BOLD, DIM, GOOD, Text};
use crate::read::assume::Assume;
use crate::read::forecast::now;
use crate::read::origin::Origin;
use crate::read::registry::Registry;
use crate::read::resolve::{Resolve, list_tags, look_up};
use crate::read::view::Seen;

/// List the workloads and WindowsPools that prevent you from retiring a Windows version.
///
/// A workload is pinned to a version by its nodeSelector, required node affinity, runtimeClassName or image tag; also by other
/// labels that, of the known Windows nodes, only nodes of this version have. Finished Jobs and Pods are left out. A WindowsPool is
/// pinned by the RuntimeClasses that it declares or uses as pod default, and by a name for the build. Exit code 0: nothing is
/// pinned to the version; 2: something is, or winpool cannot tell; 1: winpool cannot read the workloads, or a part of the manifests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool blockers --retire 2019
  winpool blockers --retire ltsc2019 --move-to ltsc2022 -f deploy/
  winpool blockers --retire 2019 --by label:team -o csv > teams.csv")]
pub struct Arguments {
    /// Version to retire, such as 2019, or its build.
    #[arg(long, value_name = "VERSION", value_parser = values::releases(), hide_possible_values = true)]
    pub retire: &'static Product,
    /// Version to move to; winpool shows what to write for it.
    #[arg(long, value_name = "VERSION", value_parser = values::releases(), hide_possible_values = true)]
    pub move_to: Option<&'static Product>,
    #[command(flatten)]
    pub origin: Origin,
    #[command(flatten)]
    pub output: Output<BlockersFormat>,
    #[command(flatten)]
    pub grouping: Grouping,
    #[command(flatten)]
    pub version: Version,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub all: AllNamespaces,
}

/// The output format of blockers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BlockersFormat {
    /// Sentences, for people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// CSV, for spreadsheets: a row for each field to change.
    Csv,
}

/// The workloads and pools that prevent you from retiring a Windows version.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockersReport {
    #[serde(flatten)]
    retirement: RetiredWindows,
    /// What the answer is grouped by: `namespace`, or `label:` and a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// The workloads and pools that are pinned to it.
    blockers: Vec<Located<Blocker>>,
    /// Workloads that run on these nodes or can be scheduled there. winpool cannot tell if they run on other nodes.
    unknown: Vec<Located<UnclearWorkload>>,
    /// Workloads that run on nodes of another version too.
    can_move: Vec<Located<MovableWorkload>>,
    /// False if manifests have no workload, so that winpool cannot tell what is pinned to the version.
    workloads_are_known: bool,
    /// Resources of the cluster that you may not list, so that the answer may lack what is pinned to the version.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    unlisted: BTreeSet<String>,
    /// What the answer assumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl BlockersReport {
    /// True if something may be pinned to the version.
    fn has_unknown(&self) -> bool {
        !self.workloads_are_known || !self.unknown.is_empty() || !self.unlisted.is_empty()
    }
}

impl Arguments {
    async fn read(&self) -> Result<Seen, Error> {
        self.origin.workloads(self.version.kubernetes_version, self.grouping.needs_namespaces()).await
    }
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    if let Some(target) = arguments.move_to.filter(|target| target.build <= arguments.retire.build) {
        return Err(Error::OlderTarget { retired: arguments.retire.name, target: target.name });
    }
    let Seen { mut view, mut gaps } = arguments.read().await?;
    let assumed = arguments.assume.note(&mut view)?;
    let mut facts = Facts::of(&view);
    facts.read_workloads(&view, now());
    gaps.in_registries = resolve(&arguments.resolve, &view.written, &mut facts, arguments.move_to).await?;
    let workloads_are_known = arguments.origin.files.is_empty() || !view.written.is_empty();
    let mut report = report(&view, &facts, &arguments, workloads_are_known);
    report.notes.extend(assumed);
    let print = |format| output::print(format, &report, || text(&report, arguments.grouping.by.as_ref()));
    match arguments.output.format {
        BlockersFormat::Text => print(output::Format::Text)?,
        BlockersFormat::Json => print(output::Format::Json)?,
        BlockersFormat::Yaml => print(output::Format::Yaml)?,
        BlockersFormat::Csv => output::print_csv(&HEADER, rows(&report))?,
    }
    let is_clear = report.blockers.is_empty() && !report.has_unknown();
    Ok(gaps.outcome(if is_clear { Outcome::Done } else { Outcome::Pending }))
}

/// Looks up the images, and then the tags under which the target may have the others. Returns true if a registry did not answer for
/// one of the images.
async fn resolve(
    resolve: &Resolve,
    written: &Written,
    facts: &mut Facts,
    move_to: Option<&Product>,
) -> Result<bool, Error> {
    if !resolve.is_wanted() {
        return Ok(false);
    }
    let mut names = BTreeSet::new();
    written.each(|_, workload| {
        if facts.target(&workload.pod) != Target::Linux {
            names.extend(workload.pod.images().map(|(_, name)| name.to_owned()));
        }
    });
    let registry = Registry::new(resolve.registry.clone())?;
    let mut images = Images::default();
    look_up(&registry, &names, &mut images).await;
    let has_unknown = images.has_unknown();
    if let Some(target) = move_to.map(|product| product.build) {
        let hosts: Vec<_> = facts.hosts().filter(|host| host.kernel.build == target).collect();
        let stay =
            |name: &String| matches!(moved(name, target, &hosts, Isolation::Process, &images), Some(Move::SameTag(_)));
        let moving: BTreeSet<String> = names.iter().filter(|name| !stay(name)).cloned().collect();
        let tags = list_tags(&registry, &moving).await;
        let listed = |name: &String| tags.get(name).map_or(&[][..], Vec::as_slice);
        let candidates = moving.iter().flat_map(|name| other_tags(name, target, listed(name))).collect();
        look_up(&registry, &candidates, &mut images).await;
    }
    facts.add_images(images);
    Ok(has_unknown)
}

fn report(view: &View, facts: &Facts, arguments: &Arguments, workloads_are_known: bool) -> BlockersReport {
    let Arguments { retire, move_to, grouping, .. } = arguments;
    let (retired, target) = (retire.build, move_to.map(|product| product.build));
    let groups = grouping.groups(view);
    let of_pool = |pool: &GuardedPool| pool_blockers(pool.pool().ok()?, facts, retired, target);
    let pools = view.pools.known().into_iter().flatten();
    let mut blockers: Vec<_> = pools
        .filter_map(|(source, pool)| Some(Located::new(of_pool(pool)?, source.as_ref(), groups.as_ref())))
        .collect();
    let (mut unknown, mut can_move) = (Vec::new(), Vec::new());
    let started = view.started();
    view.written.each(|source, workload| {
        let (object, groups) = (workload.object(), groups.as_ref());
        match group(workload, facts, &started, retired, target) {
            Some(Group::Pinned(blocker)) => blockers.push(Located::new(blocker, source, groups)),
            Some(Group::Unknown(reason)) => {
                unknown.push(Located::new(UnclearWorkload { object, reason }, source, groups));
            }
            Some(Group::CanMove(evidence)) => {
                can_move.push(Located::new(MovableWorkload { object, evidence }, source, groups));
            }
            None => {}
        }
    });
    let unlisted = view.forbidden();
    let retirement = RetiredWindows::of(retire, facts);
    let (by, notes) = (grouping.text(), Vec::new());
    BlockersReport { retirement, by, blockers, unknown, can_move, workloads_are_known, unlisted, notes }
}

/// The columns of CSV.
const HEADER: [&str; 11] =
    ["group", "state", "kind", "namespace", "name", "field", "value", "change", "reason", "file", "line"];

/// Returns the rows of CSV: each field that pins an object, and the other workloads.
fn rows(report: &BlockersReport) -> impl Iterator<Item = Vec<String>> {
    let pinned = report.blockers.iter().flat_map(|blocker| {
        blocker.item.pins.iter().map(|pin| blocker.row(["pinned"], [&pin.field, &pin.value, &pin.remedy.text, ""]))
    });
    let unknown = report.unknown.iter().map(|workload| workload.row(["unknown"], ["", "", "", &workload.item.reason]));
    let can_move = report
        .can_move
        .iter()
        .map(|workload| workload.row(["canMove"], ["", "", "", workload.item.evidence.describe()]));
    pinned.chain(unknown).chain(can_move)
}

fn text(report: &BlockersReport, by: Option<&By>) -> Text {
    let mut text = Text::new();
    let RetiredWindows { build, product, mainstream_end, end_of_support, kubernetes, kubernetes_support, node_count } =
        &report.retirement;
    let nodes = node_count.map_or_else(String::new, |nodes| format!(": {}", count(nodes, "node")));
    text.line(&format!("{product} ({build}){nodes}"));
    let mainstream =
        if mainstream_end == end_of_support { String::new() } else { format!(", mainstream until {mainstream_end}") };
    text.line(&format!("  Microsoft's support ends on {end_of_support}{mainstream}"));
    if let (Some(version), support @ (KubernetesSupport::Listed | KubernetesSupport::Unlisted)) =
        (kubernetes, kubernetes_support)
    {
        let verb = if *support == KubernetesSupport::Listed { "lists it" } else { "does not list it" };
        text.line(&format!("  The documentation of Kubernetes {version} {verb}"));
    }
    text.gap();
    if report.blockers.is_empty() {
        let nothing =
            if report.has_unknown() { "Nothing is known to be pinned to it." } else { "Nothing is pinned to it." };
        text.styled("", DIM, nothing);
    }
    let pinned = report.blockers.iter().map(|blocker| &blocker.group);
    let can_move = report.can_move.iter().map(|workload| &workload.group);
    let unknown = report.unknown.iter().map(|workload| &workload.group);
    for (index, group) in groups(pinned.chain(can_move).chain(unknown)).into_iter().enumerate() {
        if let Some(by) = by {
            if index > 0 || report.blockers.is_empty() {
                text.gap();
            }
            text.styled("", GOOD, &by.title(group));
        }
        lists(&mut text, report, group);
    }
    if !report.workloads_are_known {
        let why = "winpool cannot tell which workloads are pinned to it, because the manifests have none.";
        text.gap().paragraph("", why);
    }
    if !report.unlisted.is_empty() {
        show_unlisted(text.gap(), &report.unlisted);
    }
    notes_text(&mut text, &report.notes);
    text
}

/// Adds the workloads and pools of a group.
fn lists(text: &mut Text, report: &BlockersReport, group: Option<&str>) {
    let is_listed = |of: &Option<String>| of.as_deref() == group;
    for blocker in report.blockers.iter().filter(|blocker| is_listed(&blocker.group)) {
        text.styled("", BOLD, &placed(blocker));
        for Pin { field, value, remedy, .. } in &blocker.item.pins {
            text.paragraph("    ", &format!("{field}: {value}"));
            text.hanging("        ", "          ", BOLD, "change", &format!(": {}", remedy.text));
        }
    }
    let can_move: Vec<_> = report.can_move.iter().filter(|workload| is_listed(&workload.group)).collect();
    if !can_move.is_empty() {
        text.gap().styled("", BOLD, "These can move");
        for workload in can_move {
            let why = format!(": {}", workload.item.evidence.describe());
            text.hanging("  ", "    ", Style::new(), &placed(workload), &why);
        }
    }
    let unknown: Vec<_> = report.unknown.iter().filter(|workload| is_listed(&workload.group)).collect();
    if !unknown.is_empty() {
        text.gap().styled("", BOLD, &format!("Not assessed: {}", count(unknown.len(), "workload")));
        for workload in unknown {
            text.hanging("  ", "    ", Style::new(), &placed(workload), &format!(": {}", workload.item.reason));
        }
    }
}

/// Formats the position and the object: `web.yaml:3: Deployment shop/web`.
fn placed<T: About>(located: &Located<T>) -> String {
    let object = located.item.object();
    let of_file = |file: &String| format!("{file}:{}: {object}", located.line.unwrap_or_default());
    located.file.as_ref().map_or_else(|| object.to_string(), of_file)
}
