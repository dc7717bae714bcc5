//! An object in a manifest, and the part of it that a command keeps.

use serde::Deserialize;
use serde_json::{Value, json};
use winpool_answers::workload::group_of;
use winpool_core::plan::pools::pool::GuardedPool;

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
        group_of(&self.api_version)
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
        let spec = self.value.get("spec").cloned().unwrap_or_default();
        let pool = GuardedPool::deserialize(self.value)?;
        let read = pool.pool().map_err(serde::de::Error::custom)?;
        match list_for_object("spec", &spec, &json!(read.spec)) {
            None => Ok(Box::new(pool)),
            Some(path) => Err(serde::de::Error::custom(format!("{path} is a list; write an object"))),
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

    pub(super) fn describe(&self) -> String {
        let part = |name: &str| self.value.get("metadata").and_then(|metadata| metadata.get(name)?.as_str());
        match (part("namespace"), part("name")) {
            (Some(namespace), Some(name)) => format!("{} {namespace}/{name}", self.kind),
            (None, Some(name)) => format!("{} {name}", self.kind),
            _ => self.kind.clone(),
        }
    }
}

/// Returns the path of a list in a place where an object was decoded. serde also decodes an object from a list of its members:
/// `spec: []` would be an empty spec. The API server refuses such objects.
fn list_for_object(path: &str, written: &Value, read: &Value) -> Option<String> {
    match (written, read) {
        (Value::Array(_), Value::Object(_)) => Some(path.to_owned()),
        (Value::Object(written), Value::Object(read)) => {
            read.iter().find_map(|(key, read)| list_for_object(&format!("{path}.{key}"), written.get(key)?, read))
        }
        (Value::Array(written), Value::Array(read)) => {
            let mut items = written.iter().zip(read).enumerate();
            items.find_map(|(index, (written, read))| list_for_object(&format!("{path}[{index}]"), written, read))
        }
        _ => None,
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

/// The treatment of several objects with one kind, namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    Kept,
    /// Equal ones are kept once. Others are variants, such as those of two overlays of kustomize.
    EqualOnce,
    /// The last one is kept, as with `kubectl apply`.
    LastWins,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_no_object() {
        let read = |spec: Value| {
            let value = json!({"metadata": {"name": "a"}, "spec": spec});
            let manifest = Manifest { value, ..Manifest::default() };
            manifest.into_pool().map(drop).map_err(|error| error.to_string())
        };
        let named = json!(["10.0.29000", "preview"]);
        for (spec, path) in [
            (json!([]), "spec"),
            (json!({"podDefaults": []}), "spec.podDefaults"),
            (
                json!({"taints": [{"key": "a", "effect": "NoSchedule"}, ["os", "windows", "NoSchedule"]]}),
                "spec.taints[1]",
            ),
            (json!({"buildNames": [named]}), "spec.buildNames[0]"),
        ] {
            assert_eq!(read(spec.clone()), Err(format!("{path} is a list; write an object")), "{spec}");
        }
        let spec =
            json!({"podDefaults": {}, "taints": [{"key": "a", "effect": "NoSchedule"}], "nodeSelector": {"a": "b"}});
        assert_eq!(read(spec), Ok(()));
    }
}
