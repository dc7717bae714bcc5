//! The pure core: the last results of its Criterion benches (`make bench-core`).

use crate::Result;
use crate::report::{Report, Target};
use serde_json::Value;
use std::path::Path;

/// Nanoseconds for planning one node, however many there are.
const ONE_NODE: Target = Target::Value(2000.0);
/// The time for one node of the largest pool, beside the smallest.
const GROWTH: Target = Target::Ratio(1.5);

pub fn run(directory: &Path, report: &mut Report) -> Result<()> {
    if !directory.is_dir() {
        eprintln!("    core is not measured: run `make bench-core` first");
        return Ok(());
    }
    for name in names(directory)? {
        if let Some(time) = median(&directory.join(&name)) {
            let target = if name.starts_with("plan one node") { ONE_NODE } else { Target::None };
            report.value(&name, "ns", time, target);
        }
    }
    let pools = names(&directory.join("pool"))?.into_iter().filter_map(|name| name.parse::<u32>().ok());
    let mut pools: Vec<u32> = pools.collect();
    pools.sort_unstable();
    let each = |size: &u32| Some(median(&directory.join(format!("pool/{size}")))? / f64::from(*size));
    let each: Vec<f64> = pools.iter().filter_map(each).collect();
    for (size, time) in pools.iter().zip(&each) {
        report.value(&format!("a pool of {size} nodes, for each"), "ns", *time, Target::None);
    }
    if let [first, .., last] = each[..] {
        report.beside("a node of the largest pool, beside the smallest", "ns", last, first, GROWTH);
    }
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn median(directory: &Path) -> Option<f64> {
    let text = std::fs::read(directory.join("new/estimates.json")).ok()?;
    serde_json::from_slice::<Value>(&text).ok()?["median"]["point_estimate"].as_f64()
}
