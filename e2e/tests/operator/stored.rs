//! Objects that the API server stores and that kube's types do not decode.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Client;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::json;
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::{Harness, POOL};

/// `serde_json` reads a value to a depth of 128.
const DEPTH: usize = 200;
const LATE: &str = "9999-12-31T23:59:59Z";

/// Writes managed fields of this depth, at a time after all that winpool can hold.
async fn deepen(client: &Client, group: &str, kind: &str, name: &str) {
    let fields = (0..DEPTH).fold(json!({}), |fields, _| json!({"f:a": fields}));
    let entry = json!({
        "manager": "deep", "operation": "Update", "apiVersion": group, "time": LATE, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": fields},
    });
    let patch = Patch::Merge(json!({"metadata": {"managedFields": [entry]}}));
    let objects = Request::new(format!("/apis/{group}/{kind}"));
    let request = objects.patch(name, &PatchParams::default(), &patch).unwrap();
    let stored = client.request_text(request).await.unwrap();
    assert!(stored.matches("f:a").count() >= DEPTH && stored.contains(LATE), "{stored}");
}

#[tokio::test]
async fn objects_that_kube_does_not_decode_do_not_stop_winpool() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let spec = json!({"holderIdentity": "", "acquireTime": "9999-12-31T23:59:59.000000Z"});
    let metadata = json!({"name": "winpool", "labels": {"a": "b"}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
    let leases = Request::new("/apis/coordination.k8s.io/v1/namespaces/default/leases");
    let request = leases.create(&PostParams::default(), lease.to_string().into_bytes()).unwrap();
    let stored = harness.client.request_text(request).await.unwrap();
    assert!(stored.contains("9999-12-31"), "{stored}");
    let start = || Operator::elected(&harness.server, "winpool");

    let operator = start();
    harness.apply_until_ready(json!({})).await;
    harness.apply_pool_named("deep", json!({"nodeSelector": {"none": "such"}})).await;
    harness.create::<RuntimeClass>(json!({"metadata": {"name": "deep"}, "handler": "a"})).await;
    deepen(&harness.client, "node.k8s.io/v1", "runtimeclasses", "deep").await;
    deepen(&harness.client, "node.k8s.io/v1", "runtimeclasses", "windows-2022").await;
    deepen(&harness.client, "winpool.dev/v1alpha1", "windowspools", "deep").await;
    operator.stop().await;

    let operator = start();
    harness.join("new").await;
    let node = harness.is_tainted("new").await;
    assert_eq!(node.metadata.labels.unwrap().get(POOL).map(String::as_str), Some("default"));
    operator.stop().await;
    let request = leases.get("winpool", &GetParams::default()).unwrap();
    let lease = harness.client.request_text(request).await.unwrap();
    assert!(lease.contains("f:labels") && !lease.contains("9999"), "others keep their managed fields: {lease}");
}
