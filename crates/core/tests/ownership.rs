//! The owner of a node, and the taints that winpool may remove from it, with the evidence for that.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{
    applied, assess, converge, label, marked, node, policy, pool, pool_object, read, recorded, tainted, taints_of,
};
use serde_json::{Value, json};
use winpool_core::api::names;
use winpool_core::plan::pools::pool::{GuardedPool, Policy, Pool, PoolEntry, policy_of};

const DEFAULT: &str = "os=windows:NoSchedule";
const MINE: &str = "example.com/os=win:NoSchedule";
/// A pool that selects no node here.
const ELSEWHERE: &str = "spec: {nodeSelector: {team: nobody}}";

/// The policies under which the pool `default` gives up its nodes: it selects others, or it is deleted, also by uninstalling.
fn giving_up(status: &str) -> [Policy; 2] {
    let deleted: GuardedPool = pool_object(&format!("status: {status}")).into();
    [policy([pool(&format!("{{{ELSEWHERE}, status: {status}}}"))]), policy_of(&[deleted.deleted()])]
}

fn entry(ready: bool, pool: Pool) -> PoolEntry {
    PoolEntry { pool: Arc::new(pool), ready }
}

#[test]
fn the_oldest_pool_wins_and_the_name_breaks_ties() {
    let named =
        |name: &str, created: &str| pool(&format!("metadata: {{name: {name}, creationTimestamp: '{created}'}}"));
    let (may, june) = ("2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z");
    let cases = [
        ([("b", may), ("a", june)], "b"),
        ([("a", june), ("b", may)], "b"),
        ([("b", may), ("a", may)], "a"),
        ([("a", may), ("b", may)], "a"),
    ];
    for (pools, owner) in cases {
        let policy = policy(pools.map(|(name, created)| named(name, created)));
        assert_eq!(assess(&read(&node("{}")), &policy).pool.as_deref(), Some(owner), "{pools:?}");
    }
}

#[test]
fn an_older_pool_without_a_claim_leaves_the_node_to_a_younger_one() {
    let younger = pool("metadata: {name: younger, creationTimestamp: '2026-06-01T00:00:00Z'}");
    for spec in [ELSEWHERE, "spec: {mode: DryRun}"] {
        let policy = policy([pool(spec), younger.clone()]);
        assert_eq!(assess(&read(&node("{}")), &policy).pool.as_deref(), Some("younger"));
    }
}

#[test]
fn a_narrowed_selector_removes_winpools_labels_and_keeps_the_build() {
    let foreign = "dedicated=batch:NoSchedule";
    let released = converge(&marked(tainted(&[DEFAULT, foreign]), "default", &[DEFAULT]), &policy([pool(ELSEWHERE)]));
    assert_eq!(taints_of(&released), [foreign]);
    assert_eq!((label(&released, names::POOL), applied(&released)), (None, None));
    assert_eq!(label(&released, names::WINDOWS_BUILD), Some("10.0.20348"));
}

#[test]
fn a_taint_that_was_there_before_stays_when_the_node_is_released() {
    for (policy, recorded) in
        giving_up("{}").into_iter().flat_map(|policy| [(policy.clone(), &[][..]), (policy, &[MINE])])
    {
        let released = converge(&marked(tainted(&[DEFAULT]), "default", recorded), &policy);
        assert_eq!(taints_of(&released), [DEFAULT]);
        assert_eq!((label(&released, names::POOL), applied(&released)), (None, None));
    }
}

#[test]
fn a_single_label_or_annotation_is_removed_too() {
    let whole = marked(tainted(&[]), "default", &[]);
    for path in ["/metadata/labels/winpool.dev~1pool", "/metadata/annotations/winpool.dev~1applied"] {
        let mut half = whole.clone();
        let (map, key) = path.rsplit_once('/').unwrap();
        half.pointer_mut(map).unwrap().as_object_mut().unwrap().remove(&key.replace("~1", "/")).unwrap();
        for policy in giving_up("{}") {
            let released = converge(&half, &policy);
            assert_eq!((label(&released, names::POOL), applied(&released)), (None, None), "without {path}");
        }
    }
    let mut unreadable = whole;
    unreadable["metadata"]["annotations"][names::APPLIED] = "{".into();
    let released = converge(&unreadable, &policy([pool(ELSEWHERE)]));
    assert_eq!((label(&released, names::POOL), applied(&released)), (None, None));
}

#[test]
fn nothing_is_removed_without_evidence() {
    let suspended: BTreeSet<String> = [String::from("default")].into();
    let other = || pool("{metadata: {name: other}, spec: {nodeSelector: {team: nobody}}}");
    let taker = || pool("metadata: {name: taker}");
    let cases = [
        ("no pool at all", Policy::default()),
        ("the pool is not there", policy([other()])),
        (
            "winpool is uninstalled without the pool",
            policy_of(&[GuardedPool::from(pool_object("metadata: {name: other}")).deleted()]),
        ),
        ("the pool is not valid", Policy::new([entry(true, other())], suspended.clone())),
        ("the pool is not valid and another one selects the node", Policy::new([entry(true, taker())], suspended)),
        ("the pool runs dry", policy([pool("spec: {mode: DryRun, nodeSelector: {team: nobody}}")])),
        ("the pool's classes are not right", Policy::new([entry(false, pool("{}"))], [].into())),
        ("another pool owns the node, and its classes are not right", Policy::new([entry(false, taker())], [].into())),
    ];
    let node = marked(tainted(&[DEFAULT, MINE]), "default", &[DEFAULT, MINE]);
    for (case, policy) in cases {
        assert!(assess(&read(&node), &policy).plan.is_empty(), "{case}");
    }
}

#[test]
fn a_node_whose_kubelet_contradicts_its_labels_keeps_its_marks() {
    let mut linux = marked(tainted(&[DEFAULT]), "default", &[DEFAULT]);
    linux["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
    for spec in ["{}", ELSEWHERE] {
        assert!(assess(&read(&linux), &policy([pool(spec)])).plan.is_empty());
    }
}

#[test]
fn another_pool_takes_over_marks_and_keeps_what_it_wants_itself() {
    let old = "{metadata: {name: old, creationTimestamp: '2026-02-01T00:00:00Z'}, status: {taints: STATUS}}"
        .replace("STATUS", &recorded(&[DEFAULT, MINE]));
    let wants_mine = "spec: {taints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
    let node = marked(tainted(&["first:NoSchedule", DEFAULT, MINE]), "old", &[DEFAULT, MINE]);

    let after = converge(&node, &policy([pool(wants_mine), pool(&old)]));
    assert_eq!(taints_of(&after), ["first:NoSchedule", MINE]);
    assert_eq!(label(&after, names::POOL), Some("default"));
    assert_eq!(applied(&after), Some(&*json!({"pool": "default", "taints": [MINE]}).to_string()));
    // The old pool may be deleted: the new owner is evidence enough for the taints of any pool.
    let after =
        converge(&node, &policy([pool(&format!("{{{wants_mine}, status: {{taints: [{{taint: '{DEFAULT}'}}]}}}}"))]));
    assert_eq!(taints_of(&after), ["first:NoSchedule", MINE]);
}

#[test]
fn a_forged_annotation_removes_no_taint_that_no_pool_ever_added() {
    let foreign = [
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        "ToBeDeletedByClusterAutoscaler=1730000000:NoSchedule",
        "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        "karpenter.sh/disrupted:NoSchedule",
        "readiness.k8s.io/cni:NoSchedule",
        "dedicated=batch:NoSchedule",
        "os=Windows:NoSchedule",
    ];
    // A status can be edited: even taints that it names stay if their key belongs to others.
    let claimed = format!("{{taints: {}}}", recorded(&foreign[..6]));
    let node = marked(tainted(&foreign), "default", &foreign);
    for policy in giving_up(&claimed).into_iter().chain([policy([pool(&format!("status: {claimed}"))])]) {
        assert_eq!(taints_of(&converge(&node, &policy)), foreign, "{policy:?}");
    }
}

#[test]
fn a_forged_annotation_is_corrected() {
    let forgeries = [
        "",
        "null",
        "[]",
        r#"{"pool":"other","taints":[]}"#,
        r#"{"pool":"default","taints":["os=windows:NoSchedule","a=b:NoSchedule"]}"#,
        r#"{"pool":"default","taints":["os=windows:NoSchedule","os=windows:NoSchedule"]}"#,
        r#"{"pool":"default","taints":["nonsense"]}"#,
    ];
    for forgery in forgeries {
        let mut node = marked(tainted(&[DEFAULT]), "default", &[]);
        node["metadata"]["annotations"][names::APPLIED] = forgery.into();
        let after = converge(&node, &policy([pool("{}")]));
        let mark: Value = serde_json::from_str(applied(&after).unwrap()).unwrap();
        assert_eq!(mark["pool"], "default", "{forgery}");
        assert_eq!(taints_of(&after), [DEFAULT], "{forgery}");
        let owned = mark["taints"].as_array().unwrap().len();
        assert_eq!(owned, usize::from(forgery.contains(DEFAULT)), "{forgery}");
    }
}

#[test]
fn an_annotation_with_the_same_meaning_is_not_rewritten() {
    let same = [
        (r#"{ "taints": ["os=windows:NoSchedule"], "pool": "default", "since": 1 }"#, &[DEFAULT][..]),
        (r#"{"pool":"default"}"#, &[]),
    ];
    for (annotation, taints) in same {
        let mut node = marked(tainted(&[DEFAULT]), "default", taints);
        node["metadata"]["annotations"][names::APPLIED] = annotation.into();
        assert!(assess(&read(&node), &policy([pool("{}")])).plan.is_empty(), "{annotation}");
    }
}

#[test]
fn a_taint_that_another_writer_removed_is_restored_and_still_owned() {
    let after = converge(&marked(tainted(&[]), "default", &[DEFAULT]), &policy([pool("{}")]));
    assert_eq!(taints_of(&after), [DEFAULT]);
    assert_eq!(applied(&after), Some(&*json!({"pool": "default", "taints": [DEFAULT]}).to_string()));
}

#[test]
fn an_obsolete_taint_of_winpool_is_tolerated_while_a_node_has_it() {
    let changed = pool(&format!(
        "{{spec: {{taints: [{{key: example.com/os, value: win, effect: NoSchedule}}]}}, status: {{taints: [{{taint: '{DEFAULT}'}}, {{taint: 'x=y:NoSchedule'}}]}}}}"
    ));
    let assessment = assess(&read(&tainted(&["x=y:NoSchedule", "a=b:NoSchedule", MINE])), &policy([changed]));
    assert_eq!(assessment.tolerate, ["x=y:NoSchedule".parse().unwrap()]);
}
