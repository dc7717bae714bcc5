//! The answers of the commands, as data. A commit that changes one says why. To write the snapshot again:
//! `INSTA_UPDATE=always cargo test -p winpool --test testsuite frozen::`.
//!
//! A line has a command with its object, the answer without its prose, and the numbers of the settings in which it holds. The settings
//! are the clusters of the test of agreement, each with each of its pools, and the files beside this one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::agreement::{clusters, pods, pools, workloads};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frozen");

/// What people read, and dates.
const PROSE: [&str; 14] = [
    "text",
    "message",
    "reason",
    "reasons",
    "notes",
    "field",
    "file",
    "line",
    "example",
    "errors",
    "daysLeft",
    "supportEndsNext",
    "endOfSupport",
    "mainstreamEnd",
];

/// The commands that answer about everything.
const COMMANDS: [&[&str]; 6] = [
    &["check"],
    &["plan"],
    &["plan", "--assume", "example.com/group=old:2022"],
    &["blockers", "--retire", "2019", "--move-to", "2022"],
    &["status"],
    &["fix"],
];

fn run(directory: &Path, arguments: &[&str], as_json: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).args(["-f", "."]).args(if as_json { &["-o", "json"][..] } else { &[] });
    command.env("KUBECONFIG", "/nonexistent").current_dir(directory).output().unwrap()
}

/// The answer without prose, with objects as `Deployment shop/web`.
fn data(value: &Value) -> Value {
    match value {
        Value::Object(fields) if fields.len() <= 3 && fields.contains_key("kind") && fields.contains_key("name") => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str);
            let namespace = text("namespace").map(|namespace| format!("{namespace}/")).unwrap_or_default();
            json!(format!("{} {namespace}{}", text("kind").unwrap(), text("name").unwrap()))
        }
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(key, value)| !PROSE.contains(&key.as_str()) && !value.is_null());
            kept.map(|(key, value)| (key.clone(), data(value))).filter(|(_, value)| *value != json!([])).collect()
        }
        Value::Array(items) => items.iter().map(data).collect(),
        other => other.clone(),
    }
}

/// A line for each element of the lists of an answer, and one for the rest.
fn lines(command: &str, output: &Output) -> Vec<String> {
    let code = output.status.code().unwrap();
    let Ok(Value::Object(answer)) = serde_json::from_slice(&output.stdout) else {
        return vec![format!("{command}: exit {code}")];
    };
    let (mut lines, mut rest) = (Vec::new(), serde_json::Map::new());
    for (key, value) in answer.into_iter().filter(|(key, _)| !PROSE.contains(&key.as_str())) {
        match data(&value) {
            Value::Array(items) => lines.extend(items.iter().map(|item| format!("{command}: {key}: {item}"))),
            value => drop(rest.insert(key, value)),
        }
    }
    lines.push(format!("{command}: exit {code}: {}", Value::Object(rest)));
    lines
}

/// The lines that `fix` would change.
fn changed(output: &Output) -> Vec<String> {
    let diff = String::from_utf8(output.stdout.clone()).unwrap();
    let is_change =
        |line: &&str| line.starts_with(['-', '+']) && !line.starts_with("--- ") && !line.starts_with("+++ ");
    let lines = diff.lines().filter(is_change).map(|line| format!("fix: {line}"));
    lines.chain([format!("fix: exit {}", output.status.code().unwrap())]).collect()
}

/// Everything that the commands say of the manifests in a directory.
fn answers(directory: &Path, objects: &[Value]) -> Vec<String> {
    let mut all = Vec::new();
    for command in COMMANDS {
        let is_fix = command == ["fix"];
        let output = run(directory, command, !is_fix);
        all.extend(if is_fix { changed(&output) } else { lines(&command.join(" "), &output) });
    }
    for object in objects {
        let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
        if matches!(kind, "Deployment" | "DaemonSet" | "StatefulSet" | "Job" | "CronJob" | "Pod") {
            let name = format!("{}/{}", kind.to_ascii_lowercase(), metadata["name"].as_str().unwrap());
            let namespace = metadata["namespace"].as_str().unwrap_or("default");
            all.extend(lines(&format!("why {name}"), &run(directory, &["why", &name, "-n", namespace], true)));
        }
    }
    all
}

/// The settings by name, each with its objects.
fn settings() -> Vec<(String, Vec<Value>)> {
    let workloads = workloads();
    let mut all = vec![("no nodes".to_owned(), workloads.clone())];
    for (cluster, nodes) in clusters() {
        for (pool, pools) in pools() {
            let objects = || workloads.iter().chain(&nodes).chain(&pools).cloned();
            all.push((format!("{cluster}, {pool}"), objects().collect()));
            if pool == "enforced" {
                let with_pods = objects().chain(pods(&workloads, "win-old"));
                all.push((format!("{cluster}, {pool}, with pods"), with_pods.collect()));
            }
        }
    }
    let mut cases: Vec<_> = fs::read_dir(CASES).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        let text = fs::read_to_string(&case).unwrap();
        let objects = serde_yaml::from_multiple(&text).unwrap();
        all.push((case.file_name().unwrap().to_str().unwrap().to_owned(), objects));
    }
    all
}

/// The answers in one setting.
fn answers_in(objects: &[Value]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let texts: Vec<String> = objects.iter().map(|object| serde_yaml::to_string(object).unwrap()).collect();
    fs::write(directory.path().join("all.yaml"), texts.join("---\n")).unwrap();
    answers(directory.path(), objects)
}

#[test]
fn every_answer_is_the_one_that_was_signed() {
    let settings = settings();
    let (mut names, mut held) = (String::new(), BTreeMap::<String, BTreeSet<usize>>::new());
    std::thread::scope(|scope| {
        let parts: Vec<_> = settings.chunks(settings.len().div_ceil(4)).collect();
        let parts = parts.into_iter().map(|part| {
            scope.spawn(|| part.iter().map(|(name, objects)| (name, answers_in(objects))).collect::<Vec<_>>())
        });
        let answered = parts.collect::<Vec<_>>().into_iter().flat_map(|part| part.join().unwrap());
        for (number, (name, lines)) in answered.enumerate() {
            writeln!(names, "setting {number}: {name}").unwrap();
            for line in lines {
                held.entry(line).or_default().insert(number);
            }
        }
    });
    let line = |(line, numbers): (&String, &BTreeSet<usize>)| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        format!("{line} @{}", numbers.join(","))
    };
    let lines: Vec<String> = held.iter().map(line).collect();
    insta::assert_snapshot!("answers", format!("{names}{}", lines.join("\n")));
}
