//! Write conflicts: distinguishes a repair from another writer that keeps reverting winpool's changes.

use std::{
    borrow::Borrow,
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

/// This many writes of the same change within [`WINDOW`] are a conflict.
const WRITES: usize = 3;
const WINDOW: Duration = Duration::from_mins(10);
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// The accepted writes of one change to one object, with their times.
#[derive(Clone, Default, PartialEq)]
pub struct WriteConflict<T> {
    what: Option<T>,
    writes: VecDeque<Instant>,
    pause: Duration,
}

/// Shows only what decides: the end of a pause, and not the times of the writes before.
impl<T: fmt::Debug> fmt::Debug for WriteConflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.writes.back().filter(|_| self.writes.len() >= WRITES).map(|last| *last + self.pause);
        let mut conflict = f.debug_struct("WriteConflict");
        conflict.field("what", &self.what).field("writes", &self.writes.len()).field("until", &until).finish()
    }
}

impl<T: Default + PartialEq> WriteConflict<T> {
    /// Records that `what` was written, again or instead of another change.
    pub fn written(&mut self, what: T, now: Instant) {
        if self.what.as_ref() != Some(&what) {
            *self = Self { what: Some(what), ..Self::default() };
        }
        let was_a_fight = self.is_a_fight();
        self.writes.push_back(now);
        while self.writes.front().is_some_and(|write| now.duration_since(*write) > WINDOW + self.pause) {
            self.writes.pop_front();
        }
        self.pause = match (self.is_a_fight(), was_a_fight) {
            (false, _) => Duration::ZERO,
            (true, false) => FIRST_PAUSE,
            (true, true) => LONGEST_PAUSE.min(self.pause * 2),
        };
    }

    /// True if the last write may still count.
    pub fn is_recent(&self, now: Instant) -> bool {
        self.writes.back().is_some_and(|last| now.duration_since(*last) <= WINDOW + self.pause)
    }

    fn is_a_fight(&self) -> bool {
        self.writes.len() >= WRITES
    }

    /// The pause before `what` is written again, if another writer keeps reverting it.
    pub fn pause<W>(&self, what: &W, now: Instant) -> Option<Duration>
    where
        T: Borrow<W>,
        W: PartialEq + ?Sized,
    {
        let last = self.writes.back()?;
        let wait = (*last + self.pause).saturating_duration_since(now);
        (self.what.as_ref().map(Borrow::borrow) == Some(what) && self.is_a_fight() && !wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_writes_within_ten_minutes_are_a_fight_and_pauses_grow() {
        let start = Instant::now();
        let mut conflict = WriteConflict::default();
        conflict.written("taint", start);
        assert_eq!(conflict.pause(&"taint", start), None);
        conflict.written("taint", start + SECOND);
        assert_eq!(conflict.pause(&"taint", start + SECOND), None);
        let mut now = start + 2 * SECOND;
        conflict.written("taint", now);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = conflict.pause(&"taint", now).unwrap();
            pauses.push(pause.as_secs());
            assert_eq!(conflict.pause(&"label", now), None, "another change does not count");
            now += pause;
            assert_eq!(conflict.pause(&"taint", now), None);
            conflict.written("taint", now);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    }

    #[test]
    fn repairs_that_are_far_apart_or_of_different_things_are_no_fight() {
        let start = Instant::now();
        let mut conflict = WriteConflict::default();
        for number in 0..20 {
            let now = start + number * Duration::from_mins(6);
            conflict.written(0, now);
            assert_eq!(conflict.pause(&0, now), None, "{number}");
        }
        let mut conflict = WriteConflict::default();
        for number in 1..20 {
            conflict.written(number, start);
            assert_eq!(conflict.pause(&number, start), None, "{number}");
        }
    }
}
