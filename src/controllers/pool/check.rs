//! The listing for a workload check: templates first, pods last, page by page. No page is kept.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::core::{self, v1::Node};
use kube::{Api, Client, api::ListParams, core::PartialObjectMeta};
use parking_lot::Mutex;
use thiserror::Error;
use winpool_core::{
    api::names,
    plan::{CheckAnswer, PODS, WorkloadCheck},
    pod::{LISTED_KINDS, Pod, Workload, WorkloadKind},
};

use crate::api_server::{
    error::{RequestError, in_time},
    pages, pods,
};

/// A list that a check needs failed.
#[derive(Debug, Error)]
#[error("cannot list {what}: {source}")]
pub struct Error {
    what: &'static str,
    #[source]
    source: RequestError,
}

/// Lists all workloads and pods, and hands them to `check`.
///
/// # Errors
/// Fails if something cannot be listed, unless that is forbidden.
pub async fn everything(client: &Client, check: WorkloadCheck) -> Result<BTreeMap<String, CheckAnswer>, Error> {
    let shared = Mutex::new(check);
    let check = &shared;
    // Concurrently, because nodes wait for the check.
    let kinds = LISTED_KINDS.map(|(kind, _, plural)| async move {
        let api = pods::workloads(client, kind, None);
        let add = |workload: Workload| check.lock().workload(kind, &workload);
        let listed = pages::each_patiently(&api, pods::of_kind(kind), add).await;
        allowed(plural, listed, |words| check.lock().unlisted(plural, words))
    });
    try_join_all(kinds).await?;
    let mut check = shared.into_inner();
    let pods: Api<core::v1::Pod> = Api::all(client.clone());
    let listed = pages::each_patiently(&pods, pods::unfinished(), |pod: Pod| check.pod(&pod)).await;
    allowed(PODS, listed, |words| check.unlisted(PODS, words))?;
    let undecided: Vec<BTreeMap<String, String>> = check.undecided().cloned().collect();
    for selector in undecided {
        let on_another_system = selects_another_system(client, &selector).await;
        check.decide(&selector, on_another_system.map_err(|source| Error { what: "nodes", source })?);
    }
    Ok(check.finish())
}

/// Calls `forbidden` instead of failing if the list is not permitted.
fn allowed(what: &'static str, listed: Result<(), RequestError>, forbidden: impl FnOnce(String)) -> Result<(), Error> {
    match listed {
        Ok(()) => Ok(()),
        Err(RequestError::Denied(words)) => {
            forbidden(words);
            Ok(())
        }
        Err(source) => Err(Error { what, source }),
    }
}

async fn selects_another_system(client: &Client, selector: &BTreeMap<String, String>) -> Result<bool, RequestError> {
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = format!("{},{}!={}", pairs.join(","), names::OS, names::WINDOWS);
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let one = ListParams::default().labels(&labels).limit(1);
    Ok(!in_time(nodes.list_metadata(&one)).await?.items.is_empty())
}

/// Returns true if none of these workloads is a reason to hold a taint any more, as far as they can be read.
pub(super) async fn are_settled(
    client: &Client,
    check: &WorkloadCheck,
    workloads: &[(WorkloadKind, String, String)],
) -> bool {
    for (kind, namespace, name) in workloads {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let (api, mut is_settled) = (pods::workloads(client, *kind, Some(namespace)), true);
        let look = |workload: Workload| is_settled &= check.is_settled(*kind, &workload);
        if pages::each(&api, named, look).await.is_err() || !is_settled {
            return false;
        }
    }
    true
}
