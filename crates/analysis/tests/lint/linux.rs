//! Rules about what is added to pods: Linux containers by injectors, and addresses on EKS.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use winpool_analysis::finding::Finding;
use winpool_analysis::lint::Facts;
use winpool_analysis::view::View;

use super::examples::windows;
use super::placement::class;
use super::{broken, class_object, example, findings, node, view, workload};

/// The findings about a Deployment for Windows with this metadata in its template: rule, field and remedy.
fn found(metadata: &Value) -> Vec<(String, String, String)> {
    let mut object = workload("Deployment", &windows(&json!({})));
    object["spec"]["template"]["metadata"] = metadata.clone();
    let found = findings(&object, &Facts::none()).into_iter();
    found.map(|found| (found.rule, found.field, found.remedy.text)).collect()
}

#[test]
fn a_template_that_asks_for_a_sidecar_of_linux_is_told_the_switch() {
    for (metadata, field, switch) in [
        (
            example("linux-sidecar-injected")["metadata"].clone(),
            "spec.template.metadata.annotations[linkerd.io/inject]",
            "set the annotation linkerd.io/inject: \"disabled\"",
        ),
        (
            json!({"annotations": {"sidecar.istio.io/inject": "true"}}),
            "spec.template.metadata.annotations[sidecar.istio.io/inject]",
            "set the label sidecar.istio.io/inject: \"false\"",
        ),
        (
            json!({"labels": {"admission.datadoghq.com/enabled": "true"}}),
            "spec.template.metadata.labels[admission.datadoghq.com/enabled]",
            "set the label admission.datadoghq.com/enabled: \"false\"",
        ),
        (
            json!({"annotations": {"vault.hashicorp.com/agent-inject": "true"}}),
            "spec.template.metadata.annotations[vault.hashicorp.com/agent-inject]",
            "set the annotation vault.hashicorp.com/agent-inject: \"false\"",
        ),
        (
            json!({"annotations": {"azure.workload.identity/inject-proxy-sidecar": "true"}}),
            "spec.template.metadata.annotations[azure.workload.identity/inject-proxy-sidecar]",
            "remove the annotation azure.workload.identity/inject-proxy-sidecar",
        ),
    ] {
        let [(rule, found, remedy)] = found(&metadata).try_into().unwrap();
        assert_eq!((rule.as_str(), found.as_str()), ("linux-sidecar-injected", field));
        assert!(remedy.starts_with(switch), "{remedy}");
    }
    for metadata in [json!({}), json!({"annotations": {"linkerd.io/inject": "disabled"}}), Value::Null] {
        assert_eq!(found(&metadata), []);
    }
}

#[test]
fn the_edit_of_an_injected_template_turns_the_injector_off() {
    for (annotation, expected) in [
        ("sidecar.istio.io/inject", json!({"labels": {"sidecar.istio.io/inject": "false"}})),
        ("linkerd.io/inject", json!({"annotations": {"linkerd.io/inject": "disabled"}})),
        ("azure.workload.identity/inject-proxy-sidecar", json!({})),
    ] {
        let mut object = workload("Deployment", &windows(&json!({})));
        let value = if annotation == "linkerd.io/inject" { "enabled" } else { "true" };
        object["spec"]["template"]["metadata"] = json!({"annotations": {annotation: value}});
        let finding = findings(&object, &Facts::none()).pop().unwrap();
        let patch = finding.remedy.json_patch(&object, "/spec/template");
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(object["spec"]["template"]["metadata"], expected);
        assert_eq!(findings(&object, &Facts::none()), []);
    }
}

#[test]
fn a_label_of_the_namespace_asks_for_a_sidecar() {
    let labels = BTreeMap::from([("istio-injection".to_owned(), "enabled".to_owned())]);
    let view = View { namespace_labels: BTreeMap::from([("shop".to_owned(), labels)]), ..View::default() };
    let found = |object: &Value| -> Vec<Finding> {
        let found = findings(object, &Facts::of(&view)).into_iter();
        found.filter(|finding| finding.rule == "linux-sidecar-injected").collect()
    };
    let mut object = workload("Deployment", &windows(&json!({})));
    let [finding] = found(&object).try_into().unwrap();
    assert_eq!(
        (finding.message.as_str(), finding.field.as_str()),
        (
            "Istio adds a Linux container to the pod, which is for Windows: the label istio-injection of namespace shop is enabled",
            "spec.template.metadata.labels[sidecar.istio.io/inject]",
        )
    );
    let patch = finding.remedy.json_patch(&object, "/spec/template");
    json_patch::patch(&mut object, &patch).unwrap();
    assert_eq!(found(&object), []);
    // Istio leaves pods alone that use the network of the node.
    let on_host = json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true}}});
    assert_eq!(found(&workload("DaemonSet", &windows(&on_host))), []);
    object["metadata"]["namespace"] = json!("other");
    object["spec"]["template"]["metadata"] = Value::Null;
    assert_eq!(found(&object), []);
}

/// A cluster with this Windows node and a class.
fn cluster(labels: &[(&str, &str)]) -> Facts {
    let mut view = view([node("10.0.20348", &[], labels)]);
    view.classes.add(class_object(&class("windows-2022", "10.0.20348")));
    Facts::of(&view)
}

#[test]
fn a_pod_that_selects_windows_by_affinity_gets_no_address_on_eks() {
    let (eks, other) = (cluster(&[("eks.amazonaws.com/nodegroup", "win")]), cluster(&[("agentpool", "win")]));
    let affinity = example("eks-address-missing");
    let with = |more: Value| {
        let mut spec = affinity.clone();
        json_patch::merge(&mut spec, &more);
        windows(&spec)
    };
    for kind in ["Deployment", "DaemonSet"] {
        assert_eq!(broken(kind, &windows(&affinity), &eks), ["eks-address-missing"], "{kind}");
        assert_eq!(broken(kind, &windows(&affinity), &other), [""; 0], "{kind}");
    }
    let limits = json!({"vpc.amazonaws.com/PrivateIPv4Address": "1", "cpu": "1", "memory": "1Gi"});
    for spec in [
        with(json!({"nodeSelector": {"kubernetes.io/os": "windows"}})),
        with(json!({"runtimeClassName": "windows-2022"})),
        with(json!({"containers": [{"resources": {"limits": limits}}]})),
    ] {
        assert_eq!(broken("Deployment", &spec, &eks), [""; 0], "{spec}");
    }
}
