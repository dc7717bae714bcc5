//! The endpoints `/metrics`, `/healthz` and `/readyz`.

use std::sync::Arc;

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

/// Answers until `stop` is cancelled.
pub async fn serve(listener: TcpListener, endpoints: Endpoints, stop: CancellationToken) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .with_state(endpoints);
    // axum never returns an error: if a connection cannot be accepted, it waits and goes on.
    let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
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
