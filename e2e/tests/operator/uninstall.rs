//! Uninstalling by deleting the manifests: the operator cleans up first.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_client::terminal::Outcome;
use winpool_e2e::harness::account::{Account, INSTALLATION, NAMESPACE};
use winpool_e2e::harness::objects::{face, has_taint};
use winpool_e2e::harness::operator::{Operator, options};
use winpool_e2e::harness::{Harness, OS_WINDOWS};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_operator::Options;
use winpool_operator::cleanup::{Arguments, clean_up};
use winpool_operator::leadership::Leadership;
use winpool_operator::uninstall::InstallationObjects;
use winpool_operator::write::Applier;

use crate::cleanup::arguments;

const NAME: &str = "winpool";

/// Starts it like its Deployment.
fn start(harness: &Harness) -> Operator {
    let options = Options { installation: Some(NAME.to_owned()), ..options() };
    Operator::start_with(harness.account.config.clone(), options)
}

async fn join(harness: &Harness, name: &str, team: &str) -> Value {
    harness.join_node(SimulatedNode::server_2019(name).label("team", team)).await;
    face(&harness.node(name).await)
}

#[tokio::test]
async fn an_operator_that_is_removed_cleans_up_and_ends() {
    let harness = Harness::new().await;
    let before = join(&harness, "win-1", "a").await;
    join(&harness, "win-2", "b").await;
    let operators = [start(&harness), start(&harness)];
    let retaining =
        json!({"nodeSelector": {"team": "b"}, "runtimeClassNameFormat": "b-{version}", "deletionPolicy": "Retain"});
    harness.apply_pool_named("retaining", retaining).await;
    harness.apply_pool(json!({"nodeSelector": {"team": "a"}})).await;
    harness.ready("retaining").await;
    harness.ready("default").await;
    assert_ne!(face(&harness.node("win-1").await), before);

    // Like `kubectl delete -k`, which deletes the CRD too.
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
async fn an_operator_that_has_never_seen_the_crd_can_be_removed() {
    let harness = Harness::new().await;
    harness.delete_definition().await;
    harness.definition_is_gone().await;
    let operator = start(&harness);
    harness.account.uninstall().await;
    operator.ended_within(Duration::from_secs(40)).await;
    harness.account.is_uninstalled().await;
}

#[tokio::test]
async fn a_process_that_gets_sigterm_checks_if_it_is_being_removed() {
    let harness = Harness::new().await;
    let before = join(&harness, "win", "a").await;
    // Without the permission to list bindings and roles, with which a watch begins, it cannot know before.
    harness.account.take(("list", "rbac.authorization.k8s.io", "clusterrolebindings")).await;
    let operator = start(&harness);
    harness.apply_until_ready(json!({})).await;
    harness.account.delete("ClusterRoleBinding").await;
    harness.apply_pool(json!({"buildNames": [{"build": "10.0.29000", "version": "preview"}]})).await;
    harness.ready("default").await;
    operator.stop().await;
    harness.account.is_gone("ClusterRoleBinding", LIMIT).await;
    assert_eq!(harness.account.held().await, [""; 0]);
    assert_eq!(face(&harness.node("win").await), before);
}

/// A part of the installation, or its namespace. If only a part is deleted, no object may wait for an operator without
/// permissions.
#[tokio::test]
async fn deleting_any_part_of_an_installation_releases_all_finalizers() {
    let parts = INSTALLATION.into_iter().chain(["Namespace"]);
    stream::iter(parts).for_each_concurrent(3, deletion_of_is_clean).await;
}

async fn deletion_of_is_clean(part: &str) {
    let harness = Harness::new().await;
    let before = join(&harness, "win", "a").await;
    let operator = start(&harness);
    harness.apply_until_ready(json!({})).await;
    harness.account.delete(part).await;
    if part == "Namespace" {
        // What the namespace controller deletes first are the pods.
        operator.stop().await;
    } else {
        operator.ended().await;
        harness.account.is_gone(part, LIMIT).await;
    }
    assert_eq!(face(&harness.node("win").await), before, "{part}");
    assert_eq!(harness.account.held().await, [""; 0], "{part}");
    assert!(harness.pools().get("default").await.unwrap().finalizers().is_empty(), "{part}");
}

/// Each of the objects permits to write the others. So many rounds show nearly always when they are not released together.
#[tokio::test]
async fn the_objects_of_an_installation_are_deleted_together() {
    let harness = Harness::new().await;
    for round in 0..20 {
        let again = if round == 0 { None } else { Some(Account::install(&harness.server, &harness.client).await) };
        let account = again.as_ref().unwrap_or(&harness.account);
        account.uninstall().await;
        let client = winpool_operator::connect(account.config.clone(), None).unwrap();
        let applier = Applier::new(client.clone(), Leadership::alone());
        let left = InstallationObjects::new(client, NAME, NAMESPACE).release(&applier, |_| true).await;
        assert_eq!(account.held().await, [""; 0], "round {round}: {left:?}");
    }
}

#[tokio::test]
async fn it_retries_until_nodes_can_be_written_again() {
    let (harness, log) = Harness::audited().await;
    let before = join(&harness, "win", "a").await;
    let operator = start(&harness);
    harness.apply_until_ready(json!({})).await;
    writes_of_nodes_fail(&harness).await;
    harness.account.uninstall().await;
    let refused = || log.patches("win").iter().filter(|patch| patch.code == 500).count();
    wait_for("the operator has tried again and again", LIMIT, async || Ok((refused() >= 4).then_some(())))
        .await
        .unwrap();
    assert_eq!(harness.account.held().await, INSTALLATION, "nothing goes before the nodes are clean");
    Api::<ValidatingWebhookConfiguration>::all(harness.client.clone())
        .delete("broken", &DeleteParams::default())
        .await
        .unwrap();
    operator.ended_within(Duration::from_secs(40)).await;
    harness.account.is_uninstalled().await;
    assert_eq!(face(&harness.node("win").await), before);
}

/// A broken webhook: the API server answers 500.
async fn writes_of_nodes_fail(harness: &Harness) {
    let webhook = json!({
        "name": "broken.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]}],
    });
    let broken = json!({"metadata": {"name": "broken"}, "webhooks": [webhook]});
    harness.create::<ValidatingWebhookConfiguration>(broken).await;
    let once = PatchParams { dry_run: true, ..PatchParams::default() };
    let change = Patch::Merge(json!({"metadata": {"labels": {"example.com/a": "b"}}}));
    let fails = async || Ok(harness.nodes().patch("win", &once, &change).await.err().map(|error| error.to_string()));
    let error = wait_for("writes of nodes fail", LIMIT, fails).await.unwrap();
    assert!(error.contains("failed calling webhook"), "{error}");
}

#[tokio::test]
async fn a_stop_without_removal_leaves_everything() {
    let harness = Harness::new().await;
    join(&harness, "win", "a").await;
    let operator = start(&harness);
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;
    assert!(has_taint(&harness.node("win").await, OS_WINDOWS));
    // Without an operator the removal waits, and the command ends it.
    harness.account.uninstall().await;
    let arguments = Arguments { yes: true, lease_namespace: Some(NAMESPACE.to_owned()), ..arguments() };
    let mut out = Vec::new();
    let config = harness.server.config().unwrap();
    let outcome = clean_up(config, &arguments, &mut out, || unreachable!("it does not ask")).await;
    let text = String::from_utf8(out).unwrap();
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
    let held = INSTALLATION.map(|kind| format!("{kind} winpool")).join(", ");
    assert!(text.contains(&format!("  {held}\n")), "{text}");
    harness.account.is_uninstalled().await;
    assert!(!has_taint(&harness.node("win").await, OS_WINDOWS));
}
