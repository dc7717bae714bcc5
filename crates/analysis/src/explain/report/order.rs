//! The order of objects in a report.

use winpool_core::api::ObjectReference;

/// The order of objects: those without a namespace first, then by namespace, kind and name.
pub(super) fn by_namespace(object: &ObjectReference) -> (Option<String>, String, String) {
    (object.namespace.clone(), object.kind.clone(), object.name.clone())
}
