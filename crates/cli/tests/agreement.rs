//! The commands agree: generated workloads on generated clusters with several pools, and what each command says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const OLD: &str = "10.0.17763";
const NEW: &str = "10.0.20348";

/// The answer of a command as JSON, and its exit code.
fn answer(directory: &Path, arguments: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    let output = command.args(arguments).args(["-f", ".", "-o", "json"]).current_dir(directory).output().unwrap();
    let text = || format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text()));
    (output.status.code().unwrap(), answer)
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

fn objects(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(|entry| named(&entry["object"])).collect()
}

/// What the commands say of one cluster with one pool.
struct Answers<'d> {
    directory: &'d Path,
    /// The findings about each object.
    findings: BTreeMap<String, Vec<Value>>,
}

impl<'d> Answers<'d> {
    fn of(directory: &'d Path) -> Self {
        let (_, check) = answer(directory, &["check"]);
        let mut findings: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for finding in check["findings"].as_array().unwrap() {
            findings.entry(named(&finding["object"])).or_default().push(finding.clone());
        }
        Self { directory, findings }
    }

    /// What `plan` says to lack a toleration, `check` names. If nodes lack the taint, `plan` names what does not tolerate it.
    fn plan_and_check(&self, plan: &Value, adds_taint: bool, found: &mut Vec<String>) {
        let pools = plan["summary"]["pools"].as_array().unwrap().iter();
        let lists = |pool: &Value| ["withoutPods", "helped"].map(|list| objects(&pool[list]));
        let named: BTreeSet<String> = pools.flat_map(lists).flatten().collect();
        for object in named.iter().filter(|object| !self.findings.contains_key(*object)) {
            found.push(format!("plan: {object} lacks a toleration; check finds nothing"));
        }
        let elsewhere = objects(&plan["workloads"]);
        for (object, findings) in &self.findings {
            let lacks =
                findings.iter().any(|finding| finding["rule"].as_str().unwrap().ends_with("toleration-missing"));
            if adds_taint && lacks && !named.contains(object) && !elsewhere.contains(object) {
                found.push(format!("check: {object} lacks a toleration; plan does not name it"));
            }
        }
    }

    /// The state of a node is one everywhere.
    fn states(&self, nodes: &[Value], plan: &Value, found: &mut Vec<String>) {
        let (_, status) = answer(self.directory, &["status"]);
        let mut of_why: BTreeMap<String, u64> = BTreeMap::new();
        for node in nodes.iter().filter(|node| node["metadata"]["labels"]["kubernetes.io/os"] == "windows") {
            let name = node["metadata"]["name"].as_str().unwrap();
            let (_, why) = answer(self.directory, &["why", "node", name]);
            let state = why["state"].as_str().unwrap();
            *of_why.entry(state.to_owned()).or_default() += 1;
            let is_changed = plan["nodes"].as_array().unwrap().iter().any(|node| node["name"] == name);
            if state == "converged" && is_changed || state == "pending" && !is_changed {
                found.push(format!("why node {name}: {state}; plan changes it: {is_changed}"));
            }
        }
        if json!(of_why) != status["nodesByState"] {
            found.push(format!("status: {}; why node: {of_why:?}", status["nodesByState"]));
        }
    }

    /// What `plan --assume` calls unknown, `blockers` and `report` do not assess, or they know what pins it.
    fn unknown(&self, found: &mut Vec<String>) {
        let (_, upgrade) = answer(self.directory, &["plan", "--assume", "example.com/group=old:2022"]);
        let (blockers_code, blockers) = answer(self.directory, &["blockers", "--retire", "2019", "--move-to", "2022"]);
        let (report_code, report) = answer(self.directory, &["report", "--move-to", "2022"]);
        let workloads = upgrade["workloads"].as_array().unwrap().iter();
        let is_unknown =
            |workload: &&Value| ["now", "rolling", "after"].iter().any(|stage| workload[*stage] == "Unknown");
        let unknown: BTreeSet<String> =
            workloads.filter(is_unknown).map(|workload| named(&workload["object"])).collect();
        let not_assessed = objects(&blockers["unknown"]);
        for object in
            unknown.difference(&not_assessed).filter(|object| !objects(&blockers["blockers"]).contains(*object))
        {
            found.push(format!("plan --assume: {object} is unknown; blockers does not name it"));
        }
        let versions = report["workloads"].as_array().unwrap().iter();
        let of_report: BTreeSet<String> = versions
            .filter(|version| version["build"] == OLD)
            .flat_map(|version| objects(&version["unknown"]))
            .collect();
        if of_report != not_assessed {
            found.push(format!("not assessed by report: {of_report:?}; by blockers: {not_assessed:?}"));
        }
        if !not_assessed.is_empty() && (blockers_code, report_code) != (2, 2) {
            found.push(format!("exit codes of blockers and report: {blockers_code}, {report_code}"));
        }
    }
}

#[test]
fn commands_agree_about_every_workload_and_node() {
    let workloads = workloads();
    let mut disagreements = Vec::new();
    for (cluster, nodes) in clusters() {
        // With one pool also while pods run.
        let without_pods = pools().into_iter().filter(|(_, pools)| !pools.is_empty());
        let without_pods = without_pods.map(|(pool, pools)| (pool, pools, Vec::new()));
        let with_pods = pools()
            .into_iter()
            .filter(|(pool, _)| *pool == "enforced")
            .map(|(pool, pools)| (pool, pools, pods(&workloads, "win-old")));
        for (pool, pools, pods) in without_pods.chain(with_pods) {
            let directory = tempfile::tempdir().unwrap();
            let objects = workloads.iter().chain(&nodes).chain(&pools).chain(&pods);
            let all: Vec<String> = objects.map(Value::to_string).collect();
            fs::write(directory.path().join("all.yaml"), all.join("\n---\n")).unwrap();
            let mut found = Vec::new();
            let answers = Answers::of(directory.path());
            answers.unknown(&mut found);
            let (_, plan) = answer(directory.path(), &["plan"]);
            answers.plan_and_check(&plan, cluster == "open", &mut found);
            answers.states(&nodes, &plan, &mut found);
            let pods = pods.len();
            disagreements.extend(found.into_iter().map(|found| format!("{cluster}, {pool}, {pods} pods: {found}")));
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}
