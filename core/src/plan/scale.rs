//! Scaling from zero: the templates from which autoscalers create nodes, and the RuntimeClasses that these nodes can
//! serve.
//!
//! Some limits are unknown and not checked: instance types with their zones and sizes, quotas, and the remaining
//! capacity.

mod karpenter;
mod template;

use serde_json::Value;

use crate::{
    api::{
        ObjectReference, Problem,
        names::{self, reason},
    },
    pod::Class,
};

use super::pools::Pool;

pub use karpenter::REQUIREMENTS;
pub use template::{Requirement, Template};

/// The configuration of the autoscalers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoscalers {
    /// The templates from which they create nodes, in the order of preference.
    pub templates: Vec<Template>,
    /// The reasons why some of the configuration cannot be read.
    pub unreadable: Vec<String>,
}

impl Autoscalers {
    /// Reads NodePools and their node classes. Ignores other objects.
    pub fn read(objects: &[Value], unreadable: Vec<String>) -> Self {
        Self::of(karpenter::templates(objects), unreadable)
    }

    pub fn of(mut templates: Vec<Template>, unreadable: Vec<String>) -> Self {
        templates.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
        Self { templates, unreadable }
    }

    /// True if a template creates nodes for the class. `None` if that is not known.
    pub fn can_scale_from_zero(&self, class: &Class) -> Option<bool> {
        let serve: Vec<_> = self.templates.iter().map(|template| template.serves(class)).collect();
        let is_known = !serve.is_empty() && self.unreadable.is_empty() && !serve.contains(&None);
        if serve.contains(&Some(true)) { Some(true) } else { is_known.then_some(false) }
    }

    /// Returns the problem of a class that `pool` declares, that has no nodes, and that no template serves. Returns
    /// `None` if no template is for Windows, because then the Windows nodes do not come from these autoscalers.
    pub fn problem(&self, pool: &Pool, name: &str, class: &Class) -> Option<Problem> {
        let is_declared = pool.spec.declared.iter().any(|(_, spec)| spec.name == name);
        if !is_declared || self.can_scale_from_zero(class) != Some(false) {
            return None;
        }
        let of_windows = self.templates.iter().filter(|template| template.says_system(names::WINDOWS));
        let missing = of_windows.map(|template| (&template.name, template.missing(class)));
        let (nearest, missing) = missing.min_by_key(|(_, missing)| missing.len())?;
        let message = format!(
            "the class has no nodes, and no NodePool creates one for it; {nearest}: {}. Run winpool why class/{name}",
            missing.join("; ")
        );
        Some(Problem::new(reason::CANNOT_SCALE_FROM_ZERO, ObjectReference::runtime_class(name), message))
    }
}
