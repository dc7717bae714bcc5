//! Watches: a list of all objects, and then every change of them.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, future, stream};
use http::header::ACCEPT;
use http::{HeaderValue, Request, Uri};
use kube::client::Body;
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use winpool_core::plan::attempt::FAILED;

use super::client::through;
use super::pages;
use super::request_info::RequestInfo;

/// The lifetime of one watch request, in seconds: the API server ends it, and the next one continues where it ended. A
/// connection that died silently delivers no end, and kube waits 5 seconds longer for it. The default of 290
/// seconds would leave a new node unseen for 5 minutes. A keep-alive of TCP would not show that a proxy or the API
/// server hangs, and kube's client has no pings of HTTP/2. A watch request costs the API server half a millisecond of CPU
/// time.
const LIFETIME: u32 = 45;

/// The lifetime of a watch request whose answer begins with a list, in seconds.
const LIST_LIFETIME: u32 = 600;

/// The longest silence of a connection on which an answer is due. No working watch is silent for longer than
/// [`LIFETIME`] and the 5 seconds that kube adds.
pub(super) const SILENCE: Duration = Duration::from_secs(55);

/// The pause while the API server does not answer. It does not grow, so that all watches work again as soon as there are
/// answers.
const UNANSWERED: Duration = Duration::from_secs(1);

/// After this time without a failure, pauses begin with the shortest again.
const FORGOTTEN: Duration = Duration::from_mins(2);

/// The objects of a kind that a watch shows.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    All,
    /// All, with a list that is a part of the watch, where the API server serves one.
    Streamed,
    Labels(&'a str),
    /// Those with these labels, and of them only the metadata.
    Metadata(&'a str),
    Fields(&'a str),
}

/// Lists and watches objects of a kind for ever. Failed requests are repeated after pauses.
pub fn all<K>(
    mut client: Client,
    selection: Selection<'_>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = match selection {
        Selection::Streamed => return streamed(client).left_stream(),
        Selection::All => config(),
        Selection::Labels(labels) => config().labels(labels),
        Selection::Fields(fields) => config().fields(fields),
        Selection::Metadata(labels) => {
            client = changing(&client, ask_for_metadata);
            config().labels(labels)
        }
    };
    with_pauses(watcher(Api::all(client), config)).right_stream()
}

/// Lists and watches all objects of a kind for ever, with a list that is a part of the watch: the API server
/// sends one object after the other, and no page is kept. If the API server refuses such a list, or it ends too early, the
/// list is read in pages from then on.
fn streamed<K>(client: Client) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (streamed, mut is_listing) =
        (watcher(Api::all(changing(&client, give_lists_time)), config().streaming_lists()), false);
    let served = streamed.take_while(move |event| {
        let is_served = match event {
            Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) => !matches!(status.code, 400 | 422),
            Ok(Event::Init) => !std::mem::replace(&mut is_listing, true),
            Ok(Event::InitDone) => std::mem::replace(&mut is_listing, false),
            Ok(_) | Err(_) => true,
        };
        future::ready(is_served)
    });
    with_pauses(served.chain(watcher(Api::all(client), config())))
}

/// True for a request whose answer begins with a list.
pub fn begins_with_list(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "sendInitialEvents=true"))
}

/// Gives a request whose answer begins with a list more time: a long list that is cut off begins again from its start. After the
/// list the watch ends when it has shown nothing for as long as any other.
fn give_lists_time(request: &mut Request<Body>) {
    if begins_with_list(request.uri()) {
        *request.uri_mut() = pages::with_parameter(request.uri(), "timeoutSeconds", LIST_LIFETIME);
    }
}

fn ask_for_metadata(request: &mut Request<Body>) {
    let is_watch = RequestInfo::of(request.method(), request.uri()).verb == "watch";
    let accept = if is_watch {
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    } else {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    };
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
}

/// Returns a client that changes its requests.
fn changing(client: &Client, change: fn(&mut Request<Body>)) -> Client {
    through(client, move |client, mut request| async move {
        change(&mut request);
        client.send(request).await
    })
}

/// Watches one object, for ever. Shows `None` if it does not exist. Failed requests are repeated after pauses.
pub fn object<K>(api: Api<K>, name: &str) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut is_listed = false;
    with_pauses(watcher(api, config().fields(&format!("metadata.name={name}")))).filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Init) => {
                is_listed = false;
                None
            }
            Ok(Event::InitApply(object)) => {
                is_listed = true;
                Some(Ok(Some(object)))
            }
            Ok(Event::InitDone) => (!is_listed).then_some(Ok(None)),
            Ok(Event::Apply(object)) => Some(Ok(Some(object))),
            Ok(Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        })
    })
}

/// Waits after a failure before the next request: longer each time if the API server answers. "410, too old" is no
/// failure: the next request is a list.
fn with_pauses<T: Send>(
    events: impl Stream<Item = watcher::Result<T>> + Send,
) -> impl Stream<Item = watcher::Result<T>> + Send {
    use kube::Error::{HyperError, Service};
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (mut failures, mut last) = (0, None::<Instant>);
    events.flat_map(move |event| {
        let error = event.as_ref().err();
        let pause = match (error, error.and_then(answer).map(|status| status.code)) {
            (None, _) | (_, Some(410)) => Duration::ZERO,
            (_, Some(502..=504)) => UNANSWERED,
            (Some(InitialListFailed(Service(_) | HyperError(_)) | WatchStartFailed(Service(_) | HyperError(_))), _) => {
                UNANSWERED
            }
            (Some(_), _) => {
                let now = Instant::now();
                let is_recent = last.replace(now).is_some_and(|last| now.duration_since(last) < FORGOTTEN);
                failures = if is_recent { failures + 1 } else { 1 };
                FAILED.after(failures)
            }
        };
        let wait = async move {
            // Even no pause at all would last until the next tick of the timer.
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            None
        };
        stream::once(future::ready(Some(event))).chain(stream::once(wait)).filter_map(future::ready)
    })
}

/// The API server's answer, if there was one.
pub fn answer(error: &watcher::Error) -> Option<&Status> {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        WatchError(status)
        | InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => Some(status),
        InitialListFailed(_) | WatchStartFailed(_) | WatchFailed(_) | NoResourceVersion => None,
    }
}

fn config() -> watcher::Config {
    watcher::Config::default().timeout(LIFETIME).page_size(pages::PAGE)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Arc, Mutex};

    use http::Response;
    use k8s_openapi::api::core::v1::Node;
    use kube::core::Status;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    /// Starts a server that answers a watch that begins with a list as given, and records its requests.
    fn server(code: u16, watched: String) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        let answer = move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let of = |key: &str| query.split('&').find(|pair| pair.starts_with(key)).unwrap_or_default();
            seen.lock().unwrap().push([of("sendInitialEvents="), of("timeoutSeconds="), of("limit=")].join(" "));
            let page = json!({
                "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"},
                "items": [{"metadata": {"name": "a", "resourceVersion": "7"}}],
            });
            let (code, body) =
                if begins_with_list(request.uri()) { (code, watched.clone()) } else { (200, page.to_string()) };
            let answer = Response::builder().status(code).body(Body::from(body.into_bytes()));
            async move { Ok::<_, kube::Error>(answer.unwrap()) }
        };
        (Client::new(service_fn(answer), "default"), asked)
    }

    /// The names of the first list, and the requests for it.
    async fn first_list(code: u16, watched: String) -> (Vec<String>, Vec<String>) {
        let (client, asked) = server(code, watched);
        let (mut events, mut names) = (pin!(streamed::<Node>(client)), Vec::new());
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::InitApply(node) => names.extend(node.metadata.name),
                Event::InitDone => break,
                _ => {}
            }
        }
        let asked = asked.lock().unwrap().clone();
        (names, asked)
    }

    const STREAMED: &str = "sendInitialEvents=true timeoutSeconds=600 ";

    #[tokio::test]
    async fn a_list_that_is_a_part_of_the_watch_has_ten_minutes() {
        let added = json!({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "7"}}});
        let end = json!({"k8s.io/initial-events-end": "true"});
        let bookmark = json!({
            "type": "BOOKMARK",
            "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": "7", "annotations": end}},
        });
        let (names, asked) = first_list(200, format!("{added}\n{bookmark}\n")).await;
        assert_eq!((names, asked), (vec!["a".to_owned()], vec![STREAMED.to_owned()]));
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_serve_such_a_list_to_its_end_is_asked_for_pages() {
        let refused = |code| {
            let status = Status::failure("sendInitialEvents is forbidden for watch", "Invalid").with_code(code);
            (code, serde_json::to_string(&status).unwrap())
        };
        // A list that ends too early is noticed when the next one begins.
        for ((code, answer), streamed) in [(refused(400), 1), (refused(422), 1), ((200, String::new()), 2)] {
            let (names, asked) = first_list(code, answer).await;
            let expected = [vec![STREAMED.to_owned(); streamed], vec!["  limit=100".to_owned()]].concat();
            assert_eq!((names, asked), (vec!["a".to_owned()], expected));
        }
    }
}
