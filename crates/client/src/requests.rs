//! Counts the requests to the API server by verb and resource, and obeys the pauses that it asks for.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use tower::layer::layer_fn;
use tower::{Layer, Service};

use super::request_info::RequestInfo;

/// The longest pause that is obeyed. API servers ask for seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Counts requests.
pub trait Counter: Send + Sync {
    /// Counts a request that was answered with this code, or with `error` or `cancelled`.
    fn count(&self, info: RequestInfo, code: String);
}

/// Counts every request, and obeys the pauses that the API server asks for.
pub fn counted<S>(counter: Arc<dyn Counter>) -> impl Layer<S, Service = Counted<S>> {
    layer_fn(move |inner| Counted { inner, counter: Arc::clone(&counter) })
}

pub struct Counted<S> {
    inner: S,
    counter: Arc<dyn Counter>,
}

impl<S, B, A> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
    S::Error: Send,
    A: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let info = RequestInfo::of(request.method(), request.uri());
        let mut count = Count { counter: Arc::clone(&self.counter), info, code: "cancelled".to_owned() };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().ok().map(Response::status);
            code.as_ref().map_or("error", StatusCode::as_str).clone_into(&mut count.code);
            drop(count);
            if let Some(pause) = answer.as_ref().ok().and_then(pause) {
                tokio::time::sleep(pause).await;
            }
            answer
        })
    }
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
        let mut answering = counted(counts).layer(tower::service_fn(|request: Request<&'static str>| async move {
            match *request.body() {
                "broken" => Err(std::io::Error::other("no route")),
                "slow" => std::future::pending().await,
                _ => Ok(Response::builder().status(404).body(()).unwrap()),
            }
        }));
        let mut ask = |body| answering.call(Request::get("/api/v1/nodes/a").body(body).unwrap());
        ask("").await.unwrap();
        ask("broken").await.unwrap_err();
        drop(ask("slow"));
        assert_eq!(*counter.0.lock(), ["get nodes 404", "get nodes error", "get nodes cancelled"]);
    }
}
