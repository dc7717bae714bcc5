//! A view, and what it lacks.

use winpool_analysis::view::View;

use crate::read::gaps::Gaps;

impl Seen {
    /// Returns this cluster once these manifests are applied.
    #[must_use]
    pub fn with_applied(mut self, manifests: Self) -> Self {
        self.gaps.add(manifests.gaps);
        Self { view: self.view.with_applied(manifests.view), gaps: self.gaps }
    }
}

/// A view, and what it lacks.
#[derive(Debug, Default)]
pub struct Seen {
    pub view: View,
    pub gaps: Gaps,
}
