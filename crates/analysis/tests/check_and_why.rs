//! `check` finds an error or a warning about where pods run exactly if `why` has a remedy.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use winpool_analysis::explain::pod::answer_template;
use winpool_analysis::finding::{Consequence, Finding};
use winpool_analysis::image::Images;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::lint::{Facts, check};
use winpool_analysis::remedy::Rank;
use winpool_analysis::view::{Known, View};
use winpool_analysis::workload::WorkloadManifest;

const OS: &str = "kubernetes.io/os";
const BUILD: &str = "node.kubernetes.io/windows-build";

fn taint() -> Value {
    json!({"key": "os", "value": "windows", "effect": "NoSchedule"})
}

/// Two Windows nodes of different builds and teams, a Linux node, and four classes. One has a handler that no node has.
fn view(is_tainted: bool) -> View {
    let node = |name: &str, team: &str, build: Option<&str>| {
        let system = if build.is_some() { "windows" } else { "linux" };
        let taints = if is_tainted && build.is_some() { json!([taint()]) } else { json!([]) };
        let labels = json!({OS: system, "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "team": team, BUILD: build});
        let labels: serde_json::Map<_, _> =
            labels.as_object().unwrap().clone().into_iter().filter(|(_, value)| !value.is_null()).collect();
        crate::seen(&json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
            "status": {"nodeInfo": {
                "operatingSystem": system, "containerRuntimeVersion": "containerd://1.7.25",
                "kernelVersion": build.map_or_else(|| "6.8".to_owned(), |build| format!("{build}.3000")),
            }},
        }))
    };
    let class = |name: &str, handler: &str, build: Option<&str>| {
        let mut selector = json!({OS: "windows"});
        if let Some(build) = build {
            selector[BUILD] = json!(build);
        }
        let scheduling = json!({"nodeSelector": selector, "tolerations": [taint()]});
        let class = json!({"metadata": {"name": name}, "handler": handler, "scheduling": scheduling});
        Arc::new(serde_json::from_value(class).unwrap())
    };
    let old = Some("10.0.17763");
    View {
        nodes: Known::Complete(vec![
            node("old", "a", old),
            node("new", "b", Some("10.0.20348")),
            node("linux", "a", None),
        ]),
        classes: Known::Complete(vec![
            class("old", "runhcs-wcow-process", old),
            class("new", "runhcs-wcow-process", Some("10.0.20348")),
            class("hyperv", "runhcs-wcow-hypervisor", None),
            class("docker", "docker", None),
        ]),
        ..View::default()
    }
}

/// One of these, or the field is absent in half of the cases.
fn maybe(values: Vec<Value>) -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), select(values)]
}

fn affinity(key: &str, values: &[&str]) -> Value {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]);
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

prop_compose! {
    fn spec()(
        selector in maybe(vec![
            json!({OS: "windows"}), json!({OS: "linux"}), json!({BUILD: "10.0.17763"}), json!({BUILD: "10.0.26100"}), json!({"team": "a"}),
            json!({"team": "c"}), json!({OS: "windows", "team": "b"}),
        ]),
        affinity in maybe(vec![
            affinity(OS, &["windows"]), affinity(BUILD, &["10.0.17763", "10.0.20348"]), affinity("team", &["a"]),
            affinity("kubernetes.io/arch", &["arm64"]),
        ]),
        tolerations in maybe(vec![json!([{"operator": "Exists"}]), json!([taint()]), json!([{"key": "node.kubernetes.io/os", "value": "windows"}])]),
        image in select(vec!["example.com/app", "a:ltsc2019", "a:ltsc2022", "a:ltsc2025", "mcr.microsoft.com/windows/nanoserver"]),
        class in maybe(["old", "new", "hyperv", "docker"].map(Value::from).into()),
        os in maybe(vec![json!({"name": "windows"}), json!({"name": "linux"})]),
        node in prop_oneof![3 => Just(Value::Null), 1 => select(["old", "new", "linux", "gone"].map(Value::from).to_vec())],
    ) -> Value {
        let mut spec = json!({"containers": [{"name": "c", "image": image}]});
        let fields = [
            ("nodeSelector", selector), ("affinity", affinity), ("tolerations", tolerations), ("runtimeClassName", class), ("os", os),
            ("nodeName", node),
        ];
        for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            spec[field] = value;
        }
        spec
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn check_finds_something_where_why_has_a_remedy(spec in spec(), is_daemon_set in any::<bool>(), is_tainted in any::<bool>()) {
        let kind = if is_daemon_set && spec["nodeName"].is_null() { "DaemonSet" } else { "Deployment" };
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {}, "template": {"metadata": {}, "spec": spec}},
        });
        let view = view(is_tainted);
        let all = check(&WorkloadManifest::read(&object).unwrap().unwrap(), &Facts::of(&view));
        let counts = |finding: &&Finding| !matches!(finding.consequence, Consequence::Note | Consequence::Ignored);
        let found: Vec<&str> = all.iter().filter(counts).map(|finding| &*finding.rule).collect();
        let kind = WorkloadKind::own(kind).unwrap();
        let told = answer_template(kind, &crate::workload_of(kind, object), &[], &view.cluster(&Images::default()));
        // No rule is about a Linux pod that no Linux node takes.
        let is_of_linux = told.system == "linux" && !told.nodes.iter().any(|node| node.possible);
        prop_assert!(found.is_empty() == told.remedy.is_none() || found.is_empty() && is_of_linux, "{:?} {:?}", found, told);
        let certain = told.remedy.iter().filter(|remedy| remedy.rank == Rank::Certain).flat_map(|remedy| &remedy.edits);
        for edit in certain {
            prop_assert!(all.iter().any(|finding| finding.remedy.edits.contains(edit)), "{:?} {:?} {:?}", edit, all, told);
        }
    }
}
