//! `winpool blockers`: lists what prevents you from retiring a Windows version.

use std::collections::BTreeSet;

use anstyle::Style;
use schemars::JsonSchema;
use serde::Serialize;
use winpool_answers::{
    explain::{
        blockers::{Blocker, Group, Pin, RetiredWindows, group, pool_blockers},
        images::{Move, moved, other_tags},
        report::{MovableWorkload, UnclearWorkload},
    },
    image::Images,
    lint::Facts,
    pod::Target,
    view::{View, Written},
};
use winpool_client::terminal::Outcome;
use winpool_core::{
    api::{Isolation, ObjectReference},
    plan::pools::pool::GuardedPool,
    windows::{KubernetesSupport, KubernetesVersion, product::Product},
    words::count,
};

use crate::registry::Registry;

use super::{
    Common, Error,
    assume::Assume,
    check,
    gaps::{notes_text, show_unlisted},
    located::Located,
    output::{self, BOLD, DIM, Text},
    resolve::{Resolve, list_tags, look_up},
    view::Seen,
};

/// List the workloads and WindowsPools that prevent you from retiring a Windows version.
///
/// A workload is pinned to a version by its nodeSelector, required node affinity, runtimeClassName or image tag; also by other
/// labels that, of the known Windows nodes, only nodes of this version have. Finished Jobs and Pods are left out. A WindowsPool is
/// pinned by the RuntimeClasses that it declares or uses as pod default, and by a name for the build. Exit code 0: nothing is
/// pinned to the version; 2: something is, or winpool cannot tell; 1: winpool cannot read the workloads, or a part of the manifests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool blockers --retire 2019
  winpool blockers --retire ltsc2019 --move-to ltsc2022 -f deploy/")]
pub struct Arguments {
    /// Version to retire, such as 2019, or its build.
    #[arg(long, value_name = "VERSION", value_parser = super::releases(), hide_possible_values = true)]
    pub retire: &'static Product,
    /// Version to move to; winpool shows what to write for it.
    #[arg(long, value_name = "VERSION", value_parser = super::releases(), hide_possible_values = true)]
    pub move_to: Option<&'static Product>,
    #[command(flatten)]
    pub common: Common,
    /// Kubernetes version, such as 1.36; the version of the cluster if not set.
    #[arg(long, value_name = "VERSION", value_parser = check::version)]
    pub kubernetes_version: Option<KubernetesVersion>,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
}

/// The workloads and pools that prevent you from retiring a Windows version.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockersReport {
    #[serde(flatten)]
    retirement: RetiredWindows,
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

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    if let Some(target) = arguments.move_to.filter(|target| target.build <= arguments.retire.build) {
        return Err(Error::OlderTarget { retired: arguments.retire.name, target: target.name });
    }
    let Seen { mut view, mut gaps } = arguments.common.origin.workloads(arguments.kubernetes_version).await?;
    let assumed = arguments.assume.note(&mut view)?;
    let mut facts = Facts::of(&view);
    gaps.in_registries = resolve(&arguments.resolve, &view.written, &mut facts, arguments.move_to).await?;
    let workloads_are_known = arguments.common.origin.files.is_empty() || !view.written.is_empty();
    let mut report = report(&view, &facts, arguments.retire, arguments.move_to, workloads_are_known);
    report.notes.extend(assumed);
    output::print(arguments.common.output.format, &report, || text(&report))?;
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
        let others = moving.iter().flat_map(|name| other_tags(name, target, listed(name))).collect();
        look_up(&registry, &others, &mut images).await;
    }
    facts.add_images(images);
    Ok(has_unknown)
}

fn report(
    view: &View,
    facts: &Facts,
    retire: &Product,
    move_to: Option<&Product>,
    workloads_are_known: bool,
) -> BlockersReport {
    let (retired, target) = (retire.build, move_to.map(|product| product.build));
    let of_pool = |pool: &GuardedPool| pool_blockers(pool.pool().ok()?, facts, retired, target);
    let pools = view.pools.known().into_iter().flatten();
    let mut found: Vec<_> =
        pools.filter_map(|(source, pool)| Some(Located::new(of_pool(pool)?, source.as_ref()))).collect();
    let (mut unknown, mut can_move) = (Vec::new(), Vec::new());
    view.written.each(|source, workload| {
        let object = workload.object();
        match group(workload, facts, &view.written.started, retired, target) {
            Some(Group::Pinned(blocker)) => found.push(Located::new(blocker, source)),
            Some(Group::Unknown(reason)) => unknown.push(Located::new(UnclearWorkload { object, reason }, source)),
            Some(Group::CanMove(evidence)) => can_move.push(Located::new(MovableWorkload { object, evidence }, source)),
            None => {}
        }
    });
    let unlisted = view.forbidden();
    let retirement = RetiredWindows::of(retire, facts);
    BlockersReport { retirement, blockers: found, unknown, can_move, workloads_are_known, unlisted, notes: Vec::new() }
}

fn text(report: &BlockersReport) -> Text {
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
    } else {
        for Located { found: blocker, file, line } in &report.blockers {
            text.styled("", BOLD, &placed(&blocker.object, file.as_deref(), *line));
            for Pin { field, value, remedy, .. } in &blocker.pins {
                text.paragraph("    ", &format!("{field}: {value}"));
                text.hanging("        ", "          ", BOLD, "change", &format!(": {}", remedy.text));
            }
        }
    }
    if !report.can_move.is_empty() {
        text.gap().styled("", BOLD, "These can move");
        for Located { found: MovableWorkload { object, evidence }, file, line } in &report.can_move {
            let why = format!(": {}", evidence.describe());
            text.hanging("  ", "    ", Style::new(), &placed(object, file.as_deref(), *line), &why);
        }
    }
    if !report.unknown.is_empty() {
        let number = count(report.unknown.len(), "workload");
        text.gap().styled("", BOLD, &format!("Not assessed: {number}"));
        for Located { found: UnclearWorkload { object, reason }, file, line } in &report.unknown {
            text.hanging("  ", "    ", Style::new(), &placed(object, file.as_deref(), *line), &format!(": {reason}"));
        }
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

/// Formats the position and the object: `web.yaml:3: Deployment shop/web`.
fn placed(object: &ObjectReference, file: Option<&str>, line: Option<u64>) -> String {
    file.map_or_else(|| object.to_string(), |file| format!("{file}:{}: {object}", line.unwrap_or_default()))
}
