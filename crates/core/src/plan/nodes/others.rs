//! The nodes that are not for Windows. winpool knows their names, their systems and their groups, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::names;
use crate::labels::Labels;
use crate::plan::pods::tolerations::names_nodes;

/// All nodes without the label of Windows nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherNodes(BTreeMap<Arc<str>, Labels>);

impl OtherNodes {
    /// Takes in a node. Returns true if it is new, or says something else.
    pub fn see(&mut self, name: Arc<str>, labels: &Labels) -> bool {
        let kept = labels.with_prefix("").filter(|(key, _)| *key == names::OS || names_nodes(key));
        let kept: Labels = kept.collect();
        self.0.insert(name, kept.clone()) != Some(kept)
    }

    /// Forgets a node. Returns true if it was known.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// True if the node exists and says that it has another system.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|labels| labels.get(names::OS).is_some())
    }

    /// True if a node says that it belongs to this group.
    pub(crate) fn has_group(&self, key: &str, value: &str) -> bool {
        self.0.values().any(|labels| labels.get(key) == Some(value))
    }
}
