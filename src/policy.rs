//! The policy that nodes are judged by, published by the pool controller alone.
//!
//! A pool enters it only after its RuntimeClasses are right, so that a class tolerates a taint before the first node
//! gets it. Node reconciles see nothing of a pool but this. There is a policy only while this process leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use winpool_core::plan::{Entry, Policy, Pool};

/// Where the pool controller publishes and everyone else reads.
pub struct Publisher {
    published: Mutex<Published>,
    policy: watch::Sender<Option<Arc<Policy>>>,
}

#[derive(Default)]
struct Published {
    /// The term of leadership in which all this was published.
    term: Option<u64>,
    pools: BTreeMap<String, Arc<Pool>>,
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

    /// A term of leadership begins. Nothing is published yet.
    pub fn open(&self, term: u64) {
        *self.lock() = Published { term: Some(term), ..Published::default() };
        self.policy.send_replace(None);
    }

    /// Leadership ended: there is no policy any more, and none can be published.
    pub fn withdraw(&self) {
        *self.lock() = Published::default();
        self.policy.send_replace(None);
    }

    /// The term of leadership that is open.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.lock().term
    }

    /// The policy as it is now; `None` until the first one is published.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Policy>> {
        self.policy.borrow().clone()
    }

    /// The form of this pool that nodes are judged by now.
    #[must_use]
    pub fn published(&self, name: &str) -> Option<Arc<Pool>> {
        self.lock().pools.get(name).cloned()
    }

    /// Publishes `ready`, if given, and drops pools that are no more. Valid pools that were never ready yet hold the
    /// nodes that they select; `suspended` ones keep what they have. Does nothing while no term is open.
    pub fn publish(&self, ready: Option<Arc<Pool>>, valid: &[Arc<Pool>], suspended: &BTreeSet<String>) {
        let mut published = self.lock();
        if published.term.is_none() {
            return;
        }
        let published = &mut published.pools;
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

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}
