//! `winpool plan` says where new pods of workloads run when the operator has finished.

use std::process::{Command, Output};

use serde_json::Value;

use crate::input::with_input;

fn plan(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    with_input(command.args(["plan", "-f", "-"]).args(arguments).env("KUBECONFIG", "/nonexistent"), input)
}

/// A pool with this spec, a node of each system, and an object.
fn cluster(pool: &str, object: &str) -> String {
    format!(
        "{{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {{name: default}}, spec: {pool}}}
---
apiVersion: v1
kind: Node
metadata: {{name: linux, labels: {{kubernetes.io/os: linux, kubernetes.io/arch: amd64}}}}
status: {{nodeInfo: {{operatingSystem: linux}}}}
---
apiVersion: v1
kind: Node
metadata: {{name: win, labels: {{kubernetes.io/os: windows, kubernetes.io/arch: amd64}}}}
status: {{nodeInfo: {{operatingSystem: windows, kernelVersion: 10.0.20348.4000}}}}
---
{object}
"
    )
}

/// An object of this kind whose template has this pod spec.
fn workload(kind: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: a, namespace: shop}}, spec: {{selector: {{}}, template: {{spec: {spec}}}}}}}"
    )
}

/// The workloads in the answer: where they run now and then, and the numbers of nodes.
fn told(pool: &str, object: &str) -> Vec<(String, String, u64, u64)> {
    let output = plan(&["-o", "json"], &cluster(pool, object));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let workloads = answer["workloads"].as_array().into_iter().flatten();
    workloads
        .map(|it| {
            (text(&it["now"]), text(&it["after"]), it["nodesNow"].as_u64().unwrap(), it["nodesAfter"].as_u64().unwrap())
        })
        .collect()
}

#[test]
fn a_plan_names_the_workloads_whose_new_pods_run_elsewhere_then() {
    const LTSC: &str = "containers: [{name: c, image: 'app:ltsc2022'}]";
    const ANY: &str = "containers: [{name: c, image: app}]";
    let windows = format!("{{nodeSelector: {{kubernetes.io/os: windows}}, {LTSC}}}");
    let only = "{taintPolicy: TaintOnly}";
    for (pool, kind, spec, expected) in [
        // The main job: what says no system no longer lands on Windows.
        ("{}", "Deployment", format!("{{{ANY}}}"), Some(("MayNotStart", "Runs", 1, 1))),
        ("{}", "DaemonSet", format!("{{{ANY}}}"), Some(("MayNotStart", "Runs", 1, 1))),
        ("{}", "Deployment", format!("{{nodeSelector: {{kubernetes.io/os: linux}}, {ANY}}}"), None),
        // winpool adds the toleration, or holds the taint.
        ("{}", "Deployment", windows.clone(), None),
        ("{}", "DaemonSet", windows.clone(), None),
        ("{mode: DryRun}", "Deployment", format!("{{{ANY}}}"), Some(("MayNotStart", "Runs", 1, 1))),
        (only, "Deployment", windows.clone(), Some(("Runs", "NoNode", 1, 0))),
        (only, "DaemonSet", windows.clone(), Some(("Runs", "NoNode", 1, 0))),
        // Its pods are made for one of the nodes, where they do not start.
        (only, "DaemonSet", format!("{{{LTSC}}}"), Some(("MayNotStart", "MayNotStart", 1, 0))),
        // Only an image shows that it is for Windows, so winpool adds nothing.
        ("{}", "Deployment", format!("{{{LTSC}}}"), Some(("MayNotStart", "MayNotStart", 1, 0))),
        // The class does not exist yet.
        ("{}", "Deployment", format!("{{runtimeClassName: windows-2022, {LTSC}}}"), Some(("NoNode", "Runs", 0, 1))),
        ("{taintPolicy: Never}", "Deployment", format!("{{{ANY}}}"), None),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(now, after, before, then)| (now.to_owned(), after.to_owned(), before, then))
            .collect();
        assert_eq!(told(pool, &workload(kind, &spec)), expected, "{pool} {kind} {spec}");
    }
}

#[test]
fn a_plan_says_why_new_pods_find_no_node() {
    let windows =
        workload("Deployment", "{nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: app}]}");
    let output = plan(&[], &cluster("{taintPolicy: TaintOnly}", &windows));
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, workloads) = text.split_once("\nWorkloads\n").unwrap();
    insta::assert_snapshot!(workloads, @r"
      New pods of these find no node any more on which they start:
        Deployment shop/a (1 -> 0 nodes): the taint os=windows:NoSchedule is not tolerated
    ");
}

#[test]
fn a_namespace_may_have_many_workloads_to_which_winpool_adds_the_toleration() {
    let spec = "{nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: app}]}";
    let name = |index: usize| workload("Deployment", spec).replace("name: a,", &format!("name: a{index},"));
    let many: Vec<String> = (0..20).map(name).collect();
    assert_eq!(told("{}", &many.join("\n---\n")), Vec::new());
}
