//! Rules about Services, nodes, and what surrounds a pod spec.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use winpool_analysis::finding::Finding;
use winpool_analysis::lint::gmsa::check_credential_spec;
use winpool_analysis::lint::objects::{check_node, check_service, selects};
use winpool_analysis::lint::rule::{Scope, Test};
use winpool_analysis::lint::wellformed::check_without_template;
use winpool_analysis::lint::{Facts, rule, rules as lint_rules};
use winpool_analysis::view::{View, reduced_node};
use winpool_core::node::NodeFields;

use super::examples::{self, windows};
use super::{broken, cluster, example, findings, seen, view, workload};

fn rules(findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn each_rule_about_another_object_finds_its_examples_and_nothing_similar() {
    let facts = cluster(&[], &[], &[]);
    let about_objects = lint_rules().filter(|rule| matches!(rule.test, Test::Object(_)));
    for rule in about_objects {
        let found = |object: &Value| match rule.scope {
            Scope::Service => rules(check_service(object, &facts)),
            Scope::Node => {
                let found = rules(check_node(object, &facts));
                let reduced = rules(check_node(&reduced_node(object), &facts));
                assert_eq!(found, reduced, "what rules read is kept: {object}");
                found
            }
            Scope::CredentialSpec => rules(check_credential_spec(object, &facts)),
            _ => rules(check_without_template(object)),
        };
        let breaks = examples::of(rule, "Breaks");
        assert!(!breaks.is_empty() && breaks.iter().all(|object| found(object) == [rule.id]), "{}", rule.id);
        for object in examples::of(rule, "Keeps") {
            assert_eq!(found(&object), [""; 0], "{}: {object}", rule.id);
        }
    }
}

#[test]
fn a_service_selects_pods_that_have_all_of_its_labels() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "a".to_owned())]);
    let selecting = |selector: Value| selects(&json!({"spec": {"selector": selector}}), &labels);
    assert!(selecting(json!({"app": "web"})));
    assert!(!selecting(json!({"app": "web", "tier": "b"})) && !selecting(json!({})) && !selecting(Value::Null));
}

#[test]
fn a_grace_period_is_ignored_by_runtimes_other_than_containerd() {
    let [long, short] = ["Breaks with Docker", "Keeps with Docker"]
        .map(|label| windows(&examples::of(rule("termination-grace-period").unwrap(), label)[0]));
    let of = |runtime: &str, spec: &Value| {
        let labels = [("kubernetes.io/os", "windows")].into_iter().collect();
        let node = NodeFields { labels, container_runtime: Some(runtime.into()), ..NodeFields::default() };
        let facts = Facts::of(&view([seen(node)]));
        broken("Pod", spec, &facts).contains(&"termination-grace-period".to_owned())
    };
    assert!(of("docker://28.0.0", &long));
    assert!(!of("docker://28.0.0", &short) && !of("containerd://2.1.4", &long) && !of("", &long));
}

#[test]
fn the_isolation_annotation_is_found_in_pods_and_templates() {
    let annotated = example("isolation-annotation")["metadata"].clone();
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
