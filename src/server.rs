//! The endpoints `/metrics`, `/healthz` and `/readyz`.
//!
//! Every pod may be able to reach them, so the number, the size and the duration of connections are limited.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::controllers::WatchHealth;
use crate::metrics::Metrics;

/// The number of connections. One more ends the oldest, so that a probe is answered while others open connections.
const CONNECTIONS: usize = 64;
/// The duration of a connection, which serves one request. Prometheus waits for 10 seconds too.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size of the head of a request.
const HEAD: usize = 16 << 10;
/// The time for connections that are open when the operator stops.
const GRACE: Duration = Duration::from_secs(1);

/// The state that the endpoints report.
#[derive(Clone)]
pub struct Endpoints {
    pub metrics: Arc<Metrics>,
    /// The kinds whose caches are not filled.
    pub unlisted: watch::Receiver<Vec<&'static str>>,
    pub watch_health: Arc<WatchHealth>,
}

/// Answers until `stop` is cancelled.
pub async fn serve(mut listener: TcpListener, endpoints: Endpoints, stop: CancellationToken) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .with_state(endpoints);
    let service = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD);
    let (mut connections, mut newest) = (JoinSet::new(), VecDeque::with_capacity(CONNECTIONS));
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            // If a connection cannot be accepted, axum waits and tries again.
            (stream, _) = Listener::accept(&mut listener) => stream,
        };
        if newest.len() == CONNECTIONS
            && let Some(oldest) = newest.pop_front()
        {
            AbortHandle::abort(&oldest);
        }
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        newest.push_back(connections.spawn(timeout(PATIENCE, connection)));
    }
    let _ = timeout(GRACE, connections.join_all()).await;
}

async fn metrics(State(endpoints): State<Endpoints>) -> Result<impl IntoResponse, (StatusCode, String)> {
    let text = endpoints.metrics.encode().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

/// Ready if all caches are filled and this process may read all kinds. During an outage of the API server it stays ready:
/// another process could read nothing either.
async fn readyz(State(endpoints): State<Endpoints>) -> impl IntoResponse {
    let forbidden = endpoints.watch_health.forbidden();
    if !endpoints.unlisted.borrow().is_empty() {
        let text = "caches of nodes, pools and RuntimeClasses are not filled yet";
        (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
    } else if forbidden.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("no permission to read {}", forbidden.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    use super::*;

    /// Longer than any connection lasts.
    const LIMIT: Duration = Duration::from_secs(15);

    async fn start() -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let endpoints = Endpoints {
            metrics: Arc::new(Metrics::new(Arc::default())),
            unlisted: watch::channel(Vec::new()).1,
            watch_health: Arc::new(WatchHealth::new(watch::Sender::new(()))),
        };
        (address, stop.clone(), tokio::spawn(serve(listener, endpoints, stop)))
    }

    async fn send(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Everything until the connection ends, in either way.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let _ = timeout(LIMIT, stream.read_to_end(&mut text)).await.expect("the connection ends");
        String::from_utf8(text).unwrap()
    }

    fn unfinished() -> String {
        format!("GET /metrics HTTP/1.1\r\nHost: a\r\nPadding: {}\r\n", "x".repeat(4000))
    }

    #[tokio::test]
    async fn a_connection_serves_one_request() {
        let (address, ..) = start().await;
        for (path, part) in [("healthz", "ok"), ("readyz", "ok"), ("metrics", "# EOF"), ("other", "404 Not Found")] {
            let answer = rest(send(address, &format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n")).await).await;
            assert!(answer.contains(part) && answer.contains("connection: close"), "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn unfinished_requests_delay_no_probe_and_end() {
        let (address, ..) = start().await;
        let mut streams = Vec::new();
        for _ in 0..4 * CONNECTIONS {
            streams.push(send(address, &unfinished()).await);
        }
        let started = Instant::now();
        let probe = rest(send(address, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await).await;
        assert!(probe.starts_with("HTTP/1.1 200 OK"), "{probe}");
        let newest = streams.split_off(3 * CONNECTIONS + 1);
        for older in streams {
            assert_eq!(rest(older).await, "");
        }
        assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
        for open in newest {
            assert_eq!(rest(open).await, "");
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_refused() {
        let (address, ..) = start().await;
        let head = format!("GET /healthz HTTP/1.1\r\nHost: a\r\nPadding: {}", "x".repeat(2 * HEAD));
        let answer = rest(send(address, &head).await).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }

    #[tokio::test]
    async fn unfinished_requests_do_not_delay_the_end() {
        let (address, stop, serving) = start().await;
        let _open = send(address, &unfinished()).await;
        // A connection that came later is served.
        rest(send(address, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await).await;
        stop.cancel();
        timeout(2 * GRACE, serving).await.expect("it ends").unwrap();
    }
}
