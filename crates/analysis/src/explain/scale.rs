//! Scaling from zero: what keeps the nodes that autoscalers create from serving a RuntimeClass.

use k8s_openapi::api::node::v1::RuntimeClass;
use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::{ObjectReference, Problem, names};
use winpool_core::pod::Class;

use crate::autoscalers::{Autoscalers, REQUIREMENTS, Template};
use crate::explain::node::selects;
use crate::explain::status::count_pods;
use crate::view::View;

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

/// The explanation of a RuntimeClass.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassExplanation {
    /// The number of nodes to which its pods can be scheduled; absent if nodes are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<usize>,
    /// The number of unfinished pods that have it; absent if pods are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
    /// What WindowsPools report about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The answer to the question whether it can scale from zero.
    #[serde(flatten)]
    pub scale: ScaleExplanation,
}

/// Explains a class of this cluster, as it is or as pools will create it.
pub fn class_explanation(view: &View, name: &str, class: &RuntimeClass) -> ClassExplanation {
    let nodes = view.nodes.known();
    let reported = view.guarded().into_iter().flatten().filter_map(|pool| pool.status.as_ref());
    let about = ObjectReference::runtime_class(name);
    ClassExplanation {
        node_count: nodes.map(|nodes| nodes.iter().filter(|node| selects(class, &node.object.node)).count()),
        pods: view.pods.known().map(|pods| count_pods(pods, name)),
        problems: reported
            .flat_map(|status| &status.problems)
            .filter(|problem| problem.object == about)
            .cloned()
            .collect(),
        scale: explain(&view.autoscalers, name, &Class::from(class)),
    }
}

/// Explains if a class can scale from zero.
pub fn explain(autoscalers: &Autoscalers, name: &str, class: &Class) -> ScaleExplanation {
    let of_template = |template: &Template| {
        let (missing, serves) = (template.missing(class), template.serves(class));
        let unnamed = if missing.is_empty() { template.unnamed(class) } else { Vec::new() };
        let warnings = unnamed.into_iter().map(|(key, value)| warning(template, key, value)).collect();
        TemplateExplanation { template: template.name.clone(), serves, missing, warnings }
    };
    ScaleExplanation {
        runtime_class: name.to_owned(),
        can_scale_from_zero: autoscalers.can_scale_from_zero(class),
        templates: autoscalers.templates.iter().map(of_template).collect(),
        notes: autoscalers.unreadable.clone(),
    }
}

/// Describes the risk if the template does not specify its instance types. Only Karpenter implies system and build.
fn warning(template: &Template, key: &str, value: &str) -> String {
    let add = |values: &str| format!("add {{key: {key}, operator: In, values: [{values}]}}");
    match key {
        names::OS => format!(
            "{REQUIREMENTS} does not name the {key}, so it takes Linux and Windows pods alike: {} or [windows]",
            add("linux")
        ),
        names::WINDOWS_BUILD => format!(
            "{REQUIREMENTS} does not name the build. If the instance types do not know theirs, Karpenter starts a node of any \
             Windows and labels it with the build that the pod asks for: {} if its image has that build",
            add(&format!("{value:?}"))
        ),
        _ => format!("{}: winpool does not know if an instance type has {key}={value}", template.label_field),
    }
}

#[cfg(test)]
mod tests;
