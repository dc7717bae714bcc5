//! `winpool report`: a page about Windows in a cluster, for people who do not use a terminal.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clap::ValueEnum;
use k8s_openapi::jiff::Timestamp;
use winpool_answers::{
    explain::{
        installation::Installation,
        report::{Earlier, Lack, Report, ReportInputs, html, markdown, report},
    },
    view::View,
};
use winpool_client::terminal::{Outcome, emit};
use winpool_core::{
    plan::reconcile::Now,
    windows::{KubernetesVersion, product::Product},
};

use super::{
    Error, Origin,
    assume::Assume,
    check,
    gaps::Lacks,
    installation, live,
    output::{self, OutputError, Text},
    resolve::Resolve,
    view::{self, Seen},
};

/// Write a report about Windows in the cluster: one HTML page, or Markdown.
///
/// The report has the Windows versions of the nodes with the ends of support by Microsoft and the vendor, the workloads by version with
/// what to change, the taints that winpool holds, the RuntimeClasses with their users, the findings of `winpool check` and the failing
/// pods. The page needs no other file and no network. Reads the cluster, or manifests with -f. Exit code 0: the report is complete; 2: it
/// says what it lacks, for example because you may not list something, the manifests have no nodes, or winpool cannot tell if a
/// workload runs on another version; 1: an error, or a part of the manifests cannot be read.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool report > windows.html
  winpool report -o md > windows.md
  winpool report -o json > last.json
  winpool report --previous last.json > windows.html")]
pub struct Arguments {
    #[command(flatten)]
    pub origin: Origin,
    /// Output format; html if not set.
    #[arg(long = "output", short = 'o', value_enum, default_value_t, hide_default_value = true)]
    pub format: ReportFormat,
    /// An earlier report from -o json; the report shows the changes since then.
    #[arg(long, value_name = "FILE")]
    pub previous: Option<PathBuf>,
    /// Version to move to, such as 2025; for each version the next release with long-term support if not set.
    #[arg(long, value_name = "VERSION", value_parser = super::releases(), hide_possible_values = true)]
    pub move_to: Option<&'static Product>,
    /// Kubernetes version, such as 1.36; the version of the cluster if not set.
    #[arg(long, value_name = "VERSION", value_parser = check::version)]
    pub kubernetes_version: Option<KubernetesVersion>,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
}

/// The output format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A page for browsers and printers.
    #[default]
    Html,
    /// Markdown.
    Md,
    /// JSON.
    Json,
}

/// The parts of a cluster that the view does not contain.
#[derive(Default)]
struct Besides {
    installation: Option<Installation>,
    lacks: Vec<Lack>,
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let previous = arguments.previous.as_deref().map(earlier).transpose()?;
    let (Seen { mut view, mut gaps }, mut besides) = read(&arguments).await?;
    let assumed = arguments.assume.apply(&mut view)?.map(|assumed| assumed.sentence());
    let images = arguments.resolve.images(|| view.written.images()).await?;
    if images.has_unknown() {
        gaps.in_registries = true;
        besides.lacks.push(Lack::images());
    }
    let question = ReportInputs {
        now: Now { instant: Instant::now(), time: Timestamp::now() },
        images,
        move_to: arguments.move_to,
        assumed,
        installation: besides.installation,
        lacks: besides.lacks,
        previous: previous.as_ref(),
    };
    let report = live::during("writing the report", || report(view, question));
    print(arguments.format, &report)?;
    let is_complete = report.unknown.is_empty() && report.numbers.unknown.unwrap_or_default() == 0;
    Ok(gaps.outcome(if is_complete { Outcome::Done } else { Outcome::Pending }))
}

fn print(format: ReportFormat, report: &Report) -> Result<(), OutputError> {
    match format {
        ReportFormat::Html => Ok(emit(&html(report))?),
        ReportFormat::Md => Ok(emit(&markdown(report))?),
        ReportFormat::Json => output::print(output::Format::Json, report, Text::new),
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
        let client = arguments.origin.connection.client().await?;
        let mut seen = view::everything(&client, arguments.kubernetes_version).await?;
        let mut missing = Lacks::default();
        besides.installation = installation::read(&client, &mut missing).await?;
        besides.lacks.extend(missing.notes.drain(..).map(|why| Lack::installation(&why)));
        seen.gaps.add(missing.gaps);
        seen
    } else {
        Seen::everything_in(&arguments.origin.files, arguments.kubernetes_version)?
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
