//! Manifests from files, directories and standard input: YAML or JSON, one or many documents, and Lists as
//! `kubectl get -o yaml` prints them.
//!
//! Manifests are not trusted. winpool reads them as a stream, one object at a time, within limits, and keeps only what
//! the command needs. Input that begins as JSON goes to a JSON parser, which is eight times faster than the YAML parser.

/// Makes a visitor return `$result` for each boolean, number and string `$value`.
macro_rules! scalars {
    (@ $value:pat => $result:expr, $($visit:ident: $type:ty),+) => {
        $(fn $visit<E>(self, $value: $type) -> Result<Self::Value, E> { Ok($result) })+
    };
    ($value:ident => $result:expr) => {
        super::scalars!(@ $value => $result, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    };
    ($result:expr) => {
        super::scalars!(@ _ => $result, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
    };
}
use scalars;

mod document;
mod fields;
mod files;
mod objects;
mod relaxed;
mod stream;
mod tree;

use std::{
    cell::Cell,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use encoding_rs::UTF_8;
use encoding_rs_io::DecodeReaderBytesBuilder;
use serde::{Deserialize, de::DeserializeSeed};
use serde_json::{Value, json};
use thiserror::Error;

use winpool_client::causes::with_causes;
use winpool_core::plan::GuardedPool;

pub use fields::Fields;
pub use objects::{Copies, Objects};
pub use winpool_answers::view::Position;

use document::{DocumentContents, DocumentVisitor, InputObject, Lines};
use files::{expand, read_path};
use objects::Identity;
use relaxed::Relaxed;
use stream::Stream;

use super::live;

/// The largest file, in bytes.
const BYTES: usize = 4 << 30;
/// The deepest nesting of an object in YAML. The JSON parser has its own limit of 128. A CustomResourceDefinition has about
/// 30 levels.
const DEPTH: usize = 64;
/// The number of nodes that aliases (`*name`) may add to a document. Without a limit, a few lines could expand to billions.
const ALIASED: usize = 400_000;
/// The longest message in characters, because it may quote a part of the input.
const MESSAGE: usize = 200;
/// The name of standard input (`-`) in messages.
const STDIN: &str = "stdin";

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

    /// True if the object is of this kind, in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }

    /// Returns the object as a WindowsPool. If it has no spec, the API server adds an empty one.
    pub fn into_pool(mut self) -> Result<Box<GuardedPool>, serde_json::Error> {
        if let Value::Object(object) = &mut self.value {
            object.entry("spec").or_insert_with(|| json!({}));
        }
        let pool = GuardedPool::deserialize(self.value)?;
        match pool.pool() {
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
    #[error("{0} is a URL: download it, and pipe it to winpool with -f -")]
    Url(String),
    #[error("{0} has no file that ends in .yaml, .yml or .json")]
    Empty(String),
    #[error("nothing was read: {0} has no Kubernetes object")]
    Nothing(String),
    #[error("{file}:{line}:{column}: {message}")]
    Syntax { file: Arc<str>, line: u64, column: u64, message: String },
    #[error("{at}: {object}: {message}")]
    Object { at: Position, object: String, message: String },
}

/// The manifests that a command has read.
#[derive(Debug)]
pub struct Manifests<K> {
    pub found: Vec<(Position, K)>,
    /// False if a file or an object could not be read. Standard error has the reason.
    pub are_complete: bool,
}

/// Reads the manifests in these files and directories; `-` is standard input. Prints the reason for each file and object that cannot
/// be read, and reads the others. Fails if there is no Kubernetes object.
pub fn read<K: Keep>(paths: &[PathBuf]) -> Result<Manifests<K>, InputError> {
    live::during("reading manifests", || read_all(paths))
}

fn read_all<K: Keep>(paths: &[PathBuf]) -> Result<Manifests<K>, InputError> {
    let (mut kept, mut unread) = (Objects::default(), Vec::new());
    for path in paths.iter().flat_map(|path| expand(path)) {
        unread.extend(read_path(&path, &mut kept));
    }
    kept.notes().for_each(|note| live::note(&note));
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
        live::note(&with_causes(error));
    }
}

/// The name of a file or directory in messages.
fn name_of(path: &Path) -> String {
    if path == Path::new("-") { STDIN.to_owned() } else { path.display().to_string() }
}

/// Reads one stream, and returns the errors: one for each object that cannot be read, or one for the rest of the stream. A document
/// that is not a Kubernetes object is an error in a file that the user `named`, and is skipped in other files of a directory.
pub fn read_stream<K: Keep>(name: &str, source: impl Read, named: bool, kept: &mut Objects<K>) -> Vec<InputError> {
    let mut unread = Vec::new();
    if let Err(error) = read_documents(name, source, named, kept, &mut unread) {
        unread.push(error);
    }
    unread
}

/// Fails if the rest of the stream cannot be read.
fn read_documents<K: Keep>(
    name: &str,
    source: impl Read,
    named: bool,
    kept: &mut Objects<K>,
    unread: &mut Vec<InputError>,
) -> Result<(), InputError> {
    let file: Arc<str> = name.into();
    let unreadable = |error| InputError::Unreadable { path: name.to_owned(), error };
    let line = Cell::new(1);
    let mut stream = Stream::new(decoded(source), BYTES, &line);
    while stream.json_is_next().map_err(unreadable)? {
        let start = line.get();
        let mut json = serde_json::Deserializer::from_reader(&mut stream);
        let document = DocumentVisitor::<K>::new(Lines::Counted(&line)).deserialize(&mut json);
        let document = document.map_err(|error| {
            if error.is_io() { unreadable(error.into()) } else { json_syntax(&file, start, &error) }
        })?;
        unread.extend(take(document, &file, (start, 1), named, kept));
    }
    // The YAML parser counts lines itself.
    let mut rest = Relaxed::new(io::repeat(b'\n').take(line.get() - 1).chain(stream));
    for document in serde_yaml::read_with_options::<_, serde_yaml::Spanned<DocumentContents<K>>>(&mut rest, options()) {
        let document = document.map_err(|error| yaml_syntax(&file, &error))?;
        let start = (document.referenced.line(), document.referenced.column());
        unread.extend(take(document.value, &file, start, named, kept));
    }
    Ok(())
}

/// Converts UTF-16 with a byte order mark to UTF-8, and replaces bytes that are not UTF-8, as kubectl does.
fn decoded(source: impl Read) -> impl Read {
    DecodeReaderBytesBuilder::new().encoding(Some(UTF_8)).bom_override(true).strip_bom(true).build(source)
}

/// Adds the kept objects of a document, and returns the errors of the others.
fn take<K: Keep>(
    document: DocumentContents<K>,
    file: &Arc<str>,
    (line, column): (u64, u64),
    named: bool,
    kept: &mut Objects<K>,
) -> Vec<InputError> {
    let mut unread = Vec::new();
    match document {
        DocumentContents::Objects(objects) => {
            kept.seen += objects.len().max(1);
            for InputObject { line, object, identity, result } in objects {
                let source = Position { file: Arc::clone(file), line };
                match result {
                    Ok(Some(part)) => kept.add(source, &object, identity, part),
                    Ok(None) => {}
                    Err(message) => unread.push(InputError::Object { at: source, object, message }),
                }
            }
        }
        DocumentContents::Other if !named => {}
        DocumentContents::Other => {
            let message = "not a Kubernetes object: apiVersion and kind are missing".to_owned();
            unread.push(InputError::Syntax { file: Arc::clone(file), line, column, message });
        }
    }
    unread
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
            max_anchors: usize::MAX,
            max_aliases: usize::MAX,
            enforce_alias_anchor_ratio: false,
            max_depth: DEPTH,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: ALIASED,
        },
        // kubectl reads long comments. Of two equal keys it keeps the last, and so do the visitors here.
        emit_comments: false,
        duplicate_keys: serde_yaml::DuplicateKeyPolicy::PassThrough,
        merge_keys: serde_yaml::MergeKeyPolicy::AsOrdinary,
        // kubectl reads `1e999` as text.
        non_finite_float_policy: serde_yaml::NonFiniteFloatPolicy::AsString,
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
