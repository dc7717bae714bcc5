//! Generated nodes and pods: the policies agree with winpool's planning functions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use kube::{Api, ResourceExt};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use winpool_client::node::ListedNode;
use winpool_core::api::{Taint, WindowsPool};
use winpool_core::node::{Applied, Watched};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::pools::pool::{Policy, Pool, PoolEntry, WantedTaints};
use winpool_core::plan::taints::Consent;
use winpool_core::pod::{PodSpec, tolerate};
use winpool_core::windows::taint::SPELLINGS;
use winpool_e2e::harness::objects::taints_at_registration;
use winpool_e2e::harness::{APPLIED, Harness};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{admitted, admitted_until, assert_no_panic, install, pod, pods, pool};

const POOLS: usize = 16;
const NODES: usize = 1000;
const PODS: usize = 1000;
/// Requests in parallel.
const HANDS: usize = 16;
/// All objects that have to change are sent, and one of this many of the others.
const UNCHANGED: usize = 4;

/// Keys that collide often enough: Windows spellings, those of a pool.
fn key() -> impl Strategy<Value = &'static str> {
    select(vec!["os", "node.kubernetes.io/os", "windows", "example.com/own", "os-x"])
}

fn value() -> impl Strategy<Value = &'static str> {
    select(vec!["", "windows", "Windows", "Win1809", "true"])
}

fn taint(effects: &'static [&'static str]) -> impl Strategy<Value = Taint> {
    (key(), value(), select(effects)).prop_map(|(key, value, effect)| Taint::new(key, value, effect))
}

/// Taints of which no two have the same key and effect: the API server accepts no others.
fn list() -> impl Strategy<Value = Vec<Taint>> {
    vec(taint(&["NoSchedule", "PreferNoSchedule"]), 1..4).prop_map(|mut taints| {
        let mut seen = BTreeSet::new();
        taints.retain(|taint| seen.insert((taint.key.clone(), taint.effect.clone())));
        taints
    })
}

/// Spec and `status.taints` of a pool, which may or may not be valid.
fn any_pool() -> impl Strategy<Value = (Value, Vec<String>)> {
    (
        option::of(list()),
        option::of(list()),
        vec(taint(&["NoSchedule", "PreferNoSchedule"]), 0..6),
        select(vec!["TaintAndTolerate", "TaintAndTolerate", "TaintAndTolerate", "TaintOnly", "Never"]),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(wanted, retired, ever, policy, dry_run)| {
            let mut spec = json!({"taintPolicy": policy, "mode": if dry_run { "DryRun" } else { "Enforce" }});
            if let Some(wanted) = &wanted {
                spec["taints"] = json!(wanted);
            }
            if let Some(retired) = &retired {
                spec["retiredTaints"] = json!(retired);
            }
            // Often the taints that it wants.
            let wanted = wanted.unwrap_or_else(|| vec![Taint::os_windows()]);
            let ever = ever.iter().chain(wanted.iter().take(ever.len() / 2)).map(ToString::to_string);
            (spec, ever.collect::<BTreeSet<_>>().into_iter().collect())
        })
}

fn is_sent(number: usize, changes: &BTreeSet<Taint>) -> bool {
    !changes.is_empty() || number.is_multiple_of(UNCHANGED)
}

fn draw<T>(runner: &mut TestRunner, strategy: &impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).unwrap().current()
}

/// The pools that are valid, each with nodes of its own.
async fn pools(harness: &Harness, runner: &mut TestRunner) -> Vec<WindowsPool> {
    let mut names = Vec::new();
    while names.len() < POOLS {
        let (mut spec, ever) = draw(runner, &any_pool());
        let name = format!("pool-{}", names.len());
        spec["nodeSelector"] = json!({"group": name});
        let read = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}));
        if read.is_ok_and(|object: WindowsPool| Pool::read(&object).is_ok()) {
            pool(harness, &name, spec, json!({"taints": taints_at_registration(ever.iter().map(String::as_str))}))
                .await;
            names.push(name);
        }
    }
    let mut pools = Vec::new();
    for name in names {
        pools.push(harness.pools().get(&name).await.unwrap());
    }
    pools
}

/// The build of all nodes. Its class exists.
const BUILD: &str = "10.0.20348";

/// The pool as the operator knows it, if `DaemonSets` hold the taints with which no node may register.
fn read(object: &WindowsPool) -> Pool {
    let mut pool = Pool::read(object).unwrap();
    let listed = object.status.iter().flat_map(|status| &status.taints).filter(|listed| listed.at_registration);
    let listed: Vec<&str> = listed.map(|listed| listed.taint.as_str()).collect();
    let may = |taint: &Taint| pool.spec.waits_for_nobody(taint) || listed.contains(&taint.to_string().as_str());
    pool.managed_taints = pool.spec.wanted_taints().into_iter().filter(may).collect();
    let consent = Arc::make_mut(&mut pool.consent);
    consent.planned_builds.insert(BUILD.parse().unwrap());
    consent.may_add = true;
    pool
}

fn generated_node(runner: &mut TestRunner, number: usize) -> SimulatedNode {
    let strategy = (
        vec(taint(&["NoSchedule", "PreferNoSchedule", "NoExecute"]), 0..4),
        0..POOLS + 3,
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.05),
    );
    let (taints, group, ignored, claimed) = draw(runner, &strategy);
    let mut node = SimulatedNode::windows(&format!("{BUILD}.2655")).name(&format!("n{number}"));
    node = node.label("group", &format!("pool-{group}"));
    let mut seen = BTreeSet::new();
    for taint in taints {
        if seen.insert((taint.key.clone(), taint.effect.clone())) {
            node = node.taint(&taint.key, &taint.value, taint.effect.as_str());
        }
    }
    if ignored {
        node = node.annotation("winpool.dev/ignore", "true");
    }
    if claimed {
        node = node.annotation(APPLIED, r#"{"pool":"another","taints":[]}"#);
    }
    node
}

/// Taints by key, value and effect, as a set.
fn taints(node: &Node) -> BTreeSet<Taint> {
    let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    all.map(|taint| Taint::new(&taint.key, taint.value.as_deref().unwrap_or_default(), &*taint.effect)).collect()
}

/// The taints that the operator would add to this node, without those that replace another taint: registration removes
/// none.
fn planned(node: &Node, policy: &Policy) -> BTreeSet<Taint> {
    let ListedNode { object: cached, .. } = serde_json::from_value(json!(node)).unwrap();
    let (watched, now) = (Watched::default(), Instant::now());
    let assessment = assess(&cached.node, policy, Consent::Known { name: "new", watched: &watched, now });
    let born = taints(node);
    let added = assessment.plan.taints.map(|change| change.added).unwrap_or_default();
    added.into_iter().filter(|taint| !born.iter().any(|other| other.same_identity(taint))).collect()
}

#[tokio::test]
async fn nodes_are_registered_with_the_taints_that_the_operator_would_add() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    install(&harness.client, "born-tainted").await;
    let mut runner = TestRunner::deterministic();
    let pools = pools(&harness, &mut runner).await;
    let entries = pools.iter().map(|object| PoolEntry { pool: Arc::new(read(object)), ready: true });
    let policy = Policy::new(entries, BTreeSet::new());
    pool(&harness, "last", json!({"nodeSelector": {"group": "last"}, "taintPolicy": "TaintOnly"}), json!({})).await;
    let probe = SimulatedNode::server_2022("probe").label("group", "last").node();
    let born = |node: &Node| taints(node).contains(&Taint::os_windows());
    admitted_until(&harness.nodes(), &json!(probe), "the policy is in force", born).await;

    let nodes = (0..NODES).map(|number| {
        let node = generated_node(&mut runner, number).node();
        let claimed = node.annotations().contains_key(APPLIED);
        let expected = if claimed { BTreeSet::new() } else { planned(&node, &policy) };
        (number, node, expected)
    });
    let nodes: Vec<_> = nodes.filter(|(number, _, expected)| is_sent(*number, expected)).collect();
    let admitted = stream::iter(nodes).map(|(_, node, expected)| {
        let api = harness.nodes();
        async move { admitted::<Node>(&api, &json!(node)).await.map(|born| (node, expected, born)) }
    });
    let admitted: Vec<_> = admitted.buffered(HANDS).try_collect().await.unwrap();
    let mut with_taints = 0;
    for (sent, expected, born) in admitted {
        let mut added = taints(&born);
        added.retain(|taint| !taints(&sent).contains(taint) && !taint.has_foreign_key());
        let group = &sent.labels()["group"];
        let object = pools.iter().find(|pool| pool.name_any() == *group);
        assert_eq!(added, expected, "{:#?}\n{:#}", taints(&sent), json!(object));
        if !expected.is_empty() {
            with_taints += 1;
            let marks = Applied { pool: group.clone(), taints: expected.iter().map(ToString::to_string).collect() };
            assert_eq!(born.annotations()[APPLIED], marks.to_annotation(), "in the order in which winpool writes them");
            assert_eq!(born.labels()["winpool.dev/pool"], *group);
        }
    }
    println!("{with_taints} of {NODES} nodes were tainted");
    assert!((NODES / 5..NODES * 4 / 5).contains(&with_taints), "{with_taints} of {NODES} were tainted");
    assert_no_panic(&harness.server);
}

fn generated_pod(runner: &mut TestRunner) -> Value {
    let toleration =
        (option::of(key()), option::of(value()), select(vec!["", "NoSchedule", "NoExecute"]), any::<bool>());
    let toleration = toleration.prop_map(|(key, value, effect, exists)| {
        let mut toleration = json!({});
        if let Some(key) = key {
            toleration["key"] = json!(key);
        }
        if exists || key.is_none() {
            toleration["operator"] = json!("Exists");
        } else if let Some(value) = value.filter(|value| !value.is_empty()) {
            toleration["value"] = json!(value);
        }
        if !effect.is_empty() {
            toleration["effect"] = json!(effect);
        }
        toleration
    });
    let says = vec![
        json!({}),
        json!({"os": {"name": "windows"}}),
        json!({"os": {"name": "linux"}}),
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
        json!({"os": {"name": "windows"}, "nodeSelector": {"other": "a"}}),
    ];
    let group = prop::option::weighted(0.9, 0..POOLS);
    let labels = btree_map(select(vec!["other", "more"]), select(vec!["a", "b"]), 0..2);
    let (mut spec, group, labels, tolerations) = draw(runner, &(select(says), group, labels, vec(toleration, 0..4)));
    if let Some(group) = group {
        spec["nodeSelector"]["group"] = json!(format!("pool-{group}"));
    }
    for (key, value) in labels {
        spec["nodeSelector"][key] = json!(value);
    }
    spec["tolerations"] = json!(tolerations);
    pod(&spec)
}

/// The taints that a Windows pod has to tolerate on account of this pool.
fn to_tolerate(pool: &Pool) -> BTreeSet<Taint> {
    let wanted = match &pool.spec.wants {
        Some(WantedTaints::Exactly(list)) => list.clone(),
        _ => SPELLINGS.iter().map(|s| Taint::new(s.key, s.value, "NoSchedule")).collect(),
    };
    wanted.into_iter().chain(pool.spec.retired_taints.clone()).collect()
}

fn tolerations(pod: &Value) -> Vec<Toleration> {
    serde_json::from_value(pod["spec"]["tolerations"].clone()).unwrap()
}

/// The taints for which winpool finds no toleration in this pod.
fn missing(pod: &Value, pools: &[Pool]) -> BTreeSet<Taint> {
    let selector = &pod["spec"]["nodeSelector"];
    let says_windows = (pod["spec"]["os"]["name"] == "windows" || selector["kubernetes.io/os"] == "windows")
        && selector["kubernetes.io/os"] != "linux";
    let concerned = |pool: &&Pool| {
        let fits = |(key, value): (&String, &String)| selector.get(key).is_none_or(|own| own == value);
        says_windows && pool.spec.adds_tolerations() && pool.spec.node_selector.iter().all(fits)
    };
    let spec = PodSpec { tolerations: tolerations(pod), ..PodSpec::default() };
    let mut missing: BTreeSet<Taint> = pools.iter().filter(concerned).flat_map(to_tolerate).collect();
    if says_windows && selector.get("group").is_none() {
        missing.extend(SPELLINGS.iter().map(|s| Taint::new(s.key, s.value, "NoSchedule")));
    }
    missing.retain(|taint| !tolerate(&spec.tolerations, taint));
    missing
}

#[tokio::test]
async fn pods_get_the_tolerations_that_winpool_finds_missing() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let mut runner = TestRunner::deterministic();
    let pools: Vec<Pool> = pools(&harness, &mut runner).await.iter().map(read).collect();
    pool(&harness, "last", json!({"nodeSelector": {"group": "last"}}), json!({})).await;
    install(&harness.client, "tolerate-windows").await;
    let default: Api<Pod> = pods(&harness.client, "default");
    let probe = pod(&json!({"os": {"name": "windows"}, "nodeSelector": {"group": "last"}}));
    let tolerant = |pod: &Pod| json!(pod)["spec"]["tolerations"].to_string().contains("Win1809");
    admitted_until(&default, &probe, "the policy is in force", tolerant).await;

    let sent = (0..PODS).map(|number| {
        let pod = generated_pod(&mut runner);
        let expected = missing(&pod, &pools);
        (number, pod, expected)
    });
    let sent: Vec<_> = sent.filter(|(number, _, expected)| is_sent(*number, expected)).collect();
    let admitted = stream::iter(sent).map(|(_, sent, expected)| {
        let api = default.clone();
        async move { admitted::<Pod>(&api, &sent).await.map(|pod| (sent, expected, pod)) }
    });
    let admitted: Vec<_> = admitted.buffered(HANDS).try_collect().await.unwrap();
    let mut changed = 0;
    for (sent, expected, got) in admitted {
        let before = tolerations(&sent);
        let got = json!(got);
        let mut added = tolerations(&got);
        added.retain(|toleration| !before.contains(toleration));
        let added: BTreeSet<Taint> = added
            .iter()
            .filter(|toleration| toleration.toleration_seconds.is_none())
            .map(|toleration| {
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                assert_eq!(toleration.operator.as_deref(), Some("Equal"));
                Taint::new(&text(&toleration.key), &text(&toleration.value), &*text(&toleration.effect))
            })
            .collect();
        assert_eq!(added, expected, "{sent:#}");
        changed += usize::from(!expected.is_empty());
    }
    println!("{changed} of {PODS} pods were changed");
    assert!((PODS / 10..PODS * 4 / 5).contains(&changed), "{changed} of {PODS} were changed");
    assert_no_panic(&harness.server);
}
