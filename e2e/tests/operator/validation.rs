//! Validation of WindowsPools by the API server, with messages that say what to write instead.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::schema::{object, untyped};

/// The pools of the unit tests, and what only the API server has: its messages for keys, types, enumerations and bounds.
fn cases() -> Vec<(Value, String)> {
    let rules: Vec<Value> =
        serde_yaml::from_str(include_str!("../../../crates/core/src/api/tests/refusals.yaml")).unwrap();
    let mut cases = Vec::new();
    for rule in rules {
        let pools = rule["pools"].as_array().unwrap().iter();
        cases.extend(pools.map(|pool| (pool.clone(), rule["rule"].as_str().unwrap().to_owned())));
    }
    let two = |one: Value, other: Value| json!([one, other]);
    let taint = |value: &str| json!({"key": "os", "value": value, "effect": "NoSchedule"});
    let class = |version: &str| json!({"name": "a", "version": version});
    let build = |version: &str| json!({"build": "10.0.29000", "version": version});
    let memory = |amount: Value| json!({"runtimeClasses": [{"name": "a", "version": "2022", "overhead": {"podFixed": {"memory": amount}}}]});
    let label = "x".repeat(64);
    let specs = [
        (json!({"mode": "Enforced"}), r#"supported values: "Enforce", "DryRun""#),
        (json!({"taints": two(taint("windows"), taint("Windows"))}), "spec.taints[1]: Duplicate value"),
        (json!({"buildNames": two(build("a"), build("b"))}), "spec.buildNames[1]: Duplicate value"),
        (json!({"runtimeClasses": two(class("2019"), class("2022"))}), "spec.runtimeClasses[1]: Duplicate value"),
        (memory(json!("lots")), "podFixed.memory in body should match"),
        (memory(json!("-1Gi")), "podFixed.memory in body should match"),
        (memory(json!(-1)), "should be greater than or equal to 0"),
        (json!({"taints": many(17, numbered_taint)}), "spec.taints: Too many: 17: must have at most 16 items"),
        (json!({"retiredTaints": many(17, numbered_taint)}), "must have at most 16 items"),
        (
            json!({"runtimeClasses": many(33, numbered_class)}),
            "spec.runtimeClasses: Too many: 33: must have at most 32",
        ),
        (json!({"buildNames": many(33, numbered_build)}), "spec.buildNames: Too many: 33: must have at most 32 items"),
        (json!({"nodeSelector": labels(33)}), "spec.nodeSelector: Too many: 33: must have at most 32"),
        (json!({"nodeSelector": {"a": label}}), "may not be more than 63 bytes"),
        (json!({"runtimeClasses": [{"name": label, "version": "2022"}]}), "may not be more than 63 bytes"),
        (json!({"runtimeClassNameFormat": format!("{{version}}{label}")}), "may not be more than 63 bytes"),
    ];
    cases.extend(specs.map(|(spec, message)| (json!({"spec": spec}), message.to_owned())));
    cases
}

#[tokio::test]
async fn an_invalid_pool_is_refused_with_a_message_that_says_what_to_write() {
    let harness = Harness::new().await;
    for (pool, message) in cases() {
        let metadata = Some(&pool["metadata"]).filter(|metadata| metadata.is_object());
        let metadata = metadata.cloned().unwrap_or_else(|| json!({"name": "default"}));
        let spec = pool.get("spec").cloned().unwrap_or_else(|| json!({}));
        let refusal = refusal(&harness, metadata, spec).await;
        assert_eq!(refusal.code, 422, "{pool}: {}", refusal.message);
        assert!(refusal.message.contains(&message), "{pool}: {}", refusal.message);
    }
}

#[tokio::test]
async fn a_misspelt_field_is_refused_under_strict_validation() {
    let harness = Harness::new().await;
    for (spec, field) in [
        (json!({"taint": []}), "spec.taint"),
        (json!({"runtimeClasses": [{"name": "a", "version": "2022", "hander": "x"}]}), "spec.runtimeClasses[0].hander"),
    ] {
        let refusal = refusal(&harness, json!({"name": "default"}), spec).await;
        assert_eq!(refusal.code, 400, "{}", refusal.message);
        assert!(refusal.message.contains(&format!(r#"unknown field "{field}""#)), "{}", refusal.message);
    }
}

#[tokio::test]
async fn a_pool_with_every_field_and_one_at_all_bounds_are_accepted() {
    let harness = Harness::new().await;
    let everything = json!({
        "mode": "Enforce",
        "nodeSelector": {"kubernetes.io/os": "windows", "example.com/team": "a"},
        "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
        "retiredTaints": [{"key": "os", "value": "Win1809", "effect": "NoSchedule"}],
        "runtimeClassDiscovery": "Enabled",
        "runtimeClassHostMatch": "Compatible",
        "runtimeClassNameFormat": "windows-{version}-{pool}",
        "runtimeClasses": [
            {
                "name": "windows-2019",
                "version": "2019",
                "handler": "runhcs-wcow-process",
                "architecture": "amd64",
                "overhead": {"podFixed": {"memory": "512Mi", "cpu": 1}},
                "nodeSelector": {"example.com/disk": "ssd"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            },
            {"name": "by-build", "build": "10.0.17763"},
            {"name": "by-new-name", "version": "preview"},
            {"name": "as-a-number", "version": 2022},
            {"name": "as-an-image-tag", "version": "ltsc2022"},
        ],
        // The second as a pool has it that was written before this release knew the name.
        "buildNames": [{"build": "10.0.29000", "version": "preview"}, {"build": "10.0.20348", "version": "2022"}],
    });
    accept(&harness, json!({"name": "everything"}), everything).await;

    let class = |number| {
        let mut class = numbered_class(number);
        json_merge(
            &mut class,
            json!({
                "nodeSelector": labels(32),
                "tolerations": many(16, |n| json!({"key": format!("key-{n}"), "operator": "Exists"})),
                "overhead": {"podFixed": (0..8).map(|n| (format!("example.com/r{n}"), "1".into())).collect::<serde_json::Map<_, _>>()},
            }),
        );
        class
    };
    let full = json!({
        "nodeSelector": labels(32),
        "taints": many(16, numbered_taint),
        "taintPolicy": "TaintOnly",
        "retiredTaints": many(16, |number| numbered_taint(number + 16)),
        "runtimeClasses": many(32, class),
        "buildNames": many(32, numbered_build),
    });
    accept(&harness, json!({"name": "full"}), full).await;
}

#[tokio::test]
async fn all_defaults_except_taints_are_stored() {
    let harness = Harness::new().await;
    let defaults = json!({
        "mode": "Enforce", "runtimeClassDiscovery": "Enabled", "runtimeClassHostMatch": "Exact",
        "runtimeClassNameFormat": "windows-{version}",
        "taintPolicy": "TaintAndTolerate", "deletionPolicy": "Delete",
    });
    let pools = untyped(&harness.client);
    let nulls = json!({
        "mode": null, "nodeSelector": null, "taints": null, "retiredTaints": null, "runtimeClasses": null, "buildNames": null,
    });
    let specs = [("absent", None), ("empty", Some(json!({}))), ("null", Some(nulls)), ("no-spec", Some(Value::Null))];
    for (name, spec) in specs {
        let mut pool = object(name, &Value::Null);
        pool.data = spec.map_or_else(|| json!({}), |spec| json!({"spec": spec}));
        let stored = pools.create(&PostParams::default(), &pool).await.unwrap();
        assert_eq!(stored.data["spec"], defaults, "{name}");
    }
}

#[tokio::test]
async fn two_owners_apply_different_items_of_one_list() {
    let harness = Harness::new().await;
    let apply = async |owner: &str, spec: Value| {
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "shared"}, "spec": spec,
        });
        harness.pools().patch("shared", &PatchParams::apply(owner), &Patch::Apply(pool)).await.unwrap().spec
    };
    let class = |name: &str, version: Value| json!({"name": name, "version": version});
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    apply(
        "platform",
        json!({"taints": [taint("os")], "taintPolicy": "TaintOnly", "runtimeClasses": [class("web", json!(2022))]}),
    )
    .await;
    let both =
        apply("games", json!({"taints": [taint("games")], "runtimeClasses": [class("game", json!("ltsc2025"))]})).await;
    let names: Vec<_> = both.runtime_classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!((names, both.taints.map(|taints| taints.len())), (vec!["web", "game"], Some(2)));
    let one = apply("games", json!({})).await;
    assert_eq!((one.runtime_classes.len(), one.taints.map(|taints| taints.len())), (1, Some(1)));
}

/// The error of the API server for an invalid pool.
async fn refusal(harness: &Harness, metadata: Value, spec: Value) -> Status {
    match apply(harness, metadata, spec.clone()).await {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("{spec}: {other:?}"),
    }
}

async fn accept(harness: &Harness, metadata: Value, spec: Value) {
    apply(harness, metadata, spec.clone()).await.unwrap_or_else(|error| panic!("{spec}: {error}"));
}

/// Applies a pool in a dry run, with strict field validation.
async fn apply(harness: &Harness, metadata: Value, spec: Value) -> kube::Result<Value> {
    let pool = json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": metadata, "spec": spec});
    let path = "/apis/winpool.dev/v1alpha1/windowspools?dryRun=All&fieldValidation=Strict";
    let request = http::Request::post(path).header("Content-Type", "application/json");
    harness.client.request(request.body(pool.to_string().into_bytes()).unwrap()).await
}

fn many(count: usize, make: impl Fn(usize) -> Value) -> Value {
    (0..count).map(make).collect()
}

fn numbered_taint(number: usize) -> Value {
    json!({"key": format!("example.com/taint-{number}"), "value": "x".repeat(63), "effect": "NoSchedule"})
}

fn numbered_class(number: usize) -> Value {
    json!({"name": format!("class-{number}"), "version": "2022"})
}

fn numbered_build(number: usize) -> Value {
    json!({"build": format!("10.0.{}", 30000 + number), "version": format!("{:x<32}", number)})
}

fn labels(count: usize) -> Value {
    let label = |number| (format!("example.com/{number:x<63}"), "x".repeat(63).into());
    Value::Object((0..count).map(label).collect())
}

fn json_merge(object: &mut Value, more: Value) {
    let (Value::Object(object), Value::Object(more)) = (object, more) else { panic!("objects") };
    object.extend(more);
}
