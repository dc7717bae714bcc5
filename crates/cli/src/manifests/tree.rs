//! Values and keys as kubectl reads them.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The key by which YAML adds the entries of another mapping.
const MERGE: &str = "<<";

/// A value of any type.
pub(super) struct Tree(pub Value);

/// A key of an object. kubectl converts booleans and numbers to text, so that `yes` becomes `true`.
pub(super) struct Key(pub String);

/// Sets a field. The last of two equal keys wins, and a merge key replaces the fields before it.
pub(super) fn set(fields: &mut Map<String, Value>, key: String, value: Value) {
    match value {
        Value::Object(merged) if key == MERGE => fields.extend(merged),
        Value::Array(all) if key == MERGE && all.iter().all(Value::is_object) => {
            // The first of several mappings wins.
            for merged in all.into_iter().rev() {
                set(fields, MERGE.to_owned(), merged);
            }
        }
        value => {
            fields.insert(key, value);
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    scalars!(value => Tree(value.into()));

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree(text.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(element)) = elements.next_element()? {
            list.push(element);
        }
        Ok(Tree(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut fields = Map::new();
        while let Some((Key(key), Tree(value))) = entries.next_entry()? {
            set(&mut fields, key, value);
        }
        Ok(Tree(fields.into()))
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    scalars!(key => Key(key.to_string()));

    fn visit_string<E>(self, key: String) -> Result<Key, E> {
        Ok(Key(key))
    }
}
