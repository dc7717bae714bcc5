//! Validation of WindowsPools by the API server, with messages that say what to write instead.

use kube::core::Status;
use winpool_e2e::{
    harness::schema::{object, untyped},
    prelude::*,
};

#[tokio::test]
async fn an_invalid_spec_is_refused_with_a_message_that_says_what_to_write() {
    let harness = Harness::new().await;
    let cases = taints().into_iter().chain(selectors()).chain(names()).chain(classes()).chain(bounds());
    for (spec, message) in cases {
        let refusal = refusal(&harness, json!({"name": "default"}), spec.clone()).await;
        assert_eq!(refusal.code, 422, "{spec}: {}", refusal.message);
        assert!(refusal.message.contains(message), "{spec}: {}", refusal.message);
    }
}

type Cases = Vec<(Value, &'static str)>;

fn taints() -> Cases {
    let one = |taint: Value| json!({"taints": [taint]});
    let os_windows = || json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
    let (key, value) = ("key must be a qualified name such as os", "value must be a label value");
    let effect = "effect must be NoSchedule or PreferNoSchedule";
    let mut cases = vec![
        (json!({"taints": []}), "list the taints, or write taintPolicy: Never for none"),
        (
            json!({"taints": [os_windows(), {"key": "os", "value": "Windows", "effect": "NoSchedule"}]}),
            "spec.taints[1]: Duplicate value",
        ),
        (
            json!({"taints": [os_windows()], "retiredTaints": [os_windows()]}),
            "is both in taints and in retiredTaints; remove it from one of them",
        ),
        (
            json!({"taints": [{"key": "a", "effect": "NoSchedule"}], "retiredTaints": [{"key": "a", "value": "", "effect": "NoSchedule"}]}),
            "is both in taints and in retiredTaints",
        ),
        (json!({"retiredTaints": [os_windows()]}), "list other taints in taints to retire it"),
        (one(json!({"key": "os windows", "effect": "NoSchedule"})), key),
        (one(json!({"key": "Example.com/os", "effect": "NoSchedule"})), key),
        (one(json!({"key": "a/b/c", "effect": "NoSchedule"})), key),
        (one(json!({"key": "x".repeat(64), "effect": "NoSchedule"})), key),
        (one(json!({"key": format!("{}/os", "x".repeat(254)), "effect": "NoSchedule"})), key),
        (one(json!({"key": "os", "value": "-windows", "effect": "NoSchedule"})), value),
        (one(json!({"key": "os", "value": "win dows", "effect": "NoSchedule"})), value),
        (one(json!({"key": "os", "value": "windows", "effect": "NoExecute"})), "because it would evict running pods"),
        (one(json!({"key": "os", "value": "windows", "effect": "noschedule"})), effect),
        (one(json!({"key": "os", "value": "windows", "effect": ""})), effect),
        (json!({"retiredTaints": [{"key": "os", "effect": "NoExecute"}]}), "because it would evict running pods"),
    ];
    for foreign in [
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
        "readiness.k8s.io/cni",
    ] {
        for field in ["taints", "retiredTaints"] {
            let spec = json!({field: [{"key": foreign, "effect": "NoSchedule"}]});
            cases.push((spec, "belongs to Kubernetes or to an autoscaler; choose a key of your own"));
        }
    }
    cases
}

fn selectors() -> Cases {
    let own = "use a label of your own";
    let labels = "keys must be label names and values label values, as in a pod's nodeSelector";
    vec![
        (json!({"nodeSelector": {"kubernetes.io/os": "linux"}}), "can only be windows; leave it out"),
        (json!({"nodeSelector": {"winpool.dev/pool": "a"}}), own),
        (json!({"nodeSelector": {"runtimeclass.winpool.dev/a": "true"}}), own),
        (json!({"nodeSelector": {"a b": "c"}}), labels),
        (json!({"nodeSelector": {"": "c"}}), labels),
        (json!({"nodeSelector": {"a": "b c"}}), labels),
        (json!({"nodeSelector": {"a": "-"}}), labels),
    ]
}

fn names() -> Cases {
    let build = "build must be 10.0.<number>";
    let format = "runtimeClassNameFormat must contain {version}, may contain {pool}";
    let taken = "is the name of another Windows build already; choose another name";
    let named = |build: &str, version: &str| json!({"buildNames": [{"build": build, "version": version}]});
    vec![
        (json!({"mode": "Enforced"}), r#"supported values: "Enforce", "DryRun""#),
        (json!({"runtimeClassNameFormat": "windows-2022"}), format),
        (json!({"runtimeClassNameFormat": "Windows-{version}"}), format),
        (json!({"runtimeClassNameFormat": "windows-{version}-"}), format),
        (json!({"runtimeClassNameFormat": "windows-{version}-{node}"}), format),
        (named("10.0.29000.1", "preview"), build),
        (named("29000", "preview"), build),
        (named("10.0.029000", "preview"), build),
        (named("10.0.29000", "Preview"), "version must be lower-case letters, digits and hyphens"),
        (named("10.0.29000", "2022"), taken),
        (named("10.0.29000", "build-7"), taken),
        (
            json!({"buildNames": [{"build": "10.0.29000", "version": "a"}, {"build": "10.0.29000", "version": "b"}]}),
            "spec.buildNames[1]: Duplicate value",
        ),
        (
            json!({"buildNames": [{"build": "10.0.29000", "version": "a"}, {"build": "10.0.29001", "version": "a"}]}),
            "each version may be used once",
        ),
    ]
}

fn classes() -> Cases {
    let with = |more: Value| {
        let mut class = json!({"name": "windows-2022", "version": "2022"});
        json_merge(&mut class, more);
        json!({"runtimeClasses": [class]})
    };
    let selector = "nodeSelector may not set kubernetes.io/os, kubernetes.io/arch or node.kubernetes.io/windows-build";
    let name = "name must be a DNS subdomain of at most 63 characters, such as windows-2022";
    let quantity = "podFixed.memory in body should match";
    let exactly_one = "write exactly one of version (such as 2019) and build (such as 10.0.17763)";
    vec![
        (with(json!({"build": "10.0.20348"})), exactly_one),
        (json!({"runtimeClasses": [{"name": "windows-2022"}]}), exactly_one),
        (with(json!({"version": "2023"})), "version is not known; write Any, one of 2016, 1709"),
        (json!({"runtimeClasses": [{"name": "a", "build": "10.1.20348"}]}), "build must be 10.0.<number>"),
        (with(json!({"name": "Windows"})), name),
        (with(json!({"name": "windows..2022"})), name),
        (with(json!({"handler": "runhcs_wcow"})), "handler must be a DNS label, such as runhcs-wcow-process"),
        (with(json!({"architecture": "AMD64"})), "architecture must be a value of the label kubernetes.io/arch"),
        (with(json!({"nodeSelector": {"kubernetes.io/os": "windows"}})), selector),
        (with(json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}})), selector),
        (with(json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}})), selector),
        (with(json!({"nodeSelector": {"a": "b c"}})), "keys must be label names and values label values"),
        (with(json!({"tolerations": [{"key": "os", "operator": "In"}]})), "operator must be Equal or Exists"),
        (with(json!({"tolerations": [{"key": "os", "effect": "Never"}]})), "or left out for all"),
        (with(json!({"tolerations": [{"operator": "Equal"}]})), "without a key operator must be Exists"),
        (
            with(json!({"tolerations": [{"key": "a", "tolerationSeconds": 30}]})),
            "tolerationSeconds needs effect NoExecute",
        ),
        (with(json!({"tolerations": [{"key": "a b"}]})), "tolerations: key must be a qualified name"),
        (with(json!({"overhead": {"podFixed": {"disk": 1}}})), "overhead.podFixed: names are cpu, memory"),
        (with(json!({"overhead": {"podFixed": {"memory": "lots"}}})), quantity),
        (with(json!({"overhead": {"podFixed": {"memory": "-1Gi"}}})), quantity),
        (with(json!({"overhead": {"podFixed": {"memory": -1}}})), "should be greater than or equal to 0"),
        (
            json!({"runtimeClasses": [{"name": "a", "version": "2019"}, {"name": "a", "version": "2022"}]}),
            "spec.runtimeClasses[1]: Duplicate value",
        ),
    ]
}

fn bounds() -> Cases {
    let label = "x".repeat(64);
    vec![
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
    ]
}

#[tokio::test]
async fn names_that_cannot_be_label_values_are_refused() {
    let harness = Harness::new().await;
    let name = "n".repeat(63);
    accept(&harness, json!({"name": name}), json!({})).await;
    let refusal = refusal(&harness, json!({"name": format!("{name}n")}), json!({})).await;
    assert!(refusal.message.contains("metadata.name must be at most 63 characters"), "{}", refusal.message);
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
        "mode": "Enforce", "runtimeClassDiscovery": "Enabled", "runtimeClassNameFormat": "windows-{version}",
        "taintPolicy": "WhenTolerated", "runtimeClassAdoptionPolicy": "IfCompatible", "deletionPolicy": "Delete",
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
    apply("platform", json!({"taints": [taint("os")], "runtimeClasses": [class("web", json!(2022))]})).await;
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
