//! Deleted and recreated classes, and a deleted CRD.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{BUILD, NOT_READY, taints};
use winpool_e2e::harness::{Harness, OS_WINDOWS, POOL, merge};
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::audit::AuditLog;

#[tokio::test]
async fn a_deleted_or_edited_class_is_restored_by_one_request() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let _operator = harness.operator().await;
    let edits = [
        json!({"scheduling": {"nodeSelector": {BUILD: "10.0.1"}}}),
        json!({"scheduling": {"tolerations": [{"key": "os", "operator": "Exists"}]}}),
        json!({"scheduling": null}),
        json!({"overhead": {"podFixed": {"memory": "1Mi"}}}),
        json!({"metadata": {"labels": {POOL: null}}}),
    ];
    let overhead = json!({"podFixed": {"memory": "1024Mi", "cpu": "0.1"}});
    let declared = |number| json!({"name": format!("declared-{number}"), "version": "2022", "overhead": overhead});
    harness.apply_until_ready(json!({"runtimeClasses": (0..edits.len()).map(declared).collect::<Vec<_>>()})).await;
    let classes = harness.classes();
    let right = classes.get("declared-0").await.unwrap();
    assert_eq!(json!(right.overhead), json!({"podFixed": {"memory": "1Gi", "cpu": "100m"}}), "as the server writes it");
    harness.node_events_are_seen().await;
    let all = edits.len() + 1;
    assert_eq!(class_writes(&log), vec![("create".to_owned(), 201); all], "the same amount is no difference");

    for name in ["declared-0", "windows-2022"] {
        let before = classes.get(name).await.unwrap();
        classes.delete(name, &DeleteParams::default()).await.unwrap();
        let again = harness.class_until(name, "is there again", |class| class.uid() != before.uid()).await;
        assert_eq!(content(&again), content(&before));
    }
    assert_eq!(class_writes(&log), vec![("create".to_owned(), 201); all + 2]);

    for (number, edit) in edits.iter().enumerate() {
        repaired(&harness, &format!("declared-{number}"), edit).await;
    }
    repaired(&harness, "windows-2022", &json!({"overhead": {"podFixed": {"memory": "1Gi"}}})).await;
    let foreign = json!({"metadata": {"labels": {"example.com/a": "x"}, "annotations": {"example.com/a": "x"}}});
    merge(&classes, "declared-0", foreign).await;
    harness.node_events_are_seen().await;
    assert_eq!(
        class_writes(&log).split_off(all + 2),
        vec![("patch".to_owned(), 200); all],
        "labels of others are theirs"
    );
}

#[tokio::test]
async fn marks_stay_without_the_crd_and_winpool_continues_with_it() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({"deletionPolicy": "Retain"})).await;
    let marked = harness.node("win").await;

    harness.delete_definition().await;
    harness.definition_is_gone().await;
    harness.edit_node("win", json!({"metadata": {"labels": {"example.com/a": "x"}}})).await;
    install_crd(&harness.client).await.unwrap();
    // A pool without nodes: when its status is written, the operator has seen that the other pool is deleted.
    harness.apply_pool_named("elsewhere", json!({"nodeSelector": {"example.com/group": "elsewhere"}})).await;
    harness.ready("elsewhere").await;
    harness.join("late").await;
    let node = harness.node("win").await;
    assert_eq!((taints(&node), node.annotations()), (taints(&marked), marked.annotations()));
    assert_eq!(log.patches("win").len(), 1);

    harness.apply_pool(json!({})).await;
    harness.nodes_until("default", "has both nodes", |nodes| nodes.converged == 2).await;
    assert_eq!(taints(&harness.node("late").await), [NOT_READY, OS_WINDOWS]);
    assert_eq!((log.patches("win").len(), log.patches("late").len()), (1, 1));
}

/// The fields of a class that winpool writes.
fn content(class: &RuntimeClass) -> Value {
    json!([class.labels(), class.handler, class.overhead, class.scheduling])
}

/// Edits the class and waits until winpool restores it.
async fn repaired(harness: &Harness, name: &str, edit: &Value) {
    let right = content(&harness.classes().get(name).await.unwrap());
    let edited = merge(&harness.classes(), name, edit).await;
    assert_ne!(content(&edited), right, "{edit}");
    harness.class_until(name, &format!("is repaired after {edit}"), |class| content(class) == right).await;
}

/// The operator's writes of RuntimeClasses that changed something: verb and answer. One that was computed before the
/// operator saw its own last write is a conflict, and changes nothing.
fn class_writes(log: &AuditLog) -> Vec<(String, u64)> {
    let writes = log.requests().into_iter().filter(|r| r.resource == "runtimeclasses" && r.verb != "get");
    let (late, writes): (Vec<_>, Vec<_>) = writes.partition(|request| request.code == 409);
    assert!(late.len() <= writes.len(), "{late:?}");
    writes.into_iter().map(|request| (request.verb, request.code)).collect()
}
