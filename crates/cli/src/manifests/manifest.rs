//! An object in a manifest, and the part of it that a command keeps.

use serde::Deserialize;
use serde::de::Error;
use serde_json::{Value, json};
use winpool_analysis::crd::broken_rules;
use winpool_analysis::kinds::group_of;
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

    /// Returns the object as a WindowsPool. If it has no spec, the API server adds an empty one. Fails if the rules
    /// of the CRD refuse it. One that is being deleted need not be valid.
    pub fn into_pool(mut self) -> Result<Box<GuardedPool>, serde_json::Error> {
        if let Value::Object(object) = &mut self.value {
            object.entry("spec").or_insert_with(|| json!({}));
        }
        let pool = GuardedPool::deserialize(&self.value)?;
        pool.pool().map_err(serde_json::Error::custom)?;
        let broken = if pool.metadata.deletion_timestamp.is_some() { Vec::new() } else { broken_rules(&self.value) };
        if broken.is_empty() { Ok(Box::new(pool)) } else { Err(serde_json::Error::custom(broken.join("; "))) }
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

/// The part of an object that a command keeps.
pub trait Keep: Sized {
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
