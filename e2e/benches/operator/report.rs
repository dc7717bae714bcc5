//! Results: a table on standard output, and JSON. Medians and quartiles assume nothing about the noise.

use crate::Result;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use winpool_e2e::machine::assets::kubernetes_version;

/// The measured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Winpool,
    Floor,
    /// The floor with the smallest patches that are safe, in scenarios that write.
    Smallest,
}

/// The turns of a number of pairs: A B, B A, …, so that neither always finds the machine as the other left it.
pub fn turns(pairs: u16, writers: &[Turn]) -> impl Iterator<Item = Turn> {
    (0..pairs).flat_map(move |pair| {
        let mut writers = writers.to_vec();
        if pair % 2 == 1 {
            writers.reverse();
        }
        writers
    })
}

/// The values of a turn by what they measure.
pub type Values = Vec<(&'static str, f64)>;

/// The values of all turns.
#[derive(Default)]
pub struct Series {
    winpool: HashMap<&'static str, Vec<f64>>,
    floor: HashMap<&'static str, Vec<f64>>,
    smallest: HashMap<&'static str, Vec<f64>>,
}

impl Series {
    pub fn add(&mut self, turn: Turn, values: &Values) {
        let series = match turn {
            Turn::Winpool => &mut self.winpool,
            Turn::Floor => &mut self.floor,
            Turn::Smallest => &mut self.smallest,
        };
        for (key, value) in values {
            series.entry(key).or_default().push(*value);
        }
    }

    /// The median of winpool's values.
    pub fn median(&self, key: &str) -> f64 {
        quantile(&self.winpool[key], 0.5)
    }
}

/// One line of the report: a value, and its target.
#[derive(Clone, Copy)]
pub struct Row(pub &'static str, pub &'static str, pub &'static str, pub Show, pub Target);

/// The way in which the values of all turns become one.
#[derive(Clone, Copy)]
pub enum Show {
    /// The medians, and the median of the ratios of the pairs.
    Pairs,
    /// The same, beside the floor with the smallest patches.
    Smallest,
    /// This quantile of winpool's values.
    Winpool(f64),
    /// This quantile of each.
    Both(f64),
}

/// The most that is allowed.
#[derive(Clone, Copy)]
pub enum Target {
    None,
    /// A multiple of the floor.
    Ratio(f64),
    Value(f64),
    /// By size.
    AtSize(&'static [(usize, f64)]),
}

#[derive(Default)]
pub struct Report {
    /// The present measurement.
    pub scenario: String,
    results: Vec<Value>,
}

impl Report {
    /// Adds a row of this size.
    pub fn add(&mut self, row: Row, size: usize, what: &str, series: &Series) {
        let Row(_, unit, key, show, target) = row;
        let floor = if matches!(show, Show::Smallest) { &series.smallest } else { &series.floor };
        let [winpool, floor] = [&series.winpool, floor].map(|values| values.get(key).map_or(&[][..], |v| v));
        let target = match target {
            Target::AtSize(targets) => {
                let target = targets.iter().find(|(at, _)| *at == size);
                target.map_or(Target::None, |(_, target)| Target::Value(*target))
            }
            target => target,
        };
        match show {
            Show::Winpool(part) => self.value(what, unit, quantile(winpool, part), target),
            Show::Both(part) => self.beside(what, unit, quantile(winpool, part), quantile(floor, part), target),
            Show::Pairs | Show::Smallest => {
                let ratios: Vec<f64> = winpool.iter().zip(floor).map(|(winpool, floor)| winpool / floor).collect();
                self.result(what, unit, quantile(winpool, 0.5), Some(quantile(floor, 0.5)), &ratios, target);
            }
        }
    }

    /// Adds one value.
    pub fn value(&mut self, what: &str, unit: &str, value: f64, target: Target) {
        self.result(what, unit, value, None, &[], target);
    }

    /// Adds one value beside another.
    pub fn beside(&mut self, what: &str, unit: &str, value: f64, floor: f64, target: Target) {
        self.result(what, unit, value, Some(floor), &[value / floor], target);
    }

    fn result(&mut self, what: &str, unit: &str, value: f64, floor: Option<f64>, ratios: &[f64], target: Target) {
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|part| quantile(ratios, part));
        let ratio = match ratios.len() {
            0 => String::new(),
            1 => format!("{median:.2}"),
            pairs => format!("{median:.2} ({q1:.2} to {q3:.2}, {pairs} pairs)"),
        };
        let (reached, target) = match target {
            Target::Ratio(target) => (Some(median <= target), format!("at most {target} times the floor")),
            Target::Value(target) => (Some(value <= target), format!("at most {}", text(target, unit))),
            Target::None | Target::AtSize(_) => (None, String::new()),
        };
        let verdict = reached.map_or("", |reached| if reached { "reached: " } else { "MISSED: " });
        let floor_text = floor.map(|floor| text(floor, unit)).unwrap_or_default();
        let (scenario, verdict) = (self.scenario.clone(), format!("{verdict}{target}"));
        if self.results.is_empty() {
            print_cells(&["scenario", "what", "winpool", "floor", "ratio", "target"].map(str::to_owned));
            print_cells(&WIDTHS.map(|width| "-".repeat(width)));
        }
        print_cells(&[scenario.clone(), what.to_owned(), text(value, unit), floor_text, ratio, verdict]);
        self.results.push(json!({
            "scenario": scenario, "what": what, "unit": unit, "winpool": value, "floor": floor,
            "ratio": {"q1": q1, "median": median, "q3": q3, "count": ratios.len()}, "target": target, "reached": reached,
        }));
    }

    /// Prints the number of targets that were reached, and writes everything as JSON.
    pub fn finish(&self, options: &Value, file: &Path) -> Result<()> {
        let count = |reached: bool| self.results.iter().filter(|result| result["reached"] == reached).count();
        let (kubernetes, commit, machine) = (kubernetes_version().unwrap_or("unknown"), commit(), machine());
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let started = Timestamp::now();
        println!("\nKubernetes {kubernetes}, {cpus} CPUs ({machine}), commit {commit}, {started}");
        println!("{} of {} targets are reached.", count(true), count(true) + count(false));
        let all = json!({
            "finished": started, "commit": commit, "kubernetes": kubernetes, "machine": machine, "cpus": cpus,
            "options": options, "results": self.results,
        });
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(file, format!("{all:#}\n"))?;
        println!("The same as JSON: {}", file.display());
        Ok(())
    }
}

const WIDTHS: [usize; 6] = [14, 66, 8, 8, 28, 36];

fn print_cells(cells: &[String; 6]) {
    let cells: Vec<String> = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:width$}")).collect();
    println!("| {} |", cells.join(" | "));
}

/// Writes three digits: more than a measurement can promise.
fn text(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size.fract() == 0.0 || size >= 100.0 => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

/// The value below which this part of the values lies, interpolated between two of them. NaN if there is no value.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = part * last as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

/// The measured commit, marked if files differ from it.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("unknown", |(_, model)| model).to_owned()
}
