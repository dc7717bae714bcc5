//! The pool and the RuntimeClasses that a check has read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::api::node::v1::RuntimeClass;

use crate::{
    api::names,
    plan::{pools::Pool, reconcile::step::CachedCluster},
    pod::Class,
};

/// The objects that a check depends on: if they changed, its result is void.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Basis {
    pub(super) generation: Option<i64>,
    /// The labels of all nodes of the pool.
    selector: BTreeMap<String, String>,
    classes: Arc<ReadClasses>,
}

/// RuntimeClasses by name.
pub(super) type ReadClasses = BTreeMap<String, ReadClass>;

/// A RuntimeClass of which a check reads only the [`Class`].
#[derive(Clone)]
pub(super) struct ReadClass(Arc<RuntimeClass>);

impl PartialEq for ReadClass {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl fmt::Debug for ReadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Class::from(self.0.as_ref()).fmt(f)
    }
}

impl ReadClass {
    /// True if a check would read the same of the other class.
    fn is(&self, other: &Arc<RuntimeClass>) -> bool {
        Arc::ptr_eq(&self.0, other) || Class::from(self.0.as_ref()) == Class::from(other.as_ref())
    }
}

/// The present classes. All pools of one check share them.
pub(super) fn read(cluster: &CachedCluster<'_>) -> Arc<ReadClasses> {
    let classes = cluster.classes.iter().map(|class| (name(class).to_owned(), ReadClass(Arc::clone(class))));
    Arc::new(classes.collect())
}

fn name(class: &RuntimeClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

impl Basis {
    pub(super) fn new(generation: Option<i64>, pool: &Pool, classes: Arc<ReadClasses>) -> Self {
        let mut selector = pool.spec.node_selector.clone();
        selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
        Self { generation, selector, classes }
    }

    /// True if all classes that concern the pool are unchanged. New ones may have come.
    pub(in super::super) fn stands(&self, cluster: &CachedCluster<'_>) -> bool {
        let is_unchanged = |class: &Arc<RuntimeClass>| {
            let known = self.classes.get(name(class));
            known.is_none_or(|known| known.is(class) || !self.concerns(&known.0) && !self.concerns(class))
        };
        let are_there = || {
            let present: BTreeSet<&str> = cluster.classes.iter().map(|class| name(class)).collect();
            self.classes.iter().all(|(name, known)| present.contains(name.as_str()) || !self.concerns(&known.0))
        };
        cluster.classes.iter().all(is_unchanged) && are_there()
    }

    /// True if all classes that concern the pool are unchanged, and none has come.
    pub(super) fn is_current(&self, cluster: &CachedCluster<'_>) -> bool {
        let is_new = |class: &RuntimeClass| !self.classes.contains_key(name(class)) && self.concerns(class);
        self.stands(cluster) && !cluster.classes.iter().any(|class| is_new(class))
    }

    /// True if pods of the class may be scheduled to nodes of the pool. The API server adds the selector of the class to
    /// each of its pods, or refuses the pod, so no pod of another class can lose a node by a taint of the pool.
    fn concerns(&self, class: &RuntimeClass) -> bool {
        let mut selector = class.scheduling.iter().flat_map(|scheduling| scheduling.node_selector.iter().flatten());
        selector.all(|(key, value)| self.selector.get(key).is_none_or(|of_pool| of_pool == value))
    }
}
