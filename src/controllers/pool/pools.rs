//! All pools of the cluster, read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use winpool_core::{
    api::Taint,
    plan::{Entry, InvalidPool, Policy, Pool},
};

use crate::controllers::Context;

/// All pools of the cluster, read.
pub(super) struct Pools {
    valid: Vec<Arc<Pool>>,
    pub invalid: BTreeMap<String, InvalidPool>,
}

impl Pools {
    /// Reads the cached pools. `held` are the taints that a pool may not put on yet.
    pub fn read(context: &Context, held: impl Fn(&Pool) -> BTreeSet<Taint>) -> Self {
        let (mut valid, mut invalid) = (Vec::new(), BTreeMap::new());
        for guarded in context.pools.state() {
            match guarded.read() {
                Ok(pool) => valid.push(Arc::new(Pool { held: held(&pool), ..pool })),
                Err(error) => {
                    invalid.insert(error.name.clone(), error);
                }
            }
        }
        Self { valid, invalid }
    }

    /// Publishes `ready`, if given, and what became of the others.
    pub fn publish(&self, ready: Option<Arc<Pool>>, context: &Context) {
        let suspended: BTreeSet<String> = self.invalid.keys().cloned().collect();
        context.metrics.keep_pools(|name| suspended.contains(name) || self.valid.iter().any(|pool| pool.name == name));
        if context.synced.all() {
            context.policy.publish(ready, &self.valid, &suspended);
        }
    }

    /// What nodes would be judged by if all pools were ready.
    pub fn as_written(&self) -> Policy {
        let entries = self.valid.iter().map(|pool| Entry { pool: Arc::clone(pool), ready: true });
        Policy::new(entries, self.invalid.keys().cloned().collect())
    }
}
