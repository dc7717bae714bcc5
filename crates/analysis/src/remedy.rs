//! Remedies: changes of a workload or of a WindowsPool that solve a problem, as edits and in words.

mod command;

use std::fmt;

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use winpool_core::api::{HostMatch, Mode, ObjectReference, Taint, names};
use winpool_core::plan::pools::pool::{Hosts, PoolSpec};
use winpool_core::pod::tolerations::{toleration, written};
use winpool_core::words::yaml;

use crate::pod::{Container, PodSpec};

/// A change that solves a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The change in words.
    pub text: String,
    /// The certainty of the change.
    pub rank: Rank,
    /// The object to edit, if it is not the object with the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ObjectReference")]
    pub object: Option<ObjectReference>,
    /// The same change as edits; absent if it is not in a field, or if its value is your decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
}

/// The certainty of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Rank {
    /// The edits solve the problem, and change nothing else.
    Certain,
    /// The edits solve the problem if the workload is for the system that its image names or programs show.
    Probable,
    /// It is your decision: there are other ways, or winpool does not know enough about the workload.
    Decision,
}

/// A change of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edit {
    /// The kind of change.
    pub op: Operation,
    /// The field as a JSON Pointer (RFC 6901): in a Pod, in the pod template of a workload, or in a WindowsPool. The
    /// objects on the way to it may have to be created. `/apiVersion` is a field of the workload itself.
    pub path: String,
    /// The value to set, or the item to append; absent if the field is removed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// The kind of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Adds or replaces the field.
    Set,
    /// Adds an item to the end of the list.
    Append,
    /// Removes the field.
    Remove,
}

const REQUIRED_AFFINITY: [&str; 4] =
    ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
const TERMS: &str = "nodeSelectorTerms";
/// The only field that is not in the pod template.
const API_VERSION: &str = "/apiVersion";
/// Objects that are removed with their last field. Others mean something without any, such as `emptyDir`.
const DROPPED: [&str; 6] = ["affinity", "annotations", "labels", "nodeAffinity", "nodeSelector", "securityContext"];
/// The words before a label to select.
const SELECT: &str = "set nodeSelector ";

impl Edit {
    pub fn set(path: &[&str], value: impl Serialize) -> Self {
        Self { op: Operation::Set, path: pointer(path), value: json!(value) }
    }

    pub fn remove(path: &[&str]) -> Self {
        Self { op: Operation::Remove, path: pointer(path), value: Value::Null }
    }

    /// Removes a field of the pod spec or of its `metadata`, such as `containers[0].securityContext.privileged`.
    pub fn remove_field(field: &str) -> Self {
        Self { op: Operation::Remove, path: pointer_of_field(field), value: Value::Null }
    }

    /// Sets such a field.
    pub fn set_field(field: &str, value: impl Serialize) -> Self {
        Self { op: Operation::Set, path: pointer_of_field(field), value: json!(value) }
    }

    /// Selects nodes by a label.
    pub fn select(key: &str, value: &str) -> Self {
        Self::set(&["spec", "nodeSelector", key], value)
    }

    /// Selects Windows nodes.
    pub fn select_windows() -> Self {
        Self::select(names::OS, names::WINDOWS)
    }

    /// Selects nodes without regard to a label.
    pub fn unselect(key: &str) -> Self {
        Self::remove(&["spec", "nodeSelector", key])
    }

    /// Uses a RuntimeClass.
    pub fn class(name: &str) -> Self {
        Self::set(&["spec", "runtimeClassName"], name)
    }

    /// Tolerates a taint.
    pub fn tolerate(taint: &Taint) -> Self {
        Self { op: Operation::Append, path: pointer(&["spec", "tolerations"]), value: json!(toleration(taint)) }
    }

    /// Requires a node of one of these builds.
    pub fn require_builds(builds: impl IntoIterator<Item = String>) -> Self {
        let (key, values) = (names::WINDOWS_BUILD.to_owned(), Some(builds.into_iter().collect()));
        let requirement = NodeSelectorRequirement { key, operator: "In".to_owned(), values };
        let terms = [NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None }];
        let [spec, affinity, of_node, required] = REQUIRED_AFFINITY;
        Self::set(&[spec, affinity, of_node, required, TERMS], terms)
    }

    /// Removes the required node affinity.
    pub fn require_nothing() -> Self {
        Self::remove(&REQUIRED_AFFINITY)
    }

    /// Makes the same change in a pod spec, if winpool reads the field.
    pub fn apply(&self, spec: &mut PodSpec) {
        let text = || self.value.as_str().map(str::to_owned);
        let segments = self.segments();
        match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["spec", "nodeName"] => spec.node = text(),
            ["spec", "runtimeClassName"] => spec.runtime_class = text(),
            ["spec", "os", "name"] => spec.os = text(),
            ["spec", "nodeSelector", key] => {
                spec.node_selector.remove(*key);
                spec.node_selector.extend(text().map(|value| ((*key).to_owned(), value)));
            }
            ["spec", "tolerations"] => spec.tolerations.extend(Toleration::deserialize(&self.value).ok()),
            ["spec", "affinity", ..] => spec.terms = Vec::deserialize(&self.value).unwrap_or_default(),
            ["spec", list, index, "image"] => {
                let is_at = |container: &&mut Container| {
                    container.list.as_str() == *list && index.parse() == Ok(container.index)
                };
                spec.containers.iter_mut().filter(is_at).for_each(|container| container.image = text());
            }
            _ => {}
        }
    }

    /// Returns the JSON Pointer of the field in an object that has its pod template at `template`.
    pub fn pointer_in(&self, template: &str) -> String {
        let prefix = if self.path == API_VERSION { "" } else { template };
        format!("{prefix}{}", self.path)
    }

    /// Returns the operation on this object, which also creates the parents of the field. `None` if there is nothing to remove.
    fn operation(&self, object: &Value, template: &str) -> Option<PatchOperation> {
        let value_at = |path: &Pointer| object.pointer(path.as_str()).filter(|value| !value.is_null());
        let (mut path, mut value) = (parsed(&self.pointer_in(template)), self.value.clone());
        match self.op {
            Operation::Remove => {
                value_at(&path)?;
                let is_alone = |parent: &Pointer| {
                    let (name, fields) = (parent.back(), value_at(parent).and_then(Value::as_object));
                    name.is_some_and(|name| DROPPED.contains(&&*name.decoded()))
                        && fields.is_some_and(|fields| fields.len() == 1)
                };
                while let Some((parent, _)) = path.split_back().filter(|(parent, _)| is_alone(parent)) {
                    path = parent.to_buf();
                }
                return Some(PatchOperation::Remove(RemoveOperation { path }));
            }
            Operation::Append if value_at(&path).is_some() => path.push_back("-"),
            Operation::Append => value = json!([value]),
            Operation::Set => {}
        }
        while let Some((parent, key)) = path.split_back()
            && value_at(parent).is_none()
        {
            value = json!({ (key.decoded()): value });
            path = parent.to_buf();
        }
        Some(PatchOperation::Add(AddOperation { path, value }))
    }

    fn is_selection(&self) -> bool {
        self.op == Operation::Set && self.path.starts_with("/spec/nodeSelector/")
    }

    fn is_in_list(&self) -> bool {
        self.op == Operation::Append || self.segments().iter().any(|segment| segment.parse::<usize>().is_ok())
    }

    fn segments(&self) -> Vec<String> {
        parsed(&self.path).tokens().map(|token| token.decoded().into_owned()).collect()
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.op {
            Operation::Set => "set",
            Operation::Append => "add",
            Operation::Remove => "remove",
        };
        let segments = self.segments();
        let field = match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["spec", "nodeSelector", key] => format!("nodeSelector {key}"),
            ["metadata", "labels", key] => format!("the pod's label {key}"),
            ["spec", "tolerations"] => {
                let toleration = Toleration::deserialize(&self.value).unwrap_or_default();
                return write!(f, "{verb} the toleration {}", written(&toleration));
            }
            ["spec", "affinity", ..] if self.op == Operation::Remove => "the required node affinity".to_owned(),
            ["spec", "affinity", ..] => {
                let terms = self.value.as_array().into_iter().flatten();
                let expressions = terms.flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
                let expressions: Vec<String> = expressions.map(yaml).collect();
                return write!(f, "add the required node affinity {}", expressions.join(" or "));
            }
            ["spec", field @ ..] | field => written_field(field),
        };
        match &self.value {
            Value::Null => write!(f, "{verb} {field}"),
            Value::String(text) => write!(f, "{verb} {field}: {text}"),
            value => write!(f, "{verb} {field}: {}", yaml(value)),
        }
    }
}

impl Remedy {
    /// Returns the edits as a certain remedy, in their own words.
    pub fn of(edits: Vec<Edit>) -> Self {
        let mut remedy = Self { text: String::new(), rank: Rank::Certain, object: None, edits: Vec::new() };
        for edit in edits {
            remedy.push(edit);
        }
        remedy
    }

    /// Returns a change in words alone, without edits.
    pub fn advice(text: impl Into<String>) -> Self {
        Self { text: text.into(), rank: Rank::Decision, object: None, edits: Vec::new() }
    }

    /// Returns the change of the pool with which the pods of this class of the pool run on every node that runs their images.
    /// `None` if the class is not for nodes of its own build alone.
    pub fn compatible(pool: &PoolSpec, class: &str) -> Option<Self> {
        let edit = |path: &[&str]| Self::of(vec![Edit::set(path, HostMatch::Compatible)]).undecided();
        let remedy = match pool.declared.iter().enumerate().find(|(_, (_, declared))| declared.name == class) {
            None if pool.host_match == HostMatch::Exact => edit(&["spec", "runtimeClassHostMatch"]),
            Some((position, (Hosts::Of(_), _))) => {
                edit(&["spec", "runtimeClasses", &position.to_string(), "hostMatch"])
                    .saying(format!("set hostMatch: Compatible for RuntimeClass {class}"))
            }
            None | Some(_) => return None,
        };
        let remedy = if pool.mode == Mode::DryRun {
            remedy.then(Self::of(vec![Edit::set(&["spec", "mode"], Mode::Enforce)]))
        } else {
            remedy
        };
        Some(Self { object: Some(ObjectReference::windows_pool(&pool.name)), ..remedy })
    }

    /// Adds an edit, in its own words.
    pub fn push(&mut self, edit: Edit) {
        let words = edit.to_string();
        match words.strip_prefix(SELECT).filter(|_| self.edits.last().is_some_and(Edit::is_selection)) {
            Some(label) => self.text = format!("{}, {label}", self.text),
            None => self.also(&words),
        }
        self.edits.push(edit);
    }

    /// Adds another change in words alone.
    pub fn also(&mut self, words: &str) {
        let separator = if self.text.is_empty() { "" } else { "; " };
        self.text = format!("{}{separator}{words}", self.text);
    }

    /// Uses other words for the edits.
    pub fn saying(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    /// Adds words after those of the edits.
    pub fn and(mut self, words: &str) -> Self {
        self.text.push_str(words);
        self
    }

    /// Returns the RuntimeClass that the edits set.
    pub fn class(&self) -> Option<&str> {
        self.edits
            .iter()
            .find(|edit| edit.op == Operation::Set && edit.path == pointer(&["spec", "runtimeClassName"]))
            .and_then(|edit| edit.value.as_str())
    }

    /// Adds words before those of the edits.
    pub fn after(self, words: &str) -> Self {
        Self { text: format!("{words}{}", self.text), ..self }
    }

    /// Adds the name of the object to edit before the words.
    pub fn in_object(self) -> Self {
        let words = self.object.as_ref().map_or_else(String::new, |object| format!("in {object}: "));
        self.after(&words)
    }

    /// Makes another change too.
    pub fn then(mut self, other: Self) -> Self {
        self.also(&other.text);
        self.edits.extend(other.edits);
        let rank = self.rank.max(other.rank);
        Self { rank, ..self }
    }

    /// Declares that the change is right only if the workload is for the system that it seems to be for.
    pub fn probable(self) -> Self {
        let rank = self.rank.max(Rank::Probable);
        Self { rank, ..self }
    }

    /// Declares that the change is a decision.
    pub fn undecided(self) -> Self {
        Self { rank: Rank::Decision, ..self }
    }

    /// Returns the change as a JSON Patch (RFC 6902) of this object. `template` is the JSON Pointer of the pod template in it:
    /// `/spec/template`, or empty for a Pod or a WindowsPool.
    pub fn json_patch(&self, object: &Value, template: &str) -> Patch {
        let (mut changed, mut operations) = (object.clone(), Vec::new());
        for edit in &self.edits {
            let operation = edit.operation(&changed, template);
            // Each operation is for the object with the ones before.
            if json_patch::patch(&mut changed, operation.as_slice()).is_ok() {
                operations.extend(operation);
            }
        }
        Patch(operations)
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self::advice(text)
    }
}

impl From<Vec<Edit>> for Remedy {
    fn from(edits: Vec<Edit>) -> Self {
        Self::of(edits)
    }
}

fn pointer(path: &[&str]) -> String {
    PointerBuf::from_tokens(path.iter().copied()).to_string()
}

fn parsed(path: &str) -> PointerBuf {
    PointerBuf::parse(path).unwrap_or_default()
}

/// Writes a path as `containers[0].image`.
fn written_field(path: &[&str]) -> String {
    path.iter().fold(String::new(), |field, key| match key.parse::<usize>() {
        Ok(index) => format!("{field}[{index}]"),
        Err(_) if field.is_empty() => (*key).to_owned(),
        Err(_) => format!("{field}.{key}"),
    })
}

/// Returns the pointer of a field of the pod spec or of its `metadata`.
fn pointer_of_field(field: &str) -> String {
    let part = if field.starts_with("metadata.") { "" } else { "/spec" };
    format!("{part}/{}", field.replace('[', "/").replace(']', "").replace('.', "/"))
}

#[cfg(test)]
mod tests;
