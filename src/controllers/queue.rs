//! The order in which nodes are reconciled.
//!
//! The controller of kube-runtime takes the next object from a hash set: when many nodes join at once, some wait until all
//! others are done. It also starts every reconcile with a timer, which costs a millisecond.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The names of objects to reconcile: first in, first out. A name is in it once, and is never given out twice at the same
/// time.
#[derive(Default)]
pub struct Queue {
    ready: VecDeque<Arc<str>>,
    waiting: BTreeSet<(Instant, Arc<str>)>,
    states: HashMap<Arc<str>, QueueState>,
}

#[derive(Clone, Copy)]
enum QueueState {
    Ready,
    Running { added_meanwhile: bool },
    Waiting { until: Instant },
}

impl Queue {
    /// Adds an object that is due.
    pub fn add(&mut self, name: &str) {
        match self.states.get_mut(name) {
            Some(QueueState::Ready) => {}
            Some(QueueState::Running { added_meanwhile }) => *added_meanwhile = true,
            Some(QueueState::Waiting { until }) => {
                let until = *until;
                self.waiting.remove(&(until, name.into()));
                self.make_ready(name.into());
            }
            None => self.make_ready(name.into()),
        }
    }

    /// Gives out the next name. The caller reports the end of its work with [`Self::done`].
    pub fn next(&mut self, now: Instant) -> Option<Arc<str>> {
        while self.wake_at().is_some_and(|until| until <= now)
            && let Some((_, name)) = self.waiting.pop_first()
        {
            self.make_ready(name);
        }
        let name = self.ready.pop_front()?;
        self.states.insert(Arc::clone(&name), QueueState::Running { added_meanwhile: false });
        Some(name)
    }

    /// The time at which the next object that waits is ready.
    pub fn wake_at(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// Takes back a name. The object is due again at this moment, if there is one, or when it is added.
    pub fn done(&mut self, name: &str, until: Option<Instant>) {
        let Some((name, state)) = self.states.remove_entry(name) else { return };
        match (state, until) {
            (QueueState::Running { added_meanwhile: true }, _) => self.make_ready(name),
            (_, Some(until)) => {
                self.waiting.insert((until, Arc::clone(&name)));
                self.states.insert(name, QueueState::Waiting { until });
            }
            (_, None) => {}
        }
    }

    fn make_ready(&mut self, name: Arc<str>) {
        self.states.insert(Arc::clone(&name), QueueState::Ready);
        self.ready.push_back(name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn given_out(queue: &mut Queue, now: Instant) -> Vec<Arc<str>> {
        std::iter::from_fn(|| queue.next(now)).collect()
    }

    #[test]
    fn names_are_returned_once_and_in_order() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["c", "a", "b", "a", "c"] {
            queue.add(name);
        }
        assert_eq!(given_out(&mut queue, now), ["c", "a", "b"].map(Arc::from));
        queue.add("a");
        assert_eq!(queue.next(now), None, "it is given out already");
        for name in ["a", "b", "c"] {
            queue.done(name, None);
        }
        assert_eq!(given_out(&mut queue, now), ["a"].map(Arc::from), "it was added meanwhile");
    }

    #[test]
    fn an_object_that_is_due_later_is_returned_then_or_when_it_is_added() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for is_added in [false, true] {
            queue.add("a");
            queue.next(now);
            queue.done("a", Some(now + SECOND));
            assert_eq!((queue.next(now), queue.wake_at()), (None, Some(now + SECOND)));
            let at = if is_added {
                queue.add("a");
                now
            } else {
                now + SECOND
            };
            assert_eq!((queue.next(at).as_deref(), queue.next(at)), (Some("a"), None));
            queue.done("a", None);
            assert_eq!(queue.wake_at(), None);
        }
    }
}
