//! Every version of every object of a kind, in the order of the writes.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::TryStreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::machine::wait::{LIMIT, wait_for};

/// Records the objects as they are when it is created, and all later versions.
pub struct Versions<K> {
    seen: Arc<Mutex<Vec<(Instant, K)>>>,
    objects: Api<K>,
    watch: JoinHandle<kube::Result<()>>,
}

impl<K: Resource + Clone + Debug + DeserializeOwned + Send + 'static> Versions<K> {
    pub async fn of(objects: Api<K>) -> Self {
        let list = objects.list(&ListParams::default()).await.unwrap();
        let version = list.metadata.resource_version.unwrap();
        let events = objects.watch(&WatchParams::default().timeout(280), &version).await.unwrap();
        let now = Instant::now();
        let seen = Arc::new(Mutex::new(list.items.into_iter().map(|object| (now, object)).collect()));
        let recorded: Arc<Mutex<Vec<(Instant, K)>>> = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            let record = events.try_for_each(|event| {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                    recorded.lock().unwrap().push((Instant::now(), object));
                }
                std::future::ready(Ok(()))
            });
            record.await
        });
        Self { seen, objects, watch }
    }

    /// All versions until now, each with the time at which it was seen.
    pub async fn until_now(&self) -> Vec<(Instant, K)> {
        let newest = self.objects.list_metadata(&ListParams::default()).await.unwrap().items;
        wait_for("the watch has the newest version of every object", LIMIT, async || {
            assert!(!self.watch.is_finished(), "the watch has ended");
            let seen = self.seen.lock().unwrap().clone();
            let is_seen = |version: &Option<String>| seen.iter().any(|(_, o)| o.meta().resource_version == *version);
            Ok(newest.iter().all(|object| is_seen(&object.metadata.resource_version)).then_some(seen))
        })
        .await
        .unwrap()
    }

    /// All versions until now of the object with this name.
    pub async fn named(&self, name: &str) -> Vec<K> {
        let versions = self.until_now().await.into_iter().map(|(_, object)| object);
        versions.filter(|object| object.meta().name.as_deref() == Some(name)).collect()
    }
}

impl<K> Drop for Versions<K> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
