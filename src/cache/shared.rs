//! Values that many nodes have in common, stored once.

use std::{borrow::Borrow, collections::HashSet, hash::Hash, sync::Arc};

use parking_lot::Mutex;

/// Values that are stored once, for as long as they are used.
pub(crate) struct Shared<T: ?Sized>(Mutex<Values<T>>);

struct Values<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The size at which unused values are dropped.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 1024;

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::new(Values { values: HashSet::new(), sweep_at: FIRST_SWEEP }))
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    /// Returns the shared copy of this value.
    pub fn share<V: Borrow<T> + Into<Arc<T>>>(&self, value: V) -> Arc<T> {
        let mut shared = self.0.lock();
        if let Some(known) = shared.values.get(value.borrow()) {
            return Arc::clone(known);
        }
        if shared.values.len() >= shared.sweep_at {
            shared.values.retain(|value| Arc::strong_count(value) > 1);
            shared.sweep_at = FIRST_SWEEP.max(shared.values.len() * 2);
        }
        let value: Arc<T> = value.into();
        shared.values.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_drops_what_only_it_holds() {
        let shared = Shared::<str>::default();
        for number in 0..FIRST_SWEEP * 3 {
            drop(shared.share(number.to_string()));
        }
        assert!(shared.0.lock().values.len() <= FIRST_SWEEP);
    }
}
