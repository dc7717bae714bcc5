//! Reads one document of YAML or JSON: an object, or a List, one item at a time.

use std::{cell::Cell, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_yaml::Spanned;

use super::{Identity, Keep, Manifest};

/// The source of the line on which a value begins.
#[derive(Clone, Copy)]
pub(super) enum Lines<'l> {
    /// The parser reports it.
    Told,
    /// The stream counts the lines read so far: the parser reads no byte before it needs it.
    Counted(&'l Cell<u64>),
}

/// A value with the line on which it begins.
struct At<'l, T>(Lines<'l>, PhantomData<T>);

impl<'l, T> At<'l, T> {
    fn new(lines: Lines<'l>) -> Self {
        Self(lines, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for At<'_, T> {
    type Value = (u64, T);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            Lines::Told => {
                let spanned = Spanned::<T>::deserialize(deserializer)?;
                Ok((spanned.referenced.line(), spanned.value))
            }
            Lines::Counted(line) => {
                let line = line.get();
                Ok((line, T::deserialize(deserializer)?))
            }
        }
    }
}

/// The contents of a document.
pub(super) enum Document<K> {
    /// An object, or the items of a List.
    Objects(Vec<Found<K>>),
    /// Something other than a Kubernetes object.
    Other,
}

/// An object and the part of it that is kept.
pub(super) struct Found<K> {
    /// The line on which it begins. If it is the only object of its document, the first line of the document.
    pub line: u64,
    /// Kind and name.
    pub object: String,
    /// `None` if it has no name.
    pub identity: Option<Identity>,
    pub result: Result<Option<K>, String>,
}

impl<K: Keep> Found<K> {
    fn new(line: u64, mut manifest: Manifest) -> Self {
        let object = manifest.describe();
        if !K::KEEPS_NULLS {
            remove_nulls(&mut manifest.value);
        }
        if manifest.kind.is_empty() || manifest.api_version.is_empty() {
            let result = Err("apiVersion and kind are missing".to_owned());
            return Self { line, object: "an item of a List".to_owned(), identity: None, result };
        }
        let identity = Identity::of(&manifest);
        Self { line, object, identity, result: K::keep(manifest).map_err(|error| error.to_string()) }
    }

    /// An object whose items were read as those of a List, before its kind.
    fn too_late(line: u64, manifest: &Manifest) -> Self {
        let words = "its items come before its kind, which is no List: write apiVersion and kind first";
        Self { line, object: manifest.describe(), identity: None, result: Err(words.to_owned()) }
    }
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

impl<'de, K: Keep> Deserialize<'de> for Document<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DocumentVisitor::new(Lines::Told).deserialize(deserializer)
    }
}

pub(super) struct DocumentVisitor<'l, K> {
    lines: Lines<'l>,
    kept: PhantomData<K>,
}

impl<'l, K> DocumentVisitor<'l, K> {
    pub(super) fn new(lines: Lines<'l>) -> Self {
        Self { lines, kept: PhantomData }
    }
}

impl<'de, K: Keep> DeserializeSeed<'de> for DocumentVisitor<'_, K> {
    type Value = Document<K>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document<K>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Keep> Visitor<'de> for DocumentVisitor<'_, K> {
    type Value = Document<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    super::scalars!(Document::Other);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document<K>, A::Error> {
        while items.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(Document::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document<K>, A::Error> {
        let (mut fields, mut items) = (Map::new(), None);
        let mut start = match self.lines {
            Lines::Told => None,
            Lines::Counted(line) => Some(line.get()),
        };
        while let Some((line, key)) = map.next_key_seed(At::<String>::new(self.lines))? {
            start.get_or_insert(line);
            let of_list = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            if key == "items" && (of_list("kind").is_empty() || of_list("kind").ends_with("List")) {
                let api_version = of_list("apiVersion").to_owned();
                let kind = of_list("kind").strip_suffix("List").unwrap_or_default().to_owned();
                items = Some(map.next_value_seed(Items { lines: self.lines, api_version, kind, kept: PhantomData })?);
            } else {
                fields.insert(key, map.next_value()?);
            }
        }
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let manifest = Manifest { api_version: text("apiVersion"), kind: text("kind"), value: Value::Null };
        if manifest.kind.is_empty() || manifest.api_version.is_empty() {
            return Ok(Document::Other);
        }
        let line = start.unwrap_or_default();
        match (manifest.kind.strip_suffix("List"), items) {
            (Some(kind), Some(items)) => {
                let objects = items.into_iter().map(|item| item.object(&manifest.api_version, kind));
                return Ok(Document::Objects(objects.collect()));
            }
            (None, Some(items)) => {
                let Some(values) = items.into_iter().map(Item::value).collect() else {
                    let manifest = Manifest { value: Value::Object(fields), ..manifest };
                    return Ok(Document::Objects(vec![Found::too_late(line, &manifest)]));
                };
                fields.insert("items".to_owned(), Value::Array(values));
            }
            (_, None) => {}
        }
        let manifest = Manifest { value: Value::Object(fields), ..manifest };
        Ok(Document::Objects(vec![Found::new(line, manifest)]))
    }
}

/// An item of a List.
enum Item<K> {
    Found(Found<K>),
    /// An item without `apiVersion` or `kind` of a List whose own type has not been read yet.
    Untyped(u64, Value),
}

impl<K: Keep> Item<K> {
    /// Adds the item to `items`, or its own items if it is a List. An item that does not say its type is of this one.
    fn read(line: u64, mut value: Value, api_version: &str, kind: &str, items: &mut Vec<Self>) {
        let (api_version, kind) = type_of(&value, api_version, kind);
        if api_version.is_empty() || kind.is_empty() {
            return items.push(Self::Untyped(line, value));
        }
        if let (Some(kind), Some(Value::Array(own))) = (kind.strip_suffix("List"), value.get_mut("items")) {
            for item in std::mem::take(own) {
                Self::read(line, item, &api_version, kind, items);
            }
            return;
        }
        let found = Found::new(line, Manifest { api_version, kind, value });
        // Fields that no command uses need no memory.
        if !matches!(found.result, Ok(None)) {
            items.push(Self::Found(found));
        }
    }

    /// Returns the item as it was written; `None` if it was read as an object.
    fn value(self) -> Option<Value> {
        match self {
            Self::Found(_) => None,
            Self::Untyped(_, value) => Some(value),
        }
    }

    /// Returns the object. If it does not say its type, it is of this one.
    fn object(self, api_version: &str, kind: &str) -> Found<K> {
        match self {
            Self::Found(found) => found,
            Self::Untyped(line, value) => {
                let (api_version, kind) = type_of(&value, api_version, kind);
                Found::new(line, Manifest { api_version, kind, value })
            }
        }
    }
}

/// Returns `apiVersion` and `kind` of an item, which are those of its List if it names none.
fn type_of(item: &Value, api_version: &str, kind: &str) -> (String, String) {
    let text = |name, of_list: &str| item.get(name).and_then(Value::as_str).unwrap_or(of_list).to_owned();
    (text("apiVersion", api_version), text("kind", kind))
}

/// The items of a List. Items of a typed list, such as `NodeList`, need no `apiVersion` and `kind`.
struct Items<'l, K> {
    lines: Lines<'l>,
    /// The type of the items; empty as far as it has not been read yet.
    api_version: String,
    kind: String,
    kept: PhantomData<K>,
}

impl<'de, K: Keep> DeserializeSeed<'de> for Items<'_, K> {
    type Value = Vec<Item<K>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Keep> Visitor<'de> for Items<'_, K> {
    type Value = Vec<Item<K>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    /// A field with the name `items` in an object that is not a List.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some((line, item)) = elements.next_element_seed(At::<Value>::new(self.lines))? {
            Item::read(line, item, &self.api_version, &self.kind, &mut items);
        }
        Ok(items)
    }
}
