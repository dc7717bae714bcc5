//! The node controller: labels, taints and annotates nodes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, future, stream};
use kube::{
    Api, Client, Resource,
    runtime::{
        Controller, WatchStreamExt,
        controller::{Action, Config as ControllerConfig},
        events::EventType,
        reflector::{self, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use tokio_util::sync::CancellationToken;
use winpool_core::{
    api::names::reason,
    plan::{Assessment, Consent, LabelChange, NodePlan, Policy, assess, node_patch},
};

use crate::{
    api_server::{error::RequestError, pages},
    cache::{
        index::NodeRefusal,
        node::{self, CachedNode},
    },
    other_writer,
    telemetry::{list, outages, words},
};

use super::{Cache, Context, changes};

const CONTROLLER: &str = "node";
/// The number of attempts for a node that changes between reading and writing, before it is queued again.
const ATTEMPTS: usize = 4;

/// A node could not be written. It is tried again.
#[derive(Debug, thiserror::Error)]
#[error("Node {name}: {source}")]
pub struct Error {
    name: String,
    source: RequestError,
}

/// Runs until `stop` is cancelled and the requests in flight have ended.
pub async fn run(
    client: Client,
    store: Writer<CachedNode>,
    context: Arc<Context>,
    concurrency: u16,
    stop: CancellationToken,
) {
    let windows = watcher::Config::default().labels(&node::windows()).page_size(pages::PAGE);
    let events = watcher(Api::<CachedNode>::all(client), windows).default_backoff().reflect(store);
    Controller::for_stream(needing_work(events, Arc::clone(&context)), context.nodes.clone())
        .with_config(ControllerConfig::default().concurrency(concurrency))
        .reconcile_all_on(changes(context.policy.subscribe()))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, on_error, context)
        .for_each(|_| future::ready(()))
        .await;
}

/// Finds nodes that came back with another operating system under their old name, and removes winpool's labels,
/// annotations and taints from them. The watch of Windows nodes cannot tell them from deleted nodes.
pub async fn run_reimaged(client: Client, context: Arc<Context>, stop: CancellationToken) {
    let others = watcher::Config::default().labels(&node::reimaged());
    let (reader, writer) = reflector::store();
    let events = watcher(Api::<CachedNode>::all(client), others).default_backoff().reflect(writer);
    Controller::for_stream(events.inspect(outages("reimaged Nodes")).applied_objects(), reader)
        .with_config(ControllerConfig::default().concurrency(1))
        .reconcile_all_on(changes(context.policy.subscribe()))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, on_error, context)
        .for_each(|_| future::ready(()))
        .await;
}

/// Updates the index with each event, and passes on the nodes that need a write.
fn needing_work(
    events: impl Stream<Item = watcher::Result<Event<CachedNode>>> + Send + 'static,
    context: Arc<Context>,
) -> impl Stream<Item = watcher::Result<CachedNode>> + Send + 'static {
    events.inspect(outages("Nodes")).flat_map(move |event| {
        stream::iter(match event {
            Ok(event) => observe(event, &context).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })
    })
}

fn observe(event: Event<CachedNode>, context: &Context) -> Vec<CachedNode> {
    let (changed, nodes) = match event {
        // Until a list is complete the cache has the state before it, and that is what reconciles read.
        Event::Init | Event::InitApply(_) => return Vec::new(),
        Event::InitDone => {
            let nodes = context.nodes.state();
            context.index.replace(&nodes);
            context.retries.retain(&nodes.iter().map(|node| node.name()).collect());
            context.synced.filled(Cache::Nodes);
            (true, nodes)
        }
        Event::Apply(node) => (context.index.observe(&node), vec![Arc::new(node)]),
        Event::Delete(node) => {
            context.retries.forget(node.name());
            (context.index.remove(node.name()), Vec::new())
        }
    };
    if changed {
        context.changed.send_replace(());
    }
    nodes.into_iter().filter(|node| needs_work(node, context)).map(Arc::unwrap_or_clone).collect()
}

/// True if there is something to write, and no reason to wait.
fn needs_work(node: &CachedNode, context: &Context) -> bool {
    let Some(policy) = context.policy.current() else { return false };
    let assessment = judge(node, &policy, context);
    let waits = || {
        let (index, name) = (&context.index, node.name());
        index.refusal(name, &assessment.plan).is_some() || index.stands_back(name, &assessment)
    };
    (!assessment.plan.is_empty() && !waits()) || assessment.label_settles.is_some()
}

/// Assesses the node as it is now.
fn judge(node: &CachedNode, policy: &Policy, context: &Context) -> Assessment {
    let watched = context.index.watched(node.name());
    assess(&node.seen, policy, Consent::Known { uid: node.uid(), watched: &watched, now: Instant::now() })
}

async fn reconcile(node: Arc<CachedNode>, context: Arc<Context>) -> Result<Action, Error> {
    let name = node.name();
    let Some((term, policy)) = context.term().zip(context.policy.current()) else { return Ok(Action::await_change()) };
    if let Some(wait) = context.retries.remaining(name) {
        return Ok(Action::requeue(wait));
    }
    let started = Instant::now();
    let work = bring_up_to_date(&node, &policy, &context);
    let Some(result) = context.leadership.during(term, work).await else { return Ok(Action::await_change()) };
    context.metrics.reconciled(CONTROLLER, started.elapsed(), result.as_ref().err().map(RequestError::as_str));
    match result {
        Ok(action) => {
            context.retries.forget(name);
            Ok(action)
        }
        Err(source) => Err(Error { name: name.to_owned(), source }),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is the runtime's")]
fn on_error(node: Arc<CachedNode>, error: &Error, context: Arc<Context>) -> Action {
    let wait = context.retries.after_failure(node.name());
    let (name, reason) = (node.name(), error.source.as_str());
    let words = words(&error.source);
    tracing::warn!(node = name, reason, error = words, wait_ms = wait.as_millis(), "node not written; trying again");
    Action::requeue(wait)
}

/// Writes the plan. If the cached node turns out to be stale, reads it again.
async fn bring_up_to_date(cached: &CachedNode, policy: &Policy, context: &Context) -> Result<Action, RequestError> {
    let name = cached.name();
    let mut node = cached.clone();
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        let assessment = judge(&node, policy, context);
        let plan = &assessment.plan;
        if plan.is_empty() {
            // A taint may no longer be added, although the node has not changed.
            if failed.is_none() && context.index.look_again(&node) {
                context.changed.send_replace(());
            }
            return Ok(next_look(&assessment));
        }
        if let Some(refusal) = context.index.refusal(name, plan) {
            return Ok(Action::requeue(refusal.until.saturating_duration_since(Instant::now())));
        }
        if let Some(pause) = context.index.contested(name, &assessment) {
            return Ok(back_off(&node, pause, context).await);
        }
        let patch = node_patch(node.uid(), &node.seen, plan, policy);
        if failed.as_ref() == Some(&patch) {
            let message = "the patch's tests fail although the node is as it was read";
            return Ok(give_up(&node, plan.clone(), message.to_owned(), context).await);
        }
        match context.applier.patch_node(name, patch.clone()).await {
            Ok(()) => {
                report(name, &assessment, context);
                return Ok(Action::await_change());
            }
            Err(error @ (RequestError::Stale | RequestError::Conflict)) => {
                failed = matches!(error, RequestError::Stale).then_some(patch);
                node = match context.applier.read_node(name).await {
                    Ok(fresh) if fresh.uid() == node.uid() => fresh,
                    // Another node with that name: its own event starts its reconcile.
                    Ok(_) | Err(RequestError::Gone) => return Ok(Action::await_change()),
                    Err(error) => return Err(error),
                };
            }
            Err(RequestError::Gone) => return Ok(Action::await_change()),
            Err(RequestError::Denied(message)) => {
                return send_parts(&node, &assessment, message, policy, context).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(RequestError::Conflict)
}

/// A build label that waits to be confirmed is assessed again at the end of that time.
fn next_look(assessment: &Assessment) -> Action {
    assessment
        .label_settles
        .map_or_else(Action::await_change, |until| Action::requeue(until.saturating_duration_since(Instant::now())))
}

/// Sends the label and the rest apart after the whole plan was refused, so that a refused taint does not delay the
/// label.
async fn send_parts(
    node: &CachedNode,
    Assessment { pool, plan, .. }: &Assessment,
    message: String,
    policy: &Policy,
    context: &Context,
) -> Result<Action, RequestError> {
    let pool = pool.as_deref();
    let parts = plan.parts();
    if parts.iter().any(NodePlan::is_empty) {
        return Ok(give_up(node, plan.clone(), message, context).await);
    }
    let mut current = node.clone();
    let mut denied = None;
    for part in parts {
        let patch = node_patch(current.uid(), &current.seen, &part, policy);
        match context.applier.patch_node(node.name(), patch).await {
            Ok(()) => {
                log_written(node.name(), pool, &part);
                // Computed, because a fresh read could contain changes that the next part was not computed from.
                current.seen = current.seen.after(&part);
            }
            Err(RequestError::Denied(message)) => denied = Some(message),
            Err(error) => return Err(error),
        }
    }
    match denied {
        Some(message) => {
            let rest = judge(&current, policy, context).plan;
            Ok(give_up(&current, rest, message, context).await)
        }
        None => Ok(Action::await_change()),
    }
}

/// Backs off from another writer, longer each time, and logs its name.
async fn back_off(node: &CachedNode, pause: Duration, context: &Context) -> Action {
    let writer = other_writer::find(&context.metadata, node.name()).await;
    if context.index.back_off(node, &writer, pause) {
        let (name, wait) = (node.name(), pause.as_millis());
        tracing::warn!(
            node = name,
            detail = words(&writer),
            wait_ms = wait,
            "another writer keeps reverting changes to the node; backing off"
        );
        let object = node.object_ref(&());
        context.applier.event(&object, EventType::Warning, reason::CONTESTED, "Patch", writer).await;
    }
    context.changed.send_replace(());
    Action::requeue(pause)
}

async fn give_up(node: &CachedNode, plan: NodePlan, message: String, context: &Context) -> Action {
    let (name, detail, wait) = (node.name(), words(&message), context.patience.as_millis());
    tracing::warn!(node = name, detail, wait_ms = wait, "the API server refuses to change the node");
    let until = Instant::now() + context.patience;
    context.index.refused(node, NodeRefusal { plan, message: message.as_str().into(), until });
    context.changed.send_replace(());
    let object = node.object_ref(&());
    context.applier.event(&object, EventType::Warning, reason::ADMISSION_DENIED, "Patch", message).await;
    Action::requeue(context.patience)
}

fn report(name: &str, assessment: &Assessment, context: &Context) {
    context.index.written(name, assessment);
    if let Some(since) = context.index.take_pending_since(name) {
        context.metrics.converged(since.elapsed());
    }
    log_written(name, assessment.pool.as_deref(), &assessment.plan);
}

/// Logs a node that was written, with every change but the annotation that repeats them.
fn log_written(name: &str, pool: Option<&str>, plan: &NodePlan) {
    // Uses kubectl's notation.
    let write = |LabelChange { key, to, .. }: &LabelChange| match to {
        Some(value) => format!("{key}={value}"),
        None => format!("{key}-"),
    };
    let labels = list(plan.windows_build.iter().chain(&plan.capability_labels).chain(&plan.pool).map(write));
    let taints = plan.taints.as_ref();
    let taints_added = taints.and_then(|change| list(change.added.iter().map(ToString::to_string)));
    let taints_removed = taints.and_then(|change| list(change.removed.iter().map(ToString::to_string)));
    tracing::info!(node = name, pool, labels, taints_added, taints_removed, "node written");
}
