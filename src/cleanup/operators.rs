//! Operators that run beside `winpool-operator cleanup`, and what stops them.

use std::{fmt, time::Duration};

use k8s_openapi::{
    api::{apps::v1::Deployment, rbac::v1::ClusterRoleBinding},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;
use winpool_client::{
    error::{RequestError, in_time},
    pages,
};
use winpool_core::api::names;

use super::{cleaner::Leftover, list::list};

/// The time for which a running operator is paused. It suffices for the cleanup and for removing the operator.
pub(super) const SEIZED: Duration = Duration::from_mins(10);

/// The label of all objects of an installation, and the one of its pods.
const INSTALLED: &str = "app.kubernetes.io/name=winpool";
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "operator");

/// An operator that may restore what cleanup removed.
#[derive(Debug, Default)]
pub struct StillRuns {
    /// The objects that an operator restored.
    pub came_back: Vec<Leftover>,
    /// True if an operator held the Lease. It waits until the Lease expires.
    pub stands_by: bool,
    /// Commands that stop the Deployments of operators.
    pub commands: Vec<String>,
    /// The namespace of the Lease that was taken.
    pub namespace: String,
}

impl StillRuns {
    /// True if there is no sign of an operator.
    pub fn is_empty(&self) -> bool {
        self.came_back.is_empty() && !self.stands_by && self.commands.is_empty()
    }
}

impl fmt::Display for StillRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, namespace) = (names::LEASE, &self.namespace);
        if !self.came_back.is_empty() {
            writeln!(f, "a running operator restored what was removed:\n{}", list(&self.came_back))?;
            writeln!(
                f,
                "It does not wait for the Lease {lease} in namespace {namespace}: its Lease is in another namespace, or it \
                 runs with --leader-election=false."
            )?;
        } else if self.stands_by {
            let minutes = SEIZED.as_secs() / 60;
            writeln!(
                f,
                "everything is removed, but an operator is running: it is paused for {minutes} minutes and then restores \
                 everything."
            )?;
        } else {
            writeln!(
                f,
                "everything is removed, but an operator is installed, which restores everything when it runs."
            )?;
        }
        if self.commands.is_empty() {
            return write!(
                f,
                "Stop it, then run this again. No Deployment of it is found: it runs outside the cluster, or has other \
                 labels."
            );
        }
        write!(f, "Stop it, then run this again:")?;
        self.commands.iter().try_for_each(|command| write!(f, "\n  {command}"))
    }
}

/// Returns the commands that stop the Deployments of operators.
pub async fn commands_to_stop(client: &Client) -> Result<Vec<String>, RequestError> {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let mut commands = Vec::new();
    // The whole type would make the program 0.2 MB larger.
    let mut note = |deployment: DynamicObject| {
        if runs_an_operator(&deployment) {
            let ObjectMeta { namespace, name, .. } = deployment.metadata;
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            commands.push(format!("kubectl --namespace {namespace} scale deployment {name} --replicas=0"));
        }
    };
    pages::each(&deployments, ListParams::default().labels(INSTALLED), &mut note).await?;
    Ok(commands)
}

/// True if the Deployment has or will have pods. A Deployment that is being deleted creates no new pods.
fn runs_an_operator(deployment: &DynamicObject) -> bool {
    let DynamicObject { metadata, data, .. } = deployment;
    let labels = data.pointer("/spec/template/metadata/labels");
    labels.is_some_and(|labels| labels[COMPONENT.0] == COMPONENT.1)
        && data.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0)
        && metadata.deletion_timestamp.is_none()
}

/// The namespace of the account that this ClusterRoleBinding gives permissions to, if it is there and can be read.
pub async fn namespace_of(client: &Client, installation: &str) -> Option<String> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = in_time(bindings.get_opt(installation)).await.ok()??;
    binding.subjects.into_iter().flatten().find_map(|subject| subject.namespace)
}
