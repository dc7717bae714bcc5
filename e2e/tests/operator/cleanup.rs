//! `winpool-operator cleanup` removes everything of winpool and nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_client::kubeconfig::Connection;
use winpool_client::terminal::Outcome;
use winpool_core::election::has_holder;
use winpool_e2e::harness::account::{INSTALLATION, NAMESPACE};
use winpool_e2e::harness::objects::{BUILD, face, has_taint, label, taint, taints};
use winpool_e2e::harness::operator::{Operator, alone, options};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::audit::AuditLog;
use winpool_operator::Options;
use winpool_operator::cleanup::{Arguments, CleanupError, clean_up};

const LABEL: &str = "runs.winpool.dev/10.0.20348";
const IGNORED: &str = "winpool.dev/ignore";

/// Runs the command as the user `winpool`, whom the audit log follows, and answers yes when it asks. Returns what it
/// printed and how it ended.
async fn clean(server: &ApiServer, groups: &[&str]) -> (String, Result<Outcome, CleanupError>) {
    clean_and_answer(server, groups, true, false).await
}

pub(super) fn arguments() -> Arguments {
    Arguments {
        yes: false,
        dry_run: false,
        uninstalling: false,
        connection: Connection::default(),
        lease_namespace: Some("default".to_owned()),
        installation: "winpool".to_owned(),
    }
}

async fn clean_and_answer(
    server: &ApiServer,
    groups: &[&str],
    answer: bool,
    dry_run: bool,
) -> (String, Result<Outcome, CleanupError>) {
    let arguments = Arguments { dry_run, ..arguments() };
    let mut out = Vec::new();
    let config = server.config_as("winpool", groups).unwrap();
    let outcome = Box::pin(clean_up(config, &arguments, &mut out, || Ok(answer))).await;
    (String::from_utf8(out).unwrap(), outcome)
}

fn writes(log: &AuditLog) -> usize {
    log.requests().iter().filter(|request| request.verb != "get").count()
}

/// Two pools, one of which lists its taints; nodes of all kinds. Returns the nodes as they were before.
async fn a_cluster_with_a_history(harness: &Harness) -> BTreeMap<&'static str, Value> {
    let (old, new) = ("10.0.17763.6659", "10.0.20348.2655");
    let nodes = [
        SimulatedNode::windows(old).name("a-1").label("team", "a").without_label(BUILD).taint("spot", "", "NoSchedule"),
        SimulatedNode::windows(old).name("a-2").label("team", "a"),
        SimulatedNode::windows(new).name("b-1").label("team", "b"),
        SimulatedNode::windows(new).name("b-guarded").label("team", "b").taint("os", "Windows", "NoSchedule"),
        SimulatedNode::windows(new).name("b-ignored").label("team", "b"),
        SimulatedNode::windows(new).name("b-reimaged").label("team", "b"),
        SimulatedNode::linux().name("linux").label("team", "b"),
    ];
    let (mut before, mut kubelets) = (BTreeMap::new(), BTreeMap::new());
    let names = ["a-1", "a-2", "b-1", "b-guarded", "b-ignored", "b-reimaged", "linux"];
    for (name, node) in names.into_iter().zip(nodes) {
        kubelets.insert(name, harness.join_node(node).await);
        before.insert(name, face(&harness.node(name).await));
    }
    let operator = harness.operator().await;
    let exact = json!([taint("windows=true:NoSchedule"), taint("os=windows:PreferNoSchedule")]);
    harness.apply_pool_named("a", json!({"nodeSelector": {"team": "a"}, "taints": exact})).await;
    harness
        .apply_pool_named(
            "b",
            json!({"nodeSelector": {"team": "b"}, "runtimeClassNameFormat": "b-{version}", "runtimeClasses": [
                {"name": "compatible", "version": "2022", "hostMatch": "Compatible"}, {"name": "used", "version": "2022"},
            ]}),
        )
        .await;
    harness.ready("a").await;
    harness.ready("b").await;
    harness.run_pod("app", json!({"nodeName": "b-1", "runtimeClassName": "used"})).await;
    operator.stop().await;

    harness.edit_node("b-ignored", json!({"metadata": {"annotations": {IGNORED: "true"}}})).await;
    kubelets["b-reimaged"].reimage(SimulatedNode::linux()).await.unwrap();
    before
}

#[tokio::test]
async fn cleanup_restores_the_cluster_and_a_second_run_writes_nothing() {
    let (harness, log) = Harness::audited().await;
    let before = a_cluster_with_a_history(&harness).await;
    for name in ["a-1", "b-1", "b-ignored", "b-reimaged"] {
        assert_ne!(face(&harness.node(name).await), before[name], "{name}");
    }
    let ignored = face(&harness.node("b-ignored").await);
    // Later changes by others stay.
    let theirs = json!({"metadata": {"labels": {"example.com/label": "x"}, "annotations": {"example.com/note": "y"}}});
    harness.edit_node("a-2", theirs.clone()).await;

    let sent = writes(&log);
    for dry_run in [true, false] {
        let (text, outcome) = clean_and_answer(&harness.server, &["system:masters"], false, dry_run).await;
        assert_eq!(outcome.unwrap(), Outcome::Pending, "{text}");
    }
    assert_eq!(writes(&log), sent, "a dry run or a no writes nothing");

    let (text, outcome) = clean(&harness.server, &["system:masters"]).await;
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
    for said in [
        "5 Nodes with winpool's labels, annotation and taints:\n  a-1, a-2, b-1, b-guarded, b-reimaged\n",
        "4 RuntimeClasses; those that pods use stay, without winpool's labels:\n  b-2022, compatible, used, windows-2019\n",
        "2 WindowsPools; winpool removes the finalizer winpool.dev/cleanup:\n  a, b\n",
        "Not changed: 1 Node with winpool.dev/ignore: \"true\":\n  b-ignored\n",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }

    for name in ["a-1", "b-1", "b-guarded", "linux"] {
        let mut expected = before[name].clone();
        if name.starts_with("b-") {
            expected["labels"][LABEL] = "true".into();
        }
        assert_eq!(face(&harness.node(name).await), expected, "{name}");
    }
    let mut expected = before["a-2"].clone();
    expected["labels"]["example.com/label"] = "x".into();
    expected["annotations"]["example.com/note"] = "y".into();
    assert_eq!(face(&harness.node("a-2").await), expected);
    assert_eq!(face(&harness.node("b-ignored").await), ignored);
    let reimaged = harness.node("b-reimaged").await;
    assert_eq!((label(&reimaged, POOL), label(&reimaged, BUILD)), (None, None));
    assert_eq!(taints(&reimaged), ["node.kubernetes.io/not-ready:NoSchedule"]);
    let fact = harness.node("a-1").await;
    assert_eq!(label(&fact, BUILD), Some("10.0.17763"), "a fact about the node stays");
    let classes = harness.classes().list(&ListParams::default()).await.unwrap();
    let classes: Vec<_> = classes.items.iter().map(|class| (class.name_any(), class.labels().clone())).collect();
    assert_eq!(classes, ["b-2022", "compatible", "used"].map(|name| (name.to_owned(), BTreeMap::new())));
    for pool in ["a", "b"] {
        let pool = harness.pools().get(pool).await.unwrap();
        assert!(pool.finalizers().is_empty() && pool.metadata.deletion_timestamp.is_none());
    }

    let sent = writes(&log);
    let (text, outcome) = clean(&harness.server, &["system:masters"]).await;
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
    assert!(text.starts_with("winpool has nothing to remove"), "{text}");
    assert_eq!(writes(&log), sent);
    harness.delete_definition().await;
    harness.definition_is_gone().await;
}

#[tokio::test]
async fn marks_of_a_missing_pool_are_removed_without_the_crd_and_a_taint_is_reported() {
    let server = winpool_e2e::servers::lending::lend().await.unwrap();
    let client = server.client();
    let applied = format!(r#"{{"pool":"gone","taints":["{OS_WINDOWS}","node.kubernetes.io/not-ready:NoSchedule"]}}"#);
    let node = SimulatedNode::server_2019("win").taint("os", "windows", "NoSchedule");
    node.label(POOL, "gone").annotation(APPLIED, &applied).join(&client).await.unwrap();
    let class = json!({
        "metadata": {"name": "windows-2019", "labels": {"app.kubernetes.io/managed-by": "winpool", POOL: "gone"}},
        "handler": "runhcs-wcow-process",
    });
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();

    let (text, outcome) = clean(&server, &["system:masters"]).await;
    assert!(matches!(outcome, Err(CleanupError::Doubtful)), "{outcome:?}\n{text}");
    assert!(
        text.contains(&format!("  {OS_WINDOWS}; if it is winpool's: kubectl taint nodes win os:NoSchedule-\n")),
        "{text}"
    );
    assert_eq!(text.matches("kubectl taint").count(), 1, "it names no command for the taint not-ready\n{text}");
    let node: Node = Api::all(client).get("win").await.unwrap();
    assert_eq!(taints(&node), [OS_WINDOWS, "node.kubernetes.io/not-ready:NoSchedule"]);
    assert!(!node.labels().keys().any(|key| key.contains("winpool.dev")), "{:?}", node.labels());
    assert!(!node.annotations().contains_key(APPLIED));
    let labels = classes.get("windows-2019").await.unwrap().metadata.labels;
    assert_eq!(labels, None, "no status records that winpool created it");
    let (text, outcome) = clean(&server, &["system:masters"]).await;
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
}

#[tokio::test]
async fn cleanup_names_a_missing_permission_and_what_is_left() {
    let harness = Harness::new().await;
    for name in ["win-1", "win-2"] {
        harness.join_node(SimulatedNode::server_2019(name)).await;
    }
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;

    let (text, outcome) = clean(&harness.server, &["nobody"]).await;
    let error = outcome.unwrap_err().to_string();
    assert!(
        error.contains(r#"User "winpool" cannot list resource "windowspools" in API group "winpool.dev""#),
        "{error}"
    );
    assert_eq!(text, "");

    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["*"]},
        {"apiGroups": ["winpool.dev"], "resources": ["windowspools"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]},
    ]);
    harness.create::<ClusterRole>(json!({"metadata": {"name": "readers"}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    });
    harness.create::<ClusterRoleBinding>(binding).await;
    let readable = async || Ok(clean_and_answer(&harness.server, &["readers"], false, true).await.1.ok());
    assert_eq!(wait_for("the rights are known", LIMIT, readable).await.unwrap(), Outcome::Pending);

    let (_, outcome) = clean(&harness.server, &["readers"]).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("these are left:\n  Node win-1\n  Node win-2\nFor what"), "{error}");
    let is_kept = async || has_taint(&harness.node("win-1").await, OS_WINDOWS);
    assert!(is_kept().await);
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert!(!class.labels().contains_key(POOL), "nodes keep a taint that it tolerates");
    // With the permission another run removes the rest.
    let (text, outcome) = clean(&harness.server, &["system:masters"]).await;
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
    assert!(!is_kept().await);
}

#[tokio::test]
async fn a_running_operator_stands_by_and_reverts_nothing() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2019("win")).await;
    let before = face(&harness.node("win").await);
    let operator = Operator::elected(&harness.server, "operator");
    harness.apply_until_ready(json!({})).await;
    let (text, outcome) = clean(&harness.server, &["system:masters"]).await;
    let error = outcome.unwrap_err().to_string();
    let stands_by =
        "everything is removed, but an operator is running: it is paused for 10 minutes and then restores everything.";
    assert!(error.contains(stands_by) && !text.contains("Done."), "{error}\n{text}");
    // It sees a change that it would repair, and does not repair it.
    harness.edit_node("win", json!({"metadata": {"labels": {BUILD: "10.0.1"}}})).await;
    operator.stop().await;
    assert_eq!(face(&harness.node("win").await), before);
    assert_eq!(label(&harness.node("win").await, BUILD), Some("10.0.1"));
    assert!(harness.pools().get("default").await.unwrap().finalizers().is_empty());
}

/// The command cannot take the Lease of these operators.
#[tokio::test]
async fn cleanup_fails_if_an_operator_restores_everything() {
    for options in [alone(), Options { lease_namespace: Some(NAMESPACE.to_owned()), ..options() }] {
        let harness = Harness::new().await;
        harness.join_node(SimulatedNode::server_2019("win")).await;
        let operator = Operator::start_with(harness.account.config.clone(), options.clone());
        harness.apply_until_ready(json!({})).await;
        let (text, outcome) = clean(&harness.server, &["system:masters"]).await;
        let Err(error) = outcome else { panic!("{options:?} {outcome:?}\n{text}") };
        let error = error.to_string();
        assert!(error.starts_with("these are left:\n") && error.contains("  WindowsPool default\n"), "{error}");
        assert!(error.contains("if its Lease is not in namespace default, or if it runs with"), "{error}");
        assert!(!text.contains("Done."), "{text}");
        operator.stop().await;
        assert_eq!(harness.account.held().await, INSTALLATION, "an operator that goes on cleans up when it is removed");
    }
}

/// While Helm deletes it, a replica may see that another one has just released the Lease, or may be the first one to start.
#[tokio::test]
async fn an_uninstall_keeps_a_lease_without_holder_from_the_operator_that_is_deleted_next() {
    let harness = Harness::new().await;
    keeps_the_lease(&harness).await;
    harness.join_node(SimulatedNode::server_2019("win")).await;
    leases(&harness).delete("winpool", &DeleteParams::default()).await.unwrap();
    let operator = Operator::elected(&harness.server, "operator");
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;
    assert!(!is_held(&harness).await, "it was released");
    keeps_the_lease(&harness).await;
}

async fn keeps_the_lease(harness: &Harness) {
    let arguments = Arguments { uninstalling: true, ..arguments() };
    let config = harness.server.config_as("winpool", &["system:masters"]).unwrap();
    let outcome = Box::pin(clean_up(config, &arguments, &mut Vec::new(), || Ok(true))).await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    assert!(is_held(harness).await, "no operator leads in the next minute");
}

fn leases(harness: &Harness) -> Api<Lease> {
    Api::default_namespaced(harness.client.clone())
}

async fn is_held(harness: &Harness) -> bool {
    leases(harness).get_opt("winpool").await.unwrap().is_some_and(|lease| has_holder(&lease))
}
