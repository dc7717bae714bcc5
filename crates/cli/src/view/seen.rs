//! A view, and what it lacks.

use winpool_analysis::view::View;

use crate::gaps::Gaps;

/// A view, and what it lacks.
#[derive(Debug, Default)]
pub struct Seen {
    pub view: View,
    pub gaps: Gaps,
}
