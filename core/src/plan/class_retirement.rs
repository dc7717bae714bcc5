//! The end of a RuntimeClass that no pool wants any more.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::Value;

use crate::{
    api::{Taint, names},
    labels::Labels,
    pod::Class,
};

use super::{
    patch::FieldChange,
    pods::{ClassUsers, describe_users},
    runtime_class::{change, is_made_by_winpool, lacks_tolerations},
};

/// The end of a class that is winpool's and that no pool wants any more.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRetirement {
    /// Delete it: winpool created it, and no unfinished pod uses it.
    Delete,
    /// Keep it, without winpool's labels.
    Release {
        changes: Vec<FieldChange>,
        /// The reason why it is not deleted.
        why: String,
    },
}

/// Decides about a class that no pool wants any more. `users` are its unfinished pods, or the reason why pods cannot
/// be listed.
pub fn retire_class(class: &RuntimeClass, users: Result<&ClassUsers, &str>) -> ClassRetirement {
    let why = match users {
        _ if !is_made_by_winpool(class) => "winpool did not create it".to_owned(),
        Ok(ClassUsers { count: 0, .. }) => return ClassRetirement::Delete,
        users => describe_users(users),
    };
    release_class(class, why)
}

/// Releases a class: removes winpool's labels and keeps everything else.
pub fn release_class(class: &RuntimeClass, why: String) -> ClassRetirement {
    let label = |key: &'static str| {
        let value = class.labels().get(key)?;
        Some(change(&["metadata", "labels", key], value, &Value::Null))
    };
    let managed_by = is_made_by_winpool(class).then(|| label(names::MANAGED_BY)).flatten();
    ClassRetirement::Release { changes: label(names::POOL).into_iter().chain(managed_by).collect(), why }
}

/// The taints of pools that stay on one node, with its labels: the node refuses to be changed or is ignored, its kubelet
/// added the taint, or winpool's record on the node is gone.
pub type KeptTaints = (Labels, Vec<Taint>);

/// True if a node that the class selects keeps a taint that the class tolerates, so that its pods still need the class.
pub(super) fn is_needed_by<'a>(class: &RuntimeClass, kept: impl IntoIterator<Item = &'a KeptTaints>) -> bool {
    let mut selector = Class::from(class).selector;
    // The same cleanup may remove these labels.
    selector.retain(|key, _| !key.starts_with(names::CAPABILITY_LABEL_PREFIX));
    let mut selected = kept.into_iter().filter(|(labels, _)| labels.matches(&selector));
    selected.any(|(_, taints)| taints.iter().any(|taint| !lacks_tolerations(class, [taint])))
}

/// The reason why such a class is not deleted.
pub(super) const KEPT_TAINT: &str = "nodes keep a taint that it tolerates";
