//! The pure core: what its Criterion benches found last (`make bench-core`), with the growth by size.

use crate::Result;
use crate::options::target;
use crate::report::{Report, Row};
use serde_json::Value;
use std::path::Path;

/// Nanoseconds that planning one node may take, however many there are.
const ONE_NODE: f64 = 2000.0;

/// How much longer than in the smallest pool one of the nodes of the largest may take.
const GROWTH: f64 = 1.5;

/// Reads and tells it.
#[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
pub fn run(report: &mut Report<'_>) -> Result<()> {
    let folder = target()?.join("criterion");
    let Ok(groups) = std::fs::read_dir(&folder) else {
        report.note("not measured: `make bench-core` was not run");
        return Ok(());
    };
    let mut names: Vec<String> = Vec::new();
    for group in groups {
        names.push(group?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        let mut sizes = results(&folder.join(&name))?;
        sizes.sort_by_key(|(size, _)| *size);
        if name == "pool" {
            let each: Vec<f64> = sizes.iter().map(|(size, time)| time / (*size).max(1) as f64).collect();
            for ((size, _), each) in sizes.iter().zip(&each) {
                report.add(Row::value(format!("a pool of {size} nodes, for each"), "ns", *each));
            }
            if let (Some(first), Some(last)) = (each.first(), each.last()) {
                let row = Row::beside("a node of the largest pool, beside the smallest", "ns", *last, *first);
                report.add(row.ratio_at_most(GROWTH));
            }
            continue;
        }
        for (_, nanoseconds) in sizes {
            let row = Row::value(&name, "ns", nanoseconds);
            report.add(if name.starts_with("plan one node") { row.at_most(ONE_NODE) } else { row });
        }
    }
    Ok(())
}

/// Medians in nanoseconds, by the number that Criterion's folder is named for, if any.
fn results(folder: &Path) -> Result<Vec<(usize, f64)>> {
    let median = |folder: &Path| -> Option<f64> {
        let text = std::fs::read(folder.join("new/estimates.json")).ok()?;
        serde_json::from_slice::<Value>(&text).ok()?["median"]["point_estimate"].as_f64()
    };
    let mut found: Vec<_> = median(folder).map(|time| (0, time)).into_iter().collect();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let size = entry.file_name().to_string_lossy().parse();
        if let (Ok(size), Some(time)) = (size, median(&entry.path())) {
            found.push((size, time));
        }
    }
    Ok(found)
}
