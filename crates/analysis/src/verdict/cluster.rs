//! What new pods find at one moment.

use std::collections::BTreeMap;

use winpool_core::pod::Class;

use crate::image::Images;
use crate::pod::Pod;
use crate::view::{Admission, Node};

use super::Group;

/// The nodes and RuntimeClasses that new pods find, and what registries say about images.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub classes: BTreeMap<String, Class>,
    pub images: Images,
    /// What is added to new pods.
    pub admission: Admission,
}

impl Cluster {
    /// Returns the cluster without what passes by itself: cordons, and taints that tell of a state.
    pub fn settled(&self) -> Self {
        self.with_nodes(self.nodes.iter().map(settled))
    }

    /// Returns the cluster with this node alone, or none.
    pub fn only(&self, name: &str) -> Self {
        self.with_nodes(self.nodes.iter().filter(|node| node.name == name).cloned())
    }

    /// Returns the cluster with one node of each of these groups.
    pub fn with_one_of_each(&self, groups: &[Group]) -> Self {
        self.with_nodes(groups.iter().filter_map(|group| self.nodes.get(group.index)).cloned())
    }

    fn with_nodes(&self, nodes: impl Iterator<Item = Node>) -> Self {
        let Self { classes, images, admission, .. } = self;
        let (classes, images, admission) = (classes.clone(), images.clone(), admission.clone());
        Self { nodes: nodes.collect(), classes, images, admission }
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns where containers of these pods have started.
    pub fn history(&self, pods: &[Pod]) -> History {
        History::of(pods, |name| self.node(name).map(Node::is_windows))
    }
}

/// Returns the node without what passes by itself.
pub(crate) fn settled(node: &Node) -> Node {
    let mut node = node.clone();
    node.is_waiting =
        node.is_cordoned || node.taints.iter().any(|taint| taint.has_foreign_key() && taint.effect.keeps_off());
    node.is_cordoned = false;
    node.taints.retain(|taint| !taint.has_foreign_key());
    node
}

/// Where containers of a workload have started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub on_windows: bool,
    pub elsewhere: bool,
}

impl History {
    /// Returns the history of these pods. `is_windows` is the system of a known node.
    pub fn of<'p>(pods: impl IntoIterator<Item = &'p Pod>, is_windows: impl Fn(&str) -> Option<bool>) -> Self {
        let mut history = Self::default();
        for is_windows in pods.into_iter().filter_map(|pod| is_windows(pod.ran_on.as_deref()?)) {
            history.on_windows |= is_windows;
            history.elsewhere |= !is_windows;
        }
        history
    }

    pub fn is_on_windows_only(self) -> bool {
        self.on_windows && !self.elsewhere
    }

    pub fn is_on_both(self) -> bool {
        self.on_windows && self.elsewhere
    }
}
