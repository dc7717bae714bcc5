//! Generated nodes and pools.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use winpool_core::api::{Taint, WindowsPool};
use winpool_core::node::Applied;
use winpool_core::plan::pools::pool::{Policy, Pool};

use super::{node, policy, pool_object};

/// Keys that collide often enough: Windows spellings, those of a pool, those of others.
fn key() -> impl Strategy<Value = &'static str> {
    select(vec!["os", "node.kubernetes.io/os", "windows", "example.com/own", "dedicated"])
}

fn foreign_key() -> impl Strategy<Value = &'static str> {
    select(vec![
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/out-of-service",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "node.cloudprovider.kubernetes.io/uninitialized",
    ])
}

fn value() -> impl Strategy<Value = &'static str> {
    select(vec!["", "windows", "Windows", "Win1809", "true"])
}

pub fn pool_taint() -> impl Strategy<Value = Taint> {
    (key(), value(), select(vec!["NoSchedule", "PreferNoSchedule"])).prop_map(|(k, v, e)| Taint::new(k, v, e))
}

/// A taint as a node carries it, with fields that winpool does not know.
fn node_taint() -> impl Strategy<Value = Value> {
    let key = prop_oneof![4 => key(), 1 => foreign_key()];
    let effect = select(vec!["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    let extra = select(vec![
        json!({}),
        json!({"timeAdded": "2026-01-01T00:00:00Z"}),
        json!({"value": ""}),
        json!({"unknown": [1, {"a": null}]}),
    ]);
    (key, value(), effect, extra).prop_map(|(key, value, effect, mut extra)| {
        json_patch::merge(&mut extra, &json!(Taint::new(key, value, effect)));
        extra
    })
}

pub fn identity(taint: &Value) -> (String, String) {
    let text = |key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    (text("key"), text("effect"))
}

/// Taint lists as the API server accepts them: unique by key and effect.
fn taint_list() -> impl Strategy<Value = Vec<Value>> {
    vec(node_taint(), 0..6).prop_map(|mut taints| {
        let mut seen = BTreeSet::new();
        taints.retain(|taint| seen.insert(identity(taint)));
        taints
    })
}

prop_compose! {
    /// A node with any label and annotation of winpool's, including forged ones.
    pub fn any_node()(
        taints in prop::option::of(taint_list()),
        kernel in select(vec!["10.0.17763.1", "10.0.20348.825", "10.0.29000.1", "nonsense", ""]),
        label in prop::option::of(select(vec!["10.0.17763", "10.0.20348", "wrong"])),
        mark in prop::option::of(select(vec!["a", "b", "gone"])),
        claimed in prop::option::of((select(vec!["a", "b", "gone"]), vec((prop_oneof![key(), foreign_key()], value()), 0..4))),
        team in prop::option::of(select(vec!["a", "b"])),
        ignore in prop::option::weighted(0.1, select(vec!["true", "false"])),
        annotations in prop::bool::weighted(0.9),
    ) -> Value {
        let claimed = claimed.map(|(pool, taints)| {
            let taints = taints.iter().map(|(k, v)| Taint::new(k, v, "NoSchedule").to_string()).collect();
            Applied { pool: pool.to_owned(), taints }.to_annotation()
        });
        let mut node = node(&json!({
            "metadata": {
                "labels": {"node.kubernetes.io/windows-build": label, "winpool.dev/pool": mark, "team": team},
                "annotations": {"winpool.dev/applied": claimed, "winpool.dev/ignore": ignore},
            },
            "spec": {"taints": taints},
            "status": {"nodeInfo": {"kernelVersion": kernel}},
        }).to_string());
        if !annotations {
            node["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        node
    }
}

prop_compose! {
    /// A pool of this name that winpool reads, as it is stored.
    pub fn any_pool_object(name: &'static str)(
        taints in prop::option::of(vec(pool_taint(), 1..4)),
        retired in vec(pool_taint(), 0..3),
        ever in vec(prop_oneof![4 => pool_taint(), 1 => (foreign_key(), value()).prop_map(|(k, v)| Taint::new(k, v, "NoSchedule"))], 0..4),
        team in prop::option::of(select(vec!["a", "b"])),
        mode in select(vec!["Enforce", "Enforce", "Enforce", "DryRun"]),
        day in 1..4,
        format in select(vec!["windows-{version}", "{pool}.{version}"]),
        declared in vec((select(vec!["windows-2019", "own"]), select(vec!["2019", "2022"]), pool_taint()), 0..2),
    ) -> Option<WindowsPool> {
        let class = |(name, version, taint): &(&str, &str, Taint)| json!({
            "name": name, "version": version,
            "tolerations": [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}],
        });
        let selector = team.map_or_else(|| json!({}), |team| json!({"team": team}));
        let object: WindowsPool = pool_object(&json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-0{day}T00:00:00Z")},
            "spec": {
                "taints": taints, "retiredTaints": retired, "nodeSelector": selector, "mode": mode,
                "runtimeClassNameFormat": format, "runtimeClasses": declared.iter().map(class).collect::<Vec<_>>(),
            },
            "status": {"taints": ever.iter().map(|taint| json!({"taint": taint.to_string()})).collect::<Vec<_>>()},
        }).to_string());
        Pool::read(&object).is_ok().then_some(object)
    }
}

pub fn any_pool(name: &'static str) -> impl Strategy<Value = Option<Pool>> {
    any_pool_object(name).prop_map(|object| object.map(|object| Pool::read(&object).unwrap()))
}

pub fn any_policy() -> impl Strategy<Value = Policy> {
    (any_pool("a"), any_pool("b")).prop_filter_map("valid", |(a, b)| {
        let pools: Vec<_> = a.into_iter().chain(b).collect();
        (!pools.is_empty()).then(|| policy(pools))
    })
}
