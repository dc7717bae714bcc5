//! `winpool check`: problems of workloads for Windows, and of workloads that could be scheduled to Windows nodes.

mod report;
mod sarif;
mod text;

use std::collections::BTreeMap;
use std::io;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use winpool_analysis::finding::{Finding, Severity};
use winpool_analysis::lint::{Facts, UNKNOWN_ID, survey};
use winpool_analysis::view::{Known, View};
use winpool_client::terminal::Outcome;

use crate::Error;
use crate::commands::options::{Grouping, Namespaces, Version};
use crate::commands::values;
use crate::manifests::{Fields, Position};
use crate::print::located::Located;
use crate::print::output::{self, Output};
use crate::print::progress;
use crate::print::text::Text;
use crate::read::against::Against;
use crate::read::assume::Assume;
use crate::read::forecast::now;
use crate::read::gaps::Gaps;
use crate::read::live::{self, ReadError};
use crate::read::origin::Origin;
use crate::read::resolve::Resolve;
use crate::read::view::{self, Rules, RulesScope, Seen};

pub use report::CheckReport;

/// Find problems of Windows workloads, and Linux workloads that can be scheduled to Windows nodes.
///
/// Checks the Services of Windows workloads too, and with -A or -f the Windows nodes. Reads the cluster, or manifests
/// with -f. Nodes, WindowsPools and RuntimeClasses, from the cluster or from the same manifests, make the result more
/// precise. Finished Jobs and Pods are left out. Exit code 0: no warnings and no errors; 2: at least one (see --fail-on), a
/// registry did not answer, or you may not list what the answer needs; 1: winpool cannot read the workloads, or a part of the
/// manifests.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool check -A
  winpool check -f deploy/ -f windowspool.yaml
  winpool check -f deploy/ --against cluster.yaml
  winpool check -A --by label:team -o csv > teams.csv
  helm template web | winpool check -f - --fail-on error")]
pub struct Arguments {
    #[command(flatten)]
    pub origin: Origin,
    #[command(flatten)]
    pub namespaces: Namespaces,
    /// Lowest severity to show; if not set, warning in text and info in the other formats.
    #[arg(long, alias = "severity", value_parser = severities(), value_name = "SEVERITY")]
    pub min_severity: Option<Severity>,
    /// Lowest severity that results in exit code 2, even if it is not shown.
    #[arg(long, value_parser = severities(), value_name = "SEVERITY", default_value_t = Severity::Warning)]
    pub fail_on: Severity,
    /// Rule to skip. Repeat the flag for several rules.
    #[arg(long, value_name = "RULE", value_parser = values::known_rules(), hide_possible_values = true)]
    pub ignore: Vec<String>,
    #[command(flatten)]
    pub version: Version,
    #[command(flatten)]
    pub output: Output<CheckFormat>,
    #[command(flatten)]
    pub grouping: Grouping,
    #[command(flatten)]
    pub resolve: Resolve,
    #[command(flatten)]
    pub assume: Assume,
    #[command(flatten)]
    pub against: Against,
}

/// The output format of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// Tables and sentences, for people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// CSV, for spreadsheets: a row for each finding.
    Csv,
}

impl Arguments {
    /// True if the finding is shown. The text leaves out notes, but for those that result in exit code 2.
    fn shows(&self, finding: &Finding) -> bool {
        match self.min_severity {
            Some(lowest) => finding.severity >= lowest,
            None if self.output.format == CheckFormat::Text => {
                finding.severity > Severity::Info || self.fail_on == Severity::Info || finding.rule == UNKNOWN_ID
            }
            None => true,
        }
    }
}

fn severities() -> impl TypedValueParser<Value = Severity> {
    let helps = [
        (Severity::Info, "All severities"),
        (Severity::Warning, "Warnings and errors"),
        (Severity::Error, "Only errors"),
    ];
    let values = helps.map(|(severity, help)| PossibleValue::new(severity.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(move |name| {
        helps.iter().map(|(severity, _)| *severity).find(|s| s.as_str() == name).ok_or("no severity")
    })
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let Seen { mut view, mut gaps } = arguments.against.apply(read(&arguments).await?).await?;
    let assumed = arguments.assume.note(&mut view)?;
    let mut facts = Facts::of(&view);
    facts.read_workloads(&view, now());
    facts.add_images(arguments.resolve.images(|| view.written.images()).await?);
    let report = progress::during("checking workloads", || report(&view, &facts, &arguments, assumed));
    gaps.in_registries = report.has_unknown_images;
    let print = |format| output::print(format, &report, || text::text(&report, arguments.grouping.by.as_ref()));
    match arguments.output.format {
        CheckFormat::Text => print(output::Format::Text)?,
        CheckFormat::Json => print(output::Format::Json)?,
        CheckFormat::Yaml => print(output::Format::Yaml)?,
        CheckFormat::Csv => output::print_csv(&HEADER, report.findings.iter().map(row))?,
        CheckFormat::Sarif => {
            output::print(output::Format::Json, &sarif::log(&report, gaps == Gaps::default()), Text::new)?;
        }
    }
    let fails = report.worst >= Some(arguments.fail_on);
    Ok(gaps.outcome(if fails { Outcome::Pending } else { Outcome::Done }))
}

/// The columns of CSV.
const HEADER: [&str; 12] = [
    "group",
    "severity",
    "rule",
    "consequence",
    "kind",
    "namespace",
    "name",
    "field",
    "message",
    "remedy",
    "file",
    "line",
];

fn row(located: &Located<Finding>) -> Vec<String> {
    let Finding { severity, rule, consequence, field, message, remedy, .. } = &located.item;
    located.row([severity.as_str(), rule, &consequence.to_string()], [field, message, &remedy.text])
}

/// Reads manifests, a namespace or the cluster, and prints notes about what cannot be read.
async fn read(arguments: &Arguments) -> Result<Seen, Error> {
    let mut seen = if arguments.origin.files.is_empty() {
        let client = live::client(&arguments.origin.connection).await?;
        let namespace = arguments.namespaces.of(&client);
        let scope = RulesScope {
            namespace,
            version: arguments.version.kubernetes_version,
            has_objects: true,
            groups: arguments.grouping.needs_namespaces(),
        };
        let mut seen = view::rules(&client, scope).await?;
        if let Some(namespace) = namespace.filter(|_| seen.view.written.is_empty()) {
            exists(&client, namespace, &mut seen).await?;
        }
        seen
    } else {
        Seen::of_version::<Rules>(&arguments.origin.files, io::stdin(), arguments.version.kubernetes_version)?
    };
    seen.note_invalid_pools();
    Ok(seen)
}

/// Fails if there is no such namespace. For a user who may not read namespaces, the answer says that this is not known.
async fn exists(client: &Client, namespace: &str, seen: &mut Seen) -> Result<(), Error> {
    const WHAT: &str = "namespaces";
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match live::get::<_, Namespace>(WHAT, &namespaces, namespace).await {
        Ok(Some(_)) => {}
        Ok(None) => return Err(Error::NotFound { kind: "namespace", name: namespace.to_owned() }),
        Err(error @ ReadError::Forbidden { .. }) => {
            progress::note(&format!("{error}; it is not known if the namespace {namespace} exists"));
            seen.gaps.in_cluster = true;
            seen.view.namespace = Known::Forbidden(error.to_string());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn report(view: &View, facts: &Facts, arguments: &Arguments, assumed: Option<String>) -> CheckReport {
    let (skipped, unlisted) = (view.skipped.clone(), view.forbidden());
    let groups = arguments.grouping.groups(view);
    let mut report = CheckReport {
        by: arguments.grouping.text(),
        findings: Vec::new(),
        skipped,
        unlisted,
        notes: assumed.into_iter().collect(),
        hidden: BTreeMap::new(),
        workloads: 0,
        has_unknown_images: false,
        worst: None,
    };
    let mut add = |source: Option<&Position>, findings: Vec<Finding>| {
        let findings = findings.into_iter().filter(|finding| !arguments.ignore.contains(&finding.rule));
        for finding in findings {
            // An unreachable registry is not a problem of the workload.
            let is_unknown = finding.rule == UNKNOWN_ID;
            report.has_unknown_images |= is_unknown;
            if !is_unknown {
                report.worst = report.worst.max(Some(finding.severity));
            }
            if arguments.shows(&finding) {
                report.findings.push(Located::new(finding, source, groups.as_ref()));
            } else {
                *report.hidden.entry(finding.severity).or_default() += 1;
            }
        }
    };
    let is_of_manifests = !arguments.origin.files.is_empty() && arguments.against.against.is_none();
    let has_nodes = arguments.namespaces.all_namespaces || is_of_manifests;
    let open = is_of_manifests.then(|| facts.with_open_nodes());
    let number = survey(view, facts, open.as_ref(), has_nodes, &mut add);
    report.workloads = number;
    name_fields(&mut report.findings);
    report
}

/// Sets the line of each finding to the line of its field, if that can be found.
fn name_fields(findings: &mut [Located<Finding>]) {
    let mut last: Option<(String, Option<Fields>)> = None;
    for Located { item, file, line, .. } in findings {
        let (Some(file), Some(line)) = (file, line) else { continue };
        if last.as_ref().is_none_or(|(name, _)| name != file) {
            last = Some((file.clone(), Fields::of(file)));
        }
        let fields = last.as_ref().and_then(|(_, fields)| fields.as_ref());
        *line = fields.and_then(|fields| fields.line(*line, &item.field)).unwrap_or(*line);
    }
}
