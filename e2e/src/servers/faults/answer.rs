//! Responses that differ from what the server sent.

use super::schedule::{Fault, InjectedError};
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

const JSON: &str = "application/json";

type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

impl InjectedError {
    pub(super) fn answer(self) -> Response<ResponseBody> {
        let (code, reason, details) = match self {
            Self::Conflict => (StatusCode::CONFLICT, "Conflict", json!({})),
            Self::Expired => (StatusCode::GONE, "Expired", Value::Null),
            Self::FailedTest => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid", json!({})),
            Self::Invalid => {
                let cause = json!({"reason": "FieldValueInvalid", "message": "made up", "field": "spec.taints"});
                (StatusCode::UNPROCESSABLE_ENTITY, "Invalid", json!({"causes": [cause]}))
            }
            Self::TooMany => return too_many(),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", Value::Null),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", Value::Null),
        };
        let mut status = status(code, reason);
        if !details.is_null() {
            status["details"] = details;
        }
        with_status(code, JSON, status.to_string())
    }
}

fn status(code: StatusCode, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("a made-up answer: {reason}"), "reason": reason, "code": code.as_u16(),
    })
}

/// The response to a watch from an expired version: API servers send an event.
pub(super) fn expired() -> Response<ResponseBody> {
    let event = json!({"type": "ERROR", "object": status(StatusCode::GONE, "Expired")});
    with_status(StatusCode::OK, JSON, format!("{event}\n"))
}

fn too_many() -> Response<ResponseBody> {
    let text = "Too many requests, please try again later.\n".to_owned();
    let mut response = with_status(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("2"));
    response
}

fn with_status(code: StatusCode, kind: &'static str, text: String) -> Response<ResponseBody> {
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// The first half of a response.
pub(super) async fn halved(response: Response<Body>) -> Result<Response<ResponseBody>, Severed> {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|_| Severed)?.to_bytes();
    let half = bytes.slice(..bytes.len() / 2);
    Ok(Response::from_parts(parts, streamed(stream::iter([Ok(half), Err(Severed.into())]))))
}

/// The events of a watch, one a line, with this fault.
pub(super) fn events(
    response: Response<Body>,
    fault: Fault,
    released: impl Future<Output = ()> + Send + 'static,
) -> Response<ResponseBody> {
    response.map(|body| {
        let bytes = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
        let lines = FramedRead::new(bytes, LinesCodec::new()).map_err(BoxError::from);
        let events = lines.map_ok(|line| Bytes::from(line + "\n"));
        match fault {
            Fault::End { after } => streamed(events.take(after)),
            Fault::Cut { after } => {
                let half = |event: Bytes| event.slice(..event.len() / 2);
                let numbered = events.take(after + 1).enumerate();
                let cut = numbered.map(move |(number, event)| event.map(|e| if number < after { e } else { half(e) }));
                streamed(cut.chain(stream::iter([Err(Severed.into())])))
            }
            Fault::Stall { after, lasts } => {
                let silence = async move {
                    tokio::select! {
                        () = tokio::time::sleep(lasts) => {}
                        () = released => {}
                    }
                };
                streamed(then_severed(events.take(after), silence))
            }
            Fault::Rewind { shown } if shown < usize::MAX => streamed(then_severed(events.take(shown), released)),
            Fault::Repeat => streamed(events.map_ok(|event| [event.as_ref(), event.as_ref()].concat().into())),
            _ => streamed(events),
        }
    })
}

/// Sends all of `events`, then nothing until `silence` is over, then closes the connection.
fn then_severed(
    events: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
    silence: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    let end = stream::once(async move {
        silence.await;
        Err(Severed.into())
    });
    events.chain(end)
}

fn streamed(bytes: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> ResponseBody {
    StreamBody::new(bytes.and_then(|bytes| future::ready(Ok(Frame::data(bytes))))).boxed_unsync()
}

/// The proxy closed the connection.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed on purpose")]
pub(super) struct Severed;
