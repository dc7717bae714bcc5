//! The output of commands: its JSON Schema, and its width.

use std::path::Path;
use std::process::Command;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};
use winpool_e2e::harness::{Harness, OS_WINDOWS};
use winpool_e2e::nodes::simulated::SimulatedNode;

const POOL: &str = "examples/windowspool.yaml";
const CLUSTER: &str = "examples/offline";
const WORKLOADS: &str = "examples/check";

/// Runs the command on a terminal of this width, and returns its output.
fn printed(arguments: &[&str], kubeconfig: &Path, columns: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = command.env("KUBECONFIG", kubeconfig).env("COLUMNS", columns).output().unwrap();
    assert_ne!(output.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn output_is_not_wrapped_without_a_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command
        .args(["plan", "-f", "examples/offline", "-f", POOL])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = command.env_remove("COLUMNS").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let selector =
        "{kubernetes.io/arch: amd64, kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}";
    assert!(text.contains(&format!("scheduling.nodeSelector: {selector}\n")), "{text}");
}

#[test]
fn plan_names_the_toleration_that_a_held_taint_needs() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    for (mode, held) in [("Enforce", "  held: os="), ("DryRun", "  would be held: os=")] {
        let pool = format!(
            "{{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {{name: default}}, spec: {{mode: {mode}}}}}"
        );
        std::fs::write(file.path(), pool).unwrap();
        let plan = ["plan", "-f", "examples/offline", "-f", file.path().to_str().unwrap(), "-f", WORKLOADS];
        let text = printed(&plan, Path::new("/nonexistent"), "200");
        let toleration = "tolerations:\n    - {key: os, operator: Equal, value: windows, effect: NoSchedule}";
        assert!(text.contains(&format!("Add to their pod templates:\n    {toleration}\n")), "{text}");
        assert!(text.contains("make no pods:\n    DaemonSet shop/agent (2 nodes)\n"), "{text}");
        assert!(text.contains(held), "{mode}: {text}");
    }
}

#[test]
fn plan_names_the_workloads_whose_pods_get_tolerations() {
    let workloads = "\
{apiVersion: apps/v1, kind: Deployment, metadata: {name: erp}, spec: {template: {spec: {os: {name: windows}, containers: [{name: c, \
                     image: 'erp:1'}]}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: iis}, spec: {template: {spec: {containers: [{name: c, image: \
                     'mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022'}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: app, uid: 1d5e0a5c-0000-4000-8000-000000000000}, spec: {nodeName: win-2022, containers: \
                     [{name: c, image: 'app:1'}]}, status: {phase: Running}}
";
    let directory = tempfile::tempdir().unwrap();
    let (pool, file) = (directory.path().join("pool.yaml"), directory.path().join("workloads.yaml"));
    std::fs::write(&file, workloads).unwrap();
    let named = "    Deployment default/erp\n    Pod default/app (1 pod)\n";
    let helped = "The pods of these workloads get the toleration; write it into the pod templates:\n";
    let lost = "New pods of these find no node any more on which they start:\n";
    for (spec, is_helped, all_lost) in [
        ("{}", true, &["iis"][..]),
        ("{mode: DryRun}", true, &["iis"]),
        ("{taintPolicy: TaintOnly}", false, &["erp", "iis"]),
        ("{mode: DryRun, taintPolicy: TaintOnly}", false, &["erp", "iis"]),
        ("{taintPolicy: Never}", false, &[]),
    ] {
        let object = format!(
            "{{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {{name: default}}, spec: {spec}}}"
        );
        std::fs::write(&pool, object).unwrap();
        let plan = ["plan", "-f", directory.path().to_str().unwrap(), "-f", CLUSTER];
        let text = printed(&plan, Path::new("/nonexistent"), "200");
        assert_eq!(text.contains(&format!("  {helped}{named}")), is_helped, "{spec}: {text}");
        assert!(!text.contains("held: "), "{text}");
        let (_, workloads) = text.split_once(lost).unwrap_or_default();
        let named = workloads.lines().take_while(|line| line.starts_with("    "));
        let named: Vec<&str> = named.map(|line| line.trim().trim_start_matches("Deployment default/")).collect();
        let why = |name: &&str| {
            let nodes = if *name == "erp" { 2 } else { 1 };
            format!("{name} ({nodes} -> 0 nodes): the taint os=windows:NoSchedule is not tolerated")
        };
        let expected: Vec<String> = all_lost.iter().map(why).collect();
        assert_eq!(named, expected, "{spec}: {text}");
    }
}

#[test]
fn status_begins_with_a_headline_and_has_lines_to_paste() {
    let pool = r#"
apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: default}
spec: {}
status:
  conditions:
  - {type: Ready, status: "False", reason: DaemonSetsNotTolerating, lastTransitionTime: 2026-01-01T00:00:00Z, message: a long message}
  problems:
  - reason: ClassConflict
    object: {kind: RuntimeClass, name: windows-2022}
    message: >-
      is managed by Helm and lacks a toleration; correct it at its source: scheduling: {nodeSelector: {kubernetes.io/os: windows}};
      or let winpool correct its scheduling: kubectl label runtimeclass windows-2022 winpool.dev/pool=default; or choose another
      runtimeClassNameFormat
"#;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pool.yaml");
    std::fs::write(&file, pool).unwrap();
    let status = ["status", "-f", file.to_str().unwrap(), "-f", CLUSTER, "-f", WORKLOADS];
    let text = printed(&status, Path::new("/nonexistent"), "80");
    insta::assert_snapshot!(text.split("\n\n").next().unwrap());
    std::fs::write(
        &file,
        pool.replace("spec: {}", "spec: {mode: DryRun}").replace("DaemonSetsNotTolerating", "DryRun"),
    )
    .unwrap();
    let text = printed(&status, Path::new("/nonexistent"), "80");
    assert!(text.starts_with("WindowsPool default: a long message\n  winpool would hold "), "{text}");
}

#[test]
fn why_quotes_the_scheduler_if_windows_is_not_the_reason() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: mq-0}\nspec: {os: {name: windows}, nodeSelector: {kubernetes.io/os: \
               windows}, tolerations: [{operator: Exists}], containers: [{name: c, image: 'mq:1'}]}\nstatus: {phase: Pending, \
               conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: pod has unbound immediate \
               PersistentVolumeClaims}]}\n";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pod.yaml");
    std::fs::write(&file, pod).unwrap();
    let why = ["why", "pod/mq-0", "-f", file.to_str().unwrap(), "-f", CLUSTER];
    let text = printed(&why, Path::new("/nonexistent"), "200");
    let quote = "The scheduler says: pod has unbound immediate PersistentVolumeClaims\n";
    assert!(text.contains(quote) && !text.contains("No change is needed"), "{text}");
}

#[test]
fn why_suggests_the_toleration_before_the_nodes_have_the_taint() {
    let workload = [
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: erp}\nspec:\n  selector: {matchLabels: {app: erp}}",
        "  template:\n    metadata: {labels: {app: erp}}\n    spec:\n      os: {name: windows}",
        "      nodeSelector: {kubernetes.io/os: windows}\n      containers: [{name: erp, image: example.com/erp:7.3}]\n",
    ];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("erp.yaml");
    std::fs::write(&file, workload.join("\n")).unwrap();
    let why = ["why", "deployment/erp", "-f", file.to_str().unwrap(), "-f", "examples/offline"];
    let text = printed(&why, Path::new("/nonexistent"), "200");
    assert!(text.contains("No change is needed"), "{text}");
    let text = printed(&[&why[..], &["-f", POOL]].concat(), Path::new("/nonexistent"), "200");
    assert!(
        text.contains("add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}"),
        "{text}"
    );
}

/// The committed schema, in which no object may have properties that it does not name.
fn strict_schema() -> Value {
    fn close(schema: &mut Value) {
        match schema {
            Value::Object(members) => {
                members.values_mut().for_each(close);
                if members.get("properties").is_some_and(Value::is_object)
                    && members.get("type") == Some(&json!("object"))
                {
                    members.entry("additionalProperties").or_insert(json!(false));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(close),
            _ => {}
        }
    }
    let mut schema: Value = serde_json::from_str(include_str!("../../../docs/reference/output.schema.json")).unwrap();
    close(&mut schema);
    schema
}

/// Fails if this is not what the schema says of the command.
fn conforms(command: &str, output: &str) {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("output.json", strict_schema()).unwrap();
    let path = format!("output.json#/properties/{}", command.replace(' ', "%20"));
    let schema = compiler.compile(&path, &mut schemas).unwrap();
    let output: Value = serde_json::from_str(output).unwrap();
    schemas.validate(&output, schema).unwrap_or_else(|error| panic!("{command}: {error}\n{output:#}"));
}

#[test]
fn json_conforms_to_the_committed_schema() {
    let offline = ["-f", POOL, "-f", CLUSTER, "-f", WORKLOADS];
    for (command, arguments) in [
        ("blockers", &["blockers", "--retire", "ltsc2019", "--move-to", "2022"][..]),
        ("check", &["check"]),
        ("plan", &["plan"]),
        ("report", &["report"]),
        ("status", &["status"]),
        ("why node", &["why", "node/win-2019"]),
        ("why pod", &["why", "pod/web-6d5f9", "-n", "shop"]),
        ("why workload", &["why", "deployment/web", "-n", "shop"]),
        ("why workload", &["why", "ds/agent", "-n", "shop"]),
    ] {
        let arguments = [arguments, &offline, &["-o", "json"]].concat();
        conforms(command, &printed(&arguments, Path::new("/nonexistent"), "80"));
    }
    conforms("builds", &printed(&["builds", "-o", "json"], Path::new("/nonexistent"), "80"));
}

#[test]
fn every_command_with_json_output_has_a_schema() {
    let schema = strict_schema();
    let has_json = |command: &str| printed(&[command, "--help"], Path::new("/nonexistent"), "80").contains("--output");
    for command in ["blockers", "builds", "check", "plan", "render", "report", "status", "why"] {
        let properties = schema["properties"].as_object().unwrap();
        let is_described = properties.keys().any(|key| key.split(' ').next() == Some(command));
        assert_eq!(has_json(command), is_described, "{command}");
    }
}

#[test]
fn properties_with_one_name_have_one_shape_in_all_commands() {
    fn properties<'s>(schema: &'s Value, found: &mut Vec<(&'s str, &'s Value)>) {
        match schema {
            Value::Object(members) => {
                let own = members.get("properties").and_then(Value::as_object).into_iter().flatten();
                found.extend(own.map(|(name, property)| (name.as_str(), property)));
                members.values().for_each(|member| properties(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| properties(item, found)),
            _ => {}
        }
    }
    let schema = strict_schema();
    let mut found = Vec::new();
    properties(&schema["$defs"], &mut found);
    let (objects, nodes) = (json!("#/$defs/ObjectReference"), ["NodeForecast", "NodeResult"]);
    for (name, property) in found {
        match name {
            "object" => assert_eq!(property["$ref"], objects),
            "usedBy" => assert_eq!(property["items"]["$ref"], objects),
            "heldFor" | "helped" | "silentWorkloads" | "withoutPods" => {
                assert_eq!(property["items"]["$ref"], "#/$defs/PodCount", "{name}");
            }
            "nodes" => {
                let item = property["items"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
                assert!(nodes.contains(&item) && schema["$defs"][item]["properties"]["name"]["type"] == "string");
            }
            "nodeCount" => assert!(property["format"].is_string(), "{property}"),
            "nodesByState" => assert_eq!(property["additionalProperties"]["type"], "integer"),
            _ => {}
        }
    }
}

/// The text without the number of days until support ends, which is another one each day.
fn without_days(text: &str) -> String {
    let line = |line: &str| match line.split_once(", in ").filter(|(_, rest)| rest.ends_with(" days.")) {
        Some((start, _)) => format!("{start}, in … days."),
        None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn text_fits_80_and_120_columns() {
    let offline = ["-f", POOL, "-f", CLUSTER, "-f", WORKLOADS];
    for columns in [80, 120] {
        for arguments in [
            &["check"][..],
            &["status"],
            &["blockers", "--retire", "2019", "--move-to", "2022"],
            &["why", "pod/web-6d5f9", "-n", "shop"],
            &["why", "ds/agent", "-n", "shop"],
            &["why", "node/win-2019"],
        ] {
            let text = printed(&[arguments, &offline].concat(), Path::new("/nonexistent"), &columns.to_string());
            let name = format!("{}_{columns}", arguments[..2.min(arguments.len())].join("_").replace(['/', '-'], "_"));
            // A word that is longer than a line stays whole, to be copied.
            let is_long = |line: &&str| line.chars().count() > columns && line.trim().contains(' ');
            let long: Vec<&str> = text.lines().filter(is_long).collect();
            assert_eq!(long, [""; 0], "{arguments:?}");
            insta::assert_snapshot!(name, without_days(&text));
        }
    }
}

#[tokio::test]
async fn the_status_of_a_live_cluster() {
    let harness = Harness::new().await;
    for (name, kernel) in [("old", "10.0.17763.6659"), ("free", "10.0.20348.2655"), ("busy", "10.0.20348.2655")] {
        harness.join_node(SimulatedNode::windows(kernel).name(name)).await;
    }
    let operator = harness.operator().await;
    harness.run_web("busy").await;
    harness.apply_pool(json!({})).await;
    harness.held(OS_WINDOWS, &["busy"], &["DaemonSet default/web"]).await;
    harness.nodes_until("default", "adds its taint elsewhere", |nodes| (nodes.converged, nodes.held) == (2, 1)).await;
    harness.run_pod("of-class", json!({"runtimeClassName": "windows-2022"})).await;
    let kubeconfig = harness.server.kubeconfig().to_owned();
    let print = async |arguments: &'static [&'static str]| {
        let kubeconfig = kubeconfig.clone();
        tokio::task::spawn_blocking(move || printed(arguments, &kubeconfig, "80")).await.unwrap()
    };
    let text = print(&["status"]).await;
    // A line to paste stays whole.
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains(": [{")), "{text}");
    insta::assert_snapshot!(without_days(&text));
    conforms("status", &print(&["status", "-o", "json"]).await);
    operator.stop().await;
}
