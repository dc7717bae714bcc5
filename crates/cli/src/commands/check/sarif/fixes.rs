//! The changes of findings as `fixes`, which editors and code scanning offer.

use serde_json::{Value, json};
use winpool_analysis::finding::Finding;
use winpool_analysis::fix::Fix;
use winpool_analysis::kinds::template_of;
use winpool_analysis::remedy::{Rank, Remedy};
use winpool_analysis::view::Position;

use crate::manifests::{Part, change_text, index_at, parts};
use crate::print::diff::{Replacement, replacements};
use crate::print::located::Located;

use super::uri;

/// The longest document, in bytes, whose findings have fixes. Each needs the whole document, and a List of a cluster has thousands.
const LONGEST: usize = 64 << 10;

/// Computes the changes of findings in their files.
#[derive(Debug, Default)]
pub(super) struct Fixes {
    /// The file that was read last.
    last: Option<SourceFile>,
}

#[derive(Debug)]
struct SourceFile {
    name: String,
    /// Empty if it cannot be read, or is not UTF-8.
    text: String,
    parts: Vec<Part>,
}

impl Fixes {
    /// Returns the change that needs no decision. `None` if there is none, or if the file cannot be changed safely.
    pub fn of(&mut self, Located { item, file, line, .. }: &Located<Finding>) -> Option<Value> {
        let Finding { object, remedy, .. } = item;
        let Remedy { rank: Rank::Certain, object: None, edits, .. } = remedy else { return None };
        let (file, line) = (file.as_ref().filter(|_| !edits.is_empty())?, (*line)?);
        let SourceFile { text: old, parts, .. } = self.source(file)?;
        parts.get(index_at(parts, line)).filter(|part| part.range.len() <= LONGEST)?;
        let template = template_of(&object.kind)?;
        let fix = Fix { object: object.clone(), template, remedy: remedy.clone(), doubt: None };
        let new = change_text(old, vec![(Some(Position { file: file.as_str().into(), line }), fix)]);
        if new.made.is_empty() {
            return None;
        }
        let changes: Vec<Value> = replacements(old, &new.text).iter().map(|change| replacement(old, change)).collect();
        let change = json!({"artifactLocation": {"uri": uri(file)}, "replacements": changes});
        Some(json!({"description": {"text": remedy.text}, "artifactChanges": [change]}))
    }

    fn source(&mut self, file: &str) -> Option<&SourceFile> {
        if self.last.as_ref().is_none_or(|last| last.name != file) {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            self.last = Some(SourceFile { name: file.to_owned(), parts: parts(&text), text });
        }
        self.last.as_ref()
    }
}

/// Replaces whole lines. If the last line has no end, the range ends after its last character.
fn replacement(old: &str, Replacement { line, lines, text }: &Replacement) -> Value {
    let (start, end) = (line.saturating_sub(1), line.saturating_sub(1) + lines);
    let last = old.lines().nth(end.saturating_sub(1)).unwrap_or_default();
    let is_open = *lines > 0 && !old.ends_with('\n') && old.lines().count() == end;
    let (end_line, end_column) = if is_open { (end, last.encode_utf16().count() + 1) } else { (end + 1, 1) };
    let region = json!({"startLine": start + 1, "startColumn": 1, "endLine": end_line, "endColumn": end_column});
    json!({"deletedRegion": region, "insertedContent": {"text": text}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_whole_lines() {
        let range = |old: &str, line, lines| {
            let change = replacement(old, &Replacement { line, lines, text: "x\n".to_owned() });
            let at = |field: &str| change["deletedRegion"][field].as_u64().unwrap();
            [at("startLine"), at("startColumn"), at("endLine"), at("endColumn")]
        };
        assert_eq!(range("a\nb\nc\n", 2, 1), [2, 1, 3, 1]);
        assert_eq!(range("a\nb\nc\n", 4, 0), [4, 1, 4, 1]);
        assert_eq!(range("a\nb\u{1f600}c", 2, 1), [2, 1, 2, 5]);
    }
}
