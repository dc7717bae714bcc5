//! Sends several requests only if the API server permits all of them.
//!
//! Each object of winpool's installation gives the permission to write the others. So all of these writes have to be
//! permitted before the first one is executed.
//!
//! The API server authorizes a request by its head, and reads the body later (`WithAuthorization` wraps the handlers,
//! and `PatchResource` begins by reading the body). With `Expect: 100-continue` Go's HTTP server answers `100
//! Continue` when a handler begins to read the body. So that answer says that the request is permitted, and no body is
//! sent before all requests have it. (Through a proxy that the kubeconfig names, kube's own client sends them, which
//! withholds nothing. No operator in a cluster needs one.)

use std::io;
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, EXPECT};
use axum::http::{HeaderValue, Request, StatusCode};
use futures::StreamExt;
use futures::stream::{self, BoxStream, FuturesUnordered};
use http_body_util::{Either, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::ext::on_informational;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::BoxError;

/// The time limit for the permissions. A proxy that understands HTTP may never pass on `100 Continue`: RFC 9110 then
/// requires that the bodies are sent nevertheless.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of a request, and the reason why it failed.
pub type Refused = (usize, kube::Error);

/// Sends these requests, on a connection each. If one is refused before the API server reads its body, none is
/// executed. The error is that of the first request that fails.
pub async fn send(client: &Client, requests: Vec<Request<Vec<u8>>>) -> Result<(), Refused> {
    let all = requests.len();
    let (gate, permitted) = (watch::Sender::new(false), watch::Sender::new(0));
    let mut answers: FuturesUnordered<_> = (0..)
        .zip(requests)
        .map(async |(number, mut request): (usize, Request<Vec<u8>>)| {
            let length = HeaderValue::from(request.body().len());
            request.headers_mut().insert(CONTENT_LENGTH, length);
            request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
            request.extensions_mut().insert(Gate(gate.subscribe()));
            let permitted = permitted.clone();
            on_informational(&mut request, move |answer| {
                if answer.status() == StatusCode::CONTINUE {
                    permitted.send_modify(|count| *count += 1);
                }
            });
            client.request_text(request).await.map(drop).map_err(|error| (number, error))
        })
        .collect();
    let mut counts = permitted.subscribe();
    tokio::select! {
        biased;
        // Answered before its body was sent. The others fail with the gate that is dropped here.
        answer = answers.next() => answer.unwrap_or(Ok(()))?,
        all_permitted = timeout(PATIENCE, counts.wait_for(|count| *count == all)) => {
            if all_permitted.is_err() && *permitted.borrow() > 0 {
                let error = io::Error::new(io::ErrorKind::TimedOut, "not all requests were permitted in time");
                return Err((0, kube::Error::Service(error.into())));
            }
        }
    }
    gate.send_replace(true);
    // All of them are executed, even if one fails.
    answers.collect::<Vec<_>>().await.into_iter().collect()
}

/// Withholds the body of the request that has this among its extensions until it is true. If it is dropped before, the
/// request fails.
#[derive(Clone)]
struct Gate(watch::Receiver<bool>);

/// A body as it is, or withheld.
type Gated = Either<Body, StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>>;

/// Withholds bodies, right before the requests are sent.
pub fn gated(mut request: Request<Body>) -> Request<Gated> {
    let gate = request.extensions_mut().remove::<Gate>();
    request.map(|body| {
        let Some(Gate(mut open)) = gate else { return Either::Left(body) };
        let opened = async move {
            open.wait_for(|open| *open).await?;
            Ok(Frame::data(body.collect_bytes().await?))
        };
        Either::Right(StreamBody::new(stream::once(opened).boxed()))
    })
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";

    /// Returns when the head of a request has arrived, without a byte of its body.
    async fn head(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0, "the connection ended");
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains("expect: 100-continue\r\n") && head.contains("content-length: 4\r\n"), "{head}");
        stream
    }

    fn requests() -> Vec<Request<Vec<u8>>> {
        ["/a", "/b", "/c"].map(|path| Request::patch(path).body(b"body".to_vec()).unwrap()).into()
    }

    async fn server() -> (TcpListener, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let client = winpool_client::client::connect_with(Config::new(url), None, gated).unwrap();
        (listener, client)
    }

    #[tokio::test]
    async fn bodies_are_sent_when_all_requests_are_permitted() {
        let (listener, client) = server().await;
        let serving = async {
            let mut streams = [head(&listener).await, head(&listener).await, head(&listener).await];
            for stream in &mut streams {
                stream.write_all(CONTINUE.as_bytes()).await.unwrap();
            }
            for stream in &mut streams {
                let mut body = [0; 4];
                stream.read_exact(&mut body).await.unwrap();
                assert_eq!(&body, b"body");
                stream.write_all(DONE.as_bytes()).await.unwrap();
            }
        };
        tokio::join!(serving, async { send(&client, requests()).await.unwrap() });
    }

    #[tokio::test]
    async fn no_body_is_sent_when_one_request_is_refused() {
        let (listener, client) = server().await;
        let serving = async {
            let mut streams = [head(&listener).await, head(&listener).await, head(&listener).await];
            for (stream, answer) in streams.iter_mut().zip([CONTINUE, CONTINUE, FORBIDDEN]) {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            for stream in &mut streams {
                let mut body = Vec::new();
                stream.read_to_end(&mut body).await.unwrap();
                assert_eq!(body, b"", "the connection ends without a body");
            }
        };
        let (error, ()) = tokio::join!(send(&client, requests()), serving);
        assert!(matches!(error, Err((_, kube::Error::Api(status))) if status.code == 403));
    }
}
