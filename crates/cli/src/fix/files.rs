//! The changes in files and in standard input.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde_json::Value;
use thiserror::Error;
use winpool_analysis::fix::{Fix, Fixes};
use winpool_analysis::view::{Placed, Position};

use crate::input::{InputError, STDIN, values};
use crate::live;

use super::diff;
use super::edit::{Change, EditError, edit};
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

/// Returns a diff of all files or, if standard input is among them, that stream with its changes. Names each object that cannot be
/// changed, and returns false if there is one. `found` keeps the changes that were made.
pub fn changed(found: &mut Fixes, stream: Option<&[u8]>) -> (Vec<u8>, bool) {
    let all = std::mem::take(&mut found.changed);
    if let Some(stream) = stream {
        let is_of_stream = |source: &Option<Position>| source.as_ref().is_some_and(|source| *source.file == *STDIN);
        // Other files are only read.
        found.by_hand.retain(|(source, _)| is_of_stream(source));
        let of_stream = all.into_iter().filter(|(source, _)| is_of_stream(source));
        let (text, are_complete) = change(STDIN, of_stream.collect(), || Ok(stream.to_owned()), found);
        return (text.map_or_else(|| stream.to_owned(), |(_, new)| new.into_bytes()), are_complete);
    }
    let (mut diffs, mut are_complete) = (Vec::new(), true);
    for (file, fixes) in by_file(all) {
        let (texts, is_complete) = change(&file, fixes, || fs::read(&*file), found);
        are_complete &= is_complete;
        if let Some((old, new)) = texts {
            diffs.extend_from_slice(diff::unified(Path::new(&*file), &old, &new).as_bytes());
        }
    }
    (diffs, are_complete)
}

fn file_of((source, _): &Placed<Fix>) -> Option<&Arc<str>> {
    source.as_ref().map(|source| &source.file)
}

/// Groups the changes by file. Two paths may lead to one file, and so to one object twice.
fn by_file(all: Vec<Placed<Fix>>) -> impl Iterator<Item = (Arc<str>, Vec<Placed<Fix>>)> {
    type Own = BTreeMap<(Option<u64>, String, String), Placed<Fix>>;
    let mut files: BTreeMap<PathBuf, (Arc<str>, Own)> = BTreeMap::new();
    for placed in all {
        let Some(file) = file_of(&placed).cloned() else { continue };
        let whole = fs::canonicalize(&*file).unwrap_or_else(|_| PathBuf::from(&*file));
        let (_, own) = files.entry(whole).or_insert_with(|| (file, BTreeMap::new()));
        let line = placed.0.as_ref().map(|source| source.line);
        own.entry((line, placed.1.object.to_string(), placed.1.template.clone())).or_insert(placed);
    }
    files.into_values().map(|(file, own)| (file, own.into_values().collect()))
}

/// Makes the changes in one file. Returns both texts, and false if an object cannot be changed.
fn change(
    name: &str,
    fixes: Vec<Placed<Fix>>,
    read: impl FnOnce() -> io::Result<Vec<u8>>,
    found: &mut Fixes,
) -> (Option<(String, String)>, bool) {
    let bytes = read().map_err(FileError::from);
    let old = match bytes.and_then(|bytes| String::from_utf8(bytes).map_err(|_| FileError::Encoding)) {
        Ok(old) => old,
        Err(_) if fixes.is_empty() => return (None, true),
        Err(error) => {
            live::note(&format!("{name} is not changed: {error}"));
            return (None, false);
        }
    };
    let Changed { text, made, failed } = change_text(&old, fixes);
    for ((source, fix), error) in &failed {
        let place = source.as_ref().map_or_else(|| name.to_owned(), ToString::to_string);
        live::note(&format!("{place}: {} is not changed: {error}", fix.object));
    }
    found.changed.extend(made);
    (Some((old, text)), failed.is_empty())
}

/// Makes the changes in a text with any number of documents.
pub fn change_text(text: &str, fixes: Vec<Placed<Fix>>) -> Changed {
    let all = parts(text);
    let mut by_part: BTreeMap<usize, Vec<Placed<Fix>>> = BTreeMap::new();
    for (source, fix) in fixes {
        let line = source.as_ref().map_or(0, |source| source.line);
        by_part.entry(index_at(&all, line)).or_default().push((source, fix));
    }
    let (mut changed, mut at) = (Changed::default(), 0);
    let slice = |range: Range<usize>| text.get(range).unwrap_or_default();
    for (index, fixes) in by_part {
        let Some(part) = all.get(index) else { continue };
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
