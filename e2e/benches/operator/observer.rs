//! Follows the nodes with one watch in the bench's own process, for winpool and for the floor alike. Nothing is polled.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use winpool_client::node::ListedNode;
use winpool_core::api::names;
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::pools::pool::Policy;
use winpool_core::plan::taints::Consent;

use crate::Result;
use crate::objects::{WINDOWS, node_name};

/// Anything that takes longer is broken.
pub const LIMIT: Duration = Duration::from_mins(5);

pub struct Observer {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// When each node appeared, and since when it is converged.
    nodes: HashMap<String, (Instant, Option<Instant>)>,
    converged: usize,
    events: usize,
}

impl Observer {
    /// Starts the watch. A node is converged if it has a pool and this policy changes nothing.
    pub fn start(client: Client, policy: Policy) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        Self { seen, task: tokio::spawn(observe(client, policy, sender)) }
    }

    /// Waits until this holds for the number of nodes and the number of converged ones.
    pub async fn until(&self, holds: impl Fn(usize, usize) -> bool) -> Result<()> {
        let mut seen = self.seen.clone();
        let reached = seen.wait_for(|seen| holds(seen.nodes.len(), seen.converged));
        if tokio::time::timeout(LIMIT, reached).await.is_err() {
            let seen = self.seen.borrow();
            return Err(
                format!("{} of {} nodes are converged after {LIMIT:?}", seen.converged, seen.nodes.len()).into()
            );
        }
        Ok(())
    }

    /// Returns when the first and the last of the converged nodes got there.
    pub fn first_and_last(&self) -> Option<(Instant, Instant)> {
        let seen = self.seen.borrow();
        let converged = || seen.nodes.values().filter_map(|(_, converged)| *converged);
        converged().min().zip(converged().max())
    }

    /// Returns how many events have arrived.
    pub fn events(&self) -> usize {
        self.seen.borrow().events
    }

    /// Returns the milliseconds until each of these nodes was converged.
    pub fn latencies(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<f64> {
        let seen = self.seen.borrow();
        let latency = |number| {
            let (first, converged) = seen.nodes.get(&node_name(number))?;
            Some(((*converged)? - *first).as_secs_f64() * 1e3)
        };
        numbers.into_iter().filter_map(latency).collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn observe(client: Client, policy: Policy, sender: watch::Sender<Seen>) {
    let config = watcher::Config::default().labels(WINDOWS);
    let mut events = watcher(Api::<ListedNode>::all(client), config).default_backoff().boxed();
    loop {
        let (name, converged) = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(listed) | watcher::Event::InitApply(listed))) => {
                let node = listed.object;
                let plan = assess(&node.node, &policy, Consent::Given).plan;
                let converged = node.node.labels.get(names::POOL).is_some() && plan.is_empty();
                (node.name.to_string(), Some(converged))
            }
            Ok(Some(watcher::Event::Delete(listed))) => (listed.object.name.to_string(), None),
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => continue,
            Ok(None) => return,
            // The watcher recovers, but such a run is not worth much.
            Err(error) => {
                eprintln!("    the bench's own watch failed: {error}");
                continue;
            }
        };
        let now = Instant::now();
        sender.send_modify(|seen| seen.update(name, converged, now));
    }
}

impl Seen {
    /// `None` stands for a deleted node.
    fn update(&mut self, name: String, converged: Option<bool>, now: Instant) {
        self.events += 1;
        let before = self.nodes.remove(&name);
        let since = before.and_then(|(_, since)| since);
        self.converged -= usize::from(since.is_some());
        if let Some(converged) = converged {
            let first = before.map_or(now, |(first, _)| first);
            self.nodes.insert(name, (first, converged.then(|| since.unwrap_or(now))));
            self.converged += usize::from(converged);
        }
    }
}
