//! The API server's way of applying a JSON Patch.

use json_patch::{Patch, PatchOperation, TestOperation};
use serde_json::Value;

/// Applies a patch as the API server does. The json-patch crate fails a `test` of an absent member; the API server
/// passes it if `null` is expected and the map is there, and fails it if the map itself is absent.
pub fn apply(object: &Value, patch: &Patch) -> Result<Value, String> {
    let mut result = object.clone();
    for operation in &patch.0 {
        if !expects_absence(operation, &result) {
            json_patch::patch(&mut result, std::slice::from_ref(operation))
                .map_err(|error| format!("{operation}: {error}"))?;
        }
    }
    Ok(result)
}

fn expects_absence(operation: &PatchOperation, object: &Value) -> bool {
    let PatchOperation::Test(TestOperation { path, value: Value::Null }) = operation else { return false };
    let Some((parent, key)) = path.split_back() else { return false };
    let map = object.pointer(parent.as_str()).and_then(Value::as_object);
    map.is_some_and(|map| !map.contains_key(key.decoded().as_ref()))
}
