//! The taints that a pool's status records as evidence that they are winpool's.

use crate::common::{apply, pool, recorded_in, with_consent};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use winpool_core::api::{Taint, TaintStatus, WindowsPoolStatus};
use winpool_core::plan::patch::status_patch;
use winpool_core::plan::pools::pool::Pool;
use winpool_core::plan::reconcile::conditions::{Observation, ever_applied, status};

fn report(pool: &Pool, observation: &Observation) -> WindowsPoolStatus {
    status(pool, observation, None, Timestamp::UNIX_EPOCH)
}

#[test]
fn every_added_taint_is_recorded_and_none_of_a_dry_run() {
    let list = |taints: &[Taint]| taints.iter().map(ToString::to_string).collect::<Vec<_>>();
    let changed = |mode: &str| {
        pool(&format!(
            "{{spec: {{mode: {mode}, taintPolicy: TaintOnly, taints: [{{key: new, effect: NoSchedule}}]}}, \
              status: {{taints: [{{taint: 'os=windows:NoSchedule'}}, {{taint: 'new:NoSchedule'}}, {{taint: 'not a taint'}}]}}}}"
        ))
    };
    let lingering = [Taint::new("old", "x", "NoSchedule")];
    let all = ["new:NoSchedule", "old=x:NoSchedule", "os=windows:NoSchedule"];
    assert_eq!(list(&ever_applied(&changed("Enforce"), &lingering)), all);
    assert_eq!(list(&ever_applied(&changed("DryRun"), &[])), ["new:NoSchedule", "os=windows:NoSchedule"]);
    assert_eq!(list(&ever_applied(&pool("spec: {mode: DryRun}"), &[])), Vec::<String>::new());
    assert_eq!(list(&ever_applied(&pool("{}"), &[])), Vec::<String>::new(), "the pods are unknown");
    assert_eq!(list(&ever_applied(&pool("spec: {taintPolicy: TaintOnly}"), &[])), ["os=windows:NoSchedule"]);
    let knows_pods = with_consent(pool("{}"), |consent| consent.may_add = true);
    assert_eq!(list(&ever_applied(&knows_pods, &[])), ["os=windows:NoSchedule"]);
}

#[test]
fn a_taint_has_its_time_since_the_first_node_has_it() {
    let brought = Pool { managed_taints: vec![Taint::os_windows()], ..pool("{}") };
    let seen = |nodes| Observation {
        taints: [(Taint::os_windows(), TaintStatus { nodes, ..TaintStatus::default() })].into(),
        ..Observation::default()
    };
    let mut previous = report(&brought, &Observation::default());
    assert_eq!(recorded_in(&previous), ["os=windows:NoSchedule"]);
    let (early, late) = (Timestamp::from_second(100).unwrap(), Timestamp::from_second(200).unwrap());
    for (nodes, now, since) in
        [(0, early, None), (1, early, Some(early)), (2, late, Some(early)), (0, late, Some(early))]
    {
        previous = status(&brought, &seen(nodes), Some(&previous), now);
        assert_eq!(previous.taints[0].since.as_ref().map(|since| since.0), since, "{nodes}");
    }
}

#[test]
fn a_status_is_replaced_as_a_whole_and_only_on_the_pool_it_was_made_for() {
    let new = report(&pool("{}"), &Observation::default());
    let pool = json!({"metadata": {"uid": "pool-uid"}, "status": {"problems": [], "nodes": {"selected": 9}}});
    let after = apply(&pool, &status_patch("pool-uid", Some(&pool["status"]), &new)).unwrap();
    assert_eq!(after["status"], json!(new));
    let bare = json!({"metadata": {"uid": "pool-uid"}});
    assert!(apply(&bare, &status_patch("pool-uid", None, &new)).is_ok());
    assert!(apply(&pool, &status_patch("another", Some(&pool["status"]), &new)).is_err());
}

#[test]
fn a_status_that_records_other_taints_meanwhile_is_not_replaced() {
    let new = report(&pool("{}"), &Observation::default());
    let recording = |taints: Value| json!({"metadata": {"uid": "pool-uid"}, "status": {"taints": taints}});
    let (one, two) = (recording(json!([{"taint": "a:NoSchedule"}])), recording(json!([{"taint": "b:NoSchedule"}])));
    let bare = json!({"metadata": {"uid": "pool-uid"}});
    let empty = json!({"metadata": {"uid": "pool-uid"}, "status": {"nodes": {}}});
    let all = [&bare, &empty, &one, &two];
    for (i, seen) in all.iter().enumerate() {
        for (j, found) in all.iter().enumerate() {
            let accepted = apply(found, &status_patch("pool-uid", seen.get("status"), &new)).is_ok();
            assert_eq!(accepted, i == j, "computed from {seen}, found {found}");
        }
    }
}
