//! The version of the control plane. It changes while the operator runs.

use kube::Client;
use winpool_core::windows::KubernetesVersion;

use crate::{causes::shortened, error::in_time};

/// Returns the version of Kubernetes, if it can be read.
pub async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let answer = in_time(client.apiserver_version())
        .await
        .inspect_err(|error| tracing::debug!(error = shortened(error), "the version of Kubernetes cannot be read"));
    let answer = answer.ok()?;
    KubernetesVersion::parse(&answer.major, &answer.minor)
}
