//! The position of an object in manifests.

use std::fmt;
use std::sync::Arc;

/// The position of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file, or `stdin`.
    pub file: Arc<str>,
    /// The line on which the object begins.
    pub line: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An object with its position; `None` in a live cluster.
pub type Placed<T> = (Option<Position>, T);
