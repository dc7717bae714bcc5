//! The endpoints `/metrics`, `/healthz` and `/readyz`.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router, extract::State, http::StatusCode, http::header::CONTENT_TYPE, response::IntoResponse, routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// The state that the endpoints report.
#[derive(Clone)]
pub struct Endpoints {
    pub metrics: Arc<Metrics>,
    /// True if all caches are filled.
    pub ready: watch::Receiver<bool>,
}

/// Opens the port.
///
/// # Errors
/// Fails if the address is taken or not allowed.
pub async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until `stop` is cancelled.
pub async fn serve(listener: TcpListener, endpoints: Endpoints, stop: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .with_state(endpoints);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn metrics(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    match endpoints.metrics.encode() {
        Ok(text) => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn readyz(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    if *endpoints.ready.borrow() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "caches of nodes, pools and RuntimeClasses are not filled yet")
    }
}
