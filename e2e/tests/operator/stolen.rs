//! The power of a stolen token of the operator: with `config/rbac/`, without its policies, and with `guard`.

mod pods;

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, PostParams};
use kube::core::Status;
use kube::{Api, Client};
use serde_json::{Value, json};
use winpool_e2e::harness::account::CONFINED;
use winpool_e2e::harness::objects::{BUILD, NOT_READY, taint};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::manifests;

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

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const NODE: &str = "/api/v1/nodes/linux";
const WINDOWS: &str = "/api/v1/nodes/win";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const FOREIGN: &str = "/apis/node.k8s.io/v1/runtimeclasses/foreign";
/// One with the label of a pool, as the operator adopts them.
const ADOPTED: &str = "/apis/node.k8s.io/v1/runtimeclasses/adopted";
const OWN: &str = "/apis/node.k8s.io/v1/runtimeclasses/own";
const POOL_PATH: &str = "/apis/winpool.dev/v1alpha1/windowspools/default";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/winpool-system/leases";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const EVENT_OF_THE_KUBELET: &str = "/apis/events.k8s.io/v1/namespaces/default/events/kubelet";
const OWN_EVENT: &str = "/apis/events.k8s.io/v1/namespaces/default/events/winpool";

fn class(name: &str, handler: &str, labels: &Value) -> Value {
    let toleration = json!({"key": "example.com/a", "operator": "Exists"});
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name, "labels": labels},
        "handler": handler, "scheduling": {"nodeSelector": {"example.com/a": "b"}, "tolerations": [toleration]},
    })
}

fn event(name: &str, component: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning", "reason": "Failed", "action": "Starting",
        "reportingController": component, "reportingInstance": component,
        "regarding": {"kind": "Pod", "name": "web", "namespace": "default"},
    })
}

/// The event with more fields.
fn event_with(component: &str, more: &Value) -> Value {
    let mut event = event("new", component);
    json_patch::merge(&mut event, more);
    event
}

/// A merge patch as the operator sends it for a repeated event.
fn repeated() -> Value {
    json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}})
}

fn add_taint(text: &str) -> Value {
    json!([{"op": "add", "path": "/spec/taints/-", "value": taint(text)}])
}

fn metadata(field: &str, value: &Value) -> Value {
    json!({"metadata": {field: value}})
}

/// Requests that RBAC allows because it knows objects, not fields, with the policy that refuses them.
fn only_a_policy_refuses() -> [(&'static str, Vec<Attempt>); 4] {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}]);
    let of_any_node = [
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"providerID": "aws:///i-1"}}),
        json!({"spec": {"taints": null}}),
        add_taint("example.com/all-out:NoExecute"),
        add_taint("os=windows:NoExecute"),
        add_taint("node.kubernetes.io/out-of-service:NoSchedule"),
        metadata("labels", &json!({"node-restriction.kubernetes.io/trusted": "true"})),
        metadata("labels", &json!({"kubernetes.io/os": "windows-of-theirs"})),
        metadata("annotations", &json!({"winpool.dev/ignore": "true"})),
        metadata("ownerReferences", &owner),
        metadata("finalizers", &json!(["example.com/stay"])),
    ];
    let of_linux = [
        json!([{"op": "remove", "path": "/spec/taints/0"}]),
        add_taint("os=windows:NoSchedule"),
        add_taint("example.com/mine:PreferNoSchedule"),
        metadata("labels", &json!({BUILD: "10.0.1"})),
        metadata("labels", &json!({POOL: "default"})),
        metadata("annotations", &json!({APPLIED: "{}"})),
    ];
    let nodes = [NODE, WINDOWS].into_iter().flat_map(|path| of_any_node.clone().map(|body| patch(path, body)));
    let nodes = nodes.chain(of_linux.map(|body| patch(NODE, body)));

    let scheduling = |field: &str, value: Value| json!({"scheduling": {field: value}});
    let of_foreign_classes = [
        json!({"scheduling": null}),
        json!({"overhead": {"podFixed": {"cpu": "9"}}}),
        scheduling("nodeSelector", json!({"example.com/a": "c"})),
        scheduling("nodeSelector", json!({"example.com/a": null, "kubernetes.io/os": "windows"})),
        scheduling("tolerations", json!([])),
        scheduling("tolerations", json!([{"key": "example.com/a", "operator": "Exists", "effect": "NoSchedule"}])),
        json!({"metadata": {"labels": {POOL: "default"}}, "overhead": {"podFixed": {"cpu": "9"}}}),
        metadata("labels", &json!({"team": null})),
        metadata("labels", &json!({MANAGED_BY: "winpool"})),
        metadata("labels", &json!({MANAGED_BY: null})),
        metadata("annotations", &json!({"example.com/note": "x"})),
        metadata("ownerReferences", &owner),
        metadata("finalizers", &json!(["example.com/stay"])),
    ];
    let classes =
        [FOREIGN, ADOPTED].into_iter().flat_map(|path| of_foreign_classes.clone().map(|body| patch(path, body)));
    let own = json!({MANAGED_BY: "winpool", POOL: "default"});
    let mut staying = class("new", "runhcs-wcow-process", &own);
    staying["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let classes = classes.chain([
        (Method::POST, CLASSES, class("new", "runc", &json!({}))),
        (Method::POST, CLASSES, class("new", "runc", &json!({POOL: "default"}))),
        (Method::POST, CLASSES, staying),
        delete(FOREIGN),
        delete(ADOPTED),
        patch(OWN, metadata("finalizers", &json!(["example.com/stay"]))),
        patch(OWN, metadata("labels", &json!({"team": "theirs"}))),
    ]);

    let pools = [
        json!({"spec": {"taintPolicy": "Never"}}),
        metadata("labels", &json!({"a": "b"})),
        metadata("annotations", &json!({"a": "b"})),
        metadata("finalizers", &json!(["example.com/stay"])),
        metadata("ownerReferences", &owner),
    ];

    let events = vec![
        (Method::POST, EVENTS, event("new", "kubelet")),
        (Method::POST, EVENTS, event_with("winpool", &json!({"reportingInstance": "node-1"}))),
        (Method::POST, EVENTS, event_with("winpool", &metadata("finalizers", &json!(["example.com/stay"])))),
        (Method::POST, EVENTS, event_with("winpool", &metadata("ownerReferences", &owner))),
        (Method::POST, EVENTS, event_with("winpool", &metadata("labels", &json!({"a": "b"})))),
        patch(EVENT_OF_THE_KUBELET, repeated()),
        patch(EVENT_OF_THE_KUBELET, metadata("labels", &json!({"a": "b"}))),
        patch(EVENT_OF_THE_KUBELET, metadata("finalizers", &json!(["example.com/stay"]))),
        patch(OWN_EVENT, metadata("labels", &json!({"a": "b"}))),
    ];
    [
        ("winpool-confine-nodes", nodes.collect()),
        ("winpool-confine-runtimeclasses", classes.collect()),
        ("winpool-confine-pools", pools.map(|body| patch(POOL_PATH, body)).into()),
        ("winpool-confine-events", events),
    ]
}

/// Requests about taints and classes that only the lists of `guard` refuse.
fn only_guard_refuses() -> Vec<Attempt> {
    let own = json!({MANAGED_BY: "winpool"});
    vec![
        patch(WINDOWS, add_taint("dedicated:NoSchedule")),
        patch(WINDOWS, json!([{"op": "remove", "path": "/spec/taints/0"}])),
        (Method::POST, CLASSES, class("new", "runc", &own)),
    ]
}

/// Requests that the operator needs, and that can be misused.
fn the_operator_needs() -> Vec<Attempt> {
    let claims = json!({"pool": "default", "taints": ["os=windows:NoSchedule"]}).to_string();
    let tolerations = json!([
        {"key": "example.com/a", "operator": "Exists"}, {"key": "os", "value": "windows", "effect": "NoSchedule"},
    ]);
    let more = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations});
    let own = json!({MANAGED_BY: "winpool", POOL: "default"});
    vec![
        get("/api/v1/pods"),
        get("/apis/apps/v1/daemonsets"),
        patch(
            WINDOWS,
            metadata("labels", &json!({BUILD: "10.0.1", POOL: "default", "runs.winpool.dev/10.0.1": "true"})),
        ),
        patch(WINDOWS, metadata("annotations", &json!({APPLIED: claims}))),
        patch(WINDOWS, add_taint("os=windows:NoSchedule")),
        (Method::POST, CLASSES, class("new", "runhcs-wcow-process", &own)),
        patch(OWN, json!({"scheduling": null, "overhead": {"podFixed": {"cpu": "9"}}})),
        patch(OWN, metadata("labels", &Value::Null)),
        delete(OWN),
        patch(FOREIGN, json!({"metadata": {"labels": {POOL: "default"}}, "scheduling": more})),
        patch(ADOPTED, json!({"metadata": {"labels": {POOL: null}}, "scheduling": more})),
        patch(POOL_PATH, metadata("finalizers", &json!(["winpool.dev/cleanup"]))),
        patch(
            "/apis/winpool.dev/v1alpha1/windowspools/default/status",
            json!({"status": {"taints": [{"taint": "os=windows:NoSchedule"}]}}),
        ),
        (Method::POST, EVENTS, event("new", "winpool")),
        patch(OWN_EVENT, repeated()),
        (Method::POST, LEASES, json!({"metadata": {"name": "new"}})),
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
        delete(EVENT_OF_THE_KUBELET),
        (Method::POST, "/api/v1/namespaces/default/events", json!({"metadata": {"name": "new"}})),
        patch("/api/v1/namespaces/default/events/kubelet", json!({"message": "x"})),
        delete(POOL_PATH),
        (Method::POST, "/apis/winpool.dev/v1alpha1/windowspools", json!({"metadata": {"name": "new"}})),
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

/// Deletes the bindings of these policies, and waits until they no longer apply to these requests.
async fn unbind(harness: &Harness, thief: &Client, policies: &[(&str, Vec<Attempt>)]) {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(harness.client.clone());
    for (policy, _) in policies {
        bindings.delete(policy, &DeleteParams::default()).await.unwrap();
    }
    for attempt in policies.iter().flat_map(|(_, attempts)| attempts) {
        let mut answer = None;
        let allowed = wait_for("it is allowed", LIMIT, async || {
            answer = refusal(thief, attempt).await;
            Ok(answer.is_none().then_some(()))
        });
        assert!(allowed.await.is_ok(), "{attempt:?} is refused without the policies: {answer:?}");
    }
}

#[tokio::test]
async fn a_stolen_token_allows_only_what_rbac_and_the_policies_allow() {
    let harness = Harness::unguarded().await;
    let linux = SimulatedNode::linux().name("linux").taint("example.com/theirs", "a", "NoSchedule");
    harness.join_node(linux.annotation("example.com/note", "a")).await;
    let win = SimulatedNode::server_2022("win").taint("example.com/theirs", "a", "NoSchedule");
    harness.join_node(win.annotation("example.com/note", "a")).await;
    for (name, labels) in [
        ("foreign", json!({"team": "a", MANAGED_BY: "Helm"})),
        ("adopted", json!({"team": "a", MANAGED_BY: "Helm", POOL: "default"})),
        ("own", json!({MANAGED_BY: "winpool", POOL: "default"})),
    ] {
        let _: RuntimeClass = harness.create(class(name, "runhcs-wcow-process", &labels)).await;
    }
    let events: Api<Event> = Api::namespaced(harness.client.clone(), "default");
    for component in ["kubelet", "winpool"] {
        let event = serde_json::from_value(event(component, component)).unwrap();
        events.create(&PostParams::default(), &event).await.unwrap();
    }
    harness.apply_pool(json!({})).await;
    let thief = Client::try_from(harness.account.config.clone()).unwrap();

    // Without these policies RBAC allows all of it.
    let policies = only_a_policy_refuses();
    unbind(&harness, &thief, &policies).await;
    for confined in CONFINED {
        let objects = manifests::rbac(&format!("confine_{confined}.yaml")).unwrap();
        manifests::apply(&harness.client, &objects).await.unwrap();
    }
    for (policy, attempts) in policies {
        assert_confined(&thief, policy, attempts).await;
    }
    assert_all(&thief, the_operator_needs(), false).await;
    assert_all(&thief, rbac_refuses(), true).await;
    its_own_permissions_are_confined(&harness, &thief).await;

    assert_all(&thief, only_guard_refuses(), false).await;
    manifests::apply(&harness.client, &manifests::component("guard").unwrap()).await.unwrap();
    assert_confined(&thief, "winpool-guard-", only_guard_refuses()).await;
    assert_all(&thief, the_operator_needs(), false).await;
}

/// The only change that winpool may make to a node that is not Windows.
#[tokio::test]
async fn of_a_node_that_is_linux_now_a_stolen_token_removes_only_what_winpool_added() {
    let harness = Harness::new().await;
    let record = json!({"pool": "default", "taints": [OS_WINDOWS, "windows:NoSchedule"]}).to_string();
    let linux = SimulatedNode::linux().name("linux").label(POOL, "default").label(BUILD, "10.0.20348");
    let linux = linux.label("runs.winpool.dev/10.0.20348", "true").annotation(APPLIED, &record);
    let linux = linux.taint("os", "windows", "NoSchedule").taint("windows", "", "NoSchedule");
    harness.join_node(linux.taint("os", "other", "PreferNoSchedule").taint("team", "a", "NoSchedule")).await;
    let thief = Client::try_from(harness.account.config.clone()).unwrap();
    let left = |taints: &[&str]| json!({"spec": {"taints": taints.iter().map(|text| taint(text)).collect::<Vec<_>>()}});
    let (other, team) = ("os=other:PreferNoSchedule", "team=a:NoSchedule");
    let refused = [
        left(&[OS_WINDOWS, "windows:NoSchedule", team, NOT_READY]),
        left(&[OS_WINDOWS, "windows:NoSchedule", other, NOT_READY]),
        left(&["os=linux:NoSchedule", "windows:NoSchedule", other, team, NOT_READY]),
        metadata("labels", &json!({POOL: "other"})),
        metadata("labels", &json!({"kubernetes.io/os": "windows"})),
        metadata("annotations", &json!({APPLIED: "{}"})),
    ];
    assert_confined(&thief, "winpool-confine-nodes", refused.map(|body| patch(NODE, body)).into()).await;
    let mut all = left(&[other, team, NOT_READY]);
    let off = json!({POOL: null, BUILD: null, "runs.winpool.dev/10.0.20348": null});
    all["metadata"] = json!({"labels": off, "annotations": {APPLIED: null}});
    let allowed =
        [all, left(&["windows:NoSchedule", other, team, NOT_READY]), metadata("labels", &json!({POOL: null}))];
    assert_all(&thief, allowed.map(|body| patch(NODE, body)).into(), false).await;
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
