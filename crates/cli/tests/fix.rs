//! `winpool fix` as a process: its diffs are applied by `git apply` and `patch`, and nothing is left to fix.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::input::with_input;

mod cluster;
mod landing;
mod programs;

const POOL: &str = "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec: {}\n";

/// Two documents with comments, quotes and both styles.
const SHOP: &str = "\
# The shop.
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    spec:
      containers:
      - name: web # serves
        image: 'nginx:1.27'

        args: [\"-g\", 'daemon off;']
---
# Reports.
apiVersion: apps/v1
kind: DaemonSet
metadata:
    name: agent
    namespace: shop
spec:
    selector: {matchLabels: {app: agent}}
    template:
        spec:
            nodeSelector: {\"kubernetes.io/os\": windows}
            hostPID: true # of no use
            containers:
                - image: example.com/agent:1.0
                  name: agent
";

const LIST: &str = "{
  \"apiVersion\": \"v1\",
  \"kind\": \"List\",
  \"items\": [
    {\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"a\"}},
    {
      \"apiVersion\": \"v1\",
      \"kind\": \"Pod\",
      \"metadata\": {\"name\": \"p\"},
      \"spec\": {
        \"containers\": [{\"name\": \"c\", \"image\": \"app\"}]
      }
    }
  ]
}
";

const ALIASED: &str = "\
x-selector: &selector {kubernetes.io/arch: amd64}
apiVersion: v1
kind: Pod
metadata: {name: aliased}
spec:
  nodeSelector: *selector
  containers: []
";

fn winpool(arguments: &[&str], directory: &Path, input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    with_input(command.args(arguments).current_dir(directory).env("KUBECONFIG", "/nonexistent"), input)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn notes(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn texts(directory: &Path, files: &[(&str, &str)]) -> Vec<String> {
    files.iter().map(|(name, _)| fs::read_to_string(directory.join(name)).unwrap()).collect()
}

/// Applies a diff with this program.
fn apply(program: &[&str], directory: &Path, diff: &str) {
    let applied = with_input(Command::new(program[0]).args(&program[1..]).current_dir(directory), diff);
    assert!(applied.status.success(), "{program:?}: {}{}\n{diff}", out(&applied), notes(&applied));
}

#[test]
fn the_diff_of_a_directory_is_applied_and_leaves_nothing_to_fix() {
    let crlf = SHOP.replace('\n', "\r\n");
    let open = SHOP.trim_end();
    let files = [
        ("deploy/shop.yaml", SHOP),
        ("deploy/nested dir/list.json", LIST),
        ("deploy/crlf.yaml", &crlf),
        ("deploy/open.yaml", open),
        ("deploy/pool.yaml", POOL),
    ];
    let applied = [&["git", "apply", "-"][..], &["patch", "-p1", "--binary", "-s"]].map(|program| {
        let directory = directory(&files);
        let fixed = winpool(&["fix", "-f", "deploy"], directory.path(), "");
        assert_eq!(fixed.status.code(), Some(0), "{}", notes(&fixed));
        apply(program, directory.path(), &out(&fixed));
        let again = winpool(&["fix", "-f", "deploy"], directory.path(), "");
        assert_eq!((out(&again), again.status.code()), (String::new(), Some(0)));
        let left = winpool(&["check", "-f", "deploy", "-o", "json"], directory.path(), "");
        let left: Value = serde_json::from_slice(&left.stdout).unwrap();
        let certain = left["findings"].as_array().unwrap().iter().filter(|found| found["remedy"]["rank"] == "Certain");
        assert_eq!(certain.count(), 0, "{left:#}");
        texts(directory.path(), &files)
    });
    let [by_git, by_patch] = applied;
    assert_eq!(by_git, by_patch);
    insta::assert_snapshot!(by_git[0]);
    insta::assert_snapshot!(by_git[1]);
    assert_eq!(by_git[2], by_git[0].replace('\n', "\r\n"));
    assert_eq!(by_git[3], by_git[0].trim_end());
    assert_eq!(by_git[4], POOL);
}

#[test]
fn changes_are_counted_and_what_needs_a_decision_is_named() {
    let undecided = SHOP.replace("'nginx:1.27'", "tool-windows:1");
    let directory = directory(&[("shop.yaml", &undecided), ("pool.yaml", POOL)]);
    let fixed = winpool(&["fix", "-f", "shop.yaml", "-f", "pool.yaml"], directory.path(), "");
    assert_eq!(fixed.status.code(), Some(0));
    insta::assert_snapshot!(notes(&fixed));
    let probable = winpool(&["fix", "-f", "shop.yaml", "-f", "pool.yaml", "--probable"], directory.path(), "");
    insta::assert_snapshot!(notes(&probable));
    let only = winpool(&["fix", "-f", "shop.yaml", "--only", "os-name-missing"], directory.path(), "");
    assert!(notes(&only).ends_with("winpool: 1 changed, 0 by hand\n"), "{}", notes(&only));
}

#[test]
fn a_file_that_cannot_be_changed_safely_is_named_and_the_others_are_done() {
    let files = [("a.yaml", ALIASED), ("b.yaml", "kind: {{ .Values.kind }}\n"), ("c.yaml", SHOP), ("d.yaml", "a: [\n")];
    let directory = directory(&files);
    let fixed = winpool(&["fix", "-f", "."], directory.path(), "");
    assert_eq!(fixed.status.code(), Some(1));
    assert!(out(&fixed).starts_with("--- a/c.yaml\n+++ b/c.yaml\n"), "{}", out(&fixed));
    assert_eq!(out(&fixed).matches("\n--- ").count(), 0);
    let notes = notes(&fixed);
    assert!(
        notes.contains("./a.yaml:1: Pod default/aliased is not changed: /spec/nodeSelector is an alias"),
        "{notes}"
    );
    assert!(notes.contains("b.yaml:") && notes.contains("render it first"), "{notes}");
}

#[test]
fn the_items_of_a_list_around_one_that_cannot_be_changed_are_done() {
    let pod = |name: &str, selector: &str| {
        format!("- apiVersion: v1\n  kind: Pod\n  metadata: {{name: {name}}}\n  spec: {{{selector}containers: []}}\n")
    };
    let aliased = pod("b", "nodeSelector: *selector, ");
    let pods = [pod("a", ""), aliased, pod("c", ""), pod("d", ""), pod("e", "")];
    let list = format!(
        "apiVersion: v1\nkind: List\nx-selector: &selector {{kubernetes.io/arch: amd64}}\nitems:\n{}",
        pods.concat()
    );
    let fixed = winpool(&["fix", "-f", "-"], Path::new("."), &list);
    let all = "containers: [], nodeSelector: {kubernetes.io/os: linux}";
    let (first, rest) = list.split_once("- apiVersion: v1\n  kind: Pod\n  metadata: {name: c}").unwrap();
    let first = first.replacen("{containers: []", &format!("{{{all}"), 1);
    let rest = rest.replace("containers: []", all);
    assert_eq!(out(&fixed), format!("{first}- apiVersion: v1\n  kind: Pod\n  metadata: {{name: c}}{rest}"));
    assert!(
        notes(&fixed).contains("Pod default/b is not changed: /spec/nodeSelector is an alias"),
        "{}",
        notes(&fixed)
    );
    assert!(notes(&fixed).ends_with("winpool: 4 changed, 0 by hand\n"), "{}", notes(&fixed));
}

#[test]
fn a_stream_is_printed_with_its_changes() {
    let probable = SHOP.replace("'nginx:1.27'", "tool-windows:1");
    let directory = directory(&[("pool.yaml", POOL), ("probable.yaml", &probable)]);
    let other = "---\n# Not a workload.\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
    let input = [SHOP, other].concat();
    let fixed = winpool(&["fix", "-f", "-", "-f", "pool.yaml"], directory.path(), &input);
    assert_eq!(fixed.status.code(), Some(0), "{}", notes(&fixed));
    let text = out(&fixed);
    assert!(text.ends_with(other), "{text}");
    assert!(text.contains("kubernetes.io/os: linux") && text.contains("key: os"), "{text}");
    let again = winpool(&["fix", "-f", "-", "-f", "pool.yaml"], directory.path(), &text);
    assert_eq!(out(&again), text);
    let with_others = winpool(&["fix", "-f", "-", "-f", "."], directory.path(), &text);
    assert_eq!((out(&with_others), notes(&with_others).as_str()), (text, "winpool: 0 changed, 0 by hand\n"));
    let unreadable = winpool(&["fix", "-f", "-"], directory.path(), "a: [\n");
    assert_eq!((out(&unreadable).as_str(), unreadable.status.code()), ("", Some(1)));
}

#[test]
fn the_items_of_a_function_of_kustomize_are_changed() {
    let pod = "  - apiVersion: v1\n    kind: Pod\n    metadata:\n      name: p\n    spec:\n      containers:\n      - name: c\n        image: app\n";
    let list = format!(
        "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n{pod}functionConfig: {{kind: Fix}}\n"
    );
    let fixed = winpool(&["fix", "-f", "-"], Path::new("."), &list);
    let expected = format!("{pod}      nodeSelector:\n        kubernetes.io/os: linux\n");
    assert_eq!(out(&fixed), list.replace(pod, &expected));
}

#[test]
fn objects_of_the_cluster_are_changed_too() {
    let class = "apiVersion: node.k8s.io/v1beta1 # old\nkind: RuntimeClass\nmetadata: {name: windows}\nhandler: runhcs-wcow-process\n";
    let fixed = winpool(&["fix", "-f", "-"], Path::new("."), class);
    assert_eq!(out(&fixed), class.replace("v1beta1", "v1"));
    let pool = "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec:\n  podDefaults: {runtimeClassName: windows-2019}\n";
    let moved = winpool(&["fix", "-f", "-", "--retire", "2019", "--move-to", "2022"], Path::new("."), pool);
    assert_eq!(out(&moved), pool.replace("windows-2019", "windows-2022"), "{}", notes(&moved));
}

#[test]
fn a_workload_moves_to_another_version() {
    let build = "      nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}\n";
    let pinned =
        SHOP.replace("      containers:\n      - name: web", &format!("{build}      containers:\n      - name: web"));
    let directory = directory(&[("shop.yaml", &pinned)]);
    let moved = winpool(
        &[
            "fix",
            "deployment/web",
            "-f",
            "shop.yaml",
            "--retire",
            "2019",
            "--move-to",
            "2022",
            "--only",
            "os-selector-beta",
        ],
        directory.path(),
        "",
    );
    insta::assert_snapshot!(out(&moved));
    let back = winpool(&["fix", "-f", "shop.yaml", "--retire", "2022", "--move-to", "2019"], directory.path(), "");
    assert_eq!(back.status.code(), Some(1));
}

/// A workload of this kind with these fields of the pod spec and this image.
fn workload(name: usize, kind: &str, fields: &str, image: &str) -> String {
    let fields = if fields.is_empty() { String::new() } else { format!("{fields}, ") };
    format!(
        "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: a-{name}, namespace: shop}}\nspec:\n  selector: {{}}\n  template:\n    spec: {{{fields}containers: [{{name: c, image: '{image}'}}]}}\n"
    )
}

/// Returns the objects and rules of the errors and warnings.
fn rules(directory: &Path) -> BTreeSet<String> {
    let checked = winpool(&["check", "-f", ".", "-o", "json"], directory, "");
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let found = checked["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] != "info");
    found.map(|finding| format!("{} {}", finding["object"], finding["rule"])).collect()
}

#[test]
fn a_change_causes_no_other_finding() {
    let node = |name: &str, build: u32| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/os: windows, kubernetes.io/arch: amd64, group: {name}}}}}\nstatus: {{nodeInfo: {{operatingSystem: windows, kernelVersion: 10.0.{build}.1}}}}\n"
        )
    };
    let nodes = [node("win-2019", 17763), node("win-2022", 20348)].concat();
    let to_2022 = ["--retire", "2019", "--move-to", "2022"];
    let on_2019 = "nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}";
    let workloads = [
        ("Deployment", "", "app:ltsc2019"),
        ("Deployment", on_2019, "app:ltsc2019"),
        ("Deployment", on_2019, "app:1"),
        ("Deployment", "runtimeClassName: windows-2019", "app:ltsc2019"),
        ("Deployment", "runtimeClassName: windows-2019", "app:1"),
        ("Deployment", "runtimeClassName: windows-2019, nodeSelector: {group: win-2019}", "app:1"),
        (
            "StatefulSet",
            "runtimeClassName: windows-2019, nodeSelector: {kubernetes.azure.com/os-sku: Windows2019}",
            "app:1",
        ),
        ("DaemonSet", "runtimeClassName: windows-2019", "app:1"),
        ("DaemonSet", "nodeSelector: {kubernetes.io/os: windows}", "app:ltsc2019"),
        ("Deployment", "nodeSelector: {kubernetes.io/os: windows}", "app:ltsc2022"),
    ];
    let flags = [
        &[][..],
        &["--probable"],
        &to_2022,
        &["--retire", "2019", "--move-to", "2025"],
        &["--retire", "2022", "--move-to", "2025"],
        &["--assume", "group=win-2019:2022"],
    ];
    let workloads =
        workloads.iter().enumerate().map(|(name, (kind, fields, image))| workload(name, kind, fields, image));
    let workloads: String = workloads.collect();
    for cluster in ["", nodes.as_str()] {
        for flags in flags.iter().filter(|flags| !cluster.is_empty() || flags.first() != Some(&"--assume")) {
            let directory = directory(&[("a.yaml", &workloads), ("pool.yaml", &format!("{POOL}{cluster}"))]);
            let before = rules(directory.path());
            let fixed = winpool(&[&["fix", "-f", "."], *flags].concat(), directory.path(), "");
            let diff = out(&fixed);
            apply(&["git", "apply", "-"], directory.path(), &diff);
            let after = rules(directory.path());
            assert!(after.is_subset(&before), "{flags:?}: {after:?}, before {before:?}\n{diff}");
            let is_pin = |line: &&str| line.contains("windows-2019") || line.contains("10.0.17763");
            let pins = |sign: char| diff.lines().filter(|line| line.starts_with(sign)).filter(is_pin).count();
            let retires = flags.contains(&"2019") || flags.contains(&"--assume");
            assert!(!retires || pins('+') <= pins('-'), "{flags:?}\n{diff}");
        }
    }
}

/// Two nodes of one cloud, and a DaemonSet that selects them by their version.
const CLOUD: &str = "\
apiVersion: v1
kind: Node
metadata:
  name: win
  labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, kubernetes.azure.com/os-sku: Windows2022}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1}}
---
apiVersion: v1
kind: Node
metadata: {name: linux, labels: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}}
status: {nodeInfo: {operatingSystem: linux, kernelVersion: 5.15.0}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {}
  template:
    spec:
      os: {name: windows}
      nodeSelector:
        kubernetes.azure.com/os-sku: Windows2022 # the pool
        kubernetes.io/os: windows
      containers: [{name: agent, image: 'agent:1'}]
";

#[test]
fn the_change_for_an_upgrade_is_made_before_it() {
    let directory = directory(&[("cloud.yaml", CLOUD)]);
    let assume = ["--assume", "kubernetes.azure.com/os-sku=Windows2022:2025"];
    let fixed = winpool(&[&["fix", "-f", "cloud.yaml"][..], &assume].concat(), directory.path(), "");
    let diff = out(&fixed);
    let changed = diff.lines().skip(2).filter(|line| line.starts_with(['-', '+']));
    assert_eq!(changed.collect::<Vec<_>>(), ["-        kubernetes.azure.com/os-sku: Windows2022 # the pool"]);
    let stream = winpool(&[&["fix", "-f", "-"][..], &assume].concat(), directory.path(), CLOUD);
    assert_eq!(out(&stream), CLOUD.replace("        kubernetes.azure.com/os-sku: Windows2022 # the pool\n", ""));
}

#[test]
fn sarif_has_the_changes_of_lines() {
    let directory = directory(&[("shop.yaml", SHOP)]);
    let checked = winpool(&["check", "-f", "shop.yaml", "-o", "sarif"], directory.path(), "");
    let log: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let fixes: Vec<_> =
        results.iter().filter_map(|result| Some((result["ruleId"].as_str()?, result.get("fixes")?))).collect();
    insta::assert_yaml_snapshot!(fixes);
}

/// Each would be changed by a guess.
#[test]
fn what_needs_a_decision_is_left_as_it_is() {
    const GROUP: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: by-pool}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      nodeSelector: {agentpool: w22}
      containers: [{name: a, image: 'example.com/legacy:1'}]
";
    const SIDECAR: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: dashboard}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata:
      labels: {app: a}
      annotations: {consul.hashicorp.com/connect-inject: 'true'}
    spec:
      os: {name: windows}
      nodeSelector: {kubernetes.io/os: windows}
      tolerations: [{key: os, value: windows, effect: NoSchedule}]
      containers: [{name: a, image: 'example.com/dashboard:windows'}]
";
    const DEBUGGER: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: node-debugger-old-x7k2p}
spec:
  nodeName: old
  hostPID: true
  tolerations: [{operator: Exists}]
  containers: [{name: debugger, image: busybox}]
status: {phase: Pending}
";
    let with_nodes = |input: &str| format!("{}{input}", crate::assembled::NODES);
    for input in [GROUP.to_owned(), with_nodes(SIDECAR), with_nodes(DEBUGGER)] {
        let (code, out, notes) = crate::assembled::winpool(&["fix"], &input);
        assert!(code == Some(0) && notes.contains("0 changed"), "{notes}");
        assert_eq!(out, input, "{notes}");
    }
}
