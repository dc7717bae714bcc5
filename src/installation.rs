//! What winpool was installed as, and how it notices that it is being removed.
//!
//! The manifests put the finalizer `winpool.dev/cleanup` on the operator's own account and rights. Deleting them then
//! waits for the operator, which still has these rights and takes its marks off the cluster first.

use std::time::Duration;

use futures::{StreamExt, future, pin_mut};
use k8s_openapi::{
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher::watch_object},
};
use tokio_util::sync::CancellationToken;
use winpool_core::{api::names, plan::Extent};

use crate::{
    apply::{Applier, WriteError, in_time},
    cleanup::{Cleaner, Leftover, Unreadable},
    telemetry::{failure, words},
};

/// How long a process that was told to end looks whether winpool is being removed.
const LAST_LOOK: Duration = Duration::from_secs(3);
/// How long one that does not lead lets the leader finish its requests and clean up.
const AFTER_THE_LEADER: Duration = Duration::from_secs(5);
/// How often an object may change between reading and writing.
const ATTEMPTS: usize = 4;
/// How long the operator cleans up: its pod has a minute to end.
const BUDGET: Duration = Duration::from_secs(45);

/// The objects that winpool was installed as: ClusterRoleBinding, ClusterRole, and in a namespace RoleBinding, Role and
/// ServiceAccount, all of one name.
pub struct Installation {
    client: Client,
    name: String,
    namespace: String,
}

/// An object of the installation that is being deleted and waits for winpool.
pub struct Held {
    kind: String,
    name: String,
    api: Api<DynamicObject>,
    metadata: ObjectMeta,
    is_vital: bool,
}

impl Held {
    /// Kind and name.
    #[must_use]
    pub fn object(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

impl Installation {
    /// What the manifests call it.
    pub const DEFAULT_NAME: &str = "winpool";

    /// The one of this name, whose pods run in `namespace`.
    #[must_use]
    pub fn new(client: Client, name: &str, namespace: &str) -> Self {
        Self { client, name: name.to_owned(), namespace: namespace.to_owned() }
    }

    /// Tells whether the operator has to clean up before it ends: comes back when the installation is being deleted,
    /// and when `stop` is cancelled.
    pub async fn is_removed(&self, stop: &CancellationToken) -> bool {
        tokio::select! {
            () = self.removal() => return true,
            () = stop.cancelled() => {}
        }
        // A pod may be told to end before the watch says why.
        self.is_held().await
    }

    async fn is_held(&self) -> bool {
        match tokio::time::timeout(LAST_LOOK, self.bindings().get_metadata_opt(&self.name)).await {
            Ok(Ok(binding)) => binding.is_some_and(|binding| waits(&binding.metadata)),
            Ok(Err(error)) => {
                tracing::debug!(error = failure(&error), "cannot tell whether winpool is being removed");
                false
            }
            Err(_) => false,
        }
    }

    fn bindings(&self) -> Api<PartialObjectMeta<ClusterRoleBinding>> {
        Api::all(self.client.clone())
    }

    async fn removal(&self) {
        let mut said = false;
        let removed = watch_object(self.bindings(), &self.name).default_backoff().filter_map(|seen| {
            future::ready(match seen {
                Ok(binding) => binding.filter(|binding| waits(&binding.metadata)),
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::debug!(error = failure(&error), "cannot watch whether winpool is being removed");
                    }
                    None
                }
            })
        });
        pin_mut!(removed);
        if removed.next().await.is_none() {
            future::pending::<()>().await;
        }
    }

    /// Those of its objects that are being deleted and wait for winpool.
    ///
    /// # Errors
    /// When one cannot be read.
    pub async fn held(&self) -> Result<Vec<Held>, WriteError> {
        let resources = [
            (ApiResource::erase::<RoleBinding>(&()), false),
            (ApiResource::erase::<Role>(&()), false),
            (ApiResource::erase::<ServiceAccount>(&()), true),
            (ApiResource::erase::<ClusterRole>(&()), true),
            (ApiResource::erase::<ClusterRoleBinding>(&()), true),
        ];
        let reading: Vec<_> = resources.map(|(resource, is_vital)| self.read_held(resource, is_vital)).into();
        Ok(future::try_join_all(reading).await?.into_iter().flatten().collect())
    }

    async fn read_held(&self, resource: ApiResource, is_vital: bool) -> Result<Option<Held>, WriteError> {
        let api: Api<DynamicObject> = if resource.kind.starts_with("Cluster") {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        };
        let found = in_time(api.get_metadata_opt(&self.name)).await?;
        Ok(found.filter(|found| waits(&found.metadata)).map(|found| Held {
            kind: resource.kind.clone(),
            name: self.name.clone(),
            api,
            metadata: found.metadata,
            is_vital,
        }))
    }

    /// Lets these objects go. With the first of the vital ones go the rights to write the others, so these go at once.
    pub async fn let_go(&self, held: &[Held], applier: &Applier) -> Vec<Leftover> {
        let (vital, others): (Vec<&Held>, Vec<&Held>) = held.iter().partition(|held| held.is_vital);
        let others: Vec<_> = others.into_iter().map(|held| let_go(held, applier)).collect();
        let mut left = future::join_all(others).await;
        // Opens a connection for each, so that they arrive together.
        let reads: Vec<_> = vital.iter().map(|held| in_time(held.api.get_metadata_opt(&held.name))).collect();
        future::join_all(reads).await;
        let vital: Vec<_> = vital.into_iter().map(|held| let_go(held, applier)).collect();
        left.extend(future::join_all(vital).await);
        left.into_iter().flatten().collect()
    }

    /// Cleans up and lets the installation go: the end of the operator when winpool is being removed. One that does not
    /// lead first lets the leader do it.
    pub async fn remove(&self, applier: Applier, leads: bool) {
        tracing::info!(installation = self.name, leads, "winpool is being removed: taking its marks off the cluster");
        if !leads {
            tokio::time::sleep(AFTER_THE_LEADER).await;
            if !self.is_held().await {
                tracing::info!("the leader has cleaned up");
                return;
            }
        }
        match tokio::time::timeout(BUDGET, self.clean_up(applier)).await {
            Ok(Ok(left)) if left.is_empty() => tracing::info!("nothing of winpool's is left"),
            Ok(Ok(left)) => left.iter().for_each(|left| tracing::warn!(detail = words(left), "left as it is")),
            // Another replica may have ended it, and taken the rights of this one with it.
            Ok(Err(error)) => {
                tracing::warn!(error = words(&error), "not cleaned up here; if nobody else did: winpool cleanup");
            }
            Err(_) => tracing::error!("not cleaned up in time; end it with: winpool cleanup"),
        }
    }

    async fn clean_up(&self, applier: Applier) -> Result<Vec<Leftover>, Unreadable> {
        let cleaner = Cleaner::new(self.client.clone(), applier.clone(), Extent::AsPoolsSay);
        let findings = cleaner.look().await?;
        for node in &findings.ignored {
            tracing::warn!(node, "ignored by its annotation: keeps its marks");
        }
        let mut left = cleaner.run(findings, &|line| tracing::info!(detail = words(&line), "cleanup")).await?;
        if left.iter().all(|left| matches!(left.why, Some(WriteError::Denied(_)))) {
            let held = self.held().await.map_err(Unreadable::installation)?;
            left.extend(self.let_go(&held, &applier).await);
        }
        Ok(left)
    }
}

async fn let_go(held: &Held, applier: &Applier) -> Option<Leftover> {
    let mut metadata = held.metadata.clone();
    for _ in 0..ATTEMPTS {
        let error = match applier.let_go(&held.api, &metadata).await {
            Ok(()) | Err(WriteError::Gone) => return None,
            Err(error) => error,
        };
        let fresh = match error {
            WriteError::Stale | WriteError::Conflict => in_time(held.api.get_metadata_opt(&held.name)).await,
            error => Err(error),
        };
        match fresh {
            Ok(Some(fresh)) if waits(&fresh.metadata) => metadata = fresh.metadata,
            Ok(_) => return None,
            Err(error) => return Some(Leftover { object: held.object(), why: Some(error) }),
        }
    }
    Some(Leftover { object: held.object(), why: Some(WriteError::Conflict) })
}

/// Whether the object is being deleted and waits for winpool.
fn waits(object: &ObjectMeta) -> bool {
    let finalizers = object.finalizers.iter().flatten();
    object.deletion_timestamp.is_some() && finalizers.into_iter().any(|finalizer| finalizer == names::CLEANUP)
}
