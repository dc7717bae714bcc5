//! The policy that nodes are judged by, published by the pool controller alone.
//!
//! A pool enters it only after its RuntimeClasses are right, so that a class tolerates a taint before the first node
//! gets it. Node reconciles see nothing of a pool but this. There is a policy only while this process leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
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
    /// Former policies by which nodes may still be written.
    former: Vec<Weak<Policy>>,
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

    /// Whether nothing is done any more by a policy other than the current one.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.lock().former.iter().all(|policy| policy.strong_count() == 0)
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
        let Published { pools, former, .. } = &mut *published;
        pools.retain(|name, _| valid.iter().any(|pool| pool.name == *name));
        if let Some(pool) = ready {
            pools.insert(pool.name.clone(), pool);
        }
        let entries = valid.iter().map(|pool| match pools.get(&pool.name) {
            Some(published) => Entry { pool: Arc::clone(published), ready: true },
            None => Entry { pool: Arc::clone(pool), ready: false },
        });
        let policy = Policy::new(entries, suspended.clone());
        self.policy.send_if_modified(|current| {
            let changed = current.as_deref() != Some(&policy);
            if changed {
                former.retain(|policy| policy.strong_count() > 0);
                former.extend(current.replace(Arc::new(policy)).as_ref().map(Arc::downgrade));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(name: &str) -> Arc<Pool> {
        let object = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": {},
        });
        Arc::new(Pool::read(&serde_json::from_value(object).unwrap()).unwrap())
    }

    #[test]
    fn work_by_a_former_policy_is_known_until_it_ends() {
        let publisher = Publisher::new();
        publisher.open(1);
        let suspended = BTreeSet::new();
        publisher.publish(None, &[pool("a")], &suspended);
        let by_the_first = publisher.current();
        assert!(publisher.is_settled(), "it is the current one");
        publisher.publish(None, &[pool("a")], &suspended);
        assert!(publisher.is_settled(), "nothing changed");

        publisher.publish(None, &[pool("b")], &suspended);
        let by_the_second = publisher.current();
        assert!(!publisher.is_settled());
        publisher.publish(None, &[pool("c")], &suspended);
        drop(by_the_first);
        assert!(!publisher.is_settled());
        drop(by_the_second);
        assert!(publisher.is_settled());
    }
}
