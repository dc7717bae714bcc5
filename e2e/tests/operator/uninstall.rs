//! Removing winpool by deleting what it was installed as: the operator cleans up first.

use serde_json::{Value, json};
use winpool::{
    Options,
    cli::{
        Outcome,
        cleanup::{Arguments, clean_up},
        connect::Connection,
    },
};
use winpool_e2e::{
    SimulatedNode,
    harness::{Harness, NAMESPACE, OS_WINDOWS, Operator, face, has_taint},
};

const NAME: &str = "winpool";

/// Started as its Deployment starts it.
fn start(harness: &Harness) -> Operator {
    let options = Options { installation: Some(NAME.to_owned()), ..Options::default() };
    Operator::start_with(harness.account.config.clone(), options)
}

async fn join(harness: &Harness, name: &str, team: &str) -> Value {
    let node = SimulatedNode::windows("10.0.17763.6659").name(name).label("team", team);
    node.join(&harness.client).await.unwrap();
    face(&harness.node(name).await)
}

#[tokio::test]
async fn an_operator_that_is_being_removed_cleans_up_goes_and_keeps_what_a_pool_retains() {
    let harness = Harness::new().await;
    let before = join(&harness, "win-1", "a").await;
    join(&harness, "win-2", "b").await;
    let operators = [start(&harness), start(&harness)];
    let retaining =
        json!({"nodeSelector": {"team": "b"}, "classNameFormat": "b-{version}", "deletionPolicy": "Retain"});
    harness.apply_pool_named("retaining", retaining).await;
    harness.apply_pool(json!({"nodeSelector": {"team": "a"}})).await;
    harness.ready("retaining").await;
    harness.ready("default").await;
    assert_ne!(face(&harness.node("win-1").await), before);

    // As `kubectl delete -k` does: the pools' definition goes with the rest.
    harness.delete_definition().await;
    harness.account.uninstall().await;
    harness.account.is_uninstalled().await;
    for operator in operators {
        operator.ended().await;
    }
    assert_eq!(face(&harness.node("win-1").await), before);
    assert!(has_taint(&harness.node("win-2").await, OS_WINDOWS));
    let classes = harness.classes();
    assert_eq!(classes.get_opt("windows-2019").await.unwrap(), None);
    assert!(classes.get_opt("b-2019").await.unwrap().is_some());
    harness.definition_is_gone().await;
}

#[tokio::test]
async fn a_process_that_is_told_to_end_looks_once_more_whether_it_is_being_removed() {
    let harness = Harness::new().await;
    let before = join(&harness, "win", "a").await;
    // Without the right to list its own binding, with which a watch begins, it cannot know before.
    harness.account.take(("list", "rbac.authorization.k8s.io", "clusterrolebindings")).await;
    let operator = start(&harness);
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    harness.account.uninstall().await;
    harness.apply_pool(json!({"adoptionPolicy": "Never"})).await;
    harness.ready("default").await;
    operator.stop().await;
    harness.account.is_uninstalled().await;
    assert_eq!(face(&harness.node("win").await), before);
}

#[tokio::test]
async fn an_end_without_removal_leaves_everything() {
    let harness = Harness::new().await;
    join(&harness, "win", "a").await;
    let operator = start(&harness);
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    operator.stop().await;
    assert!(has_taint(&harness.node("win").await, OS_WINDOWS));
    // Now nobody is there to clean up, and the removal waits. The command ends it.
    harness.account.uninstall().await;
    let arguments = Arguments {
        yes: true,
        dry_run: false,
        connection: Connection::default(),
        lease_namespace: Some(NAMESPACE.to_owned()),
        installation: NAME.to_owned(),
    };
    let mut out = Vec::new();
    let config = harness.server.config().unwrap();
    let outcome = clean_up(config, &arguments, &mut out, || unreachable!("it does not ask")).await;
    let text = String::from_utf8(out).unwrap();
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
    let held = "  RoleBinding winpool\n  Role winpool\n  ServiceAccount winpool\n  ClusterRole winpool\n  ClusterRoleBinding winpool\n";
    assert!(text.contains(held), "{text}");
    harness.account.is_uninstalled().await;
    assert!(!has_taint(&harness.node("win").await, OS_WINDOWS));
}
