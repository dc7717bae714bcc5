//! The only file that writes to a cluster.
//!
//! Every write is guarded by the values it was computed from and ends within
//! [`REQUEST_TIMEOUT`](winpool_client::error::REQUEST_TIMEOUT). Nodes and RuntimeClasses are written by JSON Patch:
//! server-side apply and merge patches would replace other writers' taints.
//!
//! Without leadership nothing is sent, and requests in flight end with it. The only exception is the Lease that
//! leadership comes from.

use std::pin::pin;
use std::sync::Once;
use std::time::Duration;

use futures::future::{BoxFuture, try_join};
use futures::io::{AsyncReadExt, copy, sink};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    ValidationDirective,
};
use kube::core::Request;
use kube::runtime::events::{Event, Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use winpool_client::causes::shortened;
use winpool_client::error::{Failure, RequestError, in_time, of_write, within};
use winpool_client::node::ListedNode;
use winpool_core::api::{WindowsPoolStatus, names};
use winpool_core::node::{NodeObject, NodePlan};
use winpool_core::plan::confinement::weakness;
use winpool_core::plan::nodes::NodeAnswer;
use winpool_core::plan::patch::{finalizer_patch, status_patch};
use winpool_core::plan::pods::TolerationRequest;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::words::plain;

use crate::leadership::Leadership;
use crate::together;

/// The time limit for a write of the Lease: half of `RENEW_DEADLINE`, so that a lost renewal can be repeated in time.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// A part of the name of the policy that confines `patch` on pods, which an installation may extend.
const CONFINING_POLICY: &str = "confine-pods";

/// Bytes of an Event's note, a little less than the API server accepts.
const NOTE: usize = 1000;

/// Bytes of the metadata of a node in an answer. A larger one is not read: the kubelet decides about it.
const METADATA: u64 = 64 << 10;

/// Writes to the cluster.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    classes: Api<RuntimeClass>,
    /// A pool whose spec does not decode has a status all the same.
    pools: Api<GuardedPool>,
    recorder: Recorder,
    leadership: Leadership,
}

impl Applier {
    /// Creates one that writes through `client` for as long as `leadership` lasts.
    pub fn new(client: Client, leadership: Leadership) -> Self {
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: None };
        Self {
            classes: Api::all(client.clone()),
            pools: Api::all(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            client,
            leadership,
        }
    }

    /// Sends a write if this process leads, and waits for the answer for as long as it leads.
    fn send<'a, T: Send + 'a>(
        &'a self,
        write: impl Future<Output = Result<T, kube::Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, RequestError>> {
        Box::pin(async move {
            let not_leading = || RequestError::Failed {
                failure: Failure::NotLeading,
                message: "not written: this process does not lead".to_owned(),
            };
            let term = self.leadership.term().ok_or_else(not_leading)?;
            self.leadership.during(term, in_time(write)).await.unwrap_or_else(|| Err(not_leading()))
        })
    }

    /// Sends a guarded patch to a node. Returns the metadata that it has then, unless that is too large.
    pub async fn patch_node(&self, name: &str, patch: JsonPatch) -> Result<Option<NodeObject>, RequestError> {
        let nodes = Request::new(Node::url_path(&(), None));
        // The default looks for unknown and duplicate fields in the patch and the whole node, and only warns of them.
        let parameters = PatchParams { field_validation: Some(ValidationDirective::Ignore), ..patch_parameters() };
        let request = nodes.patch_metadata(name, &parameters, &Patch::Json::<()>(patch));
        self.send(async {
            let request = request.map_err(kube::Error::BuildRequest)?.map(as_go_encodes);
            let (mut answer, mut begin) = (pin!(self.client.request_stream(request).await?), Vec::new());
            answer.as_mut().take(METADATA).read_to_end(&mut begin).await.map_err(kube::Error::ReadEvents)?;
            copy(answer, &mut sink()).await.map_err(kube::Error::ReadEvents)?;
            Ok(serde_json::from_slice::<ListedNode>(&begin).ok().map(|node| node.object))
        })
        .await
    }

    /// Sends the patch of an attempt to execute this plan.
    pub async fn attempt(&self, node: &str, patch: JsonPatch, plan: &NodePlan) -> Result<NodeAnswer, RequestError> {
        let Some(NodeObject { resource_version, node, .. }) = self.patch_node(node, patch).await? else {
            return Ok(NodeAnswer::Written(None));
        };
        let is_stripped = plan.is_stripped(node.labels.get(names::POOL), node.applied.as_deref());
        let answer = if is_stripped { NodeAnswer::Stripped } else { |version| NodeAnswer::Written(Some(version)) };
        Ok(answer(resource_version))
    }

    /// Adds tolerations to a pod. The answer has only its metadata: a pod may be as large as etcd permits.
    pub async fn add_tolerations(&self, request: &TolerationRequest) -> Result<(), RequestError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &request.namespace);
        let patch = Patch::Json::<()>(request.patch.clone());
        self.send(pods.patch_metadata(&request.pod, &patch_parameters(), &patch)).await.map(drop)
    }

    /// Tries a change of winpool's own pod that winpool never makes, as a dry run. Returns `Ok` if the policy that confines
    /// winpool refuses it and refuses enough else, or the reason why that is not known. To look for the policy alone would prove
    /// nothing: one that names another account has no effect.
    pub async fn test_confinement(&self, own_pod: &str) -> Result<Result<(), String>, RequestError> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let dry_run = PatchParams { dry_run: true, ..patch_parameters() };
        let label = Patch::Merge(json!({"metadata": {"labels": {"winpool.dev/confinement": "test"}}}));
        match self.send(pods.patch_metadata(own_pod, &dry_run, &label)).await {
            Ok(_) => Ok(Err("winpool could change the labels of its pod".to_owned())),
            Err(RequestError::Denied(message)) if message.contains(CONFINING_POLICY) => {
                self.compare_policy(&message).await
            }
            Err(error @ (RequestError::Denied(_) | RequestError::Gone)) => Ok(Err(shortened(&error))),
            Err(error) => Err(error),
        }
    }

    /// Compares the policy and the binding that refused the test with those of this release.
    async fn compare_policy(&self, refusal: &str) -> Result<Result<(), String>, RequestError> {
        static SAID: Once = Once::new();
        // It begins with: ValidatingAdmissionPolicy 'name' with binding 'name' denied request.
        let [_, policy, _, binding, ..] = refusal.split('\'').collect::<Vec<_>>()[..] else {
            return Ok(Err(shortened(&refusal)));
        };
        let api = |resource| Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let policies = api(ApiResource::erase::<ValidatingAdmissionPolicy>(&()));
        let bindings = api(ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&()));
        match in_time(try_join(policies.get(policy), bindings.get(binding))).await {
            Ok((found, bound)) => {
                let differs =
                    |field| format!("{field} of {policy} or of its binding differs from that of this release");
                Ok(weakness(policy, &found.data["spec"], &bound.data["spec"]).map(differs).map_or(Ok(()), Err))
            }
            Err(error @ RequestError::Denied(_)) => {
                SAID.call_once(|| {
                    tracing::warn!(error = shortened(&error), "cannot compare the policy for pods with this release");
                });
                Ok(Ok(()))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a RuntimeClass.
    ///
    /// # Errors
    /// Fails with [`RequestError::Conflict`] if one with that name exists, and if it is not accepted.
    pub async fn create_class(&self, class: &RuntimeClass) -> Result<RuntimeClass, RequestError> {
        self.send(self.classes.create(&post_parameters(), class)).await
    }

    /// Sends a guarded patch to a RuntimeClass.
    pub async fn patch_class(&self, name: &str, patch: JsonPatch) -> Result<RuntimeClass, RequestError> {
        self.send(self.classes.patch(name, &patch_parameters(), &Patch::Json::<()>(patch))).await
    }

    /// Deletes a RuntimeClass, if it is still the object that was read. Returns the object if finalizers keep it.
    pub async fn delete_class(&self, class: &RuntimeClass) -> Result<Option<RuntimeClass>, RequestError> {
        let (uid, resource_version) = (class.uid(), class.resource_version());
        let parameters = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
        let deleted = self.send(self.classes.delete(&class.name_any(), &parameters)).await?;
        Ok(deleted.left())
    }

    /// Adds winpool's finalizer to a pool, or removes it. Returns the pool that the API server answers with.
    pub async fn set_finalizer(&self, pool: &ObjectMeta, wanted: bool) -> Result<GuardedPool, RequestError> {
        let (name, patch) =
            (pool.name.as_deref().unwrap_or_default(), Patch::Json::<()>(finalizer_patch(pool, wanted)));
        self.send(self.pools.patch(name, &patch_parameters(), &patch)).await
    }

    /// Removes winpool's finalizer from these objects, once the API server permits all of these writes: with the first
    /// deleted object, the permissions to write the others may be lost.
    ///
    /// # Errors
    /// Returns the number of the first object that is refused, and the reason. If it was refused at once, none was
    /// written.
    pub async fn release(&self, objects: &[(&Api<DynamicObject>, &ObjectMeta)]) -> Result<(), (usize, RequestError)> {
        let requests = objects.iter().enumerate().map(|(number, (api, object))| {
            let (name, patch) = (object.name.as_deref().unwrap_or_default(), finalizer_patch(object, false));
            let requests = Request::new(api.resource_url());
            let request = requests.patch_metadata(name, &patch_parameters(), &Patch::Json::<()>(patch));
            request.map_err(|error| (number, of_write(kube::Error::BuildRequest(error))))
        });
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        let mut refused = 0;
        let sent = self.send(async {
            together::send(&self.client, requests).await.map_err(|(number, error)| {
                refused = number;
                error
            })
        });
        sent.await.map_err(|error| (refused, error))
    }

    /// Reads the metadata of a pool from the API server, not from the cache; `None` if there is no such pool.
    pub async fn read_pool(&self, name: &str) -> Result<Option<ObjectMeta>, RequestError> {
        // A list, because no permission to get pools is needed anywhere else.
        let named = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        match in_time(self.pools.list_metadata(&named)).await {
            // Without the CRD there are no pools.
            Err(RequestError::Gone) => Ok(None),
            found => Ok(found?.items.pop().map(|pool| pool.metadata)),
        }
    }

    /// Replaces a pool's status if the present one still records the same taints as `seen`. Returns the pool that the API
    /// server answers with.
    pub async fn write_status(
        &self,
        pool: &ObjectMeta,
        seen: Option<&Value>,
        status: &WindowsPoolStatus,
    ) -> Result<GuardedPool, RequestError> {
        let (name, uid) = (pool.name.as_deref().unwrap_or_default(), pool.uid.as_deref().unwrap_or_default());
        let patch = Patch::Json::<()>(status_patch(uid, seen, status));
        self.send(self.pools.patch_status(name, &patch_parameters(), &patch)).await
    }

    /// Writes an Event about an object. One that cannot be written is dropped.
    pub async fn event(&self, object: &ObjectReference, mut event: Event) {
        event.note = event.note.map(|note| plain(&note, NOTE));
        if let Err(error) = self.send(self.recorder.publish(&event, object)).await {
            tracing::debug!(reason = event.reason, error = shortened(&error), "Event not written");
        }
    }
}

/// The Lease whose holder leads. Its writes do not depend on leadership; its resourceVersion guards them.
pub struct Leases {
    pub(crate) api: Api<Lease>,
    pub(crate) namespace: String,
}

impl Leases {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// Reads the Lease; `None` if it does not exist.
    pub async fn read(&self) -> Result<Option<Lease>, RequestError> {
        within(LEASE_TIMEOUT, self.api.get_opt(names::LEASE), of_write).await
    }

    /// Replaces the Lease if it is unchanged since `lease` was made from it, or creates it.
    ///
    /// # Errors
    /// Fails with [`RequestError::Conflict`] if it has changed, with [`RequestError::Gone`] if it was deleted, and if
    /// it is not accepted, or its namespace does not exist.
    pub async fn write(&self, lease: &Lease) -> Result<Lease, RequestError> {
        let (parameters, mut lease) = (post_parameters(), lease.clone());
        // The API server keeps those that it has; here some are hidden.
        lease.metadata.managed_fields = None;
        if lease.metadata.resource_version.is_some() {
            return within(LEASE_TIMEOUT, self.api.replace(names::LEASE, &parameters, &lease), of_write).await;
        }
        lease.metadata.name = Some(names::LEASE.to_owned());
        let created = within(LEASE_TIMEOUT, self.api.create(&parameters, &lease), of_write).await;
        created.map_err(|error| match error {
            RequestError::Gone => {
                let namespace = &self.namespace;
                let message = format!("the namespace {namespace} does not exist; create it, or set --lease-namespace");
                RequestError::Denied(message)
            }
            other => other,
        })
    }
}

fn post_parameters() -> PostParams {
    PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn patch_parameters() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Escapes characters as Go's encoder does. The API server compares the values that a patch tests byte by byte with
/// the object as Go encodes it, so a value with one of these characters would never be equal.
fn as_go_encodes(patch: Vec<u8>) -> Vec<u8> {
    let mut patch = match String::from_utf8(patch) {
        Ok(text) => text,
        // JSON is UTF-8.
        Err(other) => return other.into_bytes(),
    };
    for c in ['<', '>', '&', '\u{2028}', '\u{2029}'] {
        if patch.contains(c) {
            // In JSON they occur only inside strings.
            patch = patch.replace(c, &format!("\\u{:04x}", u32::from(c)));
        }
    }
    patch.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_escaped_as_go_does_it_and_means_the_same() {
        let value = serde_json::json!([{"op": "test", "path": "/a", "value": "<b>&\u{2028}\u{2029}\u{1b}ü"}]);
        let escaped = as_go_encodes(value.to_string().into_bytes());
        let text = String::from_utf8(escaped.clone()).unwrap();
        assert!(text.contains(r"\u003cb\u003e\u0026\u2028\u2029\u001bü"), "{text}");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&escaped).unwrap(), value);
    }
}
