//! Facts about the control plane that status reports: its version, and which of winpool's admission policies are
//! installed. They are read from time to time, because both change while the operator runs.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use winpool_core::{
    api::names::RUNTIME_CLASS,
    plan::{Admission, Autoscalers, COMPONENTS, Component, InstalledPolicy, reconcile::ControlPlaneInfo},
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
    karpenter: bool,
}

impl ControlPlane {
    /// `karpenter` says if Karpenter's objects are read too.
    pub fn new(client: &Client, karpenter: bool) -> Self {
        Self { client: client.clone(), karpenter }
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
            match self.look_up(component).await {
                Ok(installed) => {
                    admission.installed.insert(component.name, installed);
                }
                // Only reported: nothing waits for it.
                Err(error) => {
                    tracing::debug!(component.policy, error = failure(&error), "admission policy cannot be read");
                }
            }
        }
        if admission.policy("assign-class").is_some() {
            let classes = self.namespace_classes().await;
            let unreadable = |error: &kube::Error| {
                tracing::debug!(error = failure(error), "labels of namespaces cannot be read");
            };
            admission.namespace_classes = classes.inspect_err(unreadable).ok();
        }
        let autoscalers = if self.karpenter { self.autoscalers().await } else { Autoscalers::default() };
        ControlPlaneInfo { kubernetes, admission, autoscalers }
    }

    async fn autoscalers(&self) -> Autoscalers {
        let read = autoscalers::read(&self.client).await;
        read.inspect_err(|error| tracing::debug!(error = words(error), "Karpenter cannot be read")).unwrap_or_default()
    }

    /// Reads the policy of a component and its binding. A policy without a binding has no effect.
    async fn look_up(&self, component: &Component) -> kube::Result<Option<InstalledPolicy>> {
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

    /// The class in the label `winpool.dev/runtime-class` of each namespace that has it.
    async fn namespace_classes(&self) -> kube::Result<BTreeMap<String, String>> {
        let labelled = ListParams::default().labels(RUNTIME_CLASS);
        let namespaces = Api::<Namespace>::all(self.client.clone()).list_metadata(&labelled).await?;
        let class = |metadata: kube::core::ObjectMeta| Some((metadata.name?, metadata.labels?.remove(RUNTIME_CLASS)?));
        let classes = namespaces.items.into_iter().filter_map(|namespace| class(namespace.metadata));
        // The policy reads an empty label as none.
        Ok(classes.filter(|(_, class)| !class.is_empty()).collect())
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
