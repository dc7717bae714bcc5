//! Restores an API server to its initial state.
//!
//! Every kind that the server lists is compared with its initial objects. If the restoration cannot be complete, it
//! fails and the server is stopped.

mod listing;
mod policies;

use crate::error::{Error, Result};
use crate::machine::wait::wait_for;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, ResourceExt};
use listing::{Id, LIMIT, Listing, gone_is_fine, is_gone};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The API server renews its own Leases all the time.
const VOLATILE: &str = "leases";

/// The API server itself derives these from services and kinds, from time to time.
const DERIVED: [&str; 3] = ["ipaddresses", "servicecidrs", "apiservices"];

/// The API server creates these in the background, some of them after it reports that it is ready.
const LATECOMERS: [(&str, &str); 7] = [
    ("namespaces", "default"),
    ("namespaces", "kube-node-lease"),
    ("namespaces", "kube-public"),
    ("namespaces", "kube-system"),
    ("services", "kubernetes"),
    ("configmaps", "extension-apiserver-authentication"),
    ("configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
];

const NAMESPACES: &str = "namespaces";

/// Containers of other objects are deleted last: nothing can lose its finalizers in a deleted namespace, and objects
/// that outlive their CRD come back with the next one.
const LAST: [&str; 2] = [NAMESPACES, "customresourcedefinitions"];

/// The initial objects of an API server.
pub(crate) struct Baseline {
    kinds: BTreeSet<String>,
    /// Every object with its version.
    objects: BTreeMap<Id, String>,
}

impl Baseline {
    /// Reads a new server, once it has created all that it creates by itself.
    pub(crate) async fn of(client: &Client) -> Result<Self> {
        wait_for("the API server has made all that it makes by itself", LIMIT, async || {
            let listings = list_everything(client).await?;
            let baseline = Self { kinds: kinds(&listings), objects: versions(&listings).collect() };
            Ok(Some(baseline).filter(Self::is_complete))
        })
        .await
    }

    fn is_complete(&self) -> bool {
        let has = |(kind, name)| self.objects.keys().any(|id| id.kind == kind && id.name == name);
        LATECOMERS.into_iter().all(has)
    }

    /// Deletes everything else, with or without finalizers.
    pub(crate) async fn restore(&self, client: &Client) -> Result<()> {
        wait_for("the API server is empty", LIMIT, async || {
            let listings = list_everything(client).await?;
            self.expect_unchanged(&listings)?;
            if self.remove_policies(client, &listings).await? {
                return Ok(None);
            }
            let mut empty = kinds(&listings) == self.kinds;
            let (last, first): (Vec<_>, Vec<_>) =
                listings.iter().partition(|listing| LAST.contains(&listing.resource.plural.as_str()));
            let mut rest_is_gone = true;
            for listing in first {
                rest_is_gone &= self.delete_leftovers(client, listing).await?;
            }
            empty &= rest_is_gone;
            for listing in last.into_iter().filter(|_| rest_is_gone) {
                empty &= self.delete_leftovers(client, listing).await?;
            }
            Ok(empty.then_some(()))
        })
        .await
    }

    /// Removes admission policies, which could refuse what follows, and waits until they are out of force. Returns false
    /// if there were none.
    async fn remove_policies(&self, client: &Client, listings: &[Listing]) -> Result<bool> {
        let is_left =
            |listing: &&Listing| listing.objects.iter().any(|object| !self.objects.contains_key(&listing.id(object)));
        let leftovers: Vec<&Listing> = listings.iter().filter(|l| policies::are_in(l)).filter(is_left).collect();
        if leftovers.iter().any(|listing| policies::are_webhooks(listing)) {
            return Err(not_to_be_emptied("it has webhooks"));
        }
        for listing in &leftovers {
            self.delete_leftovers(client, listing).await?;
        }
        if leftovers.is_empty() {
            return Ok(false);
        }
        policies::out_of_force(client, listings, &leftovers).await?;
        Ok(true)
    }

    /// Fails if an initial object was changed.
    fn expect_unchanged(&self, listings: &[Listing]) -> Result<()> {
        let now: BTreeMap<Id, String> = versions(listings).collect();
        let changed = self.objects.iter().find(|(id, version)| id.kind != VOLATILE && now.get(*id) != Some(*version));
        match changed {
            Some((id, _)) => Err(not_to_be_emptied(&format!("{} {} was changed", id.kind, id.name))),
            None => Ok(()),
        }
    }

    /// True if there were none.
    async fn delete_leftovers(&self, client: &Client, listing: &Listing) -> Result<bool> {
        let mut leftovers: BTreeMap<Option<String>, Vec<&PartialObjectMeta<DynamicObject>>> = BTreeMap::new();
        for object in &listing.objects {
            if !self.objects.contains_key(&listing.id(object)) {
                leftovers.entry(object.namespace()).or_default().push(object);
            }
        }
        for (namespace, objects) in &leftovers {
            self.delete(client, listing, namespace.as_deref(), objects).await?;
        }
        Ok(leftovers.is_empty())
    }

    async fn delete(
        &self,
        client: &Client,
        listing: &Listing,
        namespace: Option<&str>,
        objects: &[&PartialObjectMeta<DynamicObject>],
    ) -> Result<()> {
        let api = listing.api(client, namespace);
        for object in objects.iter().filter(|object| !object.finalizers().is_empty()) {
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            gone_is_fine(api.patch(&object.name_any(), &PatchParams::default(), &none).await)?;
        }
        let at_once = DeleteParams::default().grace_period(0);
        if self.had_none(listing, namespace) && listing.capabilities.supports_operation(verbs::DELETE_COLLECTION) {
            gone_is_fine(api.delete_collection(&at_once, &ListParams::default()).await)?;
        } else {
            for object in objects {
                gone_is_fine(api.delete(&object.name_any(), &at_once).await)?;
            }
        }
        if listing.resource.plural == NAMESPACES {
            finalize(client, objects).await?;
        }
        Ok(())
    }

    fn had_none(&self, listing: &Listing, namespace: Option<&str>) -> bool {
        !self.objects.keys().any(|id| id.kind == listing.resource.plural && id.namespace.as_deref() == namespace)
    }
}

/// Every object of every kind that can be listed and deleted.
async fn list_everything(client: &Client) -> Result<Vec<Listing>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let kinds =
        discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources).filter(|(_, capabilities)| {
            capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::DELETE)
        });
    let kinds = kinds.filter(|(resource, _)| !DERIVED.contains(&resource.plural.as_str()));
    let mut listings = Vec::new();
    for (resource, capabilities) in kinds {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = match api.list_metadata(&ListParams::default()).await {
            Ok(list) => list.items,
            // A kind that is on its way out is still discovered.
            Err(kube::Error::Api(status)) if is_gone(&status) => continue,
            Err(error) => return Err(error.into()),
        };
        listings.push(Listing { resource, capabilities, objects });
    }
    Ok(listings)
}

/// Without a controller manager no process removes the `kubernetes` finalizer from a namespace.
async fn finalize(client: &Client, namespaces: &[&PartialObjectMeta<DynamicObject>]) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    for namespace in namespaces {
        let name = namespace.name_any();
        let mut bare = Namespace::default();
        bare.metadata.name = Some(name.clone());
        let params = PostParams::default();
        gone_is_fine(api.replace_subresource("finalize", &name, &params, &bare).await)?;
    }
    Ok(())
}

fn kinds(listings: &[Listing]) -> BTreeSet<String> {
    let name = |listing: &Listing| format!("{}/{}", listing.resource.api_version, listing.resource.plural);
    listings.iter().map(name).collect()
}

fn versions(listings: &[Listing]) -> impl Iterator<Item = (Id, String)> {
    listings.iter().flat_map(|listing| listing.objects.iter().map(|object| (listing.id(object), version(object))))
}

/// If an object has a generation, changes of its status do not count: the API server writes some itself.
fn version(object: &PartialObjectMeta<DynamicObject>) -> String {
    match object.metadata.generation {
        Some(generation) => format!("generation {generation}"),
        None => object.resource_version().unwrap_or_default(),
    }
}

fn not_to_be_emptied(why: &str) -> Error {
    Error::NotEmptied(why.to_owned())
}

#[cfg(test)]
mod tests;
