//! Reads one document of YAML or JSON: an object, or a List, one item at a time.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_yaml::Spanned;

use super::manifest::{Keep, Manifest};
use super::objects::Identity;
use super::tree::{Key, Tree, set};

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

pub(super) enum DocumentContents<K> {
    /// An object, or the items of a List.
    Objects(Vec<InputObject<K>>),
    /// Something other than a Kubernetes object.
    Other,
}

/// An object and the part of it that is kept.
pub(super) struct InputObject<K> {
    /// The line on which it begins. If it is the only object of its document, the first line of the document.
    pub line: u64,
    /// Kind and name.
    pub object: String,
    /// `None` if it has no name.
    pub identity: Option<Identity>,
    pub result: Result<Option<K>, String>,
}

impl<K: Keep> InputObject<K> {
    fn new(line: u64, mut manifest: Manifest) -> Self {
        let object = manifest.describe();
        remove_nulls(&mut manifest.value);
        if manifest.kind.is_empty() || manifest.api_version.is_empty() {
            let result = Err("apiVersion and kind are missing".to_owned());
            return Self { line, object: "an item of a List".to_owned(), identity: None, result };
        }
        let identity = Identity::of(&manifest);
        Self { line, object, identity, result: K::keep(manifest).map_err(|error| error.to_string()) }
    }
}

/// Removes fields without a value, which the API server ignores too.
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

impl<'de, K: Keep> Deserialize<'de> for DocumentContents<K> {
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
    type Value = DocumentContents<K>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<DocumentContents<K>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Keep> Visitor<'de> for DocumentVisitor<'_, K> {
    type Value = DocumentContents<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    scalars!(DocumentContents::Other);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<DocumentContents<K>, A::Error> {
        while items.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(DocumentContents::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DocumentContents<K>, A::Error> {
        let (mut fields, mut items) = (Map::new(), None);
        let mut start = match self.lines {
            Lines::Told => None,
            Lines::Counted(line) => Some(line.get()),
        };
        while let Some((line, Key(key))) = map.next_key_seed(At::<Key>::new(self.lines))? {
            start.get_or_insert(line);
            if key == "items" {
                let of_list = |name| text(&fields, name);
                let (api_version, kind) = (of_list("apiVersion"), of_item(&of_list("kind")).to_owned());
                items = map.next_value_seed(ListItems { lines: self.lines, api_version, kind, kept: PhantomData })?;
            } else {
                let Tree(value) = map.next_value()?;
                set(&mut fields, key, value);
            }
        }
        let (api_version, kind) = (text(&fields, "apiVersion"), text(&fields, "kind"));
        if kind.is_empty() || api_version.is_empty() {
            return Ok(DocumentContents::Other);
        }
        let Some(items) = items else {
            let manifest = Manifest { api_version, kind, value: Value::Object(fields) };
            return Ok(DocumentContents::Objects(vec![InputObject::new(start.unwrap_or_default(), manifest)]));
        };
        Ok(DocumentContents::Objects(items.into_iter().map(|item| item.object(&api_version, of_item(&kind))).collect()))
    }
}

/// Returns a field with text; empty if there is none.
fn text(fields: &Map<String, Value>, name: &str) -> String {
    fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the kind of the items of a List that do not name theirs.
fn of_item(kind: &str) -> &str {
    kind.strip_suffix("List").unwrap_or(kind)
}

/// An item of a List.
enum Item<K> {
    Found(InputObject<K>),
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
        if let Some(Value::Array(list)) = value.get_mut("items") {
            for item in std::mem::take(list) {
                Self::read(line, item, &api_version, of_item(&kind), items);
            }
            return;
        }
        let object = InputObject::new(line, Manifest { api_version, kind, value });
        // Fields that no command uses need no memory.
        if !matches!(object.result, Ok(None)) {
            items.push(Self::Found(object));
        }
    }

    /// Returns the object. If it does not say its type, it is of this one.
    fn object(self, api_version: &str, kind: &str) -> InputObject<K> {
        match self {
            Self::Found(found) => found,
            Self::Untyped(line, value) => {
                let (api_version, kind) = type_of(&value, api_version, kind);
                InputObject::new(line, Manifest { api_version, kind, value })
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
struct ListItems<'l, K> {
    lines: Lines<'l>,
    /// The type of the items; empty as far as it has not been read yet.
    api_version: String,
    kind: String,
    kept: PhantomData<K>,
}

impl<'de, K: Keep> DeserializeSeed<'de> for ListItems<'_, K> {
    type Value = Option<Vec<Item<K>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Keep> Visitor<'de> for ListItems<'_, K> {
    type Value = Option<Vec<Item<K>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Vec::new()))
    }

    /// A field `items` of another type. kubectl refuses such an object.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some((line, item)) = elements.next_element_seed(At::<Tree>::new(self.lines))? {
            Item::read(line, item.0, &self.api_version, &self.kind, &mut items);
        }
        Ok(Some(items))
    }
}
