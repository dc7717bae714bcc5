//! The rules of `winpool check`, compared with a real API server.

mod admission;
mod advise;
/// The examples of the rules' own tests.
#[path = "../../../../crates/analysis/tests/lint/examples.rs"]
mod example;
/// The table of remedies of the rules' own tests.
#[path = "../../../../crates/analysis/tests/lint/example_remedies.rs"]
#[expect(dead_code, reason = "the rules' own tests read the other fields")]
mod example_remedies;
mod generated;
mod refused;
mod remedies;

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use winpool_analysis::finding::Finding;
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::{Facts, Rule, check};
use winpool_analysis::view::View;
use winpool_analysis::workload::WorkloadManifest;
use winpool_e2e::harness::workloads;
use winpool_e2e::servers::version::running_kubernetes;

/// Requests in parallel.
const HANDS: usize = 8;

/// The response of the API server to a creation.
struct Answer {
    code: StatusCode,
    /// The object, or the refusal.
    body: Value,
    /// The warnings that kubectl would show.
    warnings: Vec<String>,
}

/// Creates an object in a dry run. The request has exactly this JSON.
async fn create(client: &Client, namespace: &str, object: &Value) -> Answer {
    let (group, resource) = match object["kind"].as_str().unwrap() {
        "Pod" => ("api/v1", "pods"),
        "Deployment" => ("apis/apps/v1", "deployments"),
        "DaemonSet" => ("apis/apps/v1", "daemonsets"),
        "StatefulSet" => ("apis/apps/v1", "statefulsets"),
        "Job" => ("apis/batch/v1", "jobs"),
        "CronJob" => ("apis/batch/v1", "cronjobs"),
        other => panic!("{other}"),
    };
    let path = format!("/{group}/namespaces/{namespace}/{resource}?dryRun=All&fieldValidation=Strict");
    let request = Request::post(path).header("Content-Type", "application/json");
    let answer = client.send(request.body(Body::from(object.to_string().into_bytes())).unwrap()).await.unwrap();
    let headers = answer.headers().get_all("Warning").iter().map(|value| value.to_str().unwrap().to_owned());
    let (warnings, code) = (headers.collect(), answer.status());
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    Answer { code, body: serde_json::from_slice(&bytes).unwrap(), warnings }
}

/// The responses to all of these. Requests run in parallel.
async fn create_all(client: &Client, objects: Vec<Value>) -> Vec<(Value, Answer)> {
    let answers = stream::iter(objects).map(async |object| {
        let answer = create(client, "default", &object).await;
        (object, answer)
    });
    answers.buffer_unordered(HANDS).collect().await
}

fn workload(kind: &str, pod: &Value) -> Value {
    match kind {
        "Pod" => json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "probe"}, "spec": pod}),
        _ => workloads::workload(kind, "probe", pod.clone()),
    }
}

/// Pod specs that break these rules, and others that are close.
fn examples(of: impl Fn(&Rule) -> bool) -> Vec<Value> {
    let examples = example::examples().filter(|examples| of(examples.rule));
    let specs = examples.flat_map(|examples| [examples.breaks, examples.keeps].concat());
    let with_container = |spec: Value| {
        let mut pod = example::windows(&spec);
        if pod["containers"].is_null() {
            pod["containers"] = generated::pod()["containers"].take();
        }
        pod
    };
    specs.map(with_container).collect()
}

/// The facts about the cluster: its version.
async fn facts() -> Facts {
    let minor = running_kubernetes().await.unwrap();
    Facts::of(&View { kubernetes: Some(KubernetesVersion { major: 1, minor }), ..View::default() })
}

fn findings(object: &Value, facts: &Facts) -> Vec<Finding> {
    check(&WorkloadManifest::read(object).unwrap().unwrap(), facts)
}

fn set(texts: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    texts.into_iter().map(Into::into).collect()
}
