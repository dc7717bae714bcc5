//! A list of what is left.

use crate::removal::cleanup::Leftover;

/// Names shown of each kind.
pub(super) const SHOWN: usize = 20;

pub(super) fn list(left: &[Leftover]) -> String {
    let more = left.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("and {more} more"));
    let lines = left.iter().take(SHOWN).map(ToString::to_string).chain(more);
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
