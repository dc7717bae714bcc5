//! Manifests from files, directories and standard input: YAML or JSON, one or many documents, and Lists as
//! `kubectl get -o yaml` prints them.
//!
//! Manifests are not trusted. winpool reads them as a stream, one object at a time, within limits, and keeps only what
//! the command needs. Input that begins as JSON goes to a JSON parser, which is eight times faster than the YAML parser.

#[macro_use]
mod scalars;

mod change;
mod document;
mod documents;
mod edit;
mod error;
mod fields;
mod files;
mod manifest;
mod objects;
mod parts;
mod relaxed;
mod stream;
mod tree;

use std::io::Read;
use std::path::{Path, PathBuf};

use winpool_client::causes::with_causes;

pub use documents::read_stream;
pub use error::InputError;
pub use manifest::{Keep, Manifest};
pub use objects::Objects;
pub use winpool_analysis::view::Position;

pub(crate) use change::{Changed, FileError, change_text};
pub(crate) use documents::{STDIN, values};
pub(crate) use fields::Fields;
pub(crate) use manifest::Copies;
pub(crate) use parts::{Part, index_at, parts};

use files::{expand, read_path};

use crate::print::progress;

/// The manifests that a command has read.
#[derive(Debug)]
pub(crate) struct Manifests<K> {
    pub found: Vec<(Position, K)>,
    /// False if a file or an object could not be read. Standard error has the reason.
    pub are_complete: bool,
}

/// Reads the manifests in these files and directories; `-` stands for `stdin`. Says why a file or an object cannot be read, and
/// goes on with the next one. Fails if no Kubernetes object is found.
pub(crate) fn read<K: Keep>(paths: &[PathBuf], mut stdin: impl Read) -> Result<Manifests<K>, InputError> {
    progress::during("reading manifests", || read_all(paths, &mut stdin))
}

fn read_all<K: Keep>(paths: &[PathBuf], stdin: &mut impl Read) -> Result<Manifests<K>, InputError> {
    let (mut kept, mut unread) = (Objects::default(), Vec::new());
    for path in paths.iter().flat_map(|path| expand(path)) {
        unread.extend(read_path(&path, stdin, &mut kept));
    }
    kept.notes().for_each(|note| progress::note(&note));
    if kept.seen == 0 {
        let names = || paths.iter().map(|path| name_of(path)).collect::<Vec<_>>().join(", ");
        let last = unread.pop();
        note_all(&unread);
        return Err(last.unwrap_or_else(|| InputError::Nothing(names())));
    }
    note_all(&unread);
    Ok(Manifests { found: kept.found, are_complete: unread.is_empty() })
}

fn note_all(unread: &[InputError]) {
    for error in unread {
        progress::note(&with_causes(error));
    }
}

/// The name of a file or directory in messages.
fn name_of(path: &Path) -> String {
    if path == Path::new("-") { STDIN.to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests;
