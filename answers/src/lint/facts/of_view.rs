//! The facts that a view contains.

use std::sync::Arc;

use serde_json::Value;

use crate::view::{Known, Node, View};

use super::Facts;

impl Facts {
    /// Returns the facts that rules read. Pools that are not valid are left out.
    pub fn of(view: &View) -> Self {
        let mut facts = Self::incomplete(view);
        match &view.classes {
            Known::Complete(_) => facts.classes_are_complete(),
            Known::Forbidden(_) => facts.classes_are_hidden(),
            Known::Partial(_) | Known::NotRead => {}
        }
        facts.complete()
    }

    /// Returns the facts with the RuntimeClasses that winpool will create for the pools.
    pub fn with_planned_classes(view: &View) -> Self {
        Self::incomplete(view).complete()
    }

    fn incomplete(view: &View) -> Self {
        let mut facts = Self::of_version(view.kubernetes);
        view.nodes
            .known()
            .into_iter()
            .flatten()
            .for_each(|node| facts.add_node(Node::of(&node.object.name, &node.object.node)));
        view.classes.known().into_iter().flatten().for_each(|class| facts.add_class(Arc::clone(class)));
        for pool in view.guarded().into_iter().flatten() {
            if let Ok(read) = pool.read() {
                facts.add_pool(read, pool.status.is_some());
            }
        }
        if let Some(specs) = view.credential_specs.known() {
            facts.add_credential_specs(specs.iter().filter_map(|(_, object)| name_of(object)));
        }
        if view.nodes.is_complete() {
            facts.nodes_are_complete();
        }
        facts
    }
}

fn name_of(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}
