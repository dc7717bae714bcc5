//! The taints that a pool's status records as evidence that they are winpool's.

use crate::common::{apply, pool, with_consent};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use winpool_core::{
    api::{Taint, WindowsPoolStatus},
    plan::{Observation, Pool, ever_applied, status, status_patch},
};

const APPROVED: &str = "status: {approvedTaints: [{taint: 'os=windows:NoSchedule', since: '2026-02-01T00:00:00Z'}]}";

fn report(pool: &Pool, observation: &Observation) -> WindowsPoolStatus {
    status(pool, observation, None, Timestamp::UNIX_EPOCH)
}

#[test]
fn every_added_taint_is_recorded_and_none_of_a_dry_run() {
    let list = |taints: &[Taint]| taints.iter().map(ToString::to_string).collect::<Vec<_>>();
    let changed = |mode: &str| {
        pool(&format!(
            "{{spec: {{mode: {mode}, taintPolicy: TaintOnly, taints: [{{key: new, effect: NoSchedule}}]}}, \
              status: {{managedTaints: ['os=windows:NoSchedule', 'new:NoSchedule', 'not a taint']}}}}"
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
fn a_taint_that_a_node_brought_is_remembered_and_not_approved_by_that() {
    let brought = Pool { managed_taints: vec![Taint::os_windows()], ..pool("{}") };
    let status = report(&brought, &Observation::default());
    assert_eq!((status.managed_taints, status.approved_taints), (vec!["os=windows:NoSchedule".to_owned()], vec![]));

    for (status, approves) in [("status: {managedTaints: ['os=windows:NoSchedule']}", false), (APPROVED, true)] {
        assert_eq!(pool(status).consent.approves(&Taint::os_windows()), approves, "{status}");
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
    let recording = |taints: Value| json!({"metadata": {"uid": "pool-uid"}, "status": {"managedTaints": taints}});
    let (one, two) = (recording(json!(["a:NoSchedule"])), recording(json!(["a:NoSchedule", "b:NoSchedule"])));
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
