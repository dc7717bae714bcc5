//! Unified diffs that `git apply` and `patch -p1` take.

use std::path::{Component, Path, PathBuf};

use similar::{DiffOp, TextDiff};

/// A range of lines with other text in place of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The first line, from 1.
    pub line: usize,
    /// The number of lines to replace; 0 to insert before `line`.
    pub lines: usize,
    pub text: String,
}

/// Returns the difference of two versions of a file.
pub fn unified(path: &Path, old: &str, new: &str) -> String {
    let name = name(path, std::env::current_dir().ok().as_deref());
    // As git does: a tab ends a name with a space.
    let end = if name.contains(' ') { "\t" } else { "" };
    TextDiff::from_lines(old, new)
        .unified_diff()
        .header(&format!("a/{name}{end}"), &format!("b/{name}{end}"))
        .to_string()
}

/// Returns the ranges of lines that differ.
pub fn replacements(old: &str, new: &str) -> Vec<Replacement> {
    let diff = TextDiff::from_lines(old, new);
    let changed = diff.ops().iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let of = |op: &DiffOp| {
        let slices = diff.new_slices().get(op.new_range()).unwrap_or_default();
        Replacement { line: op.old_range().start + 1, lines: op.old_range().len(), text: slices.concat() }
    };
    changed.map(of).collect()
}

/// Returns the name of a file relative to this directory or, if it is elsewhere, to the root.
fn name(path: &Path, directory: Option<&Path>) -> String {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let whole =
        directory.filter(|_| !is_plain).map_or_else(|| path.to_owned(), |directory| resolved(&directory.join(path)));
    let inside = directory.and_then(|directory| whole.strip_prefix(directory).ok()).unwrap_or(&whole);
    let parts = inside.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy()),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Removes `..` and the directory before it.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            part => whole.push(part),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_from_here_or_from_the_root() {
        for (path, expected) in [
            ("web.yaml", "web.yaml"),
            ("./deploy//web.yaml", "deploy/web.yaml"),
            ("/shop/deploy/web.yaml", "deploy/web.yaml"),
            ("deploy/../web.yaml", "web.yaml"),
            ("../other/web.yaml", "other/web.yaml"),
            ("/other/web.yaml", "other/web.yaml"),
        ] {
            assert_eq!(name(Path::new(path), Some(Path::new("/shop"))), expected, "{path}");
        }
    }

    #[test]
    fn line_ends_stay_and_a_missing_one_is_named() {
        let diff = unified(Path::new("a b.yaml"), "a: 1\r\nb: 2", "a: 1\r\nc: 3\r\nb: 2");
        assert_eq!(
            diff,
            "--- a/a b.yaml\t\n+++ b/a b.yaml\t\n@@ -1,2 +1,3 @@\n a: 1\r\n+c: 3\r\n b: 2\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn changes_are_ranges_of_lines() {
        let found = replacements("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n");
        let expected = [(2, 1, "x\n"), (4, 0, "y\n")].map(|(line, lines, text)| Replacement {
            line,
            lines,
            text: text.to_owned(),
        });
        assert_eq!(found, expected);
        assert!(replacements("a\n", "a\n").is_empty());
    }
}
