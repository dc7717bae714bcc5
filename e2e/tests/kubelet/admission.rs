//! Pods that the admission of a Windows kubelet refuses.

use serde_json::json;
use winpool_analysis::pod::error::known_error;
use winpool_e2e::harness::objects::BUILD;
use winpool_e2e::servers::cluster::Flags;
use winpool_e2e::wine::windows::WINDOWS_2022;

use super::stage::{machine, phase, pod_until, ready, reason, stage_with};

/// Catches a kubelet that refuses other pods than winpool predicts, or in other words. The pods are bound by name,
/// without the scheduler.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn the_kubelet_refuses_the_pods_that_winpool_says_it_refuses() {
    // Otherwise the controller manager deletes a pod before the kubelet's answer is seen.
    let controller_manager = &["--controllers=*,-taint-eviction-controller"];
    let harness = stage_with(Flags { controller_manager, ..Flags::default() }).await;
    let soft = machine(&harness, "soft", WINDOWS_2022, &["--register-with-taints=example.com/a=:NoSchedule"]).await;
    let hard = machine(&harness, "hard", WINDOWS_2022, &["--register-with-taints=example.com/a=:NoExecute"]).await;
    for machine in [&soft, &hard] {
        ready(&harness, machine).await;
    }
    let none = json!({});
    let linux = json!({"kubernetes.io/os": "linux"});
    let as_root = json!({"securityContext": {"runAsUser": 0, "seLinuxOptions": {"level": "s0"}}});
    // The pod's node, labels and spec, and the reason if it fails.
    let cases = [
        ("a-windows-pod", "soft", &none, json!({"os": {"name": "windows"}}), None),
        ("says-nothing", "soft", &none, json!({}), None),
        ("runs-as-root", "soft", &none, as_root, None),
        ("a-linux-pod", "soft", &none, json!({"os": {"name": "linux"}}), Some("PodOSNotSupported")),
        ("labelled-linux", "soft", &linux, json!({}), Some("PodOSSelectorNodeLabelDoesNotMatch")),
        ("selects-linux", "soft", &none, json!({"nodeSelector": linux}), Some("NodeAffinity")),
        ("selects-a-build", "soft", &none, json!({"nodeSelector": {BUILD: "10.0.17763"}}), Some("NodeAffinity")),
        ("before-no-execute", "hard", &none, json!({}), Some("TaintToleration")),
    ];
    for (name, node, labels, mut spec, refused) in cases {
        spec["nodeName"] = json!(node);
        spec["containers"] = json!([{"name": "c", "image": "example.com/app:1"}]);
        spec["restartPolicy"] = json!("Never");
        harness.create_pod(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
        let expected = if refused.is_some() { "Failed" } else { "Running" };
        let pod = pod_until(&harness, name, &format!("is {expected}"), |pod| phase(pod) == expected).await;
        assert_eq!(reason(&pod), refused.unwrap_or_default(), "{name}");
        if let Some(refused) = refused.filter(|refused| refused.starts_with("PodOS")) {
            assert!(known_error(refused).is_some(), "winpool explains {refused}");
        }
    }
}
