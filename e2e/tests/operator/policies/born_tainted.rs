//! Windows nodes that are registered with their taint.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};
use winpool_core::node::Applied;
use winpool_e2e::harness::objects::{NOT_READY, has_taint, label, lasting_taints, taints, taints_at_registration};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL, merge, schema};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{admitted, admitted_until, assert_no_panic, install, pool};

fn node(name: &str) -> SimulatedNode {
    SimulatedNode::server_2022(name)
}

async fn until_born_with(harness: &Harness, node: &SimulatedNode, expected: &[&str]) {
    let what = format!("{} would be born with {expected:?}", node.node().name_any());
    admitted_until(&harness.nodes(), &json!(node.node()), &what, |node: &Node| lasting_taints(node) == expected).await;
}

#[tokio::test]
async fn a_node_is_registered_with_its_taint_without_an_operator() {
    needs!(MUTATING_ADMISSION_POLICY);
    let (harness, log) = Harness::audited().await;
    // winpool records the taint with the first node of a pool.
    harness.join_node(node("first")).await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    install(&harness.client, "born-tainted").await;
    operator.stop().await;
    until_born_with(&harness, &node("probe"), &[OS_WINDOWS]).await;

    let nodes = harness.nodes();
    let watched = nodes.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    // A kubelet may change only this on its own node.
    let kubelet = harness.server.client_as("system:node:win-a", &["system:nodes"]).unwrap();
    node("win-a").taint("example.com/startup", "", "NoExecute").join(&kubelet).await.unwrap();
    harness.join_node(SimulatedNode::linux().name("linux-a")).await;
    let first = watched.try_filter_map(async |event| {
        Ok(match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => Some(node),
            _ => None,
        })
    });
    let first = first.try_filter(|node| std::future::ready(node.name_any() != "first"));
    let first: Vec<Node> = first.take(2).try_collect().await.unwrap();
    let win = first.iter().find(|node| node.name_any() == "win-a").unwrap();
    let mut all = taints(win);
    all.sort();
    assert_eq!(all, ["example.com/startup:NoExecute", NOT_READY, OS_WINDOWS]);
    assert_eq!(label(win, POOL), Some("default"));
    let applied = Applied { pool: "default".to_owned(), taints: vec![OS_WINDOWS.to_owned()] };
    assert_eq!(win.annotations()[APPLIED], applied.to_annotation());
    let linux = first.iter().find(|node| node.name_any() == "linux-a").unwrap();
    assert_eq!((taints(linux), label(linux, POOL)), (vec![NOT_READY.to_owned()], None));

    let _operator = harness.operator().await;
    harness.nodes_until("default", "has its nodes", |nodes| nodes.converged == 2).await;
    harness.ready("default").await;
    assert_eq!(log.patches("win-a").len(), 0, "it was born as it has to be");

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let win = harness.node("win-a").await;
    assert!(!has_taint(&win, OS_WINDOWS), "what it was born with goes too");
    assert_eq!((label(&win, POOL), win.annotations().get(APPLIED)), (None, None));
    assert!(has_taint(&win, "example.com/startup:NoExecute"));
    assert_no_panic(&harness.server);
}

#[tokio::test]
async fn no_node_is_registered_with_a_taint_that_a_daemon_set_holds() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    harness.join_node(node("busy")).await;
    harness.run_web("busy").await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.nodes_until("default", "holds the taint", |nodes| nodes.held == 1).await;
    // This shows that the policy and the first pool are in force.
    pool(&harness, "probe", json!({"nodeSelector": {"probe": "a"}, "taintPolicy": "TaintOnly"}), json!({})).await;
    install(&harness.client, "born-tainted").await;
    until_born_with(&harness, &node("probe").label("probe", "a"), &[OS_WINDOWS]).await;

    // Were it registered, winpool itself would add the taint: the DaemonSet holds that of one node only.
    until_born_with(&harness, &node("late"), &[]).await;
    harness.apply_until_ready(json!({"taintPolicy": "TaintOnly"})).await;
    operator.stop().await;
    until_born_with(&harness, &node("later"), &[OS_WINDOWS]).await;
    assert_no_panic(&harness.server);
}

/// A group of nodes, the spec of the pool that selects it, the taints in its `status.taints`, the taints of a node,
/// and the taints with which that node is registered.
type Case = [&'static str; 5];

/// Generated pools and nodes are in `agreement.rs`.
const CASES: &[Case] = &[
    ["default", "{}", OS_WINDOWS, "", OS_WINDOWS],
    ["not-let-through", "{}", "", "", ""],
    ["always", "taintPolicy: TaintOnly", "", "", OS_WINDOWS],
    ["not-ignored", "{}", OS_WINDOWS, "", OS_WINDOWS],
    ["no-annotations", "{}", OS_WINDOWS, "", OS_WINDOWS],
    ["guarded-harder", "{}", OS_WINDOWS, "os=windows:NoExecute", "os=windows:NoExecute"],
];

/// A node of this group with these taints.
fn node_of_group(group: &str, taints: &str) -> SimulatedNode {
    let node = match group {
        "not-ignored" => node("n").annotation("winpool.dev/ignore", "no"),
        "no-annotations" => node("n").without_kwok(),
        _ => node("n"),
    };
    let taints = taints.split_whitespace().map(|text| text.parse::<winpool_core::api::Taint>().unwrap());
    taints.fold(node.label("group", group), |node, taint| node.taint(&taint.key, &taint.value, taint.effect.as_str()))
}

#[tokio::test]
async fn taints_at_registration_depend_on_the_pool_and_the_node() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    install(&harness.client, "born-tainted").await;
    for [group, spec, through, ..] in CASES {
        let mut spec: Value = serde_yaml::from_str(spec).unwrap();
        spec["nodeSelector"] = json!({"group": group});
        let through = taints_at_registration(through.split_whitespace());
        pool(&harness, group, spec, json!({"taints": through})).await;
    }
    let deleting = json!({"nodeSelector": {"group": "deleting"}, "taintPolicy": "TaintOnly"});
    pool(&harness, "deleting", deleting, json!({})).await;
    merge(&harness.pools(), "deleting", json!({"metadata": {"finalizers": ["example.com/stay"]}})).await;
    harness.delete_pool("deleting").await;
    // The API server sees pools in the order of their changes: if it knows the last one, it knows all.
    pool(&harness, "last", json!({"nodeSelector": {"group": "last"}, "taintPolicy": "TaintOnly"}), json!({})).await;
    until_born_with(&harness, &node("probe").label("group", "last"), &[OS_WINDOWS]).await;

    for [group, _, _, taints, expected] in CASES {
        let node = node_of_group(group, taints);
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let born: Node = admitted(&harness.nodes(), &json!(node.node())).await.unwrap();
        assert_eq!(lasting_taints(&born), expected, "{group}");
        let ours: Vec<_> = expected
            .iter()
            .filter(|taint| born.annotations().get(APPLIED).is_some_and(|a| a.contains(*taint)))
            .collect();
        assert_eq!(label(&born, POOL).is_some(), !ours.is_empty(), "{group}: {:?}", born.annotations());
    }
    for (what, node) in [
        ("a pool that is going", node("n").label("group", "deleting")),
        ("no pool", node("n")),
        ("a node that is about to report another system", {
            // It was reimaged and still has its old label.
            SimulatedNode::linux().name("n").label("kubernetes.io/os", "windows").label("group", "default")
        }),
    ] {
        let born: Node = admitted(&harness.nodes(), &json!(node.node())).await.unwrap();
        assert_eq!((lasting_taints(&born), label(&born, POOL)), (Vec::new(), None), "{what}");
    }
    assert_no_panic(&harness.server);
}

#[tokio::test]
async fn one_of_several_pools_claims_a_new_node_and_the_operator_hands_it_over() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let operator = harness.operator().await;
    let taint = |key: &str| {
        json!({
            "taints": [{"key": key, "effect": "NoSchedule"}], "taintPolicy": "TaintOnly",
            "runtimeClassNameFormat": format!("{key}-{{version}}"),
        })
    };
    harness.apply_pool_named("older", taint("older")).await;
    harness.ready("older").await;
    harness.apply_pool_named("younger", taint("younger")).await;
    harness.ready("younger").await;
    install(&harness.client, "born-tainted").await;
    operator.stop().await;
    let probe = json!(node("probe").node());
    let tainted = |node: &Node| !lasting_taints(node).is_empty();
    admitted_until(&harness.nodes(), &probe, "the policy is in force", tainted).await;

    let mut names = Vec::new();
    for number in 0..12 {
        let name = node(&format!("win-{number}")).join(&harness.client).await.unwrap().name().to_owned();
        let born = harness.node(&name).await;
        let owner = label(&born, POOL).unwrap();
        assert_eq!(lasting_taints(&born), [format!("{owner}:NoSchedule")]);
        assert_eq!(Applied::parse(&born.annotations()[APPLIED]).unwrap().pool, owner);
        names.push(name);
    }
    let _operator = harness.operator().await;
    for name in names {
        let right = |node: &Node| label(node, POOL) == Some("older") && lasting_taints(node) == ["older:NoSchedule"];
        harness.node_until(&name, "belongs to the older pool", right).await;
    }
    assert_no_panic(&harness.server);
}

/// Pools that the API server stored before it had its rules.
fn invalid() -> Vec<Value> {
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    vec![
        json!({"taints": [taint("os", "no/value", "NoSchedule")]}),
        json!({"taints": [taint("os", "windows", "NoExecute")]}),
        json!({"taints": [taint("os", "windows", "Never")]}),
        json!({"taints": [taint("no key", "", "NoSchedule")]}),
        json!({"taints": [taint("node.kubernetes.io/not-ready", "mine", "NoSchedule")]}),
        json!({"taints": [taint("karpenter.sh/disrupted", "", "NoSchedule")]}),
        json!({"taints": [taint("os", "a", "NoSchedule"), taint("os", "b", "NoSchedule")]}),
        json!({"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule", "unknown": {"a": 1}}]}),
        json!({"taints": [{"key": "os"}]}),
        json!({"taints": "os=windows:NoSchedule"}),
        json!({"taints": [7, null]}),
        json!({"nodeSelector": ["group"], "mode": 7}),
    ]
}

#[tokio::test]
async fn an_invalid_stored_pool_prevents_no_node_from_registering() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    install(&harness.client, "born-tainted").await;
    schema::loosen_schema(&harness.client).await;
    for (number, mut spec) in invalid().into_iter().enumerate() {
        spec["taintPolicy"] = json!("TaintOnly");
        spec["mode"] = spec.get("mode").cloned().unwrap_or(json!("Enforce"));
        if spec.get("nodeSelector").is_none() {
            spec["nodeSelector"] = json!({"group": format!("{number}")});
        }
        schema::create(&harness.client, &format!("bad-{number}"), &spec).await;
    }
    // Its name cannot be a label's value.
    let long = "a".repeat(64);
    let spec = json!({"mode": "Enforce", "taintPolicy": "TaintOnly", "nodeSelector": {"group": "long"}});
    schema::create(&harness.client, &long, &spec).await;
    let spec = json!({"mode": "Enforce", "taintPolicy": "TaintOnly", "nodeSelector": {"group": "good"}});
    schema::create(&harness.client, "good", &spec).await;
    until_born_with(&harness, &node("probe").label("group", "good"), &[OS_WINDOWS]).await;

    for (number, spec) in invalid().into_iter().enumerate() {
        let node = node(&format!("win-{number}")).label("group", &number.to_string());
        let name = harness.join_node(node).await.name().to_owned();
        let born = lasting_taints(&harness.node(&name).await);
        // An unknown field does not make a taint invalid.
        let expected: &[&str] = if spec["taints"][0]["unknown"].is_null() { &[] } else { &[OS_WINDOWS] };
        assert_eq!(born, expected, "{spec}");
    }
    let node = node("win-long").label("group", "long").join(&harness.client).await.unwrap();
    assert_eq!(lasting_taints(&node.get().await.unwrap()), Vec::<String>::new());
    assert_no_panic(&harness.server);
}
