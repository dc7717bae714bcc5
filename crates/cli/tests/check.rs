//! `winpool check` and `winpool blockers` as processes, on manifests and on a real API server.

use std::path::Path;
use std::process::{Command, Output};

use kube::Client;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_core::api::ObjectReference;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::lending::lend;
use winpool_e2e::servers::version::running_kubernetes;

use crate::input::with_input;

/// It does not say os.name, and tolerates nothing.
const INFO_ONLY: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeSelector: {kubernetes.io/os: windows}}\n";
const DEPLOYMENT_OF_CLASS: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\n\
    spec: {template: {spec: {runtimeClassName: windows-2019, containers: []}}}\n";
const DEPLOYMENT: &str = "\
# A comment, so that it does not begin on the first line.
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      tolerations: [{key: os, value: windows}]
      containers:
      - name: web
        image: mcr.microsoft.com/windows/servercore:ltsc2019
        securityContext: {runAsUser: 0}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  template:
    spec:
      os: {name: windows}
      runtimeClassName: windows-2019
      hostPID: true
      containers: [{name: agent, image: example.com/agent:1.0}]
";

const FINISHED: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: import}
spec: {template: {spec: {os: {name: windows}, containers: [{name: c, image: 'app:ltsc2019'}]}}}
status: {conditions: [{type: Complete, status: 'True'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: once}
spec: {os: {name: windows}, containers: [{name: c, image: 'app:ltsc2019'}]}
status: {phase: Failed}
";

const POOL: &str = "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec: {}\n";

fn winpool(arguments: &[&str], directory: &Path, input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    with_input(command.args(arguments).current_dir(directory).env("KUBECONFIG", "/nonexistent"), input)
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("web.yaml"), DEPLOYMENT).unwrap();
    std::fs::write(directory.path().join("pool.yaml"), POOL).unwrap();
    directory
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn findings_are_printed_with_file_and_line() {
    let directory = directory();
    let output = winpool(&["check", "-f", "web.yaml", "-f", "pool.yaml"], directory.path(), "");
    assert_eq!(code(&output), 2, "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(out(&output));
    let all = winpool(&["check", "-f", "."], directory.path(), "");
    assert_eq!(out(&all).lines().count(), out(&output).lines().count());
}

#[test]
fn a_problem_of_many_objects_is_printed_once() {
    let pod = |name: &str, image: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{os: {{name: windows}}, nodeSelector: \
             {{kubernetes.io/os: windows}}, tolerations: [{{operator: Exists}}], hostPID: true, containers: [{{name: c, image: \
             '{image}'}}]}}\n"
        )
    };
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/os: windows}}}}\nstatus: \
             {{capacity: {{memory: 16Gi}}, allocatable: {{memory: 16Gi}}, nodeInfo: {{operatingSystem: windows, kernelVersion: \
             10.0.20348.1}}}}\n"
        )
    };
    let nodes: String = ["win-1", "win-2", "win-3", "win-4", "win-5"].map(node).concat();
    let input = [pod("a", "app:ltsc2022"), pod("b", "app:ltsc2022"), nodes].concat();
    let directory = directory();
    insta::assert_snapshot!(out(&winpool(&["check", "-f", "-", "--min-severity", "info"], directory.path(), &input)));
    let short = out(&winpool(&["check", "-f", "-"], directory.path(), &input));
    assert!(!short.contains("info[") && short.contains("notes hidden"), "{short}");
}

#[test]
fn a_misspelled_class_is_one_finding() {
    let deployment = |class: &str| {
        format!(
            "{POOL}---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: catalog}}\nspec: {{template: {{spec: \
             {{runtimeClassName: {class}, containers: [{{name: c, image: 'catalog:3-ltsc2022'}}]}}}}}}\n"
        )
    };
    let directory = directory();
    let arguments = ["check", "-f", "-", "--min-severity", "warning", "-o", "json"];
    for (class, expected) in [
        ("window-2022", Some("there is no RuntimeClass window-2022; did you mean windows-2022?")),
        ("windows-2202", Some("there is no RuntimeClass windows-2202; did you mean windows-2022?")),
        ("windows-2022", None),
    ] {
        let report: Value =
            serde_json::from_str(&out(&winpool(&arguments, directory.path(), &deployment(class)))).unwrap();
        let messages: Vec<&str> =
            report["findings"].as_array().unwrap().iter().map(|found| found["message"].as_str().unwrap()).collect();
        assert_eq!(messages, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn disabled_values_are_left_out() {
    let directory = directory();
    let rules = |arguments: &[&str]| -> Vec<String> {
        let all: Vec<&str> = ["check", "-f", "web.yaml", "-o", "json"].iter().chain(arguments).copied().collect();
        let report: Value = serde_json::from_str(&out(&winpool(&all, directory.path(), ""))).unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        rules(&[]),
        [
            "os-name-missing",
            "container-run-as-user",
            "resources-missing",
            "os-selector-missing",
            "toleration-unknown",
            "host-pid",
            "resources-missing"
        ]
    );
    assert_eq!(rules(&["--min-severity", "warning"]), ["container-run-as-user", "os-selector-missing", "host-pid"]);
    assert_eq!(rules(&["--min-severity", "error", "--ignore", "host-pid"]), ["os-selector-missing"]);
    assert_eq!(rules(&["--min-severity", "error", "--kubernetes-version", "1.22"]), ["os-selector-missing"]);
}

#[test]
fn exit_codes_tell_nothing_found_from_found_and_from_failed() {
    let directory = directory();
    let linux = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n";
    for (arguments, input, expected, text) in [
        (&["check", "-f", "-"][..], linux, 0, "1 note hidden; --min-severity info shows them"),
        (&["check", "-f", "-", "-o", "json"], linux, 0, "\"consequence\": \"Note\""),
        (&["check", "-f", "-"], DEPLOYMENT, 2, "stdin:2"),
        (
            &["check", "-f", "-", "--min-severity", "error", "--ignore", "os-selector-missing", "--ignore", "host-pid"],
            DEPLOYMENT,
            2,
            "2 workloads checked: no errors\n1 warning, 4 notes hidden; --min-severity info shows them",
        ),
        (&["check", "-f", "-", "--fail-on", "error"], FINISHED, 0, "0 workloads checked: nothing found"),
        (&["blockers", "--retire", "2019", "-f", "-"], FINISHED, 0, "Nothing is pinned to it."),
        (
            &["check", "-f", "-"],
            "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {}\n",
            0,
            "finds no pod template in them: 1 AllowList",
        ),
        (
            &["check", "-f", "-", "--fail-on", "error", "--ignore", "os-selector-missing", "--ignore", "host-pid"],
            DEPLOYMENT,
            0,
            "warning",
        ),
        (
            &["check", "-f", "-"],
            INFO_ONLY,
            0,
            "1 workload checked: no errors and no warnings\n2 notes hidden; --min-severity info shows them",
        ),
        (&["check", "-f", "-", "--fail-on", "info"], INFO_ONLY, 2, "1 workload checked: 2 notes"),
        (&["check", "-f", "-"], "a: [", 1, "stdin:1"),
        (&["check", "-f", "absent.yaml"], "", 1, "cannot read absent.yaml"),
        (&["check"], "", 1, "kubeconfig"),
        (&["check", "-f", "web.yaml", "--ignore", "no-rule"], "", 1, "winpool has no rule with this name"),
        (&["blockers", "--retire", "2019", "-f", "-"], linux, 0, "Nothing is pinned to it."),
        (
            &["check", "-f", "-"],
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
            0,
            "Not checked, because winpool finds no pod template in them: 1 ConfigMap",
        ),
        (
            &["check", "-f", "-"],
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec: {replicas: 3}\n",
            2,
            "error[pod-template-missing]",
        ),
        (
            &["check", "-f", "-"],
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec: {template: {spec: []}}\n",
            2,
            "spec.template.spec is not a pod spec",
        ),
        (
            &["blockers", "--retire", "2019", "-f", "-"],
            DEPLOYMENT_OF_CLASS,
            2,
            "stdin:1: Deployment default/w: RuntimeClass windows-2019 is not known",
        ),
        (&["blockers", "--retire", "2018", "-f", "-"], "", 1, "write one of 2016, 1709"),
    ] {
        let output = winpool(arguments, directory.path(), input);
        let text_of = format!("{}{}", out(&output), String::from_utf8_lossy(&output.stderr));
        assert_eq!(code(&output), expected, "{arguments:?}: {text_of}");
        assert!(text_of.contains(text), "{arguments:?}: {text_of}");
    }
}

#[test]
fn json_yaml_and_sarif_have_the_same_findings() {
    let directory = directory();
    let of = |format: &str| out(&winpool(&["check", "-f", "web.yaml", "-o", format], directory.path(), ""));
    let json: Value = serde_json::from_str(&of("json")).unwrap();
    assert_eq!(serde_yaml::from_str::<Value>(&of("yaml")).unwrap(), json);
    insta::assert_yaml_snapshot!(json["findings"][1]);
    let sarif: Value = serde_json::from_str(&of("sarif")).unwrap();
    assert_eq!(sarif["runs"][0]["invocations"][0]["executionSuccessful"], true);
    let incomplete = winpool(&["check", "-f", "web.yaml", "-f", "missing.yaml", "-o", "sarif"], directory.path(), "");
    let incomplete: Value = serde_json::from_str(&out(&incomplete)).unwrap();
    assert_eq!(incomplete["runs"][0]["invocations"][0]["executionSuccessful"], false);
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), json["findings"].as_array().unwrap().len());
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        let rule = &sarif["runs"][0]["tool"]["driver"]["rules"][index];
        assert_eq!(rule["id"], result["ruleId"]);
    }
    insta::assert_yaml_snapshot!(results[1]);
}

#[test]
fn blockers_say_what_to_write_instead() {
    let directory = directory();
    let output = winpool(&["blockers", "--retire", "2019", "--move-to", "2025", "-f", "."], directory.path(), "");
    assert_eq!(code(&output), 2);
    insta::assert_snapshot!(out(&output));
    let output = winpool(&["blockers", "--retire", "10.0.17763", "-f", ".", "-o", "json"], directory.path(), "");
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(
        (&report["endOfSupport"], &report["nodeCount"]),
        (&json!("2029-01-09"), &json!(null)),
        "the manifests have no nodes"
    );
    assert_eq!(report["blockers"].as_array().unwrap().len(), 2);
    assert_eq!(report["blockers"][1]["pins"][0]["by"], "Class");
}

#[test]
fn pools_that_keep_a_version_in_service_are_blockers_too() {
    let directory = directory();
    let pool = "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: iis}\nspec:\n  \
                runtimeClasses: [{name: iis-2019, version: \"2019\"}]\n  podDefaults: {runtimeClassName: iis-2019}\n";
    let output = winpool(&["blockers", "--retire", "2019", "--move-to", "2022", "-f", "-"], directory.path(), pool);
    assert_eq!(code(&output), 2);
    insta::assert_snapshot!(out(&output));
}

#[test]
fn a_workload_that_another_one_controls_is_reported_once() {
    let owned = |owner: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: {owner}-1, namespace: shop, ownerReferences: \
             [{{kind: Deployment, name: {owner}, controller: true}}]}}\nspec: {{template: {{spec: {{os: {{name: windows}}}}}}}}\n"
        )
    };
    let directory = directory();
    let objects = |input: &str| {
        let output = winpool(&["check", "-f", "-"], directory.path(), input);
        out(&output).lines().find(|line| line.contains(" checked: ")).unwrap().to_owned()
    };
    assert!(objects(&format!("{DEPLOYMENT}{}", owned("web"))).starts_with("2 workloads checked"));
    assert!(objects(&format!("{DEPLOYMENT}{}", owned("elsewhere"))).starts_with("3 workloads checked"));
}

pub async fn create(client: &Client, path: &str, object: Value) {
    let request =
        kube::core::Request::new(path).create(&PostParams::default(), object.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap();
}

pub fn live(server: &ApiServer, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    let output = command.args(arguments).args(["-o", "json"]).env("KUBECONFIG", server.kubeconfig()).output().unwrap();
    let text = format!("{}{}", out(&output), String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn a_live_cluster_is_checked_with_its_nodes_and_classes() {
    let server = lend().await.unwrap();
    let client = server.client();
    for (name, kernel) in [("win-a", "10.0.17763.6659"), ("win-b", "10.0.20348.2655")] {
        let node = SimulatedNode::windows(kernel).name(name).label("example.com/os", "windows");
        node.taint("os", "windows", "NoSchedule").join(&client).await.unwrap();
    }
    SimulatedNode::linux().name("linux-a").join(&client).await.unwrap();
    create(&client, "/apis/node.k8s.io/v1/runtimeclasses", json!({
        "metadata": {"name": "windows-2019"}, "handler": "runhcs-wcow-process",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"}},
    })).await;
    create(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let deployment = |name: &str, class: &str| {
        let labels = json!({"app": name});
        let pod = json!({"os": {"name": "windows"}, "runtimeClassName": class, "containers": [
            {"name": "c", "image": "app:1.0", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        ]});
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}})
    };
    create(&client, "/apis/apps/v1/namespaces/shop/deployments", deployment("web", "windows-2022")).await;
    create(&client, "/apis/apps/v1/namespaces/default/deployments", deployment("old", "windows-2019")).await;

    // Among all nodes, only Windows nodes have this label.
    let mut by_label = deployment("by-label", "");
    let pod = json!({"runtimeClassName": null, "nodeSelector": {"example.com/os": "windows"}, "tolerations": [{"key": "os", "operator": "Exists"}]});
    json_patch::merge(&mut by_label["spec"]["template"]["spec"], &pod);
    create(&client, "/apis/apps/v1/namespaces/shop/deployments", by_label).await;

    let found = |report: &Value| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter();
        let object = |found: &Value| -> ObjectReference { serde_json::from_value(found["object"].clone()).unwrap() };
        findings.map(|found| format!("{} {}", object(found), found["rule"].as_str().unwrap())).collect()
    };
    let old = "Deployment default/old toleration-missing";
    let rules = ["os-selector-missing", "toleration-missing", "class-not-found"];
    let web = rules.map(|rule| format!("Deployment shop/web {rule}"));
    assert_eq!(found(&live(&server, &["check"])), [old], "the class lacks the toleration");
    assert_eq!(found(&live(&server, &["check", "-n", "shop"])), web);
    let ignored = rules.iter().flat_map(|rule| ["--ignore", rule]);
    let reserved: Vec<String> = found(&live(&server, &["check", "-A"].into_iter().chain(ignored).collect::<Vec<_>>()));
    assert!(reserved.iter().all(|found| found.starts_with("Node ")) && !reserved.is_empty(), "{reserved:?}");
    assert_eq!(
        found(&live(&server, &["check", "-A", "--ignore", "node-reserved-memory"])),
        [&[old.to_owned()][..], &web].concat()
    );
    let mut absent = Command::new(env!("CARGO_BIN_EXE_winpool"));
    absent.env("COLUMNS", "80");
    let absent = absent.args(["check", "-n", "nope"]).env("KUBECONFIG", server.kubeconfig()).output().unwrap();
    let error = String::from_utf8_lossy(&absent.stderr);
    assert_eq!((code(&absent), &*error), (1, "winpool: there is no namespace nope\n"));
    let report = live(&server, &["blockers", "--retire", "2019", "--move-to", "2022"]);
    let minor = running_kubernetes().await.unwrap();
    assert_eq!((&report["nodeCount"], &report["kubernetes"]), (&json!(1), &json!(format!("1.{minor}"))));
    let support = if minor < 35 { "Listed" } else { "Unlisted" };
    assert_eq!(
        (&report["kubernetesSupport"], &report["blockers"][0]["object"]),
        (&json!(support), &json!(ObjectReference::namespaced("Deployment", "default", "old")))
    );
}
