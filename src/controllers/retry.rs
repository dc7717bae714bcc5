//! Back-off for objects whose reconcile failed. The runtime has none for single objects.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_mins(1);

/// One exponential back-off, with jitter, for each object that fails.
#[derive(Default)]
pub(crate) struct Retries(Mutex<HashMap<String, (ExponentialBackoff, Instant)>>);

impl Retries {
    /// Returns the pause after this failure of `name`.
    pub fn after_failure(&self, name: &str) -> Duration {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (backoff, until) = failing.entry(name.to_owned()).or_insert_with(|| {
            let builder = ExponentialBuilder::new().with_min_delay(FIRST).with_max_delay(LONGEST);
            (builder.with_jitter().without_max_times().build(), Instant::now())
        });
        let wait = backoff.next().unwrap_or(LONGEST);
        *until = Instant::now() + wait;
        wait
    }

    /// Returns the rest of the pause of `name`. Its events do not shorten the pause.
    pub fn remaining(&self, name: &str) -> Option<Duration> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = failing.get(name)?.1.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets names that are not in `names`.
    pub fn retain(&self, names: &BTreeSet<&str>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| names.contains(name.as_str()));
    }

    /// Forgets `name`, which succeeded or is gone.
    pub fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_restart_after_success() {
        let retries = Retries::default();
        let first = retries.after_failure("a");
        assert!(first >= FIRST && first <= FIRST * 2, "{first:?}");
        let last = (0..12).map(|_| retries.after_failure("a")).last().unwrap();
        assert!(last >= LONGEST, "{last:?}");
        assert!(retries.after_failure("b") <= FIRST * 2);
        retries.forget("a");
        assert!(retries.after_failure("a") <= FIRST * 2);
        retries.retain(&["b"].into());
        assert!(retries.remaining("a").is_none() && retries.remaining("b").is_some());
    }
}
