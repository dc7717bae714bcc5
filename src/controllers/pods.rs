//! The watches of pods and of Events about them. They keep [`winpool_core::plan::pods::PodTable`] up to date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::select_all;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::runtime::watcher::{self, Event};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::coop::consume_budget;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use winpool_client::pods::{ListedDaemonSet, ListedEvent, ListedPod, warnings};
use winpool_client::watches::{Selection, answer};
use winpool_core::plan::Now;
use winpool_core::plan::attempt::Outage;
use winpool_core::plan::nodes::NodeTable;
use winpool_core::plan::pods::{ClusterFacts, PodHealth, PodPauses, PodTable, REASONS, UnknownPods};
use winpool_core::plan::pools::pool::{GuardedPool, policy_of};

use super::{Context, WatchHealth, now};

pub const PODS: &str = "Pods";
pub const DAEMON_SETS: &str = "DaemonSets";
/// The kinds of the watches of Events, in messages.
const EVENTS: [&str; REASONS.len()] = ["Events (FailedCreatePodSandBox)", "Events (NodeAffinity)"];
/// The pause between two notices that pods have changed.
const BETWEEN_NOTICES: Duration = Duration::from_secs(1);

/// The table of pods, shared between the tasks of this process. The lock is never held across an await.
pub struct SharedPods {
    table: Mutex<PodTable>,
    /// Notifies of each complete list.
    lists: watch::Sender<()>,
    /// Notifies of pods that may be for Windows.
    pub(super) candidates: watch::Sender<()>,
    /// Notifies of room for pods that could not be stored.
    has_room_again: Notify,
    /// The outages of these watches. Nodes are written during them too.
    watch_health: Arc<WatchHealth>,
}

impl SharedPods {
    pub fn new(pauses: PodPauses, watch_health: WatchHealth) -> Self {
        let (lists, candidates) = (watch::Sender::new(()), watch::Sender::new(()));
        let (table, watch_health) = (Mutex::new(PodTable::new(pauses)), Arc::new(watch_health));
        Self { table, lists, candidates, has_room_again: Notify::new(), watch_health }
    }

    pub fn lock(&self) -> MutexGuard<'_, PodTable> {
        self.table.lock()
    }

    /// The reason why winpool does not know the objects of this kind; `None` if it does. `is_complete`: their list is.
    pub fn unknown(&self, kind: &str, is_complete: bool, now: Instant) -> Option<UnknownPods> {
        match self.watch_health.outages().get(kind) {
            Some(outage) if outage.is_forbidden() => Some(UnknownPods::Denied(outage.message.clone())),
            Some(outage) if outage.counts(now) => Some(UnknownPods::Unreadable(outage.message.clone())),
            None if is_complete => None,
            Some(_) | None => Some(UnknownPods::NotListed),
        }
    }

    /// Counts the pods by the cluster as the caches show it.
    pub fn count(&self, nodes: &NodeTable, pools: &[Arc<GuardedPool>], classes: &[Arc<RuntimeClass>], now: Now) {
        if self.lock().count(&ClusterFacts { nodes, policy: &policy_of(pools), classes }, now) {
            self.has_room_again.notify_one();
        }
    }

    /// Returns what was last counted.
    pub fn health(&self, nodes: &NodeTable, now: Instant) -> PodHealth {
        if nodes.objects().next().is_none() {
            return PodHealth::Off;
        }
        let outages = self.watch_health.outages();
        let unseen =
            |kind| outages.get(kind).filter(|outage: &&Outage| outage.counts(now)).map(|outage| &*outage.message);
        let pods = unseen(PODS).map(|message| format!("it cannot watch pods: {message}"));
        let events = || EVENTS.into_iter().find_map(unseen);
        let unseen = pods.or_else(|| events().map(|message| format!("it cannot watch Events: {message}")));
        match self.lock().summary() {
            Some(summary) => PodHealth::Seen { summary: Arc::clone(summary), unseen },
            None if unseen.is_some() => PodHealth::Seen { summary: Arc::default(), unseen },
            None => PodHealth::NotYet,
        }
    }
}

/// Keeps the table up to date until `stop` is cancelled.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow(&context) => {}
        () = follow_daemon_sets(&context) => {}
        () = follow_events(&context) => {}
    }
}

async fn follow(context: &Context) {
    let watch = || context.pods.watch_health.watch(&context.client, Selection::Streamed, PODS);
    let (mut pods, mut last_notice, mut has_news) = (watch().boxed(), Instant::now(), false);
    loop {
        // A list shows thousands of pods at once: other tasks have to get their turn.
        consume_budget().await;
        tokio::select! {
            event = pods.next() => {
                let Some(event) = event else { return };
                has_news |= take_in(&context.pods, event);
            }
            () = context.pods.has_room_again.notified() => pods = watch().boxed(),
            () = sleep_until((last_notice + BETWEEN_NOTICES).into()), if has_news => {
                (last_notice, has_news) = (Instant::now(), false);
                context.changed.send_replace(());
            }
        }
    }
}

/// Shows the table an event. Returns true if something that a status may say has changed.
fn take_in(pods: &SharedPods, event: watcher::Result<Event<ListedPod>>) -> bool {
    let mut table = pods.lock();
    match event {
        Ok(Event::Init) => table.begin_list(),
        Ok(Event::InitApply(ListedPod { pod, .. }) | Event::Apply(ListedPod { pod, .. })) => table.see(&pod, now()),
        Ok(Event::InitDone) => {
            table.end_list();
            pods.lists.send_replace(());
        }
        Ok(Event::Delete(ListedPod { pod, .. })) => table.deleted(&pod.namespace, &pod.name),
        // The API server has yet to answer the request for the list.
        Err(error) if answer(&error).is_some_and(|status| status.code == 410) => table.begin_list(),
        Err(_) => {}
    }
    if table.has_unseen() {
        pods.candidates.send_replace(());
    }
    table.take_changed()
}

/// Shows the table each DaemonSet.
async fn follow_daemon_sets(context: &Context) {
    let watch = context.pods.watch_health.watch(&context.client, Selection::All, DAEMON_SETS);
    let shown = watch.for_each(async |event: watcher::Result<Event<ListedDaemonSet>>| {
        let (mut table, now) = (context.pods.lock(), Instant::now());
        match event {
            Ok(Event::Init) => table.daemon_sets.begin_list(),
            Ok(Event::InitApply(ListedDaemonSet { set, .. }) | Event::Apply(ListedDaemonSet { set, .. })) => {
                table.daemon_sets.see(&set, now);
            }
            Ok(Event::InitDone) => table.daemon_sets.end_list(now),
            Ok(Event::Delete(ListedDaemonSet { set, .. })) => table.daemon_sets.deleted(&set.namespace, &set.name, now),
            Err(_) => {}
        }
        if table.has_unseen() {
            context.pods.candidates.send_replace(());
        }
    });
    shown.await;
}

/// Shows the table each Event. After each list of pods it lists them again, because an Event counts only for a pod that the
/// table has.
async fn follow_events(context: &Context) {
    let mut lists = context.pods.lists.subscribe();
    while lists.changed().await.is_ok() {
        let watches = REASONS.into_iter().zip(EVENTS).map(|(reason, kind)| {
            let selected = warnings(reason);
            context.pods.watch_health.watch(&context.client, Selection::Fields(&selected), kind).boxed()
        });
        let events = select_all(watches).for_each(async |event| {
            if let Ok(Event::InitApply(ListedEvent { event, .. }) | Event::Apply(ListedEvent { event, .. })) = event {
                let mut table = context.pods.lock();
                table.observe(&event, now());
                if table.take_changed() {
                    context.changed.send_replace(());
                }
            }
        });
        let mut listed_again = lists.clone();
        tokio::select! {
            () = events => {}
            _ = listed_again.changed() => {}
        }
    }
}
