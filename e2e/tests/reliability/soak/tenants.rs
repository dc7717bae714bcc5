//! A tenant who hinders winpool during the long run as much as the API server lets them: pods that fill limits, a webhook that fails
//! or does not answer, and an object that hardly decodes.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::hostile::pod_without;

const NAME: &str = "flood";
const PODS: usize = 60;
/// The time for which the pods stay.
const STAY: Duration = Duration::from_secs(8);
/// `serde_json` reads a value to a depth of 128.
const DEPTH: usize = 200;

/// Runs until it is stopped, and removes everything again. Returns what it did.
pub async fn hinder(client: Client, stop: CancellationToken) -> String {
    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("https://{}/", silent.local_addr().unwrap());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAME}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAME);
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let classes: Api<RuntimeClass> = Api::all(client);
    let class = serde_json::from_value(json!({"metadata": {"name": NAME}, "handler": NAME})).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    let (now, mut rounds) = (DeleteParams::default().grace_period(0), 0);
    while !stop.is_cancelled() {
        let url = [None, Some("https://127.0.0.1:1/"), Some(&*silent)][rounds % 3];
        webhooks.patch(NAME, &PatchParams::apply("soak").force(), &Patch::Apply(webhook(url))).await.unwrap();
        // kube does not decode the answer.
        let _ = classes.patch(NAME, &PatchParams::default(), &Patch::Merge(deep(rounds))).await;
        stream::iter(0..PODS)
            .for_each_concurrent(8, async |number| {
                pods.create(&PostParams::default(), &pod(rounds, number)).await.unwrap();
            })
            .await;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(STAY) => {}
        }
        pods.delete_collection(&now, &ListParams::default()).await.unwrap();
        rounds += 1;
    }
    webhooks.delete(NAME, &now).await.unwrap();
    let _ = classes.delete(NAME, &now).await;
    format!("{rounds} rounds of {PODS} pods of a tenant")
}

/// Pods for Windows without a toleration, each with a placement of its own.
fn pod(round: usize, number: usize) -> Pod {
    let hosts: Vec<_> = (0..60).map(|host| format!("{round}-{number}-{host:050}")).collect();
    pod_without("kubernetes.io/hostname", &hosts, &format!("flood-{round}-{number}"), &json!([]))
}

/// A webhook that every change of these pods needs, if there is a URL.
fn webhook(url: Option<&str>) -> Value {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]);
    let webhooks = url.map(|url| {
        json!({
            "name": "flood.example.com", "clientConfig": {"url": url}, "rules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAME}},
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 3,
        })
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME}, "webhooks": webhooks.into_iter().collect::<Vec<_>>(),
    })
}

/// A change after which a class has managed fields of many levels, at a time after all that winpool can hold.
fn deep(round: usize) -> Value {
    let fields = (0..DEPTH).fold(json!({}), |fields, _| json!({"f:a": fields}));
    let entry = json!({
        "manager": "deep", "operation": "Update", "apiVersion": "node.k8s.io/v1", "time": "9999-12-31T23:59:59Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields},
    });
    json!({"metadata": {"labels": {"round": round.to_string()}, "managedFields": [entry]}})
}
