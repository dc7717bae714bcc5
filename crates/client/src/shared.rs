//! Values that many nodes have in common, stored once for the whole process.

use std::{borrow::Borrow, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use winpool_core::interner::Interner;

/// An interner that several tasks use.
pub struct Shared<T: ?Sized>(Mutex<Interner<T>>);

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    /// Returns the shared copy of this value.
    pub fn share<V: Borrow<T> + Into<Arc<T>>>(&self, value: V) -> Arc<T> {
        self.0.lock().intern(value)
    }
}
