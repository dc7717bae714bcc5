//! Counts the requests to the API server by verb and resource, and obeys the pauses that it asks for.

use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use kube::Client;

use super::client::through;
use super::request_info::RequestInfo;

/// The longest pause that is obeyed. API servers ask for seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Counts requests.
pub trait Counter: Send + Sync {
    /// Counts a request that was answered with this code, or with `error` or `cancelled`.
    fn count(&self, info: RequestInfo, code: String);
}

/// Returns a client that counts every request, and obeys the pauses that the API server asks for.
pub fn counted(client: &Client, counter: Arc<dyn Counter>) -> Client {
    through(client, move |client, request| {
        let info = RequestInfo::of(request.method(), request.uri());
        let mut count = Count { counter: Arc::clone(&counter), info, code: "cancelled".to_owned() };
        async move {
            let answer = client.send(request).await;
            let code = answer.as_ref().ok().map(Response::status);
            code.as_ref().map_or("error", StatusCode::as_str).clone_into(&mut count.code);
            drop(count);
            if let Some(pause) = answer.as_ref().ok().and_then(pause) {
                tokio::time::sleep(pause).await;
            }
            answer
        }
    })
}

/// The pause that an overloaded API server asks for. The caller gets the answer only after that pause, and then adds
/// its own back-off, so every caller obeys it.
fn pause<A>(answer: &Response<A>) -> Option<Duration> {
    let too_many = answer.status() == StatusCode::TOO_MANY_REQUESTS;
    let seconds = answer.headers().get(RETRY_AFTER).filter(|_| too_many)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// Counts on drop, because a request may be dropped before it is answered.
struct Count {
    counter: Arc<dyn Counter>,
    info: RequestInfo,
    code: String,
}

impl Drop for Count {
    fn drop(&mut self) {
        self.counter.count(self.info, std::mem::take(&mut self.code));
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_pause_is_kept_to_where_the_server_asks_for_one_because_it_has_too_much_to_do() {
        let answer = |code: u16, after: Option<&str>| {
            let answer =
                after.into_iter().fold(Response::builder().status(code), |a, after| a.header(RETRY_AFTER, after));
            pause(&answer.body(()).unwrap())
        };
        assert_eq!(answer(429, Some("2")), Some(Duration::from_secs(2)));
        assert_eq!(answer(429, Some("86400")), Some(LONGEST_PAUSE));
        assert_eq!(answer(429, None), None);
        assert_eq!(answer(429, Some("Wed, 21 Oct 2026 07:28:00 GMT")), None);
        assert_eq!(answer(200, Some("2")), None);
    }

    /// The counted requests.
    #[derive(Default)]
    struct Counted(Mutex<Vec<String>>);

    impl Counter for Counted {
        fn count(&self, RequestInfo { verb, resource }: RequestInfo, code: String) {
            self.0.lock().push(format!("{verb} {resource} {code}"));
        }
    }

    #[tokio::test]
    async fn answers_count_by_code_and_requests_without_one_too() {
        let counter = Arc::new(Counted::default());
        let counts: Arc<dyn Counter> = counter.clone();
        let answer = tower::service_fn(|request: Request<Body>| async move {
            match &*request.into_body().collect_bytes().await.unwrap() {
                b"broken" => Err(std::io::Error::other("no route")),
                b"slow" => std::future::pending().await,
                _ => Ok(Response::builder().status(404).body(Body::empty()).unwrap()),
            }
        });
        let client = counted(&Client::new(answer, "default"), counts);
        let ask = |body: &'static str| {
            client.send(Request::get("/api/v1/nodes/a").body(Body::from(body.as_bytes().to_vec())).unwrap())
        };
        ask("").await.unwrap();
        ask("broken").await.unwrap_err();
        tokio::time::timeout(Duration::from_millis(100), ask("slow")).await.unwrap_err();
        assert_eq!(*counter.0.lock(), ["get nodes 404", "get nodes error", "get nodes cancelled"]);
    }
}
