//! Findings with the positions of their objects.

use schemars::JsonSchema;
use serde::Serialize;
use winpool_answers::view::Position;

/// A finding with the position of its object.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Located<T> {
    #[serde(flatten)]
    pub found: T,
    /// The file; `None` in a live cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

impl<T> Located<T> {
    /// Adds the position of the object to the finding.
    pub fn new(found: T, source: Option<&Position>) -> Self {
        let (file, line) = source.map(|source| (source.file.to_string(), source.line)).unzip();
        Self { found, file, line }
    }
}
