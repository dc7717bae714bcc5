//! Watches: a list of all objects, and then every change of them.

use std::{fmt::Debug, time::Duration};

use futures::{Stream, StreamExt, future};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use super::pages;

/// The lifetime of one watch request, in seconds: the API server ends it, and the next one continues where it ended. A
/// connection that died silently delivers no end, and kube waits 5 seconds longer for it. The default of 290
/// seconds would leave a new node unseen for 5 minutes. A keep-alive of TCP would not show that a proxy or the API
/// server hangs, and kube's client has no pings of HTTP/2. A watch request costs the API server half a millisecond of CPU
/// time.
const LIFETIME: u32 = 45;

/// The longest silence of a connection on which an answer is due. No working watch is silent for longer than
/// [`LIFETIME`].
pub(super) const SILENCE: Duration = Duration::from_secs(50);

/// The objects of a kind that a watch shows.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    All,
    Labels(&'a str),
    Fields(&'a str),
}

/// Lists and watches objects of a kind for ever. Failed requests are repeated with pauses.
pub fn all<K>(client: Client, selection: Selection<'_>) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = match selection {
        Selection::All => config(),
        Selection::Labels(labels) => config().labels(labels),
        Selection::Fields(fields) => config().fields(fields),
    };
    watcher(Api::all(client), config).default_backoff()
}

/// Watches one object, for ever. Shows `None` if it does not exist. Failed requests are repeated at once: the caller
/// adds pauses.
pub fn object<K>(api: Api<K>, name: &str) -> impl Stream<Item = watcher::Result<Option<K>>> + Send + use<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut is_listed = false;
    watcher(api, config().fields(&format!("metadata.name={name}"))).filter_map(move |event| {
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

fn config() -> watcher::Config {
    watcher::Config::default().timeout(LIFETIME).page_size(pages::PAGE)
}
