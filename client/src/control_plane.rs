//! Facts about the control plane that status reports: its version, and which of winpool's admission policies are
//! installed. They are read from time to time, because both change while the operator runs.

use std::{fmt::Display, time::Duration};

use futures::future::join_all;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use winpool_core::{
    plan::{Admission, AdmissionComponent, COMPONENTS, InstalledPolicy, reconcile::ControlPlaneInfo},
    windows::KubernetesVersion,
};

use crate::{
    causes::{failure, shortened},
    error::in_time,
};

/// The time limit for reading them: a pool does not wait longer.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct ControlPlane {
    client: Client,
}

impl ControlPlane {
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    /// Reads the facts. Keeps the `known` version if the API server does not report another one.
    pub async fn ask(&self, known: Option<KubernetesVersion>) -> ControlPlaneInfo {
        let answer = tokio::time::timeout(PATIENCE, self.ask_all(known)).await;
        answer.unwrap_or_else(|_| ControlPlaneInfo {
            kubernetes: known,
            admission: Admission::unknown(),
            ..ControlPlaneInfo::default()
        })
    }

    async fn ask_all(&self, known: Option<KubernetesVersion>) -> ControlPlaneInfo {
        let kubernetes = kubernetes_version(&self.client).await.or(known);
        let admission = self.admission(|component| component.is_supported(kubernetes)).await;
        ControlPlaneInfo { kubernetes, admission, ..ControlPlaneInfo::default() }
    }

    /// Reads these admission policies, and names those that cannot be read.
    async fn admission(&self, asks: impl Fn(&AdmissionComponent) -> bool) -> Admission {
        let mut admission = Admission::default();
        let asked = COMPONENTS.iter().filter(|component| asks(component));
        let answers = join_all(asked.map(async |component| (component, self.look_up(component).await))).await;
        for (component, answer) in answers {
            match answer {
                Ok(installed) => {
                    admission.installed.insert(component.name, installed);
                }
                // Only reported: nothing waits for it.
                Err(error) => {
                    tracing::debug!(component.policy, error = failure(&error), "admission policy cannot be read");
                    admission.unreadable.insert(component.name);
                }
            }
        }
        admission
    }

    /// Reads the policy of a component and its binding. A policy without a binding has no effect.
    async fn look_up(&self, component: &AdmissionComponent) -> kube::Result<Option<InstalledPolicy>> {
        let spec = async |kind: &str| {
            // Some of these kinds are newer than the oldest Kubernetes that is supported, so their types are not generated.
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
            let object = Api::<DynamicObject>::all_with(self.client.clone(), &kind).get_opt(component.policy).await?;
            Ok::<_, kube::Error>(object.map(|mut object| object.data["spec"].take()))
        };
        let Some(policy) = spec(component.kind()).await? else { return Ok(None) };
        let Some(binding) = spec(&format!("{}Binding", component.kind())).await? else { return Ok(None) };
        Ok(InstalledPolicy::read(component.policy, &policy, &binding))
    }
}

/// The version of the API server; `None` if it does not answer or its version cannot be read.
pub async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let answer = in_time(client.apiserver_version()).await;
    let unreadable =
        |error: &dyn Display| tracing::debug!(error = shortened(&error), "the version of Kubernetes cannot be read");
    let answer = answer.inspect_err(|error| unreadable(error)).ok()?;
    KubernetesVersion::parse(&answer.major, &answer.minor).inspect_err(|error| unreadable(error)).ok()
}
