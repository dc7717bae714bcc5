//! Manifests from files, directories and standard input: YAML or JSON, one or many documents, and Lists as
//! `kubectl get -o yaml` prints them.
//!
//! Manifests are not trusted. winpool reads them as a stream, one object at a time, within limits, and keeps only what
//! the command needs. Input that begins as JSON goes to a JSON parser, which is eight times faster than the YAML parser.

/// Makes a visitor return this value for every boolean, number and string.
macro_rules! scalars {
    (@ $value:expr, $($visit:ident: $type:ty),+) => {
        $(fn $visit<E>(self, _: $type) -> Result<Self::Value, E> { Ok($value) })+
    };
    ($value:expr) => {
        super::scalars!(@ $value, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    };
}
use scalars;

mod document;
mod fields;
mod objects;
mod stream;

use std::{
    cell::Cell,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, de::DeserializeSeed};
use serde_json::Value;
use thiserror::Error;

use crate::controllers::GuardedPool;

pub use fields::Fields;
pub use objects::{Copies, Objects};

use document::{Document, DocumentVisitor, Found, Lines};
use objects::Identity;
use stream::Stream;

use super::live;

/// The largest file, in bytes.
const BYTES: usize = 4 << 30;
/// The deepest nesting of an object in YAML. The JSON parser has its own limit of 128. A CustomResourceDefinition has about
/// 30 levels.
const DEPTH: usize = 64;
/// The number of nodes that aliases (`*name`) may add to a document. Without a limit, a few lines could expand to billions.
const ALIASED: usize = 100_000;
/// The longest message in characters, because it may quote a part of the input.
const MESSAGE: usize = 200;
/// The name of standard input (`-`) in messages.
const STDIN: &str = "stdin";

/// The position of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The file, or `stdin`.
    pub file: Arc<str>,
    /// The line on which the object begins.
    pub line: u64,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An object in a manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    pub api_version: String,
    pub kind: String,
    /// The complete object.
    pub value: Value,
}

impl Manifest {
    /// The group of `apiVersion`; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns true if the object is of this kind, in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }

    /// Returns the object as a WindowsPool.
    pub fn into_pool(self) -> Result<Box<GuardedPool>, serde_json::Error> {
        let pool = GuardedPool::deserialize(self.value)?;
        match &pool.pool {
            Ok(_) => Ok(Box::new(pool)),
            Err(message) => Err(serde::de::Error::custom(message)),
        }
    }

    /// Returns the object with its version and kind, which items of a typed list do not have.
    pub fn typed(self) -> Value {
        let mut value = self.value;
        if let Value::Object(object) = &mut value {
            object.insert("apiVersion".to_owned(), self.api_version.into());
            object.insert("kind".to_owned(), self.kind.into());
        }
        value
    }

    fn describe(&self) -> String {
        let part = |name: &str| self.value.get("metadata").and_then(|metadata| metadata.get(name)?.as_str());
        match (part("namespace"), part("name")) {
            (Some(namespace), Some(name)) => format!("{} {namespace}/{name}", self.kind),
            (None, Some(name)) => format!("{} {name}", self.kind),
            _ => self.kind.clone(),
        }
    }
}

/// The part of an object that a command keeps.
pub trait Keep: Sized {
    /// False if fields without a value (`null`) are removed before. The API server ignores them too.
    const KEEPS_NULLS: bool = false;
    /// The treatment of several objects with one kind, namespace and name.
    const COPIES: Copies = Copies::LastWins;

    /// Returns the part to keep, or `None` if the command does not need the object.
    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error>;
}

/// An input that cannot be read.
#[derive(Debug, Error)]
pub enum InputError {
    #[error("cannot read {path}: {error}")]
    Unreadable {
        path: String,
        #[source]
        error: io::Error,
    },
    #[error("{0} has no file that ends in .yaml, .yml or .json")]
    Empty(String),
    #[error("{file}:{line}:{column}: {message}")]
    Syntax { file: Arc<str>, line: u64, column: u64, message: String },
    #[error("{at}: {object}: {message}")]
    Object { at: Source, object: String, message: String },
}

/// Reads the manifests in these files and directories; `-` is standard input.
pub fn read<K: Keep>(paths: &[PathBuf]) -> Result<Vec<(Source, K)>, InputError> {
    live::during("reading manifests", || read_all(paths))
}

fn read_all<K: Keep>(paths: &[PathBuf]) -> Result<Vec<(Source, K)>, InputError> {
    let mut kept = Objects::default();
    for path in paths {
        if path == Path::new("-") {
            read_stream(STDIN, io::stdin().lock(), true, &mut kept)?;
        } else if path.is_dir() {
            let files = files_in(path)?;
            if files.is_empty() {
                return Err(InputError::Empty(path.display().to_string()));
            }
            files.iter().try_for_each(|file| read_file(file, false, &mut kept))?;
        } else {
            read_file(path, true, &mut kept)?;
        }
    }
    kept.notes().for_each(|note| live::note(&note));
    Ok(kept.found)
}

/// Returns the manifests in a directory and its subdirectories, sorted by name. It does not follow links to directories.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, InputError> {
    let unreadable = |error| InputError::Unreadable { path: directory.display().to_string(), error };
    let mut entries =
        std::fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(unreadable)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        let is_manifest = path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|e| ending == *e));
        if entry.file_type().map_err(unreadable)?.is_dir() {
            files.append(&mut files_in(&path)?);
        } else if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn read_file<K: Keep>(path: &Path, named: bool, kept: &mut Objects<K>) -> Result<(), InputError> {
    let name = path.display().to_string();
    let unreadable = |error| InputError::Unreadable { path: name.clone(), error };
    let file = File::open(path).map_err(unreadable)?;
    read_stream(&name, file, named, kept)
}

/// Reads one stream. A document that is not a Kubernetes object is an error in a file that the user `named`, and is skipped
/// in other files of a directory.
pub fn read_stream<K: Keep>(
    name: &str,
    source: impl Read,
    named: bool,
    kept: &mut Objects<K>,
) -> Result<(), InputError> {
    let file: Arc<str> = name.into();
    let unreadable = |error| InputError::Unreadable { path: name.to_owned(), error };
    let line = Cell::new(1);
    let mut stream = Stream::new(source, BYTES, &line);
    while stream.json_is_next().map_err(unreadable)? {
        let start = line.get();
        let mut json = serde_json::Deserializer::from_reader(&mut stream);
        let document = DocumentVisitor::<K>::new(Lines::Counted(&line)).deserialize(&mut json);
        let document = document.map_err(|error| {
            if error.is_io() { unreadable(error.into()) } else { json_syntax(&file, start, &error) }
        })?;
        take(document, &file, (start, 1), named, kept)?;
    }
    // The YAML parser counts lines itself.
    let mut rest = io::repeat(b'\n').take(line.get() - 1).chain(stream);
    for document in serde_yaml::read_with_options::<_, serde_yaml::Spanned<Document<K>>>(&mut rest, options()) {
        let document = document.map_err(|error| yaml_syntax(&file, &error))?;
        let start = (document.referenced.line(), document.referenced.column());
        take(document.value, &file, start, named, kept)?;
    }
    Ok(())
}

/// Adds the kept objects of a document, or returns its first error.
fn take<K: Keep>(
    document: Document<K>,
    file: &Arc<str>,
    (line, column): (u64, u64),
    named: bool,
    kept: &mut Objects<K>,
) -> Result<(), InputError> {
    match document {
        Document::Objects(objects) => {
            for Found { line, object, identity, result } in objects {
                let source = Source { file: Arc::clone(file), line };
                match result {
                    Ok(Some(part)) => kept.add(source, &object, identity, part),
                    Ok(None) => {}
                    Err(message) => return Err(InputError::Object { at: source, object, message }),
                }
            }
        }
        Document::Other if !named => {}
        Document::Other => {
            let message = "not a Kubernetes object: apiVersion and kind are missing".to_owned();
            return Err(InputError::Syntax { file: Arc::clone(file), line, column, message });
        }
    }
    Ok(())
}

fn options() -> serde_yaml::Options {
    serde_yaml::options! {
        // Only the size of the file limits the number of objects; the stream limits that size.
        budget: serde_yaml::budget! {
            max_reader_input_bytes: None,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_documents: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
            max_depth: DEPTH,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: ALIASED,
        },
        // kubectl reads `defaultMode: 0644` as octal.
        legacy_octal_numbers: true,
        // The input may contain secrets, which must not appear in logs.
        with_snippet: false,
    }
}

fn yaml_syntax(file: &Arc<str>, error: &serde_yaml::Error) -> InputError {
    let error = error.without_snippet();
    if let serde_yaml::Error::IOError { cause } = error {
        let error = io::Error::new(cause.kind(), cause.to_string());
        return InputError::Unreadable { path: file.to_string(), error };
    }
    let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
    InputError::Syntax { file: Arc::clone(file), line, column, message: brief(error.to_string()) }
}

/// Converts the error; the document begins on line `start`.
fn json_syntax(file: &Arc<str>, start: u64, error: &serde_json::Error) -> InputError {
    let line = start + (error.line() as u64).saturating_sub(1);
    let (column, message) = (error.column() as u64, brief(error.to_string()));
    InputError::Syntax { file: Arc::clone(file), line, column, message }
}

/// Shortens the message: removes the position, which is printed before it, and hints for programmers.
fn brief(mut message: String) -> String {
    for end in [" (used at ", " (defined at ", " at line ", " (line ", ", set DuplicateKeyPolicy"] {
        message.truncate(message.rfind(end).unwrap_or(message.len()));
    }
    if let Some((end, _)) = message.char_indices().nth(MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests;
