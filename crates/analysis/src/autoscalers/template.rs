//! A template from which an autoscaler creates nodes, and the RuntimeClasses that these nodes can serve.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use winpool_core::api::{DEFAULT_ARCHITECTURE, Taint, names};
use winpool_core::pod::{Class, Tolerance, tolerance};

/// Deprecated label keys, with the keys that Karpenter uses instead.
const OLD_NAMES: [(&str, &str); 5] = [
    ("beta.kubernetes.io/os", names::OS),
    ("beta.kubernetes.io/arch", names::ARCH),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// A template from which an autoscaler creates nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The kind and name of the object that contains it, such as `NodePool windows-2022`.
    pub name: String,
    /// The requirements on labels, all of which apply.
    pub requirements: Vec<Requirement>,
    /// The field to which a missing label must be added.
    pub label_field: &'static str,
    pub taints: Vec<Taint>,
    pub taint_field: &'static str,
    /// The reasons why it creates no nodes at all.
    pub stopped: Vec<String>,
    pub weight: i64,
    /// The labels that come from the instance type, so that a template need not set them, and prefixes of such labels.
    pub implied: (&'static [&'static str], &'static [&'static str]),
}

/// A requirement on a label of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) values: Vec<String>,
    /// The object and field that contain the requirement.
    #[serde(skip)]
    pub(super) field: String,
}

impl Requirement {
    pub fn is(key: &str, value: &str, field: &str) -> Self {
        Self { key: key.to_owned(), operator: "In".to_owned(), values: vec![value.to_owned()], field: field.to_owned() }
    }

    /// True if the nodes can have this value. Follows `Requirement` of Karpenter: with `NotIn` and the
    /// comparisons, a pod can choose a value.
    fn admits(&self, value: &str) -> bool {
        let listed = self.values.iter().any(|other| other == value);
        let bound = || self.values.first().and_then(|bound| bound.parse::<i64>().ok());
        let compared = |holds: fn(i64, i64) -> bool| {
            value.parse().ok().zip(bound()).is_some_and(|(value, bound)| holds(value, bound))
        };
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => true,
            "Gt" => compared(|value, bound| value > bound),
            "Lt" => compared(|value, bound| value < bound),
            "Gte" => compared(|value, bound| value >= bound),
            "Lte" => compared(|value, bound| value <= bound),
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.operator)?;
        if self.values.is_empty() { Ok(()) } else { write!(f, " ({})", self.values.join(", ")) }
    }
}

impl Template {
    /// True if it creates nodes for pods of the class. `None` if that depends on its instance types.
    pub fn serves(&self, class: &Class) -> Option<bool> {
        match self.missing(class).is_empty() {
            true if self.unnamed(class).is_empty() => Some(true),
            true => None,
            false => Some(false),
        }
    }

    /// The obstacles, each with the name of the field.
    pub fn missing(&self, class: &Class) -> Vec<String> {
        let mut missing = self.stopped.clone();
        missing.extend(self.contradictions());
        for (key, value) in selector(class) {
            let mut requirements = self.requirements.iter().filter(|requirement| requirement.key == key).peekable();
            if requirements.peek().is_none() && !self.implies(key) {
                missing.push(format!("{}: add {key}: {value:?}, which the class selects", self.label_field));
            }
            missing.extend(requirements.filter(|requirement| !requirement.admits(value)).map(|requirement| {
                format!("{}: {requirement}, and the class selects {key}={value}", requirement.field)
            }));
        }
        let keeps_off = |taint: &&Taint| tolerance(&class.tolerations, [*taint]) != Tolerance::Yes;
        let taints = self.taints.iter().filter(keeps_off);
        missing.extend(taints.map(|taint| format!("{}: {taint} is not tolerated", self.taint_field)));
        missing
    }

    /// The labels that the class selects and that depend on instance types.
    pub fn unnamed<'c>(&self, class: &'c Class) -> Vec<(&'c str, &'c str)> {
        selector(class).into_iter().filter(|(key, value)| !self.says(key, value)).collect()
    }

    fn implies(&self, key: &str) -> bool {
        let (keys, prefixes) = self.implied;
        keys.contains(&key) || prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Describes the label keys for which the template's own requirements leave no value.
    fn contradictions(&self) -> Vec<String> {
        let mut contradictions = Vec::new();
        for requirement in self.requirements.iter().filter(|requirement| requirement.operator == "In") {
            let of_same_key = || self.requirements.iter().filter(|other| other.key == requirement.key);
            if !requirement.values.iter().any(|value| of_same_key().all(|other| other.admits(value))) {
                let texts: Vec<String> = of_same_key().map(ToString::to_string).collect();
                let message = format!("{}: contradictory: {}", requirement.field, texts.join(" and "));
                if !contradictions.iter().any(|message: &String| message.ends_with(&texts.join(" and "))) {
                    contradictions.push(message);
                }
            }
        }
        contradictions
    }

    /// True if the template specifies that its nodes have this value, independent of instance types. Every
    /// instance type that runs Windows has the default architecture.
    fn says(&self, key: &str, value: &str) -> bool {
        let mut requirements = self.requirements.iter().filter(|requirement| requirement.key == key).peekable();
        let is_default = key == names::ARCH && value == DEFAULT_ARCHITECTURE && requirements.peek().is_none();
        is_default || requirements.any(|requirement| requirement.operator == "In") || !self.implies(key)
    }
}

/// The selector of the class, by current keys.
fn selector(class: &Class) -> BTreeMap<&str, &str> {
    class.selector.iter().map(|(key, value)| (current(key), value.as_str())).collect()
}

/// Returns the current key of the label.
pub(super) fn current(key: &str) -> &str {
    OLD_NAMES.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new)
}
