//! No JSON value makes a check panic, and every message stays short.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use winpool_analysis::explain::blockers::blockers;
use winpool_analysis::lint::{Facts, check};
use winpool_analysis::workload::WorkloadManifest;
use winpool_core::windows::Build;

use super::cluster;

/// Names that the rules read, so that generated objects reach them.
fn name() -> impl Strategy<Value = String> {
    let known = vec![
        "spec",
        "containers",
        "initContainers",
        "volumes",
        "volumeMounts",
        "securityContext",
        "windowsOptions",
        "hostProcess",
        "nodeSelector",
        "kubernetes.io/os",
        "node.kubernetes.io/windows-build",
        "tolerations",
        "key",
        "operator",
        "value",
        "values",
        "effect",
        "affinity",
        "nodeAffinity",
        "image",
        "os",
        "name",
        "resources",
        "limits",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "runtimeClassName",
        "secret",
        "items",
        "mode",
        "defaultMode",
        "emptyDir",
        "medium",
        "metadata",
        "ownerReferences",
        "template",
    ];
    prop_oneof![9 => select(known).prop_map(str::to_owned), 1 => any::<String>()]
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = select(vec!["windows", "linux", "In", "Exists", "10.0.20348", "a:ltsc2019", "windows-2022", ""]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((name(), inner), 0..5).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_panics_and_findings_stay_short(
        pod in any_json(), kind in select(vec!["Pod", "DaemonSet", "Deployment"]), os in option::of(select(vec!["windows", "linux"])),
    ) {
        let mut pod = pod;
        if let (Some(pod), Some(os)) = (pod.as_object_mut(), os) {
            pod.insert("os".to_owned(), json!({"name": os}));
        }
        let object = match kind {
            "Pod" => json!({"apiVersion": "v1", "kind": kind, "spec": pod}),
            _ => json!({"apiVersion": "apps/v1", "kind": kind, "spec": {"template": {"spec": pod}}}),
        };
        if let Ok(Some(workload)) = WorkloadManifest::read(&object) {
            let known = cluster(&[("10.0.17763", &["os=windows:NoSchedule"]), ("10.0.20348", &[])], &[json!({})], &[]);
            for facts in [Facts::none(), known] {
                for finding in check(&workload, &facts) {
                    prop_assert!(finding.field.starts_with("spec."));
                    prop_assert!(finding.message.chars().count() < 1000 && finding.remedy.text.chars().count() < 1000);
                }
                let _ = blockers(&workload, &facts, Build::new(17763), Some(Build::new(26100)));
            }
        }
    }

    #[test]
    fn no_json_panics_as_a_whole_object(object in any_json()) {
        let _ = WorkloadManifest::read(&object).map(|workload| workload.map(|workload| check(&workload, &Facts::none())));
    }
}
