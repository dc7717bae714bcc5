use serde_json::json;

use super::*;
use crate::finding::Consequence;
use crate::image::{ImagePlatforms, Images, Platform, Source};
use crate::lint::survey;
use crate::view::{Known, Position, Reduced};

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
        // `check` finds what `fix` changes, and nothing else that needs no decision.
        let (view, mut is_found) = (view(&[deployment(&template)]), false);
        let facts = Facts::of(&view);
        survey(&view, &facts, Some(&facts.with_open_nodes()), false, |_, found| {
            is_found |= found.iter().any(|finding| any_cluster().takes(finding));
        });
        assert_eq!(is_found, !changes.is_empty(), "{template}");
    }
    let differ = json!({"nodeSelector": {NODE_LABEL: "linux"}, "os": {"name": "windows"}, "containers": containers, "tolerations": tolerations});
    let (_, decisions) = told(&deployment(&differ), &any_cluster());
    assert!(decisions.iter().any(|decision| decision.starts_with("os-contradicts-selector: ")), "{decisions:?}");
}

#[test]
fn rules_are_chosen_by_name() {
    let windows =
        deployment(&json!({"nodeSelector": {NODE_LABEL: "windows"}, "containers": [{"name": "c", "image": "app"}]}));
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
    assert_eq!(
        told(&deployment(&json!({"containers": [{"name": "c", "image": "app"}]})), &Choice::default()),
        (String::new(), Vec::new())
    );
}

#[test]
fn an_api_version_changes_if_only_its_name_does() {
    let old = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let linux = json!({"spec": {"nodeSelector": {NODE_LABEL: "linux"}, "containers": [{"name": "c", "image": "app"}]}});
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

/// The words of the changes for a move of this pod from one version to another, and what is left to decide.
fn moved(pod: &Value, (retired, target): (u32, u32), images: &[(&str, &str)]) -> (String, Vec<String>) {
    let view = view(&[deployment(pod)]);
    let mut facts = Facts::of(&view);
    let mut resolved = Images::default();
    for (name, version) in images {
        let os_version = Some((*version).to_owned());
        let platform =
            Platform { os: "windows".to_owned(), architecture: "amd64".to_owned(), os_version, ..Platform::default() };
        let image = ImagePlatforms { digest: String::new(), source: Source::Index, platforms: vec![platform] };
        resolved.add(name, Ok(image));
    }
    facts.add_images(resolved);
    let mut moves = Moves::default();
    moves.away_from(Build::new(retired), Build::new(target), &view, &facts);
    let Fixes { changed, by_hand } = fixes(&view, &facts, &any_cluster(), &moves);
    let words = changed.into_iter().map(|(_, fix)| fix.remedy.text).collect::<Vec<_>>().join(" | ");
    (words, by_hand.into_iter().flat_map(|(_, by_hand)| by_hand.decisions).collect())
}

#[test]
fn a_workload_moves_as_a_whole_and_no_rule_pins_it_to_the_retired_version() {
    const SKU: &str = "kubernetes.azure.com/os-sku";
    const BUILD: &str = "node.kubernetes.io/windows-build";
    const TOLERATE: &str = "add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}";
    let pod = |image: &str, fields: Value| {
        let mut pod = json!({"os": {"name": "windows"}, "containers": [{"name": "c", "image": image}]});
        pod.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        pod
    };
    let on = |build: &str| json!({"nodeSelector": {NODE_LABEL: "windows", BUILD: build}});
    let (to_2022, to_2025) = ((17763, 20348), (20348, 26100));
    let of_tags = [("app:ltsc2019", "10.0.17763.1"), ("app:ltsc2022", "10.0.20348.1")];
    for (pod, versions, images, changes, decisions) in [
        (
            pod("app:1", on("10.0.17763")),
            to_2022,
            &[][..],
            format!("set nodeSelector {BUILD}: 10.0.20348; set runtimeClassName: windows-2022"),
            vec![],
        ),
        (
            pod("app:ltsc2019", on("10.0.17763")),
            to_2022,
            &[],
            TOLERATE.to_owned(),
            vec![format!(
                "set nodeSelector {BUILD}: 10.0.20348; set containers[0].image: app:ltsc2022, once it exists"
            )],
        ),
        (
            pod("app:ltsc2019", on("10.0.17763")),
            to_2022,
            &of_tags,
            format!(
                "set nodeSelector {BUILD}: 10.0.20348; set containers[0].image: app:ltsc2022; set runtimeClassName: windows-2022"
            ),
            vec![],
        ),
        (
            pod("app:ltsc2019", json!({"runtimeClassName": "windows-2019"})),
            to_2022,
            &[],
            String::new(),
            vec![
                "set runtimeClassName: windows-2022; set containers[0].image: app:ltsc2022, once it exists".to_owned(),
            ],
        ),
        (
            pod("app:1", json!({"runtimeClassName": "windows-2019", "nodeSelector": {SKU: "Windows2019"}})),
            to_2022,
            &[],
            String::new(),
            vec![
                "set runtimeClassName: windows-2022; select nodes of 10.0.20348; now only nodes of 10.0.17763 match"
                    .to_owned(),
            ],
        ),
        (
            pod("app:ltsc2019", json!({})),
            to_2022,
            &[],
            format!("set nodeSelector kubernetes.io/os: windows; {TOLERATE}"),
            vec!["set containers[0].image: app:ltsc2022, once it exists".to_owned()],
        ),
        (
            pod("app:1", on("2019")),
            to_2022,
            &[],
            TOLERATE.to_owned(),
            vec![format!("build-malformed: set nodeSelector {BUILD}: 10.0.17763")],
        ),
        (
            pod("app:ltsc2022", on("10.0.20348")),
            to_2025,
            &[],
            format!("set nodeSelector {BUILD}: 10.0.26100; set runtimeClassName: windows-2025"),
            vec![
                "set containers[0].image: app:ltsc2025, once it exists; may stay where containerd is 1.7.19 or later"
                    .to_owned(),
            ],
        ),
    ] {
        assert_eq!(moved(&pod, versions, images), (changes, decisions), "{pod} with {images:?}");
    }
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
    let mut view = view(&[deployment(&json!({"containers": [{"name": "c", "image": "app"}]}))]);
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
