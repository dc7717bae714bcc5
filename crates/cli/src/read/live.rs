//! Requests to a live cluster.

use std::collections::BTreeSet;

use kube::api::{GetParams, ListParams};
use kube::core::Request;
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use thiserror::Error;
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::view::Known;
use winpool_client::client::{ConnectError, connect_with};
use winpool_client::error::{Failure, RequestError, in_time, read_in_time};
use winpool_client::kubeconfig::{Connection, Unusable};
use winpool_client::pages;

use crate::print::progress::ProgressLine;

/// Creates a client for reading.
pub fn connect(config: Config) -> Result<Client, ConnectError> {
    connect_with(config, None, std::convert::identity)
}

/// Returns a client for the cluster that these options select.
pub async fn client(connection: &Connection) -> Result<Client, Unusable> {
    Ok(connect(connection.config().await?)?)
}

/// Returns the version of Kubernetes, if it can be read.
pub async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let answer = in_time(client.apiserver_version()).await.ok()?;
    KubernetesVersion::parse(&answer.major, &answer.minor)
}

/// A cluster that a command cannot read.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error(
        "the cluster has no WindowsPools: install winpool, or at least its CRD (winpool crd | kubectl apply -f -); to read \
         manifests instead, use -f"
    )]
    NoDefinition,
    #[error("not allowed to {verb} {what}: {message}; you need the permission to {verb} {what}")]
    Forbidden { verb: &'static str, what: String, message: String },
    #[error("the cluster does not accept these credentials")]
    Unauthorized,
    #[error("cannot read {what}: {error}")]
    Failed {
        what: String,
        #[source]
        error: RequestError,
    },
}

impl ReadError {
    /// Converts the error of a request for the resource `what`.
    fn of(verb: &'static str, what: &str, error: RequestError) -> Self {
        let what = what.to_owned();
        match error {
            RequestError::Denied(message) => Self::Forbidden { verb, what, message },
            RequestError::Gone if what == "windowspools" => Self::NoDefinition,
            RequestError::Failed { failure: Failure::Unauthorized, .. } => Self::Unauthorized,
            error => Self::Failed { what, error },
        }
    }
}

/// Selects pods that have not finished.
pub fn unfinished_pods() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

/// Returns the groups that the API server serves, each with a version: `apps/v1`.
pub async fn groups(client: &Client) -> Result<BTreeSet<String>, ReadError> {
    let listed = read_in_time(client.list_api_groups()).await;
    let groups = listed.map_err(|error| ReadError::of("get", "the API groups", error))?.groups;
    Ok(groups.into_iter().flat_map(|group| group.versions).map(|version| version.group_version).collect())
}

/// Lists the objects of the resource `what` that `parameters` select, in pages, and passes each to `found`.
pub async fn list<K: Resource + Clone, T: Clone + DeserializeOwned>(
    what: &str,
    api: &Api<K>,
    parameters: ListParams,
    mut found: impl FnMut(T),
) -> Result<(), ReadError> {
    let progress = ProgressLine::new(format!("reading {what}"));
    let listed = pages::each(api, parameters, |object| {
        progress.one();
        found(object);
    });
    progress.during(listed).await.map_err(|error| ReadError::of("list", what, error))
}

/// Lists the objects of the resource `what`, and keeps of each what `part` returns.
pub async fn collect<K: Resource + Clone, T: Clone + DeserializeOwned, P>(
    what: &str,
    api: &Api<K>,
    parameters: ListParams,
    part: impl Fn(T) -> P,
) -> Result<Vec<P>, ReadError> {
    let mut parts = Vec::new();
    list(what, api, parameters, |object| parts.push(part(object))).await?;
    Ok(parts)
}

/// Fails with any error other than a missing permission.
pub fn known<T>(listed: Result<T, ReadError>) -> Result<Known<T>, ReadError> {
    match listed {
        Ok(objects) => Ok(Known::Complete(objects)),
        Err(ReadError::Forbidden { message, .. }) => Ok(Known::Forbidden(message)),
        Err(error) => Err(error),
    }
}

/// Returns the error of a request that the user has no permission for, so that the command can do without. Fails with any
/// other error.
pub fn unless_forbidden(result: Result<(), ReadError>) -> Result<Option<ReadError>, ReadError> {
    match result {
        Err(error @ ReadError::Forbidden { .. }) => Ok(Some(error)),
        result => result.map(|()| None),
    }
}

/// Reads the object of the resource `what` with this name. Returns `None` if it does not exist.
pub async fn get<K: Resource + Clone, T: DeserializeOwned>(
    what: &str,
    api: &Api<K>,
    name: &str,
) -> Result<Option<T>, ReadError> {
    let progress = ProgressLine::new(format!("reading {what}"));
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let client = api.clone().into_client();
    let answer = async { client.request(request.map_err(kube::Error::BuildRequest)?).await };
    match progress.during(read_in_time(answer)).await {
        Err(RequestError::Gone) => Ok(None),
        found => found.map(Some).map_err(|error| ReadError::of("get", what, error)),
    }
}
