//! `winpool report`: a page about Windows in a cluster, for people who do not use a terminal.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use k8s_openapi::jiff::Timestamp;
use kube::config::Kubeconfig;
use winpool_analysis::explain::installation::Installation;
use winpool_analysis::explain::report::{
    Earlier, Fleet, GroupNumbers, Lack, Report, ReportInputs, fleet_html, html, report,
};
use winpool_analysis::view::View;
use winpool_client::kubeconfig::Connection;
use winpool_client::terminal::Outcome;
use winpool_core::plan::Now;
use winpool_core::windows::builds::Product;

use crate::Error;
use crate::commands::options::{AllNamespaces, Grouping, Version};
use crate::commands::values;
use crate::print::output::{self, OutputError, emit};
use crate::print::progress;
use crate::print::text::Text;
use crate::read::assume::Assume;
use crate::read::gaps::Lacks;
use crate::read::origin::Origin;
use crate::read::resolve::Resolve;
use crate::read::view::{self, Everything, Seen};
use crate::read::{installation, live};

/// Write a report about Windows in the cluster: one HTML page.
///
/// The report has the Windows versions of the nodes with the ends of support by Microsoft and the vendor, the workloads by version with
/// what to change, the taints that winpool holds, the RuntimeClasses with their users, the findings of `winpool check` and the failing
/// pods. The page needs no other file and no network. Reads the cluster, or manifests with -f. Exit code 0: the report is complete; 2: it
/// says what it lacks, for example because you may not list something, the manifests have no nodes, or winpool cannot tell if a
/// workload runs on another version; 1: an error, or a part of the manifests cannot be read.
///
/// `winpool report FILE...` makes one page of the reports of several clusters from -o json: a row for each cluster, the totals, and the
/// report of each. It needs no access to a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool report > windows.html
  winpool report -o json > last.json
  winpool report --previous last.json > windows.html
  winpool report --by label:team > teams.html
  winpool report --name prod-eu -o json > prod-eu.json
  winpool report prod-eu.json prod-us.json > fleet.html")]
pub struct Arguments {
    /// Reports of clusters from -o json, to show together.
    #[arg(value_name = "FILE", conflicts_with_all = [
        "files", "context", "kubeconfig", "by", "name", "previous", "move_to", "kubernetes_version", "resolve_images", "assume",
    ])]
    pub reports: Vec<PathBuf>,
    #[command(flatten)]
    pub origin: Origin,
    /// Output format; html if not set.
    #[arg(long = "output", short = 'o', value_enum, default_value_t, hide_default_value = true)]
    pub format: ReportFormat,
    #[command(flatten)]
    pub grouping: Grouping,
    /// Name of the cluster in the report; the context of the kubeconfig if not set.
    #[arg(long)]
    pub name: Option<String>,
    /// An earlier report from -o json; the report shows the changes since then.
    #[arg(long, value_name = "FILE")]
    pub previous: Option<PathBuf>,
    /// Version to move to, such as 2025; for each version the next release with long-term support if not set.
    #[arg(long, value_name = "VERSION", value_parser = values::releases(), hide_possible_values = true)]
    pub move_to: Option<&'static Product>,
    #[command(flatten)]
    pub version: Version,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub all: AllNamespaces,
}

/// The output format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A page for browsers and printers.
    #[default]
    Html,
    /// JSON.
    Json,
    /// CSV, for spreadsheets: the numbers of each cluster, or of each group with --by.
    Csv,
}

/// The parts of a cluster that the view does not contain.
#[derive(Default)]
struct Besides {
    installation: Option<Installation>,
    lacks: Vec<Lack>,
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    if !arguments.reports.is_empty() {
        let fleet = Fleet::of(arguments.reports.iter().map(|path| known(path)).collect::<Result<_, _>>()?);
        print_fleet(arguments.format, &fleet)?;
        return Ok(if fleet.is_complete() { Outcome::Done } else { Outcome::Pending });
    }
    let previous = arguments.previous.as_deref().map(earlier).transpose()?;
    let (Seen { mut view, mut gaps }, mut besides) = read(&arguments).await?;
    let assumed = arguments.assume.apply(&mut view)?.map(|assumed| assumed.sentence());
    let images = arguments.resolve.images(|| view.written.images()).await?;
    if images.has_unknown() {
        gaps.in_registries = true;
        besides.lacks.push(Lack::images());
    }
    let question = ReportInputs {
        cluster: arguments.cluster(),
        by: arguments.grouping.by.clone(),
        now: Now { instant: Instant::now(), time: Timestamp::now() },
        images,
        move_to: arguments.move_to,
        assumed,
        installation: besides.installation,
        lacks: besides.lacks,
        previous: previous.as_ref(),
    };
    let report = progress::during("writing the report", || report(view, question))?;
    print(arguments.format, &report)?;
    Ok(gaps.outcome(if report.is_complete() { Outcome::Done } else { Outcome::Pending }))
}

fn print(format: ReportFormat, report: &Report) -> Result<(), OutputError> {
    match format {
        ReportFormat::Html => Ok(emit(&html(report))?),
        ReportFormat::Json => output::print(output::Format::Json, report, Text::new),
        ReportFormat::Csv => match &report.groups {
            Some(groups) => output::print_csv(&GROUP, groups.iter().map(of_group)),
            None => output::print_csv(&CLUSTER, [of_cluster(report)].into_iter()),
        },
    }
}

fn print_fleet(format: ReportFormat, fleet: &Fleet) -> Result<(), OutputError> {
    match format {
        ReportFormat::Html => Ok(emit(&fleet_html(fleet))?),
        ReportFormat::Json => output::print(output::Format::Json, fleet, Text::new),
        ReportFormat::Csv => output::print_csv(&CLUSTER, fleet.clusters.iter().map(of_cluster)),
    }
}

/// The columns of CSV about groups.
const GROUP: [&str; 7] = ["group", "pinned", "unknown", "canMove", "errors", "warnings", "infos"];

fn of_group(group: &GroupNumbers) -> Vec<String> {
    let GroupNumbers { group, pinned, unknown, can_move, errors, warnings, infos } = group;
    let numbers = [pinned, unknown, can_move, errors, warnings, infos].map(ToString::to_string);
    [group.clone().unwrap_or_default()].into_iter().chain(numbers).collect()
}

/// The columns of CSV about clusters.
const CLUSTER: [&str; 14] = [
    "cluster",
    "time",
    "kubernetes",
    "nodeCount",
    "nodesOutOfSupport",
    "nodesNearEnd",
    "pinned",
    "unknown",
    "canMove",
    "heldTaints",
    "failingPods",
    "errors",
    "warnings",
    "infos",
];

/// The row of a cluster. A number that is not known is empty.
fn of_cluster(report: &Report) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let numbers =
        report.numbers.named().map(|(_, number, _)| number.map(|number| number.to_string()).unwrap_or_default());
    [text(&report.cluster), report.time.to_string(), text(&report.kubernetes)].into_iter().chain(numbers).collect()
}

/// Reads the report of a cluster, with the name of its file.
fn known(path: &Path) -> Result<(String, Report), Error> {
    let name = path.display().to_string();
    let failed = |reason: String| Error::Report { path: name.clone(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let report = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    Ok((name, report))
}

impl Arguments {
    /// Returns the name of the cluster, if there is one.
    fn cluster(&self) -> Option<String> {
        let Origin { files, connection: Connection { context, kubeconfig } } = &self.origin;
        let current = || {
            let read = kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
            read.ok()?.current_context
        };
        let of_cluster = || context.clone().or_else(current).filter(|_| files.is_empty());
        self.name.clone().or_else(of_cluster)
    }
}

/// Reads an earlier report.
fn earlier(path: &Path) -> Result<Earlier, Error> {
    let failed = |reason: String| Error::Previous { path: path.display().to_string(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

async fn read(arguments: &Arguments) -> Result<(Seen, Besides), Error> {
    let mut besides = Besides::default();
    let mut seen = if arguments.origin.files.is_empty() {
        let client = live::client(&arguments.origin.connection).await?;
        let mut seen =
            view::everything(&client, arguments.version.kubernetes_version, arguments.grouping.needs_namespaces())
                .await?;
        let mut missing = Lacks::default();
        besides.installation = installation::read(&client, &mut missing).await?;
        besides.lacks.extend(missing.notes.drain(..).map(|why| Lack::installation(&why)));
        seen.gaps.add(missing.gaps);
        seen
    } else {
        Seen::of_version::<Everything>(&arguments.origin.files, io::stdin(), arguments.version.kubernetes_version)?
    };
    if seen.gaps.in_manifests {
        besides.lacks.push(Lack::manifests());
    }
    besides.lacks.extend(invalid_pools(&seen.view));
    seen.note_invalid_pools();
    Ok((seen, besides))
}

/// Returns what the report lacks because pools are not valid.
fn invalid_pools(view: &View) -> Vec<Lack> {
    let errors = view.guarded().into_iter().flatten().filter_map(|pool| pool.read().err());
    errors.map(|error| Lack::pool(&error.to_string())).collect()
}
