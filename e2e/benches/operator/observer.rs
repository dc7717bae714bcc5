//! Sees by one watch how far the nodes are: nothing is polled.

use crate::{Result, stage::WINDOWS};
use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use winpool::cache::node::CachedNode;
use winpool_core::{
    api::names,
    plan::{Consent, Policy, assess},
};

/// Whatever takes longer than this is broken.
const LIMIT: Duration = Duration::from_mins(5);

/// Watches the Windows nodes from this process, whoever writes them.
pub struct Observer {
    seen: Arc<Mutex<HashMap<String, Seen>>>,
    /// Nodes that are there, and those that are right.
    count: watch::Sender<(usize, usize)>,
    events: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// A node, by the events that came.
#[derive(Clone, Copy)]
struct Seen {
    first: Instant,
    /// Since when nothing is left to be done to it.
    right: Option<Instant>,
}

impl Observer {
    /// Starts to watch. A node is right when this policy has nothing left to do and its marks are there.
    pub fn start(client: Client, policy: Policy) -> Self {
        let (seen, count) = (Arc::new(Mutex::default()), watch::Sender::new((0, 0)));
        let events = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(observe(client, policy, Arc::clone(&seen), count.clone(), Arc::clone(&events)));
        Self { seen, count, events, task }
    }

    /// Waits until there are so many nodes, and so many of them are right.
    pub async fn until(&self, there: usize, right: usize) -> Result<()> {
        let mut count = self.count.subscribe();
        let reached = tokio::time::timeout(LIMIT, count.wait_for(|count| *count == (there, right))).await;
        match reached {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(format!("{right} of {there} nodes are to be right; (there, right): {:?}", *self.count.borrow())
                    .into())
            }
        }
    }

    /// Waits until at least one node is right.
    pub async fn until_any(&self) -> Result<()> {
        let mut count = self.count.subscribe();
        tokio::time::timeout(LIMIT, count.wait_for(|(_, right)| *right > 0)).await??;
        Ok(())
    }

    /// When the last of the right nodes became it.
    pub fn last(&self) -> Option<Instant> {
        self.lock().values().filter_map(|seen| seen.right).max()
    }

    /// How many events have come.
    pub fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// For how long these nodes were there without being right, in milliseconds.
    pub fn unguarded<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Vec<f64> {
        let seen = self.lock();
        let nodes = names.into_iter().filter_map(|name| seen.get(name));
        nodes.filter_map(|node| Some((node.right? - node.first).as_secs_f64() * 1e3)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn observe(
    client: Client,
    policy: Policy,
    seen: Arc<Mutex<HashMap<String, Seen>>>,
    count: watch::Sender<(usize, usize)>,
    number: Arc<AtomicUsize>,
) {
    let config = watcher::Config::default().labels(WINDOWS);
    let mut events = watcher(Api::<CachedNode>::all(client), config).default_backoff().boxed();
    let mut right = 0;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            // It comes again by itself; a run in which this happens is not worth much.
            Err(error) => {
                eprintln!("    the observer's watch: {error}");
                continue;
            }
        };
        let now = Instant::now();
        number.fetch_add(1, Ordering::Relaxed);
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            watcher::Event::Apply(node) | watcher::Event::InitApply(node) => {
                let done = node.seen.labels.get(names::POOL).is_some()
                    && assess(&node.seen, &policy, Consent::Given).plan.is_empty();
                let entry = seen.entry(node.name().to_owned()).or_insert(Seen { first: now, right: None });
                right = right - usize::from(entry.right.is_some()) + usize::from(done);
                entry.right = done.then(|| entry.right.unwrap_or(now));
            }
            watcher::Event::Delete(node) => {
                let gone = seen.remove(node.name());
                right -= usize::from(gone.is_some_and(|gone| gone.right.is_some()));
            }
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
        count.send_replace((seen.len(), right));
    }
}
