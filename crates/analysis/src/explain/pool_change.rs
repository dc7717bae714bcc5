//! Remedies in a cluster with pools: what pods need when the operator has done its part.

use std::borrow::Borrow;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::json;
use winpool_core::api::{Mode, ObjectReference, WindowsPoolSpec};
use winpool_core::plan::Now;
use winpool_core::plan::classes::runtime_class::owner;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_simulation::Unfinished;

use crate::remedy::{Edit, Remedy};
use crate::verdict::{Cluster, RECREATE};
use crate::view::{View, changed_pool};

use super::forecast::{Snapshot, forecast};
use super::pod::PodExplanation;

/// Returns what still has to change for the pods to start after the operator has made its own changes: the pool of their
/// RuntimeClass if that is enough, otherwise the pods themselves. `None` without a pool. `there` is the cluster of the view, and
/// `explain` explains the pods in a cluster.
///
/// # Errors
/// Fails if the operator does not finish.
pub fn remedy(
    view: &View,
    there: &Cluster,
    class: Option<&str>,
    now: Now,
    explain: impl Fn(&Cluster) -> PodExplanation,
) -> Result<Option<Remedy>, Unfinished> {
    let pools: Vec<&GuardedPool> = view.guarded().into_iter().flatten().collect();
    if pools.is_empty() {
        return Ok(None);
    }
    let after = |change: Option<&Remedy>| {
        let mut snapshot = Snapshot::without_workloads(view, now).enforced();
        if let Some(change) = change {
            apply(change, &mut snapshot.pools);
        }
        forecast(&snapshot)
    };
    let recreates = |remedy: &Remedy| remedy.text.starts_with(RECREATE);
    let outcome = after(None)?;
    let finished = outcome.cluster(there);
    let Some(own) = explain(&finished).remedy else { return Ok(wait(view)) };
    // No pool has to change for what passes by itself, such as a cordon.
    if recreates(&own) || explain(&finished.settled()).remedy.is_none() {
        return Ok(Some(own));
    }
    let object = class.and_then(|class| outcome.classes.get(class));
    let Some(change) = object.and_then(|class| compatible(class, &pools)) else { return Ok(Some(own)) };
    Ok(Some(match explain(&after(Some(&change))?.cluster(there)).remedy {
        None => change.in_object(),
        Some(remedy) if recreates(&remedy) => change.in_object().and("; then delete and recreate the pod"),
        Some(_) => own,
    }))
}

/// Returns how the operator comes to do its part, if there is a pool.
pub fn wait(view: &View) -> Option<Remedy> {
    let pools = view.guarded()?.filter_map(|pool| pool.pool().ok());
    let pool = pools.min_by_key(|pool| pool.spec.mode == Mode::Enforce)?;
    if pool.spec.mode == Mode::Enforce {
        return Some(Remedy::advice("wait until winpool has made the changes that winpool plan shows"));
    }
    let object = ObjectReference::windows_pool(&pool.name_any());
    let enforce = Remedy::of(vec![Edit::set(&["spec", "mode"], Mode::Enforce)]).undecided();
    let words = format!(" in {object}, which then makes the changes that winpool plan shows");
    Some(Remedy { object: Some(object), ..enforce.and(&words) })
}

/// Returns the change of the pool that manages this class with which its pods run on every node that runs their images.
pub(in crate::explain) fn compatible(class: &RuntimeClass, pools: &[impl Borrow<GuardedPool>]) -> Option<Remedy> {
    let is_owner = |pool: &&GuardedPool| pool.metadata.name.as_deref() == owner(class);
    let pool = pools.iter().map(Borrow::borrow).filter(|_| owner(class).is_some()).find(is_owner)?;
    Remedy::compatible(&pool.read().ok()?.spec, &class.name_any())
}

/// Makes a change of a pool.
pub(in crate::explain) fn apply(change: &Remedy, pools: &mut [GuardedPool]) {
    let name = change.object.as_ref().map(|object| &object.name);
    for pool in pools.iter_mut().filter(|pool| pool.metadata.name.as_ref() == name) {
        *pool = changed_pool(pool, |pool| {
            let mut object = json!({"spec": pool.spec});
            let patch = change.json_patch(&object, "");
            let changed = json_patch::patch(&mut object, &patch).ok().map(|()| object["spec"].take());
            if let Some(changed) = changed.and_then(|spec| serde_json::from_value::<WindowsPoolSpec>(spec).ok()) {
                pool.spec = changed;
            }
        });
    }
}
