#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::Baseline;
use crate::error::{Error, Result};
use crate::machine::wait::wait_for;
use crate::nodes::simulated::SimulatedNode;
use crate::servers::api_server::ApiServer;
use crate::servers::etcd::Etcd;
use kube::api::{DynamicObject, PostParams};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test]
async fn a_server_returns_to_its_initial_state() -> Result<()> {
    let etcd = Arc::new(Etcd::start().await?);
    let server = ApiServer::start(&etcd, "emptying").await?;
    let client = server.connect()?;
    let baseline = Baseline::of(&client).await?;

    SimulatedNode::windows("10.0.20348.1").join(&client).await?;
    create(&client, "namespaces", None, json!({"kind": "Namespace", "metadata": {"name": "left"}})).await?;
    for namespace in ["left", "default"] {
        let pod = json!({
            "kind": "Pod",
            "metadata": {"name": "left", "finalizers": ["example.com/left"]},
            "spec": {"nodeName": "win-20348", "containers": [{"name": "a", "image": "b"}]},
        });
        create(&client, "pods", Some(namespace), pod).await?;
    }
    create_custom_resource_with_finalizer(&client).await?;
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "left"}});
    create(&client, "clusterroles", None, role).await?;

    baseline.restore(&client).await?;
    let again = Baseline::of(&client).await?;
    assert_eq!(again.kinds, baseline.kinds);
    assert!(again.objects.keys().eq(baseline.objects.keys()));

    deny_config_maps(&client).await?;
    baseline.restore(&client).await?;
    create(&client, "configmaps", Some("default"), config_map()).await?;

    let webhooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "left"},
    });
    create(&client, "validatingwebhookconfigurations", None, webhooks).await?;
    let refused = baseline.restore(&client).await;
    assert!(matches!(refused, Err(Error::NotEmptied(_))), "{refused:?}");
    Ok(())
}

async fn create_custom_resource_with_finalizer(client: &Client) -> Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lefts.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "lefts", "kind": "Left"},
            "scope": "Cluster",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    create(client, "customresourcedefinitions", None, definition).await?;
    let left = json!({
        "apiVersion": "example.com/v1",
        "kind": "Left",
        "metadata": {"name": "left", "finalizers": ["example.com/left"]},
    });
    wait_for("the new kind is served", crate::machine::wait::LIMIT, async || {
        match create(client, "lefts", None, left.clone()).await {
            Err(Error::Kube(error)) if matches!(&*error, kube::Error::Api(status) if status.code == 404) => Ok(None),
            result => result.map(Some),
        }
    })
    .await
}

async fn create(client: &Client, plural: &str, namespace: Option<&str>, mut object: Value) -> Result<()> {
    let api_version = object["apiVersion"].as_str().unwrap_or("v1").to_owned();
    object["apiVersion"] = json!(api_version);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object["kind"].as_str().unwrap().to_owned(),
        plural: plural.to_owned(),
        api_version: api_version.clone(),
    };
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

fn config_map() -> Value {
    json!({"kind": "ConfigMap", "metadata": {"generateName": "a-"}})
}

/// Installs a policy, and waits until it is in force.
async fn deny_config_maps(client: &Client) -> Result<()> {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "left"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]},
    });
    create(client, "validatingadmissionpolicies", None, policy).await?;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "left"},
        "spec": {"policyName": "left", "validationActions": ["Deny"]},
    });
    create(client, "validatingadmissionpolicybindings", None, binding).await?;
    let denied = async || Ok(create(client, "configmaps", Some("default"), config_map()).await.err());
    wait_for("ConfigMaps are denied", crate::machine::wait::LIMIT, denied).await?;
    Ok(())
}
