//! Rules about what the API server admits into a namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use winpool_analysis::lint::Facts;
use winpool_analysis::pod_security::ENFORCE;
use winpool_analysis::view::{NODE_SELECTORS, Related, View};

use super::examples::windows;
use super::{broken, example, findings, workload};

/// The facts about a cluster whose namespace `shop` enforces this level.
fn enforcing(level: &str) -> Facts {
    let labels = BTreeMap::from([(ENFORCE.to_owned(), level.to_owned())]);
    Facts::of(&View { namespace_labels: BTreeMap::from([("shop".to_owned(), labels)]), ..View::default() })
}

#[test]
fn the_level_of_the_namespace_refuses_a_host_process_pod() {
    let pod = windows(&example("pod-security-refused"));
    for (level, is_refused) in [("privileged", false), ("baseline", true), ("restricted", true)] {
        let broken = broken("DaemonSet", &pod, &enforcing(level));
        assert_eq!(broken.contains(&"pod-security-refused".to_owned()), is_refused, "{level}: {broken:?}");
    }
    let found = findings(&workload("DaemonSet", &pod), &enforcing("baseline"));
    let found = found.iter().find(|found| found.rule == "pod-security-refused").unwrap();
    assert_eq!(
        found.message,
        "namespace shop enforces the PodSecurity level baseline, so the API server refuses the pod: hostProcess, host namespaces"
    );
    assert!(found.remedy.text.contains("pod-security.kubernetes.io/enforce: privileged"), "{}", found.remedy.text);
    // A Windows pod is exempt from the checks of fields that Windows does not have, but not from this one.
    let plain = findings(&workload("Deployment", &windows(&json!({}))), &enforcing("restricted"));
    assert!(plain.iter().any(|found| found.message.ends_with(": runAsNonRoot != true")), "{plain:#?}");
    // It refuses pods for any system.
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "hostPID": true});
    assert!(broken("Deployment", &linux, &enforcing("baseline")).contains(&"pod-security-refused".to_owned()));
}

#[test]
fn a_namespace_without_a_level_has_that_of_the_configuration_of_the_api_server() {
    let configuration = json!({"defaults": {"enforce": "baseline"}, "exemptions": {"namespaces": ["exempt"]}});
    let plugins = json!([{"name": "Other"}, {"name": "PodSecurity", "configuration": configuration}]);
    let pod = windows(&json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}));
    for (kind, object) in
        [("PodSecurityConfiguration", configuration), ("AdmissionConfiguration", json!({"plugins": plugins}))]
    {
        let mut related = Related::default();
        related.add(kind, "", object);
        let labelled = BTreeMap::from([(ENFORCE.to_owned(), "privileged".to_owned())]);
        let labels = [("own", labelled), ("plain", BTreeMap::new()), ("exempt", BTreeMap::new())];
        let namespace_labels = labels.map(|(name, labels)| (name.to_owned(), labels)).into();
        let facts = Facts::of(&View { namespace_labels, related: Arc::new(related), ..View::default() });
        for (namespace, is_refused) in [("plain", true), ("not-listed", true), ("own", false), ("exempt", false)] {
            let mut object = workload("Deployment", &pod);
            object["metadata"]["namespace"] = json!(namespace);
            let found = findings(&object, &facts);
            let refused = found.iter().any(|found| found.rule == "pod-security-refused");
            assert_eq!(refused, is_refused, "{kind} {namespace}: {found:#?}");
        }
    }
}

#[test]
fn a_namespace_that_selects_other_nodes_refuses_the_pod_and_its_selector_places_others() {
    let labels = |text: &str| BTreeMap::from([(NODE_SELECTORS[0].to_owned(), text.to_owned())]);
    let facts = |text: &str| {
        Facts::of(&View { namespace_labels: BTreeMap::from([("shop".to_owned(), labels(text))]), ..View::default() })
    };
    let pod = windows(&example("namespace-selector-conflict"));
    let rule = "namespace-selector-conflict".to_owned();
    assert!(broken("Deployment", &pod, &facts("kubernetes.io/os=linux, team=a")).contains(&rule));
    assert!(!broken("Deployment", &pod, &facts("kubernetes.io/os=windows")).contains(&rule));
    assert!(!broken("Deployment", &pod, &facts("")).contains(&rule));
    // Its pods get the selector.
    let unplaced = json!({"os": {"name": "windows"}, "containers": [{"name": "c", "image": "app:ltsc2022"}]});
    let missing = "os-selector-missing".to_owned();
    assert!(broken("Deployment", &unplaced, &Facts::none()).contains(&missing));
    assert!(!broken("Deployment", &unplaced, &facts("kubernetes.io/os=windows")).contains(&missing));
}
