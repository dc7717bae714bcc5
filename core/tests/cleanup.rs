//! Removing winpool from a cluster: changes of nodes, and classes that are deleted or stay.

use crate::common::{self, UID, apply, class, marked, node, now, pool_object, read, recorded, tainted, taints_of};
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::{
    api::names,
    plan::{
        classes::runtime_class::{ClassRetirement, KeptTaints, retire_class},
        nodes::capability_labels::LabelUsers,
        patch::node_patch,
        pods::PodTable,
        pools::{
            cleanup::{Cleanup, NodeRelease},
            pool::{GuardedPool, policy_of},
        },
    },
    pod::{Pod, PodProgress, PodSpec},
};

const GUARD: &str = "os=windows:NoSchedule";
const LABEL: &str = "runs.winpool.dev/10.0.20348";

fn guarded(pools: &[&str]) -> Vec<GuardedPool> {
    pools.iter().map(|changes| pool_object(changes).into()).collect()
}

fn everything(pools: &[&str]) -> Cleanup {
    Cleanup::new(&guarded(pools))
}

/// The node after winpool was uninstalled: the loop treats the pools as deleted.
fn uninstalled(node: &Value, pools: &[&str]) -> Value {
    let policy = policy_of(&guarded(pools).iter().map(GuardedPool::deleted).collect::<Vec<_>>());
    let seen = read(node);
    let plan = common::assess(&seen, &policy).plan;
    if plan.is_empty() { node.clone() } else { apply(node, &node_patch(UID, &seen, &plan, &policy)).unwrap() }
}

/// The node after it was cleaned, and the decision. A second cleanup must find nothing.
fn clean(node: &Value, cleanup: &Cleanup) -> (Value, NodeRelease) {
    let seen = read(node);
    let parting = cleanup.node(&seen, &LabelUsers::default());
    if parting.plan.is_empty() {
        return (node.clone(), parting);
    }
    let after = apply(node, &node_patch(UID, &seen, &parting.plan, cleanup.policy())).unwrap();
    assert!(
        cleanup.node(&read(&after), &LabelUsers::default()).plan.is_empty(),
        "not clean after one request: {after:#}"
    );
    (after, parting)
}

/// A node with everything that winpool can add.
fn full_of_marks() -> Value {
    let mut node = marked(tainted(&["dedicated=batch:NoExecute", GUARD]), "default", &[GUARD]);
    node["metadata"]["labels"][LABEL] = "true".into();
    node
}

#[test]
fn deletion_policies_count_only_when_winpool_is_uninstalled() {
    let cases = [
        ("{}", true),
        ("{metadata: {deletionTimestamp: '2026-02-01T00:00:00Z'}}", true),
        ("{spec: {deletionPolicy: Retain}}", false),
        ("{spec: {mode: DryRun}}", false),
        ("{spec: {nodeSelector: {team: nobody}}}", true),
        // Not valid by today's rules: everything that can be read is removed.
        ("{spec: {retiredTaints: [{key: a, effect: NoExecute}]}}", true),
    ];
    for (pool, goes) in cases {
        let mut expected = tainted(&["dedicated=batch:NoExecute"]);
        let (after, parting) = clean(&full_of_marks(), &everything(&[pool]));
        assert_eq!(after, expected, "{pool}");
        assert_eq!((parting.ignored, parting.doubtful), (false, Vec::new()), "{pool}");
        expected["metadata"]["labels"][LABEL] = "true".into();
        let expected = if goes { expected } else { full_of_marks() };
        assert_eq!(uninstalled(&full_of_marks(), &[pool]), expected, "{pool}");
    }
}

#[test]
fn labels_of_a_deleted_pool_are_removed_and_unlisted_taints_stay() {
    let guard = vec![GUARD.parse().unwrap()];
    let other = "{metadata: {name: other}, spec: {taints: [{key: windows, value: 'true', effect: NoSchedule}]}";
    let cases = [
        (vec![], &[GUARD][..], guard.clone()),
        (vec![format!("{other}}}")], &[GUARD], guard),
        (vec![format!("{other}, status: {{taints: [{{taint: '{GUARD}'}}]}}}}")], &[], vec![]),
        (vec!["{metadata: {name: other}}".to_owned()], &[], vec![]),
    ];
    for (pools, taints, doubtful) in cases {
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        let orphan = marked(tainted(&[GUARD]), "gone", &[GUARD]);
        let (after, parting) = clean(&orphan, &everything(&pools));
        assert_eq!(after, tainted(taints), "{pools:?}");
        assert_eq!(parting.doubtful, doubtful, "{pools:?}");
        assert_eq!(uninstalled(&orphan, &pools), orphan, "a missing pool does not prove that winpool added the taint");
    }
}

#[test]
fn a_taint_that_the_annotation_does_not_name_is_never_removed() {
    for taints in [&[][..], &["x=y:NoSchedule"]] {
        let (after, parting) = clean(&marked(tainted(&[GUARD]), "default", taints), &everything(&["{}"]));
        assert_eq!(after, tainted(&[GUARD]), "{taints:?}");
        assert_eq!(parting.doubtful, [], "it is not on the node, or not claimed: {taints:?}");
    }
}

#[test]
fn forged_annotations_remove_no_foreign_taint() {
    let foreign = [
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        "ToBeDeletedByClusterAutoscaler=1730000000:NoSchedule",
        "karpenter.sh/disrupted:NoSchedule",
    ];
    let claimed = format!("{{status: {{taints: {}}}}}", recorded(&foreign));
    let all = [&foreign[..], &["precious=x:NoSchedule"]].concat();
    let (after, parting) = clean(&marked(tainted(&all), "default", &all), &everything(&[&claimed]));
    assert_eq!(taints_of(&after), all);
    // The report never asks the administrator to remove a taint of Kubernetes or an autoscaler.
    assert_eq!(parting.doubtful, ["precious=x:NoSchedule".parse().unwrap()]);
}

#[test]
fn each_single_mark_is_found() {
    let annotated = |value: &str| node(&json!({"metadata": {"annotations": {names::APPLIED: value}}}).to_string());
    let labelled = |key: &str| node(&json!({"metadata": {"labels": {key: "true"}}}).to_string());
    let marks =
        [annotated(r#"{"pool":"default","taints":[]}"#), annotated("nonsense"), labelled(names::POOL), labelled(LABEL)];
    for marked in marks {
        assert_eq!(clean(&marked, &everything(&["{}"])).0, node("{}"), "{marked:#}");
    }
}

#[test]
fn a_node_without_marks_is_left_alone() {
    for changes in ["{}", "{metadata: {labels: {kubernetes.io/os: linux}}}"] {
        let node = node(changes);
        let release = everything(&["{}"]).node(&read(&node), &LabelUsers::default());
        assert_eq!(release, NodeRelease::default(), "{changes}");
        assert_eq!(uninstalled(&node, &["{}"]), node, "{changes}");
    }
}

#[test]
fn an_ignored_node_keeps_its_marks_and_is_named_if_it_has_any() {
    let ignored = json!({"metadata": {"annotations": {names::IGNORE: "true"}}});
    for (mut node, has_marks) in [(full_of_marks(), true), (node("{}"), false)] {
        json_patch::merge(&mut node, &ignored);
        let parting = everything(&["{}"]).node(&read(&node), &LabelUsers::default());
        assert!(parting.plan.is_empty());
        assert_eq!(parting.ignored, has_marks);
        assert_eq!(uninstalled(&node, &["{}"]), node);
    }
}

#[test]
fn a_node_that_came_back_as_linux_loses_its_windows_build_too() {
    let both = |node: &Value| [clean(node, &everything(&["{}"])).0, uninstalled(node, &["{}"])];
    let as_linux = |mut node: Value| {
        node["metadata"]["labels"][names::OS] = "linux".into();
        node["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
        node
    };
    let reimaged = as_linux(full_of_marks());
    let mut expected = as_linux(tainted(&["dedicated=batch:NoExecute"]));
    expected["metadata"]["labels"].as_object_mut().unwrap().remove(names::WINDOWS_BUILD);
    assert_eq!(both(&reimaged), [expected.clone(), expected]);

    // The node's label contradicts its report. winpool's labels and annotations are removed nevertheless.
    let mut contradicting = full_of_marks();
    contradicting["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
    let clean = tainted(&[])["metadata"].clone();
    let mut with_fact = clean.clone();
    with_fact["labels"][LABEL] = "true".into();
    assert_eq!(both(&contradicting).map(|node| node["metadata"].clone()), [clean, with_fact]);
}

#[test]
fn a_pool_that_cannot_be_decoded_is_evidence_for_the_taints_of_its_status_only() {
    let unreadable = |status: Value| {
        let metadata = json!({"name": "default", "finalizers": [names::CLEANUP]});
        GuardedPool::deserialize(json!({"metadata": metadata, "spec": [], "status": status})).unwrap()
    };
    let (after, parting) = clean(&full_of_marks(), &Cleanup::new(&[unreadable(Value::Null)]));
    assert_eq!(taints_of(&after), ["dedicated=batch:NoExecute", GUARD]);
    assert_eq!(parting.doubtful, [GUARD.parse().unwrap()]);
    let recorded = unreadable(json!({"taints": [{"taint": GUARD}]}));
    let (after, _) = clean(&full_of_marks(), &Cleanup::new(std::slice::from_ref(&recorded)));
    assert_eq!(taints_of(&after), ["dedicated=batch:NoExecute"]);
    // A pool with the finalizer was to clean up.
    assert!(recorded.read().is_err());
    let deleted = recorded.deleted().read().unwrap();
    assert!(deleted.spec.needs_cleanup() && deleted.spec.wanted_taints().is_empty());
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
    let users = |pods: &[Pod]| PodTable::of(pods, now()).users("c");
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

#[test]
fn a_class_is_needed_while_a_node_keeps_a_taint_in_any_spelling() {
    for (taint, is_kept) in [
        ("{key: os, value: windows, effect: NoSchedule}", true),
        ("{key: os, value: Windows, effect: NoSchedule}", true),
        ("{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}", true),
        ("{key: os, value: mine, effect: NoSchedule}", true),
        ("{key: gpu, effect: NoSchedule}", false),
        ("{key: node.kubernetes.io/not-ready, effect: NoSchedule}", false),
    ] {
        let node = read(&node(&format!("spec: {{taints: [{taint}]}}")));
        let kept = everything(&["{}"]).kept_taints(&node);
        assert_eq!(kept.is_some(), is_kept, "{taint}");
    }
}

#[test]
fn a_class_stays_while_a_node_that_it_selects_keeps_a_taint_that_it_tolerates() {
    let kept = |build: &str| -> KeptTaints {
        let node = node(&format!("metadata: {{labels: {{node.kubernetes.io/windows-build: {build}}}}}"));
        (read(&node).labels, vec![GUARD.parse().unwrap()])
    };
    for (tolerations, kept, stays) in [
        ("", vec![], false),
        ("tolerations: [{key: os, operator: Exists}], ", vec![], false),
        ("", vec![kept("10.0.20348")], false),
        ("tolerations: [{key: os, operator: Exists}], ", vec![kept("10.0.20348")], true),
        ("tolerations: [{key: os, operator: Exists}], ", vec![kept("10.0.17763")], false),
    ] {
        let class = class(&format!(
            "{{metadata: {{name: mine, labels: {{app.kubernetes.io/managed-by: winpool, \
               winpool.dev/pool: default}}}}, handler: h, \
               scheduling: {{{tolerations}nodeSelector: {{node.kubernetes.io/windows-build: 10.0.20348}}}}}}"
        ));
        let end = Cleanup::class(&class, Ok(&PodTable::default().users("mine")), &kept);
        let why = "nodes keep a taint that it tolerates";
        let is_released = matches!(&end, ClassRetirement::Release { why: because, .. } if because == why);
        assert!(is_released == stays && (stays || end == ClassRetirement::Delete), "{tolerations} {kept:?}: {end:?}");
    }
}
