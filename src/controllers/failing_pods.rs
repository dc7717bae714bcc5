//! The search for pods that fail because of Windows: the operator as an interpreter of
//! [`winpool_core::plan::failing_pods`]. It runs while this process leads and there are Windows nodes.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Instant};

use futures::{StreamExt, stream::select_all};
use k8s_openapi::api::core::v1;
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::watcher::Event};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use winpool_client::{
    causes::shortened,
    error::RequestError,
    pages,
    pod_events::{ListedEvent, warnings},
    watches::Selection,
};
use winpool_core::{
    plan::{
        Policy, PoolEntry,
        failing_pods::{ClusterFacts, FailingPods, PodAnswer, PodStep, REASONS},
        owner, read_all,
        reconcile::Now,
    },
    pod::Pod,
};

use super::{Context, now};

/// The number of Pending pods in the only page. The API server has an index of the first page only.
const PAGE: u32 = 500;
/// The kinds of the watches, in messages.
const KINDS: [&str; REASONS.len()] =
    ["Events (FailedCreatePodSandBox)", "Events (Failed)", "Events (PodOSNotSupported)", "Events (NodeAffinity)"];

/// The facts besides nodes by which pods are judged.
pub struct PoolsAndClasses {
    policy: Policy,
    classes: BTreeMap<String, String>,
}

/// Searches for failing pods until `stop` is cancelled.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let search = async {
        loop {
            let term = context.leadership.begun().await;
            context.leadership.during(term, search_while_there_are_nodes(&context)).await;
            *context.failing.table.lock() = None;
        }
    };
    if context.failing.is_on {
        tokio::select! {
            () = stop.cancelled() => {}
            () = search => {}
        }
    }
}

async fn search_while_there_are_nodes(context: &Arc<Context>) -> Infallible {
    let mut changed = context.changed.subscribe();
    loop {
        while !context.unlisted.is_empty() || !has_nodes(context) {
            // The sender is in the context.
            let _ = changed.changed().await;
        }
        *context.failing.table.lock() = Some(FailingPods::new(context.failing.pauses));
        tokio::select! {
            () = execute_rounds(context) => {}
            () = follow_events(context) => {}
        }
        *context.failing.table.lock() = None;
        context.changed.send_replace(());
    }
}

fn has_nodes(context: &Context) -> bool {
    context.nodes.lock().objects().next().is_some()
}

/// Executes the steps of the table until there are no more Windows nodes.
async fn execute_rounds(context: &Context) {
    let (mut did_fail, mut known) = (false, pools_and_classes(context));
    while has_nodes(context) {
        let Some(step) = context.failing.table.lock().as_mut().map(|table| table.next(Instant::now())) else { return };
        let result = match step {
            PodStep::Wait(until) => {
                notify_pools(context);
                sleep_until(until.into()).await;
                continue;
            }
            PodStep::List { only_with_node } => {
                known = self::pools_and_classes(context);
                list(context, &known, only_with_node).await
            }
            PodStep::Read((namespace, name)) => read(&context.client, &namespace, &name).await,
        };
        if let Err(error) = result.as_ref().map_err(shortened)
            && !std::mem::replace(&mut did_fail, true)
        {
            tracing::warn!(error, "cannot see which pods fail because of Windows; trying again");
        }
        did_fail &= result.is_err();
        let answer = result.unwrap_or_else(|error| match error {
            RequestError::Denied(message) => PodAnswer::Denied(message),
            error => PodAnswer::Failed(error.to_string()),
        });
        with_table(context, &known, |table, facts, now| table.answer(answer, facts, now));
    }
}

fn notify_pools(context: &Context) {
    if context.failing.table.lock().as_mut().is_some_and(FailingPods::take_changed) {
        context.changed.send_replace(());
    }
}

async fn list(context: &Context, known: &PoolsAndClasses, only_with_node: bool) -> Result<PodAnswer, RequestError> {
    let with_node = if only_with_node { ",spec.nodeName!=" } else { "" };
    let pending = ListParams::default().fields(&format!("status.phase=Pending{with_node}")).limit(PAGE);
    let pods: Api<v1::Pod> = Api::all(context.client.clone());
    let see = |pod: Pod| with_table(context, known, |table, facts, now| table.see(&pod, facts, now));
    pages::first(&pods, pending, see).await?;
    Ok(PodAnswer::Listed)
}

/// Reads a pod by a list, so that no further permission is needed.
async fn read(client: &Client, namespace: &str, name: &str) -> Result<PodAnswer, RequestError> {
    let pods: Api<v1::Pod> = Api::namespaced(client.clone(), namespace);
    let (named, mut found) = (ListParams::default().fields(&format!("metadata.name={name}")), None);
    pages::first(&pods, named, |pod: Pod| found = Some(Box::new(pod))).await?;
    Ok(PodAnswer::Read(found))
}

/// Shows the table each Event, and never ends.
async fn follow_events(context: &Arc<Context>) {
    let watches = REASONS.into_iter().zip(KINDS).map(|(reason, kind)| {
        let selected = warnings(reason);
        let events = context.failing.watch_health.watch(&context.client, Selection::Fields(&selected), kind);
        events.boxed()
    });
    let events = select_all(watches);
    events
        .for_each(async |event| {
            if let Ok(Event::InitApply(ListedEvent { event, .. }) | Event::Apply(ListedEvent { event, .. })) = event {
                let (nodes, now) = (context.nodes.lock(), now());
                if let Some(table) = &mut *context.failing.table.lock() {
                    table.observe(&event, &nodes, now);
                }
            }
        })
        .await;
}

/// Returns the present pools and classes.
pub(super) fn pools_and_classes(context: &Context) -> PoolsAndClasses {
    let (valid, invalid) = read_all(&context.pools.state());
    let entries = valid.into_iter().map(|pool| PoolEntry { pool, ready: true });
    let classes = context.classes.state();
    let of_pools = classes.iter().filter_map(|class| Some((class.name_any(), owner(class)?.to_owned())));
    PoolsAndClasses { policy: Policy::new(entries, invalid), classes: of_pools.collect() }
}

/// Shows the table a pod without a node that another listing found.
pub(super) fn see_unscheduled(context: &Context, known: &PoolsAndClasses, pod: &Pod) {
    with_table(context, known, |table, facts, _| table.see_unscheduled(pod, facts));
}

/// Ends that listing.
pub(super) fn saw_unscheduled(context: &Context, is_complete: bool) {
    if let Some(table) = &mut *context.failing.table.lock() {
        table.saw_unscheduled(is_complete, Instant::now());
    }
}

fn with_table(context: &Context, known: &PoolsAndClasses, work: impl FnOnce(&mut FailingPods, &ClusterFacts<'_>, Now)) {
    let nodes = context.nodes.lock();
    if let Some(table) = &mut *context.failing.table.lock() {
        let facts = ClusterFacts { nodes: &nodes, policy: &known.policy, classes: &known.classes };
        work(table, &facts, now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_watch_is_named_by_its_reason() {
        for (reason, kind) in REASONS.into_iter().zip(KINDS) {
            assert_eq!(kind, format!("Events ({reason})"));
        }
    }
}
