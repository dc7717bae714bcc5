//! The power of a stolen token of the operator: with `config/rbac/`, and with `guard`.

mod pods;

use http::{Method, Request, header::CONTENT_TYPE};
use kube::core::Status;
use winpool_e2e::prelude::*;

/// Method, path and body of a request.
type Attempt = (Method, &'static str, Value);

fn get(path: &'static str) -> Attempt {
    (Method::GET, path, Value::Null)
}

fn patch(path: &'static str, body: Value) -> Attempt {
    (Method::PATCH, path, body)
}

fn delete(path: &'static str) -> Attempt {
    (Method::DELETE, path, Value::Null)
}

/// Returns the code of the response to a dry run.
async fn code(client: &Client, attempt: &Attempt) -> u16 {
    refusal(client, attempt).await.map_or(200, |status| status.code)
}

/// Sends a dry run. Returns the answer if it is refused.
async fn refusal(client: &Client, attempt: &Attempt) -> Option<Box<Status>> {
    let (method, _, body) = attempt;
    let kind = match body {
        _ if *method != Method::PATCH => "application/json",
        Value::Array(_) => "application/json-patch+json",
        _ => "application/merge-patch+json",
    };
    refusal_of(client, attempt, kind).await
}

/// Does the same for a body of this kind.
async fn refusal_of(client: &Client, (method, path, body): &Attempt, kind: &str) -> Option<Box<Status>> {
    let dry_run = if *method == Method::GET { "" } else { "?dryRun=All" };
    let request = Request::builder().method(method).uri(format!("{path}{dry_run}")).header(CONTENT_TYPE, kind);
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    match client.request_text(request.body(bytes).unwrap()).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status),
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

const NODE: &str = "/api/v1/nodes/linux";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const FOREIGN: &str = "/apis/node.k8s.io/v1/runtimeclasses/foreign";
const POOL_PATH: &str = "/apis/winpool.dev/v1alpha1/windowspools/default";

/// Requests that RBAC allows because it knows objects, not fields. `guard` refuses them.
fn only_guard_refuses() -> Vec<Attempt> {
    let evicts = json!([taint("example.com/all-out:NoExecute")]);
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}]);
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "new"}, "handler": "runc",
    });
    vec![
        patch(NODE, json!({"spec": {"unschedulable": true}})),
        patch(NODE, json!({"spec": {"taints": evicts}})),
        patch(NODE, json!({"spec": {"taints": null}})),
        patch(NODE, json!({"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "true"}}})),
        patch(NODE, json!({"metadata": {"ownerReferences": owner}})),
        patch(NODE, json!({"metadata": {"finalizers": ["example.com/stay"]}})),
        (Method::POST, CLASSES, class),
        patch(FOREIGN, json!({"overhead": {"podFixed": {"cpu": "9"}}})),
        delete(FOREIGN),
        patch(POOL_PATH, json!({"spec": {"taintPolicy": "Never"}})),
    ]
}

/// Requests that the operator needs, and that can be misused.
fn the_operator_needs() -> Vec<Attempt> {
    let claims = json!({"pool": "default", "taints": ["os=windows:NoSchedule"]}).to_string();
    vec![
        get("/api/v1/pods"),
        get("/apis/apps/v1/daemonsets"),
        patch("/api/v1/nodes/win", json!({"metadata": {"labels": {BUILD: "10.0.1", POOL: "default"}}})),
        patch("/api/v1/nodes/win", json!({"metadata": {"annotations": {APPLIED: claims}}})),
        patch(
            "/apis/winpool.dev/v1alpha1/windowspools/default/status",
            json!({"status": {"taints": [{"taint": "os=windows:NoSchedule"}]}}),
        ),
        get("/apis/coordination.k8s.io/v1/namespaces/winpool-system/leases?fieldSelector=metadata.name%3Dwinpool"),
    ]
}

const CLUSTER_ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/winpool";
const CLUSTER_ROLE_BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/winpool";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/winpool-system/roles/winpool";
const ROLE_BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/winpool-system/rolebindings/winpool";
const ACCOUNT: &str = "/api/v1/namespaces/winpool-system/serviceaccounts/winpool";
const INSTALLED: [&str; 5] = [CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, ACCOUNT];

/// Changes of winpool's own permissions, which RBAC allows because the operator has to remove its finalizer.
fn only_the_confinement_refuses() -> Vec<Attempt> {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}]);
    let of_all = [
        json!({"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}),
        json!({"annotations": {"example.com/note": "x"}}),
        json!({"ownerReferences": owner}),
        json!({"finalizers": ["winpool.dev/cleanup", "example.com/stay"]}),
        json!({"finalizers": ["winpool.dev/cleanup-2"]}),
    ];
    let attempts_on = |path| of_all.clone().map(|metadata| patch(path, json!({"metadata": metadata})));
    let subject = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "winpool-system"});
    let subjects = json!({"subjects": [subject("winpool"), subject("accomplice")]});
    let mut attempts: Vec<Attempt> = INSTALLED.into_iter().flat_map(attempts_on).collect();
    attempts.extend([
        patch(CLUSTER_ROLE_BINDING, subjects.clone()),
        patch(ROLE_BINDING, subjects),
        patch(CLUSTER_ROLE_BINDING, json!({"subjects": null})),
        patch(CLUSTER_ROLE, json!({"rules": []})),
        patch(ROLE, json!({"rules": []})),
        patch(ACCOUNT, json!({"imagePullSecrets": [{"name": "theirs"}]})),
        patch(ACCOUNT, json!({"automountServiceAccountToken": true})),
    ]);
    attempts
}

fn rbac_refuses() -> Vec<Attempt> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let subject = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "winpool-system"});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [subject("winpool")],
    });
    let subjects = json!({"subjects": [subject("winpool"), subject("accomplice")]});
    let mut attempts = vec![
        (Method::POST, "/api/v1/namespaces/default/pods", pod.clone()),
        (Method::PUT, "/api/v1/namespaces/default/pods/p", pod),
        patch("/api/v1/namespaces/default/pods/p/status", json!({"status": {"phase": "Failed"}})),
        patch("/api/v1/namespaces/default/pods/p/ephemeralcontainers", json!({"spec": {"ephemeralContainers": []}})),
        patch("/api/v1/namespaces/default/pods/p/resize", json!({"spec": {"containers": []}})),
        (Method::POST, "/api/v1/namespaces/default/pods/p/eviction", json!({"metadata": {"name": "p"}})),
        (Method::POST, "/api/v1/namespaces/default/pods/p/binding", json!({"metadata": {"name": "p"}})),
        get("/api/v1/namespaces/default/pods/p/log"),
        (Method::POST, "/api/v1/namespaces/default/pods/p/exec", Value::Null),
        delete("/api/v1/namespaces/default/pods/p"),
        (Method::PUT, NODE, json!({"metadata": {"name": "linux"}})),
        delete(NODE),
        (Method::POST, "/api/v1/nodes", json!({"metadata": {"name": "new"}})),
        patch("/api/v1/nodes/linux/status", json!({"status": {"phase": "x"}})),
        get("/api/v1/nodes/linux/proxy/pods"),
        (Method::POST, "/api/v1/namespaces/winpool-system/serviceaccounts/winpool/token", json!({"spec": {}})),
        (Method::POST, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
        patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/winpool", json!({"rules": everything})),
        patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/winpool-help-pods", json!({"rules": everything})),
        patch("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/winpool-help-pods", subjects),
        delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/winpool-help-pods"),
        delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/winpool"),
        patch(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/winpool-guard-nodes",
            json!({"spec": {"failurePolicy": "Ignore"}}),
        ),
        delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/winpool-guard-nodes"),
    ];
    let hidden = [
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/namespaces",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/namespaces/default/daemonsets/web",
        "/apis/batch/v1/jobs",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        "/apis/coordination.k8s.io/v1/namespaces/winpool-system/leases",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
    ];
    attempts.extend(hidden.map(get));
    attempts
}

async fn assert_all(client: &Client, attempts: Vec<Attempt>, refused: bool) {
    for attempt in attempts {
        assert_eq!(code(client, &attempt).await, if refused { 403 } else { 200 }, "{attempt:?}");
    }
}

/// Waits until this policy refuses all these requests: it comes into force a moment after it was installed.
async fn assert_confined(client: &Client, policy: &str, attempts: Vec<Attempt>) {
    for attempt in attempts {
        let mut answer = None;
        let refused = wait_for(policy, LIMIT, async || {
            answer = refusal(client, &attempt).await;
            let is_refused = |status: &Status| status.code == 403 && status.message.contains(policy);
            Ok(answer.as_deref().is_some_and(is_refused).then_some(()))
        });
        assert!(refused.await.is_ok(), "{policy} does not refuse {attempt:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_stolen_token_allows_only_what_rbac_and_guard_allow() {
    let harness = Harness::unguarded().await;
    harness.join_node(SimulatedNode::linux().name("linux")).await;
    harness.join("win").await;
    let foreign = json!({"metadata": {"name": "foreign"}, "handler": "runhcs-wcow-process"});
    let _: RuntimeClass = harness.create(foreign).await;
    harness.apply_pool(json!({})).await;
    let thief = Client::try_from(harness.account.config.clone()).unwrap();

    assert_all(&thief, only_guard_refuses(), false).await;
    assert_all(&thief, the_operator_needs(), false).await;
    assert_all(&thief, rbac_refuses(), true).await;
    its_own_permissions_are_confined(&harness, &thief).await;

    manifests::apply(&harness.client, &manifests::component("guard").unwrap()).await.unwrap();
    // Each policy comes into force separately.
    let in_force = async || {
        for attempt in only_guard_refuses() {
            if code(&thief, &attempt).await != 403 {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    wait_for("guard refuses", LIMIT, in_force).await.unwrap();
    assert_all(&thief, the_operator_needs(), false).await;
    assert_all(&thief, rbac_refuses(), true).await;
}

/// Tries to change what gives winpool its permissions. Only the finalizer may be removed, and added.
async fn its_own_permissions_are_confined(harness: &Harness, thief: &Client) {
    assert_confined(thief, "winpool-confine-permissions", only_the_confinement_refuses()).await;
    for path in INSTALLED {
        let finalizers = |finalizers| patch(path, json!({"metadata": {"finalizers": finalizers}}));
        let (none, own) = (finalizers(Value::Null), finalizers(json!(["winpool.dev/cleanup"])));
        assert_eq!(code(thief, &none).await, 200, "{path}");
        let request = Request::patch(path).header(CONTENT_TYPE, "application/merge-patch+json");
        harness.client.request_text(request.body(none.2.to_string().into_bytes()).unwrap()).await.unwrap();
        assert_eq!(code(thief, &own).await, 200, "{path}");
    }
}
