//! Keeps the model small and fast: one copy of each value, results that are computed once, and versions that a cache
//! may still show.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A shared value. It is compared, hashed and copied by its number.
pub struct Shared<T>(Arc<(usize, T)>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.0 == other.0.0
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.0.hash(state);
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0.0)
    }
}

/// The store of the copies.
pub type Copies<K, T> = Mutex<HashMap<K, Shared<T>>>;

/// The copy of the value with this key.
pub fn share<K: Eq + Hash, T>(copies: &Copies<K, T>, key: K, make: impl FnOnce(&K) -> T) -> Shared<T> {
    let mut copies = copies.lock().unwrap();
    if let Some(known) = copies.get(&key) {
        return known.clone();
    }
    let copy = Shared(Arc::new((copies.len(), make(&key))));
    copies.entry(key).or_insert(copy).clone()
}

/// Results that are computed once.
pub type Results<K, V> = Mutex<HashMap<K, V>>;

/// The result for this key.
pub fn once<K: Eq + Hash, V: Clone>(results: &Results<K, V>, key: K, compute: impl FnOnce() -> V) -> V {
    let known = results.lock().unwrap().get(&key).cloned();
    known.unwrap_or_else(|| {
        let result = compute();
        results.lock().unwrap().insert(key, result.clone());
        result
    })
}

/// Data that the states of one scene share. States are compared without it, and it is dropped with the last of them.
#[derive(Default)]
pub struct Beside<T>(Arc<T>);

impl<T> Clone for Beside<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Beside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> PartialEq for Beside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Beside<T> {}

impl<T> Hash for Beside<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<T> Debug for Beside<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// No rule of winpool's looks further back than this, except the time without progress of a deletion, which is
/// counted.
const LONG_AGO: Duration = Duration::from_secs(61);
/// A time that is further away than this comes after everything in a scene.
const FAR_AWAY: Duration = Duration::from_hours(24);
/// Fields with times that only matter by being past or not.
const DUES: [&str; 3] = ["until", "next_status", "widened"];
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;

/// Identifies a value by its `Debug` text, with every time relative to `now`. All times before the horizon are equal.
pub fn fingerprint(value: &impl Debug, now: Instant) -> u128 {
    let now = nanoseconds(&format!("{now:?}"));
    let mut text = Text { written: String::new(), last: 0, is_due: false, moment: None, now };
    write!(text, "{value:?}").unwrap();
    let words = text.written.as_bytes().chunks_exact(8);
    let rest = words.remainder().iter().fold(words.len() as u128, |hash, byte| hash << 8 | u128::from(*byte));
    words.fold(rest, |hash, word| {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        (hash.rotate_left(29) ^ u128::from(word)).wrapping_mul(PRIME)
    })
}

struct Text {
    written: String,
    /// The start of the last item that was written.
    last: usize,
    /// True if the last field name is one of [`DUES`].
    is_due: bool,
    /// The text since `Instant`.
    moment: Option<String>,
    /// In nanoseconds.
    now: i128,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(moment) = &mut self.moment {
            moment.push_str(text);
            if text.ends_with('}') {
                let ago = self.now - nanoseconds(moment);
                let longest = if self.is_due { Duration::ZERO } else { LONG_AGO };
                let in_nanoseconds = |time: Duration| i128::try_from(time.as_nanos()).unwrap();
                write!(self.written, "{}", ago.clamp(-in_nanoseconds(FAR_AWAY), in_nanoseconds(longest)))?;
                self.moment = None;
            }
        } else if text == "Instant" {
            self.moment = Some(String::new());
        } else {
            if text == ": " {
                self.is_due = DUES.contains(&&self.written[self.last..]);
            }
            self.last = self.written.len();
            self.written.push_str(text);
        }
        Ok(())
    }
}

fn nanoseconds(moment: &str) -> i128 {
    let mut numbers = moment.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<i128>().ok());
    let (seconds, rest) = (numbers.next().unwrap(), numbers.next().unwrap());
    seconds * 1_000_000_000 + rest
}

/// Versions of an object that a cache may still show, oldest first. The last one is the true one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct History<T> {
    versions: Vec<T>,
    /// The version that the operator's cache shows.
    seen: usize,
}

impl<T: Clone + PartialEq> History<T> {
    pub fn new(first: T) -> Self {
        Self { versions: vec![first], seen: 0 }
    }

    pub fn truth(&self) -> &T {
        self.versions.last().unwrap()
    }

    pub fn push(&mut self, version: T) {
        if *self.truth() != version {
            self.versions.push(version);
        }
    }

    /// The number of versions that the cache is behind.
    pub fn lag(&self) -> usize {
        self.versions.len() - 1 - self.seen
    }

    /// The version that the cache shows.
    pub fn seen(&self) -> &T {
        &self.versions[self.seen]
    }

    /// The next version arrives in the cache.
    pub fn see(&mut self) -> T {
        self.seen += 1;
        self.seen().clone()
    }

    /// All versions that a new leader's cache may begin with.
    pub fn places(&self) -> std::ops::Range<usize> {
        0..self.versions.len()
    }

    pub fn begin_at(&mut self, place: usize) {
        self.seen = place;
    }

    /// The cache begins with the true version.
    pub fn forget_all(&mut self) {
        *self = Self::new(self.truth().clone());
    }

    /// Forgets versions older than the cache that are not among the `kept` newest.
    pub fn forget(&mut self, kept: usize) {
        let forgotten = self.seen.min(self.versions.len().saturating_sub(kept));
        self.versions.drain(..forgotten);
        self.seen -= forgotten;
    }
}
