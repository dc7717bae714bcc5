//! Manifests, and the cluster that they are for.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use kube::ResourceExt;
use winpool_core::plan::pools::pool::GuardedPool;

use super::{Known, Placed, View, Workload, changed_pool};

impl View {
    /// Returns this cluster once these manifests are applied, with what only the manifests show.
    #[must_use]
    pub fn with_applied(mut self, manifests: Self) -> Self {
        for pool in manifests.pools.known().into_iter().flatten() {
            propose(&mut self.pools, pool.clone());
        }
        let classes = manifests.classes.known().map_or(&[][..], Vec::as_slice);
        replace(&mut self.classes, classes, |class| class.name_any());
        let nodes = manifests.nodes.known().map_or(&[][..], Vec::as_slice);
        replace(&mut self.nodes, nodes, |node| Arc::clone(&node.object.name));
        let key = |workload: &Workload| (workload.namespace.clone(), workload.name.clone(), workload.path.clone());
        for (kind, workloads) in manifests.workloads.by_kind() {
            replace(self.workloads.of_kind(kind), workloads, key);
        }
        self.namespace_labels.extend(manifests.namespace_labels);
        Arc::make_mut(&mut self.related).extend(Arc::unwrap_or_clone(manifests.related));
        let pods = if self.pods == Known::NotRead { manifests.pods } else { self.pods };
        let mut applied = Self {
            kubernetes: manifests.kubernetes.or(self.kubernetes),
            nodes: self.nodes,
            pools: self.pools,
            classes: self.classes,
            workloads: self.workloads,
            namespace_labels: self.namespace_labels,
            related: self.related,
            pods,
            ..manifests
        };
        applied.sort();
        applied
    }

    /// Returns the view of a whole cluster: a node, a pool or a RuntimeClass that it does not have is not there.
    #[must_use]
    pub fn complete(mut self) -> Self {
        self.nodes = Known::Complete(self.nodes.known_mut().map(mem::take).unwrap_or_default());
        self.pools = Known::Complete(self.pools.known_mut().map(mem::take).unwrap_or_default());
        self.classes = Known::Complete(self.classes.known_mut().map(mem::take).unwrap_or_default());
        self
    }
}

/// Adds objects to those that are known. They take the places of others with the same key.
fn replace<'a, T: Clone + 'a, K: Ord>(
    known: &mut Known<Vec<T>>,
    by: impl IntoIterator<Item = &'a T> + Clone,
    key: impl Fn(&T) -> K,
) {
    let keys: BTreeSet<K> = by.clone().into_iter().map(&key).collect();
    known.known_mut().into_iter().for_each(|objects| objects.retain(|object| !keys.contains(&key(object))));
    by.into_iter().for_each(|object| known.add(object.clone()));
}

/// Adds a proposed pool to those of the cluster, or replaces the pool with its name.
fn propose(pools: &mut Known<Vec<Placed<GuardedPool>>>, (source, proposed): Placed<GuardedPool>) {
    let mut named = pools.known_mut().into_iter().flatten();
    match named.find(|(_, pool)| pool.metadata.name == proposed.metadata.name) {
        // The metadata and the status stay, also with a spec that cannot be decoded.
        Some((of, existing)) => {
            let (metadata, status) = (existing.metadata.clone(), existing.status.clone());
            *existing = changed_pool(&proposed, |pool| {
                (pool.metadata, pool.status) = (metadata.clone(), status.clone());
            });
            (existing.metadata, existing.status, *of) = (metadata, status, source);
        }
        None => pools.add((source, proposed)),
    }
}
