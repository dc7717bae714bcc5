//! The policy that nodes are assessed by. The pool controller publishes it, and all others read it.
//!
//! Node reconciles know nothing else about a pool. There is a policy only while this process leads.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;
use winpool_core::plan::Policy;

/// Holds the published policy. Without one, nothing is written.
#[derive(Default)]
pub struct Publisher {
    published: Mutex<Published>,
    policy: watch::Sender<Option<Arc<Policy>>>,
}

#[derive(Default)]
struct Published {
    /// The term of leadership in which it was published.
    term: Option<u64>,
    /// Former policies by which nodes may still be written.
    former: Vec<Weak<Policy>>,
}

impl Publisher {
    /// Receives the current policy and every change.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Policy>>> {
        self.policy.subscribe()
    }

    /// Begins a term of leadership, without a policy.
    pub fn open(&self, term: u64) {
        *self.published.lock() = Published { term: Some(term), ..Published::default() };
        self.policy.send_replace(None);
    }

    /// Ends the term: removes the policy, and refuses new ones.
    pub fn withdraw(&self) {
        *self.published.lock() = Published::default();
        self.policy.send_replace(None);
    }

    /// The open term of leadership.
    pub fn term(&self) -> Option<u64> {
        self.published.lock().term
    }

    /// The current policy; `None` until the first one is published.
    pub fn current(&self) -> Option<Arc<Policy>> {
        self.policy.borrow().clone()
    }

    /// True if no reconcile uses an older policy any more.
    pub fn is_settled(&self) -> bool {
        self.published.lock().former.iter().all(|policy| policy.strong_count() == 0)
    }

    /// Publishes this policy. Does nothing while no term is open.
    pub fn publish(&self, policy: Arc<Policy>) {
        let mut published = self.published.lock();
        if published.term.is_none() {
            return;
        }
        published.former.retain(|policy| policy.strong_count() > 0);
        let former = self.policy.send_replace(Some(policy));
        published.former.extend(former.as_ref().map(Arc::downgrade));
    }
}

#[cfg(test)]
mod tests {
    use winpool_core::plan::PoolEntry;

    use super::*;

    fn policy() -> Arc<Policy> {
        Arc::new(Policy::new(Vec::<PoolEntry>::new(), [].into()))
    }

    #[test]
    fn work_by_a_former_policy_is_known_until_it_ends() {
        let publisher = Publisher::default();
        publisher.open(1);
        publisher.publish(policy());
        let by_the_first = publisher.current();
        assert!(publisher.is_settled(), "it is the current one");
        publisher.publish(policy());
        let by_the_second = publisher.current();
        assert!(!publisher.is_settled());
        publisher.publish(policy());
        drop(by_the_first);
        assert!(!publisher.is_settled());
        drop(by_the_second);
        assert!(publisher.is_settled());
    }
}
