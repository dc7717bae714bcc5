//! The policy that confines winpool's permission to patch pods, compared with the policy of this release.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// The spec of the policy of this release.
static OWN: LazyLock<Value> = LazyLock::new(|| {
    let file = include_str!("../../../../config/rbac/confine_pods.yaml");
    let objects: Vec<Value> = serde_yaml::from_multiple(file).unwrap_or_default();
    objects.into_iter().next().map(|mut policy| policy["spec"].take()).unwrap_or_default()
});

/// Returns the field by which the policy with this name and spec, or its binding, may allow more than the policy of this release;
/// `None` if they allow no more. A test has to show that the policy applies to winpool's account, whose name it does not know.
pub fn weakness(name: &str, policy: &Value, binding: &Value) -> Option<&'static str> {
    // With the fields that the API server adds.
    let constraints = |policy: &Value| {
        let mut all = json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}});
        json_patch::merge(&mut all, &policy["matchConstraints"]);
        all
    };
    let list = |field: &Value| field.as_array().cloned().unwrap_or_default();
    // kustomize breaks lines elsewhere. No text inside the expressions of this release has a space.
    let words = |text: &Value| text.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let expressions = |field: &Value| -> Vec<(Value, String)> {
        list(field).iter().map(|item| (item["name"].clone(), words(&item["expression"]))).collect()
    };
    let is_account = |(_, condition): &(Value, String)| {
        let account = condition.strip_prefix("request.userInfo.username == '").and_then(|text| text.strip_suffix('\''));
        account.is_some_and(|name| !name.contains('\''))
    };
    let (conditions, refused) = (expressions(&policy["matchConditions"]), expressions(&policy["validations"]));
    let checks = [
        ("failurePolicy", policy["failurePolicy"] == OWN["failurePolicy"]),
        ("paramKind", policy["paramKind"].is_null()),
        ("matchConstraints", constraints(policy) == constraints(&OWN)),
        ("matchConditions", conditions.len() == 1 && conditions.iter().all(is_account)),
        ("variables", expressions(&policy["variables"]) == expressions(&OWN["variables"])),
        ("validations", expressions(&OWN["validations"]).iter().all(|own| refused.contains(own))),
        ("policyName", binding["policyName"] == name),
        ("paramRef", binding["paramRef"].is_null()),
        ("matchResources", binding["matchResources"].is_null()),
        ("validationActions", list(&binding["validationActions"]).contains(&json!("Deny"))),
    ];
    checks.into_iter().find(|(_, is_kept)| !is_kept).map(|(field, _)| field)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "winpool-confine-pods";

    /// The policy and its binding as the API server stores them.
    fn stored() -> [Value; 2] {
        let mut policy = OWN.clone();
        json_patch::merge(
            &mut policy["matchConstraints"],
            &json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}),
        );
        [policy, json!({"policyName": POLICY, "validationActions": ["Deny"]})]
    }

    #[test]
    fn the_policy_of_this_release_is_accepted_with_the_defaults_of_the_api_server_and_for_any_account() {
        assert_eq!(OWN["validations"].as_array().unwrap().len(), 7);
        let [mut policy, mut binding] = stored();
        assert_eq!(weakness(POLICY, &OWN, &binding), None);
        assert_eq!(weakness(POLICY, &policy, &binding), None);
        policy["matchConditions"][0]["expression"] =
            json!("request.userInfo.username == 'system:serviceaccount:elsewhere:other-winpool'");
        policy["validations"].as_array_mut().unwrap().insert(0, json!({"expression": "false"}));
        policy["validations"][1]["message"] = json!("another text");
        let folded = policy["validations"][3]["expression"].as_str().unwrap().replace(' ', "\n  ");
        policy["validations"][3]["expression"] = json!(folded);
        binding["validationActions"] = json!(["Audit", "Deny"]);
        assert_eq!(weakness(POLICY, &policy, &binding), None, "it is narrower");
    }

    #[test]
    fn every_field_that_may_allow_more_is_named() {
        let condition = |text: &str| json!([{"name": "winpool", "expression": text}]);
        let account = "request.userInfo.username == 'system:serviceaccount:winpool-system:winpool'";
        let only_the_test = format!("{account} && has(object.metadata.labels) && 'a' == 'a'");
        let twice = json!([{"name": "winpool", "expression": account}, {"name": "more", "expression": account}]);
        let [policy, binding] = stored();
        let with = |field: &str, change: &dyn Fn(&mut Value)| {
            let mut changed = policy.clone();
            change(&mut changed[field]);
            changed
        };
        let validation =
            |change: &dyn Fn(&mut Vec<Value>)| with("validations", &|all| change(all.as_array_mut().unwrap()));
        let constraint =
            |field: &'static str, value: Value| with("matchConstraints", &|all| all[field] = value.clone());
        for (field, changed) in [
            ("failurePolicy", with("failurePolicy", &|all| *all = json!("Ignore"))),
            ("paramKind", with("paramKind", &|all| *all = json!({"apiVersion": "v1", "kind": "ConfigMap"}))),
            ("matchConstraints", constraint("matchPolicy", json!("Exact"))),
            ("matchConstraints", constraint("objectSelector", json!({"matchLabels": {"a": "b"}}))),
            ("matchConstraints", constraint("namespaceSelector", json!({"matchLabels": {"a": "b"}}))),
            ("matchConstraints", constraint("excludeResourceRules", json!([{"resources": ["pods"]}]))),
            (
                "matchConstraints",
                with("matchConstraints", &|all| all["resourceRules"][0]["operations"] = json!(["CREATE"])),
            ),
            ("matchConstraints", with("matchConstraints", &|all| all["resourceRules"][0]["scope"] = json!("Cluster"))),
            ("matchConditions", with("matchConditions", &|all| *all = json!([]))),
            ("matchConditions", with("matchConditions", &|all| *all = condition(&only_the_test))),
            ("matchConditions", with("matchConditions", &|all| *all = twice.clone())),
            ("variables", with("variables", &|all| all[1]["expression"] = json!("false"))),
            ("variables", with("variables", &|all| drop(all.as_array_mut().unwrap().pop()))),
            ("validations", validation(&|all| drop(all.remove(2)))),
            ("validations", validation(&|all| all[0]["expression"] = json!("true"))),
            ("validations", validation(&|all| all[6]["expression"] = json!(null))),
            ("failurePolicy", Value::Null),
        ] {
            assert_eq!(weakness(POLICY, &changed, &binding), Some(field), "{changed:#}");
        }
        for (field, value) in [
            ("policyName", json!("winpool-confine-nodes")),
            ("paramRef", json!({"name": "a", "parameterNotFoundAction": "Allow"})),
            ("matchResources", json!({"objectSelector": {"matchLabels": {"a": "b"}}})),
            ("validationActions", json!(["Warn", "Audit"])),
            ("validationActions", Value::Null),
        ] {
            let mut changed = binding.clone();
            changed[field] = value;
            assert_eq!(weakness(POLICY, &policy, &changed), Some(field), "{changed:#}");
        }
    }
}
