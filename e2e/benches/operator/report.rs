//! Results: as a table and as JSON.

use crate::Result;
use crate::options::Options;
use crate::statistics::{Pairs, Quartiles, median};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use winpool_e2e::kubernetes_version;

/// All results of one run.
#[derive(Serialize)]
pub struct Report<'o> {
    started: Timestamp,
    commit: String,
    kubernetes: String,
    machine: String,
    cpus: usize,
    options: &'o Options,
    results: Vec<Row>,
    notes: Vec<String>,
    /// What is measured at present.
    #[serde(skip)]
    pub scenario: &'static str,
}

/// One result.
#[derive(Serialize)]
pub struct Row {
    scenario: &'static str,
    what: String,
    unit: &'static str,
    winpool: f64,
    floor: Option<f64>,
    ratio: Option<Quartiles>,
    target: Option<Target>,
    reached: Option<bool>,
}

/// What a result is to be, at most.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Target {
    Ratio(f64),
    Value(f64),
}

impl Row {
    /// A value without a floor.
    pub fn value(what: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self {
            scenario: "",
            what: what.into(),
            unit,
            winpool: value,
            floor: None,
            ratio: None,
            target: None,
            reached: None,
        }
    }

    /// Medians, and the median of the ratios.
    pub fn paired(what: impl Into<String>, unit: &'static str, pairs: &Pairs) -> Self {
        Self {
            floor: Some(median(&pairs.floor)),
            ratio: Some(pairs.ratio()),
            ..Self::value(what, unit, median(&pairs.winpool))
        }
    }

    /// A value beside its floor, where there are no pairs.
    pub fn beside(what: impl Into<String>, unit: &'static str, value: f64, floor: f64) -> Self {
        Self { floor: Some(floor), ratio: Some(Quartiles::of(&[value / floor])), ..Self::value(what, unit, value) }
    }

    /// The ratio is to be this at most.
    pub fn ratio_at_most(mut self, target: f64) -> Self {
        self.target = Some(Target::Ratio(target));
        self.reached = self.ratio.map(|ratio| ratio.median <= target);
        self
    }

    /// winpool's value is to be this at most.
    pub fn at_most(mut self, target: f64) -> Self {
        self.target = Some(Target::Value(target));
        self.reached = Some(self.winpool <= target);
        self
    }

    fn cells(&self) -> [String; 6] {
        let ratio = self.ratio.map(|Quartiles { q1, median, q3, count }| match count {
            1 => format!("{median:.2}"),
            _ => format!("{median:.2} ({q1:.2} to {q3:.2}, {count} pairs)"),
        });
        let target = match self.target {
            Some(Target::Ratio(target)) => format!("at most {target} times the floor"),
            Some(Target::Value(target)) => format!("at most {}", number(target, self.unit)),
            None => String::new(),
        };
        let verdict = match self.reached {
            Some(true) => "reached: ",
            Some(false) => "MISSED: ",
            None => "",
        };
        [
            self.scenario.to_owned(),
            self.what.clone(),
            number(self.winpool, self.unit),
            self.floor.map(|floor| number(floor, self.unit)).unwrap_or_default(),
            ratio.unwrap_or_default(),
            format!("{verdict}{target}"),
        ]
    }
}

/// Three digits are more than a measurement can promise.
fn number(value: f64, unit: &str) -> String {
    let text = if value.fract() == 0.0 || value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else if value.abs() >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    };
    format!("{text} {unit}").trim_end().to_owned()
}

impl<'o> Report<'o> {
    /// Nothing is measured yet.
    pub fn new(options: &'o Options) -> Self {
        Self {
            started: Timestamp::now(),
            commit: commit(),
            kubernetes: kubernetes_version().unwrap_or("unknown").to_owned(),
            machine: machine(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            options,
            results: Vec::new(),
            notes: Vec::new(),
            scenario: "",
        }
    }

    /// Adds a result, and shows it at once.
    pub fn add(&mut self, row: Row) {
        let row = Row { scenario: self.scenario, ..row };
        let [_, what, winpool, floor, ratio, target] = row.cells();
        let beside = if floor.is_empty() { String::new() } else { format!(", floor {floor}, ratio {ratio}") };
        let target = if target.is_empty() { target } else { format!(" ({target})") };
        eprintln!("    {what}: {winpool}{beside}{target}");
        self.results.push(row);
    }

    /// Adds what is no number.
    pub fn note(&mut self, text: &str) {
        eprintln!("    {text}");
        self.notes.push(format!("{}: {text}", self.scenario));
    }

    /// The whole table, in Markdown.
    pub fn print(&self) {
        let head = ["scenario", "what", "winpool", "floor", "ratio", "target"].map(str::to_owned);
        let rows: Vec<_> = [head].into_iter().chain(self.results.iter().map(Row::cells)).collect();
        let widths: Vec<usize> =
            (0..6).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()).collect();
        println!(
            "\nKubernetes {}, {} CPUs ({}), commit {}, {}\n",
            self.kubernetes, self.cpus, self.machine, self.commit, self.started
        );
        for (index, row) in rows.iter().enumerate() {
            let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("| {} |", cells.join(" | "));
            if index == 0 {
                let rules: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
                println!("| {} |", rules.join(" | "));
            }
        }
        println!();
        for note in &self.notes {
            println!("- {note}");
        }
        let missed = self.results.iter().filter(|row| row.reached == Some(false)).count();
        let targets = self.results.iter().filter(|row| row.reached.is_some()).count();
        println!("\n{} of {targets} targets are reached.", targets - missed);
    }

    /// The same as JSON.
    pub fn write(&self, file: &Path) -> Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(file, serde_json::to_string_pretty(self)? + "\n")?)
    }
}

/// The commit that is measured, marked if files differ from it.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    Some(text.trim()).filter(|text| !text.is_empty()).unwrap_or("unknown").to_owned()
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown", |(_, model)| model).to_owned()
}
