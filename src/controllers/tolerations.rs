//! Adds tolerations to pods for Windows: the operator as an interpreter of the queue in
//! [`winpool_core::plan::pods::PodTable`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use winpool_client::causes::shortened;
use winpool_client::error::RequestError;
use winpool_core::budget::{LogLines, PATCHES};
use winpool_core::plan::pods::{ClusterFacts, TolerationAnswer, TolerationRequest, WindowsNodes};
use winpool_core::plan::pools::pool::policy_of;

use crate::telemetry::list;

use super::{Context, now};

/// The least time between two looks at all pods because nodes, pools or RuntimeClasses have changed.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Runs until `stop` is cancelled and the requests in flight have ended.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let (mut candidates, mut changed) = (context.pods.candidates.subscribe(), context.changed.subscribe());
    let mut under_way: FuturesUnordered<BoxFuture<'_, (TolerationAnswer, TolerationRequest)>> = FuturesUnordered::new();
    let (mut next_look, mut is_changed, mut last_awaited) = (Instant::now(), true, BTreeSet::new());
    let (mut lines, mut unlisted) = (LogLines::default(), context.unlisted.subscribe());
    tokio::select! {
        () = stop.cancelled() => return,
        _ = unlisted.wait_for(Vec::is_empty) => {}
    }
    loop {
        candidates.mark_unchanged();
        let now_is = Instant::now();
        let looks_at_all = is_changed && (now_is >= next_look || has_new_pool(&context));
        let nodes = looks_at_all.then(|| windows_nodes(&context));
        if looks_at_all {
            (is_changed, next_look) = (false, now_is + BETWEEN_LOOKS);
        }
        context.pods.lock().look(nodes, now_is);
        let (awaited, awaited_until) = context.pods.lock().help.awaited(now_is);
        if last_awaited != awaited {
            last_awaited.clone_from(&awaited);
            context.nodes.await_pods(awaited);
        }
        if context.pods.lock().take_changed() {
            context.changed.send_replace(());
        }
        let leads = context.term().is_some();
        while leads
            && under_way.len() < PATCHES
            && let Some(request) = context.pods.lock().next_help(Instant::now())
        {
            let applier = &context.applier;
            under_way.push(async move { (applier.add_tolerations(&request).await, request) }.boxed());
        }
        let due = context.pods.lock().help.due().filter(|_| leads && under_way.len() < PATCHES);
        let look = is_changed.then_some(next_look).into_iter().chain(context.pods.lock().look_due());
        let wake =
            due.into_iter().chain(look).chain(awaited_until).fold(now_is + Duration::from_hours(1), Instant::min);
        tokio::select! {
            () = stop.cancelled() => break,
            Some((answer, request)) = under_way.next() => {
                let pod = format!("{}/{}", request.namespace, request.pod);
                log(&pod, &request, &answer, &mut lines);
                context.pods.lock().helped(&pod, answer, now());
            }
            _ = candidates.changed() => {}
            _ = changed.changed() => is_changed = true,
            () = sleep_until(wake.into()) => {}
        }
    }
    while under_way.next().await.is_some() {}
}

/// True if a pool waits for a look: its nodes get no taint before.
fn has_new_pool(context: &Context) -> bool {
    let policy = policy_of(&context.pools());
    let table = context.pods.lock();
    policy.pools().any(|pool| pool.spec.adds_tolerations() && !table.windows.has_pool(&pool.spec))
}

fn windows_nodes(context: &Context) -> WindowsNodes {
    let (pools, classes) = (context.pools(), context.classes.state());
    let others = context.others.lock().clone();
    let (nodes, reimaged) = (context.nodes.lock(), context.reimaged.lock());
    let facts = ClusterFacts { nodes: &nodes, policy: &policy_of(&pools), classes: &classes };
    WindowsNodes::of(&facts, others, &reimaged)
}

fn log(pod: &str, request: &TolerationRequest, answer: &TolerationAnswer, lines: &mut LogLines) {
    if matches!(answer, Err(RequestError::Stale | RequestError::Conflict | RequestError::Gone)) {
        return;
    }
    let Some(left) = lines.left_after(&request.namespace, Instant::now()) else { return };
    let further_lines = (left == 0).then_some("left out for up to a minute");
    let taints = list(request.taints.iter().map(ToString::to_string));
    match answer.as_ref().map_err(shortened) {
        Ok(()) => tracing::info!(pod, taints, further_lines, "tolerations added"),
        Err(error) => tracing::warn!(pod, taints, error, further_lines, "tolerations not added"),
    }
}
