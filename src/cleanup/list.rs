//! Lists of limited length.

/// Names shown of each kind.
pub(super) const SHOWN: usize = 20;

/// The first lines, indented, and the number of the others.
pub(super) fn list<T: ToString>(lines: &[T]) -> String {
    let more = lines.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("and {more} more"));
    let lines = lines.iter().take(SHOWN).map(ToString::to_string).chain(more);
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
