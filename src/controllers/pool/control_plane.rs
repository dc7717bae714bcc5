//! Facts about the control plane that status reports: its version, and which of winpool's admission policies are
//! installed. They are read from time to time, because both change while the operator runs.

use std::{fmt::Display, time::Duration};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use winpool_core::{
    plan::{Admission, Autoscalers, COMPONENTS, Component, reconcile::ControlPlaneInfo, texts_of},
    windows::KubernetesVersion,
};

use crate::{
    api_server::{autoscalers, error::in_time},
    telemetry::{failure, words},
};

/// The time limit for reading them: a pool does not wait longer.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct ControlPlane {
    client: Client,
    mutating: Api<DynamicObject>,
    validating: Api<ValidatingAdmissionPolicy>,
    karpenter: bool,
}

impl ControlPlane {
    /// `karpenter` says if Karpenter's objects are read too.
    pub fn new(client: &Client, karpenter: bool) -> Self {
        // This kind is newer than the oldest Kubernetes that is supported, so its type is not generated.
        let mutating = ApiResource {
            group: "admissionregistration.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            kind: "MutatingAdmissionPolicy".to_owned(),
            plural: "mutatingadmissionpolicies".to_owned(),
        };
        Self {
            client: client.clone(),
            mutating: Api::all_with(client.clone(), &mutating),
            validating: Api::all(client.clone()),
            karpenter,
        }
    }

    /// Reads the facts. Keeps the `known` version if the API server does not report another one.
    pub(crate) async fn ask(&self, known: Option<KubernetesVersion>) -> ControlPlaneInfo {
        let unknown = ControlPlaneInfo { kubernetes: known, ..ControlPlaneInfo::default() };
        tokio::time::timeout(PATIENCE, self.ask_all(known)).await.unwrap_or(unknown)
    }

    async fn ask_all(&self, known: Option<KubernetesVersion>) -> ControlPlaneInfo {
        let kubernetes = kubernetes_version(&self.client).await.or(known);
        let mut admission = Admission::default();
        for component in COMPONENTS.iter().filter(|component| component.is_supported(kubernetes)) {
            match self.look_up(component, &mut admission).await {
                Ok(there) => {
                    admission.installed.insert(component.name, there);
                }
                // Only reported: nothing waits for it.
                Err(error) => {
                    tracing::debug!(component.policy, error = failure(&error), "admission policy cannot be read");
                }
            }
        }
        let autoscalers = if self.karpenter { self.autoscalers().await } else { Autoscalers::default() };
        ControlPlaneInfo { kubernetes, admission, autoscalers }
    }

    async fn autoscalers(&self) -> Autoscalers {
        let read = autoscalers::read(&self.client).await;
        read.inspect_err(|error| tracing::debug!(error = words(error), "Karpenter cannot be read")).unwrap_or_default()
    }

    async fn look_up(&self, component: &Component, admission: &mut Admission) -> kube::Result<bool> {
        if component.mutating {
            return Ok(self.mutating.get_metadata_opt(component.policy).await?.is_some());
        }
        let Some(policy) = self.validating.get_opt(component.policy).await? else { return Ok(false) };
        let variables = policy.spec.and_then(|spec| spec.variables).unwrap_or_default();
        // Only `guard` has these variables.
        if let Some(keys) = variables.iter().find(|variable| variable.name == "taintKeys") {
            admission.taint_keys = texts_of(&keys.expression);
        }
        Ok(true)
    }
}

/// The version of the API server; `None` if it does not answer or its version cannot be read.
pub(crate) async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let answer = in_time(client.apiserver_version()).await;
    let unreadable =
        |error: &dyn Display| tracing::debug!(error = words(&error), "the version of Kubernetes cannot be read");
    let answer = answer.inspect_err(|error| unreadable(error)).ok()?;
    KubernetesVersion::parse(&answer.major, &answer.minor).inspect_err(|error| unreadable(error)).ok()
}
