//! Kinds that cannot be read at present. What the caches show of them may be old.

use std::time::{Duration, Instant};

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
    message: String,
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

    pub fn message(&self) -> &str {
        &self.message
    }
}
