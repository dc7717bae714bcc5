//! The limits of both pages.

/// The limit of workloads that a page lists for each version and group. JSON has all of them.
pub(super) const WORKLOADS: usize = 400;

/// The limit of objects that a page lists for each rule, RuntimeClass or taint.
pub(super) const OBJECTS: usize = 50;

/// The limit of a text from others, in bytes.
const TEXT: usize = 300;

/// The text on one line, short, and without characters that reorder or hide other text.
pub(super) fn shown(text: &str) -> String {
    winpool_core::words::plain(text, TEXT)
}
