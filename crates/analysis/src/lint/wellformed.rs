//! Rules about objects that the API server refuses whatever their operating system.
//!
//! Sources: the deprecated API migration guide in kubernetes/website, and the types of k8s.io/api. winpool reads such objects
//! nevertheless, so that one finding does not hide others.

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::finding::Consequence::Rejected;
use crate::finding::Finding;
use crate::finding::Severity::Error;
use crate::kinds::{WorkloadKind, group_of, is_own};
use crate::lint::Rule;
use crate::lint::facts::Facts;
use crate::lint::objects::{check_object, finding};
use crate::lint::rule::{Hit, Judgement, Scope, Subject, Test, own, rules};
use crate::remedy::{Edit, Remedy};
use crate::workload::get;

/// The longest description of a wrong value, in characters.
const DESCRIPTION: usize = 120;

/// The rule for values of the wrong type.
pub const FIELD_TYPE: &str = "field-type";

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks in a Deployment: `apiVersion: extensions/v1beta1`
    Rule {
        id: "api-version-removed",
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "apiVersion",
        reason: "no supported version of Kubernetes serves this version of the API",
        remedy: "write apps/v1, which requires spec.selector, or batch/v1",
        test: own(api_version),
        ..Rule::DEFAULT
    },
    /// - Breaks in a template: `containers: [{command: app.exe}]`
    Rule {
        id: FIELD_TYPE,
        verdict: Judgement(Error, Rejected),
        scope: Scope::Any,
        field: "containers[*]",
        reason: "a field has a value of the wrong type",
        remedy: "write a value of the type that the API has: kubectl explain shows it",
        test: own(types),
        ..Rule::DEFAULT
    },
    /// - Breaks: `kind: Deployment, spec: {replicas: 2}`
    Rule {
        id: "pod-template-missing",
        verdict: Judgement(Error, Rejected),
        scope: Scope::WithoutTemplate,
        field: "spec.template",
        reason: "the object has no pod template, so the API server refuses it",
        remedy: "add the template; for a patch, check the output of kubectl kustomize instead",
        test: Test::Object(|object, _, hits| {
            hits.push(Hit::at(path_of(object)));
        }),
        ..Rule::DEFAULT
    },
]);
const REMOVED: &Rule = &RULES[0];
const TYPES: &Rule = &RULES[1];

/// Returns the findings about an object of a known kind that has no pod spec.
pub fn check_without_template(object: &Value) -> Vec<Finding> {
    check_object(object["kind"].as_str().unwrap_or_default(), RULES, object, &Facts::none())
}

/// Returns the finding about a RuntimeClass of this version, which Kubernetes served until 1.24.
pub fn check_old_class(object: &Value, api_version: &str) -> Finding {
    let message = format!("no supported version of Kubernetes serves RuntimeClass in {api_version}");
    let hit = Hit::at("apiVersion").saying(message).remedied_by(write("node.k8s.io/v1"));
    finding(REMOVED, "RuntimeClass", object, hit)
}

/// Writes another API version with the same fields.
fn write(version: &str) -> Remedy {
    Remedy::of(vec![Edit::set(&["apiVersion"], version)]).saying(format!("write {version}"))
}

/// Returns the findings about an object of a known kind whose pod spec cannot be read, because a field has the wrong type, and the
/// object without these fields, so that other rules can check the rest.
pub fn check_malformed(object: &Value) -> (Vec<Finding>, Option<Value>) {
    let path = path_of(object);
    let keys: Vec<&str> = path.split('.').collect();
    let spec = get(object, &keys).unwrap_or(&Value::Null);
    let mut wrong = Vec::new();
    if spec.is_object() {
        find_wrong(&FieldPlace::default(), spec, &|value| value, &mut wrong);
    }
    let mut rest = object.clone();
    // From the last to the first, so that the positions in lists stay right.
    for (place, _) in wrong.iter().rev() {
        remove(&mut rest, &format!("/{}{}", keys.join("/"), place.pointer));
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut hits: Vec<Hit> =
        wrong.into_iter().map(|(place, message)| hit(format!("{path}.{}", place.path), message)).collect();
    let rest = Some(rest).filter(|_| !hits.is_empty());
    if hits.is_empty() {
        hits.push(hit(path.to_owned(), format!("{path} is not a pod spec")));
    }
    (hits.into_iter().map(|hit| finding(TYPES, kind, object, hit)).collect(), rest)
}

fn hit(field: String, message: String) -> Hit {
    Hit::at(field).saying(message)
}

/// Removes the value at this pointer.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(elements)) => {
            key.parse().ok().filter(|index| *index < elements.len()).map(|index: usize| elements.remove(index));
        }
        _ => {}
    }
}

/// Returns the path of the pod spec in an object of a known kind.
fn path_of(object: &Value) -> &'static str {
    let known = object["kind"].as_str().and_then(WorkloadKind::own);
    known.and_then(|kind| kind.path).unwrap_or("spec")
}

fn api_version(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let (kind, own) = (&*subject.workload.kind, &*subject.workload.api_version);
    // Others have kinds of these names in groups of their own, such as the DaemonSet of OpenKruise.
    let served = WorkloadKind::own(kind).map(WorkloadKind::api_version);
    let Some(served) = served.filter(|served| *served != own && is_own(group_of(own), kind)) else { return };
    let message = format!("no supported version of Kubernetes serves {kind} in {own}");
    let hit = Hit::at("apiVersion").saying(message);
    let is_only_name = served != "apps/v1" || subject.workload.has_selector();
    hits.push(if is_only_name {
        hit.remedied_by(write(served))
    } else {
        hit.remedied_by(format!("write {served}, which requires spec.selector"))
    });
}

fn types(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    if is_own(group_of(&subject.workload.api_version), &subject.workload.kind) {
        let mut wrong = Vec::new();
        find_wrong(&FieldPlace::default(), subject.workload.raw, &|value| value, &mut wrong);
        hits.extend(wrong.into_iter().map(|(place, message)| hit(place.path, message)));
    }
}

/// A place in a pod spec: `containers[0].image`, and as a JSON pointer `/containers/0/image`.
#[derive(Default)]
struct FieldPlace {
    path: String,
    pointer: String,
}

impl FieldPlace {
    fn field(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { path, pointer: format!("{}/{}", self.pointer, key.replace('~', "~0").replace('/', "~1")) }
    }

    fn element(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), pointer: format!("{}/{index}", self.pointer) }
    }
}

/// Finds the innermost values with the wrong type, each with a description. `wrap` returns a pod spec that has a value at this place
/// and nothing else: the types do not require any field.
fn find_wrong(place: &FieldPlace, value: &Value, wrap: &dyn Fn(Value) -> Value, wrong: &mut Vec<(FieldPlace, String)>) {
    let Err(error) = PodSpec::deserialize(wrap(value.clone())) else { return };
    match value {
        Value::Object(fields) if accepts(wrap, json!({})) => {
            for (key, field) in fields {
                find_wrong(&place.field(key), field, &|value| wrap(json!({key: value})), wrong);
            }
        }
        Value::Array(elements) if accepts(wrap, json!([])) => {
            for (index, element) in elements.iter().enumerate() {
                find_wrong(&place.element(index), element, &|value| wrap(json!([value])), wrong);
            }
        }
        // The API server also takes a number for a quantity.
        Value::Number(_) if is_quantity(&place.path) => {}
        _ => {
            let name = place.path.rsplit('.').next().unwrap_or_default();
            let description: String = error.to_string().chars().take(DESCRIPTION).collect();
            let message = format!("{name} has a value of the wrong type: {description}");
            wrong.push((FieldPlace { path: place.path.clone(), pointer: place.pointer.clone() }, message));
        }
    }
}

fn accepts(wrap: &dyn Fn(Value) -> Value, value: Value) -> bool {
    PodSpec::deserialize(wrap(value)).is_ok()
}

fn is_quantity(path: &str) -> bool {
    let parents = [".limits.", ".requests.", ".overhead.", "overhead.", ".sizeLimit", ".divisor"];
    parents.iter().any(|parent| path.contains(parent))
}
