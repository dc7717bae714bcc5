//! Pools: make their RuntimeClasses, publish what nodes are judged by, report.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, future};
use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Controller, WatchStreamExt,
        controller::{Action, Config as ControllerConfig},
        events::EventType,
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};
use tokio_util::sync::CancellationToken;
use winpool_core::{
    api::{Mode, Problem, RuntimeClassStatus, WindowsPoolStatus, names::reason, validation::Violation},
    plan::{ClassAction, Entry, InvalidPool, Observation, Policy, Pool, invalid_status, number, plan_classes, status},
    windows::Build,
};

use crate::{apply::WriteError, index::Totals};

use super::{Cache, Context, GuardedPool, changes, outages, retry::Retries};

mod classes;

const CONTROLLER: &str = "pool";
/// The API server's admission reads RuntimeClasses from a cache, and tolerations are baked into a pod when it is
/// created: nodes wait this long after the tolerations of a class that exists were changed.
const CLASSES_SEEN: Duration = Duration::from_secs(5);
/// At most one status write in this time while things move.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How often a class may change between reading and writing before the pool has to queue again.
const ATTEMPTS: usize = 4;
/// How long a refused RuntimeClass is not sent again.
const REFUSED: Duration = Duration::from_mins(10);

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
    retries: Retries,
    progress: Mutex<BTreeMap<String, Progress>>,
}

/// What is remembered of a pool between reconciles.
#[derive(Clone, Default)]
struct Progress {
    /// The pool that all of this is about, and not another one that had its name before.
    uid: Option<String>,
    /// Until when nodes wait for the API server to see changed tolerations.
    classes_seen_at: Option<Instant>,
    /// When the next status may be written.
    next_status: Option<Instant>,
    /// The status last written, which the cache may not show yet.
    written: Option<WindowsPoolStatus>,
    /// RuntimeClasses that the API server refuses, by name.
    refused: BTreeMap<String, Refusal>,
    /// The generation whose status the API server refuses, and when to try again.
    status_refused: Option<(Option<i64>, Instant)>,
}

/// A refused write of a RuntimeClass: not sent again before `until`, unless something else is to be written.
#[derive(Clone)]
struct Refusal {
    action: ClassAction,
    message: String,
    until: Instant,
}

/// Runs until `stop` is cancelled and the request in flight has ended.
pub async fn run(client: Client, store: Writer<GuardedPool>, context: Arc<Context>, stop: CancellationToken) {
    let events = watcher(Api::<GuardedPool>::all(client), watcher::Config::default()).default_backoff().reflect(store);
    let state =
        Arc::new(State { shared: Arc::clone(&context), retries: Retries::default(), progress: Mutex::default() });
    Controller::for_stream(observed(events, Arc::clone(&context)), context.pools.clone())
        // One at a time: pools decide together who owns a node and a class name.
        .with_config(ControllerConfig::default().concurrency(1))
        .reconcile_all_on(changes(context.changed.subscribe()))
        .reconcile_all_on(changes(context.synced.subscribe()))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, on_error, state)
        .for_each(|_| future::ready(()))
        .await;
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
                Ok(Event::InitDone) => context.synced.filled(Cache::Classes),
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
            Ok(Event::Apply(pool) | Event::InitApply(pool)) => {
                context.changed.send_replace(());
                Some(Ok(pool))
            }
            Ok(Event::Delete(_)) => {
                Pools::read(&context).publish(None, &context);
                context.changed.send_replace(());
                None
            }
            Ok(Event::InitDone) => {
                context.synced.filled(Cache::Pools);
                Pools::read(&context).publish(None, &context);
                None
            }
            Ok(Event::Init) => None,
            Err(error) => Some(Err(error)),
        })
    })
}

/// All pools of the cluster, read.
struct Pools {
    valid: Vec<Arc<Pool>>,
    invalid: BTreeMap<String, InvalidPool>,
}

impl Pools {
    fn read(context: &Context) -> Self {
        let (mut valid, mut invalid) = (Vec::new(), BTreeMap::new());
        for guarded in context.pools.state() {
            match read(&guarded) {
                Ok(pool) => valid.push(Arc::new(pool)),
                Err(error) => {
                    invalid.insert(error.name.clone(), error);
                }
            }
        }
        Self { valid, invalid }
    }

    fn publish(&self, ready: Option<Arc<Pool>>, context: &Context) {
        let suspended: BTreeSet<String> = self.invalid.keys().cloned().collect();
        context.metrics.keep_pools(|name| self.valid.iter().any(|pool| pool.name == name));
        if context.synced.all() {
            context.policy.publish(ready, &self.valid, &suspended);
        }
    }

    /// What nodes would be judged by if all pools were ready.
    fn as_written(&self) -> Policy {
        let entries = self.valid.iter().map(|pool| Entry { pool: Arc::clone(pool), ready: true });
        Policy::new(entries, self.invalid.keys().cloned().collect())
    }
}

fn read(guarded: &GuardedPool) -> Result<Pool, InvalidPool> {
    match &guarded.pool {
        Ok(pool) => Pool::read(pool),
        Err(error) => {
            let violation = Violation { field: "spec".to_owned(), message: error.clone() };
            Err(InvalidPool { name: guarded.name_any(), violations: vec![violation] })
        }
    }
}

async fn reconcile(guarded: Arc<GuardedPool>, state: Arc<State>) -> Result<Action, Error> {
    if let Some(wait) = state.retries.remaining(&guarded.name_any()) {
        return Ok(Action::requeue(wait));
    }
    let started = Instant::now();
    let result = bring_up_to_date(&guarded, &state).await;
    let error = result.as_ref().err().map(|error| error.source.as_str());
    state.shared.metrics.reconciled(CONTROLLER, started.elapsed(), error);
    if result.is_ok() {
        state.retries.forget(&guarded.name_any());
    }
    result
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is the runtime's")]
fn on_error(pool: Arc<GuardedPool>, error: &Error, state: Arc<State>) -> Action {
    let wait = state.retries.after_failure(&pool.name_any());
    tracing::warn!(%error, wait_ms = wait.as_millis(), "pool not up to date; trying again");
    Action::requeue(wait)
}

/// Classes first, then `status.taints`, then the policy, so that the nodes come last.
async fn bring_up_to_date(guarded: &GuardedPool, state: &State) -> Result<Action, Error> {
    let context = &state.shared;
    let name = guarded.name_any();
    if !context.synced.all() {
        return Ok(Action::await_change());
    }
    state.begin(guarded);
    let pools = Pools::read(context);
    let as_written = pools.as_written();
    context.index.judge_by(&as_written, || context.nodes.state());
    if let Some(error) = pools.invalid.get(&name) {
        pools.publish(None, context);
        return state.report_invalid(guarded, error).await;
    }
    // Deleted meanwhile: what it published went with it.
    let Some(pool) = as_written.pool(&name) else { return Ok(Action::await_change()) };

    let totals = context.index.totals(&name);
    let existing = context.classes.state();
    let plan = plan_classes(pool, &as_written, &totals.seen(), &existing);
    let outcome = match pool.mode {
        Mode::Enforce => classes::apply(guarded, plan, &existing, &as_written, state).await?,
        Mode::DryRun => classes::preview(plan),
    };
    if outcome.tolerations_changed {
        state.progress(&name, |progress| progress.classes_seen_at = Some(Instant::now() + CLASSES_SEEN));
    }
    let observation = observe(pool, guarded.meta(), &totals, outcome.classes, outcome.problems);
    context.metrics.classes(&name, &observation.classes);
    let action = state.report(guarded, |previous, now| status(pool, &observation, previous, now)).await?;

    let wait = state.classes_unseen_for(&name);
    let ready = (wait.is_none() && !outcome.holds_nodes).then(|| Arc::new(observation.publishable(pool)));
    pools.publish(ready, context);
    // A refused class is tried again by itself; what comes sooner is done first.
    let retry = outcome.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
    let retry = retry.filter(|_| action == Action::await_change());
    Ok(wait.or(retry).map_or(action, Action::requeue))
}

/// What the pool's status is computed from.
fn observe(
    pool: &Pool,
    metadata: &ObjectMeta,
    totals: &Totals,
    classes: Vec<RuntimeClassStatus>,
    mut problems: Vec<Problem>,
) -> Observation {
    problems.extend(totals.problems());
    let seen = totals.seen();
    Observation {
        generation: metadata.generation,
        nodes: totals.counts(),
        unlabeled: totals.unlabeled(),
        untainted: totals.untainted(),
        builds: totals.revisions().clone(),
        lingering: seen.tolerate.into_iter().filter(|taint| pool.ever_applied.contains(taint)).collect(),
        classes: classes
            .into_iter()
            .map(|class| RuntimeClassStatus { nodes: nodes_of(&class, &seen.builds), ..class })
            .collect(),
        problems,
    }
}

fn nodes_of(class: &RuntimeClassStatus, builds: &BTreeMap<Build, usize>) -> i64 {
    let build: Option<Build> = class.build.parse().ok();
    number(build.and_then(|build| builds.get(&build)).copied().unwrap_or_default())
}

impl State {
    fn progress<T>(&self, pool: &str, read: impl FnOnce(&mut Progress) -> T) -> T {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        read(progress.entry(pool.to_owned()).or_default())
    }

    /// Forgets what is remembered of another pool that had this name, but for what the API server has yet to see.
    fn begin(&self, pool: &GuardedPool) {
        let uid = pool.uid();
        self.progress(&pool.name_any(), |progress| {
            if progress.uid != uid {
                *progress = Progress { uid, classes_seen_at: progress.classes_seen_at, ..Progress::default() };
            }
        });
    }

    /// How long nodes still have to wait for the API server to see changed tolerations.
    fn classes_unseen_for(&self, pool: &str) -> Option<Duration> {
        let until = self.progress(pool, |progress| progress.classes_seen_at)?;
        let wait = until.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// Writes the status that `compute` makes of the previous one, if it differs: at once when it records a taint that
    /// nodes will get, otherwise at most once in [`STATUS_INTERVAL`].
    async fn report(
        &self,
        pool: &GuardedPool,
        compute: impl Fn(Option<&WindowsPoolStatus>, Timestamp) -> WindowsPoolStatus,
    ) -> Result<Action, Error> {
        let name = pool.name_any();
        let Progress { next_status, written, .. } = self.progress(&name, |progress| progress.clone());
        let recent = next_status.is_some_and(|next| Instant::now() < next + STATUS_INTERVAL);
        let cached = pool.status.clone();
        let previous = written.filter(|_| recent).or(cached);
        let status = compute(previous.as_ref(), whole_seconds(Timestamp::now()));
        if previous.as_ref() == Some(&status) {
            return Ok(Action::await_change());
        }
        let recorded = |taint| previous.as_ref().is_some_and(|previous| previous.taints.contains(taint));
        let wait = next_status.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()));
        if !wait.is_zero() && status.taints.iter().all(recorded) {
            return Ok(Action::requeue(wait));
        }
        match self.shared.applier.write_status(pool.meta(), &status).await {
            Ok(()) => {}
            // Gone, or another object of that name: its own event follows.
            Err(WriteError::Gone | WriteError::Stale) => return Ok(Action::await_change()),
            Err(error) => return Err(Error { pool: name, object: "status".to_owned(), source: error }),
        }
        self.announce(pool, previous.as_ref(), &status).await;
        self.progress(&name, |progress| {
            progress.next_status = Some(Instant::now() + STATUS_INTERVAL);
            progress.written = Some(status);
        });
        Ok(Action::await_change())
    }

    /// Reports that a pool is not valid. The API server may refuse that, because it judges the whole object by rules that
    /// this one breaks: then an Event says it, and the status is not sent again before the spec changes or [`REFUSED`]
    /// has passed.
    async fn report_invalid(&self, pool: &GuardedPool, error: &InvalidPool) -> Result<Action, Error> {
        let (name, generation) = (pool.name_any(), pool.meta().generation);
        if let Some((refused, until)) = self.progress(&name, |progress| progress.status_refused) {
            let wait = until.saturating_duration_since(Instant::now());
            if refused == generation && !wait.is_zero() {
                return Ok(Action::requeue(wait));
            }
        }
        let report = |previous: Option<&_>, now| invalid_status(error, generation, previous, now);
        match self.report(pool, report).await {
            Err(Error { source: WriteError::Denied(refusal), .. }) => {
                tracing::warn!(%error, refusal, "the API server refuses a status that says so; next try in 10 minutes");
                self.progress(&name, |progress| progress.status_refused = Some((generation, Instant::now() + REFUSED)));
                let (object, note) = (pool.object_ref(&()), error.to_string());
                self.shared.applier.event(&object, EventType::Warning, reason::INVALID_SPEC, "Validate", note).await;
                Ok(Action::requeue(REFUSED))
            }
            result => result,
        }
    }

    /// One Event for each problem that is new.
    async fn announce(&self, pool: &GuardedPool, previous: Option<&WindowsPoolStatus>, status: &WindowsPoolStatus) {
        let known = |problem: &Problem| {
            let mut problems = previous.iter().flat_map(|status| &status.problems);
            problems.any(|known| known.reason == problem.reason && known.object == problem.object)
        };
        let object = pool.object_ref(&());
        for problem in status.problems.iter().filter(|problem| !known(problem)) {
            let Problem { reason, object: subject, message } = problem;
            tracing::warn!(pool = pool.name_any(), reason, object = subject, message, "problem");
            let note = format!("{subject}: {message}");
            self.shared.applier.event(&object, EventType::Warning, reason, subject, note).await;
        }
    }
}

/// The API keeps whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
