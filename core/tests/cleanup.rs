//! Removing winpool from a cluster: changes of nodes, and classes that are deleted or stay.

use crate::common::{UID, apply, class, marked, node, now, pool_object, read, recorded, tainted, taints_of};
use serde_json::{Value, json};
use winpool_core::{
    api::{WindowsPool, names},
    plan::{
        classes::runtime_class::{ClassRetirement, retire_class},
        nodes::capability_labels::LabelUsers,
        patch::node_patch,
        pods::PodTable,
        pools::cleanup::{Cleanup, Extent, NodeRelease},
    },
    pod::{Pod, PodProgress, PodSpec},
};

const GUARD: &str = "os=windows:NoSchedule";
const LABEL: &str = "runs.winpool.dev/10.0.20348";
const EXTENTS: [Extent; 2] = [Extent::Everything, Extent::AsPoolsSay];

fn cleanup(pools: &[&str], extent: Extent) -> Cleanup {
    Cleanup::new(pools.iter().map(|changes| pool_object(changes)), extent)
}

fn everything(pools: &[&str]) -> Cleanup {
    cleanup(pools, Extent::Everything)
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
fn deletion_policies_count_only_for_a_cleanup_that_follows_the_pools() {
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
        for extent in EXTENTS {
            let (after, parting) = clean(&full_of_marks(), &cleanup(&[pool], extent));
            let mut expected = tainted(&["dedicated=batch:NoExecute"]);
            if extent == Extent::AsPoolsSay {
                expected["metadata"]["labels"][LABEL] = "true".into();
            }
            let expected = if goes || extent == Extent::Everything { expected } else { full_of_marks() };
            assert_eq!(after, expected, "{pool} {extent:?}");
            assert_eq!((parting.ignored, parting.doubtful), (false, Vec::new()), "{pool} {extent:?}");
        }
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
        let (after, _) = clean(&orphan, &cleanup(&pools, Extent::AsPoolsSay));
        assert_eq!(after, orphan, "a pool that is merely absent is no evidence");
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
        for extent in EXTENTS {
            assert_eq!(
                cleanup(&["{}"], extent).node(&read(&node), &LabelUsers::default()),
                NodeRelease::default(),
                "{changes}"
            );
        }
    }
}

#[test]
fn an_ignored_node_keeps_its_marks_and_is_named_if_it_has_any() {
    let ignored = json!({"metadata": {"annotations": {names::IGNORE: "true"}}});
    for (mut node, has_marks) in [(full_of_marks(), true), (node("{}"), false)] {
        json_patch::merge(&mut node, &ignored);
        for extent in EXTENTS {
            let parting = cleanup(&["{}"], extent).node(&read(&node), &LabelUsers::default());
            assert!(parting.plan.is_empty());
            assert_eq!(parting.ignored, has_marks);
        }
    }
}

#[test]
fn a_node_that_came_back_as_linux_loses_its_windows_build_too() {
    for extent in EXTENTS {
        let mut reimaged = full_of_marks();
        reimaged["metadata"]["labels"][names::OS] = "linux".into();
        let (after, _) = clean(&reimaged, &cleanup(&["{}"], extent));
        let mut expected = tainted(&["dedicated=batch:NoExecute"]);
        expected["metadata"]["labels"][names::OS] = "linux".into();
        expected["metadata"]["labels"].as_object_mut().unwrap().remove(names::WINDOWS_BUILD);
        assert_eq!(after, expected, "{extent:?}");

        // The node's label contradicts its report. winpool's labels and annotations are removed nevertheless.
        let mut contradicting = full_of_marks();
        contradicting["status"]["nodeInfo"]["operatingSystem"] = "linux".into();
        let (after, _) = clean(&contradicting, &cleanup(&["{}"], extent));
        let mut expected = tainted(&[]);
        if extent == Extent::AsPoolsSay {
            expected["metadata"]["labels"][LABEL] = "true".into();
        }
        assert_eq!(after["metadata"], expected["metadata"], "{extent:?}");
    }
}

#[test]
fn a_pool_without_taints_is_no_evidence_for_any_taint() {
    let mut unreadable: WindowsPool = pool_object("{}");
    unreadable.spec.taints = Some(Vec::new());
    let (after, parting) = clean(&full_of_marks(), &Cleanup::new([unreadable.clone()], Extent::Everything));
    assert_eq!(taints_of(&after), ["dedicated=batch:NoExecute", GUARD]);
    assert_eq!(parting.doubtful, [GUARD.parse().unwrap()]);
    unreadable.status = pool_object(&format!("{{status: {{taints: [{{taint: '{GUARD}'}}]}}}}")).status;
    let (after, _) = clean(&full_of_marks(), &Cleanup::new([unreadable], Extent::Everything));
    assert_eq!(taints_of(&after), ["dedicated=batch:NoExecute"]);
}

#[test]
fn classes_are_removed_with_their_pool_or_with_everything() {
    let made = "app.kubernetes.io/managed-by: winpool";
    // The labels of a class, and the answers for a complete cleanup and for one that follows the pools.
    let cases = [
        (format!("{made}, winpool.dev/pool: default"), true, true),
        ("winpool.dev/pool: default".to_owned(), true, true),
        (format!("{made}, winpool.dev/pool: retaining"), true, false),
        (format!("{made}, winpool.dev/pool: gone"), true, false),
        (made.to_owned(), true, false),
        ("app.kubernetes.io/managed-by: Helm".to_owned(), false, false),
        (String::new(), false, false),
    ];
    let pools = ["{}", "{metadata: {name: retaining}, spec: {deletionPolicy: Retain}}"];
    for (labels, all, said) in cases {
        let class = class(&format!("{{metadata: {{name: windows-2022, labels: {{{labels}}}}}, handler: h}}"));
        let concerned = EXTENTS.map(|extent| cleanup(&pools, extent).concerns_class(&class));
        assert_eq!(concerned, [all, said], "{labels}");
    }
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
        for extent in EXTENTS {
            let kept = cleanup(&["{}"], extent).kept_taints(&node);
            assert_eq!(kept.is_some(), is_kept, "{taint}");
        }
    }
}

#[test]
fn an_uninstallation_keeps_the_classes_that_the_deletion_of_their_pool_would_keep() {
    let labels = |build: &str| {
        read(&node(&format!("metadata: {{labels: {{node.kubernetes.io/windows-build: {build}}}}}"))).labels
    };
    let guard = [(labels("10.0.20348"), vec![GUARD.parse().unwrap()])];
    let elsewhere = [(labels("10.0.17763"), vec![GUARD.parse().unwrap()])];
    let tolerating = "tolerations: [{key: os, operator: Exists}], ";
    for (name, recorded, tolerations, kept, end) in [
        ("mine", "class-uid", "", &[][..], None),
        ("mine", "class-uid", tolerating, &[], None),
        ("mine", "class-uid", "", &guard, None),
        ("mine", "class-uid", tolerating, &guard, Some("nodes keep a taint that it tolerates")),
        ("mine", "class-uid", tolerating, &elsewhere, None),
        ("copy", "other", "", &[], Some("winpool has no record that it created this class")),
        // winpool ended before it recorded the class.
        ("windows-2022", "other", "", &[], None),
        ("declared", "other", "", &[], None),
    ] {
        let class = class(&format!(
            "{{metadata: {{name: {name}, labels: {{app.kubernetes.io/managed-by: winpool, \
               winpool.dev/pool: default}}}}, handler: h, \
               scheduling: {{{tolerations}nodeSelector: {{node.kubernetes.io/windows-build: 10.0.20348}}}}}}"
        ));
        let pool = format!(
            "{{spec: {{runtimeClasses: [{{name: declared, version: '2019'}}]}}, status: {{runtimeClasses: [ \
               {{name: x, uid: {recorded}, build: Any, handler: h, state: Applied, nodes: 0}}]}}}}"
        );
        for extent in EXTENTS {
            let spared = cleanup(&[&pool], extent).spare(&class, ClassRetirement::Delete, kept);
            let why = match &spared {
                ClassRetirement::Delete => None,
                ClassRetirement::Release { why, .. } => Some(why.as_str()),
            };
            let always = "nodes keep a taint that it tolerates";
            let end = end.filter(|why| *why == always || extent == Extent::AsPoolsSay);
            assert_eq!(why, end, "{name} {recorded} {tolerations} {kept:?}");
        }
    }
}
