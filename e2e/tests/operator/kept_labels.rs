//! Capability labels that no pool wants any more stay while pods need them: a kubelet that starts ends pods on its node
//! whose selector the labels no longer match.

use winpool_client::terminal::Outcome;
use winpool_e2e::prelude::*;
use winpool_operator::{Options, cleanup::clean_up};

use crate::cleanup::arguments;

const LABEL: &str = "runtimeclass.winpool.dev/any";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Exact,
    Renamed,
    NodesLeave,
    PoolDeleted,
    Uninstalled,
}

fn spec(name: &str, host_match: &str) -> Value {
    let classes = json!([{"name": name, "version": "2022", "hostMatch": host_match}]);
    json!({"nodeSelector": {"team": "a"}, "runtimeClassDiscovery": "Disabled", "runtimeClasses": classes})
}

/// Two nodes with the label, and a pod on the first one that selects it.
async fn stage() -> Harness {
    let harness = Harness::new().await;
    for name in ["used", "free"] {
        harness.join_node(SimulatedNode::server_2022(name).label("team", "a")).await;
    }
    harness
}

async fn with_a_pod(harness: &Harness) {
    harness.apply_until_ready(spec("any", "Compatible")).await;
    let pod = harness.run_pod("app", json!({"nodeName": "used", "runtimeClassName": "any"})).await;
    assert_eq!(pod.spec.unwrap().node_selector.unwrap()[LABEL], "true");
}

async fn make(change: Change, harness: &Harness) {
    match change {
        Change::Exact => harness.apply_pool(spec("any", "Exact")).await,
        Change::Renamed => harness.apply_pool(spec("other", "Compatible")).await,
        Change::NodesLeave => {
            for name in ["used", "free"] {
                harness.edit_node(name, json!({"metadata": {"labels": {"team": "b"}}})).await;
            }
        }
        Change::PoolDeleted => harness.delete_pool("default").await,
        Change::Uninstalled => harness.account.uninstall().await,
    }
}

async fn a_pod_keeps_its_label(change: Change) {
    let harness = stage().await;
    let mut installed = options();
    (installed.patience, installed.installation) = (std::time::Duration::from_secs(2), Some("winpool".to_owned()));
    let operator = Operator::start_with(harness.account.config.clone(), installed);
    with_a_pod(&harness).await;
    make(change, &harness).await;
    let is_free = |node: &Node| label(node, LABEL).is_none();
    // Otherwise the class stays, because a pod uses it, and so does its label.
    let class_is_kept = !matches!(change, Change::Exact | Change::NodesLeave);
    if !class_is_kept {
        harness.node_until("free", "loses the label", is_free).await;
    }
    match change {
        Change::PoolDeleted => harness.pool_is_gone("default").await,
        Change::Uninstalled => operator.ended().await,
        Change::NodesLeave => drop(harness.event_until("names the pod", names_the_pod).await),
        Change::Renamed => {
            let is_released = |class: &RuntimeClass| !class.labels().contains_key(POOL);
            harness.class_until("any", "is released", is_released).await;
            harness.ready("default").await;
        }
        Change::Exact => {
            let is_said = |pool: &WindowsPool| problems(pool).contains("LabelInUse");
            harness.pool_until("default", "says that the label stays", is_said).await;
        }
    }
    assert_eq!(label(&harness.node("used").await, LABEL), Some("true"));
    harness.pods().delete("app", &DeleteParams::default().grace_period(0)).await.unwrap();
    if class_is_kept {
        assert_eq!(label(&harness.node("free").await, LABEL), Some("true"));
        harness.run_pod("next", json!({"nodeName": "free", "runtimeClassName": "any"})).await;
        harness.pods().delete("next", &DeleteParams::default().grace_period(0)).await.unwrap();
        harness.classes().delete("any", &DeleteParams::default()).await.unwrap();
    }
    if matches!(change, Change::PoolDeleted | Change::Uninstalled) {
        assert_eq!(label(&harness.node("used").await, POOL), None, "winpool has no record of this node");
        return;
    }
    harness.node_until("free", "has lost the label", is_free).await;
    let node = harness.node_until("used", "loses the label, because its pod is gone", is_free).await;
    assert_eq!(label(&node, POOL).is_some(), change != Change::NodesLeave);
    harness.pool_until("default", "has no problem", |pool| !problems(pool).contains("LabelInUse")).await;
}

fn names_the_pod(event: &k8s_openapi::api::events::v1::Event) -> bool {
    event.reason.as_deref() == Some("LabelInUse") && event.note.iter().any(|note| note.contains("default/app"))
}

#[tokio::test]
async fn a_label_stays_with_its_pod_when_the_class_selects_the_build_again() {
    a_pod_keeps_its_label(Change::Exact).await;
}

#[tokio::test]
async fn a_label_stays_with_its_pod_when_the_class_is_renamed() {
    a_pod_keeps_its_label(Change::Renamed).await;
}

#[tokio::test]
async fn a_label_stays_with_its_pod_when_the_node_leaves_the_pool() {
    a_pod_keeps_its_label(Change::NodesLeave).await;
}

#[tokio::test]
async fn a_label_stays_with_its_pod_when_the_pool_is_deleted() {
    a_pod_keeps_its_label(Change::PoolDeleted).await;
}

#[tokio::test]
async fn a_label_stays_with_its_pod_when_winpool_is_uninstalled() {
    a_pod_keeps_its_label(Change::Uninstalled).await;
}

#[tokio::test]
async fn cleanup_leaves_the_labels_that_pods_need_and_removes_them_later() {
    let harness = stage().await;
    let operator =
        Operator::start_with(harness.account.config.clone(), Options { leader_election: false, ..options() });
    with_a_pod(&harness).await;
    operator.stop().await;
    let clean = async || {
        let (config, mut out) = (harness.server.config_as("winpool", &["system:masters"]).unwrap(), Vec::new());
        let outcome = Box::pin(clean_up(config, &arguments(), &mut out, || Ok(true))).await.unwrap();
        assert_eq!(outcome, Outcome::Done);
        String::from_utf8(out).unwrap()
    };
    for _ in 0..2 {
        let text = clean().await;
        assert!(text.contains("used: runtimeclass.winpool.dev/any, default/app"), "{text}");
        assert!(text.contains("free: runtimeclass.winpool.dev/any, RuntimeClass any"), "{text}");
    }
    harness.classes().delete("any", &DeleteParams::default()).await.unwrap();
    clean().await;
    let labelled = |name: &'static str| async { label(&harness.node(name).await, LABEL).is_some() };
    assert!(labelled("used").await && !labelled("free").await);
    // A pod without a node may come to any of them.
    harness.pods().delete("app", &DeleteParams::default().grace_period(0)).await.unwrap();
    harness.run_pod("waits", json!({"nodeSelector": {LABEL: "true"}})).await;
    assert!(clean().await.contains("default/waits"));
    assert!(labelled("used").await);
    harness.pods().delete("waits", &DeleteParams::default().grace_period(0)).await.unwrap();
    let text = clean().await;
    assert!(!labelled("used").await, "{text}");
}
