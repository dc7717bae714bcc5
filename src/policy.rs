//! The policy that nodes are judged by, published by the pool controller alone.
//!
//! A pool enters it only after its RuntimeClasses are right, so that a class tolerates a taint before the first node
//! gets it. Node reconciles see nothing of a pool but this.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use winpool_core::plan::{Entry, Policy, Pool};

/// Where the pool controller publishes and everyone else reads.
pub struct Publisher {
    published: Mutex<BTreeMap<String, Arc<Pool>>>,
    policy: watch::Sender<Option<Arc<Policy>>>,
}

impl Publisher {
    /// Without a policy: nothing is written.
    #[must_use]
    pub fn new() -> Self {
        Self { published: Mutex::default(), policy: watch::Sender::new(None) }
    }

    /// The policy as it is now, and every change of it.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Policy>>> {
        self.policy.subscribe()
    }

    /// The policy as it is now; `None` until the first one is published.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Policy>> {
        self.policy.borrow().clone()
    }

    /// The form of this pool that nodes are judged by now.
    #[must_use]
    pub fn published(&self, name: &str) -> Option<Arc<Pool>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Publishes `ready`, if given, and drops pools that are no more. Valid pools that were never ready yet hold the
    /// nodes that they select; `suspended` ones keep what they have.
    pub fn publish(&self, ready: Option<Arc<Pool>>, valid: &[Arc<Pool>], suspended: &BTreeSet<String>) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.retain(|name, _| valid.iter().any(|pool| pool.name == *name));
        if let Some(pool) = ready {
            published.insert(pool.name.clone(), pool);
        }
        let entries = valid.iter().map(|pool| match published.get(&pool.name) {
            Some(published) => Entry { pool: Arc::clone(published), ready: true },
            None => Entry { pool: Arc::clone(pool), ready: false },
        });
        let policy = Policy::new(entries, suspended.clone());
        self.policy.send_if_modified(|current| {
            let changed = current.as_deref() != Some(&policy);
            if changed {
                *current = Some(Arc::new(policy));
            }
            changed
        });
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}
