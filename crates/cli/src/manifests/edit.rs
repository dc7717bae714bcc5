//! Edits a document in place. Everything outside of the edits stays as it is.
//!
//! yaml-edit makes the edits. No edit is trusted: winpool reads the result again as kubectl does and compares the values, and
//! compares the bytes around each edit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Map, Value};
use thiserror::Error;
use yaml_edit::{Document, ScalarValue, TextPosition, YamlFile, YamlNode, YamlValue};

use super::documents::values;
use super::error::InputError;

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
    let new = match items(text, changes) {
        Some(items) => by_item(text, items)?,
        None => changed(text, changes)?,
    };
    let mut expected = document.clone();
    for Change { object, patch } in changes {
        json_patch::patch(&mut expected, &within(object, patch))
            .map_err(|error| EditError::Shape(error.to_string()))?;
    }
    match values(&new)?.as_slice() {
        [found] if without_empty(found.clone()) == without_empty(expected) => Ok(format!("{mark}{new}")),
        _ => Err(EditError::Elsewhere("the object".to_owned())),
    }
}

/// The text of an item of a List, with its changes.
type Item = (Range<usize>, Vec<Change>);

/// Returns the items of a List that change, if several do. yaml-edit takes longer for an edit the longer the document is.
fn items(text: &str, changes: &[Change]) -> Option<Vec<Item>> {
    let mut by_index: BTreeMap<usize, Vec<Change>> = BTreeMap::new();
    for Change { object, patch } in changes {
        let rest = object.strip_prefix("/items/")?;
        let (index, object) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let change = Change { object: object.to_owned(), patch: patch.clone() };
        by_index.entry(index.parse().ok()?).or_default().push(change);
    }
    let file = YamlFile::from_str(text).ok().filter(|_| by_index.len() > 1)?;
    let YamlNode::Sequence(list) = file.documents().next()?.as_mapping()?.get("items")? else { return None };
    let ranges: Vec<Range<usize>> = list.values().map(|item| whole_lines(text, item.byte_range())).collect();
    by_index.into_iter().map(|(index, changes)| Some((ranges.get(index)?.clone(), changes))).collect()
}

/// Returns the range with the dash and the indentation before it, so that its text is a document of its own.
fn whole_lines(text: &str, range: TextPosition) -> Range<usize> {
    let (start, end) = (range.start as usize, range.end as usize);
    let before = text.get(..start).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let is_indented = before.get(line..).is_some_and(|indent| indent.trim_start_matches([' ', '-']).is_empty());
    if is_indented { line..end } else { start..end }
}

/// Makes the changes in the items, each by itself.
fn by_item(text: &str, items: Vec<Item>) -> Result<String, EditError> {
    let (mut new, mut at) = (String::new(), 0);
    let slice = |range: Range<usize>| text.get(range).unwrap_or_default();
    for (range, changes) in items {
        new.push_str(slice(at..range.start));
        new.push_str(&changed(slice(range.clone()), &changes)?);
        at = range.end;
    }
    new.push_str(slice(at..text.len()));
    Ok(new)
}

/// Makes the changes in a document that is an object, or a list of one.
fn changed(text: &str, changes: &[Change]) -> Result<String, EditError> {
    let file = YamlFile::from_str(text).map_err(|error| EditError::Unreadable(error.to_string()))?;
    let document = file.documents().next();
    let object = document.as_ref().and_then(Document::as_mapping).map(YamlNode::Mapping);
    let item = || document.as_ref()?.as_sequence()?.get(0);
    let root = object.or_else(item).ok_or_else(|| EditError::Shape("the document".to_owned()))?;
    let mut length = text.len();
    for Change { object, patch } in changes {
        let node = descend(root.clone(), &parsed(object))?;
        for operation in &patch.0 {
            let before = file.to_string();
            let limits = apply(&node, operation)?;
            let after = file.to_string();
            if !is_one_change(&before, &after, limits) {
                return Err(EditError::Elsewhere(operation.path().to_string()));
            }
            length = (length + after.len()).saturating_sub(before.len());
        }
    }
    let new = file.to_string();
    if new.len() == length { Ok(new) } else { Err(EditError::Elsewhere("the object".to_owned())) }
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
    let same = |(old, new): &(u8, u8)| old == new;
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
