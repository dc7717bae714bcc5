//! winpool's metrics, rules and monitors with Prometheus, promtool and the Prometheus operator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::BUILD;
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::machine::assets::{Component, prometheus_operator_definition};
use winpool_e2e::machine::process::free_port;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::manifests;
use winpool_e2e::servers::definitions::define;
use winpool_e2e::servers::prometheus::{Prometheus, promtool};
use winpool_e2e::servers::requests::scrape;
use winpool_generate::metrics::{Values, labels};
use winpool_operator::metrics::reference::{Description, METRICS};

const COMPONENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/components/monitoring");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/winpool");
const RUNBOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks");

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(COMPONENT).join(file)).unwrap()
}

/// The rule groups as Prometheus reads them.
fn rules() -> Value {
    let rule: Value = serde_yaml::from_str(&read("prometheus_rule.yaml")).unwrap();
    rule["spec"].clone()
}

fn alerts() -> Vec<Value> {
    rules()["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// The expressions of the dashboard, with its variables set to all pools and half a minute.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    let expressions = targets.map(|target| text(&target["expr"]).replace("$pool", ".*"));
    expressions.map(|expression| expression.replace("$__rate_interval", "30s")).collect()
}

/// The names of series in an expression: words with a prefix that winpool's metrics have.
fn series(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("winpool_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// The names that Prometheus stores a metric under.
fn stored(metric: &Description) -> Vec<String> {
    match metric.kind.as_str() {
        "histogram" => ["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", metric.name)).into(),
        _ => vec![metric.name.to_owned()],
    }
}

/// Creates pools, nodes and classes in as many states as possible.
async fn scene(harness: &Harness) {
    let right = SimulatedNode::server_2022("zebra-right").taint("os", "windows", "NoSchedule");
    let nodes = [
        right,
        SimulatedNode::server_2019("zebra-bare").without_label(BUILD),
        SimulatedNode::windows("10.0.29111.1").name("zebra-newer"),
        SimulatedNode::windows("10.0.29222.1").name("zebra-newest"),
        SimulatedNode::windows("unreadable").name("zebra-unreadable").without_label(BUILD),
        SimulatedNode::windows("10.0.14393.1").name("zebra-ignored").annotation("winpool.dev/ignore", "true"),
    ];
    for node in nodes {
        harness.join_node(node).await;
    }
    harness.apply_pool(json!({"runtimeClasses": [{"name": "any", "version": "Any"}]})).await;
    harness.apply_pool_named("preview", json!({"mode": "DryRun", "runtimeClassNameFormat": "preview-{version}"})).await;
    harness.ready("default").await;
    harness.ready("preview").await;
}

/// Starts an operator, and returns the address of its endpoints.
fn operator(harness: &Harness) -> (Operator, SocketAddr) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    (harness.operator_at(address), address)
}

#[tokio::test]
#[ignore = "needs Prometheus: make verify"]
async fn prometheus_has_every_series_of_the_reference_and_the_dashboard() {
    let harness = Harness::new().await;
    let ((first, one), (second, other)) = (operator(&harness), operator(&harness));
    scene(&harness).await;
    let prometheus = Prometheus::start(&[one, other], &rules()).await.unwrap();
    let up = async || Ok(Some(prometheus.query("sum(up) == 2").await?).filter(|found| !found.is_empty()));
    wait_for("both are scraped without a fault", LIMIT, up).await.unwrap();

    for metric in METRICS {
        for name in stored(metric) {
            let found = async || Ok(Some(prometheus.query(&name).await?).filter(|found| !found.is_empty()));
            let found = wait_for(&format!("Prometheus has {name}"), LIMIT, found).await.unwrap();
            labels_are_those_of(metric, &found);
        }
    }
    let known: BTreeSet<String> = METRICS.iter().copied().flat_map(stored).collect();
    let expressions: Vec<String> =
        alerts().iter().map(|alert| text(&alert["expr"]).to_owned()).chain(dashboard()).collect();
    for expression in &expressions {
        let unknown: Vec<_> = series(expression).difference(&known).cloned().collect();
        assert_eq!(unknown, Vec::<String>::new(), "{expression}");
        prometheus.query(expression).await.unwrap();
    }
    for expression in dashboard().iter().filter(|expression| !expression.contains("> 0")) {
        let found = async || Ok(Some(prometheus.query(expression).await?).filter(|found| !found.is_empty()));
        wait_for(&format!("{expression} finds something"), LIMIT, found).await.unwrap();
    }

    let scraped = prometheus.query(r#"count by (__name__) ({job="winpool"})"#).await.unwrap();
    let scraped: BTreeSet<_> = scraped.iter().map(|series| text(&series["metric"]["__name__"]).to_owned()).collect();
    let undocumented: Vec<_> = scraped.iter().filter(|name| is_winpools(name) && !known.contains(*name)).collect();
    assert_eq!(undocumented, Vec::<&String>::new());
    rules_work(&prometheus).await;
    first.stop().await;
    second.stop().await;
}

/// `up` and `scrape_…` are Prometheus' own.
fn is_winpools(name: &str) -> bool {
    name != "up" && !name.starts_with("scrape_")
}

/// The labels that the reference names are there and no others, with values that it allows.
fn labels_are_those_of(metric: &Description, found: &[Value]) {
    let own = ["__name__", "job", "instance", "le"];
    for series in found {
        let shown: BTreeMap<&str, &str> = series["metric"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.as_str(), text(value)))
            .filter(|(name, _)| !own.contains(name))
            .collect();
        let expected: BTreeSet<&str> = labels(metric.name).iter().map(|label| label.name).collect();
        assert_eq!(shown.keys().copied().collect::<BTreeSet<_>>(), expected, "{series}");
        for label in labels(metric.name) {
            let value = shown[label.name];
            if let Values::Closed(values) = label.values {
                assert!(values().contains(&value), "{}={value} is not in the reference: {series}", label.name);
            }
            assert!(!value.contains("zebra"), "a label names a node: {series}");
            assert!(!value.contains("29111"), "a label has a value that a node chose: {series}");
        }
    }
}

/// What the scene is, in queries; and that the alert for it is on its way, and no other.
async fn rules_work(prometheus: &Prometheus) {
    // The standby shows no pool, so that sums are right.
    for query in ["sum(winpool_leader)", r#"sum(winpool_pool_condition{pool="default",type="Ready",status="True"})"#] {
        let found = prometheus.query(query).await.unwrap();
        assert_eq!(found[0]["value"][1], "1", "{query}");
    }
    for (query, expected) in [
        (r#"sum by (state) (winpool_nodes{pool="default",build="other"})"#, vec![("converged", "2")]),
        (r#"sum by (state) (winpool_nodes{pool="default",build="unknown"})"#, vec![("blocked", "1")]),
        (r#"sum by (state) (winpool_nodes{pool="default",build="10.0.14393"})"#, vec![("ignored", "1")]),
        (r#"sum by (state) (winpool_runtimeclasses{pool="default"})"#, vec![("Applied", "4")]),
    ] {
        let found = prometheus.query(query).await.unwrap();
        let found: Vec<_> = found.iter().map(|one| (text(&one["metric"]["state"]), text(&one["value"][1]))).collect();
        assert_eq!(found, expected, "{query}");
    }
    let alerting = async || {
        let found = prometheus.query("count by (alertname) (ALERTS)").await?;
        let names = found.iter().map(|one| text(&one["metric"]["alertname"]).to_owned());
        let names: BTreeSet<String> = names.collect();
        Ok(Some(names).filter(|names| names.contains("WinpoolNodesBlocked")))
    };
    let alerting = wait_for("the alert for blocked nodes is pending", LIMIT, alerting).await.unwrap();
    let expected = ["WinpoolNodesBlocked", "WinpoolWindowsEndOfSupport", "WinpoolWindowsEndOfSupportSoon"];
    assert!(alerting.iter().all(|name| expected.contains(&name.as_str())), "{alerting:?}");
    let groups = prometheus.get("/api/v1/rules").await.unwrap();
    for rule in groups["data"]["groups"][0]["rules"].as_array().unwrap() {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

#[tokio::test]
async fn pending_changes_match_what_enforce_writes() {
    let harness = Harness::new().await;
    for node in [
        SimulatedNode::server_2022("right").taint("os", "windows", "NoSchedule"),
        SimulatedNode::server_2019("bare").without_label(BUILD),
        SimulatedNode::windows("unreadable").name("unreadable").without_label(BUILD),
    ] {
        harness.join_node(node).await;
    }
    let (_operator, address) = operator(&harness);
    harness.apply_until_ready(json!({"mode": "DryRun"})).await;
    // Two nodes lack the taint, one of them the label too, and there is no class for either build.
    says(address, r#"winpool_pending_changes{pool="default"} 4"#).await;
    let text = scrape(address).await.unwrap();
    assert!(!text.contains(r#"winpool_kube_requests_total{verb="patch",resource="nodes""#), "{text}");
    harness.apply_pool(json!({"mode": "Enforce"})).await;
    says(address, r#"winpool_pending_changes{pool="default"} 0"#).await;
    says(address, r#"winpool_kube_requests_total{verb="patch",resource="nodes",code="200"} 2"#).await;
    says(address, r#"winpool_kube_requests_total{verb="create",resource="runtimeclasses",code="201"} 2"#).await;
}

/// Waits until `/metrics` has this line.
async fn says(address: SocketAddr, line: &str) {
    let mut last = String::new();
    let said = wait_for(line, LIMIT, async || {
        last = scrape(address).await?;
        Ok(last.lines().any(|said| said == line).then_some(()))
    });
    said.await.unwrap_or_else(|error| panic!("{error}; last seen:\n{last}"));
}

#[tokio::test]
#[ignore = "needs Prometheus: make verify"]
async fn promtool_accepts_the_rules_their_tests_and_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules().to_string()).unwrap();
    std::fs::write(directory.path().join("test.yaml"), read("prometheus_rule_test.yaml")).unwrap();
    for arguments in
        [["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"].as_slice(), &["test", "rules", "test.yaml"]]
    {
        let output = promtool(arguments, directory.path(), "").await.unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
    let tested: Value = serde_yaml::from_str(&read("prometheus_rule_test.yaml")).unwrap();
    let cases =
        || tested["tests"].as_array().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    for alert in alerts() {
        let fires = |fires: bool| {
            cases().any(|case| case["alertname"] == alert["alert"] && (case["exp_alerts"] != json!([])) == fires)
        };
        assert!(
            fires(true) && fires(false),
            "{} has no test in which it fires, or none in which it does not",
            alert["alert"]
        );
    }

    let index = std::sync::Arc::default();
    let metrics = winpool_operator::metrics::Metrics::new(index).encode().unwrap();
    // It reads the older text format, in which a counter is called _total in its comments too.
    let counters = METRICS.iter().filter(|metric| metric.name.ends_with("_total"));
    let metrics = counters.fold(metrics, |text, Description { name, .. }| {
        let base = name.trim_end_matches("_total");
        ["HELP", "TYPE"]
            .iter()
            .fold(text, |text, comment| text.replace(&format!("# {comment} {base} "), &format!("# {comment} {name} ")))
    });
    let output = promtool(&["check", "metrics"], directory.path(), &metrics).await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{metrics}");
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let mut names = BTreeSet::new();
    for alert in alerts() {
        let name = text(&alert["alert"]).to_owned();
        assert!(["critical", "warning", "info"].contains(&text(&alert["labels"]["severity"])), "{alert}");
        assert!(alert["for"].is_string(), "{name}");
        assert!(
            !text(&alert["annotations"]["summary"]).is_empty()
                && !text(&alert["annotations"]["description"]).is_empty()
        );
        let url = text(&alert["annotations"]["runbook_url"]);
        assert!(url.ends_with(&format!("/docs/runbooks/{name}.md")), "{url}");
        let runbook = std::fs::read_to_string(Path::new(RUNBOOKS).join(format!("{name}.md"))).unwrap();
        for part in [&format!("# {name}\n"), "\n## Symptoms\n", "\n## Cause\n", "\n## Resolution\n"] {
            assert!(runbook.contains(part), "{name}.md has no {part:?}");
        }
        names.insert(format!("{name}.md"));
    }
    let files = std::fs::read_dir(RUNBOOKS).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.filter(|file| file != "README.md").collect::<BTreeSet<_>>(), names);
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn the_prometheus_operators_definitions_accept_the_monitor_and_the_rules() {
    let harness = Harness::new().await;
    for plural in ["podmonitors", "prometheusrules", "servicemonitors"] {
        let definition = prometheus_operator_definition(plural).await.unwrap();
        define(&harness.client, &serde_yaml::from_str(&definition).unwrap()).await.unwrap();
    }
    let example = format!("{CHART}/ci/service-monitor-values.yaml");
    let template = ["template", CHART, "--values", &example, "--show-only", "templates/monitoring.yaml"];
    let served = ["--api-versions", "monitoring.coreos.com/v1"];
    let chart = Component::Helm.run(harness.server.kubeconfig(), &[&template[..], &served].concat()).await.unwrap();
    for (name, text) in [
        ("PodMonitor", read("pod_monitor.yaml")),
        ("PrometheusRule", read("prometheus_rule.yaml")),
        ("ServiceMonitor", chart),
    ] {
        let objects: Vec<_> = serde_yaml::from_multiple(&text).unwrap();
        assert_eq!(objects.len(), 1, "{text}");
        let (what, mut refusal) = (format!("the {name} is accepted"), None);
        let accepted = wait_for(&what, LIMIT, async || {
            refusal = manifests::apply(&harness.client, &objects).await.err();
            Ok(refusal.is_none().then_some(()))
        });
        accepted.await.unwrap_or_else(|error| panic!("{error}: {refusal:?}"));
    }
}
