//! The pages that show a report to people. Both say the same, with the numbers of the report.

mod html;
mod markdown;
mod words;

pub use html::page as html;
pub use markdown::page as markdown;

/// The limit of workloads that a page lists for each version and group. JSON has all of them.
const WORKLOADS: usize = 400;
/// The limit of objects that a page lists for each rule, RuntimeClass or taint.
const OBJECTS: usize = 50;
/// The limit of a text from others, in bytes.
const TEXT: usize = 300;

/// The text on one line, short, and without characters that reorder or hide other text.
fn shown(text: &str) -> String {
    winpool_core::words::plain(text, TEXT)
}
