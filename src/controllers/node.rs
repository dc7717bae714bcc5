//! The node controller: labels, taints and annotates nodes.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, future, stream::FuturesUnordered};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        events::EventType,
        watcher::{self, Event, watcher},
    },
};
use tokio::{task::coop::consume_budget, time::sleep_until};
use tokio_util::sync::CancellationToken;
use winpool_core::{
    api::names::reason,
    plan::{Assessment, Consent, MetadataChange, NodePlan, Policy, assess, node_patch},
};

use crate::{
    api_server::{error::RequestError, pages},
    cache::{
        index::{Index, NodeRefusal},
        node::{self, CachedNode, ListedNode},
    },
    other_writer,
    telemetry::{list, outages, words},
};

use super::{Cache, Context, queue::Queue};

const CONTROLLER: &str = "node";
/// The number of attempts for a node that changes between reading and writing, before it is queued again.
const ATTEMPTS: usize = 4;

/// Reconciles Windows nodes, `concurrency` of them at the same time, until `stop` is cancelled and the requests in flight have
/// ended.
pub async fn run(client: Client, context: Arc<Context>, concurrency: u16, stop: CancellationToken) {
    let windows = watcher::Config::default().labels(&node::windows()).page_size(pages::PAGE);
    let events = watcher(Api::<ListedNode>::all(client), windows).default_backoff();
    let events = events.inspect(outages(Cache::Nodes.plural())).filter_map(|event| future::ready(event.ok()));
    let mut listed = Vec::new();
    let observe = |event, queue: &mut Queue| observe(event, &mut listed, queue, &context);
    // The pool loop gives the index each policy before it is published.
    reconcile_all(events, &context.index, observe, |_| {}, &context, concurrency, stop).await;
}

/// Finds nodes that came back with another operating system under their old name, and removes winpool's labels,
/// annotations and taints from them. The watch of Windows nodes cannot tell them from deleted nodes.
pub async fn run_reimaged(client: Client, context: Arc<Context>, stop: CancellationToken) {
    let others = watcher::Config::default().labels(&node::reimaged());
    let events = watcher(Api::<ListedNode>::all(client), others).default_backoff();
    let events = events.inspect(outages("reimaged Nodes")).filter_map(|event| future::ready(event.ok()));
    // These nodes count for no pool.
    let (index, mut listed) = (Index::default(), Vec::new());
    let observe = |event, queue: &mut Queue| {
        let (nodes, _) = follow(event, &mut listed, &index, queue);
        for node in nodes {
            queue.add(node.name());
        }
    };
    let judge_by = |policy: &Policy| index.judge_by(policy.clone());
    reconcile_all(events, &index, observe, judge_by, &context, 1, stop).await;
}

/// Reconciles the nodes that `observe` adds to the queue, and all nodes when the policy changes.
async fn reconcile_all(
    events: impl Stream<Item = Event<ListedNode>>,
    index: &Index,
    mut observe: impl FnMut(Event<ListedNode>, &mut Queue),
    judge_by: impl Fn(&Policy),
    context: &Context,
    concurrency: u16,
    stop: CancellationToken,
) {
    let mut events = pin!(events);
    let mut policy = context.policy.subscribe();
    let (mut queue, mut term, mut running) = (Queue::default(), None, FuturesUnordered::new());
    loop {
        // Nodes that need nothing end at once: other tasks have to get their turn.
        consume_budget().await;
        let now = Instant::now();
        while running.len() < usize::from(concurrency)
            && let Some(name) = queue.next(now)
        {
            let node = index.node(&name);
            running.push(async move { (name, reconcile(node, index, context).await) });
        }
        let is_full = running.len() == usize::from(concurrency);
        let wake = queue.wake_at().filter(|_| !is_full).unwrap_or(now + Duration::from_hours(1));
        tokio::select! {
            () = stop.cancelled() => break,
            Some((name, result)) = running.next() => conclude(&name, result, &mut queue),
            Some(event) = events.next() => observe(event, &mut queue),
            Ok(()) = policy.changed() => {
                if std::mem::replace(&mut term, context.term()) != term {
                    queue.forgive();
                }
                if let Some(policy) = context.policy.current() {
                    judge_by(&policy);
                }
                index.nodes().iter().for_each(|node| queue.add(node.name()));
            }
            () = sleep_until(wake.into()) => {}
        }
    }
    while running.next().await.is_some() {}
}

/// Keeps the index as events pass, and adds only those nodes to the queue that have to be written.
fn observe(event: Event<ListedNode>, listed: &mut Vec<Arc<CachedNode>>, queue: &mut Queue, context: &Context) {
    let is_list = matches!(event, Event::InitDone);
    let (nodes, changed) = follow(event, listed, &context.index, queue);
    if is_list {
        context.synced.filled(Cache::Nodes);
    }
    if changed {
        context.changed.send_replace(());
    }
    nodes.iter().filter(|node| needs_work(node, context)).for_each(|node| queue.add(node.name()));
}

/// Keeps `index` as events pass. Returns the nodes that may have changed, and true if the sums of a pool may have.
fn follow(
    event: Event<ListedNode>,
    listed: &mut Vec<Arc<CachedNode>>,
    index: &Index,
    queue: &mut Queue,
) -> (Vec<Arc<CachedNode>>, bool) {
    match event {
        // Until a list is complete, the index has the state before it, and that is what reconciles read.
        Event::Init => listed.clear(),
        Event::InitApply(ListedNode { node, .. }) => listed.push(Arc::new(node)),
        Event::InitDone => {
            let nodes = std::mem::take(listed);
            index.replace(&nodes);
            queue.retain(&nodes.iter().map(|node| node.name()).collect());
            return (nodes, true);
        }
        Event::Apply(ListedNode { node, .. }) => {
            let node = Arc::new(node);
            let changed = index.observe(&node);
            return (vec![node], changed);
        }
        Event::Delete(ListedNode { node, .. }) => {
            queue.forget(node.name());
            return (Vec::new(), index.remove(node.name()));
        }
    }
    (Vec::new(), false)
}

/// Returns true if there is something to write, and no reason to wait.
fn needs_work(node: &CachedNode, context: &Context) -> bool {
    let Some(policy) = context.policy.current() else { return false };
    let (index, name) = (&context.index, node.name());
    let assessment = judge(node, &policy, index);
    let waits = || index.refusal(name, &assessment.plan).is_some() || index.stands_back(name, &assessment);
    (!assessment.plan.is_empty() && !waits()) || assessment.label_settles.is_some()
}

/// Assesses the node as it is now.
fn judge(node: &CachedNode, policy: &Policy, index: &Index) -> Assessment {
    let watched = index.watched(node.name());
    assess(&node.seen, policy, Consent::Known { uid: node.uid(), watched: &watched, now: Instant::now() })
}

/// Reconciles one node, unless it is gone or this process may not write. Returns when it is due again, if it is.
async fn reconcile(
    node: Option<Arc<CachedNode>>,
    index: &Index,
    context: &Context,
) -> Result<Option<Duration>, RequestError> {
    let leads = context.term().zip(context.policy.current());
    let Some((node, (term, policy))) = node.zip(leads) else { return Ok(None) };
    let started = Instant::now();
    let work = bring_up_to_date(&node, &policy, index, context);
    let Some(result) = context.leadership.during(term, work).await else { return Ok(None) };
    context.metrics.reconciled(CONTROLLER, started.elapsed(), result.as_ref().err().map(RequestError::as_str));
    result
}

fn conclude(name: &str, result: Result<Option<Duration>, RequestError>, queue: &mut Queue) {
    match result {
        Ok(None) => queue.done(name),
        Ok(Some(wait)) => queue.again_after(name, wait, Instant::now()),
        Err(error) => {
            let wait = queue.failed(name, Instant::now()).as_millis();
            let (reason, words) = (error.as_str(), words(&error));
            tracing::warn!(node = name, reason, error = words, wait_ms = wait, "node not written; trying again");
        }
    }
}

/// Writes the plan. If the cached node turns out to be stale, reads it again.
async fn bring_up_to_date(
    cached: &CachedNode,
    policy: &Policy,
    index: &Index,
    context: &Context,
) -> Result<Option<Duration>, RequestError> {
    let name = cached.name();
    let mut node = cached.clone();
    for attempt in 0..ATTEMPTS {
        let assessment = judge(&node, policy, index);
        let plan = &assessment.plan;
        if let Some(pause) = index.still_waits(name, &assessment) {
            return Ok(Some(pause));
        }
        if plan.is_empty() {
            // A taint may no longer be added, although the node has not changed.
            if attempt == 0 && index.look_again(&node) {
                context.changed.send_replace(());
            }
            return Ok(next_look(&assessment));
        }
        if let Some(refusal) = index.refusal(name, plan) {
            return Ok(Some(refusal.until.saturating_duration_since(Instant::now())));
        }
        if let Some(pause) = index.contested(name, &assessment) {
            return Ok(Some(back_off(&node, plan.clone(), pause, index, context).await));
        }
        let patch = node_patch(node.uid(), &node.seen, plan, policy);
        match context.applier.patch_node(name, patch).await {
            Ok(()) => {
                report(name, &assessment, index, context);
                return Ok(None);
            }
            Err(error @ (RequestError::Stale | RequestError::Conflict)) => {
                let fresh = match context.applier.read_node(name).await {
                    Ok(fresh) if fresh.uid() == node.uid() => fresh,
                    // Another node of that name: its own event brings it here.
                    Ok(_) | Err(RequestError::Gone) => return Ok(None),
                    Err(error) => return Err(error),
                };
                let is_unchanged = fresh.resource_version == node.resource_version;
                if is_unchanged && matches!(error, RequestError::Stale) {
                    let message = "the patch's tests fail although the node is as it was read";
                    return Ok(Some(give_up(&fresh, plan.clone(), message.to_owned(), index, context).await));
                }
                node = fresh;
            }
            Err(RequestError::Gone) => return Ok(None),
            Err(RequestError::Denied(message)) => {
                return send_parts(&node, &assessment, message, policy, index, context).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(RequestError::Conflict)
}

/// Returns the time after which a build label that waits to be confirmed is checked again.
fn next_look(assessment: &Assessment) -> Option<Duration> {
    assessment.label_settles.map(|until| until.saturating_duration_since(Instant::now()))
}

/// Sends the label and the rest apart after the whole plan was refused, so that a refused taint does not delay the
/// label.
async fn send_parts(
    node: &CachedNode,
    assessment: &Assessment,
    message: String,
    policy: &Policy,
    index: &Index,
    context: &Context,
) -> Result<Option<Duration>, RequestError> {
    let Assessment { pool, plan, .. } = assessment;
    let parts = plan.parts();
    if parts.iter().any(NodePlan::is_empty) {
        return Ok(Some(give_up(node, plan.clone(), message, index, context).await));
    }
    let mut current = node.clone();
    let (mut denied, mut wrote) = (None, false);
    for part in parts {
        let patch = node_patch(current.uid(), &current.seen, &part, policy);
        match context.applier.patch_node(node.name(), patch).await {
            Ok(()) => {
                // Once for all parts, and even if the next one fails.
                if !std::mem::replace(&mut wrote, true) {
                    index.written(node.name(), assessment);
                }
                log_written(node.name(), pool.as_deref(), &part);
                // Computed, because a fresh read could contain changes that the next part was not computed from.
                current.seen = current.seen.after(&part);
            }
            Err(RequestError::Denied(message)) => denied = Some(message),
            Err(error) => return Err(error),
        }
    }
    match denied {
        Some(message) => {
            let rest = judge(&current, policy, index).plan;
            Ok(Some(give_up(&current, rest, message, index, context).await))
        }
        None => Ok(None),
    }
}

/// Backs off, longer each time, instead of fighting over the node, and names the other writer.
async fn back_off(node: &CachedNode, plan: NodePlan, pause: Duration, index: &Index, context: &Context) -> Duration {
    let writer = other_writer::find(&context.metadata, node.name()).await;
    if index.back_off(node, plan, &writer, pause) {
        let (name, wait) = (node.name(), pause.as_millis());
        tracing::warn!(
            node = name,
            detail = words(&writer),
            wait_ms = wait,
            "another writer keeps reverting changes to the node; backing off"
        );
        let object = ListedNode::from(node.clone()).object_ref(&());
        context.applier.event(&object, EventType::Warning, reason::CONTESTED, "Patch", writer).await;
    }
    context.changed.send_replace(());
    pause
}

async fn give_up(node: &CachedNode, plan: NodePlan, message: String, index: &Index, context: &Context) -> Duration {
    let (name, detail, wait) = (node.name(), words(&message), context.patience.as_millis());
    tracing::warn!(node = name, detail, wait_ms = wait, "the API server refuses to change the node");
    let until = Instant::now() + context.patience;
    // The API server names the node. Nodes that are refused for the same reason are one problem.
    let shared = message.replace(&format!(" \"{name}\""), "");
    index.refused(node, NodeRefusal { plan, message: shared.into(), until });
    context.changed.send_replace(());
    let object = ListedNode::from(node.clone()).object_ref(&());
    context.applier.event(&object, EventType::Warning, reason::ADMISSION_DENIED, "Patch", message).await;
    context.patience
}

fn report(name: &str, assessment: &Assessment, index: &Index, context: &Context) {
    index.written(name, assessment);
    if let Some(since) = index.take_pending_since(name) {
        context.metrics.converged(since.elapsed());
    }
    log_written(name, assessment.pool.as_deref(), &assessment.plan);
}

/// Logs a node that was written, with every change but the annotation that repeats them.
fn log_written(name: &str, pool: Option<&str>, plan: &NodePlan) {
    // Uses kubectl's notation.
    let write = |MetadataChange { key, to, .. }: &MetadataChange| match to {
        Some(value) => format!("{key}={value}"),
        None => format!("{key}-"),
    };
    let labels = list(plan.labels().map(write));
    let taints = plan.taints.as_ref();
    let taints_added = taints.and_then(|change| list(change.added.iter().map(ToString::to_string)));
    let taints_removed = taints.and_then(|change| list(change.removed.iter().map(ToString::to_string)));
    tracing::info!(node = name, pool, labels, taints_added, taints_removed, "node written");
}
