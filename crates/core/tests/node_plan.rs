//! Assessments of nodes by [`assess`], each checked on the node that the planned request produces.

use std::sync::Arc;

use crate::common::{
    applied, assess, converge, converge_with, label, marked, node, policy, pool, read, recorded, tainted, taints_of,
};
use serde_json::{Value, json};
use winpool_core::api::{Taint, names};
use winpool_core::node::NodeObject;
use winpool_core::plan::nodes::assessment::{NodeState, assess_as};
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::pools::pool::{Policy, PoolEntry};
use winpool_core::plan::taints::Consent;
use winpool_core::plan::{self};
use winpool_core::windows::taint::SPELLINGS;

const DEFAULT: &str = "os=windows:NoSchedule";

fn parse(taints: &[&str]) -> Vec<Taint> {
    taints.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn an_empty_pool_labels_and_taints_a_bare_node_and_marks_what_it_added() {
    let bare = node("metadata: {labels: {node.kubernetes.io/windows-build: null}}");
    let after = converge(&bare, &policy([pool("{}")]));
    assert_eq!(label(&after, names::WINDOWS_BUILD), Some("10.0.20348"));
    assert_eq!(label(&after, names::POOL), Some("default"));
    assert_eq!(after["spec"]["taints"], json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]));
    assert_eq!(applied(&after), Some(r#"{"pool":"default","taints":["os=windows:NoSchedule"]}"#));
}

#[test]
fn a_correct_node_gets_no_write_and_no_marks() {
    for taint in [DEFAULT, "os=Windows:NoSchedule"] {
        let right = tainted(&[taint]);
        let assessment = assess(&read(&right), &policy([pool("{}")]));
        assert_eq!(assessment.state(), NodeState::Converged);
        assert!(assessment.plan.is_empty(), "{taint}: {:?}", assessment.plan);
    }
}

#[test]
fn a_label_alone_that_was_added_is_marked_without_taints() {
    let mut unlabelled = tainted(&[DEFAULT]);
    unlabelled["metadata"]["labels"].as_object_mut().unwrap().remove(names::WINDOWS_BUILD);
    let after = converge(&unlabelled, &policy([pool("{}")]));
    assert_eq!(applied(&after), Some(r#"{"pool":"default","taints":[]}"#));
}

#[test]
fn every_known_spelling_guards_a_node_and_has_to_be_tolerated() {
    for spelling in SPELLINGS {
        for effect in ["NoSchedule", "NoExecute"] {
            let taint = Taint::new(spelling.key, spelling.value, effect);
            let guarded = tainted(&[&taint.to_string()]);
            let assessment = assess(&read(&guarded), &policy([pool("{}")]));
            assert!(assessment.plan.is_empty(), "{taint}: {:?}", assessment.plan);
            let tolerate = if taint == Taint::os_windows() { vec![] } else { vec![taint] };
            assert_eq!(assessment.tolerate, tolerate);
            assert_eq!(assessment.taints.differing, []);
        }
    }
}

/// A fact, fields of a pool's spec, the taints in a node's annotation, which are in `status.taints` too, and the
/// node's taints before and after. `NoSchedule` is left out.
type Case = [&'static str; 5];

const OS: &str = "taints: [{key: os, value: windows, effect: NoSchedule}]";
const NODE_OS: &str = "taints: [{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}]";
const RETIRED: &str = "retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]";
const BOTH: &str = "taints: [{key: os, value: windows, effect: NoSchedule}], \
                    retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]";
const TWO: &str = "taints: [{key: os, value: windows, effect: NoSchedule}, \
                   {key: example.com/os, effect: PreferNoSchedule}]";
const PREFER: &str = "taints: [{key: os, value: windows, effect: PreferNoSchedule}]";
const SKU: &str = "retiredTaints: [{key: sku, value: windows, effect: NoSchedule}]";
const ONE_BY_ONE: &str = "retiredTaints: [{key: os, value: Windows, effect: NoSchedule}, \
                          {key: os, value: Win1809, effect: NoSchedule}]";

const CASES: &[Case] = &[
    ["omitted: a bare node gets the default", "", "", "", "os=windows"],
    [
        "omitted: to discourage is no guard",
        "",
        "",
        "os=Windows:PreferNoSchedule",
        "os=Windows:PreferNoSchedule os=windows",
    ],
    ["omitted: foreign taints are no guard", "", "", "dedicated=batch", "dedicated=batch os=windows"],
    ["omitted: a retired spelling is replaced", RETIRED, "", "os=Win1809", "os=windows"],
    ["omitted: a retired spelling goes from beside a guard", SKU, "", "sku=windows os=Windows", "os=Windows"],
    ["omitted again: an owned guard stays", "", "windows=true", "windows=true", "windows=true"],
    ["omitted again: what is owned and no guard goes", "", "example.com/os", "example.com/os", "os=windows"],
    ["a list is exact", NODE_OS, "", "os=windows", "os=windows node.kubernetes.io/os=windows"],
    ["a list is added in its order", TWO, "", "", "os=windows example.com/os:PreferNoSchedule"],
    [
        "what is there is not added again",
        TWO,
        "",
        "example.com/os:PreferNoSchedule",
        "example.com/os:PreferNoSchedule os=windows",
    ],
    ["another value is replaced when retired", BOTH, "", "os=Win1809", "os=windows"],
    ["another value is replaced when winpool put it there", OS, "os=Windows", "os=Windows", "os=windows"],
    [
        "the same key with another effect is another taint",
        PREFER,
        "",
        "os=windows:NoExecute",
        "os=windows:NoExecute os=windows:PreferNoSchedule",
    ],
    ["a changed effect takes the old one off", PREFER, "os=windows", "os=windows", "os=windows:PreferNoSchedule"],
    [
        "a changed key takes the old one off",
        NODE_OS,
        "os=windows",
        "a=b os=windows c:NoExecute",
        "a=b c:NoExecute node.kubernetes.io/os=windows",
    ],
    ["a taint that is owned and retired goes", BOTH, "os=Win1809", "os=Win1809", "os=windows"],
    ["a retired taint that is not there changes nothing else", BOTH, "", "a=b os=windows", "a=b os=windows"],
    ["taints that are retired with the same key and effect go one by one", ONE_BY_ONE, "", "os=Windows", "os=windows"],
];

/// Taints with another value in the place of a wanted one, which stay.
const DIFFERING: &[Case] = &[
    ["omitted: an unknown value that stands in the way is left alone", "", "", "os=linux", "os=linux"],
    ["another value is left alone", OS, "", "os=Windows", "os=Windows"],
];

#[test]
fn taints_become_what_the_pool_says() {
    let list = |taints: &str| -> Vec<String> {
        let effect = |taint: &str| if taint.contains(':') { "" } else { ":NoSchedule" };
        taints.split_whitespace().map(|taint| format!("{taint}{}", effect(taint))).collect()
    };
    for (case, differs) in CASES.iter().map(|case| (case, false)).chain(DIFFERING.iter().map(|case| (case, true))) {
        let [fact, spec, owned, before, after] = *case;
        let (owned, before) = (list(owned), list(before));
        let (owned, before): (Vec<&str>, Vec<&str>) =
            (owned.iter().map(String::as_str).collect(), before.iter().map(String::as_str).collect());
        let policy = policy([pool(&format!("{{spec: {{{spec}}}, status: {{taints: {}}}}}", recorded(&owned)))]);
        let old = tainted(&before);
        let old = if owned.is_empty() { old } else { marked(old, "default", &owned) };
        let differing = if differs { parse(&before) } else { Vec::new() };
        assert_eq!(assess(&read(&old), &policy).taints.differing, differing, "{fact}");
        assert_eq!(taints_of(&converge(&old, &policy)), list(after), "{fact}");
    }
}

#[test]
fn a_differing_value_counts_as_converged_and_is_tolerated_and_named() {
    let policy = policy([pool("spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}")]);
    let assessment = assess(&read(&tainted(&["os=legacy:NoSchedule"])), &policy);
    assert_eq!(assessment.state(), NodeState::Converged);
    assert_eq!(assessment.tolerate, parse(&["os=legacy:NoSchedule"]));
    let object =
        NodeObject { name: "win".into(), node: read(&tainted(&["os=legacy:NoSchedule"])), ..NodeObject::default() };
    let (mut table, now) = (NodeTable::default(), std::time::Instant::now());
    table.count_by(policy, now);
    table.observe(NodeEvent::Listed(vec![object.into()]), now);
    let [problem] = table.tally("default").problems().try_into().unwrap();
    assert_eq!((problem.reason.as_str(), problem.object.name.as_str()), ("TaintValueDiffers", "win"));
}

#[test]
fn taints_of_others_keep_their_order_and_every_byte() {
    let spot = json!({"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"});
    let others = [
        json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}),
        spot,
        json!({"key": "ToBeDeletedByClusterAutoscaler", "value": "1730000000", "effect": "NoSchedule"}),
        json!({"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule", "futureField": {"a": [1, null]}}),
        json!({"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "timeAdded": "2026-01-01T00:00:00Z"}),
    ];
    let old = json!({"key": "os", "value": "Win1809", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
    let new = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
    let policy = policy([pool("spec: {retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]}")]);
    for position in 0..=others.len() {
        let mut before = others.to_vec();
        before.insert(position, old.clone());
        let after = converge(&node(&json!({"spec": {"taints": before}}).to_string()), &policy);
        let mut wanted = others.to_vec();
        wanted.push(new.clone());
        assert_eq!(after["spec"]["taints"].to_string(), Value::from(wanted).to_string());
    }
}

#[test]
fn the_build_label_follows_the_reported_version() {
    let cases = [
        // Reported kernel version, label before, label after, state before anything is sent.
        ("10.0.20348.825", None, Some("10.0.20348"), NodeState::Pending),
        ("10.0.20348.825", Some("10.0.20348"), Some("10.0.20348"), NodeState::Converged),
        ("10.0.20348.825", Some("10.0.17763"), Some("10.0.20348"), NodeState::Pending),
        ("10.0.20348.825", Some("windows-2022"), Some("10.0.20348"), NodeState::Pending),
        ("10.0.14393", None, Some("10.0.14393"), NodeState::Pending),
        ("", Some("10.0.17763"), Some("10.0.17763"), NodeState::Converged),
        ("5.15.0-1019-azure", Some("10.0.17763"), Some("10.0.17763"), NodeState::Converged),
        ("", None, None, NodeState::Blocked),
        ("unreadable", Some("2019"), Some("2019"), NodeState::Blocked),
    ];
    for (kernel, before, after, state) in cases {
        let mut node = tainted(&[DEFAULT]);
        node["status"]["nodeInfo"]["kernelVersion"] = kernel.into();
        json_patch::merge(&mut node, &json!({"metadata": {"labels": {names::WINDOWS_BUILD: before}}}));
        let policy = policy([pool("{}")]);
        assert_eq!(assess(&read(&node), &policy).state(), state, "{kernel:?} {before:?}");
        assert_eq!(label(&converge(&node, &policy), names::WINDOWS_BUILD), after, "{kernel:?} {before:?}");
    }
}

#[test]
fn a_node_without_a_readable_build_is_blocked_and_tainted_all_the_same() {
    for kernel in ["''", "null", "10.0.x"] {
        let changes = format!(
            "{{metadata: {{labels: {{node.kubernetes.io/windows-build: null}}}}, \
              status: {{nodeInfo: {{kernelVersion: {kernel}}}}}}}"
        );
        let unknown = node(&changes);
        let policy = policy([pool("{}")]);
        let after = converge(&unknown, &policy);
        assert_eq!(taints_of(&after), [DEFAULT]);
        assert_eq!(label(&after, names::WINDOWS_BUILD), None);
        for (node, state) in [(&unknown, NodeState::Pending), (&after, NodeState::Blocked)] {
            assert_eq!(assess(&read(node), &policy).state(), state, "{kernel}");
        }
    }
}

#[test]
fn a_held_taint_delays_only_the_nodes_that_lack_it() {
    let policy = policy([pool("spec: {retiredTaints: [{key: os, value: Windows, effect: NoSchedule}]}")]);
    for (taints, after, held) in [
        (&["os=Windows:NoSchedule"][..], &["os=Windows:NoSchedule"][..], &[DEFAULT][..]),
        (&["os=Windows:NoSchedule", DEFAULT], &[DEFAULT], &[]),
        (&["os=Windows:NoSchedule", "os=Win1809:NoSchedule"], &["os=Win1809:NoSchedule"], &[]),
        (&[], &[], &[DEFAULT]),
    ] {
        let converged = converge_with(&tainted(taints), &policy, Consent::Withheld);
        assert_eq!(taints_of(&converged), after, "{taints:?}");
        let assessment = plan::nodes::assessment::assess(&read(&converged), &policy, Consent::Withheld);
        assert_eq!(assessment.taints.held, parse(held), "{taints:?}");
    }
}

#[test]
fn nodes_that_are_not_the_pools_are_left_alone() {
    let cases = [
        ("a Linux node", "metadata: {labels: {kubernetes.io/os: linux}}", "{}"),
        ("a node without the label", "metadata: {labels: {kubernetes.io/os: null}}", "{}"),
        ("a node that is not selected", "{}", "spec: {nodeSelector: {team: a}}"),
        ("a node with another value", "metadata: {labels: {team: b}}", "spec: {nodeSelector: {team: a}}"),
    ];
    for (case, changes, spec) in cases {
        let assessment = assess(&read(&node(changes)), &policy([pool(spec)]));
        assert_eq!((assessment.pool, assessment.plan.is_empty()), (None, true), "{case}");
    }
    let claims = assess(&read(&node("status: {nodeInfo: {operatingSystem: linux}}")), &policy([pool("{}")]));
    assert_eq!((claims.pool.as_deref(), claims.state()), (Some("default"), NodeState::Blocked), "it is counted only");
    assert!(claims.plan.is_empty() && claims.build.is_none());
    for changes in ["status: {nodeInfo: {operatingSystem: null}}", "status: {nodeInfo: {operatingSystem: ''}}"] {
        let assessment = assess(&read(&node(changes)), &policy([pool("{}")]));
        assert_eq!(assessment.pool.as_deref(), Some("default"), "a node that has not reported its system yet");
    }
}

#[test]
fn an_ignored_node_is_not_changed_and_its_taints_are_tolerated() {
    let ignored = json!({"metadata": {"annotations": {names::IGNORE: "true"}}});
    for mut node in [tainted(&["os=Windows:NoSchedule"]), marked(tainted(&[DEFAULT]), "default", &[DEFAULT])] {
        json_patch::merge(&mut node, &ignored);
        node["metadata"]["labels"].as_object_mut().unwrap().remove(names::WINDOWS_BUILD);
        for spec in ["{}", "spec: {nodeSelector: {no: node}}"] {
            let assessment = assess(&read(&node), &policy([pool(spec)]));
            assert_eq!((assessment.state(), assessment.plan.is_empty()), (NodeState::Ignored, true));
        }
    }
    let mut node = tainted(&["os=Windows:NoSchedule"]);
    json_patch::merge(&mut node, &ignored);
    assert_eq!(assess(&read(&node), &policy([pool("{}")])).tolerate, parse(&["os=Windows:NoSchedule"]));
    node["metadata"]["annotations"][names::IGNORE] = "false".into();
    assert_eq!(assess(&read(&node), &policy([pool("{}")])).state(), NodeState::Converged);
}

#[test]
fn fields_that_winpool_does_not_read_change_nothing() {
    let heartbeat = node(
        "{metadata: {resourceVersion: '9999', annotations: {other: x}}, spec: {podCIDR: 10.0.0.0/24}, \
          status: {conditions: [{type: Ready, status: 'True', lastHeartbeatTime: '2026-01-01T00:05:00Z'}], images: [{names: [a]}]}}",
    );
    assert_eq!(read(&heartbeat), read(&node("{}")));
}

#[test]
fn a_dry_run_owns_no_node_and_previews_what_it_would_do() {
    let dry = pool("spec: {mode: DryRun}");
    let policy = policy([dry.clone()]);
    let bare = read(&node("{}"));
    assert!(assess(&bare, &policy).plan.is_empty());
    let previews: Vec<_> = policy.previews(&bare.labels).map(|pool| pool.spec.name.as_str()).collect();
    assert_eq!(previews, ["default"]);
    let preview = assess_as(&bare, Some(&dry), &policy, Consent::Given);
    assert_eq!((preview.state(), preview.plan.taints.unwrap().added), (NodeState::Pending, vec![Taint::os_windows()]));
}

#[test]
fn a_pool_whose_classes_are_not_right_yet_holds_its_nodes_untouched() {
    let entry = |ready, changes| PoolEntry { pool: Arc::new(pool(changes)), ready };
    let younger = "metadata: {name: younger, creationTimestamp: '2026-06-01T00:00:00Z'}";
    let policy = Policy::new([entry(false, "{}"), entry(true, younger)], [].into());
    for node in [node("{}"), marked(tainted(&["os=old:NoSchedule"]), "younger", &["os=old:NoSchedule"])] {
        assert!(assess(&read(&node), &policy).plan.is_empty());
    }
}
