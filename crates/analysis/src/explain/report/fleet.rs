//! The reports of several clusters together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Numbers, Report};

/// The reports of several clusters, made without access to any of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Fleet {
    /// The sums of the numbers that are known.
    pub totals: Numbers,
    /// The reports, in the order of the files. Each has the name of its cluster, or else of its file.
    pub clusters: Vec<Report>,
}

impl Fleet {
    /// Takes the reports with the names of their files, which tell clusters apart that have no name or the same one.
    pub fn of(reports: Vec<(String, Report)>) -> Self {
        let mut seen: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for (_, report) in &reports {
            *seen.entry(report.cluster.clone()).or_default() += 1;
        }
        let named = reports.into_iter().map(|(file, report)| {
            let cluster = match &report.cluster {
                None => file,
                Some(name) if seen.get(&report.cluster).is_some_and(|number| *number > 1) => format!("{name} ({file})"),
                Some(name) => name.clone(),
            };
            Report { cluster: Some(cluster), ..report }
        });
        let clusters: Vec<Report> = named.collect();
        Self { totals: clusters.iter().map(|report| &report.numbers).sum(), clusters }
    }

    /// True if each report is complete.
    pub fn is_complete(&self) -> bool {
        self.clusters.iter().all(Report::is_complete)
    }
}
