//! The pool controller: the operator as an interpreter of [`winpool_core::plan::reconcile`]. It executes the steps of
//! the loop, each pool independently, and decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use winpool_client::causes::shortened;
use winpool_client::error::RequestError;
use winpool_client::node::ListedNode;
use winpool_client::pages;
use winpool_client::watches::{Selection, answer};
use winpool_core::api::names::{self, reason};
use winpool_core::api::{self, Problem};
use winpool_core::plan::patch::runtime_class_patch;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::plan::reconcile::{Answer, CachedCluster, ClassRequest, Memory, Note, POLL_INTERVAL, Step, next};

use crate::telemetry::list;

use super::pods::{DAEMON_SETS, PODS};
use super::{Context, now};

const CONTROLLER: &str = "pool";
/// The pause before the next test while the control plane does not confine winpool.
const TEST_AGAIN: Duration = Duration::from_secs(10);
/// The least time between two rounds that changes cause. A burst of thousands is worth a few rounds.
const BETWEEN_CHANGES: Duration = Duration::from_millis(20);

/// Runs until `stop` is cancelled and the requests in flight have ended.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    Loop::new(context).run(stop).await;
}

/// Caches all objects of a kind, and notifies the pools when one changes.
pub async fn watch<K>(kind: &'static str, store: Writer<K>, context: Arc<Context>, stop: CancellationToken)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let events = context.watch_health.watch(&context.client, Selection::All, kind).reflect(store);
    let events = events.take_until(stop.cancelled_owned());
    let notice = events.for_each(async |event| match event {
        Ok(watcher::Event::InitDone) => {
            context.listed(kind);
            context.changed.send_replace(());
        }
        Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => context.changed.send_replace(()),
        // Without the CRD there are no pools, and nothing hinders the end of winpool.
        Err(error) if context.uninstalled.is_cancelled() && answer(&error).is_some_and(|status| status.code == 404) => {
            context.listed(kind);
            context.changed.send_replace(());
        }
        // Until a list is complete the cache has the state before it.
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) | Err(_) => {}
    });
    notice.await;
}

/// The result of a task that was started.
enum TaskResult {
    /// A step of a pool with its answer and, if it failed, one word for metrics.
    Step { pool: String, step: Step, answer: Answer, error: Option<&'static str> },
    /// The control plane confines winpool, or this is the reason why that is not known.
    Confinement(Result<(), String>),
    /// An Event was written, or the term of leadership ended before.
    Nothing,
}

/// The pool loop of one process.
struct Loop {
    context: Arc<Context>,
    term: Option<u64>,
    memory: Memory,
    /// The pools and RuntimeClasses as the caches last showed them.
    pools: Vec<Arc<GuardedPool>>,
    classes: Vec<Arc<RuntimeClass>>,
    under_way: FuturesUnordered<BoxFuture<'static, TaskResult>>,
    /// Pools that have a step in progress.
    busy: BTreeSet<String>,
    /// The start of the first step of a pool since it last waited, and the first error since.
    rounds: BTreeMap<String, (Instant, Option<&'static str>)>,
    /// The result of the last test of the confinement. Pools wait for the first one.
    confinement: Option<Result<(), String>>,
    /// True if a cache has changed since pods were counted.
    is_dirty: bool,
    /// The time of the next test; `None` while one is in progress.
    test_at: Option<Instant>,
}

impl Loop {
    fn new(context: Arc<Context>) -> Self {
        Self {
            memory: Memory::new(context.patience, context.pauses),
            context,
            term: None,
            pools: Vec::new(),
            classes: Vec::new(),
            under_way: FuturesUnordered::new(),
            busy: BTreeSet::new(),
            rounds: BTreeMap::new(),
            confinement: None,
            is_dirty: true,
            test_at: Some(Instant::now()),
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let (mut changed, mut unlisted) = (self.context.changed.subscribe(), self.context.unlisted.subscribe());
        let mut next = Instant::now();
        loop {
            changed.mark_unchanged();
            let wake = self.advance();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(done) = self.under_way.next() => {
                    self.take_in(done);
                    while let Some(Some(done)) = self.under_way.next().now_or_never() {
                        self.take_in(done);
                    }
                }
                () = changed.changed().then(|_| sleep_until(next.into())) => {
                    (next, self.is_dirty) = (Instant::now() + BETWEEN_CHANGES, true);
                }
                _ = unlisted.changed() => {}
                () = sleep_until(wake.into()) => {}
            }
        }
        // Requests in flight may end; no new ones begin.
        while self.under_way.next().await.is_some() {}
    }

    fn take_in(&mut self, done: TaskResult) {
        let now = Instant::now();
        match done {
            TaskResult::Step { pool, step, answer, error } => {
                self.busy.remove(&pool);
                if let Some((_, first_error)) = self.rounds.get_mut(&pool) {
                    *first_error = first_error.or(error);
                }
                self.memory.answer(&pool, &step, answer, now);
            }
            TaskResult::Confinement(confinement) => {
                self.test_at = Some(now + if confinement.is_ok() { POLL_INTERVAL } else { TEST_AGAIN });
                self.confinement = Some(confinement);
            }
            TaskResult::Nothing => {}
        }
    }

    /// Starts every step that can be started, and returns the time to continue if nothing happens before.
    fn advance(&mut self) -> Instant {
        let far = Instant::now() + Duration::from_hours(1);
        let term = self.context.term();
        if self.term != term {
            self.begin(term);
        }
        if !self.context.unlisted.borrow().is_empty() {
            return far;
        }
        (self.pools, self.classes) = (self.context.pools(), self.context.classes.state());
        self.memory.is_uninstalled = self.context.uninstalled.is_cancelled();
        if term.is_none() {
            // Keeps the sums of a standby up to date, so that it can take over.
            self.context.nodes.lock().count_by(self.memory.policy(&self.pools), Instant::now());
            return far;
        }
        let mut wake = far.min(self.test_confinement().unwrap_or(far));
        if self.confinement.is_none() {
            return far;
        }
        wake = wake.min(self.count_pods().unwrap_or(far));
        let exists = |name: &str| self.pools.iter().any(|pool| pool.name_any() == name);
        self.context.metrics.gauges.keep_pools(exists);
        self.rounds.retain(|name, _| exists(name));
        let without_deleted = self.with_cluster(|memory, cluster| memory.drop_gone(cluster, Instant::now()));
        if let Some(Step::Publish(policy)) = without_deleted {
            self.context.publish(&policy);
        }
        for pool in self.pools.clone() {
            wake = wake.min(self.advance_pool(&pool).unwrap_or(far));
        }
        self.report_notes();
        if self.memory.is_uninstalled
            && self.busy.is_empty()
            && self.memory.has_uninstalled(&self.pools, &self.context.nodes.lock())
        {
            self.context.clean.cancel();
        }
        // A pool changed how nodes are counted, which may concern pools before it.
        if self.context.nodes.lock().take_changed() { Instant::now() } else { wake }
    }

    /// Starts or ends a term of leadership, and forgets the last one.
    fn begin(&mut self, term: Option<u64>) {
        let (confinement, is_dirty) = (self.confinement.take(), self.is_dirty);
        *self = Self { term, confinement, is_dirty, ..Self::new(Arc::clone(&self.context)) };
    }

    /// Advances the pool until it waits for an answer. Returns the time at which it is due again.
    fn advance_pool(&mut self, guarded: &Arc<GuardedPool>) -> Option<Instant> {
        let name = guarded.name_any();
        if self.busy.contains(&name) {
            return None;
        }
        loop {
            let step = self.with_cluster(|memory, cluster| next(cluster, memory, &name, now()));
            match step {
                Step::Publish(policy) => self.context.publish(&policy),
                Step::Wait(until) => {
                    let status = self.memory.status_of(&name).cloned().unwrap_or_default();
                    let failing = self.context.pods.health(&self.context.nodes.lock(), Instant::now()).counts(&name);
                    self.context.metrics.gauges.see(&name, status, failing);
                    if let Some((started, error)) = self.rounds.remove(&name) {
                        self.context.metrics.reconciled(CONTROLLER, started.elapsed(), error);
                    }
                    return until;
                }
                step => {
                    self.rounds.entry(name.clone()).or_insert_with(|| (Instant::now(), None));
                    self.busy.insert(name.clone());
                    let (context, guarded) = (Arc::clone(&self.context), Arc::clone(guarded));
                    self.spawn(async move { execute(&context, &guarded, step).await });
                    return None;
                }
            }
        }
    }

    fn with_cluster<T>(&mut self, work: impl FnOnce(&mut Memory, &mut CachedCluster<'_>) -> T) -> T {
        let unconfined = self.confinement.clone().and_then(Result::err);
        let (nodes, outages) = (&mut *self.context.nodes.lock(), self.context.watch_health.outages());
        let health = self.context.pods.health(nodes, Instant::now());
        let (pools, classes) = (self.pools.as_slice(), self.classes.as_slice());
        let table = self.context.pods.lock();
        let now = Instant::now();
        let unknown = |kind, is_complete| self.context.pods.unknown(kind, is_complete, now);
        let pods = unknown(PODS, table.is_complete).map_or(Ok(&*table), Err);
        let unknown_daemon_sets = unknown(DAEMON_SETS, table.objectors.is_some());
        let mut cluster =
            CachedCluster { pools, classes, nodes, unconfined, outages, pods, unknown_daemon_sets, health };
        work(&mut self.memory, &mut cluster)
    }

    /// Counts the pods if it is time to. Returns the time of the next count.
    fn count_pods(&mut self) -> Option<Instant> {
        let now = now();
        let next = |has_news| self.context.pods.lock().next_count(has_news, now.instant);
        let due = next(self.is_dirty);
        if due.is_none_or(|due| now.instant < due) {
            return due;
        }
        self.context.pods.count(&self.context.nodes.lock(), &self.pools, &self.classes, now);
        self.is_dirty = false;
        next(false)
    }

    /// Starts this work, and drops it when the term of leadership ends.
    fn spawn(&self, work: impl Future<Output = TaskResult> + Send + 'static) {
        let (leadership, Some(term)) = (self.context.leadership.clone(), self.term) else { return };
        let work = async move { leadership.during(term, work).await.unwrap_or(TaskResult::Nothing) };
        self.under_way.push(work.boxed());
    }

    /// Tests if the control plane confines winpool, if it is time to. Returns the time of the next test. Without an answer the
    /// last result stays.
    fn test_confinement(&mut self) -> Option<Instant> {
        if self.test_at? > Instant::now() {
            return self.test_at;
        }
        let Some(pod) = self.context.own_pod.clone() else {
            self.confinement = Some(Ok(()));
            return None;
        };
        self.test_at = None;
        let (context, known) = (Arc::clone(&self.context), self.confinement.clone());
        self.spawn(async move {
            let tested = context.applier.test_confinement(&pod).await;
            TaskResult::Confinement(tested.unwrap_or_else(|error| known.unwrap_or_else(|| Err(shortened(&error)))))
        });
        None
    }

    /// Logs and counts what happened, and writes Events.
    fn report_notes(&mut self) {
        for (pool, note) in self.memory.take_notes() {
            log(&pool, &note);
            let guarded = self.pools.iter().find(|guarded| guarded.name_any() == pool);
            if let Some((guarded, event)) = guarded.zip(event(&note)) {
                let (context, guarded) = (Arc::clone(&self.context), Arc::clone(guarded));
                self.spawn(async move {
                    send(&context, &guarded, event).await;
                    TaskResult::Nothing
                });
            }
        }
    }
}

// The steps that are requests.

async fn execute(context: &Context, guarded: &GuardedPool, step: Step) -> TaskResult {
    let pool = guarded.name_any();
    let result = request(context, guarded, &step).await;
    let error = result.as_ref().err().map(RequestError::as_str);
    let answer = result.unwrap_or_else(|error| {
        let (object, reason) = (object(&step), error.as_str());
        tracing::warn!(pool, object, reason, error = shortened(&error), "a request for the pool failed");
        Answer::Refused(error)
    });
    TaskResult::Step { pool, step, answer, error }
}

async fn request(context: &Context, guarded: &GuardedPool, step: &Step) -> Result<Answer, RequestError> {
    let (applier, name) = (&context.applier, guarded.name_any());
    Ok(match step {
        Step::ReadPool { .. } => Answer::Pool(applier.read_pool(&name).await?.map(Box::new)),
        Step::SetFinalizer(wanted) => Answer::Written(Box::new(applier.set_finalizer(guarded.meta(), *wanted).await?)),
        Step::Class(class) => match &class.request {
            ClassRequest::Create(wanted) => Answer::Class(Some(applier.create_class(wanted).await?.into())),
            ClassRequest::Patch { uid, version, changes } => {
                let patch = runtime_class_patch(uid, version, changes);
                Answer::Class(Some(applier.patch_class(&class.name, patch).await?.into()))
            }
            ClassRequest::Delete(seen) => Answer::Class(applier.delete_class(seen).await?.map(Into::into)),
        },
        Step::ListLabelledNodes => {
            let mut labelled = BTreeSet::new();
            let labels = format!("{}={name}", names::POOL);
            let nodes: Api<PartialObjectMeta<Node>> = Api::all(context.client.clone());
            let listed = pages::each(&nodes, ListParams::default().labels(&labels), |node: ListedNode| {
                if !node.object.node.is_ignored() {
                    labelled.insert(node.object.name.to_string());
                }
            });
            listed.await?;
            Answer::Nodes(labelled)
        }
        Step::WriteStatus { status, seen, .. } => {
            Answer::Written(Box::new(applier.write_status(guarded.meta(), seen.as_ref(), status).await?))
        }
        Step::Publish(_) | Step::Wait(_) => Answer::Done,
    })
}

fn object(step: &Step) -> String {
    match step {
        Step::Class(class) => format!("RuntimeClass {}", class.name),
        Step::SetFinalizer(_) => "finalizer".to_owned(),
        Step::ListLabelledNodes => "nodes".to_owned(),
        Step::WriteStatus { .. } => "status".to_owned(),
        Step::ReadPool { .. } | Step::Publish(_) | Step::Wait(_) => "WindowsPool".to_owned(),
    }
}

// Log lines and Events about pools.

/// Writes the Event: about the pool, or about the `DaemonSet` whose owner has something to do.
async fn send(context: &Context, pool: &GuardedPool, event: Event) {
    let of_set = Some(&event.action).filter(|_| event.reason == reason::DAEMON_SET_WITHOUT_PODS);
    let object = of_set.and_then(|name| daemon_set(context, name)).unwrap_or_else(|| pool.object_ref(&()));
    context.applier.event(&object, event).await;
}

/// The `DaemonSet` with a name such as `DaemonSet shop/agent`.
fn daemon_set(context: &Context, name: &str) -> Option<ObjectReference> {
    let table = context.pods.lock();
    let uid = table.objectors.as_ref()?.iter().find(|set| *set.name == *name)?.uid.to_string();
    let api::ObjectReference { namespace, name, .. } = api::ObjectReference::named(name);
    let [api_version, kind, name] = ["apps/v1", "DaemonSet", &name].map(|text| Some(text.to_owned()));
    Some(ObjectReference { api_version, kind, namespace, name, uid: Some(uid), ..ObjectReference::default() })
}

fn log(pool: &str, note: &Note) {
    match note {
        Note::ClassWritten(class, reason, fields) => {
            tracing::info!(pool, class, reason, fields = list(fields.clone()), "RuntimeClass written");
        }
        Note::ClassPostponed(Problem { reason, object, message }, wait) => {
            let (detail, wait_ms) = (shortened(message), wait.as_millis());
            tracing::warn!(pool, class = object.name, reason, detail, wait_ms, "RuntimeClass not written");
        }
        Note::ClassDeleted(class) => tracing::info!(pool, class, "RuntimeClass deleted"),
        Note::ClassReleased(class, why) => {
            tracing::warn!(pool, class, detail = shortened(why), "RuntimeClass released");
        }
        Note::FinalizerWritten(present) => tracing::info!(pool, present, "finalizer written"),
        Note::CleanedUp => tracing::info!(pool, "pool cleaned up"),
        Note::Problem(Problem { reason, object, message }) | Note::Left(Problem { reason, object, message }) => {
            tracing::warn!(pool, %object, reason, detail = shortened(message), "problem");
        }
        Note::TaintsApplied(_) => tracing::info!(pool, "every node has its taints"),
    }
}

fn event(note: &Note) -> Option<Event> {
    let pool_event = |type_, reason: &str, action: &str, note: String| {
        let (reason, action, note) = (reason.to_owned(), action.to_owned(), Some(note));
        Some(Event { type_, reason, action, note, secondary: None })
    };
    match note {
        Note::ClassWritten(class, reason, fields) => {
            let note = if fields.is_empty() { class.clone() } else { format!("{class}: {}", fields.join(", ")) };
            pool_event(EventType::Normal, reason, class, note)
        }
        Note::ClassReleased(class, why) => {
            let note = format!("winpool no longer manages RuntimeClass {class}, which stays: {why}");
            pool_event(EventType::Warning, reason::CLASS_IN_USE, class, note)
        }
        Note::Left(Problem { reason, object, message }) => {
            // Another action than that of a problem of the same object: Events with equal actions and reasons are merged.
            pool_event(EventType::Warning, reason, &object.name, message.clone())
        }
        Note::Problem(Problem { reason, object, message }) => {
            // A dry run tells what it would change, and warns of nothing.
            let type_ = if reason == reason::WOULD_CHANGE { EventType::Normal } else { EventType::Warning };
            pool_event(type_, reason, &object.to_string(), format!("{object}: {message}"))
        }
        Note::TaintsApplied(message) => pool_event(EventType::Normal, reason::TAINTS_ADDED, "Taint", message.clone()),
        Note::ClassPostponed(..) | Note::ClassDeleted(_) | Note::FinalizerWritten(_) | Note::CleanedUp => None,
    }
}
