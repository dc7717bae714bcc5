//! `spec: {}` on clusters of many kinds.

use kube::ResourceExt;
use serde_json::json;
use winpool_e2e::harness::objects::{BUILD, condition, has_taint, label, recorded_in, scheduling, taints};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL};
use winpool_e2e::nodes::samples::Sample;
use winpool_e2e::nodes::simulated::SimulatedNode;

#[tokio::test]
async fn an_empty_pool_labels_and_taints_only_windows_nodes() {
    let harness = Harness::new().await;
    let client = &harness.client;
    SimulatedNode::linux().name("linux-a").join(client).await.unwrap();
    SimulatedNode::server_2019("win-2019").without_label(BUILD).join(client).await.unwrap();
    SimulatedNode::server_2022("win-2022").join(client).await.unwrap();
    SimulatedNode::server_2025("win-2025").join(client).await.unwrap();
    let linux = harness.node("linux-a").await;

    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({})).await;

    for (name, build) in [("win-2019", "10.0.17763"), ("win-2022", "10.0.20348"), ("win-2025", "10.0.26100")] {
        let node = harness.node(name).await;
        assert_eq!(label(&node, BUILD), Some(build));
        assert_eq!(label(&node, POOL), Some("default"));
        assert_eq!(taints(&node), ["node.kubernetes.io/not-ready:NoSchedule", "os=windows:NoSchedule"]);
        assert_eq!(node.annotations()[APPLIED], r#"{"pool":"default","taints":["os=windows:NoSchedule"]}"#);
    }
    assert_eq!(harness.node("linux-a").await.resource_version(), linux.resource_version());

    let status = pool.status.as_ref().unwrap();
    assert_eq!((status.nodes.selected, status.nodes.converged, status.nodes.pending), (3, 3, 0));
    assert_eq!(recorded_in(status), ["os=windows:NoSchedule"]);
    let builds: Vec<_> = status.builds.iter().map(|b| (b.build.as_str(), b.nodes, b.product.as_deref())).collect();
    assert_eq!(
        builds,
        [
            ("10.0.17763", 1, Some("Windows Server 2019")),
            ("10.0.20348", 1, Some("Windows Server 2022")),
            ("10.0.26100", 1, Some("Windows Server 2025")),
        ]
    );
    for name in ["NodesLabeled", "TaintsApplied", "RuntimeClassesApplied"] {
        assert_eq!(condition(&pool, name), Some("True"), "{name}");
    }

    // Exactly the class of the Kubernetes documentation.
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert_eq!(class.handler, "runhcs-wcow-process");
    let documented = json!({
        "nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "windows", BUILD: "10.0.17763"},
        "tolerations": [{"effect": "NoSchedule", "key": "os", "operator": "Equal", "value": "windows"}],
    });
    assert_eq!(scheduling(&class), documented);
    assert_eq!((&*class.labels()["app.kubernetes.io/managed-by"], &*class.labels()[POOL]), ("winpool", "default"));
    assert_eq!(class.owner_references(), []);
}

#[tokio::test]
async fn nodes_from_public_reports_all_converge() {
    let harness = Harness::new().await;
    let samples = [
        (Sample::S1, "10.0.20348"),
        (Sample::S2, "10.0.17763"),
        (Sample::S3, "10.0.26100"),
        (Sample::S4, "10.0.20348"),
        (Sample::S5, "10.0.17763"),
        (Sample::S6, "10.0.17763"),
        (Sample::S7, "10.0.17763"),
        (Sample::S8, "10.0.20348"),
        (Sample::S9, "10.0.19041"),
        (Sample::S10, "10.0.17134"),
        (Sample::S11, "10.0.14393"),
        (Sample::S12, "10.0.17763"),
    ];
    let mut joined = Vec::new();
    for (sample, build) in samples {
        // Kubelets before 1.14 did not set this label: administrators did.
        let node = SimulatedNode::sample(sample).label("kubernetes.io/os", "windows");
        let kubelet = harness.join_node(node).await;
        joined.push((kubelet.name().to_owned(), build));
    }
    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({})).await;

    for (name, build) in &joined {
        let node = harness.node(name).await;
        assert_eq!(label(&node, BUILD), Some(*build), "{name}");
        assert!(has_taint(&node, OS_WINDOWS), "{name}: {:?}", taints(&node));
    }
    let spot = harness.node(&joined[0].0).await;
    assert!(has_taint(&spot, "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"));
    let status = pool.status.unwrap();
    assert_eq!(status.nodes.converged, 12);
    let classes: Vec<_> = status.runtime_classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(
        classes,
        ["windows-1803", "windows-2004", "windows-2016", "windows-2019", "windows-2022", "windows-2025"]
    );
}
