//! Uninstalling winpool: changes of nodes, and classes that are deleted or stay.

use crate::common::{class, converge, marked, now, pool_object, table_of, tainted, taints_of};
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::api::names;
use winpool_core::plan::classes::runtime_class::{ClassRetirement, retire_class};
use winpool_core::plan::pools::pool::{GuardedPool, policy_of};
use winpool_core::pod::{Pod, PodProgress, PodSpec};

const GUARD: &str = "os=windows:NoSchedule";
const LABEL: &str = "runs.winpool.dev/10.0.20348";

fn uninstalled(node: &Value, pools: &[&str]) -> Value {
    after_uninstall(node, &pools.iter().map(|changes| pool_object(changes).into()).collect::<Vec<_>>())
}

/// The node after winpool was uninstalled: the loop treats the pools as deleted.
fn after_uninstall(node: &Value, pools: &[GuardedPool]) -> Value {
    converge(node, &policy_of(&pools.iter().map(GuardedPool::deleted).collect::<Vec<_>>()))
}

/// A node with everything that winpool can add.
fn full_of_marks() -> Value {
    let mut node = marked(tainted(&["dedicated=batch:NoExecute", GUARD]), "default", &[GUARD]);
    node["metadata"]["labels"][LABEL] = "true".into();
    node
}

/// The same after the removal: a capability label is a fact about the node, and stays.
fn without_marks(taints: &[&str]) -> Value {
    let mut node = tainted(taints);
    node["metadata"]["labels"][LABEL] = "true".into();
    node
}

#[test]
fn a_deletion_policy_and_a_dry_run_count_and_a_selector_does_not() {
    for (pool, goes) in [
        ("{}", true),
        ("{metadata: {deletionTimestamp: '2026-02-01T00:00:00Z'}}", true),
        ("{spec: {deletionPolicy: Retain}}", false),
        ("{spec: {mode: DryRun}}", false),
        ("{spec: {nodeSelector: {team: nobody}}}", true),
        // Not valid by today's rules: everything that can be read is removed.
        ("{spec: {retiredTaints: [{key: a, effect: NoExecute}]}}", true),
    ] {
        let expected = if goes { without_marks(&["dedicated=batch:NoExecute"]) } else { full_of_marks() };
        assert_eq!(uninstalled(&full_of_marks(), &[pool]), expected, "{pool}");
    }
}

#[test]
fn a_node_that_came_back_as_linux_loses_its_windows_build_too() {
    let as_linux = |mut node: Value| {
        node["metadata"]["labels"][names::OS] = "linux".into();
        node["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
        node
    };
    let reimaged = as_linux(full_of_marks());
    let mut expected = as_linux(tainted(&["dedicated=batch:NoExecute"]));
    expected["metadata"]["labels"].as_object_mut().unwrap().remove(names::WINDOWS_BUILD);
    assert_eq!(uninstalled(&reimaged, &["{}"]), expected);

    // The node's label contradicts its report. winpool's labels and annotations are removed nevertheless.
    let mut contradicting = full_of_marks();
    contradicting["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
    assert_eq!(uninstalled(&contradicting, &["{}"])["metadata"], without_marks(&[])["metadata"]);
}

#[test]
fn a_pool_that_cannot_be_decoded_is_evidence_for_the_taints_of_its_status_only() {
    let unreadable = |status: Value| {
        let metadata = json!({"name": "default", "finalizers": [names::CLEANUP]});
        GuardedPool::deserialize(json!({"metadata": metadata, "spec": {"mode": "Other"}, "status": status})).unwrap()
    };
    let recorded = unreadable(json!({"taints": [{"taint": GUARD}]}));
    for (pool, taints) in [
        (unreadable(Value::Null), &["dedicated=batch:NoExecute", GUARD][..]),
        (recorded.clone(), &["dedicated=batch:NoExecute"]),
    ] {
        assert_eq!(taints_of(&after_uninstall(&full_of_marks(), &[pool])), taints);
    }
    // A pool with the finalizer was to clean up.
    assert!(recorded.read().is_err());
    let deleted = recorded.deleted().read().unwrap();
    assert!(deleted.spec.needs_cleanup() && deleted.spec.tolerated_taints.is_empty());
}

#[test]
fn only_a_class_that_winpool_made_and_no_pod_uses_is_deleted() {
    let made = class(
        "{metadata: {name: c, labels: {app.kubernetes.io/managed-by: winpool, winpool.dev/pool: default, a: b}}, handler: h}",
    );
    let adopted = class(
        "{metadata: {name: c, labels: {app.kubernetes.io/managed-by: me, winpool.dev/pool: default}}, handler: h}",
    );
    let pod = |class: &str, progress| Pod {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        spec: PodSpec { runtime_class: Some(class.to_owned()), ..PodSpec::default() },
        progress,
        ..Pod::default()
    };
    let users = |pods: &[Pod]| table_of(pods, now()).users("c");
    let used = users(&[pod("c", PodProgress::Started)]);
    let unused = users(&[pod("c", PodProgress::Finished), pod("d", PodProgress::Started)]);
    assert_eq!(retire_class(&made, Ok(&unused)), ClassRetirement::Delete);
    let released = |class, pods| match retire_class(class, pods) {
        ClassRetirement::Release { changes, why } => {
            (changes.iter().map(|change| change.path.join(" ")).collect::<Vec<_>>(), why)
        }
        ClassRetirement::Delete => panic!("deleted"),
    };
    let (pool, manager) = ("metadata labels winpool.dev/pool", "metadata labels app.kubernetes.io/managed-by");
    let (changes, why) = released(&made, Ok(&used));
    assert_eq!(changes, [pool, manager]);
    assert_eq!(why, "used by 1 pod, such as shop/web");
    let (changes, why) = released(&made, Err("pods is forbidden"));
    assert_eq!(changes, [pool, manager]);
    assert_eq!(why, "pods cannot be listed: pods is forbidden");
    let (changes, why) = released(&adopted, Ok(&unused));
    assert_eq!(changes, [pool], "who manages it is not winpool's to say");
    assert_eq!(why, "winpool did not create it");
}
