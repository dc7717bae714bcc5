//! Objects of other projects on a real API server: gMSA and Karpenter on Azure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::definitions::define;
use winpool_e2e::servers::lending::{Lent, lend};

use crate::check::{create, live};

/// Installs a CRD whose objects may have any fields.
pub async fn install(server: &Lent, scope: &str, api_version: &str, kind: &str, plural: &str) {
    let (group, version) = api_version.split_once('/').unwrap();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
    }))
    .unwrap();
    define(&server.client(), &definition).await.unwrap();
}

/// The rules about gMSA that the workloads break: `web gmsa-webhook-missing`.
fn found(server: &Lent, scope: &[&str]) -> Vec<String> {
    let report = live(server, &[&["check"], scope].concat());
    let findings = report["findings"].as_array().unwrap().iter();
    let named = findings.map(|found| {
        let [name, rule] = [&found["object"]["name"], &found["rule"]].map(|text| text.as_str().unwrap());
        format!("{name} {rule}")
    });
    named.filter(|found| found.contains(" gmsa-")).collect()
}

#[tokio::test]
async fn a_live_cluster_shows_who_may_use_a_credential_spec_and_if_there_is_a_webhook() {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";
    let server = lend().await.unwrap();
    let client = server.client();
    SimulatedNode::server_2022("win").join(&client).await.unwrap();
    create(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let deploy = async |name: &str, account: Option<&str>, spec: &str| {
        let labels = json!({"app": name});
        let pod = json!({
            "os": {"name": "windows"}, "serviceAccountName": account,
            "securityContext": {"windowsOptions": {"gmsaCredentialSpecName": spec}},
            "containers": [{"name": "c", "image": "app:1.0"}],
        });
        let template = json!({"metadata": {"labels": labels}, "spec": pod});
        let object =
            json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
        create(&client, "/apis/apps/v1/namespaces/shop/deployments", object).await;
    };
    deploy("may", Some("web"), "web").await;
    deploy("may-not", None, "web").await;
    deploy("no-spec", Some("web"), "other").await;

    // Nothing of gMSA is installed.
    let all = |rule: &str| ["may", "may-not", "no-spec"].map(|name| format!("{name} {rule}"));
    let mut expected: Vec<String> = ["gmsa-credential-spec-missing", "gmsa-use-not-allowed", "gmsa-webhook-missing"]
        .iter()
        .flat_map(|rule| all(rule))
        .collect();
    expected.sort();
    let mut nothing = found(&server, &["-n", "shop"]);
    nothing.sort();
    assert_eq!(nothing, expected);

    install(&server, "Cluster", "windows.k8s.io/v1", "GMSACredentialSpec", "gmsacredentialspecs").await;
    let credspec = json!({"DomainJoinConfig": {}, "ActiveDirectoryConfig": {}});
    let object = json!({
        "apiVersion": "windows.k8s.io/v1", "kind": "GMSACredentialSpec", "metadata": {"name": "web"}, "credspec": credspec,
    });
    create(&client, "/apis/windows.k8s.io/v1/gmsacredentialspecs", object).await;
    create(&client, "/api/v1/namespaces/shop/serviceaccounts", json!({"metadata": {"name": "web"}})).await;
    let permission = json!({
        "apiGroups": ["windows.k8s.io"], "resources": ["gmsacredentialspecs"], "verbs": ["use"], "resourceNames": ["web", "other"],
    });
    create(&client, &format!("{ROLES}/clusterroles"), json!({"metadata": {"name": "gmsa-web"}, "rules": [permission]}))
        .await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gmsa-web"});
    let subject = json!({"kind": "ServiceAccount", "name": "web", "namespace": "shop"});
    let binding = json!({"metadata": {"name": "web"}, "roleRef": role, "subjects": [subject]});
    create(&client, &format!("{ROLES}/namespaces/shop/rolebindings"), binding).await;
    let mut expected =
        vec!["may-not gmsa-use-not-allowed".to_owned(), "no-spec gmsa-credential-spec-missing".to_owned()];
    let mut with_webhook_missing = [expected.clone(), all("gmsa-webhook-missing").to_vec()].concat();
    with_webhook_missing.sort();
    for scope in [&["-n", "shop"][..], &["-A"]] {
        let mut now = found(&server, scope);
        now.sort();
        assert_eq!(now, with_webhook_missing, "{scope:?}");
    }

    let webhook = json!({
        "name": "admission-webhook.windows-gmsa.sigs.k8s.io", "sideEffects": "None", "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/mutate"},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    });
    let configuration = json!({"metadata": {"name": "windows-gmsa"}, "webhooks": [webhook]});
    create(&client, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", configuration).await;
    expected.sort();
    for scope in [&["-n", "shop"][..], &["-A"]] {
        let mut now = found(&server, scope);
        now.sort();
        assert_eq!(now, expected, "{scope:?}");
    }
}

#[tokio::test]
async fn the_image_family_of_a_live_aks_node_class_tells_what_its_nodes_run() {
    let server = lend().await.unwrap();
    let client = server.client();
    install(&server, "Cluster", "karpenter.sh/v1", "NodePool", "nodepools").await;
    install(&server, "Cluster", "karpenter.azure.com/v1beta1", "AKSNodeClass", "aksnodeclasses").await;
    create(&client, "/apis/node.k8s.io/v1/runtimeclasses", json!({
        "metadata": {"name": "windows-2022"}, "handler": "runhcs-wcow-process",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"}},
    })).await;
    install_crd(&client).await.unwrap();
    for (name, family) in [("win-2022", "Windows2022"), ("win-2025", "Windows2025"), ("linux", "Ubuntu2404")] {
        let class = json!({
            "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": {"name": name},
            "spec": {"imageFamily": family},
        });
        create(&client, "/apis/karpenter.azure.com/v1beta1/aksnodeclasses", class).await;
        let node_class = json!({"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": name});
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": {"nodeClassRef": node_class, "requirements": []}}},
        });
        create(&client, "/apis/karpenter.sh/v1/nodepools", pool).await;
    }
    let answer = live(&server, &["why", "class/windows-2022"]);
    assert_eq!(answer["canScaleFromZero"], true, "{answer}");
    let template_of = |name: &str| {
        let mut templates = answer["templates"].as_array().unwrap().iter();
        templates.find(|template| template["template"] == format!("NodePool {name}")).unwrap().clone()
    };
    assert_eq!(template_of("win-2022")["serves"], true);
    for (name, missing) in [
        ("win-2025", "AKSNodeClass win-2025: node.kubernetes.io/windows-build In (10.0.26100)"),
        ("linux", "AKSNodeClass linux: kubernetes.io/os In (linux)"),
    ] {
        let template: Value = template_of(name);
        assert!(template["serves"] == false && template["missing"].to_string().contains(missing), "{template}");
    }
}
