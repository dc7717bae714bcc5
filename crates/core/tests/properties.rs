//! Properties that hold for every generated node, pool and class.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};
use winpool_analysis::explain::forecast::{Snapshot, forecast};
use winpool_core::{
    api::{Taint, WindowsPool},
    plan::{
        classes::runtime_class::ClassAction,
        nodes::node::Applied,
        patch::node_patch,
        pools::pool::{Policy, Pool},
    },
};

use crate::common::{self, UID, apply, assess, node, plan_classes, policy, read, seen, settle, snapshot};

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

fn pool_taint() -> impl Strategy<Value = Taint> {
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

fn identity(taint: &Value) -> (String, String) {
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
    fn any_node()(
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
    fn any_pool_object(name: &'static str)(
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
        let object: WindowsPool = common::pool_object(&json!({
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

fn any_pool(name: &'static str) -> impl Strategy<Value = Option<Pool>> {
    any_pool_object(name).prop_map(|object| object.map(|object| Pool::read(&object).unwrap()))
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (any_pool("a"), any_pool("b")).prop_filter_map("valid", |(a, b)| {
        let pools: Vec<_> = a.into_iter().chain(b).collect();
        (!pools.is_empty()).then(|| policy(pools))
    })
}

/// The node after the planned request.
fn after(before: &Value, policy: &Policy) -> Value {
    let seen = read(before);
    let plan = assess(&seen, policy).plan;
    if plan.is_empty() { before.clone() } else { apply(before, &node_patch(UID, &seen, &plan, policy)).unwrap() }
}

fn raw_taints(node: &Value) -> &[Value] {
    node["spec"]["taints"].as_array().map_or(&[], Vec::as_slice)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn planning_on_the_planned_state_gives_nothing(node in any_node(), policy in any_policy()) {
        let planned = after(&node, &policy);
        let again = assess(&read(&planned), &policy).plan;
        prop_assert!(again.is_empty(), "{again:#?}\n{planned:#}");
    }

    #[test]
    fn a_forecast_changes_a_node_as_the_patch_does(node in any_node(), policy in any_policy()) {
        let plan = assess(&read(&node), &policy).plan;
        prop_assert_eq!(winpool_analysis::view::after(&read(&node), &plan), read(&after(&node, &policy)));
    }

    #[test]
    fn nothing_is_left_to_do_after_a_forecast(
        a in any_pool_object("a"), b in any_pool_object("b"), nodes in vec(any_node(), 0..5),
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|index| format!("win-{index}")).collect();
        let snapshot = snapshot(a.into_iter().chain(b), names.iter().map(String::as_str).zip(nodes));
        let first = forecast(snapshot.clone());
        let classes = first.classes.values().cloned().collect();
        let again = forecast(Snapshot { nodes: first.nodes, classes, ..snapshot });
        prop_assert!(again.forecast.is_empty(), "{:#?}", again.forecast);
    }

    #[test]
    fn the_same_input_gives_the_same_plan(node in any_node(), policy in any_policy()) {
        prop_assert_eq!(assess(&read(&node), &policy), assess(&read(&node), &policy.clone()));
    }

    #[test]
    fn foreign_taints_keep_their_order_and_every_byte(
        node in any_node(), policy in any_policy(),
    ) {
        let seen = read(&node);
        let owner = assess(&seen, &policy).pool.and_then(|name| policy.pool(&name).cloned());
        let claimed = seen.applied.as_deref().and_then(Applied::parse).unwrap_or_default().taints;
        let mine = |taint: &Taint| claimed.contains(&taint.to_string()) && policy.may_remove(taint);
        let retired = |taint: &Taint| owner.as_ref().is_some_and(|pool| pool.spec.retired_taints.contains(taint));
        let pairs = raw_taints(&node).iter().zip(seen.taints.taints());
        let kept: Vec<_> = pairs.filter(|(_, taint)| !mine(taint) && !retired(taint)).map(|(raw, _)| raw).collect();

        let planned = after(&node, &policy);
        let survivors: Vec<_> = raw_taints(&planned).iter().filter(|raw| kept.contains(raw)).collect();
        prop_assert_eq!(survivors, kept);
    }

    #[test]
    fn a_taint_with_a_key_of_others_is_never_removed(node in any_node(), policy in any_policy()) {
        let foreign = |node: &Value| -> Vec<Value> {
            let list = read(node).taints;
            raw_taints(node).iter().zip(list.taints()).filter(|(_, t)| t.has_foreign_key()).map(|(raw, _)| raw.clone()).collect()
        };
        prop_assert_eq!(foreign(&after(&node, &policy)), foreign(&node));
    }

    #[test]
    fn no_key_and_effect_occurs_twice(node in any_node(), policy in any_policy()) {
        let planned = after(&node, &policy);
        let identities: BTreeSet<_> = raw_taints(&planned).iter().map(identity).collect();
        prop_assert_eq!(identities.len(), raw_taints(&planned).len(), "{:#}", planned);
    }

    #[test]
    fn a_selected_node_gets_every_wanted_taint_or_keeps_its_equivalent(
        node in any_node(), policy in any_policy(),
    ) {
        let planned = after(&node, &policy);
        let assessment = assess(&read(&planned), &policy);
        let Some(pool) = assessment.pool.as_deref().and_then(|name| policy.pool(name)) else { return Ok(()) };
        prop_assume!(!assessment.ignored);
        let list = read(&planned).taints;
        let exact = pool.spec.taints != winpool_core::plan::pools::pool::WantedTaints::Guard;
        for wanted in pool.spec.wanted_taints() {
            let there = list.taints().iter().any(|taint| taint.same_identity(&wanted));
            let guarded = !exact && assessment.tolerate.iter().any(|taint| taint.effect != "PreferNoSchedule");
            prop_assert!(there || guarded, "{wanted}: {planned:#}");
        }
        for taint in list.taints() {
            prop_assert!(!pool.spec.retired_taints.contains(taint), "{taint} is retired");
        }
    }

    #[test]
    fn a_nodes_classes_tolerate_every_taint_that_winpool_leaves_or_puts_on_it(
        node in any_node(), policy in any_policy(),
    ) {
        let planned = after(&node, &policy);
        for state in [&node, &planned] {
            let assessment = assess(&read(state), &policy);
            let Some(pool) = assessment.pool.as_deref().and_then(|name| policy.pool(name)) else { continue };
            for taint in read(state).taints.taints().iter().filter(|taint| policy.may_remove(taint)) {
                let tolerated = pool.spec.wanted_taints().contains(taint)
                    || pool.spec.retired_taints.contains(taint)
                    || assessment.tolerate.contains(taint);
                prop_assert!(tolerated, "{taint}");
            }
        }
    }

    #[test]
    fn classes_that_were_written_need_no_second_write(
        a in any_pool("a"), b in any_pool("b"),
        builds in vec(select(vec![14393_u32, 17763, 20348, 26100, 29000, 29001, 29002]), 0..5),
        tolerate in vec(pool_taint(), 0..4),
        drift in any::<u8>(),
    ) {
        let pools: Vec<_> = a.into_iter().chain(b).collect();
        prop_assume!(!pools.is_empty());
        let policy = policy(pools.clone());
        let tolerate: Vec<_> = tolerate.iter().map(ToString::to_string).collect();
        let seen = seen(&builds, &tolerate.iter().map(String::as_str).collect::<Vec<_>>());
        let mut classes = Vec::new();
        for pool in &pools {
            classes = settle(&classes, &plan_classes(pool, &policy, &seen, &classes));
        }
        for (index, class) in classes.iter_mut().enumerate() {
            if drift >> (index % 8) & 1 == 1 {
                std::sync::Arc::make_mut(class).scheduling = None;
            }
        }
        for pool in &pools {
            classes = settle(&classes, &plan_classes(pool, &policy, &seen, &classes));
        }
        for pool in &pools {
            let again = plan_classes(pool, &policy, &seen, &classes);
            for class in &again.classes {
                let quiet = matches!(class.action, ClassAction::Nothing(_) | ClassAction::Conflict(_));
                prop_assert!(quiet, "{class:#?}");
            }
            prop_assert_eq!(again, plan_classes(pool, &policy, &seen, &classes));
        }
    }
}

#[test]
fn enough_of_the_generated_pools_are_valid() {
    let mut runner = TestRunner::deterministic();
    let strategy = any_pool("a");
    let valid = (0..200).filter(|_| strategy.new_tree(&mut runner).unwrap().current().is_some()).count();
    assert!(valid > 60, "{valid} of 200");
}
