//! A pool as it is watched: one that does not decode must not blind the operator to the others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::{
    api::{WindowsPool, WindowsPoolStatus, validation::Violation},
    plan::{InvalidPool, Pool},
};

/// A pool that may not decode, with the status that it has in any case: what was reported of a pool, its taints above
/// all, is not forgotten when its spec cannot be read any more.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = WindowsPool)]
#[serde(try_from = "Value")]
pub struct GuardedPool {
    /// `metadata`.
    pub metadata: ObjectMeta,
    /// The pool, or why it does not decode.
    pub pool: Result<WindowsPool, String>,
    /// `status`, if that decodes.
    pub status: Option<WindowsPoolStatus>,
    /// Of `status` as the server sent it, what the next one is guarded by.
    pub recorded: Option<Value>,
}

impl TryFrom<Value> for GuardedPool {
    type Error = serde_json::Error;

    fn try_from(object: Value) -> Result<Self, Self::Error> {
        let part = |name| object.get(name).unwrap_or(&Value::Null);
        let status = object.get("status").filter(|status| status.is_object());
        Ok(Self {
            metadata: ObjectMeta::deserialize(part("metadata"))?,
            status: Option::deserialize(part("status")).unwrap_or_default(),
            recorded: status.map(|status| json!({"taints": status.get("taints")})),
            pool: WindowsPool::deserialize(&object).map_err(|error| error.to_string()),
        })
    }
}

impl GuardedPool {
    /// The pool as plans use it.
    ///
    /// # Errors
    /// When it does not decode, or breaks a rule.
    pub fn read(&self) -> Result<Pool, InvalidPool> {
        match &self.pool {
            Ok(pool) => Pool::read(pool),
            Err(error) => {
                let violation = Violation { field: "spec".to_owned(), message: error.clone() };
                Err(InvalidPool { name: self.name_any(), violations: vec![violation] })
            }
        }
    }
}
