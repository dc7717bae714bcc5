//! The RuntimeClasses for Windows, and who uses them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;

use crate::explain::status::ClassSummary;
use crate::view::View;

use super::order::by_namespace;

/// A RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassUse {
    #[serde(flatten)]
    pub class: ClassSummary,
    /// The workloads whose pods name it.
    pub users: Vec<ObjectReference>,
}

/// The workloads by the name of their RuntimeClass.
pub(super) type Users = BTreeMap<String, Vec<ObjectReference>>;

pub(super) fn users(view: &View) -> Users {
    let mut users = Users::new();
    view.written.each(|_, workload| {
        if let Some(class) = &workload.pod.runtime_class {
            users.entry(class.clone()).or_default().push(workload.object());
        }
    });
    for users in users.values_mut() {
        users.sort_by_cached_key(by_namespace);
    }
    users
}

/// Adds the users to the classes.
pub(super) fn uses(classes: Vec<ClassSummary>, mut users: Users) -> Vec<ClassUse> {
    let with_users = |class: ClassSummary| {
        let users = users.remove(&class.name).unwrap_or_default();
        ClassUse { class, users }
    };
    classes.into_iter().map(with_users).collect()
}
