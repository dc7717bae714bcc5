//! Requests that were not accepted, kinds that cannot be read, and writes that others revert: with the pauses before
//! winpool tries again. Nodes, RuntimeClasses, pools, pods and the Lease share them.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use thiserror::Error;

/// Pauses of which each is twice as long as the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pauses {
    pub first: Duration,
    pub longest: Duration,
}

/// After a request that failed.
pub const FAILED: Pauses = Pauses { first: Duration::from_millis(500), longest: Duration::from_mins(1) };
/// After a write that another writer reverts.
const REVERTED: Pauses = Pauses { first: Duration::from_secs(10), longest: Duration::from_mins(10) };

impl Pauses {
    /// The pause after this many failures in a row.
    pub fn after(self, failures: u32) -> Duration {
        let pause = |doublings: u32| self.longest.min(self.first * 2_u32.pow(doublings.min(10)));
        failures.checked_sub(1).map_or(Duration::ZERO, pause)
    }
}

/// One write that is sent until it is accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt<R = ()> {
    /// Its failures in a row.
    pub failures: u32,
    /// The reason and the end of the last pause, also of one that is over.
    pub last: Option<(R, Instant)>,
}

impl<R> Default for Attempt<R> {
    fn default() -> Self {
        Self { failures: 0, last: None }
    }
}

impl<R> Attempt<R> {
    /// Records a failure. Returns the pause before the next attempt.
    pub fn failed(&mut self, reason: R, pause: impl FnOnce(u32) -> Duration, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let pause = pause(self.failures);
        self.last = Some((reason, now + pause));
        pause
    }

    /// The reason and the end of the pause, unless it is over.
    pub fn pause(&self, now: Instant) -> Option<&(R, Instant)> {
        self.last.as_ref().filter(|(_, until)| now < *until)
    }
}

/// Makes a pause up to twice as long, by a name, so that requests which failed together are not sent together again.
pub fn with_jitter(pause: Duration, name: &str, failures: u32) -> Duration {
    let mut hasher = DefaultHasher::new();
    (name, failures).hash(&mut hasher);
    let part = f64::from(u16::try_from(hasher.finish() & 0xFFFF).unwrap_or_default()) / f64::from(u16::MAX);
    pause + pause.mul_f64(part)
}

/// The reason why a request to the API server was not accepted. Reads never fail with `Stale` or `Conflict`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// A `test` of the patch failed.
    #[error("the object has changed since it was read")]
    Stale,
    /// Another write came first, or an object with that name exists.
    #[error("another write came first")]
    Conflict,
    #[error("the object is gone")]
    Gone,
    /// The API server or one of its policies refuses this write, and will refuse it again.
    #[error("the API server refuses: {0}")]
    Denied(String),
    /// The API server did not answer, or failed; or this process does not lead, and the present leader plans and writes.
    #[error("{message}")]
    Failed { failure: Failure, message: String },
}

named! {
    /// The kind of a failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Failure {
        /// The API server cannot be reached, is busy, or failed.
        Failed = "failed",
        TimedOut = "timed_out",
        /// The API server does not accept the account.
        Unauthorized = "unauthorized",
        /// This process does not lead, or stopped leading before the answer.
        NotLeading = "not_leading",
    }
}

impl RequestError {
    /// All values of [`Self::as_str`].
    pub const REASONS: [&str; 8] =
        ["stale", "conflict", "gone", "denied", "failed", "timed_out", "unauthorized", "not_leading"];

    /// The error of a request that failed.
    pub fn failed(message: &str) -> Self {
        Self::Failed { failure: Failure::Failed, message: message.to_owned() }
    }

    /// The error in one word, for metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Denied(_) => "denied",
            Self::Failed { failure, .. } => failure.as_str(),
        }
    }

    /// The reason, as a message.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Denied(message) | Self::Failed { message, .. } => message,
            Self::Stale | Self::Conflict | Self::Gone => "the object keeps changing",
        }
    }

    /// True if the object has changed, or is gone, since the request was computed.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Stale | Self::Conflict | Self::Gone)
    }

    /// The pause after this many failures in a row.
    pub(crate) fn pause(&self, failures: u32, patience: Duration) -> Duration {
        match self {
            Self::Denied(message) => refusal_pause(message, patience),
            _ => FAILED.after(failures),
        }
    }
}

/// The pause after the API server refused a write with this message. A policy refuses the same write again. But administrators
/// give and take permissions at any time.
pub(crate) fn refusal_pause(message: &str, patience: Duration) -> Duration {
    // The text of the API server's authorizer: `User "x" cannot patch resource "nodes" in API group "" at the cluster scope`.
    let names_user = message.split_once("User \"").is_some_and(|(_, rest)| rest.contains("\" cannot "));
    if names_user { patience.min(FAILED.longest) } else { patience }
}

// Kinds that cannot be read at present. What the caches show of them may be old.

/// The time for which reads have to fail before they count. A restart of the API server is shorter.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same if no further attempt ends.
const PATIENCE_WITHOUT_ANSWER: Duration = Duration::from_mins(1);

/// Failures in a row of the lists and watches of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    since: Instant,
    last: Instant,
    /// The first of the last refusals in a row for lack of a permission.
    forbidden_since: Option<Instant>,
    /// The API server's message, or the error.
    pub message: String,
}

impl Outage {
    /// The outage after another failure; `before` is the outage so far.
    pub fn next(before: Option<&Self>, is_forbidden: bool, message: String, now: Instant) -> Self {
        let forbidden_since = before.and_then(|before| before.forbidden_since).unwrap_or(now);
        Self {
            since: before.map_or(now, |before| before.since),
            last: now,
            forbidden_since: is_forbidden.then_some(forbidden_since),
            message,
        }
    }

    /// True if the failures have lasted so long that status says so and no taint is added. An attempt that failed late
    /// proves it: after a short outage the next attempt may still be waiting for its turn.
    pub fn counts(&self, now: Instant) -> bool {
        self.last.duration_since(self.since) >= PATIENCE || now.duration_since(self.since) >= PATIENCE_WITHOUT_ANSWER
    }

    /// True if winpool has lacked a permission for so long. API servers that start refuse for a moment what they allow.
    pub fn is_forbidden(&self) -> bool {
        self.forbidden_since.is_some_and(|since| self.last.duration_since(since) >= PATIENCE)
    }
}

// Write conflicts: distinguishes a repair from another writer that keeps reverting winpool's changes.

/// This many writes of the same change within [`WINDOW`] are a conflict.
const WRITES: usize = 3;
const WINDOW: Duration = Duration::from_mins(10);

/// The accepted writes of one change to one object, with their times.
#[derive(Clone, Default, PartialEq)]
pub struct WriteConflict<T> {
    what: Option<T>,
    writes: VecDeque<Instant>,
    /// The number of writes since they are a conflict.
    conflicts: u32,
}

/// Shows only what decides: the end of a pause, and not the times of the writes before.
impl<T: fmt::Debug> fmt::Debug for WriteConflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.writes.back().filter(|_| self.is_conflict()).map(|last| *last + self.back_off());
        let mut conflict = f.debug_struct("WriteConflict");
        conflict.field("what", &self.what).field("writes", &self.writes.len());
        conflict.field("until", &until).finish_non_exhaustive()
    }
}

impl<T> WriteConflict<T> {
    fn is_conflict(&self) -> bool {
        self.writes.len() >= WRITES
    }

    fn back_off(&self) -> Duration {
        REVERTED.after(self.conflicts)
    }
}

impl<T: Default + PartialEq> WriteConflict<T> {
    /// Records that `what` was written, again or instead of another change.
    pub fn written(&mut self, what: T, now: Instant) {
        if self.what.as_ref() != Some(&what) {
            *self = Self { what: Some(what), ..Self::default() };
        }
        self.writes.push_back(now);
        while self.writes.front().is_some_and(|write| now.duration_since(*write) > WINDOW + self.back_off()) {
            self.writes.pop_front();
        }
        self.conflicts = if self.is_conflict() { self.conflicts + 1 } else { 0 };
    }

    /// The pause before `what` is written again, if another writer keeps reverting it.
    pub fn pause(&self, what: &T, now: Instant) -> Option<Duration> {
        let last = self.writes.back()?;
        let wait = (*last + self.back_off()).saturating_duration_since(now);
        (self.what.as_ref() == Some(what) && self.is_conflict() && !wait.is_zero()).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_writes_within_ten_minutes_are_a_conflict_and_pauses_grow() {
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
    fn repairs_that_are_far_apart_or_of_different_things_are_no_conflict() {
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
