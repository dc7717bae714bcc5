//! The requests that `guard` and the policies of `config/rbac/` refuse, field by field, and winpool's work with all of them.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, condition, has_taint, label, scheduling, taints};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::USER;

use super::{dry_run, install};

const POLICIES: [&str; 2] = ["winpool-guard-", "winpool-confine-"];

/// The message of the policy, if one of them refused.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if POLICIES.iter().any(|policy| status.message.contains(policy)) => {
            assert_eq!(status.code, 403, "{}", status.message);
            status.message.split("denied request: ").nth(1).map(str::to_owned)
        }
        Err(error) => panic!("not refused by a policy: {error}"),
    }
}

async fn merge<K>(client: &Client, name: &str, patch: Value) -> Option<String>
where
    K: kube::Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    refusal(Api::<K>::all(client.clone()).patch(name, &dry_run, &Patch::Merge(patch)).await)
}

async fn guarded(harness: &Harness) -> Client {
    install(&harness.client, "guard").await;
    let client = harness.server.client_as(USER, &["system:masters"]).unwrap();
    let spec = json!({"spec": {"runtimeClassDiscovery": "Disabled"}});
    let listed =
        json!({"metadata": {"name": "new", "labels": {"app.kubernetes.io/managed-by": "winpool"}}, "handler": "runc"});
    let listed: RuntimeClass = serde_json::from_value(listed).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let tainted =
        json!([{"op": "add", "path": "/spec/taints/-", "value": {"key": "dedicated", "effect": "NoSchedule"}}]);
    let tainted = Patch::<()>::Json(serde_json::from_value(tainted).unwrap());
    let once = PatchParams { dry_run: true, ..PatchParams::default() };
    // Each policy comes into force separately.
    let in_force = async || {
        let refusals = [
            merge::<Node>(&client, "win", json!({"spec": {"unschedulable": true}})).await,
            refusal(nodes.patch("win", &once, &tainted).await),
            merge::<RuntimeClass>(&client, "foreign", json!({"overhead": {"podFixed": {"cpu": "1"}}})).await,
            refusal(Api::all(client.clone()).create(&dry_run(), &listed).await),
            merge::<WindowsPool>(&client, "default", spec.clone()).await,
        ];
        Ok(refusals.iter().all(Option::is_some).then_some(()))
    };
    wait_for("the policies are in force", LIMIT, in_force).await.unwrap();
    client
}

fn class(name: &str, handler: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "handler": handler})
}

async fn scene(harness: &Harness) {
    let win = SimulatedNode::server_2022("win")
        .label("example.com/mine", "a")
        .annotation("example.com/mine", "a")
        .taint("example.com/mine", "a", "NoSchedule")
        .taint("os", "windows", "NoExecute")
        .taint("sku", "windows", "NoSchedule");
    harness.join_node(win).await;
    let record = json!({"pool": "default", "taints": [OS_WINDOWS]}).to_string();
    let linux = SimulatedNode::linux().name("linux").taint("os", "windows", "NoSchedule").label(POOL, "default");
    linux.annotation(APPLIED, &record).join(&harness.client).await.unwrap();
    let _: RuntimeClass = harness.create(class("foreign", "runhcs-wcow-process", &json!({"team": "a"}))).await;
    harness.apply_pool(json!({})).await;
}

#[tokio::test]
async fn every_change_of_a_node_that_is_not_winpools_is_refused() {
    let harness = Harness::unguarded().await;
    scene(&harness).await;
    let client = guarded(&harness).await;
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let mine = json!({"key": "example.com/mine", "value": "a", "effect": "NoSchedule"});
    let evicting = json!({"key": "os", "value": "windows", "effect": "NoExecute"});
    let sku = json!({"key": "sku", "value": "windows", "effect": "NoSchedule"});
    let assessment = harness.node("win").await.spec.unwrap().taints.unwrap();
    assert_eq!(json!(assessment), json!([mine, evicting, sku, not_ready]));
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let os = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});

    let allowed = [
        metadata("labels", json!({BUILD: "10.0.1", POOL: "default", "runs.winpool.dev/10.0.20348": "true"})),
        metadata("labels", json!({BUILD: null})),
        metadata("annotations", json!({APPLIED: "{}"})),
        taints(json!([mine, evicting, sku, not_ready, os])),
        taints(json!([os, mine, evicting, not_ready])),
        taints(json!([mine, evicting, {"key": "sku", "value": "other", "effect": "PreferNoSchedule"}, not_ready])),
    ];
    for patch in allowed {
        assert_eq!(merge::<Node>(&client, "win", patch.clone()).await, None, "{patch}");
    }
    let refused = [
        (json!({"spec": {"unschedulable": true}}), "spec"),
        (json!({"spec": {"providerID": "aws:///i-1"}}), "spec"),
        (json!({"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}), "spec"),
        (metadata("finalizers", json!(["example.com/stay"])), "metadata"),
        (
            metadata("ownerReferences", json!([{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}])),
            "metadata",
        ),
        (metadata("labels", json!({"example.com/mine": "b"})), "labels"),
        (metadata("labels", json!({"example.com/mine": null})), "labels"),
        (metadata("labels", json!({"example.com/new": "a"})), "labels"),
        (metadata("labels", json!({"kubernetes.io/os": "linux"})), "labels"),
        (metadata("labels", json!({"node-role.kubernetes.io/control-plane": ""})), "labels"),
        (metadata("annotations", json!({"example.com/mine": null})), "annotation"),
        (metadata("annotations", json!({"winpool.dev/ignore": "true"})), "annotation"),
        (taints(json!([evicting, sku, not_ready])), "taintKeys"),
        (taints(json!([not_ready, evicting, sku, mine])), "taintKeys"),
        (taints(json!([mine, evicting, sku, not_ready, {"key": "dedicated", "effect": "NoSchedule"}])), "taintKeys"),
        (taints(json!([mine, sku, not_ready])), "NoExecute"),
        (taints(json!([mine, evicting, sku, not_ready, {"key": "windows", "effect": "NoExecute"}])), "NoExecute"),
    ];
    for (patch, about) in refused {
        let message = merge::<Node>(&client, "win", patch.clone()).await;
        assert!(message.as_ref().is_some_and(|message| message.contains(about)), "{patch}: {message:?}");
    }
    // On a node that is Linux now, winpool's labels and annotation may be removed but not added.
    let off = json!({
        "metadata": {"labels": {POOL: null, BUILD: null}, "annotations": {APPLIED: null}},
        "spec": {"taints": [not_ready]},
    });
    assert_eq!(merge::<Node>(&client, "linux", off).await, None);
    for (patch, about) in [
        (metadata("labels", json!({BUILD: "10.0.1"})), "labels"),
        (metadata("annotations", json!({APPLIED: "{\"pool\":\"a\"}"})), "annotation"),
        (taints(json!([os, not_ready, {"key": "windows", "effect": "NoSchedule"}])), "not Windows"),
    ] {
        let message = merge::<Node>(&client, "linux", patch.clone()).await;
        assert!(message.as_ref().is_some_and(|message| message.contains(about)), "{patch}: {message:?}");
    }

    let nodes: Api<Node> = Api::all(client.clone());
    let status = Patch::Merge(json!({"status": {"phase": "Terminated"}}));
    let once = PatchParams { dry_run: true, ..PatchParams::default() };
    assert!(refusal(nodes.patch_status("win", &once, &status).await).is_some());
    assert!(refusal(nodes.create(&dry_run(), &SimulatedNode::linux().name("new").node()).await).is_some());
    let gone = DeleteParams { dry_run: true, ..DeleteParams::default() };
    assert!(refusal(nodes.delete("win", &gone).await).is_some());
    let proxy = http::Request::get("/api/v1/nodes/win/proxy/").body(Vec::new()).unwrap();
    assert!(refusal(client.request_text(proxy).await).is_some());
    // Other users are not affected.
    for client in [
        harness.client.clone(),
        harness.server.client_as("system:serviceaccount:a:winpool", &["system:masters"]).unwrap(),
    ] {
        assert_eq!(merge::<Node>(&client, "win", json!({"spec": {"unschedulable": true}})).await, None);
    }
}

#[tokio::test]
async fn the_operator_cannot_write_foreign_classes_and_pools() {
    let harness = Harness::unguarded().await;
    scene(&harness).await;
    for (name, handler, labels) in [
        ("adopted", "runhcs-wcow-process", json!({"winpool.dev/pool": "default"})),
        (
            "made",
            "runhcs-wcow-process",
            json!({"app.kubernetes.io/managed-by": "winpool", "winpool.dev/pool": "default"}),
        ),
        ("gvisor", "runsc", json!({"app.kubernetes.io/managed-by": "winpool", "winpool.dev/pool": "default"})),
    ] {
        let _: RuntimeClass = harness.create(class(name, handler, &labels)).await;
    }
    let client = guarded(&harness).await;
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    let create =
        async |class: Value| refusal(classes.create(&dry_run(), &serde_json::from_value(class).unwrap()).await);
    let own = json!({"app.kubernetes.io/managed-by": "winpool", "winpool.dev/pool": "default"});
    assert_eq!(create(class("new", "runhcs-wcow-process", &own)).await, None);
    assert_eq!(create(class("new", "runhcs-wcow-hypervisor", &own)).await, None);
    for (class, about) in [
        (class("new", "runc", &own), "handlers"),
        (class("new", "runhcs-wcow-process", &json!({"winpool.dev/pool": "default"})), "managed-by"),
    ] {
        let message = create(class.clone()).await;
        assert!(message.as_ref().is_some_and(|message| message.contains(about)), "{class}: {message:?}");
    }
    let scheduling = json!({"scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}}});
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let adopt = labels(json!({"winpool.dev/pool": "default"}));
    let mut adopt_and_change = adopt.clone();
    adopt_and_change["scheduling"] = scheduling["scheduling"].clone();
    for (name, patch, about) in [
        ("made", scheduling.clone(), None),
        ("adopted", scheduling.clone(), None),
        ("foreign", adopt, None),
        ("made", labels(json!({"winpool.dev/pool": null, "app.kubernetes.io/managed-by": null})), None),
        ("foreign", scheduling, None),
        ("foreign", adopt_and_change, None),
        ("adopted", json!({"overhead": {"podFixed": {"cpu": "1"}}}), Some("only add to the scheduling")),
        ("foreign", json!({"overhead": {"podFixed": {"cpu": "1"}}}), Some("only add to the scheduling")),
        ("foreign", labels(json!({"team": "b"})), Some("its own labels")),
        ("foreign", labels(json!({"app.kubernetes.io/managed-by": "winpool"})), Some("its own labels")),
        ("adopted", labels(json!({"app.kubernetes.io/managed-by": "winpool"})), Some("its own labels")),
        ("made", json!({"metadata": {"annotations": {"a": "b"}}}), Some("its own labels")),
        ("made", json!({"metadata": {"finalizers": ["example.com/stay"]}}), Some("its own labels")),
        ("gvisor", json!({"overhead": {"podFixed": {"cpu": "1"}}}), Some("handlers")),
    ] {
        let message = merge::<RuntimeClass>(&client, name, patch.clone()).await;
        let expected = match (&message, about) {
            (Some(message), Some(about)) => message.contains(about),
            (message, about) => message.is_none() && about.is_none(),
        };
        assert!(expected, "{name}: {patch}: {message:?}");
    }
    let gone = DeleteParams { dry_run: true, ..DeleteParams::default() };
    for (name, refused) in [("made", false), ("adopted", true), ("foreign", true), ("gvisor", true)] {
        assert_eq!(refusal(classes.delete(name, &gone).await).is_some(), refused, "{name}");
    }

    let pools: Api<WindowsPool> = Api::all(client.clone());
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    assert_eq!(merge::<WindowsPool>(&client, "default", finalizers(json!(["winpool.dev/cleanup"]))).await, None);
    let status = Patch::Merge(json!({"status": {"taints": [{"taint": OS_WINDOWS}]}}));
    let once = PatchParams { dry_run: true, ..PatchParams::default() };
    assert_eq!(refusal(pools.patch_status("default", &once, &status).await), None);
    for patch in [
        json!({"spec": {"mode": "DryRun"}}),
        finalizers(json!(["example.com/stay"])),
        labels(json!({"a": "b"})),
        json!({"metadata": {"annotations": {"a": "b"}}}),
    ] {
        assert!(merge::<WindowsPool>(&client, "default", patch.clone()).await.is_some(), "{patch}");
    }
    let new: WindowsPool = serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {}})).unwrap();
    assert!(refusal(pools.create(&dry_run(), &new).await).is_some());
    assert!(refusal(pools.delete("default", &gone).await).is_some());
}

#[tokio::test]
async fn under_guard_winpool_does_all_its_work() {
    let harness = Harness::unguarded().await;
    scene(&harness).await;
    guarded(&harness).await;
    let _operator = harness.operator().await;
    harness
        .apply_pool(json!({"runtimeClasses": [
            {"name": "windows-2019", "version": "2019", "hostMatch": "Compatible"},
        ]}))
        .await;
    let name = "fresh";
    harness.join_node(SimulatedNode::server_2019(name).without_label(BUILD)).await;
    let right = |node: &Node| has_taint(node, OS_WINDOWS) && label(node, BUILD) == Some("10.0.17763");
    let node = harness.node_until(name, "is right", right).await;
    assert_eq!(label(&node, "runs.winpool.dev/10.0.17763"), Some("true"));
    // winpool removes what it wrote while the node was Windows.
    harness.node_until("linux", "has lost its marks", |node| label(node, POOL).is_none()).await;
    harness.ready("default").await;

    // A drifted class is repaired, a deleted class gets its new handler, a changed taint replaces the old one.
    let drift = json!({"scheduling": {"nodeSelector": {"kubernetes.io/os": "linux"}}});
    winpool_e2e::harness::merge(&harness.classes(), "windows-2022", drift).await;
    let repaired = |class: &RuntimeClass| scheduling(class)["nodeSelector"]["kubernetes.io/os"] == "windows";
    harness.class_until("windows-2022", "is repaired", repaired).await;
    harness
        .apply_pool(json!({
            "taints": [{"key": "windows", "value": "true", "effect": "NoSchedule"}],
            "runtimeClasses": [{"name": "windows-2019", "version": "2019", "handler": "runhcs-wcow-hypervisor"}],
        }))
        .await;
    let changed = |node: &Node| taints(node)[1..] == ["windows=true:NoSchedule"];
    harness.node_until(name, "has the other taint", changed).await;
    harness.classes().delete("windows-2019", &DeleteParams::default()).await.unwrap();
    harness.class_until("windows-2019", "is made again", |class| class.handler == "runhcs-wcow-hypervisor").await;
    let pool = harness.ready("default").await;
    assert_eq!(condition(&pool, "Ready"), Some("True"));
    assert_eq!(pool.finalizers(), ["winpool.dev/cleanup"]);

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let node = harness.node(name).await;
    assert_eq!((taints(&node).len(), label(&node, POOL)), (1, None));
    assert!(harness.classes().get_opt("windows-2019").await.unwrap().is_none());
    let released = harness.classes().get("windows-2022").await.unwrap();
    assert!(!released.labels().contains_key(POOL), "it stays for os=windows:NoExecute of another writer");
}

#[tokio::test]
async fn a_taint_that_the_guard_does_not_list_is_refused_and_reported() {
    let harness = Harness::unguarded().await;
    scene(&harness).await;
    guarded(&harness).await;
    let _operator = harness.operator().await;
    harness
        .apply_pool(json!({"taints": [{"key": "dedicated", "effect": "NoSchedule"}], "taintPolicy": "TaintOnly"}))
        .await;
    let pool = harness.nodes_until("default", "has its blocked node", |nodes| nodes.blocked == 1).await;
    let status = pool.status.unwrap();
    let problems = &status.problems;
    let problem = problems.iter().find(|problem| problem.reason == "AdmissionDenied").unwrap();
    assert!(problem.message.contains("winpool-guard-nodes lists in taintKeys"), "{problem:?}");
    harness.class_until("windows-2022", "is there", |_| true).await;
}
