//! Removing winpool by deleting what it was installed as: the operator cleans up first.

use k8s_openapi::{
    api::{
        authentication::v1::TokenRequest,
        core::v1::ServiceAccount,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Config,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    config::AuthInfo,
};
use serde_json::{Value, json};
use winpool::{
    Options,
    cli::{
        Outcome,
        cleanup::{Arguments, clean_up},
    },
};
use winpool_e2e::{LIMIT, SimulatedNode, wait_for};

use crate::support::{Harness, Operator, face, taints};

const NAME: &str = "winpool";
const GUARD: &str = "os=windows:NoSchedule";
const RBAC: &str = "rbac.authorization.k8s.io";

/// winpool's own objects, as they are installed: with its finalizer, and with no more rights than it needs.
struct Installed<'h> {
    harness: &'h Harness,
    objects: Vec<(Api<DynamicObject>, &'static str)>,
}

impl<'h> Installed<'h> {
    async fn new(harness: &'h Harness, watches: bool) -> Self {
        let metadata = json!({"name": NAME, "finalizers": ["winpool.dev/cleanup"]});
        let own = if watches { json!(["get", "list", "watch", "patch"]) } else { json!(["get", "patch"]) };
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
            {"apiGroups": ["winpool.dev"], "resources": ["windowspools"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": ["winpool.dev"], "resources": ["windowspools/status"], "verbs": ["patch"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": [RBAC], "resources": ["clusterrolebindings"], "resourceNames": [NAME], "verbs": own},
            {"apiGroups": [RBAC], "resources": ["clusterroles", "roles", "rolebindings"], "resourceNames": [NAME], "verbs": ["get", "patch"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [NAME], "verbs": ["get", "patch"]},
        ]);
        let in_namespace = json!([
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]},
        ]);
        let binding = |kind: &str| {
            json!({
                "metadata": metadata, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": NAME},
                "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "default"}],
            })
        };
        let all = [
            (ApiResource::erase::<ServiceAccount>(&()), json!({"metadata": metadata})),
            (ApiResource::erase::<Role>(&()), json!({"metadata": metadata, "rules": in_namespace})),
            (ApiResource::erase::<RoleBinding>(&()), binding("Role")),
            (ApiResource::erase::<ClusterRole>(&()), json!({"metadata": metadata, "rules": rules})),
            (ApiResource::erase::<ClusterRoleBinding>(&()), binding("ClusterRole")),
        ];
        let mut objects = Vec::new();
        for (resource, object) in all {
            objects.push(create(harness, &resource, object).await);
        }
        Self { harness, objects }
    }

    /// What a pod of winpool's has: the token of its account.
    async fn config(&self) -> Config {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(self.harness.client.clone());
        let request = TokenRequest::default();
        let answer = accounts.create_token_request(NAME, &PostParams::default(), &request).await.unwrap();
        let mut config = self.harness.server.config().unwrap();
        config.auth_info = AuthInfo { token: Some(answer.status.unwrap().token.into()), ..AuthInfo::default() };
        config
    }

    async fn operator(&self) -> Operator {
        let options = Options { installation: Some(NAME.to_owned()), ..Options::default() };
        Operator::start_with(self.config().await, options)
    }

    /// In the order of `kubectl delete -k`, which is that of installing.
    async fn delete(&self) {
        for (api, _) in &self.objects {
            api.delete(NAME, &DeleteParams::default()).await.unwrap();
        }
    }

    async fn is_gone(&self) {
        for (api, kind) in &self.objects {
            let gone = async || Ok(api.get_opt(NAME).await?.is_none().then_some(()));
            wait_for(&format!("{kind} {NAME} is gone"), LIMIT, gone).await.unwrap();
        }
    }
}

async fn create(harness: &Harness, resource: &ApiResource, object: Value) -> (Api<DynamicObject>, &'static str) {
    let (client, kind) = (harness.client.clone(), resource.kind.clone());
    let cluster = kind.starts_with("Cluster");
    let api = if cluster { Api::all_with(client, resource) } else { Api::default_namespaced_with(client, resource) };
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    (api, kind.leak())
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
    let installed = Installed::new(&harness, true).await;
    let operators = [installed.operator().await, installed.operator().await];
    let retaining =
        json!({"nodeSelector": {"team": "b"}, "classNameFormat": "b-{version}", "deletionPolicy": "Retain"});
    harness.apply_pool_named("retaining", retaining).await;
    harness.apply_pool(json!({"nodeSelector": {"team": "a"}})).await;
    harness.ready("retaining").await;
    harness.ready("default").await;
    assert_ne!(face(&harness.node("win-1").await), before);

    // As `kubectl delete -k` does: the pools' definition goes with the rest.
    let definitions: Api<CustomResourceDefinition> = Api::all(harness.client.clone());
    definitions.delete("windowspools.winpool.dev", &DeleteParams::default()).await.unwrap();
    installed.delete().await;
    installed.is_gone().await;
    for operator in operators {
        operator.ended().await;
    }
    assert_eq!(face(&harness.node("win-1").await), before);
    assert!(taints(&harness.node("win-2").await).contains(&GUARD.to_owned()));
    let classes = harness.classes();
    assert_eq!(classes.get_opt("windows-2019").await.unwrap(), None);
    assert!(classes.get_opt("b-2019").await.unwrap().is_some());
    let gone = async || Ok(definitions.get_opt("windowspools.winpool.dev").await?.is_none().then_some(()));
    wait_for("the definition is gone", LIMIT, gone).await.unwrap();
}

#[tokio::test]
async fn a_process_that_is_told_to_end_looks_once_more_whether_it_is_being_removed() {
    let harness = Harness::new().await;
    let before = join(&harness, "win", "a").await;
    // Without the right to watch its own binding it cannot know before.
    let installed = Installed::new(&harness, false).await;
    let operator = installed.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    installed.delete().await;
    harness.apply_pool(json!({"adoptionPolicy": "Never"})).await;
    harness.ready("default").await;
    operator.stop().await;
    installed.is_gone().await;
    assert_eq!(face(&harness.node("win").await), before);
}

#[tokio::test]
async fn an_end_without_removal_leaves_everything() {
    let harness = Harness::new().await;
    join(&harness, "win", "a").await;
    let installed = Installed::new(&harness, true).await;
    let operator = installed.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    operator.stop().await;
    assert!(taints(&harness.node("win").await).contains(&GUARD.to_owned()));
    // Now nobody is there to clean up, and the removal waits. The command ends it.
    installed.delete().await;
    let arguments = Arguments {
        yes: true,
        dry_run: false,
        context: None,
        lease_namespace: Some("default".to_owned()),
        installation: NAME.to_owned(),
    };
    let mut out = Vec::new();
    let config = harness.server.config().unwrap();
    let outcome = clean_up(config, &arguments, &mut out, || unreachable!("it does not ask")).await;
    let text = String::from_utf8(out).unwrap();
    assert_eq!(outcome.unwrap(), Outcome::Done, "{text}");
    let held = "  RoleBinding winpool\n  Role winpool\n  ServiceAccount winpool\n  ClusterRole winpool\n  ClusterRoleBinding winpool\n";
    assert!(text.contains(held), "{text}");
    installed.is_gone().await;
    assert!(!taints(&harness.node("win").await).contains(&GUARD.to_owned()));
}
