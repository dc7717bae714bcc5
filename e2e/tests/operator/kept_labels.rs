//! Capability labels are facts: they stay on nodes while they are true, so that a kubelet that starts ends no pod that
//! selects them.

use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use winpool_e2e::harness::objects::label;
use winpool_e2e::harness::operator::{Operator, options};
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;

const LABEL: &str = "runs.winpool.dev/10.0.20348";

#[tokio::test]
async fn a_label_stays_when_its_pool_is_deleted_or_winpool_is_uninstalled() {
    for uninstalls in [false, true] {
        let harness = Harness::new().await;
        for name in ["used", "free"] {
            harness.join_node(SimulatedNode::server_2022(name)).await;
        }
        let mut installed = options();
        (installed.patience, installed.installation) = (std::time::Duration::from_secs(2), Some("winpool".to_owned()));
        let operator = Operator::start_with(harness.account.config.clone(), installed);
        let classes = json!([{"name": "any", "version": "2022", "hostMatch": "Compatible"}]);
        harness.apply_until_ready(json!({"runtimeClassDiscovery": "Disabled", "runtimeClasses": classes})).await;
        let pod = harness.run_pod("app", json!({"nodeName": "used", "runtimeClassName": "any"})).await;
        assert_eq!(pod.spec.unwrap().node_selector.unwrap()[LABEL], "true");
        if uninstalls {
            harness.account.uninstall().await;
            operator.ended().await;
        } else {
            harness.delete_pool("default").await;
            harness.pool_is_gone("default").await;
        }
        let labelled = harness.nodes().list(&ListParams::default().labels(&format!("{LABEL}=true"))).await.unwrap();
        assert_eq!(labelled.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["free", "used"]);
        assert_eq!(label(&harness.node("used").await, POOL), None, "winpool has no record of this node");
    }
}
