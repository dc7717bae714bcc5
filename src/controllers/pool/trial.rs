//! The requests of a check of pods that are not scheduled, while a taint is on trial. No page is kept.

use k8s_openapi::api::core::{self, v1::Node};
use kube::{Api, ResourceExt, api::ListParams, core::PartialObjectMeta};
use winpool_client::{error::RequestError, pages, pods};
use winpool_core::{
    api::names,
    labels::Labels,
    plan::trial_check::{TrialCheck, TrialCheckResult},
    pod::{Pod, Workload},
};

use crate::controllers::Context;

/// The number of pods in one request. The API server has an index of the first page only.
const PAGE: u32 = 500;

/// Shows `check` the pods without a node, and everything else that it asks for.
///
/// # Errors
/// Fails if something cannot be listed.
pub(super) async fn check(context: &Context, mut check: TrialCheck) -> Result<TrialCheckResult, RequestError> {
    let client = &context.client;
    if check.lists_pods() {
        let api: Api<core::v1::Pod> = Api::all(client.clone());
        let unscheduled = ListParams::default().fields("spec.nodeName=").limit(PAGE);
        pages::each(&api, unscheduled, |pod: Pod| check.pod(&pod)).await?;
    }
    while let Some(name) = check.unknown_workload() {
        let api = pods::workloads(client, name.0, Some(&name.1));
        let named = ListParams::default().fields(&format!("metadata.name={}", name.2));
        let mut found = None;
        match pages::each(&api, named, |workload: Workload| found = Some(workload)).await {
            Ok(()) => check.workload(name, found),
            Err(RequestError::Denied(_)) => check.unreadable_workload(name),
            Err(error) => return Err(error),
        }
    }
    if check.needs_other_nodes() {
        let api: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        let others = ListParams::default().labels(&format!("{}!={}", names::OS, names::WINDOWS));
        let other = |node: PartialObjectMeta<Node>| {
            let (name, labels) = (node.name_any(), node.metadata.labels.into_iter().flatten());
            check.other_node(&name, &labels.collect::<Labels>());
        };
        pages::each(&api, others, other).await?;
        check.has_other_nodes();
    }
    Ok(check.finish())
}
