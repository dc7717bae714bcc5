//! Edits a document in place. Everything outside of the edits stays as it is.
//!
//! yaml-edit makes the edits. No edit is trusted: winpool reads the result again as kubectl does and compares the values, and
//! compares the bytes around each edit.

use std::str::FromStr;

use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation,
    jsonptr::{Pointer, PointerBuf},
};
use serde_json::{Map, Value};
use thiserror::Error;
use yaml_edit::{ScalarValue, YamlFile, YamlNode, YamlValue};

use crate::input::{InputError, values};

/// The byte order mark.
const MARK: &str = "\u{feff}";

/// A document that cannot be edited safely.
#[derive(Debug, Error)]
pub enum EditError {
    #[error("the document cannot be read: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{0} is an alias (*name): a change there would change other places too")]
    Alias(String),
    #[error("{0} cannot be changed where it is written")]
    Shape(String),
    #[error("the change of {0} would also change what is around it, such as an anchor (&name) that other places use")]
    Elsewhere(String),
}

/// Changes an object of a document, or the items of a List.
#[derive(Clone, Debug)]
pub struct Change {
    /// The JSON Pointer of the object in the document.
    pub object: String,
    pub patch: Patch,
}

/// Returns the text of the document, which has this value, with these changes.
pub fn edit(text: &str, document: &Value, changes: &[Change]) -> Result<String, EditError> {
    let (text, mark) = text.strip_prefix(MARK).map_or((text, ""), |text| (text, MARK));
    let file = YamlFile::from_str(text).map_err(|error| EditError::Unreadable(error.to_string()))?;
    let root = file.documents().next().and_then(|document| document.as_mapping());
    let root = YamlNode::Mapping(root.ok_or_else(|| EditError::Shape("the document".to_owned()))?);
    let (mut expected, mut length) = (document.clone(), text.len());
    for Change { object, patch } in changes {
        let own = descend(root.clone(), &parsed(object))?;
        // Comparing a List as a whole after each edit would take minutes.
        let now = || if changes.len() > 1 { own.to_string() } else { file.to_string() };
        for operation in &patch.0 {
            let before = now();
            let limits = apply(&own, operation)?;
            let after = now();
            if !is_one_change(&before, &after, limits) {
                return Err(EditError::Elsewhere(operation.path().to_string()));
            }
            length = (length + after.len()).saturating_sub(before.len());
        }
        json_patch::patch(&mut expected, &within(object, patch))
            .map_err(|error| EditError::Shape(error.to_string()))?;
    }
    let new = file.to_string();
    match values(&new)?.as_slice() {
        [found] if without_empty(found.clone()) == without_empty(expected) && new.len() == length => {
            Ok(format!("{mark}{new}"))
        }
        _ => Err(EditError::Elsewhere("the object".to_owned())),
    }
}

/// The bytes that an operation may take out of a text, and those that it may put in.
struct Limits {
    removed: usize,
    added: usize,
}

/// Makes one operation in an object.
fn apply(object: &YamlNode, operation: &PatchOperation) -> Result<Limits, EditError> {
    let shape = |path: &Pointer| EditError::Shape(path.to_string());
    let path = operation.path();
    let (parent, key) = path.split_back().ok_or_else(|| shape(path))?;
    let key = key.decoded();
    match (descend(object.clone(), parent)?, operation) {
        (YamlNode::Mapping(mapping), PatchOperation::Add(add)) => {
            let removed = mapping.find_entry_by_key(&*key).map_or(0, |entry| entry.to_string().len());
            mapping.set(&*key, written(&add.value));
            Ok(Limits { removed, added: usize::MAX })
        }
        (YamlNode::Sequence(list), PatchOperation::Add(add)) if key == "-" => {
            list.push(written(&add.value));
            Ok(Limits { removed: 0, added: usize::MAX })
        }
        (YamlNode::Mapping(mapping), PatchOperation::Remove(_)) => {
            mapping.remove(&*key).ok_or_else(|| shape(path))?;
            // A comment beside the field goes with it. An object without fields is written `{}`.
            Ok(Limits { removed: usize::MAX, added: " {}".len() })
        }
        _ => Err(shape(path)),
    }
}

/// Returns the value at this path.
fn descend(node: YamlNode, path: &Pointer) -> Result<YamlNode, EditError> {
    let shape = || EditError::Shape(path.to_string());
    path.tokens().try_fold(node, |node, token| {
        let key = token.decoded();
        let next = match &node {
            YamlNode::Mapping(mapping) => mapping.get(&*key),
            YamlNode::Sequence(list) => key.parse().ok().and_then(|index| list.get(index)),
            _ => None,
        };
        match next.ok_or_else(shape)? {
            YamlNode::Alias(_) => Err(EditError::Alias(path.to_string())),
            next => Ok(next),
        }
    })
}

/// True if the texts differ in one place, within these limits.
fn is_one_change(before: &str, after: &str, Limits { removed, added }: Limits) -> bool {
    let same = |(one, other): &(u8, u8)| one == other;
    let start = before.bytes().zip(after.bytes()).take_while(same).count();
    let rest = before.len().min(after.len()) - start;
    let end = before.bytes().rev().zip(after.bytes().rev()).take(rest).take_while(same).count();
    before.len() - start - end <= removed && after.len() - start - end <= added
}

fn written(value: &Value) -> YamlValue {
    match value {
        Value::Null => YamlValue::Scalar(ScalarValue::null()),
        Value::Bool(value) => YamlValue::from(*value),
        Value::Number(number) => YamlValue::Scalar(ScalarValue::parse(number.to_string())),
        Value::String(text) => YamlValue::from(text.as_str()),
        Value::Array(items) => YamlValue::Sequence(items.iter().map(written).collect()),
        Value::Object(fields) => {
            YamlValue::Mapping(fields.iter().map(|(key, value)| (key.clone(), written(value))).collect())
        }
    }
}

/// Returns the patch for the document of an object.
fn within(object: &str, patch: &Patch) -> Patch {
    let at = |path: &Pointer| parsed(&format!("{object}{path}"));
    let operations = patch.0.iter().cloned().map(|operation| match operation {
        PatchOperation::Add(add) => PatchOperation::Add(AddOperation { path: at(&add.path), ..add }),
        PatchOperation::Remove(remove) => PatchOperation::Remove(RemoveOperation { path: at(&remove.path) }),
        other => other,
    });
    Patch(operations.collect())
}

fn parsed(pointer: &str) -> PointerBuf {
    PointerBuf::parse(pointer).unwrap_or_default()
}

/// Removes empty objects and nulls: an object that loses its last field becomes either.
fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
