//! Facts about the control plane: its version, which of winpool's admission policies are installed, and if it confines
//! winpool's permission to patch pods. They are read from time to time, because both change while the operator runs.

use std::{fmt::Display, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;
use winpool_core::{
    plan::{Admission, AdmissionComponent, COMPONENTS, InstalledPolicy, reconcile::ControlPlaneInfo},
    windows::KubernetesVersion,
};

use crate::{
    causes::{failure, shortened},
    error::{RequestError, in_time},
};

/// The end of the name of the policy that confines `patch` on pods, as the API server quotes it.
const CONFINING_POLICY: &str = "confine-pods'";
/// The time limit for reading them: a pool does not wait longer.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct ControlPlane {
    client: Client,
    own_pod: Option<String>,
}

impl ControlPlane {
    /// `own_pod` is the name of the pod of this process, in the client's namespace, if it runs in a cluster.
    pub fn new(client: &Client, own_pod: Option<String>) -> Self {
        Self { client: client.clone(), own_pod }
    }

    /// Reads the facts. What the API server does not answer stays as it is `known`.
    pub async fn ask(&self, known: Option<ControlPlaneInfo>) -> ControlPlaneInfo {
        let answer = tokio::time::timeout(PATIENCE, self.ask_all(known.as_ref())).await;
        answer.unwrap_or_else(|_| {
            let untested = self.own_pod.is_some().then(|| "the API server did not answer a test".to_owned());
            let first = ControlPlaneInfo { unconfined: untested, ..ControlPlaneInfo::default() };
            ControlPlaneInfo { admission: Admission::unknown(), ..known.unwrap_or(first) }
        })
    }

    async fn ask_all(&self, known: Option<&ControlPlaneInfo>) -> ControlPlaneInfo {
        let kubernetes = kubernetes_version(&self.client).await.or(known.and_then(|known| known.kubernetes));
        let admission = self.admission(|component| component.is_supported(kubernetes)).await;
        ControlPlaneInfo { kubernetes, admission, unconfined: self.test_confinement(known).await }
    }

    /// Tries a change of a pod that winpool never makes, as a dry run. Returns the reason why it is not known that the policy
    /// refuses it. To look for the policy would prove nothing: one that names another account has no effect.
    async fn test_confinement(&self, known: Option<&ControlPlaneInfo>) -> Option<String> {
        let pod = self.own_pod.as_deref()?;
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let label = json!({"metadata": {"labels": {"winpool.dev/confinement": "test"}}});
        match in_time(pods.patch(pod, &dry_run, &Patch::Merge(label))).await {
            Err(RequestError::Denied(message)) if message.contains(CONFINING_POLICY) => None,
            Ok(_) => Some("winpool could change the labels of a pod".to_owned()),
            Err(RequestError::Failed(_) | RequestError::TimedOut(_)) if let Some(known) = known => {
                known.unconfined.clone()
            }
            Err(error) => Some(shortened(&error)),
        }
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
