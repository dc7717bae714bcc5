//! Groups of objects, for lists by team: by namespace, or by the value of a label.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use winpool_core::api::ObjectReference;

use crate::view::View;
use crate::workload::{get, namespace_of};

/// The words before the key of a label.
const LABEL: &str = "label:";

/// What the objects of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Their namespace.
    Namespace,
    /// The value of the label with this key: their own, that of their pods, or that of their namespace.
    Label(String),
}

impl By {
    /// Returns the key of the label.
    pub fn label(&self) -> Option<&str> {
        if let Self::Label(key) = self { Some(key) } else { None }
    }

    /// Returns the title of a group.
    pub fn title(&self, group: Option<&str>) -> String {
        match (self, group) {
            (Self::Namespace, Some(name)) => format!("Namespace {name}"),
            (Self::Namespace, None) => "Without a namespace".to_owned(),
            (Self::Label(key), Some(value)) => format!("{key}: {value}"),
            (Self::Label(key), None) => format!("Without the label {key}"),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("namespace"),
            Self::Label(key) => write!(f, "{LABEL}{key}"),
        }
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix(LABEL)) {
            ("namespace", _) => Ok(Self::Namespace),
            (_, Some(key)) if !key.is_empty() => Ok(Self::Label(key.to_owned())),
            _ => Err("write namespace, or label:KEY such as label:team".to_owned()),
        }
    }
}

/// The groups of the objects in a view.
#[derive(Clone, Debug)]
pub struct Groups {
    by: By,
    /// The value of the label of each object that has it.
    own: BTreeMap<ObjectReference, String>,
    /// The value of the label of each namespace that has it.
    namespaces: BTreeMap<String, String>,
}

impl Groups {
    pub fn of(view: &View, by: &By) -> Self {
        let mut groups = Self { by: by.clone(), own: BTreeMap::new(), namespaces: BTreeMap::new() };
        let Some(key) = by.label() else { return groups };
        let value = |metadata: &Value| get(metadata, &["labels", key]).and_then(Value::as_str).map(str::to_owned);
        view.written.each(|_, workload| {
            let own = value(&workload.written["metadata"]).or_else(|| value(workload.metadata));
            groups.own.extend(own.map(|own| (workload.object(), own)));
        });
        for (_, service) in view.services.known().into_iter().flatten() {
            let name = service["metadata"]["name"].as_str().unwrap_or_default();
            let object = ObjectReference::namespaced("Service", namespace_of(service), name);
            groups.own.extend(value(&service["metadata"]).map(|own| (object, own)));
        }
        let named = view.namespace_labels.iter();
        groups.namespaces = named.filter_map(|(name, labels)| Some((name.clone(), labels.get(key)?.clone()))).collect();
        groups
    }

    /// Returns the group of an object; `None` if it has no namespace, or if neither it nor its namespace has the label.
    pub fn group(&self, object: &ObjectReference) -> Option<String> {
        let namespace = object.namespace.as_ref();
        match self.by {
            By::Namespace => namespace.cloned(),
            By::Label(_) => self.own.get(object).or_else(|| self.namespaces.get(namespace?)).cloned(),
        }
    }
}

/// Returns a key that sorts groups by name, and what has no group last.
pub fn order(group: Option<&str>) -> (bool, Option<String>) {
    (group.is_none(), group.map(str::to_owned))
}

/// Something with its group, if groups were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grouped<T> {
    #[serde(flatten)]
    pub found: T,
    /// The namespace, or the value of the label; absent if it has none, or if groups were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl<T> std::ops::Deref for Grouped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.found
    }
}
