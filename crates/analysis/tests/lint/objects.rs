//! Rules about Services, nodes, and what surrounds a pod spec.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use winpool_analysis::finding::Finding;
use winpool_analysis::lint::Facts;
use winpool_analysis::lint::gmsa::check_credential_spec;
use winpool_analysis::lint::objects::{check_node, check_service, selects};
use winpool_analysis::view::{View, reduced_node};
use winpool_core::node::NodeFields;

use super::{broken, cluster, findings, seen, view, workload};

/// The rules that these tests break.
pub const TESTED: [&str; 10] = [
    "service-session-affinity",
    "service-ip-family",
    "service-local-traffic",
    "node-version-skew",
    "node-reserved-memory",
    "node-pause-image",
    "termination-grace-period",
    "isolation-annotation",
    "gmsa-credential-spec-missing",
    "gmsa-object-malformed",
];

fn rules(findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn services_of_windows_pods_are_checked() {
    let of = |spec: Value| {
        let service = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
        rules(check_service(&service, &Facts::none()))
    };
    let affinity = |seconds: i64| json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
    for (spec, expected) in [
        (affinity(10_801), Some("service-session-affinity")),
        (affinity(10_800), None),
        (json!({"ipFamilies": ["IPv6"]}), Some("service-ip-family")),
        (json!({"ipFamilies": ["IPv6", "IPv4"]}), None),
        (json!({"externalTrafficPolicy": "Local"}), Some("service-local-traffic")),
        (json!({"externalTrafficPolicy": "Cluster"}), None),
        (Value::Null, None),
    ] {
        assert_eq!(of(spec.clone()), expected.into_iter().collect::<Vec<_>>(), "{spec}");
    }
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "a".to_owned())]);
    let selecting = |selector: Value| selects(&json!({"spec": {"selector": selector}}), &labels);
    assert!(selecting(json!({"app": "web"})));
    assert!(!selecting(json!({"app": "web", "tier": "b"})) && !selecting(json!({})) && !selecting(Value::Null));
}

#[test]
fn nodes_are_checked() {
    let facts = cluster(&[], &[], &[]);
    let of = |status: Value| {
        let node = json!({"metadata": {"name": "win"}, "status": status});
        let found = rules(check_node(&node, &facts));
        assert_eq!(found, rules(check_node(&reduced_node(&node), &facts)), "what rules read is kept: {node}");
        found
    };
    let kubelet = |version: &str| json!({"nodeInfo": {"kubeletVersion": version}});
    let memory = |allocatable: &str| json!({"capacity": {"memory": "32Gi"}, "allocatable": {"memory": allocatable}});
    let pause = |kernel: &str, tags: &[&str]| {
        let names: Vec<String> = tags.iter().map(|tag| format!("registry.k8s.io/pause:{tag}")).collect();
        json!({"nodeInfo": {"kernelVersion": kernel}, "images": [{"names": names}, {"names": ["example.com/app:1"]}]})
    };
    for (status, expected) in [
        (kubelet("v1.37.0"), Some("node-version-skew")),
        (kubelet("v1.32.9"), Some("node-version-skew")),
        (kubelet("v1.33.0"), None),
        (kubelet("v1.36.3"), None),
        (kubelet("odd"), None),
        (memory("31Gi"), Some("node-reserved-memory")),
        (memory("30Gi"), None),
        (memory("odd"), None),
        (pause("10.0.26100.1", &["3.10", "3.9"]), Some("node-pause-image")),
        (pause("10.0.26100.1", &["3.10.2"]), None),
        (pause("10.0.26100.1", &["3.9", "3.10.2"]), None),
        (pause("10.0.20348.1", &["3.9"]), None),
        (pause("10.0.26100.1", &[]), None),
        (Value::Null, None),
    ] {
        assert_eq!(of(status.clone()), expected.into_iter().collect::<Vec<_>>(), "{status}");
    }
}

#[test]
fn a_grace_period_is_ignored_by_runtimes_other_than_containerd() {
    let of = |runtime: &str, seconds: i64| {
        let labels = [("kubernetes.io/os", "windows")].into_iter().collect();
        let node = NodeFields { labels, container_runtime: Some(runtime.into()), ..NodeFields::default() };
        let facts = Facts::of(&view([seen(node)]));
        let spec = json!({"os": {"name": "windows"}, "terminationGracePeriodSeconds": seconds});
        broken("Pod", &spec, &facts).contains(&"termination-grace-period".to_owned())
    };
    assert!(of("docker://28.0.0", 60));
    assert!(!of("docker://28.0.0", 30) && !of("containerd://2.1.4", 60) && !of("", 60));
}

#[test]
fn the_isolation_annotation_is_found_in_pods_and_templates() {
    let annotated = json!({"annotations": {"experimental.windows.kubernetes.io/isolation-type": "hyperv"}});
    let field = |object: &Value| {
        let mut found = findings(object, &Facts::none()).into_iter();
        found.find(|finding| finding.rule == "isolation-annotation").map(|finding| finding.field)
    };
    let (mut deployment, mut pod) = (workload("Deployment", &json!({})), workload("Pod", &json!({})));
    assert_eq!((field(&deployment), field(&pod)), (None, None));
    deployment["spec"]["template"]["metadata"] = annotated.clone();
    pod["metadata"]["annotations"] = annotated["annotations"].clone();
    let path = "metadata.annotations[experimental.windows.kubernetes.io/isolation-type]";
    assert_eq!((field(&deployment), field(&pod)), (Some(format!("spec.template.{path}")), Some(path.to_owned())));
}

#[test]
fn credential_specs_are_looked_up_and_have_both_parts() {
    let spec = json!({
        "securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "web"}},
        "containers": [{"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "typo"}}}],
    });
    let missing = |facts: &Facts| {
        let found = findings(&workload("Pod", &spec), facts).into_iter();
        let found = found.filter(|finding| finding.rule == "gmsa-credential-spec-missing");
        found.map(|finding| (finding.field, finding.message)).collect::<Vec<_>>()
    };
    assert_eq!(missing(&Facts::none()), [], "unknown");
    let mut view = View::default();
    view.credential_specs.add((None, json!({"metadata": {"name": "web"}})));
    let facts = Facts::of(&view);
    let field = "spec.containers[0].securityContext.windowsOptions.gmsaCredentialSpecName".to_owned();
    assert_eq!(missing(&facts), [(field, "there is no GMSACredentialSpec typo".to_owned())]);
    for (parts, expected) in [
        (json!({"DomainJoinConfig": {}, "ActiveDirectoryConfig": {}}), None),
        (json!({"DomainJoinConfig": {}}), Some("gmsa-object-malformed")),
        (Value::Null, Some("gmsa-object-malformed")),
    ] {
        let object = json!({"metadata": {"name": "web"}, "credspec": parts});
        let found = rules(check_credential_spec(&object, &Facts::none()));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{object}");
    }
}
