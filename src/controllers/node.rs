//! The node controller: the operator as an interpreter of [`winpool_core::plan::nodes`]. It shows the table what the
//! watches show, executes the steps of nodes in their order, and decides nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::FuturesUnordered;
use futures::{StreamExt, future};
use kube::Resource;
use kube::runtime::events::{Event, EventType};
use kube::runtime::watcher;
use tokio::task::coop::consume_budget;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use winpool_client::causes::shortened;
use winpool_client::error::RequestError;
use winpool_client::node::{self, ListedNode};
use winpool_client::watches::Selection;
use winpool_core::api::names::reason;
use winpool_core::node::{MetadataChange, NodeObject, NodePlan};
use winpool_core::plan::nodes::{NodeAnswer, NodeEvent, NodeNote, NodeStep, OtherNodes};

use crate::nodes::SharedNodes;
use crate::telemetry::list;

use super::queue::Queue;
use super::{Context, NODES, OTHERS};

const CONTROLLER: &str = "node";
/// The kind of the second watch, in messages.
const REIMAGED: &str = "reimaged Nodes";

/// Keeps Windows nodes up to date, `concurrency` of them at the same time, until `stop` is cancelled and the requests in
/// flight have ended.
pub async fn run(context: Arc<Context>, concurrency: u16, stop: CancellationToken) {
    execute_steps(&node::windows(), NODES, &context.nodes, &context, concurrency, stop).await;
}

/// Finds nodes that came back with another operating system under their old name, and removes winpool's labels,
/// annotations and taints from them. The watch of Windows nodes cannot tell them from deleted nodes.
pub async fn run_reimaged(context: Arc<Context>, stop: CancellationToken) {
    execute_steps(&node::reimaged(), REIMAGED, &context.reimaged, &context, 1, stop).await;
}

/// Keeps the names, systems and groups of all other nodes up to date.
pub async fn run_others(context: Arc<Context>, stop: CancellationToken) {
    let events = context.watch_health.watch(&context.client, Selection::Metadata(&node::others()), OTHERS);
    let (mut events, mut listed) = (pin!(events.filter_map(|event| future::ready(event.ok()))), Vec::new());
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        let mut others = context.others.lock();
        let is_news = match node_event(event, &mut listed) {
            Some(NodeEvent::Listed(objects)) => {
                *others = OtherNodes::default();
                for object in objects {
                    others.see(Arc::clone(&object.name), &object.node.labels);
                }
                context.listed(OTHERS);
                true
            }
            Some(NodeEvent::Seen(object)) => others.see(Arc::clone(&object.name), &object.node.labels),
            Some(NodeEvent::Deleted(name)) => others.remove(&name),
            _ => false,
        };
        if is_news {
            context.changed.send_replace(());
        }
    }
}

/// Watches the nodes with these labels, and executes their steps in the order in which they became due.
async fn execute_steps(
    labels: &str,
    kind: &'static str,
    nodes: &SharedNodes,
    context: &Context,
    concurrency: u16,
    stop: CancellationToken,
) {
    let events = context.watch_health.watch(&context.client, Selection::Labels(labels), kind);
    let (mut events, mut listed) = (pin!(events.filter_map(|event| future::ready(event.ok()))), Vec::new());
    let (mut queue, mut running) = (Queue::default(), FuturesUnordered::new());
    loop {
        // Nodes that need nothing end at once: other tasks have to get their turn.
        consume_budget().await;
        let now = Instant::now();
        while running.len() < usize::from(concurrency)
            && let Some(name) = queue.next(now)
        {
            running.push(async move {
                let until = write(&name, nodes, context).await;
                (name, until)
            });
        }
        let is_full = running.len() == usize::from(concurrency);
        let wake = queue.wake_at().filter(|_| !is_full).unwrap_or(now + Duration::from_hours(1));
        tokio::select! {
            () = stop.cancelled() => break,
            Some((name, until)) = running.next() => queue.done(&name, until),
            Some(event) = events.next() => {
                let is_list = matches!(event, watcher::Event::InitDone);
                let event = node_event(event, &mut listed);
                let due = event.map(|event| nodes.lock().observe(event, Instant::now()));
                due.into_iter().flatten().for_each(|name| queue.add(&name));
                if is_list {
                    context.listed(kind);
                }
                wake_pools(nodes, context);
            }
            due = nodes.due() => due.iter().for_each(|name| queue.add(name)),
            () = sleep_until(wake.into()) => {}
        }
    }
    while running.next().await.is_some() {}
}

/// The event for the table. Until a list is complete, the table has the state before it.
fn node_event(event: watcher::Event<ListedNode>, listed: &mut Vec<Arc<NodeObject>>) -> Option<NodeEvent> {
    use watcher::Event;
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(ListedNode { object, .. }) => listed.push(Arc::new(object)),
        Event::InitDone => return Some(NodeEvent::Listed(std::mem::take(listed))),
        Event::Apply(ListedNode { object, .. }) => return Some(NodeEvent::Seen(Arc::new(object))),
        Event::Delete(ListedNode { object, .. }) => return Some(NodeEvent::Deleted(object.name)),
    }
    None
}

fn wake_pools(nodes: &SharedNodes, context: &Context) {
    if nodes.lock().take_changed() {
        context.changed.send_replace(());
    }
}

/// Executes the steps of a node until it waits, or this process no longer leads. Returns the time at which it is due
/// again.
async fn write(name: &str, nodes: &SharedNodes, context: &Context) -> Option<Instant> {
    let term = context.term()?;
    let started = Instant::now();
    let mut step = nodes.lock().next(name, started);
    if let NodeStep::Wait(until) = step {
        wake_pools(nodes, context);
        return until;
    }
    let work = async {
        let mut failure = None;
        loop {
            let (patch, plan) = match step {
                NodeStep::Patch { patch, plan } => (patch, plan),
                NodeStep::Wait(until) => return (until, failure),
            };
            let (answer, error) = match context.applier.attempt(name, patch, &plan).await {
                Ok(answer) => (answer, None),
                Err(error) => (NodeAnswer::Refused(error.clone()), Some(error)),
            };
            let news = {
                let mut table = nodes.lock();
                step = table.answer(name, answer, Instant::now());
                table.take_notes()
            };
            wake_pools(nodes, context);
            for (object, note) in news {
                if let NodeNote::Failed { .. } = note {
                    failure = error.as_ref().map(RequestError::as_str);
                }
                report(object, note, error.as_ref(), context).await;
            }
        }
    };
    let (until, failure) = context.leadership.during(term, work).await?;
    context.metrics.reconciled(CONTROLLER, started.elapsed(), failure);
    until
}

/// Logs what happened, and writes Events and metrics.
async fn report(object: Arc<NodeObject>, news: NodeNote, error: Option<&RequestError>, context: &Context) {
    let node = &*object.name;
    let (reason, message) = match news {
        NodeNote::Written { pool, plan, waited } => {
            if let Some(waited) = waited {
                context.metrics.convergence.observe(waited.as_secs_f64());
            }
            return log_written(node, pool.as_deref(), &plan);
        }
        NodeNote::Failed { pause } => {
            let (reason, error) = (error.map(RequestError::as_str), error.map(shortened));
            let wait_ms = pause.as_millis();
            return tracing::warn!(node, reason, error, wait_ms, "node not written; trying again");
        }
        NodeNote::Refused { message, pause } => {
            let (detail, wait_ms) = (shortened(&message), pause.as_millis());
            tracing::warn!(node, detail, wait_ms, "the API server refuses to change the node");
            (reason::ADMISSION_DENIED, message)
        }
        NodeNote::Contested { writer, pause } => {
            let (detail, wait_ms) = (shortened(&writer), pause.as_millis());
            tracing::warn!(node, detail, wait_ms, "another writer keeps reverting changes to the node; backing off");
            (reason::CONTESTED, writer)
        }
    };
    let object = ListedNode::from(NodeObject::clone(&object)).object_ref(&());
    let (reason, action) = (reason.to_owned(), "Patch".to_owned());
    let event = Event { type_: EventType::Warning, reason, action, note: Some(message), secondary: None };
    context.applier.event(&object, event).await;
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
