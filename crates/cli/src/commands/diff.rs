//! `winpool diff`: the workloads whose new pods run in one of two clusters and not in the other one.

use std::path::PathBuf;

use winpool_analysis::explain::difference::{AddedWorkload, Difference};
use winpool_analysis::explain::status::unread;
use winpool_analysis::image::Images;
use winpool_analysis::view::Policies;
use winpool_client::terminal::Outcome;

use crate::Error;
use crate::commands::plan::workloads_text;
use crate::print::output::{self, Output};
use crate::print::progress;
use crate::print::text::{BAD, BOLD, GOOD, Text, WARN};
use crate::read::against::ClusterSource;
use crate::read::forecast::now;
use crate::read::view::Seen;

/// Show the workloads whose new pods run in one of two clusters and not in the other one.
///
/// Each of the two is `cluster`, `cluster:CONTEXT`, a file that winpool snapshot wrote, or manifests: a file or a directory. winpool
/// compares both when the operator has done its part. A snapshot has no workloads: give them with -f. To compare two states of
/// manifests by one cluster, name the cluster with --against. Exit code 0: no difference, and all new workloads run; 2: a difference;
/// 1: an error, or a part of the manifests cannot be read.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool diff before.yaml after.yaml -f deploy/
  winpool diff cluster:blue cluster:green
  winpool diff main/deploy/ deploy/ --against cluster.yaml")]
pub struct Arguments {
    /// The first cluster.
    #[arg(value_name = "BEFORE")]
    pub before: ClusterSource,
    /// The second cluster.
    #[arg(value_name = "AFTER")]
    pub after: ClusterSource,
    /// File or directory with manifests that count for both. Repeat the flag for several.
    #[arg(long = "filename", short = 'f', value_name = "FILE|DIR")]
    pub files: Vec<PathBuf>,
    /// The cluster to which BEFORE and AFTER are applied: `cluster`, `cluster:CONTEXT`, or a file that winpool snapshot wrote.
    #[arg(long, value_name = "cluster|FILE")]
    pub against: Option<ClusterSource>,
    #[command(flatten)]
    pub output: Output,
}

impl Arguments {
    async fn read(&self, source: &ClusterSource) -> Result<Seen, Error> {
        let mut seen = match source {
            ClusterSource::File(path) => Seen::decisions_in(std::slice::from_ref(path))?,
            ClusterSource::Live(_) => source.decisions().await?,
        };
        if let Some(against) = &self.against {
            seen = against.decisions().await?.with_applied(seen);
        }
        if !self.files.is_empty() {
            seen = seen.with_applied(Seen::decisions_in(&self.files)?);
        }
        if seen.view.nodes.known().is_none() {
            let name = if let ClusterSource::File(path) = source {
                path.display().to_string()
            } else {
                "the cluster".to_owned()
            };
            return Err(Error::Subject(format!(
                "{name} has no nodes: add them with -f, or name a cluster with --against"
            )));
        }
        Ok(seen)
    }
}

pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    let (before, after) = (arguments.read(&arguments.before).await?, arguments.read(&arguments.after).await?);
    let mut gaps = before.gaps;
    gaps.add(after.gaps);
    let (before, after) = (before.view, after.view);
    let mut notes: Vec<String> = [&before, &after]
        .into_iter()
        .flat_map(|view| unread(&view.pods, &view.workloads, &Policies::of(&view.related)))
        .collect();
    notes.dedup();
    let images = Images::default();
    let difference = progress::during("comparing workloads", || Difference::of(before, after, &images, now()))?;
    let difference = Difference { notes, ..difference };
    output::print(arguments.output.format, &difference, || text(&difference))?;
    let fails = |added: &AddedWorkload| added.reason.is_some();
    let is_equal = difference.workloads.is_empty() && !difference.added.iter().any(fails);
    Ok(gaps.outcome(if is_equal { Outcome::Done } else { Outcome::Pending }))
}

fn text(Difference { workloads, removed, added, notes }: &Difference) -> Text {
    let mut text = Text::new();
    if workloads.is_empty() {
        text.styled("", GOOD, "No workload of both runs in one of the two only.");
    }
    for note in notes {
        text.wrapped("", WARN, &format!("Note: {note}"));
    }
    workloads_text(&mut text, workloads);
    if !added.is_empty() {
        text.gap().styled("", BOLD, "Only in the second");
    }
    for AddedWorkload { object, reason } in added {
        match reason {
            Some(reason) => text.wrapped("  ", BAD, &format!("{object} does not run everywhere: {reason}")),
            None => text.line(&format!("  {object}")),
        };
    }
    if !removed.is_empty() {
        text.gap().styled("", BOLD, "Only in the first");
    }
    for object in removed {
        text.line(&format!("  {object}"));
    }
    text
}
