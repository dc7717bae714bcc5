//! Reads one document of YAML or JSON: an object, or a List, one item at a time.

use std::{cell::Cell, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_yaml::Spanned;

use super::{Keep, Manifest};

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
            return Self { line, object: "an item of a List".to_owned(), result };
        }
        Self { line, object, result: K::keep(manifest).map_err(|error| error.to_string()) }
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
            if key == "items" {
                let of_list = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
                let (api_version, kind) = (of_list("apiVersion"), of_list("kind"));
                let kind = kind.strip_suffix("List").unwrap_or_default();
                items = Some(map.next_value_seed(Items::new(self.lines, api_version, kind))?);
            } else {
                fields.insert(key, map.next_value()?);
            }
        }
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let manifest = Manifest { api_version: text("apiVersion"), kind: text("kind"), value: Value::Null };
        if manifest.kind.is_empty() || manifest.api_version.is_empty() {
            return Ok(Document::Other);
        }
        if let (true, Some(items)) = (manifest.kind.ends_with("List"), items) {
            return Ok(Document::Objects(items));
        }
        let manifest = Manifest { value: Value::Object(fields), ..manifest };
        Ok(Document::Objects(vec![Found::new(start.unwrap_or_default(), manifest)]))
    }
}

/// The items of a List. Items of a typed list, such as `NodeList`, need no `apiVersion` and `kind`.
struct Items<'l, K> {
    lines: Lines<'l>,
    api_version: String,
    kind: String,
    kept: PhantomData<K>,
}

impl<'l, K> Items<'l, K> {
    fn new(lines: Lines<'l>, api_version: &str, kind: &str) -> Self {
        Self { lines, api_version: api_version.to_owned(), kind: kind.to_owned(), kept: PhantomData }
    }
}

impl<'de, K: Keep> DeserializeSeed<'de> for Items<'_, K> {
    type Value = Vec<Found<K>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Keep> Visitor<'de> for Items<'_, K> {
    type Value = Vec<Found<K>>;

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

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some((line, item)) = items.next_element_seed(At::<Value>::new(self.lines))? {
            let text = |name| item.get(name).and_then(Value::as_str);
            let manifest = Manifest {
                api_version: text("apiVersion").unwrap_or(&self.api_version).to_owned(),
                kind: text("kind").unwrap_or(&self.kind).to_owned(),
                value: Value::Null,
            };
            let found_here = Found::new(line, Manifest { value: item, ..manifest });
            // Fields that no command uses need no memory.
            if !matches!(found_here.result, Ok(None)) {
                found.push(found_here);
            }
        }
        Ok(found)
    }
}
