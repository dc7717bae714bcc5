//! The objects of a kind that can be listed.

use crate::error::Result;
use kube::api::DynamicObject;
use kube::core::{PartialObjectMeta, Status};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client, ResourceExt};
use std::time::Duration;

/// More than enough to delete the nodes of a large test, on a busy machine too.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// A kind that can be listed, and its objects.
pub(super) struct Listing {
    pub(super) resource: ApiResource,
    pub(super) capabilities: ApiCapabilities,
    pub(super) objects: Vec<PartialObjectMeta<DynamicObject>>,
}

impl Listing {
    pub(super) fn id(&self, object: &PartialObjectMeta<DynamicObject>) -> Id {
        Id { kind: self.resource.plural.clone(), namespace: object.namespace(), name: object.name_any() }
    }

    pub(super) fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match (&self.capabilities.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            _ => Api::all_with(client.clone(), &self.resource),
        }
    }
}

pub(super) fn gone_is_fine<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if is_gone(&status) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Checks the code: for an unknown kind the answer is a plain text 404 without a reason.
pub(super) fn is_gone(status: &Status) -> bool {
    status.code == 404
}
