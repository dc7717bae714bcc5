//! Lists for teams: `--by` and CSV, and one page about many clusters.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::lend;

use crate::input::with_input;
use crate::report::shown;

const RETIRE: [&str; 5] = ["blockers", "--retire", "2019", "--move-to", "2022"];

/// A node of each version, a namespace with a label, and workloads with and without one.
const SHOP: &str = "\
apiVersion: v1
kind: Node
metadata: {name: old, labels: {kubernetes.io/os: windows}}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://2.0.4'}}
---
apiVersion: v1
kind: Node
metadata: {name: new, labels: {kubernetes.io/os: windows}}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.1, containerRuntimeVersion: 'containerd://2.0.4'}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      containers: [{name: c, image: 'cart:ltsc2019', securityContext: {privileged: true}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: pay, namespace: shop, labels: {team: money}}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}
      containers: [{name: c, image: 'pay, and \"more\":ltsc2019'}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: data}
spec:
  jobTemplate:
    spec:
      template:
        metadata: {labels: {team: money}}
        spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: 'report:1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: data}
spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: 'alone:ltsc2019'}]}
";

fn winpool(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).env("KUBECONFIG", "/nonexistent").env("COLUMNS", "100");
    with_input(&mut command, input)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn of_shop(arguments: &[&str]) -> String {
    out(&winpool(&[arguments, &["-f", "-"]].concat(), SHOP))
}

#[test]
fn blockers_are_grouped_by_the_label_of_the_workload_or_its_namespace() {
    insta::assert_snapshot!("blockers_by_team", of_shop(&[&RETIRE[..], &["--by", "label:team"]].concat()));
    insta::assert_snapshot!(
        "blockers_by_namespace_csv",
        of_shop(&[&RETIRE[..], &["--by", "namespace", "-o", "csv"]].concat())
    );
    let json: Value =
        serde_json::from_str(&of_shop(&[&RETIRE[..], &["--by", "label:team", "-o", "json"]].concat())).unwrap();
    let groups = |list: &str| -> Vec<String> {
        let list = json[list].as_array().unwrap().iter();
        list.map(|it| format!("{} {}", it["object"]["name"].as_str().unwrap(), it["group"])).collect()
    };
    assert_eq!(json["by"], "label:team");
    assert_eq!(groups("blockers"), ["cart \"web\"", "pay \"money\"", "alone null"]);
    assert_eq!(groups("unknown"), ["report \"money\""], "the label of its pods");
}

#[test]
fn findings_are_grouped() {
    insta::assert_snapshot!("check_by_team", of_shop(&["check", "--by", "label:team"]));
    insta::assert_snapshot!(
        "check_csv",
        of_shop(&["check", "--by", "label:team", "-o", "csv", "--min-severity", "warning"])
    );
    let plain = of_shop(&["check", "-o", "csv"]);
    assert!(plain.lines().skip(1).all(|line| line.starts_with(',')), "{plain}");
    for by in ["team", "label:", "namespaces"] {
        let output = winpool(&["check", "--by", by, "-f", "-"], SHOP);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains("write namespace, or label:KEY"), "{error}");
    }
}

#[test]
fn a_cell_that_a_spreadsheet_would_run_is_text() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "=HYPERLINK(\"x\"):ltsc2019"}]}});
    let csv = out(&winpool(&[&RETIRE[..], &["-o", "csv", "-f", "-"]].concat(), &pod.to_string()));
    assert!(csv.contains(",\"'=HYPERLINK(\"\"x\"\"):ltsc2019\","), "{csv}");
}

#[test]
fn a_report_has_the_numbers_of_each_team() {
    let csv = of_shop(&["report", "--by", "label:team", "-o", "csv"]);
    insta::assert_snapshot!("report_by_team_csv", csv);
    let page = of_shop(&["report", "--by", "label:team"]);
    let text = shown(&page);
    // Links to the sections come first, and the section between these two has days that pass.
    let part = |from: &str, to: &str| {
        let (start, end) = (text.rfind(from).unwrap(), text.rfind(to).unwrap());
        text[start..end].to_owned()
    };
    let parts = part("By the label team", "Windows versions") + &part("Workloads by", "Taints");
    insta::assert_snapshot!("report_by_team", parts);
    for part in
        ["<h2>By the label team</h2>", "<h4>team: web</h4>", "<h4>Without the label team</h4>", "Deployment shop/cart"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let json: Value = serde_json::from_str(&of_shop(&["report", "--by", "namespace", "-o", "json"])).unwrap();
    assert_eq!((&json["by"], &json["groups"][0]["group"]), (&json!("namespace"), &json!("data")));
}

/// Saves the report of this cluster under this name.
fn save(directory: &Path, name: &str, input: &str, more: &[&str]) {
    let report = winpool(&[&["report", "-o", "json", "-f", "-", "--kubernetes-version", "1.36"], more].concat(), input);
    fs::write(directory.join(name), report.stdout).unwrap();
}

/// Makes one page of reports without a cluster and without a kubeconfig.
fn together(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    let command = command.arg("report").args(arguments).current_dir(directory).env("KUBECONFIG", "/nonexistent");
    command.output().unwrap()
}

#[test]
fn the_reports_of_many_clusters_are_one_page() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), "eu.json", SHOP, &["--name", "prod-eu", "--by", "label:team"]);
    save(
        directory.path(),
        "us.json",
        SHOP.split("---\n").take(2).collect::<Vec<_>>().join("---\n").as_str(),
        &["--name", "prod-us"],
    );
    save(directory.path(), "test.json", SHOP, &[]);
    let files = ["eu.json", "us.json", "test.json"];
    let output = together(directory.path(), &files);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(2), ""));
    let html = out(&output);
    let text = shown(&html);
    // The columns that are left out have days that pass.
    let without_days = |line: &str| -> String {
        let cells = line.split(" | ").enumerate().filter(|(at, _)| ![1, 4, 5].contains(at));
        cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(" | ") + "\n"
    };
    let rows = text.lines().filter(|line| line.matches(" | ").count() > 10).take(5);
    insta::assert_snapshot!("fleet", rows.map(without_days).collect::<String>());
    for part in [
        "<h1>prod-eu</h1>",
        "href=\"#cluster-2\"",
        "id=\"cluster-2-versions\"",
        "<strong>Total</strong>",
        "default-src 'none'",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let json: Value =
        serde_json::from_str(&out(&together(directory.path(), &[&files[..], &["-o", "json"]].concat()))).unwrap();
    let single: Value = serde_json::from_str(&fs::read_to_string(directory.path().join("eu.json")).unwrap()).unwrap();
    assert_eq!((&json["totals"]["nodeCount"], &json["clusters"][0]), (&json!(6), &single));
    let csv = out(&together(directory.path(), &[&files[..], &["-o", "csv"]].concat()));
    assert_eq!(csv.lines().count(), 4, "{csv}");

    // Two clusters of one name are told apart by their files.
    let html = out(&together(directory.path(), &["eu.json", "./eu.json"]));
    assert!(html.contains("<h1>prod-eu (eu.json)</h1>") && html.contains("<h1>prod-eu (./eu.json)</h1>"), "{html}");
}

#[test]
fn a_file_that_is_no_report_is_named() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), "eu.json", SHOP, &[]);
    fs::write(directory.path().join("pod.json"), "{\"kind\": \"Pod\"}").unwrap();
    fs::write(directory.path().join("page.html"), "<html>").unwrap();
    for (file, reason) in
        [("pod.json", "missing field"), ("page.html", "expected value"), ("none.json", "No such file")]
    {
        let output = together(directory.path(), &["eu.json", file]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""), "{error}");
        assert!(error.starts_with(&format!("winpool: {file} is not the report of a cluster: ")), "{error}");
        assert!(error.contains(reason) && error.contains("winpool report -o json"), "{error}");
    }
    let output = together(directory.path(), &["eu.json", "--context", "x"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"), "{output:?}");
}

#[test]
fn a_report_from_a_file_may_have_any_text_and_any_day() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), "a.json", SHOP, &[]);
    let file = directory.path().join("a.json");
    let mut report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let evil = "<script>alert(1)</script>|x";
    report["cluster"] = json!(evil);
    report["workloads"][0]["product"] = json!(evil);
    report["findings"][0]["rule"] = json!(evil);
    report["numbers"]["pinned"] = json!(u64::MAX);
    report["versions"][0]["product"] = json!(evil);
    report["versions"][0]["microsoft"] = json!([{"day": "9999-12-31", "daysLeft": i32::MIN}]);
    report["versions"][0]["vendors"] = json!([
        {"vendor": evil, "source": "javascript:alert(1)", "checked": "2026-01-01", "support": {"day": "-009999-01-01", "daysLeft": i32::MIN}},
    ]);
    for time in ["2026-11-24T06:30:00Z", "9999-12-30T00:00:00Z", "-009999-01-02T01:59:59Z"] {
        report["time"] = json!(time);
        fs::write(&file, report.to_string()).unwrap();
        for format in ["html", "json", "csv"] {
            let output = together(directory.path(), &["a.json", "a.json", "-o", format]);
            assert_eq!(output.status.code(), Some(2), "{time} {format}: {}", String::from_utf8_lossy(&output.stderr));
            let page = out(&output);
            if format == "html" {
                assert!(!page.contains("<script") && !page.contains("javascript:"), "{page}");
            }
        }
    }
}

#[tokio::test]
async fn a_live_cluster_is_grouped_by_the_labels_of_its_namespaces() {
    let server = lend().await.unwrap();
    let client = server.client();
    SimulatedNode::server_2019("old").join(&client).await.unwrap();
    let create = async |path: &str, object: Value| {
        let request = kube::core::Request::new(path).create(&PostParams::default(), object.to_string().into_bytes());
        client.request::<Value>(request.unwrap()).await.unwrap();
    };
    create("/api/v1/namespaces", json!({"metadata": {"name": "shop", "labels": {"team": "web"}}})).await;
    let labels = json!({"app": "cart"});
    let pod = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "cart:ltsc2019"}]});
    let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}});
    create("/apis/apps/v1/namespaces/shop/deployments", json!({"metadata": {"name": "cart"}, "spec": spec})).await;
    let run = |arguments: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        let command = command.args(arguments).args(["--by", "label:team", "-o", "json"]);
        let output = command.env("KUBECONFIG", server.kubeconfig()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(run(&["blockers", "--retire", "2019"])["blockers"][0]["group"], "web");
    for scope in [&["check", "-A"][..], &["check", "-n", "shop"]] {
        let report = run(scope);
        let of_cart = report["findings"].as_array().unwrap().iter().find(|found| found["object"]["name"] == "cart");
        assert_eq!(of_cart.unwrap()["group"], "web", "{scope:?}");
    }
    let report = run(&["report"]);
    assert_eq!(report["groups"][0]["group"], "web");
    assert!(report["cluster"].is_string(), "the context: {report}");
}
