//! Properties that hold for every generated node, pool and class.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use winpool_core::api::Taint;
use winpool_core::node::Applied;
use winpool_core::plan::classes::runtime_class::ClassAction;
use winpool_core::plan::pools::pool::Policy;
use winpool_core::plan::taints::Consent;

use crate::common::any::{any_node, any_policy, any_pool, identity, pool_taint};
use crate::common::{self, assess, plan_classes, planned, policy, read, seen, settle};

/// The node after the planned request.
fn after(before: &Value, policy: &Policy) -> Value {
    planned(before, policy, Consent::Given)
}

fn raw_taints(node: &Value) -> &[Value] {
    node["spec"]["taints"].as_array().map_or(&[], Vec::as_slice)
}

/// Changes of a class by other writers.
fn drift() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({"handler": "runsc"}),
        json!({"overhead": {"podFixed": {"memory": "1Gi"}}}),
        json!({"scheduling": null}),
        json!({"scheduling": {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.1"}}}),
        json!({"scheduling": {"nodeSelector": null}}),
        json!({"scheduling": {"tolerations": [{"key": "os", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}]}}),
        json!({"metadata": {"labels": {"winpool.dev/pool": "gone"}}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"labels": null, "annotations": {"meta.helm.sh/release-name": "r"}}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}]}}),
    ])
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
    fn a_taint_is_read_back_as_written(text in "[a-zA-Z./]{0,8}=?[a-z=:]{0,8}:[a-zA-Z:]{0,8}") {
        if let Ok(taint) = text.parse::<Taint>() {
            prop_assert_eq!(taint.to_string().parse(), Ok(taint));
        }
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
        let exact = pool.spec.wants != Some(winpool_core::plan::pools::pool::WantedTaints::Guard);
        for wanted in pool.spec.wanted_taints() {
            let there = list.taints().iter().any(|taint| taint.same_identity(&wanted));
            let guarded = !exact && assessment.tolerate.iter().any(|taint| taint.effect.keeps_off());
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
                let tolerated = pool.spec.tolerated_taints.contains(taint)
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
        drift in vec(drift(), 8),
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
        for (class, change) in classes.iter_mut().zip(drift.iter().cycle()) {
            let mut drifted = json!(**class);
            json_patch::merge(&mut drifted, change);
            *class = common::class(&drifted.to_string());
        }
        for pool in &pools {
            classes = settle(&classes, &plan_classes(pool, &policy, &seen, &classes));
        }
        for pool in &pools {
            let again = plan_classes(pool, &policy, &seen, &classes);
            for class in &again.classes {
                let quiet = !matches!(class.action, ClassAction::Create(_) | ClassAction::Change { .. });
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
