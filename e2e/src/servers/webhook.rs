//! Mutating webhooks on 127.0.0.1.

use crate::error::{FileContext, Result};
use crate::network::certificates::tls;
use crate::network::proxy::serve;
use crate::servers::api_server::ApiServer;
use futures::future::BoxFuture;
use futures::{FutureExt, future};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::DropGuard;

/// Returns the operations of a JSON patch for the object of a request.
type Mutation = dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync;

/// A webhook that is called for every new pod, and with `reinvocationPolicy: Never` only once. It ends when this is dropped.
pub struct PodWebhook {
    _stop: DropGuard,
}

impl PodWebhook {
    /// Serves `mutation` and registers it under `name`. The API server calls it some time later.
    pub async fn register(
        server: &ApiServer,
        name: &str,
        mutation: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> Result<Self> {
        let mutation = move |request: Value| future::ready(mutation(&request["object"])).boxed();
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
        Ok(Self { _stop: register(server, name, rules, Arc::new(mutation)).await? })
    }
}

/// A webhook that holds back every change of a node by one user until it is released, and changes nothing.
pub struct HoldingWebhook {
    _stop: DropGuard,
    held: Arc<watch::Sender<usize>>,
    release: watch::Sender<bool>,
}

impl HoldingWebhook {
    /// Registers it under `name`. The API server calls it some time later, and waits for 30 seconds.
    pub async fn register(server: &ApiServer, name: &str, user: &str) -> Result<Self> {
        let (held, release) = (Arc::new(watch::Sender::new(0)), watch::Sender::new(false));
        let (count, released, user) = (Arc::clone(&held), release.subscribe(), user.to_owned());
        let mutation = move |request: Value| {
            let (count, mut released) = (Arc::clone(&count), released.clone());
            let is_held = request["userInfo"]["username"] == user.as_str();
            async move {
                if is_held {
                    count.send_modify(|count| *count += 1);
                    let _ = released.wait_for(|released| *released).await;
                }
                json!([])
            }
            .boxed()
        };
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]);
        let stop = register(server, name, rules, Arc::new(mutation)).await?;
        Ok(Self { _stop: stop, held, release })
    }

    /// The number of changes that it has held back so far.
    pub fn held(&self) -> usize {
        *self.held.borrow()
    }

    /// Lets all changes pass.
    pub fn release(&self) {
        self.release.send_replace(true);
    }
}

/// Serves `mutation`, and registers it for these requests.
async fn register(server: &ApiServer, name: &str, rules: Value, mutation: Arc<Mutation>) -> Result<DropGuard> {
    let identity = server.serving();
    let tls = TlsAcceptor::from(Arc::new(tls(&identity.certificate, &identity.key)?));
    let (port, stop) = serve(move |stream| review(stream, tls.clone(), Arc::clone(&mutation))).await?;
    let authority = server.authority_file();
    let authority = ByteString(std::fs::read(&authority).when("read", &authority)?);
    let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": name,
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/"), "caBundle": authority},
            "rules": rules, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 30,
            "reinvocationPolicy": "Never",
        }],
    }))
    .map_err(kube::Error::SerdeError)?;
    Api::all(server.connect()?).create(&PostParams::default(), &configuration).await?;
    Ok(stop)
}

async fn review(stream: TcpStream, tls: TlsAcceptor, mutation: Arc<Mutation>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, mutation.as_ref()));
    // An error says that the API server has closed the connection.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    mutation: &Mutation,
) -> std::result::Result<Response<Full<Bytes>>, NotAReview> {
    let body = request.into_body().collect().await.map_err(|_| NotAReview)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).map_err(|_| NotAReview)?;
    let patch = mutation(review["request"].clone()).await.to_string();
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": ByteString(patch.into_bytes()),
        },
    });
    let mut response = Response::new(Full::from(answer.to_string()));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

#[derive(Debug, thiserror::Error)]
#[error("the request is no AdmissionReview")]
struct NotAReview;
