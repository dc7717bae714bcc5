//! The commands agree: generated workloads on generated clusters with several pools, and what each command says of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const OLD: &str = "10.0.17763";
const NEW: &str = "10.0.20348";

/// The answer of a command as JSON.
fn answer(directory: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    let output = command.args(arguments).args(["-f", ".", "-o", "json"]).current_dir(directory).output().unwrap();
    let text = || format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text()))
}

fn node(name: &str, labels: &Value, build: Option<&str>, taints: &Value) -> Value {
    let system = if build.is_some() { "windows" } else { "linux" };
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": system, "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"nodeInfo": {
            "operatingSystem": system, "containerRuntimeVersion": "containerd://1.7.20",
            "kernelVersion": build.map_or_else(|| "6.8.0".to_owned(), |build| format!("{build}.4000")),
        }},
    });
    json_patch::merge(&mut object["metadata"]["labels"], labels);
    object
}

/// Nodes by what they have: no taint, the taint of another writer, or all that winpool adds for the pool `default`.
pub fn clusters() -> Vec<(&'static str, Vec<Value>)> {
    let taint = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let linux = node("linux", &json!({}), None, &json!([]));
    let pair = |taints: &Value| {
        let windows = [("win-old", OLD, "old"), ("win-new", NEW, "new")];
        let windows =
            windows.map(|(name, build, group)| node(name, &json!({"example.com/group": group}), Some(build), taints));
        windows.into_iter().chain([linux.clone()]).collect::<Vec<_>>()
    };
    let mut converged = pair(&taint);
    for (node, build) in converged.iter_mut().zip([OLD, NEW]) {
        let labels = json!({"node.kubernetes.io/windows-build": build, "winpool.dev/pool": "default"});
        json_patch::merge(&mut node["metadata"]["labels"], &labels);
        let applied = json!({"pool": "default", "taints": ["os=windows:NoSchedule"]}).to_string();
        node["metadata"]["annotations"] = json!({"winpool.dev/applied": applied});
    }
    vec![("open", pair(&json!([]))), ("tainted", pair(&taint)), ("converged", converged)]
}

pub fn pools() -> Vec<(&'static str, Vec<Value>)> {
    let pool = |spec: Value| json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": spec});
    vec![
        ("none", Vec::new()),
        ("enforced", vec![pool(json!({}))]),
        ("compatible", vec![pool(json!({"runtimeClassHostMatch": "Compatible"}))]),
        ("dry run", vec![pool(json!({"mode": "DryRun"}))]),
    ]
}

/// Workloads of every combination of kind, selector, toleration and image.
pub fn workloads() -> Vec<Value> {
    let selectors = [
        ("none", json!({})),
        ("os", json!({"nodeSelector": {"kubernetes.io/os": "windows"}})),
        ("group", json!({"nodeSelector": {"example.com/group": "old"}})),
        ("class", json!({"runtimeClassName": "windows-2019"})),
        ("linux", json!({"nodeSelector": {"kubernetes.io/os": "linux"}})),
    ];
    let tolerations = [
        ("", json!({})),
        (
            "-tolerant",
            json!({"tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]}),
        ),
    ];
    let images = [
        ("plain", "registry.example/app:7"),
        ("old", "registry.example/app:7-ltsc2019"),
        ("new", "registry.example/app:7-ltsc2022"),
    ];
    let mut all = Vec::new();
    for (selector, select) in &selectors {
        for (tolerant, tolerate) in &tolerations {
            for (tag, image) in &images {
                let mut spec = json!({"containers": [{"name": "c", "image": image}]});
                json_patch::merge(&mut spec, select);
                json_patch::merge(&mut spec, tolerate);
                // Every third workload is a DaemonSet.
                let kind = if all.len() % 3 == 2 { "DaemonSet" } else { "Deployment" };
                all.push(json!({
                    "apiVersion": "apps/v1", "kind": kind,
                    "metadata": {"name": format!("{selector}{tolerant}-{tag}"), "namespace": "shop"},
                    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}},
                }));
            }
        }
    }
    all
}

/// A pod of each workload that selects nothing, which has started on this node.
pub fn pods(workloads: &[Value], node: &str) -> Vec<Value> {
    let selects_nothing = |workload: &&Value| workload["metadata"]["name"].as_str().unwrap().starts_with("none");
    let pod = |workload: &Value| {
        let (kind, name) = (&workload["kind"], workload["metadata"]["name"].as_str().unwrap());
        let mut spec = workload["spec"]["template"]["spec"].clone();
        spec["nodeName"] = json!(node);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-0"), "namespace": "shop", "uid": name,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}],
            },
            "spec": spec,
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "state": {"running": {}}}]},
        })
    };
    workloads.iter().filter(selects_nothing).map(pod).collect()
}

fn named(object: &Value) -> String {
    format!("{}/{}", object["kind"].as_str().unwrap().to_ascii_lowercase(), object["name"].as_str().unwrap())
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The objects of these entries.
fn objects<'v>(entries: impl Iterator<Item = &'v Value>) -> BTreeSet<String> {
    entries.map(|entry| named(&entry["object"])).collect()
}

/// What `plan` says to lack a toleration, `check` names. If nodes lack the taint, `plan` names what does not tolerate it.
fn plan_and_check(directory: &Path, adds_taint: bool) -> Vec<String> {
    let (check, plan) = (answer(directory, &["check"]), answer(directory, &["plan"]));
    let lists = entries(&plan["summary"]["pools"]).flat_map(|pool| ["withoutPods", "helped"].map(|list| &pool[list]));
    let named = objects(lists.flat_map(entries));
    let found = objects(entries(&check["findings"]));
    let of_tolerations = |finding: &&Value| finding["rule"].as_str().unwrap().ends_with("toleration-missing");
    let lacking = objects(entries(&check["findings"]).filter(of_tolerations).filter(|_| adds_taint));
    let planned = &named | &objects(entries(&plan["workloads"]));
    let unfound =
        named.difference(&found).map(|object| format!("plan: {object} lacks a toleration; check finds nothing"));
    let unplanned =
        lacking.difference(&planned).map(|object| format!("check: {object} lacks a toleration; plan does not name it"));
    unfound.chain(unplanned).collect()
}

/// Where new pods run today is the same for `plan` and `why`, unless `why` finds another error of the workload. Without classes in the
/// manifests, `plan` says that a pool will create them, and `why` takes them as created.
fn plan_and_why(directory: &Path) -> Vec<String> {
    let plan = answer(directory, &["plan"]);
    let names_no_class = |workload: &&Value| !workload["object"]["name"].as_str().unwrap().starts_with("class");
    let differing = entries(&plan["workloads"]).filter(names_no_class).filter_map(|workload| {
        let (object, now) = (named(&workload["object"]), &workload["now"]);
        let why = answer(directory, &["why", &object, "-n", "shop"]);
        let differs = why["outcome"] != *now && why["problems"].is_null();
        differs.then(|| format!("plan: {object} {now}; why: {}", why["outcome"]))
    });
    differing.collect()
}

/// What `plan --assume` calls unknown, `blockers` and `report` do not assess, or they know what pins it.
fn unknown(directory: &Path) -> Vec<String> {
    let upgrade = answer(directory, &["plan", "--assume", "example.com/group=old:2022"]);
    let blockers = answer(directory, &["blockers", "--retire", "2019", "--move-to", "2022"]);
    let report = answer(directory, &["report", "--move-to", "2022"]);
    let is_unknown = |workload: &&Value| ["now", "rolling", "after"].iter().any(|stage| workload[*stage] == "Unknown");
    let unknown = objects(entries(&upgrade["workloads"]).filter(is_unknown));
    let not_assessed = objects(entries(&blockers["unknown"]));
    let named = &not_assessed | &objects(entries(&blockers["blockers"]));
    let of_old = entries(&report["workloads"]).filter(|version| version["build"] == OLD);
    let of_report = objects(of_old.flat_map(|version| entries(&version["unknown"])));
    let unnamed = unknown
        .difference(&named)
        .map(|object| format!("plan --assume: {object} is unknown; blockers does not name it"));
    let other = not_assessed.symmetric_difference(&of_report);
    unnamed.chain(other.map(|object| format!("{object} is not assessed by one of blockers and report"))).collect()
}

#[test]
fn commands_agree_about_every_workload() {
    let (workloads, mut disagreements) = (workloads(), Vec::new());
    for (cluster, nodes) in clusters() {
        for (pool, pools) in pools().into_iter().filter(|(_, pools)| !pools.is_empty()) {
            // With one pool also while pods run.
            let running = (pool == "enforced").then(|| pods(&workloads, "win-old"));
            for pods in [Vec::new()].into_iter().chain(running) {
                let directory = tempfile::tempdir().unwrap();
                let objects = workloads.iter().chain(&nodes).chain(&pools).chain(&pods);
                let all: Vec<String> = objects.map(Value::to_string).collect();
                fs::write(directory.path().join("all.yaml"), all.join("\n---\n")).unwrap();
                let directory = directory.path();
                let mut found = [plan_and_check(directory, cluster == "open"), unknown(directory)].concat();
                if pool == "enforced" {
                    found.extend(plan_and_why(directory));
                }
                let setting = format!("{cluster}, {pool}, {} pods", pods.len());
                disagreements.extend(found.into_iter().map(|found| format!("{setting}: {found}")));
            }
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}
