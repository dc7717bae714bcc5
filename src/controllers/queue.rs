//! The order in which nodes are reconciled.
//!
//! The controller of kube-runtime takes the next object from a hash set: when many nodes join at once, some wait until all
//! others are done. It also starts every reconcile with a timer, which costs a millisecond.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(1);

/// The names of objects to reconcile: first in, first out. A name is in it once, and is never given out twice at the same time.
#[derive(Default)]
pub struct Queue {
    ready: VecDeque<Arc<str>>,
    waiting: BTreeSet<(Instant, Arc<str>)>,
    entries: HashMap<Arc<str>, Entry>,
}

struct Entry {
    state: State,
    /// The back-off of an object whose last reconcile failed.
    backoff: Option<ExponentialBackoff>,
}

#[derive(Clone, Copy)]
enum State {
    Ready,
    Running { added_meanwhile: bool },
    Waiting { until: Instant },
}

impl Queue {
    /// Adds an object that changed. One that failed keeps waiting: an event is no reason to try earlier.
    pub fn add(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else {
            let name: Arc<str> = name.into();
            self.entries.insert(Arc::clone(&name), Entry { state: State::Ready, backoff: None });
            return self.ready.push_back(name);
        };
        match &mut entry.state {
            State::Running { added_meanwhile } => *added_meanwhile = true,
            State::Waiting { .. } if entry.backoff.is_none() => self.hasten(name),
            State::Ready | State::Waiting { .. } => {}
        }
    }

    /// Gives out the next name. The caller reports the result with [`Self::done`], [`Self::again_after`] or [`Self::failed`].
    pub fn next(&mut self, now: Instant) -> Option<Arc<str>> {
        while self.wake_at().is_some_and(|until| until <= now)
            && let Some((_, name)) = self.waiting.pop_first()
        {
            self.hasten(&name);
        }
        let name = self.ready.pop_front()?;
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.state = State::Running { added_meanwhile: false };
        }
        Some(name)
    }

    /// The time at which the next object that waits is ready.
    pub fn wake_at(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// The reconcile succeeded.
    pub fn done(&mut self, name: &str) {
        if let Some((name, Entry { state: State::Running { added_meanwhile: true }, .. })) =
            self.entries.remove_entry(name)
        {
            self.add(&name);
        }
    }

    /// The reconcile succeeded, and the object is due again after this time, or earlier if it changes.
    pub fn again_after(&mut self, name: &str, wait: Duration, now: Instant) {
        self.done(name);
        if !self.entries.contains_key(name) {
            self.wait(name.into(), now + wait, None);
        }
    }

    /// The reconcile failed. Returns the time until the next one: exponential back-off with jitter.
    pub fn failed(&mut self, name: &str, now: Instant) -> Duration {
        let mut backoff = self.entries.remove(name).and_then(|entry| entry.backoff).unwrap_or_else(|| {
            let builder = ExponentialBuilder::new().with_min_delay(FIRST).with_max_delay(LONGEST);
            builder.with_jitter().without_max_times().build()
        });
        let wait = backoff.next().unwrap_or(LONGEST);
        self.wait(name.into(), now + wait, Some(backoff));
        wait
    }

    /// Forgets the failures of an object that is gone: another one of that name does not wait.
    pub fn forget(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.backoff = None;
        if let State::Waiting { until } = entry.state
            && let Some((name, _)) = self.entries.remove_entry(name)
        {
            self.waiting.remove(&(until, name));
        }
    }

    /// Forgets the failures of objects that are not among `names`.
    pub fn retain(&mut self, names: &BTreeSet<&str>) {
        let gone = self.entries.keys().filter(|name| !names.contains(&***name)).map(Arc::clone);
        for name in gone.collect::<Vec<_>>() {
            self.forget(&name);
        }
    }

    /// Forgets all failures: what waits is ready.
    pub fn forgive(&mut self) {
        let waiting: Vec<_> = self.waiting.iter().map(|(_, name)| Arc::clone(name)).collect();
        for name in waiting {
            self.hasten(&name);
        }
        self.entries.values_mut().for_each(|entry| entry.backoff = None);
    }

    /// Makes a name that waits ready.
    fn hasten(&mut self, name: &str) {
        let Some((name, mut entry)) = self.entries.remove_entry(name) else { return };
        if let State::Waiting { until } = std::mem::replace(&mut entry.state, State::Ready) {
            self.waiting.remove(&(until, Arc::clone(&name)));
            self.ready.push_back(Arc::clone(&name));
        }
        self.entries.insert(name, entry);
    }

    fn wait(&mut self, name: Arc<str>, until: Instant, backoff: Option<ExponentialBackoff>) {
        self.waiting.insert((until, Arc::clone(&name)));
        self.entries.insert(name, Entry { state: State::Waiting { until }, backoff });
    }
}

#[cfg(test)]
mod tests {
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
            queue.done(name);
        }
        assert_eq!(given_out(&mut queue, now), ["a"].map(Arc::from), "it changed meanwhile");
    }

    #[test]
    fn an_object_that_is_due_later_is_returned_then_or_when_it_changes() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for changes in [false, true] {
            queue.add("a");
            queue.next(now);
            queue.again_after("a", SECOND, now);
            assert_eq!((queue.next(now), queue.wake_at()), (None, Some(now + SECOND)));
            let at = if changes {
                queue.add("a");
                now
            } else {
                now + SECOND
            };
            assert_eq!((queue.next(at).as_deref(), queue.next(at)), (Some("a"), None));
            queue.done("a");
            assert_eq!(queue.wake_at(), None);
        }
    }

    #[test]
    fn an_object_that_failed_waits_longer_each_time_whatever_happens_to_it() {
        let (mut queue, mut now, mut last) = (Queue::default(), Instant::now(), Duration::ZERO);
        queue.add("a");
        for failures in 0..12 {
            assert_eq!(queue.next(now).as_deref(), Some("a"), "after {failures} failures");
            queue.add("a");
            last = queue.failed("a", now);
            assert!(failures > 0 || (last >= FIRST && last <= FIRST * 2), "{last:?}");
            queue.add("a");
            assert_eq!(queue.next(now), None);
            now += last;
        }
        assert!(last >= LONGEST, "{last:?}");
    }

    #[test]
    fn failures_are_forgotten_after_success_and_with_the_object() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let succeeds: fn(&mut Queue) = |queue| {
            queue.next(Instant::now() + LONGEST * 40);
            queue.done("a");
        };
        let ends: [fn(&mut Queue); 4] =
            [succeeds, |queue| queue.forget("a"), |queue| queue.retain(&["b"].into()), Queue::forgive];
        for end in ends {
            queue.add("a");
            queue.next(now);
            for failures in 1..12 {
                queue.failed("a", now);
                queue.next(now + failures * 2 * LONGEST);
            }
            queue.failed("a", now);
            queue.retain(&["a"].into());
            assert_eq!(queue.next(now), None, "it waits");
            end(&mut queue);
            queue.add("a");
            assert_eq!(queue.next(now).as_deref(), Some("a"));
            assert!(queue.failed("a", now) <= FIRST * 2);
            queue.forget("a");
        }
    }
}
