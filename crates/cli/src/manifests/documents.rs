//! Reads a stream of documents in YAML or JSON.

use std::cell::Cell;
use std::io::{self, Read};
use std::sync::Arc;

use encoding_rs::UTF_8;
use encoding_rs_io::DecodeReaderBytesBuilder;
use serde::de::DeserializeSeed;
use serde_json::Value;
use winpool_analysis::view::Position;

use super::document::{DocumentContents, DocumentVisitor, InputObject, Lines};
use super::error::InputError;
use super::manifest::Keep;
use super::objects::Objects;
use super::relaxed::Relaxed;
use super::stream::Stream;
use super::tree::Tree;
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
pub const STDIN: &str = "stdin";

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
pub(super) fn decoded(source: impl Read) -> impl Read {
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

/// Returns the values of all documents in this text, with all fields.
pub fn values(text: &str) -> Result<Vec<Value>, InputError> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(vec![value]);
    }
    let mut text = Relaxed::new(text.as_bytes());
    let documents = serde_yaml::read_with_options::<_, Tree>(&mut text, options());
    let values = documents.map(|document| document.map(|Tree(value)| value));
    values.collect::<Result<_, _>>().map_err(|error| yaml_syntax(&"the document".into(), &error))
}

pub(super) fn options() -> serde_yaml::Options {
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
    // The words of the YAML parser, for indented text and for brackets.
    if ["budget breached: Depth", "recursion limit exceeded"].iter().any(|deep| message.starts_with(deep)) {
        return format!("objects and lists are nested more than {DEPTH} levels deep");
    }
    for end in [" (used at ", " (defined at ", " at line ", " (line ", ", set DuplicateKeyPolicy"] {
        message.truncate(message.rfind(end).unwrap_or(message.len()));
    }
    if let Some((end, _)) = message.char_indices().nth(MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    message
}
