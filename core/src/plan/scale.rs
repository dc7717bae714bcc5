//! Scaling from zero: the templates from which autoscalers create nodes, and the RuntimeClasses that these nodes can
//! serve.
//!
//! Some limits are unknown and not checked: instance types with their zones and sizes, quotas, and the remaining
//! capacity.

mod cluster_autoscaler;
mod karpenter;

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{
        DEFAULT_ARCHITECTURE, ObjectReference, Problem, Taint,
        names::{self, reason},
    },
    pod::{Class, Tolerance, tolerance},
};

use super::pools::Pool;

/// The configuration of the autoscalers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoscalers {
    /// The templates from which they create nodes, in the order of preference.
    pub templates: Vec<Template>,
    /// The reasons why some of the configuration cannot be read.
    pub unreadable: Vec<String>,
}

/// A template from which an autoscaler creates nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The kind and name of the object that contains it, such as `NodePool windows-2022`.
    pub name: String,
    /// The requirements on labels, all of which apply.
    requirements: Vec<Requirement>,
    /// The field to which a missing label must be added.
    label_field: &'static str,
    taints: Vec<Taint>,
    taint_field: &'static str,
    /// The reasons why it creates no nodes at all.
    stopped: Vec<String>,
    weight: i64,
    kind: AutoscalerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AutoscalerKind {
    Karpenter,
    ClusterAutoscaler,
}

impl AutoscalerKind {
    /// True if the label comes from the instance type, so that a template need not set it.
    fn implies(self, key: &str) -> bool {
        match self {
            Self::Karpenter => karpenter::is_implied(key),
            Self::ClusterAutoscaler => cluster_autoscaler::is_implied(key),
        }
    }
}

/// A requirement on a label of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
    /// The object and field that contain the requirement.
    #[serde(skip)]
    field: String,
}

impl Requirement {
    fn is(key: &str, value: &str, field: &str) -> Self {
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

/// The result for a template and a RuntimeClass.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateExplanation {
    /// The kind and name of the object that contains the template.
    pub template: String,
    /// True if it creates nodes for pods of the class. Absent if that depends on its instance types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<bool>,
    /// The obstacles, each with the name of the field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Possible problems if the template serves the class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The result for a RuntimeClass that may scale from zero.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleExplanation {
    /// The name of the RuntimeClass.
    pub runtime_class: String,
    /// True if a template serves the class. Absent if winpool cannot determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_scale_from_zero: Option<bool>,
    /// Every template, in the order in which the autoscaler prefers them.
    pub templates: Vec<TemplateExplanation>,
    /// Facts that winpool cannot determine, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Autoscalers {
    /// Reads NodePools, their node classes, and manifests with templates of cluster-autoscaler. Ignores other objects.
    pub fn read(objects: &[Value], unreadable: Vec<String>) -> Self {
        let mut templates = karpenter::templates(objects);
        templates.extend(objects.iter().flat_map(cluster_autoscaler::templates));
        templates.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
        Self { templates, unreadable }
    }

    /// True if [`Self::read`] uses objects of this kind.
    pub fn are_read_from(group: &str, kind: &str) -> bool {
        match group {
            "karpenter.sh" => kind == "NodePool",
            "karpenter.k8s.aws" => kind == "EC2NodeClass",
            "eksctl.io" => kind == "ClusterConfig",
            "cluster.x-k8s.io" => matches!(kind, "MachineDeployment" | "MachineSet" | "MachinePool"),
            _ => false,
        }
    }

    /// True if a template specifies that its nodes run Windows.
    fn say_windows(&self) -> bool {
        self.templates.iter().any(|template| template.says_system(names::WINDOWS))
    }

    /// Explains if a class can scale from zero.
    pub fn explain(&self, name: &str, class: &Class) -> ScaleExplanation {
        let templates: Vec<TemplateExplanation> =
            self.templates.iter().map(|template| template.explain(class)).collect();
        let any = |serves| templates.iter().any(|template| template.serves == serves);
        let is_known = !templates.is_empty() && self.unreadable.is_empty() && !any(None);
        ScaleExplanation {
            runtime_class: name.to_owned(),
            can_scale_from_zero: if any(Some(true)) { Some(true) } else { is_known.then_some(false) },
            templates,
            notes: self.unreadable.clone(),
        }
    }

    /// Returns the problem of a class that `pool` declares, that has no nodes, and that no template serves. Returns
    /// `None` if no template is for Windows, because then the Windows nodes do not come from these autoscalers.
    pub fn problem(&self, pool: &Pool, name: &str, class: &Class) -> Option<Problem> {
        let is_declared = pool.spec.declared.iter().any(|(_, spec)| spec.name == name);
        if !is_declared || !self.say_windows() {
            return None;
        }
        let explanation = self.explain(name, class);
        if explanation.can_scale_from_zero != Some(false) {
            return None;
        }
        let of_windows =
            explanation.templates.iter().zip(&self.templates).filter(|(_, of)| of.says_system(names::WINDOWS));
        let (nearest, _) = of_windows.min_by_key(|(template, _)| template.missing.len())?;
        let message = format!(
            "the class has no nodes, and no NodePool creates one for it; {}: {}. Run winpool why class/{name}",
            nearest.template,
            nearest.missing.join("; ")
        );
        Some(Problem::new(reason::CANNOT_SCALE_FROM_ZERO, ObjectReference::runtime_class(name), message))
    }
}

impl Template {
    fn explain(&self, class: &Class) -> TemplateExplanation {
        let mut missing = self.stopped.clone();
        missing.extend(self.contradictions());
        let selector: BTreeMap<&str, &str> =
            class.selector.iter().map(|(key, value)| (karpenter::current(key), value.as_str())).collect();
        for (key, value) in &selector {
            let mut known = self.requirements.iter().filter(|requirement| requirement.key == *key).peekable();
            if known.peek().is_none() && !self.kind.implies(key) {
                missing.push(format!("{}: add {key}: {value:?}, which the class selects", self.label_field));
            }
            missing.extend(known.filter(|requirement| !requirement.admits(value)).map(|requirement| {
                format!("{}: {requirement}, and the class selects {key}={value}", requirement.field)
            }));
        }
        let keeps_off = |taint: &&Taint| tolerance(&class.tolerations, [*taint]) != Tolerance::Yes;
        let taints = self.taints.iter().filter(keeps_off);
        missing.extend(taints.map(|taint| format!("{}: the class does not tolerate {taint}", self.taint_field)));
        let unnamed: Vec<_> = selector.into_iter().filter(|(key, value)| !self.says(key, value)).collect();
        let (serves, warnings) = match (missing.is_empty(), unnamed.is_empty()) {
            (true, true) => (Some(true), Vec::new()),
            (true, false) => (None, unnamed.into_iter().map(|(key, value)| self.warning(key, value)).collect()),
            (false, _) => (Some(false), Vec::new()),
        };
        TemplateExplanation { template: self.name.clone(), serves, missing, warnings }
    }

    /// True if the template specifies that its nodes run this operating system.
    fn says_system(&self, system: &str) -> bool {
        self.requirements.iter().any(|r| r.key == names::OS && r.operator == "In" && r.values == [system])
    }

    /// Describes the label keys for which the template's own requirements leave no value.
    fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for requirement in self.requirements.iter().filter(|requirement| requirement.operator == "In") {
            let others = || self.requirements.iter().filter(|other| other.key == requirement.key);
            if !requirement.values.iter().any(|value| others().all(|other| other.admits(value))) {
                let all: Vec<String> = others().map(ToString::to_string).collect();
                let message = format!("{}: contradictory: {}", requirement.field, all.join(" and "));
                if !found.iter().any(|known: &String| known.ends_with(&all.join(" and "))) {
                    found.push(message);
                }
            }
        }
        found
    }

    /// True if the template specifies that its nodes have this value, independent of instance types. Every
    /// instance type that runs Windows has the default architecture.
    fn says(&self, key: &str, value: &str) -> bool {
        let mut known = self.requirements.iter().filter(|requirement| requirement.key == key).peekable();
        let is_default = key == names::ARCH && value == DEFAULT_ARCHITECTURE && known.peek().is_none();
        is_default || known.any(|requirement| requirement.operator == "In") || !self.kind.implies(key)
    }

    /// Describes the risk if the template does not specify its instance types.
    fn warning(&self, key: &str, value: &str) -> String {
        let add = |values: &str| format!("add {{key: {key}, operator: In, values: [{values}]}}");
        let field = karpenter::REQUIREMENTS;
        match (self.kind, key) {
            (AutoscalerKind::Karpenter, names::OS) => format!(
                "{field} does not name the {key}, so it takes Linux and Windows pods alike: {} or [windows]",
                add("linux")
            ),
            (AutoscalerKind::Karpenter, names::WINDOWS_BUILD) => format!(
                "{field} does not name the build. If the instance types do not know theirs, Karpenter starts a node of any \
                 Windows and labels it with the build that the pod asks for: {} if its image has that build",
                add(&format!("{value:?}"))
            ),
            _ => format!("{}: winpool does not know if an instance type has {key}={value}", self.label_field),
        }
    }
}

#[cfg(test)]
mod tests;
