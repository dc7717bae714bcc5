//! The operator may do what it does, and nothing else.

use std::collections::BTreeSet;

use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use winpool::Options;
use winpool_core::api::WindowsPool;
use winpool_e2e::{
    AuditLog, LIMIT, MUTATING_ADMISSION_POLICY, SimulatedNode,
    harness::{Harness, OS_WINDOWS, Operator, has_taint},
    wait_for,
};

#[tokio::test]
async fn every_right_is_used_and_none_is_missing() {
    let (harness, log) = Harness::audited().await;
    SimulatedNode::windows("10.0.20348.2655").name("win").join(&harness.client).await.unwrap();
    let installed = Options { installation: Some("winpool".to_owned()), ..Options::default() };
    let operator = Operator::start_with(harness.account.config.clone(), installed.clone());
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    somebody_undoes_the_taint(&harness).await;
    somebody_else_writes_the_class_too(&harness, &log).await;
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let refused: Vec<Value> = log.events().into_iter().filter(|event| event["responseStatus"]["code"] == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    // Told to end, it looks whether its namespace is being deleted.
    operator.stop().await;
    let operator = Operator::start_with(harness.account.config.clone(), installed);
    // From here on it gives its rights away.
    harness.account.uninstall().await;
    operator.ended().await;

    let mut rights = harness.account.rights();
    if !MUTATING_ADMISSION_POLICY.is_there().await.unwrap() {
        let looked_up_later = ["get", "admissionregistration.k8s.io", "mutatingadmissionpolicies"].map(str::to_owned);
        assert!(rights.remove(&looked_up_later));
    }
    let mut unused = BTreeSet::new();
    // The API server writes down a watch when it sees that it has ended.
    let all_used = wait_for("all rights are used", LIMIT, async || {
        let used: BTreeSet<[String; 3]> = log.events().iter().filter_map(right).collect();
        unused = rights.difference(&used).cloned().collect();
        Ok(unused.is_empty().then_some(()))
    });
    assert!(all_used.await.is_ok(), "rights that nothing needs: {unused:#?}");
}

#[tokio::test]
async fn nothing_but_its_own_role_gives_it_a_right() {
    let harness = Harness::new().await;
    for [verb, group, resource] in harness.account.rights() {
        // The rights on the Lease and the namespace are in the Role, all others in the ClusterRole.
        if group != "coordination.k8s.io" && resource != "namespaces" {
            // Waits until the API server says no.
            harness.account.take((&verb, &group, &resource)).await;
        }
    }
}

/// So often that it is looked up who it is.
async fn somebody_undoes_the_taint(harness: &Harness) {
    for _ in 0..3 {
        harness.node_until("win", "is tainted", |node| has_taint(node, OS_WINDOWS)).await;
        harness.edit_node("win", json!({"spec": {"taints": null}})).await;
    }
    let contested = |pool: &WindowsPool| pool.status.as_ref().is_some_and(|status| status.nodes.contested == 1);
    harness.pool_until("default", "says that the node is contested", contested).await;
}

/// So often that the operator's own changes come too late, and it reads the class again.
async fn somebody_else_writes_the_class_too(harness: &Harness, log: &AuditLog) {
    let mut round = 0;
    wait_for("the operator reads a class again", LIMIT, async || {
        round += 1;
        let key = format!("example.com/round-{round}");
        let class = json!({"name": "mine", "version": "2022", "tolerations": [{"key": key, "operator": "Exists"}]});
        let busy = async |writer: i32| {
            for count in 0..20 {
                let change = json!({"metadata": {"annotations": {format!("example.com/{writer}"): count.to_string()}}});
                // There is no class in the first round.
                let _ = harness.classes().patch("mine", &PatchParams::default(), &Patch::Merge(change)).await;
            }
        };
        let done = async {
            harness.apply_pool(json!({"runtimeClasses": [class]})).await;
            harness
                .class_until("mine", "has its new toleration", |class| json!(class).to_string().contains(&key))
                .await;
        };
        tokio::join!(done, join_all((0..4).map(busy)));
        let read = log.requests().iter().any(|request| request.verb == "get" && request.resource == "runtimeclasses");
        Ok((read && round > 2).then_some(()))
    })
    .await
    .unwrap();
}

fn right(event: &Value) -> Option<[String; 3]> {
    let object = &event["objectRef"];
    let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    let group = object["apiGroup"].as_str().unwrap_or_default();
    Some([event["verb"].as_str()?.to_owned(), group.to_owned(), object["resource"].as_str()?.to_owned() + &subresource])
}
