//! The only file that writes to a cluster.
//!
//! Every write is guarded by what it was computed from and ends within [`WRITE_TIMEOUT`]. Nodes and RuntimeClasses are
//! written by JSON Patch: server-side apply and merge patches would replace other writers' taints.
//!
//! Without leadership nothing is sent, and what is under way ends with it. The one exception is the Lease that leadership
//! comes from.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{
    future::BoxFuture,
    io::{copy, sink},
};
use json_patch::Patch as JsonPatch;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ObjectReference, node::v1::RuntimeClass},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{PartialObjectMeta, Request, Status},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;
use winpool_core::{
    api::{WindowsPool, WindowsPoolStatus, names},
    plan::{Retirement, finalizer_patch, runtime_class_patch, status_patch},
    words::plain,
};

use crate::{
    api_server::{causes::with_causes, together},
    cache::node::CachedNode,
    election::Leadership,
    metrics::{Metrics, Operation},
    telemetry::words,
};

/// How long the API server may take to answer a write.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for the Lease, half of `RENEW_DEADLINE`: a renewal that gets lost can be sent once more in time.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of an Event's note, a little less than the API server takes.
const NOTE: usize = 1000;

/// Nodes that are read at the same time: each takes as much memory as its kubelet likes.
const READS: usize = 2;

/// Why a write was not accepted.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A `test` of the patch failed: the object is not what it was computed from. Read it again, plan again.
    #[error("the object is not what the change was computed from")]
    Stale,
    /// Another write came in between, or an object of that name exists already. Read it again, plan again.
    #[error("another write came in between")]
    Conflict,
    /// The object is gone.
    #[error("the object is gone")]
    Gone,
    /// The API server, or a policy in it, refuses this write, and will refuse it again.
    #[error("the API server refuses: {0}")]
    Denied(String),
    /// The API server cannot be reached, is busy, or failed.
    #[error("the API server did not answer as it should: {}", with_causes(.0.as_ref()))]
    Failed(#[source] Box<kube::Error>),
    /// No answer within this time.
    #[error("the API server did not answer within {0:?}")]
    TimedOut(Duration),
    /// This process does not lead, or stopped leading before the answer. Whoever leads now plans and writes.
    #[error("not written: this process does not lead")]
    NotLeading,
}

impl WriteError {
    /// What [`Self::as_str`] can be.
    pub const WORDS: [&str; 7] = ["stale", "conflict", "gone", "denied", "failed", "timed_out", "not_leading"];

    /// Whether the API server refuses this, and will refuse it again.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }

    /// Whether the API server refuses this, or does not know the account that asks: the same request will not succeed.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        let has_no_account = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 401);
        self.is_denied() || matches!(self, Self::Failed(error) if has_no_account(error))
    }

    /// One word for metrics and logs.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::TimedOut(_) => "timed_out",
            Self::NotLeading => "not_leading",
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => refusal(status),
            other => Self::Failed(Box::new(other)),
        }
    }
}

/// Tells refusals apart. A failed JSON Patch `test` is 422 without causes; an invalid value, and a denial by a
/// ValidatingAdmissionPolicy without a reason, is 422 with causes. A policy may also choose 401, 403 or 413.
fn refusal(status: Box<Status>) -> WriteError {
    let has_causes = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    match status.code {
        404 => WriteError::Gone,
        409 => WriteError::Conflict,
        422 if !has_causes => WriteError::Stale,
        400 | 403 | 413 | 422 => WriteError::Denied(status.message),
        401 if has_causes => WriteError::Denied(status.message),
        _ => WriteError::Failed(Box::new(kube::Error::Api(status))),
    }
}

/// Writes to the cluster, and reads what a refused write has to be computed from again.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    nodes: Api<CachedNode>,
    reads: Arc<Semaphore>,
    classes: Api<RuntimeClass>,
    /// Of what is answered only the metadata is read: a pool whose spec does not decode has a status all the same.
    pools: Api<PartialObjectMeta<WindowsPool>>,
    recorder: Recorder,
    leadership: Leadership,
    metrics: Arc<Metrics>,
}

impl Applier {
    /// Writes through `client`, as long as `leadership` lasts.
    #[must_use]
    pub fn new(client: Client, leadership: Leadership, metrics: Arc<Metrics>) -> Self {
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: None };
        Self {
            nodes: Api::all(client.clone()),
            reads: Arc::new(Semaphore::new(READS)),
            classes: Api::all(client.clone()),
            pools: Api::all(client.clone()),
            recorder: Recorder::new(client.clone(), reporter),
            client,
            leadership,
            metrics,
        }
    }

    /// Sends a write if this process leads, and waits for the answer as long as it does.
    fn send<'a, T: Send + 'a>(
        &'a self,
        write: impl Future<Output = Result<T, kube::Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, WriteError>> {
        Box::pin(async move {
            let Some(term) = self.leadership.term() else { return Err(WriteError::NotLeading) };
            self.leadership.during(term, in_time(write)).await.unwrap_or(Err(WriteError::NotLeading))
        })
    }

    /// Sends a guarded patch to a node. Only the metadata is asked for in answer, and that is not kept: a node is as large as
    /// its kubelet likes, and the watch brings it anyway.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn patch_node(&self, name: &str, patch: JsonPatch) -> Result<(), WriteError> {
        let nodes = Request::new(CachedNode::url_path(&(), None));
        let request = nodes.patch_metadata(name, &patch_parameters(), &Patch::<()>::Json(patch));
        let sent = self.send(async {
            let request = request.map_err(kube::Error::BuildRequest)?.map(as_go_encodes);
            let answer = self.client.request_stream(request).await?;
            copy(pin!(answer), &mut sink()).await.map_err(kube::Error::ReadEvents)?;
            Ok(())
        });
        let result = sent.await;
        self.metrics.node_write(&result);
        result
    }

    /// Reads a node from the API server, not from the cache.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_node(&self, name: &str) -> Result<CachedNode, WriteError> {
        // Never closed: an error cannot be.
        let _turn = self.reads.acquire().await;
        in_time(self.nodes.get(name)).await
    }

    /// Creates a RuntimeClass; [`WriteError::Conflict`] when there is one of that name.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn create_class(&self, class: &RuntimeClass) -> Result<RuntimeClass, WriteError> {
        let parameters = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let result = self.send(self.classes.create(&parameters, class)).await;
        self.metrics.class_write(Operation::Create, &result);
        result
    }

    /// Asks whether a RuntimeClass could be created, and creates none; [`WriteError::Conflict`] when there is one of that
    /// name, which is told only after admission.
    ///
    /// # Errors
    /// When it would not be accepted.
    pub async fn try_to_create_class(&self, class: &RuntimeClass) -> Result<(), WriteError> {
        let field_manager = Some(names::FIELD_MANAGER.to_owned());
        let parameters = PostParams { dry_run: true, field_manager };
        self.send(self.classes.create(&parameters, class)).await.map(|_| ())
    }

    /// Sends a guarded patch to a RuntimeClass.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn patch_class(&self, name: &str, patch: JsonPatch) -> Result<RuntimeClass, WriteError> {
        let patch: Patch<()> = Patch::Json(patch);
        let result = self.send(self.classes.patch(name, &patch_parameters(), &patch)).await;
        self.metrics.class_write(Operation::Patch, &result);
        result
    }

    /// Reads a RuntimeClass from the API server; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_class(&self, name: &str) -> Result<Option<RuntimeClass>, WriteError> {
        in_time(self.classes.get_opt(name)).await
    }

    /// Deletes a RuntimeClass, only if it is still the object that was read.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn delete_class(&self, class: &RuntimeClass) -> Result<(), WriteError> {
        let (uid, resource_version) = (class.uid(), class.resource_version());
        let parameters =
            DeleteParams { preconditions: Some(Preconditions { uid, resource_version }), ..DeleteParams::default() };
        let result = self.send(self.classes.delete(&class.name_any(), &parameters)).await.map(|_| ());
        self.metrics.class_write(Operation::Delete, &result);
        result
    }

    /// Deletes a RuntimeClass that no pool wants any more, or lets go of it.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn retire_class(&self, class: &RuntimeClass, end: &Retirement) -> Result<(), WriteError> {
        match end {
            Retirement::Delete => self.delete_class(class).await,
            Retirement::Release { changes, .. } => {
                let (uid, version) = (class.uid().unwrap_or_default(), class.resource_version().unwrap_or_default());
                let patch = runtime_class_patch(&uid, &version, changes);
                self.patch_class(&class.name_any(), patch).await.map(|_| ())
            }
        }
    }

    /// Puts winpool's finalizer on a pool, or takes it off.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn set_finalizer(&self, pool: &ObjectMeta, wanted: bool) -> Result<(), WriteError> {
        let patch: Patch<()> = Patch::Json(finalizer_patch(pool, wanted));
        let name = pool.name.as_deref().unwrap_or_default();
        self.send(self.pools.patch(name, &patch_parameters(), &patch)).await.map(|_| ())
    }

    /// Takes winpool's finalizer off these objects, once the API server permits all of these writes: with the first
    /// object that goes, the permissions for the others may go too.
    ///
    /// # Errors
    /// The number of the first object that is refused, and why. If it was refused at once, none was written.
    pub async fn let_go(&self, objects: &[(&Api<DynamicObject>, &ObjectMeta)]) -> Result<(), (usize, WriteError)> {
        let mut requests = Vec::new();
        for (number, (api, object)) in objects.iter().enumerate() {
            let patch: Patch<()> = Patch::Json(finalizer_patch(object, false));
            let name = object.name.as_deref().unwrap_or_default();
            let request = Request::new(api.resource_url()).patch_metadata(name, &patch_parameters(), &patch);
            requests.push(request.map_err(|error| (number, kube::Error::BuildRequest(error).into()))?);
        }
        let mut refused = 0;
        let sent = self.send(async {
            together::send(&self.client, requests).await.map_err(|(number, error)| {
                refused = number;
                error
            })
        });
        sent.await.map_err(|error| (refused, error))
    }

    /// The metadata of a pool as the API server has it now, not the cache; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_pool(&self, name: &str) -> Result<Option<ObjectMeta>, WriteError> {
        // Pools are listed anyway: no other right is needed.
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        Ok(in_time(self.pools.list(&named)).await?.items.pop().map(|pool| pool.metadata))
    }

    /// Writes a pool's status, whole, if it still records the taints of the one that was `seen`.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn write_status(
        &self,
        pool: &ObjectMeta,
        seen: Option<&Value>,
        status: &WindowsPoolStatus,
    ) -> Result<(), WriteError> {
        let (name, uid) = (pool.name.as_deref().unwrap_or_default(), pool.uid.as_deref().unwrap_or_default());
        let patch: Patch<()> = Patch::Json(status_patch(uid, seen, status));
        self.send(self.pools.patch_status(name, &patch_parameters(), &patch)).await.map(|_| ())
    }

    /// Tells people about something at an object. An Event that cannot be written is dropped: it is news, not state.
    pub async fn event(&self, object: &ObjectReference, type_: EventType, reason: &str, action: &str, note: String) {
        let note = Some(plain(&note, NOTE));
        let event = Event { type_, reason: reason.to_owned(), action: action.to_owned(), note, secondary: None };
        if let Err(error) = self.send(self.recorder.publish(&event, object)).await {
            tracing::debug!(reason, error = words(&error), "Event not written");
        }
    }
}

/// The Lease whose holder leads. It is written with or without leadership, guarded by its resourceVersion.
pub struct Leases {
    api: Api<Lease>,
    namespace: String,
}

impl Leases {
    /// In this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// Where the Lease is.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// To watch it.
    #[must_use]
    pub fn api(&self) -> Api<Lease> {
        self.api.clone()
    }

    /// Reads the Lease; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self) -> Result<Option<Lease>, WriteError> {
        within(LEASE_TIMEOUT, self.api.get_opt(names::LEASE)).await
    }

    /// Replaces the Lease if it is still the one that `lease` was made from, or creates it if that was none.
    ///
    /// # Errors
    /// When it is not accepted; [`WriteError::Conflict`] when it has changed, [`WriteError::Gone`] when it was deleted.
    pub async fn write(&self, lease: &Lease) -> Result<Lease, WriteError> {
        let parameters = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        if lease.metadata.resource_version.is_some() {
            return within(LEASE_TIMEOUT, self.api.replace(names::LEASE, &parameters, lease)).await;
        }
        let mut lease = lease.clone();
        lease.metadata.name = Some(names::LEASE.to_owned());
        within(LEASE_TIMEOUT, self.api.create(&parameters, &lease)).await
    }
}

fn patch_parameters() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Waits for an answer, at most [`WRITE_TIMEOUT`].
pub(crate) async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, WriteError> {
    within(WRITE_TIMEOUT, answer).await
}

async fn within<T>(limit: Duration, answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, WriteError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(WriteError::from),
        Err(_) => Err(WriteError::TimedOut(limit)),
    }
}

/// The patch with the escapes of Go's encoder: the API server compares what a patch tests byte by byte with the object as
/// Go encodes it, so a value with one of these characters would never be equal.
fn as_go_encodes(patch: Vec<u8>) -> Vec<u8> {
    let mut patch = match String::from_utf8(patch) {
        Ok(text) => text,
        // JSON is UTF-8.
        Err(other) => return other.into_bytes(),
    };
    for c in ['<', '>', '&', '\u{2028}', '\u{2029}'] {
        if patch.contains(c) {
            // In JSON they stand in strings alone.
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
