//! The nodes that a class selects, now and next.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    plan::{
        capability_labels,
        pool_spec::Hosts,
        pools::Pool,
        reconcile::memory::Memory,
        runtime_class::{PlannedClass, selected_build},
        tally::Tally,
    },
    pod::selector_of,
    windows::Build,
};

use super::CachedCluster;

impl Memory {
    /// The classes that select a build whose capability label is not on all nodes that run its images. A label that nodes
    /// do not get by the published policy may be on none of them. If no node gets the label, for example because all are
    /// ignored, the class goes on selecting the build. A dry run shows the class as it will be.
    pub(super) fn unlabelled(
        &self,
        cluster: &CachedCluster<'_>,
        pool: &Pool,
        existing: &[Arc<RuntimeClass>],
        tally: &Tally,
    ) -> BTreeMap<String, (Build, usize)> {
        let published = self.published(&pool.spec.name);
        let unlabelled = existing.iter().filter(|_| pool.spec.enforces()).filter_map(|class| {
            let build = selected_build(class)?;
            let is_published = published.is_some_and(|published| published.images().contains(&build));
            let nodes = match tally.unlabelled(build) {
                0 if is_published => without_label(cluster, class, &capability_labels::key(build)),
                nodes => nodes,
            };
            (!is_published || nodes > 0).then(|| (class.name_any(), (build, nodes)))
        });
        unlabelled.collect()
    }
}

/// True if the class is about to select a build that no node of the pool has, instead of a capability label.
pub(super) fn leaves_its_pods(
    cluster: &CachedCluster<'_>,
    pool: &Pool,
    planned: &PlannedClass,
    class: &RuntimeClass,
) -> bool {
    let Hosts::Of(build) = planned.desired.hosts else { return false };
    !cluster.nodes.tally(&pool.spec.name).seen().builds.contains_key(&build)
        && selector_of(class).contains_key(&capability_labels::key(build))
}

/// The number of nodes that the class selects, if no node has this label.
fn without_label(cluster: &CachedCluster<'_>, class: &RuntimeClass, label: &str) -> usize {
    let (nodes, selector) = (|| cluster.nodes.nodes().map(|(object, _)| &object.node.labels), selector_of(class));
    if nodes().any(|labels| labels.get(label).is_some()) {
        return 0;
    }
    nodes().filter(|labels| labels.matches(&selector)).count()
}
