//! Remedies as `kubectl patch` commands.

use serde_json::{Value, json};
use winpool_core::api::ObjectReference;

use super::{Edit, Operation, Remedy, parsed};
use crate::kinds::{WorkloadKind, template_at};

impl Remedy {
    /// Returns the change as a JSON merge patch (RFC 7396) of the object, if none of the edits is in a list.
    pub fn merge_patch(&self, template: &str) -> Option<Value> {
        if self.edits.is_empty() || self.edits.iter().any(Edit::is_in_list) {
            return None;
        }
        let mut patch = json!({});
        for edit in &self.edits {
            let whole = parsed(&edit.pointer_in(template));
            let field = whole.tokens().fold(&mut patch, |object, key| &mut object[&*key.decoded()]);
            *field = edit.value.clone();
        }
        Some(patch)
    }

    /// Returns the command that makes the change in a cluster, if that needs no knowledge of the object and the API server
    /// accepts it. `object` has the problem.
    pub fn command(&self, object: &ObjectReference) -> Option<String> {
        let object = self.object.as_ref().unwrap_or(object);
        let template = changing_template(&object.kind)?;
        Some(match self.merge_patch(&template) {
            Some(patch) => kubectl_patch(object, "merge", &patch),
            None => kubectl_patch(object, "json", &self.patch_of_items(&template)?),
        })
    }

    /// Returns the command that makes the change in this object of a cluster, if the API server accepts it. `written` is the object as
    /// the API server has it.
    pub fn command_for(&self, object: &ObjectReference, written: &Value) -> Option<String> {
        let patch = self.json_patch(written, &changing_template(&object.kind)?);
        Some(kubectl_patch(object, "json", &json!(patch)))
    }

    /// Returns the JSON Patch if every edit sets a field of an item of a list, which is there.
    fn patch_of_items(&self, template: &str) -> Option<Value> {
        let is_of_item = |edit: &Edit| {
            let parent = edit.segments().into_iter().rev().nth(1);
            edit.op == Operation::Set && parent.is_some_and(|parent| parent.parse::<usize>().is_ok())
        };
        let operation = |edit: &Edit| json!({"op": "add", "path": edit.pointer_in(template), "value": edit.value});
        let are_all = !self.edits.is_empty() && self.edits.iter().all(is_of_item);
        are_all.then(|| self.edits.iter().map(operation).collect())
    }
}

/// Returns the JSON Pointer of the pod template in objects of this kind, or of a whole `WindowsPool`; `None` if the object does not change,
/// or new pods do not follow a change.
fn changing_template(kind: &str) -> Option<String> {
    match kind {
        "WindowsPool" => Some(String::new()),
        kind => WorkloadKind::own(kind).filter(|kind| kind.takes_changes)?.path.map(template_at),
    }
}

fn kubectl_patch(ObjectReference { kind, namespace, name }: &ObjectReference, form: &str, patch: &Value) -> String {
    let namespace = namespace.as_ref().map_or_else(String::new, |namespace| format!(" -n {namespace}"));
    // In single quotes a shell changes nothing but the quote itself.
    let patch = patch.to_string().replace('\'', r"'\''");
    format!("kubectl patch {} {name}{namespace} --type {form} -p '{patch}'", kind.to_lowercase())
}
