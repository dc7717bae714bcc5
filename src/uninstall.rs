//! The end of winpool: the objects of its installation, whose deletion shows the operator that it is being removed.
//!
//! The manifests put the finalizer `winpool.dev/cleanup` on the operator's own account and permissions. Their deletion
//! then waits for the operator, which still has the permissions and cleans up the cluster first.

use std::time::Duration;

use futures::stream::{FuturesUnordered, select_all};
use futures::{FutureExt, StreamExt, future, pin_mut};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use winpool_client::causes::shortened;
use winpool_client::error::{Failure, RequestError, Unreadable, in_time};
use winpool_client::watches;
use winpool_core::plan::pools::pool::has_finalizer;

use crate::controllers::Context;
use crate::leadership::CLEANUP_BUDGET;
use crate::write::Applier;

/// The time limit for finding out, on termination, if winpool is being removed.
const FINAL_READ_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of attempts while others change the objects, or refuse some of them.
const ATTEMPTS: usize = 10;
/// The pause after a failure, and between two questions of a standby if the leader has cleaned up.
const PAUSE: Duration = Duration::from_secs(2);

/// The objects of the installation: ClusterRoleBinding and ClusterRole, and RoleBinding, Role and ServiceAccount in a
/// namespace, all with the same name.
pub struct InstallationObjects {
    client: Client,
    name: String,
    namespace: String,
    /// Their kinds. The object may not exist.
    parts: [(String, Api<DynamicObject>); 5],
}

/// An object of the installation that has winpool's finalizer.
pub struct InstalledObject {
    kind: String,
    api: Api<DynamicObject>,
    metadata: ObjectMeta,
}

/// An object that the API server refuses to release.
#[derive(Debug, Error)]
#[error("{object}: {error}")]
pub struct Leftover {
    object: String,
    error: RequestError,
}

impl InstalledObject {
    /// Kind and name.
    pub fn full_name(&self) -> String {
        format!("{} {}", self.kind, self.metadata.name.as_deref().unwrap_or_default())
    }

    pub fn is_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl InstallationObjects {
    /// The name in the manifests.
    pub const DEFAULT_NAME: &str = "winpool";

    /// The installation with this name, whose pods run in `namespace`.
    pub fn new(client: Client, name: &str, namespace: &str) -> Self {
        let part = |resource: ApiResource| {
            let api = if resource.kind.starts_with("Cluster") {
                Api::all_with(client.clone(), &resource)
            } else {
                Api::namespaced_with(client.clone(), namespace, &resource)
            };
            (resource.kind, api)
        };
        let parts = [
            part(ApiResource::erase::<ClusterRoleBinding>(&())),
            part(ApiResource::erase::<ClusterRole>(&())),
            part(ApiResource::erase::<ServiceAccount>(&())),
            part(ApiResource::erase::<RoleBinding>(&())),
            part(ApiResource::erase::<Role>(&())),
        ];
        Self { client, name: name.to_owned(), namespace: namespace.to_owned(), parts }
    }

    /// True if the installation is being deleted, and then the operator has to clean up; returns false once
    /// `stop` is cancelled and it is not.
    pub async fn is_removed(&self, stop: &CancellationToken) -> bool {
        tokio::select! {
            () = self.removal() => return true,
            () = stop.cancelled() => {}
        }
        // A pod may be terminated before the watch reports the reason.
        tokio::time::timeout(FINAL_READ_TIMEOUT, self.is_being_deleted()).await.unwrap_or(false)
    }

    /// True if any of the objects that can be read, or their namespace, is being deleted. Namespaces are not watched: the
    /// pods of a deleted namespace go first.
    async fn is_being_deleted(&self) -> bool {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = async {
            let found = in_time(namespaces.get_metadata_opt(&self.namespace)).await;
            found.ok().flatten().is_some_and(|found| found.metadata.deletion_timestamp.is_some())
        };
        let parts = self.parts.iter().map(async |part| {
            let object = self.read(part).await;
            object.ok().flatten().is_some_and(|object| object.is_deleted())
        });
        let reads: FuturesUnordered<_> = parts.map(FutureExt::boxed).chain([namespace.boxed()]).collect();
        reads.any(future::ready).await
    }

    async fn removal(&self) {
        let watches = self.parts.iter().map(|(_, api)| watches::object(api.clone(), &self.name).boxed());
        let removed = select_all(watches).filter(|seen| {
            let metadata = seen.as_ref().ok().and_then(Option::as_ref).map(|object| &object.metadata);
            future::ready(metadata.is_some_and(|seen| seen.deletion_timestamp.is_some() && has_finalizer(seen)))
        });
        pin_mut!(removed);
        if removed.next().await.is_none() {
            future::pending::<()>().await;
        }
    }

    /// The objects with winpool's finalizer.
    pub async fn unreleased(&self) -> Result<Vec<InstalledObject>, RequestError> {
        let reads = future::try_join_all(self.parts.iter().map(|part| self.read(part)));
        Ok(reads.await?.into_iter().flatten().collect())
    }

    async fn read(&self, (kind, api): &(String, Api<DynamicObject>)) -> Result<Option<InstalledObject>, RequestError> {
        let found = in_time(api.get_metadata_opt(&self.name)).await?;
        let found = found.map(|found| found.metadata).filter(has_finalizer);
        Ok(found.map(|metadata| InstalledObject { kind: kind.clone(), api: api.clone(), metadata }))
    }

    /// Removes the finalizer from the objects for which `goes` is true, all at the same moment. Returns those that
    /// keep it.
    pub async fn release(
        &self,
        applier: &Applier,
        goes: impl Fn(&InstalledObject) -> bool + Sync,
    ) -> Result<Vec<Leftover>, Unreadable> {
        let mut left: Vec<Leftover> = Vec::new();
        for attempt in 1..=ATTEMPTS {
            let mut objects = self.unreleased().await.map_err(Unreadable::of("the objects of the installation"))?;
            objects.retain(|object| goes(object) && left.iter().all(|left| left.object != object.full_name()));
            let patched: Vec<_> = objects.iter().map(|object| (&object.api, &object.metadata)).collect();
            match applier.release(&patched).await {
                Ok(()) => break,
                Err((_, RequestError::Gone | RequestError::Stale | RequestError::Conflict)) => {}
                // Nobody else removes the finalizers, so a slow API server is asked again.
                Err((_, RequestError::Failed { .. })) if attempt < ATTEMPTS => tokio::time::sleep(PAUSE).await,
                Err((number, error)) => {
                    let goes_on = matches!(error, RequestError::Denied(_));
                    left.push(Leftover { object: objects[number].full_name(), error });
                    // One object that is refused permanently does not keep the others.
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        Ok(left)
    }

    /// Lets the pool loop treat all pools as deleted, until nothing is left to do. Returns true if this process did that in
    /// time, and false if another one did.
    pub async fn clean_up(&self, context: &Context) -> bool {
        let leads = context.leadership.term().is_some();
        tracing::info!(installation = self.name, leads, "winpool is being removed: cleaning up the cluster");
        context.uninstalled.cancel();
        context.changed.send_replace(());
        let other_is_done = async {
            loop {
                tokio::time::sleep(PAUSE).await;
                if context.leadership.term().is_some() {
                    continue;
                }
                match self.unreleased().await {
                    Ok(objects) if objects.is_empty() => return,
                    // The leader was done, and the permissions are gone.
                    Err(RequestError::Denied(_) | RequestError::Failed { failure: Failure::Unauthorized, .. }) => {
                        return;
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        };
        tokio::select! {
            () = context.clean.cancelled() => return true,
            () = other_is_done => tracing::info!("the leader has cleaned up"),
            () = tokio::time::sleep(CLEANUP_BUDGET) => {
                tracing::error!("not cleaned up in time; run: winpool-operator cleanup");
            }
        }
        false
    }

    /// Releases the installation, which ends the operator.
    pub async fn release_all(&self, applier: &Applier) {
        match self.release(applier, |_| true).await {
            Ok(left) if left.is_empty() => tracing::info!("cleaned up"),
            Ok(left) => left.iter().for_each(|left| tracing::warn!(detail = shortened(left), "left as it is")),
            // Another replica may have finished, and with that have removed the permissions of this one.
            Err(error) => {
                tracing::warn!(
                    error = shortened(&error),
                    "not cleaned up by this replica; if no other replica did, run: winpool-operator cleanup"
                );
            }
        }
    }
}
