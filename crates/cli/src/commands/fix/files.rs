//! The changes in files and in standard input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use winpool_analysis::fix::{Fix, Fixes};
use winpool_analysis::view::{Placed, Position};

use crate::manifests::{Changed, FileError, STDIN, change_text};
use crate::print::{diff, progress};

/// Returns a diff of all files or, if standard input is among them, that stream with its changes. Names each object that cannot be
/// changed, and returns false if there is one. `found` keeps the changes that were made.
pub fn changed(found: &mut Fixes, stream: Option<&[u8]>) -> (Vec<u8>, bool) {
    let changes = std::mem::take(&mut found.changed);
    if let Some(stream) = stream {
        let is_of_stream = |source: &Option<Position>| source.as_ref().is_some_and(|source| *source.file == *STDIN);
        // Other files are only read.
        found.by_hand.retain(|(source, _)| is_of_stream(source));
        let of_stream = changes.into_iter().filter(|(source, _)| is_of_stream(source));
        let (text, are_complete) = change(STDIN, of_stream.collect(), || Ok(stream.to_owned()), found);
        return (text.map_or_else(|| stream.to_owned(), |(_, new)| new.into_bytes()), are_complete);
    }
    let (mut diffs, mut are_complete) = (Vec::new(), true);
    for (file, fixes) in by_file(changes) {
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
fn by_file(changes: Vec<Placed<Fix>>) -> impl Iterator<Item = (Arc<str>, Vec<Placed<Fix>>)> {
    type ByObject = BTreeMap<(Option<u64>, String, String), Placed<Fix>>;
    let mut files: BTreeMap<PathBuf, (Arc<str>, ByObject)> = BTreeMap::new();
    for placed in changes {
        let Some(file) = file_of(&placed).cloned() else { continue };
        let canonical = fs::canonicalize(&*file).unwrap_or_else(|_| PathBuf::from(&*file));
        let (_, in_file) = files.entry(canonical).or_insert_with(|| (file, BTreeMap::new()));
        let line = placed.0.as_ref().map(|source| source.line);
        in_file.entry((line, placed.1.object.to_string(), placed.1.template.clone())).or_insert(placed);
    }
    files.into_values().map(|(file, in_file)| (file, in_file.into_values().collect()))
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
            progress::note(&format!("{name} is not changed: {error}"));
            return (None, false);
        }
    };
    let Changed { text, made, failed } = change_text(&old, fixes);
    for ((source, fix), error) in &failed {
        let place = source.as_ref().map_or_else(|| name.to_owned(), ToString::to_string);
        progress::note(&format!("{place}: {} is not changed: {error}", fix.object));
    }
    found.changed.extend(made);
    (Some((old, text)), failed.is_empty())
}
