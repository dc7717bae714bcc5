//! `winpool builds`: the Windows releases that winpool knows.

use schemars::JsonSchema;
use serde::Serialize;
use winpool_analysis::image::can_run;
use winpool_analysis::kubernetes::{KubernetesSupport, KubernetesVersion};
use winpool_analysis::support::{STATEMENTS, Statement};
use winpool_client::terminal::Outcome;
use winpool_core::api::Isolation;
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Product};

use crate::print::output::{self, Output, OutputError};
use crate::print::text::{Table, Text};

/// The first Kubernetes version, a minor of 1, with which Windows nodes are stable.
const FIRST: u32 = 14;

/// Print the Windows releases that winpool knows: build, image tags, Kubernetes versions that list them, end of support,
/// and which images each runs.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  winpool builds
  winpool builds -o json")]
pub struct Arguments {
    #[command(flatten)]
    pub output: Output,
}

/// A Windows release.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WindowsRelease")]
pub struct WindowsRelease {
    /// The version, such as `2022`.
    version: &'static str,
    /// The build, such as `10.0.20348`.
    build: String,
    /// The name of the product.
    product: &'static str,
    /// Tags of Microsoft's base images.
    image_tags: &'static [&'static str],
    /// Kubernetes versions whose documentation lists it.
    kubernetes: Vec<String>,
    /// The last day of mainstream support.
    mainstream_end: String,
    /// The last day of any support.
    end_of_support: String,
    /// Its support by vendors of clusters.
    vendors: Vec<VendorRow>,
    /// Versions whose images it runs by process isolation, with containerd 1.7.19 or later.
    process_isolation: Vec<&'static str>,
    /// Versions whose images it runs by Hyper-V isolation.
    hyper_v_isolation: Vec<&'static str>,
}

/// A vendor's support of a Windows release.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VendorSupport")]
pub struct VendorRow {
    /// The vendor, such as `AKS`.
    name: &'static str,
    /// The first version of Kubernetes with which the vendor offers it, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The first version of Kubernetes with which the vendor does not offer it any more, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_in: Option<String>,
    /// The last day of the vendor's support, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_of_support: Option<String>,
    /// The last day on which node images exist, if the vendor names one. Later such nodes cannot be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    images_end: Option<String>,
    /// A condition or exception.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    /// The vendor's page.
    source: &'static str,
    /// The day on which the source was last read.
    checked: String,
}

impl VendorRow {
    fn of(row: &Statement) -> Self {
        let version = |minor: u32| format!("1.{minor}");
        Self {
            name: row.vendor.as_str(),
            since: row.first.map(version),
            removed_in: row.removed.map(version),
            end_of_support: row.support_end.map(|day| day.to_string()),
            images_end: row.images_end.map(|day| day.to_string()),
            note: row.note,
            source: row.source,
            checked: row.checked.to_string(),
        }
    }
}

impl WindowsRelease {
    fn of(product: &'static Product) -> Self {
        let runs = |isolation: Isolation| -> Vec<&'static str> {
            let images = builds::all().iter().filter(|image| !image.base_tags.is_empty());
            images.filter(|image| can_run(isolation, image.build, product.build)).map(|image| image.version).collect()
        };
        Self {
            version: product.version,
            build: product.build.to_string(),
            product: product.name,
            image_tags: product.base_tags,
            kubernetes: listed(product.build),
            mainstream_end: product.mainstream_end.to_string(),
            end_of_support: product.end_of_support.to_string(),
            vendors: STATEMENTS.iter().filter(|row| row.build == product.build).map(VendorRow::of).collect(),
            process_isolation: runs(Isolation::Process),
            hyper_v_isolation: runs(Isolation::HyperV),
        }
    }
}

/// Returns the Kubernetes versions whose documentation lists the build, as ranges.
fn listed(build: Build) -> Vec<String> {
    let support = |minor: u32| KubernetesVersion { major: 1, minor }.support_of(build);
    let known = (FIRST..).take_while(|minor| support(*minor) != KubernetesSupport::Unknown);
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for minor in known.filter(|minor| support(*minor) == KubernetesSupport::Listed) {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == minor => *last = minor,
            _ => spans.push((minor, minor)),
        }
    }
    let text = |(first, last)| if first == last { format!("1.{first}") } else { format!("1.{first}-1.{last}") };
    spans.into_iter().map(text).collect()
}

pub fn run(arguments: Arguments) -> Result<Outcome, OutputError> {
    let rows: Vec<WindowsRelease> = builds::all().iter().map(WindowsRelease::of).collect();
    output::print(arguments.output.format, &rows, || text(&rows))?;
    Ok(Outcome::Done)
}

fn text(rows: &[WindowsRelease]) -> Text {
    let mut table = Table::new(&["VERSION", "BUILD", "TAGS", "KUBERNETES", "SUPPORT ENDS", "RUNS IMAGES"]);
    for row in rows {
        let or_none = |list: String| if list.is_empty() { "-".to_owned() } else { list };
        table.row([
            row.version,
            &row.build,
            &or_none(row.image_tags.join(", ")),
            &or_none(row.kubernetes.join(", ")),
            &row.end_of_support,
            &or_none(row.process_isolation.join(", ")),
        ]);
    }
    let mut text = Text::new();
    let note = "RUNS IMAGES lists the versions whose images a version runs by process isolation; those of another version need containerd \
                1.7.19 or later. By Hyper-V isolation it runs its own and older ones (-o json lists them).";
    text.table(&table).gap().paragraph("", note);
    text.gap().table(&vendors(rows)).gap().paragraph("", VENDORS_NOTE);
    text
}

const VENDORS_NOTE: &str = "SUPPORT ENDS is Microsoft's in the first table and the vendor's in the second. What a vendor does \
                            not say is unknown. The sources, and the days on which they were read, are in the output of -o json.";

fn vendors(rows: &[WindowsRelease]) -> Table {
    let mut table = Table::new(&["VENDOR", "VERSION", "KUBERNETES", "SUPPORT ENDS", "LAST IMAGES", "NOTE"]);
    for (row, vendor) in rows.iter().flat_map(|row| row.vendors.iter().map(move |vendor| (row, vendor))) {
        let since = vendor.since.as_ref().map(|version| format!(">= {version}"));
        let kubernetes = since.or(vendor.removed_in.as_ref().map(|version| format!("< {version}")));
        let or_unknown = |day: &Option<String>| day.clone().unwrap_or_else(|| "unknown".to_owned());
        table.row([
            vendor.name,
            row.version,
            &or_unknown(&kubernetes),
            &or_unknown(&vendor.end_of_support),
            &or_unknown(&vendor.images_end),
            vendor.note.unwrap_or("-"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_each_release_runs() {
        let rows: Vec<WindowsRelease> = builds::all().iter().map(WindowsRelease::of).collect();
        insta::assert_snapshot!(text(&rows).plain());
    }
}
