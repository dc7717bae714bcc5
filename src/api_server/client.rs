//! The client of the Kubernetes API: kube's own, but with `TCP_NODELAY`.
//!
//! kube leaves Nagle's algorithm on (<https://github.com/kube-rs/kube/issues/2056>). The first request on a connection
//! then waits until the end of the TLS handshake is acknowledged, which Linux delays by 40 ms.

use std::sync::Arc;

use axum::http::{HeaderValue, header::USER_AGENT};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt},
};
use thiserror::Error;
use tower::{
    BoxError, ServiceBuilder,
    util::{MapErrLayer, option_layer},
};

use crate::{
    api_server::{requests, together},
    metrics::Metrics,
};

/// The API server cannot be reached.
#[derive(Debug, Error)]
#[error("cannot reach {url}{through}")]
struct Unreachable {
    url: String,
    through: String,
    #[source]
    error: Box<legacy::Error>,
}

/// Returns what names the URL in errors of a connection.
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

/// Creates a client, which counts its requests if `metrics` is given. With a proxy from the kubeconfig or
/// `HTTPS_PROXY`, kube's own connector is used, which leaves Nagle's algorithm on.
///
/// The client retries nothing: its callers limit and count their attempts for each object, and kube's 15 attempts
/// would block for minutes.
pub fn connect(mut config: Config, metrics: Option<Arc<Metrics>>) -> kube::Result<Client> {
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("winpool/", env!("CARGO_PKG_VERSION")))));
    let naming = naming(&config);
    if config.proxy_url.is_some() {
        let counted = option_layer(metrics.map(requests::counted));
        let named = MapErrLayer::new(naming);
        return Ok(ClientBuilder::try_from(config)?.with_layer(&named).with_layer(&counted).build());
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
    let service = ServiceBuilder::new()
        .option_layer(metrics.map(requests::counted))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(move |error: legacy::Error| naming(error.into()))
        .map_request(together::gated)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}
