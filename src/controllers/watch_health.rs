//! The kinds that this process cannot read at present, as its lists and watches show.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use winpool_client::causes::failure;
use winpool_client::client::through;
use winpool_client::request_info::RequestInfo;
use winpool_client::watches::{self, Selection, answer};
use winpool_core::plan::attempt::Outage;

use crate::telemetry::{watch_fails, watch_works};

/// The outages of all watches.
pub struct WatchHealth {
    outages: Mutex<BTreeMap<&'static str, Outage>>,
    /// Notifies the pool controller.
    changed: watch::Sender<()>,
}

impl WatchHealth {
    pub fn new(changed: watch::Sender<()>) -> Self {
        Self { outages: Mutex::default(), changed }
    }

    /// The outages by kind.
    pub fn outages(&self) -> BTreeMap<&'static str, Outage> {
        self.outages.lock().clone()
    }

    /// The kinds that this process has no permission to read.
    pub fn forbidden(&self) -> Vec<&'static str> {
        let outages = self.outages.lock();
        outages.iter().filter(|(_, outage)| outage.is_forbidden()).map(|(kind, _)| *kind).collect()
    }

    /// Lists and watches objects of a kind for ever. `kind` names the objects.
    pub fn watch<K>(
        self: &Arc<Self>,
        client: &Client,
        selection: Selection<'_>,
        kind: &'static str,
    ) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        watches::all(self.client(kind, client), selection).inspect(self.follow(kind))
    }

    /// Returns a client for the watch of this kind. It notices when the API server accepts the watch: that causes no event
    /// as long as nothing changes.
    fn client(self: &Arc<Self>, kind: &'static str, client: &Client) -> Client {
        let watch_health = Arc::clone(self);
        through(client, move |client, request| {
            let watch_health = Arc::clone(&watch_health);
            async move {
                // A list that has begun may still fail.
                let watches = RequestInfo::of(request.method(), request.uri()).verb == "watch"
                    && !watches::begins_with_list(request.uri());
                let answer = client.send(request).await?;
                if watches && answer.status().is_success() {
                    watch_health.works(kind);
                }
                Ok(answer)
            }
        })
    }

    /// Returns a function that records after each event if the watch works.
    fn follow<T>(self: &Arc<Self>, kind: &'static str) -> impl FnMut(&watcher::Result<Event<T>>) + Send + use<T> {
        let watch_health = Arc::clone(self);
        move |event| match event {
            // A list that has begun may still fail.
            Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(_) => watch_health.works(kind),
            Err(error) => watch_health.fails(kind, error),
        }
    }

    fn works(&self, kind: &'static str) {
        if self.outages.lock().remove(kind).is_some() {
            watch_works(kind);
            self.changed.send_replace(());
        }
    }

    fn fails(&self, kind: &'static str, error: &watcher::Error) {
        let status = answer(error);
        if status.is_some_and(|status| status.code == 410) {
            return;
        }
        let is_forbidden = status.is_some_and(|status| matches!(status.code, 401 | 403));
        let message = status.map_or_else(|| failure(error), |status| status.message.clone());
        let mut outages = self.outages.lock();
        let before = outages.get(kind);
        watch_fails(kind, before.is_none(), error);
        let outage = Outage::next(before, is_forbidden, message, Instant::now());
        outages.insert(kind, outage);
        self.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use kube::client::Body;
    use kube::core::Status;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn an_outage_ends_when_the_api_server_accepts_the_watch_or_shows_an_event() {
        let watch_health = Arc::new(WatchHealth::new(watch::Sender::new(())));
        let mut follow = watch_health.follow::<()>("Nodes");
        let forbidden = || {
            Err(watcher::Error::WatchStartFailed(kube::Error::Api(Status::failure("no", "no").with_code(403).boxed())))
        };
        let answering = |code: u16| {
            let answer = move |_: Request<Body>| async move {
                Ok::<_, kube::Error>(Response::builder().status(code).body(Body::empty()).unwrap())
            };
            watch_health.client("Nodes", &Client::new(service_fn(answer), "default"))
        };
        let ask =
            async |code, uri: &str| drop(answering(code).send(Request::get(uri).body(Body::empty()).unwrap()).await);
        for (fact, ends) in [("the next list begins", false), ("a list ends", true)] {
            follow(&forbidden());
            follow(&Ok(if ends { Event::InitDone } else { Event::Init }));
            assert_eq!(watch_health.outages().is_empty(), ends, "{fact}");
        }
        for (code, uri, ends) in [
            (403, "/api/v1/nodes?watch=true", false),
            (200, "/api/v1/nodes?limit=100", false),
            (200, "/api/v1/nodes?watch=true&sendInitialEvents=true", false),
            (200, "/api/v1/nodes?watch=true", true),
        ] {
            follow(&forbidden());
            ask(code, uri).await;
            assert_eq!(watch_health.outages().is_empty(), ends, "{code} {uri}");
        }
        assert_eq!(watch_health.forbidden(), [""; 0], "not before it has lasted");
    }
}
