//! The workloads of each Windows version, in the groups of `winpool blockers`.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Product};

use crate::explain::blockers::{Blocker, Evidence, Group, group, pool_blockers};
use crate::explain::groups::{Grouped, Groups, order};
use crate::lint::Facts;
use crate::view::View;

use super::order::by_namespace;

/// The workloads that need a Windows version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionWorkloads {
    /// The build of the version.
    pub build: String,
    /// The product of the build.
    pub product: String,
    /// The product to move to.
    pub move_to: String,
    /// The workloads and pools that are pinned to the version.
    pub pinned: Vec<Grouped<Blocker>>,
    /// Workloads that run there or can be scheduled there. winpool cannot tell if they run on other nodes.
    pub unknown: Vec<Grouped<UnclearWorkload>>,
    /// Workloads that also run on the version to move to.
    pub can_move: Vec<Grouped<MovableWorkload>>,
}

/// A workload of which winpool cannot tell if it runs on other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnclearWorkload {
    /// The workload.
    pub object: ObjectReference,
    /// The missing information, and how to get it.
    pub reason: String,
}

/// A workload that also runs on nodes of another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MovableWorkload {
    /// The workload.
    pub object: ObjectReference,
    /// The evidence.
    pub evidence: Evidence,
}

impl VersionWorkloads {
    fn of(product: &Product, target: &Product) -> Self {
        let (build, product, move_to) = (product.build.to_string(), product.name.to_owned(), target.name.to_owned());
        Self { build, product, move_to, ..Self::default() }
    }

    /// True if nothing is known to keep the version.
    pub fn is_clear(&self) -> bool {
        self.pinned.is_empty() && self.unknown.is_empty()
    }
}

/// True if winpool saw workloads, or saw that there are none.
pub(super) fn are_known(view: &View) -> bool {
    !view.written.is_empty() || view.workloads.refused().is_empty() && view.pods.known().is_some()
}

/// Returns the versions of the nodes that a newer one can replace, and other versions to which something is pinned.
pub(super) fn by_version(
    view: &View,
    facts: &Facts,
    move_to: Option<&'static Product>,
    groups: Option<&Groups>,
) -> Vec<VersionWorkloads> {
    let (grouped, there): (_, BTreeSet<Build>) = (Grouping(groups), facts.builds().into_keys().collect());
    let mut versions: Vec<_> =
        builds::all().iter().filter_map(|product| Some((product, target(product, move_to, &there)?))).collect();
    let is_of_nodes = |product: &Product| there.contains(&product.build);
    // Releases of the Semi-Annual Channel are of interest only where nodes have them.
    versions.retain(|(product, _)| product.is_ltsc || is_of_nodes(product));
    let mut found: Vec<VersionWorkloads> =
        versions.iter().map(|(product, target)| VersionWorkloads::of(product, target)).collect();
    for (version, (product, target)) in found.iter_mut().zip(&versions) {
        for guarded in view.guarded().into_iter().flatten() {
            let blocker =
                guarded.pool().ok().and_then(|pool| pool_blockers(pool, facts, product.build, Some(target.build)));
            version.pinned.extend(blocker.map(|blocker| grouped.of(&blocker.object.clone(), blocker)));
        }
    }
    let started = view.started();
    view.written.each(|_, workload| {
        for (version, (product, target)) in found.iter_mut().zip(&versions) {
            let object = || workload.object();
            match group(workload, facts, &started, product.build, Some(target.build)) {
                Some(Group::Pinned(blocker)) => version.pinned.push(grouped.of(&object(), blocker)),
                Some(Group::Unknown(reason)) => {
                    version.unknown.push(grouped.of(&object(), UnclearWorkload { object: object(), reason }));
                }
                Some(Group::CanMove(evidence)) => {
                    version.can_move.push(grouped.of(&object(), MovableWorkload { object: object(), evidence }));
                }
                None => {}
            }
        }
    });
    let builds: BTreeSet<String> = there.iter().map(Build::to_string).collect();
    found.retain(|version| builds.contains(&version.build) || !version.pinned.is_empty());
    for version in &mut found {
        version.pinned.sort_by_cached_key(|it| (order(it.group.as_deref()), by_namespace(&it.object)));
        version.unknown.sort_by_cached_key(|it| (order(it.group.as_deref()), by_namespace(&it.object)));
        version.can_move.sort_by_cached_key(|it| (order(it.group.as_deref()), by_namespace(&it.object)));
    }
    found
}

/// The groups, if they were asked for.
struct Grouping<'g>(Option<&'g Groups>);

impl Grouping<'_> {
    fn of<T>(&self, object: &ObjectReference, found: T) -> Grouped<T> {
        Grouped { found, group: self.0.and_then(|groups| groups.group(object)) }
    }
}

/// The version that replaces this one: the wanted one if it is newer, or else the next release with long-term support that nodes
/// have, or else the next one.
fn target(product: &Product, wanted: Option<&'static Product>, there: &BTreeSet<Build>) -> Option<&'static Product> {
    let newer = || builds::all().iter().filter(|next| next.is_ltsc && next.build > product.build);
    let next = || newer().find(|next| there.contains(&next.build)).or_else(|| newer().next());
    match wanted {
        Some(wanted) => Some(wanted).filter(|wanted| wanted.build > product.build),
        None => next(),
    }
}
