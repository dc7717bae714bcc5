//! Pools: make their RuntimeClasses, publish what nodes are judged by, report.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, future};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Controller, WatchStreamExt,
        controller::{Action, Config as ControllerConfig},
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};
use tokio_util::sync::CancellationToken;
use winpool_core::{
    api::{Mode, Problem, WindowsPoolStatus},
    plan::{ClassAction, Contest, Observation, plan_classes, status},
};

use crate::{
    apply::WriteError,
    telemetry::{outages, words},
};

use super::{Cache, Context, GuardedPool, changes};

mod classes;
mod control_plane;
mod deletion;
mod pools;
mod report;
mod workloads;

pub use control_plane::ControlPlane;
use control_plane::Told;
pub(crate) use control_plane::kubernetes_version;
use pools::Pools;
use report::{Report, observe};
use workloads::{Early, Look};

const CONTROLLER: &str = "pool";
/// The API server's admission reads RuntimeClasses from a cache, and tolerations are baked into a pod when it is
/// created: nodes wait this long after the tolerations of a class that exists were changed.
const CLASSES_SEEN: Duration = Duration::from_secs(5);
/// At most one status write in this time while things move.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How often a class may change between reading and writing before the pool has to queue again.
const ATTEMPTS: usize = 4;
/// How soon it is looked again whether the cache shows a pool as it is.
const CACHE_BEHIND: Duration = Duration::from_secs(1);
/// How long a look at pods is good for.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// A pool could not be brought up to date; it is tried again.
#[derive(Debug, thiserror::Error)]
#[error("WindowsPool {pool}, {object}: {source}")]
pub struct Error {
    pool: String,
    object: String,
    source: WriteError,
}

struct State {
    shared: Arc<Context>,
    progress: Mutex<BTreeMap<String, Progress>>,
}

/// What is remembered of a pool between reconciles.
#[derive(Clone, Default)]
struct Progress {
    /// The pool that all of this is about, and not another one that had its name before.
    uid: Option<String>,
    /// The term of leadership in which it was learnt.
    term: u64,
    /// Whether the cache was seen to show the pool as it is, in this term.
    fresh: bool,
    /// Until when nodes wait for the API server to see changed tolerations.
    classes_seen_at: Option<Instant>,
    /// Since when it is being cleaned up.
    going_since: Option<Instant>,
    /// When the next status may be written.
    next_status: Option<Instant>,
    /// The status last written, which the cache may not show yet.
    written: Option<WindowsPoolStatus>,
    /// The generation whose status the API server refuses, and when to try again.
    status_refused: Option<(Option<i64>, Instant)>,
    /// Who would be stranded by the taints that the pool has never put on.
    look: Option<Look>,
    /// Pods that were created before their class tolerated a taint.
    early: Early,
    /// What was written lately to each RuntimeClass.
    contests: BTreeMap<String, Contest<Option<String>>>,
    /// Writes of RuntimeClasses that have to wait, by name.
    postponed: BTreeMap<String, Postponed>,
    /// RuntimeClasses that the API server refuses to give up, and when to try again.
    refused_ends: BTreeMap<String, Instant>,
}

/// A write of a RuntimeClass that was refused or has to wait for pods: not sent before `until`, unless something else is
/// to be written.
#[derive(Clone)]
struct Postponed {
    action: ClassAction,
    problem: Problem,
    until: Instant,
}

/// Runs until `stop` is cancelled and the request in flight has ended.
pub async fn run(client: Client, store: Writer<GuardedPool>, context: Arc<Context>, stop: CancellationToken) {
    let events = watcher(Api::<GuardedPool>::all(client), watcher::Config::default()).default_backoff().reflect(store);
    let state = Arc::new(State { shared: Arc::clone(&context), progress: Mutex::default() });
    let controller = Controller::for_stream(observed(events, Arc::clone(&context)), context.pools.clone())
        // One at a time: pools decide together who owns a node and a class name.
        .with_config(ControllerConfig::default().concurrency(1))
        .reconcile_all_on(changes(context.changed.subscribe()))
        .reconcile_all_on(changes(context.synced.subscribe()))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, on_error, state)
        .for_each(|_| future::ready(()));
    future::join(controller, context.control_plane.ask_early()).await;
}

/// Keeps the cache of RuntimeClasses, and tells the pools when one changes.
pub async fn watch_classes(
    client: Client,
    store: Writer<RuntimeClass>,
    context: Arc<Context>,
    stop: CancellationToken,
) {
    let events = watcher(Api::<RuntimeClass>::all(client), watcher::Config::default()).default_backoff().reflect(store);
    events
        .take_until(stop.cancelled_owned())
        .inspect(outages("RuntimeClasses"))
        .for_each(|event| {
            match event {
                Ok(Event::InitDone) => {
                    context.synced.filled(Cache::Classes);
                    context.changed.send_replace(());
                }
                Ok(Event::Apply(_) | Event::Delete(_)) => {
                    context.changed.send_replace(());
                }
                Ok(Event::Init | Event::InitApply(_)) | Err(_) => {}
            }
            future::ready(())
        })
        .await;
}

fn observed(
    events: impl Stream<Item = watcher::Result<Event<GuardedPool>>> + Send + 'static,
    context: Arc<Context>,
) -> impl Stream<Item = watcher::Result<GuardedPool>> + Send + 'static {
    events.inspect(outages("WindowsPools")).filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Apply(pool)) => {
                context.changed.send_replace(());
                Some(Ok(pool))
            }
            Ok(Event::Delete(_)) => {
                Pools::read(&context, |_| BTreeSet::new()).publish(None, &context);
                context.changed.send_replace(());
                None
            }
            Ok(Event::InitDone) => {
                context.synced.filled(Cache::Pools);
                Pools::read(&context, |_| BTreeSet::new()).publish(None, &context);
                context.changed.send_replace(());
                None
            }
            // Until a list is complete the cache shows what was before it.
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => Some(Err(error)),
        })
    })
}

async fn reconcile(guarded: Arc<GuardedPool>, state: Arc<State>) -> Result<Action, Error> {
    let (context, name) = (&state.shared, guarded.name_any());
    let Some(term) = context.term() else {
        keep_index(context);
        return Ok(Action::await_change());
    };
    if let Some(wait) = context.retries.pools.remaining(&name) {
        return Ok(Action::requeue(wait));
    }
    let started = Instant::now();
    let work = Box::pin(bring_up_to_date(&guarded, term, &state));
    let Some(result) = context.leadership.during(term, work).await else { return Ok(Action::await_change()) };
    let error = result.as_ref().err().map(|error| error.source.as_str());
    context.metrics.reconciled(CONTROLLER, started.elapsed(), error);
    let again = result?;
    context.retries.pools.forget(&name);
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is the runtime's")]
fn on_error(pool: Arc<GuardedPool>, error: &Error, state: Arc<State>) -> Action {
    let wait = state.shared.retries.pools.after_failure(&pool.name_any());
    let Error { pool, object, source } = error;
    let reason = source.as_str();
    tracing::warn!(
        pool,
        object,
        reason,
        error = words(source),
        wait_ms = wait.as_millis(),
        "pool not up to date; trying again"
    );
    Action::requeue(wait)
}

/// What a standby does: its index is up to date when it takes over.
fn keep_index(context: &Context) {
    if context.synced.all() {
        let pools = Pools::read(context, |_| BTreeSet::new());
        context.index.judge_by(&pools.as_written(), || context.nodes.state());
    }
}

/// Classes first, then the look at who would be stranded, then `status.taints`, then the policy, so that the nodes come
/// last. Returns when to come back, if nothing happens before.
async fn bring_up_to_date(guarded: &GuardedPool, term: u64, state: &State) -> Result<Option<Duration>, Error> {
    let context = &state.shared;
    if !context.synced.all() {
        return Ok(None);
    }
    state.begin(guarded, term);
    if !state.is_fresh(guarded).await? {
        return Ok(Some(CACHE_BEHIND));
    }
    let name = guarded.name_any();
    let pools = Pools::read(context, |pool| state.held_taints(pool));
    let as_written = pools.as_written();
    context.index.judge_by(&as_written, || context.nodes.state());
    if let Some(error) = pools.invalid.get(&name) {
        pools.publish(None, context);
        if guarded.meta().deletion_timestamp.is_some() {
            return state.abandon(guarded).await;
        }
        return state.report_invalid(guarded, error).await;
    }
    // Deleted meanwhile: what it published went with it.
    let Some(pool) = as_written.pool(&name) else { return Ok(None) };
    if pool.deleting {
        pools.publish(Some(Arc::clone(pool)), context);
        return state.clean_up(guarded, pool, &as_written).await;
    }
    if state.settle_finalizer(guarded, pool).await? {
        return Ok(None);
    }

    let totals = context.index.totals(&name);
    let existing = context.classes.state();
    let seen = |pool: &str| if pool == name { totals.seen() } else { context.index.totals(pool).seen() };
    let plan = plan_classes(pool, &as_written, &seen, &existing);
    state.look_at_workloads(pool, &as_written, totals.waiting(), &plan, &existing).await?;
    if state.held_taints(pool) != pool.held {
        return Ok(Some(Duration::ZERO));
    }
    let mut outcome = match pool.mode {
        Mode::Enforce => {
            state.retire_classes(guarded, &plan.leftover, &existing).await?;
            classes::apply(guarded, plan, &existing, &as_written, state).await?
        }
        Mode::DryRun => classes::preview(plan),
    };
    if !outcome.widened.is_empty() {
        state.progress(&name, |progress| progress.classes_seen_at = Some(Instant::now() + CLASSES_SEEN));
    }
    state.find_early_pods(pool, std::mem::take(&mut outcome.widened)).await?;

    let Progress { look, early, .. } = state.progress(&name, |progress| progress.clone());
    outcome.problems.extend(early.problems);
    let held = look.and_then(|look| look.held).filter(|_| totals.waiting() > 0);
    let Told { kubernetes, admission } = context.control_plane.told().await;
    outcome.problems.extend(admission.unlisted_taints(pool).filter(|_| pool.enforces()));
    let observation = Observation {
        kubernetes,
        admission,
        ..observe(pool, guarded.meta(), &totals, held, outcome.classes, outcome.problems)
    };
    context.metrics.classes(&name, &observation.classes);
    let later = match state.report(guarded, |previous, now| status(pool, &observation, previous, now)).await? {
        Report::Done => None,
        Report::Later(wait) => Some(wait),
        // No node gets a taint that is not recorded.
        Report::Outdated => return Ok(None),
    };

    let wait = state.classes_unseen_for(&name);
    let ready = (wait.is_none() && !outcome.holds_nodes).then(|| Arc::new(observation.publishable(pool)));
    pools.publish(ready, context);
    Ok([later, wait, state.next_try(&name), Some(LOOK_AGAIN)].into_iter().flatten().min())
}

impl State {
    fn progress<T>(&self, pool: &str, read: impl FnOnce(&mut Progress) -> T) -> T {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        read(progress.entry(pool.to_owned()).or_default())
    }

    /// Forgets what is remembered of another pool that had this name, or from before another process may have led, but for
    /// what the API server has yet to see.
    fn begin(&self, pool: &GuardedPool, term: u64) {
        let uid = pool.uid();
        self.progress(&pool.name_any(), |progress| {
            if progress.uid != uid || progress.term != term {
                *progress = Progress { uid, term, classes_seen_at: progress.classes_seen_at, ..Progress::default() };
            }
        });
    }

    /// Whether the cache is not behind, as far as this pool goes. A former leader may have ended it, or recorded taints,
    /// a moment ago. In the further course of a term nobody else does.
    async fn is_fresh(&self, guarded: &GuardedPool) -> Result<bool, Error> {
        let (name, meta) = (guarded.name_any(), guarded.meta());
        if self.progress(&name, |progress| progress.fresh) {
            return Ok(true);
        }
        let read = self.shared.applier.read_pool(&name).await;
        let now = read.map_err(|source| Error { pool: name.clone(), object: "WindowsPool".to_owned(), source })?;
        let fresh = now.is_some_and(|now| now.uid == meta.uid && now.resource_version == meta.resource_version);
        self.progress(&name, |progress| progress.fresh = fresh);
        Ok(fresh)
    }

    /// How long nodes still have to wait for the API server to see changed tolerations.
    fn classes_unseen_for(&self, pool: &str) -> Option<Duration> {
        let until = self.progress(pool, |progress| progress.classes_seen_at)?;
        let wait = until.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }
}
