//! The listing for a workload check: templates first, pods last, page by page. No page is kept.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::{self, v1::Node};
use kube::{Api, Client, api::ListParams, core::PartialObjectMeta};
use parking_lot::Mutex;
use winpool_answers::prediction::WorkloadCheck;
use winpool_client::{
    control_plane::ControlPlane,
    error::{RequestError, Unreadable, in_time},
    pages, pods,
};
use winpool_core::{
    api::names,
    labels::Labels,
    plan::{CheckAnswer, PODS},
    pod::{LISTED_KINDS, Pod, Workload, WorkloadKind},
};

/// Lists all workloads and pods, and hands them to `check`.
///
/// # Errors
/// Fails if something cannot be listed, unless that is forbidden.
pub async fn everything(
    client: &Client,
    control_plane: &ControlPlane,
    mut check: WorkloadCheck,
) -> Result<BTreeMap<String, CheckAnswer>, Unreadable> {
    let start = control_plane.at_start().await?;
    check.begin(start.0, start.1, start.2);
    let shared = Mutex::new(check);
    let check = &shared;
    // Concurrently, because nodes wait for the check.
    let kinds = LISTED_KINDS.map(|(kind, _, plural)| async move {
        let api = pods::workloads(client, kind, None);
        let add = |workload: Workload| check.lock().workload(kind, &workload);
        let listed = pages::each_patiently(&api, pods::of_kind(kind), add).await;
        allowed(plural, listed, |message| check.lock().unlisted(plural, message))
    });
    try_join_all(kinds).await?;
    let mut check = shared.into_inner();
    let pods: Api<core::v1::Pod> = Api::all(client.clone());
    let listed = pages::each_patiently(&pods, pods::unfinished(), |pod: Pod| check.pod(&pod)).await;
    allowed(PODS, listed, |message| check.unlisted(PODS, message))?;
    decide(client, &mut check).await.map_err(Unreadable::of("nodes"))?;
    Ok(check.finish())
}

/// The number of node selectors that are asked about one by one. A list of 5,000 nodes takes as long.
const ASKED: usize = 200;

/// Finds out which choices of nodes match a node of another system. Every user of a namespace can write many of them:
/// then these nodes are listed once, page by page. So they are for choices by affinity, which no list can select.
async fn decide(client: &Client, check: &mut WorkloadCheck) -> Result<(), RequestError> {
    let mut undecided = check.undecided();
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let others = format!("{}!={}", names::OS, names::WINDOWS);
    if undecided.len() <= ASKED && undecided.iter().all(|choice| choice.terms.is_empty()) {
        for choice in undecided {
            let pairs: Vec<String> = choice.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let one = ListParams::default().labels(&format!("{},{others}", pairs.join(","))).limit(1);
            let found = in_time(nodes.list_metadata(&one)).await?;
            check.decide(&choice, !found.items.is_empty());
        }
        return Ok(());
    }
    let found = |node: PartialObjectMeta<Node>| {
        let name = node.metadata.name.unwrap_or_default();
        let labels: Labels = node.metadata.labels.into_iter().flatten().collect();
        for choice in undecided.extract_if(.., |choice| choice.matches(&labels, &name)) {
            check.decide(&choice, true);
        }
    };
    pages::each_patiently(&nodes, ListParams::default().labels(&others), found).await?;
    for choice in undecided {
        check.decide(&choice, false);
    }
    Ok(())
}

/// Calls `forbidden` instead of failing if the list is not permitted.
fn allowed(
    what: &'static str,
    listed: Result<(), RequestError>,
    forbidden: impl FnOnce(String),
) -> Result<(), Unreadable> {
    match listed {
        Ok(()) => Ok(()),
        Err(RequestError::Denied(message)) => {
            forbidden(message);
            Ok(())
        }
        Err(error) => Err(Unreadable::of(what)(error)),
    }
}

/// True if none of these workloads is a reason to hold a taint any more, as far as they can be read.
pub(super) async fn are_settled(
    client: &Client,
    check: &WorkloadCheck,
    workloads: &[(WorkloadKind, String, String)],
) -> bool {
    for (kind, namespace, name) in workloads {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let (api, mut is_settled) = (pods::workloads(client, *kind, Some(namespace)), true);
        let judge = |workload: Workload| is_settled &= check.is_settled(*kind, &workload);
        if pages::each(&api, named, judge).await.is_err() || !is_settled {
            return false;
        }
    }
    true
}
