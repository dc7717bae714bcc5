//! The client of the Kubernetes API: kube's own, but with `TCP_NODELAY`.
//!
//! kube leaves Nagle's algorithm on (<https://github.com/kube-rs/kube/issues/2056>). The first request on a connection
//! then waits until the end of the TLS handshake is acknowledged, which Linux delays by 40 ms.

use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use thiserror::Error;
use tower::util::MapErrLayer;
use tower::{BoxError, ServiceBuilder, service_fn};

use crate::requests::{self, Counter};
use crate::{managed_fields, watches};

/// The API server cannot be reached.
#[derive(Debug, Error)]
#[error("cannot reach {url}{through}")]
struct Unreachable {
    url: String,
    through: String,
    #[source]
    error: Box<legacy::Error>,
}

/// Returns a function that adds the URL to errors of a connection.
fn naming(config: &Config) -> impl Fn(BoxError) -> BoxError + Clone + Send + Sync + 'static {
    let url = config.cluster_url.to_string();
    // A proxy's URL may have a password in it.
    let proxy = config.proxy_url.as_ref().and_then(|proxy| Some((proxy.host()?, proxy.port_u16()?)));
    let through = proxy.map(|(host, port)| format!(" through the proxy {host}:{port}")).unwrap_or_default();
    move |error| match error.downcast::<legacy::Error>() {
        Ok(error) if error.is_connect() => Unreachable { url: url.clone(), through: through.clone(), error }.into(),
        Ok(error) => error,
        Err(error) => error,
    }
}

/// The longest time between two requests on one connection. The time limit for silence counts from the last answer, so
/// that connections that died together are all found at the same time. It has to leave time for a request.
const IDLE: Duration = Duration::from_secs(30);

/// The error for a kubeconfig from which no client can be created.
#[derive(Debug, Error)]
#[error("cannot create a client from the kubeconfig: {0}")]
pub struct ConnectError(#[source] pub Box<kube::Error>);

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

/// Creates a client, which counts its requests if a counter is given, and sends each request as `prepared` returns it.
/// With a proxy from the kubeconfig or `HTTPS_PROXY`, it uses kube's own connector, which leaves Nagle's algorithm on.
///
/// The client retries nothing: its callers limit and count their attempts for each object, and kube's 15 attempts
/// would block for minutes.
pub fn connect_with<B>(
    mut config: Config,
    counter: Option<Arc<dyn Counter>>,
    prepared: impl Fn(Request<Body>) -> Request<B> + Clone + Send + Sync + 'static,
) -> Result<Client, ConnectError>
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let watched = |client: Client| {
        let client = managed_fields::hidden(&client);
        counter.map_or_else(|| client.clone(), |counter| requests::counted(&client, counter))
    };
    config.default_retry = false;
    // kube would wait for ever.
    config.read_timeout = Some(watches::SILENCE);
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("winpool/", env!("CARGO_PKG_VERSION")))));
    let naming = naming(&config);
    if config.proxy_url.is_some() {
        let client = ClientBuilder::try_from(config)?.with_layer(&MapErrLayer::new(naming)).build();
        return Ok(watched(client));
    }
    let mut tcp = HttpConnector::new();
    // TLS is added on top of this connector.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let mut pool = legacy::Client::builder(TokioExecutor::new());
    pool.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(move |error: legacy::Error| naming(error.into()))
        .map_request(prepared)
        .service(pool.build(connector));
    Ok(watched(Client::new(service, config.default_namespace)))
}

/// The pieces in which an answer arrives.
pub(crate) type Bytes = <Body as http_body::Body>::Data;

/// Returns a client whose requests `send` sends, with this one.
pub fn through<A, B>(
    client: &Client,
    send: impl Fn(Client, Request<Body>) -> A + Clone + Send + Sync + 'static,
) -> Client
where
    A: Future<Output = kube::Result<Response<B>>> + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let client = client.clone();
    let namespace = client.default_namespace().to_owned();
    Client::new(service_fn(move |request| send(client.clone(), request)), namespace)
}
