//! Generated nodes, pods and `DaemonSets`: the policies agree with winpool's planning functions, and with what the commands say of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use winpool_analysis::pod::{ClassExt, PodSpec};
use winpool_analysis::view::policies::{BINDING, POLICY};
use winpool_analysis::view::{Creation, Known, Related, Request, View};
use winpool_client::node::ListedNode;
use winpool_core::api::{Taint, WindowsPool};
use winpool_core::node::{Applied, Watched};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::pools::pool::{GuardedPool, Policy, Pool, PoolEntry};
use winpool_core::plan::taints::Consent;
use winpool_core::pod::tolerate;
use winpool_core::windows::taint::SPELLINGS;
use winpool_e2e::harness::objects::{BUILD as BUILD_LABEL, taints_at_registration, windows_class};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{APPLIED, Harness};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{
    admitted, admitted_until, assert_no_panic, class_status, install, namespace, pod, pods, pool, required, with_images,
};

const POOLS: usize = 16;
const NODES: usize = 1000;
const PODS: usize = 1000;
/// Requests in parallel.
const HANDS: usize = 16;
/// All nodes that have to change are sent, and one of this many of the others.
const UNCHANGED: usize = 4;
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

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

/// Classes in every state that policies tell apart.
const CLASSES: [(&str, &str, &str); 6] = [
    ("windows-2019", "10.0.17763", "Applied"),
    ("windows-2022", "10.0.20348", "Applied"),
    ("windows-2022-big", "10.0.20348", "Satisfied"),
    ("windows-2025", "10.0.26100", "Adopted"),
    ("conflicting", "10.0.20348", "Conflict"),
    ("any", "Any", "Applied"),
];

/// The pool that `assign-class` reads, with its classes and namespaces of each kind.
async fn assigning_pool(harness: &Harness) {
    let mut classes = Vec::new();
    for (name, build, state) in CLASSES {
        let labels = if build == "Any" { json!({}) } else { json!({BUILD_LABEL: build, "pool": "a"}) };
        let _: RuntimeClass = harness.create(windows_class(name, &labels)).await;
        classes.push(class_status(name, build, state));
    }
    let declared = json!([{"name": "windows-2022-big", "version": "2022", "nodeSelector": {"size": "big"}}]);
    let defaults = json!({"runtimeClassName": "windows-2022-big", "fromImageTags": true});
    let spec = json!({"nodeSelector": {"pool": "a"}, "runtimeClasses": declared, "podDefaults": defaults});
    let builds = json!([{"build": "10.0.20348", "nodes": 1, "runtimeClass": "windows-2022"}]);
    pool(harness, "default", spec, json!({"runtimeClasses": classes, "builds": builds})).await;
    for (name, labels) in [
        ("labelled", json!({"winpool.dev/runtime-class": "windows-2019"})),
        ("mixed", json!({"winpool.dev/default-os": "none"})),
        ("other", json!({"winpool.dev/default-os": "linux", "winpool.dev/runtime-class": "windows-2022-big"})),
    ] {
        namespace(&harness.client, name, labels).await;
    }
}

/// What the commands read of the cluster.
async fn view(harness: &Harness) -> View {
    let mut related = Related::default();
    for kind in [POLICY, BINDING] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let objects = Api::<DynamicObject>::all_with(harness.client.clone(), &resource);
        for object in objects.list(&ListParams::default()).await.unwrap() {
            related.add(kind, "", json!(object));
        }
    }
    let pools = harness.pools().list(&ListParams::default()).await.unwrap();
    let classes = Api::<RuntimeClass>::all(harness.client.clone()).list(&ListParams::default()).await.unwrap();
    let namespaces = Api::<Namespace>::all(harness.client.clone()).list(&ListParams::default()).await.unwrap();
    View {
        pools: Known::Complete(pools.items.into_iter().map(|pool| (None, GuardedPool::from(pool))).collect()),
        classes: Known::Complete(classes.items.into_iter().map(Arc::new).collect()),
        namespace_labels: namespaces.iter().map(|one| (one.name_any(), one.labels().clone())).collect(),
        related: Arc::new(related),
        ..View::default()
    }
}

fn any_toleration() -> impl Strategy<Value = Value> {
    let fields = (option::of(key()), option::of(value()), select(vec!["", "NoSchedule", "NoExecute"]), any::<bool>());
    fields.prop_map(|(key, value, effect, exists)| {
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
    })
}

/// A label of a node that the pod asks for. Few pods ask for one that keeps policies off.
fn any_label() -> impl Strategy<Value = (&'static str, String)> {
    let os = || select(vec!["windows", "windows", "linux"]).prop_map(str::to_owned);
    let text = |values: &[&str]| select(values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
    prop_oneof![
        2 => os().prop_map(|value| ("kubernetes.io/os", value)),
        1 => os().prop_map(|value| ("beta.kubernetes.io/os", value)),
        2 => text(&["amd64", "amd64", "arm64"]).prop_map(|value| ("kubernetes.io/arch", value)),
        1 => text(&["10.0.20348", "10.0.17763"]).prop_map(|value| (BUILD_LABEL, value)),
        1 => Just(("runs.winpool.dev/10.0.20348", "true".to_owned())),
        1 => Just(("kubernetes.io/hostname", "win-a".to_owned())),
        2 => text(&["a", "a", "b"]).prop_map(|value| ("pool", value)),
        1 => text(&["big", "small"]).prop_map(|value| ("size", value)),
        4 => (0..POOLS).prop_map(|number| ("group", format!("pool-{number}"))),
    ]
}

fn any_term() -> impl Strategy<Value = Value> {
    let operator = select(vec!["In", "In", "NotIn", "Exists", "DoesNotExist"]);
    let expression = (any_label(), operator).prop_map(|((key, value), operator)| {
        let mut expression = json!({"key": key, "operator": operator});
        if operator.ends_with("In") {
            expression["values"] = json!([value]);
        }
        expression
    });
    prop_oneof![
        8 => vec(expression, 1..3).prop_map(|expressions| json!({"matchExpressions": expressions})),
        1 => Just(json!({})),
        1 => Just(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["win-a"]}]})),
    ]
}

/// A pod, and true if it is the template of a DaemonSet.
fn any_pod() -> impl Strategy<Value = (Value, &'static str, bool)> {
    let images = select(vec![
        "app:1.0",
        "a:ltsc2022",
        "mcr.microsoft.com/windows/nanoserver:1809",
        "app:1809",
        "b:2.0-ltsc2022-amd64",
        "a:LTSC2022@sha256:0123456789012345678901234567890123456789012345678901234567890123",
        "app:10.0.17763.437",
        "a:ltsc2019-ltsc2022",
        "a:ltsc2025",
        "ltsc2022/app:1.0",
        "app:win2019",
        "a:ltsc2016",
        "windows-app:2022",
    ]);
    let choices = (
        option::weighted(0.6, select(vec!["windows", "windows", "windows", "linux"])),
        option::weighted(0.3, select(CLASSES.map(|(name, ..)| name).to_vec())),
        btree_map(select(vec![0, 1, 2]), any_label(), 0..3),
        prop_oneof![3 => Just(Vec::new()), 2 => vec(any_term(), 1..3)],
        vec(any_toleration(), 0..3),
        vec(images, 1..3),
        select(vec!["default", "default", "labelled", "mixed", "other", "kube-system"]),
        (prop::bool::weighted(0.1), prop::bool::weighted(0.05), prop::bool::weighted(0.05), prop::bool::weighted(0.2)),
    );
    choices.prop_map(|(os, class, labels, terms, tolerations, images, namespace, flags)| {
        let (has_options, is_ignored, has_node, is_daemon_set) = flags;
        let mut spec = with_images(&images);
        spec["nodeSelector"] = labels.into_values().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        spec["tolerations"] = json!(tolerations);
        if let Some(os) = os {
            spec["os"] = json!({"name": os});
        }
        if let Some(class) = class {
            spec["runtimeClassName"] = json!(class);
        }
        if !terms.is_empty() {
            spec["affinity"] = required(&json!(terms));
        }
        if has_options && os != Some("linux") {
            spec["securityContext"] = json!({"windowsOptions": {"runAsUserName": "ContainerUser"}});
        }
        if has_node && !is_daemon_set {
            spec["nodeName"] = json!("win-a");
        }
        let mut pod = pod(&spec);
        if is_ignored {
            pod["metadata"]["annotations"] = json!({"winpool.dev/ignore": "true"});
        }
        (pod, namespace, is_daemon_set)
    })
}

/// What policies and classes may change. Of tolerations, what they tolerate: the API server merges those of a class.
fn changed_fields(spec: &PodSpec) -> Value {
    let keys = SPELLINGS.iter().map(|own| (own.key, own.value)).chain([("example.com/own", ""), ("os-x", "windows")]);
    let taints = keys.flat_map(|(key, value)| EFFECTS.map(|effect| Taint::new(key, value, effect)));
    let tolerated: Vec<String> =
        taints.filter(|taint| tolerate(&spec.tolerations, taint)).map(|taint| taint.to_string()).collect();
    json!([spec.runtime_class, spec.node_selector, spec.terms, tolerated])
}

#[tokio::test]
async fn commands_know_what_policies_do_with_new_pods() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let mut runner = TestRunner::deterministic();
    pools(&harness, &mut runner).await;
    assigning_pool(&harness).await;
    for component in ["tolerate-windows", "assign-class", "linux-by-default"] {
        install(&harness.client, component).await;
    }
    pool(&harness, "last", json!({"nodeSelector": {"group": "last"}}), json!({})).await;
    let probe = pod(&json!({"os": {"name": "windows"}, "nodeSelector": {"group": "last"}}));
    let tolerant = |pod: &Pod| json!(pod)["spec"]["tolerations"].to_string().contains("Win1809");
    admitted_until(&pods(&harness.client, "default"), &probe, "tolerate-windows is in force", tolerant).await;
    let given = |pod: &Pod| json!(pod)["spec"]["runtimeClassName"] == "windows-2019";
    let probe = pod(&json!({"os": {"name": "windows"}}));
    admitted_until(&pods(&harness.client, "labelled"), &probe, "assign-class is in force", given).await;
    let to_linux =
        |set: &DaemonSet| json!(set)["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux";
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    admitted_until(&sets, &workload("DaemonSet", "probe", json!({})), "linux-by-default is in force", to_linux).await;

    let view = view(&harness).await;
    let (admission, classes) = (view.admission(), view.class_fields());
    let generated: Vec<_> = (0..PODS).map(|_| draw(&mut runner, &any_pod())).collect();
    let client = &harness.client;
    let answers = stream::iter(generated).map(|(pod, namespace, is_daemon_set)| async move {
        let got = if is_daemon_set {
            let mut set = workload("DaemonSet", "probe", pod["spec"].clone());
            set["metadata"]["annotations"] = pod["metadata"]["annotations"].clone();
            let set = admitted::<DaemonSet>(&Api::namespaced(client.clone(), namespace), &set).await;
            set.map(|set| json!(set)["spec"]["template"]["spec"].clone())
        } else {
            admitted::<Pod>(&pods(client, namespace), &pod).await.map(|pod| json!(pod)["spec"].clone())
        };
        (pod, namespace, is_daemon_set, got)
    });
    let (mut changed, mut refused, mut policies) = (0, 0, BTreeSet::new());
    for (pod, namespace, is_daemon_set, got) in answers.buffered(HANDS).collect::<Vec<_>>().await {
        let before: PodSpec = serde_json::from_value(pod["spec"].clone()).unwrap();
        let mut expected = before.clone();
        let request = if is_daemon_set { Request::DaemonSet } else { Request::Pod };
        let is_ignored = !pod["metadata"]["annotations"].is_null();
        let added = admission.admit(Creation { namespace, request, is_ignored }, &mut expected);
        changed += usize::from(!added.by_policies.is_empty());
        policies.extend(added.by_policies.iter().filter_map(|added| Some(added.split_once(' ')?.0.to_owned())));
        let class = expected.runtime_class.as_ref().filter(|_| !is_daemon_set).map(|name| &classes[name]);
        if let Some(class) = class {
            if class.conflict(&expected).is_some() {
                refused += 1;
                assert!(got.is_err(), "{namespace}: {pod:#}");
                continue;
            }
            class.admit(&mut expected);
        }
        let got: PodSpec = serde_json::from_value(got.unwrap_or_else(|error| panic!("{error}: {pod:#}"))).unwrap();
        assert_eq!(changed_fields(&got), changed_fields(&expected), "{namespace}, {:?}: {pod:#}", added.by_policies);
    }
    println!("{changed} of {PODS} were changed, and {refused} refused");
    assert!((PODS / 5..PODS * 9 / 10).contains(&changed), "{changed} of {PODS} were changed");
    assert!(
        policies.iter().eq(["assign-class", "host-affinity", "linux-by-default", "tolerate-windows"]),
        "{policies:?}"
    );
    assert_no_panic(&harness.server);
}
