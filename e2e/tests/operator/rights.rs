//! The operator has exactly the permissions that it needs.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::account::NAMESPACE;
use winpool_e2e::harness::operator::{Operator, options};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_operator::Options;

#[tokio::test]
async fn every_permission_is_used_and_none_is_missing() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let own = json!({"metadata": {"name": "own"}, "spec": {"containers": [{"name": "winpool", "image": "winpool"}]}});
    let own_pods: Api<Pod> = Api::namespaced(harness.client.clone(), NAMESPACE);
    own_pods.create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
    let (installation, pod) = (Some("winpool".to_owned()), Some("own".to_owned()));
    let installed = Options { installation, pod, ..options() };
    let operator = Operator::start_with(harness.account.config.clone(), installed.clone());
    harness.apply_until_ready(json!({})).await;
    harness.run_pod("web", json!({"nodeSelector": {"kubernetes.io/os": "windows"}})).await;
    let helped = async || Ok(log.of("patch", "pods").iter().any(|request| request.name == "web").then_some(()));
    wait_for("a pod gets the toleration", LIMIT, helped).await.unwrap();
    the_pool_changes_its_class(&harness).await;
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    // It tests that it may not change this pod.
    let is_refused = |event: &Value| event["responseStatus"]["code"] == 403 && event["objectRef"]["name"] != "own";
    let refused: Vec<Value> = log.events().into_iter().filter(is_refused).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    // On SIGTERM it checks if its namespace is being deleted.
    operator.stop().await;
    let operator = Operator::start_with(harness.account.config.clone(), installed);
    // From here on it releases its own permissions.
    harness.account.uninstall().await;
    operator.ended().await;

    let mut rights = harness.account.rights();
    // Where the API server has no lists that are a part of the watch, and for `winpool-operator cleanup`.
    assert!(rights.remove(&["list", "", "pods"].map(str::to_owned)));
    let mut unused = BTreeSet::new();
    // The API server logs a watch when it has ended.
    let all_used = wait_for("all rights are used", LIMIT, async || {
        let used: BTreeSet<[String; 3]> = log.events().iter().filter_map(right).collect();
        unused = rights.difference(&used).cloned().collect();
        Ok(unused.is_empty().then_some(()))
    });
    assert!(all_used.await.is_ok(), "rights that nothing needs: {unused:#?}");
    // Others decide how many objects there are, and how large they are.
    let events = log.events();
    let lists = events.iter().filter(|event| event["verb"] == "list").filter_map(|event| event["requestURI"].as_str());
    let whole: BTreeSet<&str> = lists.filter(|uri| !uri.contains("limit=")).collect();
    assert!(whole.is_empty(), "lists without a limit: {whole:#?}");
}

#[tokio::test]
async fn only_its_own_role_gives_the_operator_permissions() {
    let harness = Harness::new().await;
    for [verb, group, resource] in harness.account.rights() {
        // The permissions for the Lease and its namespace are in the Role, all others in the ClusterRole.
        if group != "coordination.k8s.io" && (verb != "get" || resource != "namespaces") {
            // Waits until the API server says no.
            harness.account.take((&verb, &group, &resource)).await;
        }
    }
}

/// Gives the pool a RuntimeClass, and twice another toleration to that: the second Event about the same is a patch.
async fn the_pool_changes_its_class(harness: &Harness) {
    for key in ["example.com/a", "example.com/b", "example.com/c"] {
        let class = json!({"name": "mine", "version": "2022", "tolerations": [{"key": key, "operator": "Exists"}]});
        harness.apply_pool(json!({"runtimeClasses": [class]})).await;
        harness.class_until("mine", "has its toleration", |class| json!(class).to_string().contains(key)).await;
    }
}

fn right(event: &Value) -> Option<[String; 3]> {
    let object = &event["objectRef"];
    let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
    let group = object["apiGroup"].as_str().unwrap_or_default();
    Some([event["verb"].as_str()?.to_owned(), group.to_owned(), object["resource"].as_str()?.to_owned() + &subresource])
}
