//! Reads winpool's own installation.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use winpool_analysis::explain::installation::{self, Installation, Parts, SELECTOR};
use winpool_analysis::view::Known;
use winpool_core::api::{WindowsPool, names};

use crate::read::gaps::Lacks;
use crate::read::live::{self, ReadError};

/// Reads and judges the installation. Returns `None`, with a note, if Deployments cannot be listed.
pub async fn read(client: &Client, lacks: &mut Lacks) -> Result<Option<Installation>, ReadError> {
    let labelled = || ListParams::default().labels(SELECTOR);
    let mut deployments = Vec::new();
    let api = Api::<Deployment>::all(client.clone());
    let listed = live::list("deployments", &api, labelled(), |deployment| deployments.push(deployment)).await;
    if lacks.known(listed, "the installation of winpool is not shown")?.is_forbidden() {
        return Ok(None);
    }
    let mut pods = Known::NotRead;
    let is_waiting = |operator: &&Deployment| {
        operator.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default() == 0
    };
    if deployments
        .iter()
        .filter(|deployment| installation::is_operator(deployment))
        .any(|operator| is_waiting(&operator))
    {
        let listed = live::collect("pods", &Api::<Pod>::all(client.clone()), labelled(), |pod: Pod| pod).await;
        pods = lacks.known(listed, "the reason why the operator is not ready is not shown")?;
    }
    let named = ListParams::default().fields(&format!("metadata.name={}", names::LEASE));
    let leases = live::collect("leases", &Api::<Lease>::all(client.clone()), named, |lease: Lease| lease).await;
    let leases = lacks.known(leases, "it is not known if a replica leads")?;
    let parts = Parts { has_crd: has_crd(client).await?, deployments, pods, leases };
    Ok(Some(installation::judge(&parts, Timestamp::now())))
}

async fn has_crd(client: &Client) -> Result<bool, ReadError> {
    let api = Api::<WindowsPool>::all(client.clone());
    let listed = live::list("windowspools", &api, ListParams::default(), |_: serde_json::Value| {}).await;
    match listed {
        Ok(()) | Err(ReadError::Forbidden { .. }) => Ok(true),
        Err(ReadError::NoDefinition) => Ok(false),
        Err(error) => Err(error),
    }
}
