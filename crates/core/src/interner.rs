//! Values that many nodes have in common, stored once.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Stores equal values once, for as long as they are used.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The size at which unused values are dropped.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 1024;

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), sweep_at: self.sweep_at }
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// Returns the shared copy of this value.
    pub fn intern<V: Borrow<T> + Into<Arc<T>>>(&mut self, value: V) -> Arc<T> {
        if let Some(known) = self.values.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.sweep_at {
            self.sweep();
        }
        let value: Arc<T> = value.into();
        self.values.insert(Arc::clone(&value));
        value
    }

    /// Drops values that nothing uses.
    fn sweep(&mut self) {
        self.values.retain(|value| Arc::strong_count(value) > 1);
        self.sweep_at = FIRST_SWEEP.max(self.values.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_nothing_uses_are_dropped() {
        let mut interner = Interner::<str>::default();
        for number in 0..FIRST_SWEEP * 3 {
            drop(interner.intern(number.to_string()));
        }
        assert!(interner.values.len() <= FIRST_SWEEP);
    }
}
