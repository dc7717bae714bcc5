//! Manifests as kubectl reads them, and those that cannot be read.

use std::path::Path;
use std::process::{Command, Output};

use crate::input::with_input;

fn winpool(arguments: &[&str], directory: &Path, input: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    let Output { status, stdout, stderr } =
        with_input(command.args(arguments).current_dir(directory).env("KUBECONFIG", "/nonexistent"), input);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Returns the rules that a manifest breaks.
#[track_caller]
fn rules(manifest: &str) -> Vec<String> {
    let (code, out, error) = winpool(&["check", "-f", "-", "-o", "json"], Path::new("."), manifest);
    assert!(code != 1 && error.is_empty(), "{code}: {error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    report["findings"].as_array().unwrap().iter().map(|found| found["rule"].as_str().unwrap().to_owned()).collect()
}

/// A Pod that breaks the rule `host-pid` alone, with these lines in its spec.
fn pod(lines: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  os: {{name: windows}}\n  nodeSelector: {{kubernetes.io/os: \
         windows}}\n  tolerations: [{{key: os, value: windows}}]\n{lines}  hostPID: true\n"
    )
}

#[test]
fn every_manifest_that_kubectl_reads_is_read() {
    for lines in [
        "  containers:\n".to_owned() + &"  # a comment\n".repeat(200),
        "  hostPID: false\n".to_owned(),
        "  restartPolicy: \"a\n\tb\n c\n\"\n".to_owned(),
        "  restartPolicy: 'a'# a comment\n".to_owned(),
    ] {
        assert_eq!(rules(&pod(&lines)), ["host-pid"], "{lines}");
        assert_eq!(rules(&pod(&lines).replace('\n', "\r\n")), ["host-pid"], "{lines}");
        assert_eq!(rules(&format!("\u{feff}{0}---\n\u{feff}{0}", pod(&lines))), ["host-pid"], "{lines}");
    }
    let json = "\u{feff}{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}, \"spec\": {}}";
    assert_eq!(rules(json), ["linux-may-land-on-windows"]);
}

#[test]
fn a_class_of_a_removed_version_is_reported_and_applied() {
    let class = "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: win}\nhandler: docker\nscheduling:\n  \
                 nodeSelector: {kubernetes.io/os: windows}\n  tolerations: [{key: os, value: windows}]\n---\n";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  os: {name: windows}\n  runtimeClassName: win\n";
    assert_eq!(rules(&format!("{class}{pod}")), ["api-version-removed"], "the class selects Windows nodes");
    let (code, out, error) = winpool(&["check", "-f", "-"], Path::new("."), &format!("{class}{pod}"));
    assert!(code == 2 && error.is_empty(), "{code}: {error}");
    assert!(out.contains("RuntimeClass win, apiVersion") && out.contains("write node.k8s.io/v1"), "{out}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("a.yaml", &pod(""));
    write("b.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec:\n  {{- toYaml .Values.spec }}\n");
    write("c.yaml", &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: c}}\nspec: 7\n---\n{}", pod("")));
    for (arguments, text) in [
        (&["check", "-f", "."][..], "error[host-pid]"),
        (&["images", "--offline", "-f", "."], "winpool found no workloads"),
        (&["blockers", "--retire", "2019", "-f", "."], "Nothing is"),
        (&["status", "-f", "."], "The manifests have no WindowsPool that winpool can read"),
    ] {
        let (code, out, error) = winpool(arguments, directory.path(), "");
        assert!(code == 1 && out.contains(text), "{arguments:?}: {code} {out} {error}");
        let lines: Vec<&str> = error.lines().collect();
        let is_named = lines[0].starts_with("winpool: ./b.yaml:5:") && lines[0].contains("this looks like a template");
        assert!(is_named, "{arguments:?}: {error}");
        match arguments[0] {
            "check" => assert!(out.contains("error[field-type] (Rejected): spec is not a pod spec"), "{out}"),
            _ => assert!(lines[1].starts_with("winpool: ./c.yaml:1: Pod "), "{arguments:?}: {error}"),
        }
        assert_eq!(lines.len(), if arguments[0] == "check" { 1 } else { 2 }, "{arguments:?}: {error}");
    }
}

#[test]
fn no_input_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.yaml"), pod("")).unwrap();
    for command in [&["check"][..], &["plan"], &["status"], &["blockers", "--retire", "2019"], &["images", "--offline"]]
    {
        for input in ["", "# nothing\n---\n"] {
            let arguments = [command, &["-f", "-"]].concat();
            let (code, out, error) = winpool(&arguments, directory.path(), input);
            assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {error}");
            assert_eq!(error, "winpool: nothing was read: stdin has no Kubernetes object\n", "{arguments:?}");
        }
    }
    let (code, out, error) = winpool(&["check", "-f", "a.yaml", "-f", "-"], directory.path(), "");
    assert!(code == 1 && out.contains("host-pid") && error.contains("nothing was read"), "{code} {out} {error}");
    let (code, _, error) =
        winpool(&["check", "-f", "-"], directory.path(), "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}");
    assert_eq!((code, error.as_str()), (0, ""), "kubectl prints an empty List if there is nothing");
}

#[test]
fn what_the_api_server_does_not_take_is_found() {
    let deployment = |version: &str, template: &str| {
        format!("apiVersion: {version}\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 1\n{template}")
    };
    let template = "  template: {spec: {nodeSelector: {kubernetes.io/os: linux}, containers: []}}\n";
    assert_eq!(rules(&deployment("apps/v1", template)), [""; 0]);
    assert_eq!(rules(&deployment("extensions/v1beta1", template)), ["api-version-removed"]);
    assert_eq!(rules(&deployment("apps/v1beta2", template)), ["api-version-removed"]);
    assert_eq!(rules(&deployment("apps/v1", "")), ["pod-template-missing"]);
    let (code, out, _) = winpool(&["check", "-f", "-"], Path::new("."), &deployment("extensions/v1beta1", template));
    assert_eq!(code, 2);
    insta::assert_snapshot!(out);
    let (_, out, _) = winpool(&["check", "-f", "-"], Path::new("."), &deployment("apps/v1", ""));
    insta::assert_snapshot!(out);
    let (_, out, _) = winpool(
        &["check", "-f", "-", "--min-severity", "error"],
        Path::new("."),
        &pod("  containers: [{name: a, image: b, command: app.exe, resources: {limits: {cpu: 1}}}]\n")
            .replace("  hostPID: true\n", ""),
    );
    insta::assert_snapshot!(out);
}

#[test]
fn a_workload_of_a_removed_api_version_is_explained_and_planned_with() {
    let objects = "apiVersion: extensions/v1beta1\nkind: DaemonSet\nmetadata: {name: agent}\nspec: {template: {spec: {nodeSelector: \
                   {kubernetes.io/os: windows}, containers: [{name: a, image: b}]}}}\n---\napiVersion: v1\nkind: Node\nmetadata: \
                   {name: win, labels: {kubernetes.io/os: windows}}\nstatus: {nodeInfo: {kernelVersion: 10.0.20348.1}}\n---\n\
                   apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec: {}\n";
    let (_, out, error) = winpool(&["why", "daemonset/agent", "-f", "-"], Path::new("."), objects);
    assert!(out.starts_with("DaemonSet default/agent"), "{out} {error}");
    let (_, out, error) = winpool(&["plan", "-f", "-"], Path::new("."), objects);
    assert!(out.contains("    DaemonSet default/agent (1 node)\n"), "{out} {error}");
}

#[test]
fn why_says_first_that_the_api_server_refuses_the_pod() {
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: win, labels: {kubernetes.io/os: windows}}\n";
    let (code, out, error) = winpool(&["why", "pod/a", "-f", "-"], Path::new("."), &format!("{}{node}", pod("")));
    assert_eq!((code, error.as_str()), (0, ""));
    insta::assert_snapshot!(out);
    let (_, out, _) =
        winpool(&["why", "pod/a", "-f", "-", "-o", "json"], Path::new("."), &format!("{}{node}", pod("")));
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&answer["refused"][0]["rule"], &answer["refused"][0]["object"]),
        (&"host-pid".into(), &serde_json::json!({"kind": "Pod", "namespace": "default", "name": "a"}))
    );
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {runtimeClassName: \
                      window-2022, containers: [{name: c, image: 'web:ltsc2022'}]}}}\n---\napiVersion: winpool.dev/v1alpha1\nkind: \
                      WindowsPool\nmetadata: {name: default}\n";
    let typo = format!("{node}{deployment}");
    let (_, out, _) = winpool(&["why", "deploy/web", "-f", "-"], Path::new("."), &typo);
    assert!(out.contains("The API server refuses its pods:") && !out.contains("scheduled"), "{out}");
    let (_, out, _) = winpool(&["why", "deploy/web", "-f", "-", "-o", "json"], Path::new("."), &typo);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap()["nodes"], serde_json::json!([]));
    let (code, _, error) = winpool(&["why", "deploy/nope", "-n", "shop", "-f", "-"], Path::new("."), node);
    assert_eq!((code, error.as_str()), (1, "winpool: there is no Deployment nope in namespace shop\n"));
}

#[test]
fn shells_complete_versions_rules_and_files() {
    let (_, script, _) = winpool(&["completions", "bash"], Path::new("."), "");
    let after = |flag: &str| {
        let (_, rest) = script.split_once(&format!("                --{flag})\n")).unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    assert!(after("retire").contains("2016 2019 2022 2025"), "{}", after("retire"));
    assert!(after("ignore").contains("host-pid"), "{}", after("ignore"));
    assert!(after("filename").contains("compgen -f"), "{}", after("filename"));
    assert!(!after("assume").contains("compgen"), "{}", after("assume"));
}
