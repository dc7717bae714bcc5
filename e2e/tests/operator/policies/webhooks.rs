//! Mutating webhooks, which see a pod after the policies and before the API server adds what its RuntimeClass says.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{BUILD, windows_class};
use winpool_e2e::needs;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;
use winpool_e2e::servers::webhook::PodWebhook;

use super::{admitted, admitted_until, assert_no_panic, class_status, install, namespace, pod, pods, pool};

/// The webhook of EKS.
const NAME: &str = "mpod.vpc.k8s.aws";
/// The resource with which EKS gives a pod on Windows its address.
const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// What that webhook does, as read in `webhooks/core/pod_webhook.go` of
/// amazon-vpc-resource-controller-k8s: a pod is for Windows if its node selector says so under one of two keys.
fn give_address(pod: &Value) -> Value {
    let selector = &pod["spec"]["nodeSelector"];
    if selector["kubernetes.io/os"] != "windows" && selector["beta.kubernetes.io/os"] != "windows" {
        return json!([]);
    }
    let amount = json!({ADDRESS: "1"});
    json!([{"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": amount, "requests": amount}}])
}

fn has_address(pod: &Pod) -> bool {
    let resources = pod.spec.as_ref().and_then(|spec| spec.containers[0].resources.as_ref());
    resources.and_then(|resources| resources.limits.as_ref()).is_some_and(|limits| limits.contains_key(ADDRESS))
}

#[tokio::test]
async fn a_pod_that_gets_a_class_gets_its_address_from_the_webhook_of_eks() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let class = windows_class("windows-2022", &json!({BUILD: "10.0.20348"}));
    let class_selector = class["scheduling"]["nodeSelector"].clone();
    let _: RuntimeClass = harness.create(class).await;
    let class = class_status("windows-2022", "10.0.20348", "Applied");
    pool(&harness, "default", json!({}), json!({"runtimeClasses": [class]})).await;
    install(&harness.client, "assign-class").await;
    namespace(&harness.client, "legacy", json!({"winpool.dev/runtime-class": "windows-2022"})).await;
    let legacy = pods(&harness.client, "legacy");
    let windows = |spec: Value| {
        let mut pod = pod(&spec);
        pod["spec"]["os"] = json!({"name": "windows"});
        pod
    };
    let has_class = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.runtime_class_name.is_some());
    admitted_until(&legacy, &windows(json!({})), "classes are given", has_class).await;
    let _webhook = PodWebhook::register(&harness.server, NAME, give_address).await.unwrap();
    let says_windows = pod(&json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    admitted_until(&pods(&harness.client, "default"), &says_windows, "the webhook is called", has_address).await;

    for spec in [
        json!({}),
        json!({"nodeSelector": {}}),
        json!({"nodeSelector": {"own": "x"}}),
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
        json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}),
    ] {
        let pod: Pod = admitted(&legacy, &windows(spec.clone())).await.unwrap();
        assert!(has_class(&pod), "{spec}");
        assert!(has_address(&pod), "{spec}: the webhook sees {:?}", pod.spec.unwrap().node_selector);
        let mut expected = class_selector.clone();
        expected.as_object_mut().unwrap().extend(spec["nodeSelector"].as_object().cloned().unwrap_or_default());
        assert_eq!(json!(pod.spec.unwrap().node_selector), expected, "{spec}");
    }
    // An API server with webhooks is not lent again.
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(harness.client.clone());
    webhooks.delete(NAME, &DeleteParams::default()).await.unwrap();
    let without_address = |pod: &Pod| !has_address(pod);
    admitted_until(&pods(&harness.client, "default"), &says_windows, "the webhook is gone", without_address).await;
    assert_no_panic(&harness.server);
}
