//! Changes of the objects in a text with any number of documents.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use serde_json::Value;
use thiserror::Error;
use winpool_analysis::fix::Fix;
use winpool_analysis::view::Placed;

use super::documents::values;
use super::edit::{Change, EditError, edit};
use super::error::InputError;
use super::parts::{Pointers, index_at, parts};

/// An object that cannot be changed in its file.
#[derive(Debug, Error)]
pub enum FileError {
    #[error("cannot read the file again: {0}")]
    Unreadable(#[from] io::Error),
    #[error("the file is not UTF-8, so that it would not stay as it is")]
    Encoding,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("the document does not have the object any more")]
    Gone,
    #[error("the document has several objects with this name")]
    Ambiguous,
    #[error("a field of it has a value of another type than winpool expects")]
    Differs,
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// A text with changes, those that it has, and those that it cannot have.
#[derive(Debug, Default)]
pub struct Changed {
    pub text: String,
    pub made: Vec<Placed<Fix>>,
    pub failed: Vec<(Placed<Fix>, FileError)>,
}

/// Makes the changes in a text with any number of documents.
pub fn change_text(text: &str, fixes: Vec<Placed<Fix>>) -> Changed {
    let parts = parts(text);
    let mut by_part: BTreeMap<usize, Vec<Placed<Fix>>> = BTreeMap::new();
    for (source, fix) in fixes {
        let line = source.as_ref().map_or(0, |source| source.line);
        by_part.entry(index_at(&parts, line)).or_default().push((source, fix));
    }
    let (mut changed, mut at) = (Changed::default(), 0);
    let slice = |range: Range<usize>| text.get(range).unwrap_or_default();
    for (index, fixes) in by_part {
        let Some(part) = parts.get(index) else { continue };
        let new = change_document(slice(part.range.clone()), fixes, &mut changed);
        changed.text.push_str(slice(at..part.range.start));
        changed.text.push_str(&new);
        at = part.range.end;
    }
    changed.text.push_str(slice(at..text.len()));
    changed
}

/// Makes the changes in a document. If one of them cannot be made, makes the others: halves that have no such change are made
/// at once.
fn change_document(old: &str, mut fixes: Vec<Placed<Fix>>, changed: &mut Changed) -> String {
    match edited(old, &fixes) {
        Ok(new) => {
            changed.made.extend(fixes);
            new
        }
        Err(error) if fixes.len() == 1 => {
            changed.failed.extend(fixes.pop().map(|placed| (placed, error)));
            old.to_owned()
        }
        Err(_) => {
            let rest = fixes.split_off(fixes.len() / 2);
            let text = change_document(old, fixes, changed);
            change_document(&text, rest, changed)
        }
    }
}

fn edited(text: &str, fixes: &[Placed<Fix>]) -> Result<String, FileError> {
    let read = values(text)?;
    let [document] = read.as_slice() else { return Err(FileError::Gone) };
    let pointers = Pointers::of(document);
    let changes: Vec<Change> =
        fixes.iter().map(|(_, fix)| change_of(document, &pointers, fix)).collect::<Result<_, _>>()?;
    Ok(edit(text, document, &changes)?)
}

/// Returns the change of the object in the document.
fn change_of(document: &Value, pointers: &Pointers, fix: &Fix) -> Result<Change, FileError> {
    let object = match pointers.get(&fix.object) {
        [] => return Err(FileError::Gone),
        [object] => object.clone(),
        _ => return Err(FileError::Ambiguous),
    };
    let value = document.pointer(&object).ok_or(FileError::Gone)?;
    let patch = fix.remedy.json_patch(value, &fix.template);
    if patch.0.len() < fix.remedy.edits.len() {
        return Err(FileError::Differs);
    }
    Ok(Change { object, patch })
}
