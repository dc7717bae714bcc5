//! The admission policies that read taints and tolerations: the same ones mean Windows, or are foreign, to them and to winpool.

use std::path::Path;

use kube_cel::{AdmissionRequest, VapEvaluator, VapExpression};
use serde_json::{Value, json};
use winpool_core::api::Taint;
use winpool_core::plan::pods::IS_ENDING;
use winpool_core::windows::taint::{SPELLINGS, marks_windows};

/// The policy of this name in a file of `config/`.
fn policy(file: &str, name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(file);
    let objects: Vec<Value> = serde_yaml::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut policies = objects.into_iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Policy"));
    policies.find(|policy| policy["metadata"]["name"] == name).unwrap()
}

/// The expression with the policy's variables in the place of their names.
fn expanded(policy: &Value, expression: &str) -> String {
    let mut text = expression.to_owned();
    // A variable uses only those before it.
    for variable in policy["spec"]["variables"].as_array().unwrap().iter().rev() {
        let (name, value) = (variable["name"].as_str().unwrap(), variable["expression"].as_str().unwrap());
        let named = format!("variables.{name}");
        let parts: Vec<&str> = text.split(&named).collect();
        let continues = |part: &&str| part.starts_with(|next: char| next.is_ascii_alphanumeric());
        assert!(!parts[1..].iter().any(continues), "{name} begins the name of another variable");
        text = parts.join(&format!("({value})"));
    }
    text
}

/// The same expression about objects that have all fields: kube-cel does not know `.?field.orValue(default)`.
fn without_optionals(expression: &str) -> String {
    let mut parts = expression.split(".orValue(");
    let first = parts.next().unwrap().to_owned();
    let rest = parts.map(|part| part.split_once(')').unwrap().1);
    (first + &rest.collect::<String>()).replace(".?", ".")
}

fn variable<'p>(policy: &'p Value, name: &str) -> &'p str {
    let mut variables = policy["spec"]["variables"].as_array().unwrap().iter();
    variables.find(|variable| variable["name"] == name).unwrap()["expression"].as_str().unwrap()
}

fn holds(policy: &Value, expression: &str, before: &Value, after: &Value) -> bool {
    let request = AdmissionRequest { operation: "UPDATE".to_owned(), ..AdmissionRequest::default() };
    let evaluator = VapEvaluator::builder()
        .object(after.clone())
        .old_object(before.clone())
        .params(json!({"spec": {"retiredTaints": []}}))
        .request(request)
        .build();
    // No request of these tests is about a subresource.
    let expression = expanded(policy, expression).replace("request.?subResource.orValue('')", "''");
    let expression = without_optionals(&expression);
    let message = Some("it is false".to_owned());
    let results =
        evaluator.evaluate(&[VapExpression { expression, message: message.clone(), message_expression: None }]);
    assert!(results[0].passed || results[0].message == message, "{:?}", results[0]);
    results[0].passed
}

/// Known spellings, those like them, and others.
fn keys_and_values() -> Vec<(&'static str, &'static str)> {
    let keys =
        ["os", "oS", "node.kubernetes.io/os", "example.com/Os", "windows", "sku", "os-x", "operating-os", "team"];
    let values = ["windows", "Windows", "WIN", "win1809", "Win2019", "wi", "linux", "not-windows", "true", ""];
    let like_them = keys.into_iter().flat_map(|key| values.into_iter().map(move |value| (key, value)));
    SPELLINGS.iter().map(|spelling| (spelling.key, spelling.value)).chain(like_them).collect()
}

fn tolerating(tolerations: &Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"tolerations": tolerations}})
}

#[test]
fn linux_by_default_takes_the_tolerations_of_windows_taints_for_windows() {
    let file = "components/linux-by-default/policy.yaml";
    let (pods, sets) = ("winpool-linux-by-default-pods", "winpool-linux-by-default-daemonsets");
    let (pods, sets) = (policy(file, pods), policy(file, sets));
    for (key, value) in keys_and_values() {
        let pod = tolerating(&json!([{"key": key, "value": value}]));
        let set = json!({"spec": {"template": pod}});
        for (policy, object) in [(&pods, pod), (&sets, set)] {
            let says = holds(policy, variable(policy, "saysByToleration"), &object, &object);
            assert_eq!(says, marks_windows(key, value), "{key}={value}");
        }
    }
}

#[test]
fn born_tainted_leaves_nodes_with_a_windows_taint_alone() {
    let policy = policy("components/born-tainted/policy.yaml", "winpool-born-tainted");
    for (key, value) in keys_and_values() {
        let node = json!({"spec": {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}});
        let is_guarded = holds(&policy, variable(&policy, "guarded"), &node, &node);
        assert_eq!(is_guarded, marks_windows(key, value), "{key}={value}");
    }
}

#[test]
fn winpool_may_add_only_tolerations_of_windows_taints() {
    let policy = policy("rbac/confine_pods.yaml", "winpool-confine-pods");
    let validations = policy["spec"]["validations"].as_array().unwrap();
    let ends_with = |validation: &Value| validation["message"].as_str().is_some_and(|text| text.ends_with(IS_ENDING));
    assert_eq!(validations.iter().filter(|validation| ends_with(validation)).count(), 1, "winpool knows this message");
    let about_taints =
        validations.iter().filter(|validation| validation.to_string().contains("variables.windowsTaints"));
    let [validation] = about_taints.collect::<Vec<_>>()[..] else { panic!("one validation is about Windows taints") };
    for (key, value) in keys_and_values() {
        let after = json!([{"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}]);
        let (before, after) = (tolerating(&json!([])), tolerating(&after));
        let may = holds(&policy, validation["expression"].as_str().unwrap(), &before, &after);
        assert_eq!(may, marks_windows(key, value), "{key}={value}");
    }
}

/// The keys that pools may not have are those of `Taint::has_foreign_key`.
#[test]
fn winpool_may_not_change_taints_that_evict_or_that_pools_may_not_have() {
    let policy = policy("rbac/confine_nodes.yaml", "winpool-confine-nodes");
    let validations = policy["spec"]["validations"].as_array().unwrap();
    let about_taints = validations.iter().filter(|validation| {
        let expression = validation["expression"].as_str().unwrap();
        expression.starts_with("variables.changedTaints.all")
    });
    let expressions: Vec<&str> = about_taints.map(|validation| validation["expression"].as_str().unwrap()).collect();
    assert_eq!(expressions.len(), 2);
    let keys = [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
        "readiness.k8s.io/windows",
        "node.kubernetes.io/os",
        "kubernetes.io/os",
        "os",
        "dedicated",
    ];
    for key in keys {
        for effect in ["NoSchedule", "PreferNoSchedule", "NoExecute"] {
            let tainted = json!({"spec": {"taints": [{"key": key, "value": "windows", "effect": effect}]}});
            let bare = json!({"spec": {"taints": []}});
            let may = |before: &Value, after: &Value| {
                expressions.iter().all(|expression| holds(&policy, expression, before, after))
            };
            let expected = effect != "NoExecute" && !Taint::new(key, "windows", effect).has_foreign_key();
            assert_eq!([may(&bare, &tainted), may(&tainted, &bare)], [expected; 2], "{key}:{effect}");
            assert!(may(&tainted, &tainted), "{key}:{effect} stays");
        }
    }
}
