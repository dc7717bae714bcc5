use serde_json::json;

use super::*;
use crate::{
    finding::Consequence,
    view::{Known, Position, Reduced},
};

const NODE_LABEL: &str = "kubernetes.io/os";

fn deployment(template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {}, "template": {"spec": template}},
    })
}

fn pool() -> Value {
    json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": {}})
}

fn view(objects: &[Value]) -> View {
    let mut view =
        View { pools: Known::Complete(vec![(None, serde_json::from_value(pool()).unwrap())]), ..View::default() };
    for object in objects {
        let source = Position { file: "web.yaml".into(), line: 1 };
        view.written.add(Some(source), Reduced::from(object.clone()));
    }
    view
}

fn found(object: &Value, choice: &Choice) -> Fixes {
    let view = view(std::slice::from_ref(object));
    fixes(&view, &Facts::of(&view), choice, &Moves::default())
}

fn any_cluster() -> Choice {
    Choice { any_cluster: true, ..Choice::default() }
}

/// The words of the changes, and what is left to decide.
fn told(object: &Value, choice: &Choice) -> (String, Vec<String>) {
    let found = found(object, choice);
    let words = found.changed.into_iter().map(|(_, fix)| fix.remedy.text).collect::<Vec<_>>().join(" | ");
    (words, found.by_hand.into_iter().flat_map(|(_, by_hand)| by_hand.decisions).collect())
}

#[test]
fn certain_changes_are_made_and_the_rest_is_listed() {
    let containers = json!([{"name": "c", "image": "app:1"}]);
    let windows = json!({NODE_LABEL: "windows"});
    let tolerations = json!([{"key": "os", "operator": "Exists"}]);
    for (template, changes) in [
        (json!({"containers": containers}), "set nodeSelector kubernetes.io/os: linux"),
        (json!({"containers": containers, "nodeSelector": {NODE_LABEL: "linux"}}), ""),
        (json!({"containers": containers, "runtimeClassName": "gvisor"}), ""),
        (
            json!({"containers": containers, "nodeSelector": windows}),
            "set os.name: windows; add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}",
        ),
        (
            json!({"containers": containers, "nodeSelector": windows, "tolerations": tolerations, "hostPID": true}),
            "remove hostPID; set os.name: windows",
        ),
        (
            json!({"containers": containers, "nodeSelector": {"beta.kubernetes.io/os": "windows"}, "tolerations": tolerations, "os": {"name": "windows"}}),
            "set nodeSelector kubernetes.io/os: windows; remove nodeSelector beta.kubernetes.io/os",
        ),
        (
            json!({"containers": containers, "os": {"name": "windows"}, "tolerations": tolerations, "hostNetwork": false}),
            "set nodeSelector kubernetes.io/os: windows",
        ),
    ] {
        assert_eq!(told(&deployment(&template), &any_cluster()), (changes.to_owned(), Vec::new()), "{template}");
    }
    let differ = json!({"nodeSelector": {NODE_LABEL: "linux"}, "os": {"name": "windows"}, "containers": containers, "tolerations": tolerations});
    let (_, decisions) = told(&deployment(&differ), &any_cluster());
    assert!(decisions.iter().any(|decision| decision.starts_with("os-contradicts-selector: ")), "{decisions:?}");
}

#[test]
fn rules_are_chosen_by_name() {
    let windows = deployment(&json!({"nodeSelector": {NODE_LABEL: "windows"}, "containers": []}));
    let named = |rule: &str| BTreeSet::from([rule.to_owned()]);
    let only = Choice { only: named("os-name-missing"), ..any_cluster() };
    assert_eq!(told(&windows, &only).0, "set os.name: windows");
    let skip = Choice { skip: named("os-name-missing"), ..any_cluster() };
    assert!(told(&windows, &skip).0.starts_with("add the toleration"));
}

#[test]
fn a_probable_system_needs_the_users_word() {
    let probable = deployment(&json!({"containers": [{"name": "c", "image": "tool-windows:1"}]}));
    let (changes, decisions) = told(&probable, &any_cluster());
    assert_eq!((changes.as_str(), decisions.is_empty()), ("", false));
    let allowed = found(&probable, &Choice { probable: true, ..any_cluster() });
    let [(_, fix)] = allowed.changed.as_slice() else { panic!("{allowed:?}") };
    assert_eq!(fix.doubt, Some("the name of an image has a word for Windows"));
    assert!(fix.remedy.text.contains("set nodeSelector kubernetes.io/os: windows"), "{}", fix.remedy.text);
    assert!(allowed.by_hand.is_empty(), "{allowed:?}");
}

#[test]
fn a_live_cluster_whose_taints_keep_linux_pods_off_stays_as_it_is() {
    assert_eq!(told(&deployment(&json!({"containers": []})), &Choice::default()), (String::new(), Vec::new()));
}

#[test]
fn an_api_version_changes_if_only_its_name_does() {
    let old = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let linux = json!({"spec": {"nodeSelector": {NODE_LABEL: "linux"}, "containers": []}});
    let job = old("batch/v1beta1", "CronJob", json!({"jobTemplate": {"spec": {"template": linux}}}));
    assert_eq!(told(&job, &any_cluster()).0, "set apiVersion: batch/v1");
    let selecting =
        |selector: Value| old("extensions/v1beta1", "Deployment", json!({"selector": selector, "template": linux}));
    assert_eq!(told(&selecting(json!({"matchLabels": {}})), &any_cluster()).0, "set apiVersion: apps/v1");
    let (changes, decisions) = told(&selecting(Value::Null), &any_cluster());
    assert_eq!(
        (changes.as_str(), decisions.as_slice()),
        ("", &["api-version-removed: write apps/v1, which requires spec.selector".to_owned()][..])
    );
}

#[test]
fn other_kinds_are_left_to_the_user() {
    let job = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob", "metadata": {"name": "a"},
        "spec": {"jobTargetRef": {"template": {"spec": {"containers": [{"name": "c", "image": "app"}]}}}}});
    let (changes, decisions) = told(&job, &any_cluster());
    assert_eq!((changes.as_str(), decisions.len()), ("", 1));
}

#[test]
fn a_move_is_made_with_the_other_changes() {
    let web =
        deployment(&json!({"nodeSelector": {NODE_LABEL: "windows", "node.kubernetes.io/windows-build": "10.0.17763"},
        "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "app:ltsc2019"}]}));
    let view = view(&[web]);
    let facts = Facts::of(&view);
    let mut moves = Moves::default();
    moves.away_from(Build::new(17763), Build::new(20348), &view, &facts);
    let Fixes { changed, by_hand } = fixes(&view, &facts, &any_cluster(), &moves);
    let words: Vec<&str> = changed.iter().map(|(_, fix)| fix.remedy.text.as_str()).collect();
    assert_eq!(words, ["set os.name: windows; set nodeSelector node.kubernetes.io/windows-build: 10.0.20348"]);
    let decisions: Vec<&String> = by_hand.iter().flat_map(|(_, by_hand)| &by_hand.decisions).collect();
    assert!(decisions.iter().any(|decision| decision.contains("app:ltsc2022")), "{decisions:?}");
}

#[test]
fn an_object_that_the_api_server_refuses_is_changed_only_if_that_solves_it() {
    let finding = Finding {
        rule: "api-version-removed".to_owned(),
        severity: Severity::Error,
        consequence: Consequence::Rejected,
        object: ObjectReference::named("RuntimeClass windows"),
        field: "apiVersion".to_owned(),
        message: String::new(),
        remedy: Remedy::of(vec![Edit::set(&["apiVersion"], "node.k8s.io/v1")]),
    };
    let source = Position { file: "web.yaml".into(), line: 1 };
    let mut view = view(&[deployment(&json!({"containers": []}))]);
    view.refused.push((source.clone(), finding.clone()));
    let Fixes { changed, by_hand } = fixes(&view, &Facts::none(), &any_cluster(), &Moves::default());
    let words: Vec<&str> = changed.iter().map(|(_, fix)| fix.remedy.text.as_str()).collect();
    assert_eq!(words, ["set nodeSelector kubernetes.io/os: linux", "set apiVersion: node.k8s.io/v1"]);
    assert!(by_hand.is_empty(), "{by_hand:?}");
    let object = ObjectReference::namespaced("Deployment", "shop", "web");
    view.refused = vec![(source, Finding { object, remedy: Remedy::advice("write a number"), ..finding })];
    let Fixes { changed, by_hand } = fixes(&view, &Facts::none(), &any_cluster(), &Moves::default());
    assert_eq!((changed.len(), by_hand.len()), (0, 1));
}
