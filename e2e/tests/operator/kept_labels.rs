//! Capability labels are facts: they stay on nodes while they are true, so that a kubelet that starts ends no pod that
//! selects them.

use winpool_e2e::prelude::*;

const LABEL: &str = "runs.winpool.dev/10.0.20348";

fn spec(name: &str, host_match: &str) -> Value {
    let classes = json!([{"name": name, "version": "2022", "hostMatch": host_match}]);
    json!({"nodeSelector": {"team": "a"}, "runtimeClassDiscovery": "Disabled", "runtimeClasses": classes})
}

/// Two nodes of a pool.
async fn stage() -> Harness {
    let harness = Harness::new().await;
    for name in ["used", "free"] {
        harness.join_node(SimulatedNode::server_2022(name).label("team", "a")).await;
    }
    harness
}

/// Creates a class that selects the label, and a pod of it on the first node.
async fn with_a_pod(harness: &Harness) {
    harness.apply_until_ready(spec("any", "Compatible")).await;
    let pod = harness.run_pod("app", json!({"nodeName": "used", "runtimeClassName": "any"})).await;
    assert_eq!(pod.spec.unwrap().node_selector.unwrap()[LABEL], "true");
}

async fn labelled(harness: &Harness) -> Vec<String> {
    let nodes = harness.nodes().list(&ListParams::default().labels(&format!("{LABEL}=true"))).await.unwrap();
    nodes.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn a_label_stays_after_changes_of_its_class_and_its_pool() {
    let harness = stage().await;
    let _operator = harness.operator().await;
    with_a_pod(&harness).await;
    harness.apply_pool(spec("any", "Exact")).await;
    let by_build = |class: &RuntimeClass| scheduling(class)["nodeSelector"].get(BUILD).is_some();
    harness.class_until("any", "selects the build again", by_build).await;
    harness.apply_pool(spec("other", "Compatible")).await;
    harness.class_until("any", "is released", |class| !class.labels().contains_key(POOL)).await;
    harness.ready("default").await;
    for name in ["used", "free"] {
        harness.edit_node(name, json!({"metadata": {"labels": {"team": "b"}}})).await;
        harness.node_until(name, "has left the pool", |node| label(node, POOL).is_none()).await;
    }
    assert_eq!(labelled(&harness).await, ["free", "used"]);
}

#[tokio::test]
async fn a_label_stays_when_its_pool_is_deleted_or_winpool_is_uninstalled() {
    for uninstalls in [false, true] {
        let harness = stage().await;
        let mut installed = options();
        (installed.patience, installed.installation) = (std::time::Duration::from_secs(2), Some("winpool".to_owned()));
        let operator = Operator::start_with(harness.account.config.clone(), installed);
        with_a_pod(&harness).await;
        if uninstalls {
            harness.account.uninstall().await;
            operator.ended().await;
        } else {
            harness.delete_pool("default").await;
            harness.pool_is_gone("default").await;
        }
        assert_eq!(labelled(&harness).await, ["free", "used"]);
        assert_eq!(label(&harness.node("used").await, POOL), None, "winpool has no record of this node");
    }
}

#[tokio::test]
async fn a_label_that_is_not_true_is_removed_whoever_wrote_it() {
    let harness = stage().await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(spec("any", "Exact")).await;
    let labels = json!({LABEL: "true", "runs.winpool.dev/10.0.26100": "true", "runs.winpool.dev/any": "true"});
    harness.edit_node("free", json!({"metadata": {"labels": labels}})).await;
    let is_true = |node: &Node| node.labels().keys().filter(|key| key.starts_with("runs.winpool.dev/")).eq([LABEL]);
    harness.node_until("free", "has only the label that is true", is_true).await;
}
