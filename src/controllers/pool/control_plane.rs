//! Which of winpool's admission policies are installed, looked up now and then.

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use tokio::sync::Mutex;
use winpool_core::{
    plan::{Admission, COMPONENTS, Component, texts_of},
    windows::KubernetesVersion,
};

/// How long an answer is good for.
pub(super) const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// How long it may take to find out: a pool does not wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks policies up by their names: winpool may read no others.
pub struct AdmissionPolicies {
    mutating: Api<DynamicObject>,
    validating: Api<ValidatingAdmissionPolicy>,
    kubernetes: Option<KubernetesVersion>,
    found: Mutex<Option<(Instant, Admission)>>,
}

impl AdmissionPolicies {
    /// In the cluster of `client`.
    #[must_use]
    pub fn new(client: &Client, kubernetes: Option<KubernetesVersion>) -> Self {
        // Newer than the oldest Kubernetes that is supported, so its type is not known here.
        let mutating = ApiResource {
            group: "admissionregistration.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            kind: "MutatingAdmissionPolicy".to_owned(),
            plural: "mutatingadmissionpolicies".to_owned(),
        };
        Self {
            mutating: Api::all_with(client.clone(), &mutating),
            validating: Api::all(client.clone()),
            kubernetes,
            found: Mutex::new(None),
        }
    }

    /// What is installed, as it was at most [`LOOK_AGAIN`] ago.
    pub(super) async fn found(&self) -> Admission {
        let mut found = self.found.lock().await;
        if let Some((_, admission)) = found.as_ref().filter(|(at, _)| at.elapsed() < LOOK_AGAIN) {
            return admission.clone();
        }
        let admission = tokio::time::timeout(PATIENCE, self.look()).await.unwrap_or_default();
        *found = Some((Instant::now(), admission.clone()));
        admission
    }

    async fn look(&self) -> Admission {
        let mut admission = Admission::default();
        for component in COMPONENTS.iter().filter(|component| component.is_supported(self.kubernetes)) {
            match self.look_up(component, &mut admission).await {
                Ok(there) => {
                    admission.installed.insert(component.name, there);
                }
                // It is only reported: nothing waits for it.
                Err(error) => tracing::debug!(component.policy, %error, "admission policy cannot be read"),
            }
        }
        admission
    }

    async fn look_up(&self, component: &Component, admission: &mut Admission) -> kube::Result<bool> {
        if component.mutating {
            return Ok(self.mutating.get_metadata_opt(component.policy).await?.is_some());
        }
        let Some(policy) = self.validating.get_opt(component.policy).await? else { return Ok(false) };
        let variables = policy.spec.and_then(|spec| spec.variables).unwrap_or_default();
        let keys = variables.iter().find(|variable| variable.name == "taintKeys");
        admission.taint_keys = keys.and_then(|keys| texts_of(&keys.expression));
        Ok(true)
    }
}
