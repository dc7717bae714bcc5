//! Admission policies that a test leaves behind.
//!
//! The API server reads policies once a second, so a deleted one stays in force for a while. It reads all policies of a
//! kind together: once a policy that was created after the deletion is in force, the deleted ones no longer are.

use super::listing::{LIMIT, Listing, gone_is_fine};
use crate::error::{Error, Result};
use crate::machine::wait::wait_for;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The group of policies, and of webhooks.
const GROUP: &str = "admissionregistration.k8s.io";

/// The kinds of policies: validating and mutating ones, each with the kind of their bindings.
const KINDS: [[&str; 2]; 2] = [
    ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
    ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
];

/// True if the listing is of policies, bindings or webhooks.
pub(super) fn are_in(listing: &Listing) -> bool {
    listing.resource.group == GROUP
}

/// True for webhooks, whose end cannot be seen.
pub(super) fn are_webhooks(listing: &Listing) -> bool {
    are_in(listing) && !KINDS.as_flattened().contains(&listing.resource.plural.as_str())
}

/// Waits until deleted policies of these kinds, or with bindings of these kinds, are no longer in force.
pub(super) async fn out_of_force(client: &Client, listings: &[Listing], deleted: &[&Listing]) -> Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let is_deleted = |kinds: &[&str; 2]| deleted.iter().any(|l| kinds.contains(&l.resource.plural.as_str()));
    for kinds in KINDS.into_iter().filter(is_deleted) {
        let find = |kind: &str| listings.iter().find(|listing| are_in(listing) && listing.resource.plural == kind);
        let [Some(policies), Some(bindings)] = kinds.map(find) else { continue };
        // The last one may still be in force.
        let name = format!("emptying-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let pair = [(policies, policy(policies, &name)), (bindings, binding(bindings, &name))];
        for (listing, mut object) in pair {
            object["metadata"] = json!({"name": name});
            let object = serde_json::from_value(object).map_err(|error| Error::NotEmptied(error.to_string()))?;
            listing.api(client, None).create(&PostParams::default(), &object).await?;
        }
        wait_for(&format!("{} are out of force", kinds[0]), LIMIT, async || affects(client, &name).await).await?;
        for listing in [policies, bindings] {
            gone_is_fine(listing.api(client, None).delete(&name, &DeleteParams::default()).await)?;
        }
    }
    Ok(())
}

/// A policy that concerns only a `ConfigMap` of the same name, which is created in dry runs only.
fn policy(listing: &Listing, name: &str) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "name", "expression": format!("object.metadata.name == '{name}'")}],
    });
    if listing.resource.plural == KINDS[0][0] {
        spec["validations"] = json!([{"expression": "false", "message": name}]);
    } else {
        let label = "Object{metadata: Object.metadata{labels: {'emptying': 'seen'}}}";
        spec["reinvocationPolicy"] = json!("Never");
        spec["mutations"] = json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}]);
    }
    json!({"spec": spec})
}

fn binding(listing: &Listing, name: &str) -> Value {
    let mut spec = json!({"policyName": name});
    if listing.resource.plural == KINDS[0][1] {
        spec["validationActions"] = json!(["Deny"]);
    }
    json!({"spec": spec})
}

/// Returns a value if the policy with this name is in force.
async fn affects(client: &Client, name: &str) -> Result<Option<()>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match maps.create(&dry_run, &map).await {
        Ok(map) => Ok(map.labels().contains_key("emptying").then_some(())),
        // Another policy may still refuse it.
        Err(kube::Error::Api(status)) => Ok(status.message.contains(&format!("Policy '{name}'")).then_some(())),
        Err(error) => Err(error.into()),
    }
}
