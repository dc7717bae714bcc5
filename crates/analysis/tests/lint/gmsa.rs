//! Rules about the use of group managed service accounts.

use serde_json::{Value, json};
use winpool_analysis::lint::Facts;
use winpool_analysis::view::{Known, View};

use super::examples::windows;
use super::{broken, example};

fn role(kind: &str, names: &Value) -> Value {
    json!({
        "kind": kind, "metadata": {"name": "use", "namespace": "shop"},
        "rules": [{"apiGroups": ["windows.k8s.io"], "resources": ["gmsacredentialspecs"], "verbs": ["use"], "resourceNames": names}],
    })
}

fn binding(kind: &str, role: &str, subject: &Value) -> Value {
    json!({
        "kind": kind, "metadata": {"name": "use", "namespace": "shop"},
        "roleRef": {"kind": role, "name": "use"}, "subjects": [subject],
    })
}

/// The rules that a pod of the ServiceAccount `web` in the namespace `shop` with the credential spec `app` breaks.
fn of(permissions: Known<Vec<Value>>, webhooks: Known<Vec<Value>>) -> Vec<String> {
    let view = View { permissions, webhooks, ..View::default() };
    broken("Deployment", &windows(&example("gmsa-use-not-allowed")), &Facts::of(&view))
}

#[test]
fn a_service_account_needs_a_role_to_use_the_credential_spec() {
    let account = json!({"kind": "ServiceAccount", "name": "web", "namespace": "shop"});
    let any = json!([]);
    let webhook =
        || Known::Complete(vec![json!({"webhooks": [{"name": "admission-webhook.windows-gmsa.sigs.k8s.io"}]})]);
    let allowed = |objects: Vec<Value>| of(Known::Complete(objects), webhook());
    for (role, binding) in [
        (role("ClusterRole", &json!(["app"])), binding("RoleBinding", "ClusterRole", &account)),
        (role("ClusterRole", &any), binding("ClusterRoleBinding", "ClusterRole", &account)),
        (role("Role", &any), binding("RoleBinding", "Role", &json!({"kind": "ServiceAccount", "name": "web"}))),
        (
            role("ClusterRole", &any),
            binding("RoleBinding", "ClusterRole", &json!({"kind": "Group", "name": "system:serviceaccounts:shop"})),
        ),
    ] {
        assert_eq!(allowed(vec![role.clone(), binding.clone()]), [""; 0], "{role} {binding}");
    }
    let other = json!({"kind": "ServiceAccount", "name": "default", "namespace": "shop"});
    for objects in [
        Vec::new(),
        vec![role("ClusterRole", &any)],
        vec![role("ClusterRole", &any), binding("RoleBinding", "ClusterRole", &other)],
        vec![role("ClusterRole", &json!(["other"])), binding("RoleBinding", "ClusterRole", &account)],
        vec![role("ClusterRole", &any), binding("RoleBinding", "Role", &account)],
    ] {
        assert_eq!(allowed(objects.clone()), ["gmsa-use-not-allowed"], "{objects:?}");
    }
}

#[test]
fn roles_in_manifests_count_only_if_they_are_about_credential_specs() {
    let view = json!({"kind": "ClusterRole", "metadata": {"name": "view"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    assert_eq!(of(Known::Partial(vec![view]), Known::NotRead), [""; 0]);
    assert_eq!(of(Known::Partial(vec![role("Role", &json!([]))]), Known::NotRead), ["gmsa-use-not-allowed"]);
    assert_eq!(of(Known::NotRead, Known::NotRead), [""; 0]);
}

#[test]
fn a_cluster_without_the_webhook_fills_in_no_credential_spec() {
    let other = json!({"webhooks": [{"name": "istio"}]});
    assert_eq!(of(Known::NotRead, Known::Complete(vec![other.clone()])), ["gmsa-webhook-missing"]);
    assert_eq!(of(Known::NotRead, Known::Partial(vec![other])), [""; 0], "the cluster may have it");
}

#[test]
fn the_name_in_a_template_that_was_not_rendered_is_not_judged() {
    for name in ["${CREDSPEC}", "{{ .Values.credentialSpec }}"] {
        let spec = json!({"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": name}}});
        assert_eq!(broken("Deployment", &windows(&spec), &Facts::none()), [""; 0], "{name}");
    }
}
