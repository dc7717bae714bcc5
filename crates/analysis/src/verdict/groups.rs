//! Nodes that are equal for every pod in question.

use std::collections::{BTreeMap, BTreeSet};

use winpool_core::api::names;
use winpool_core::labels::Labels;
use winpool_core::pod::{ARCH_KEYS, Class, OS_KEYS};

use crate::placement::HOSTNAME;
use crate::pod::PodSpec;
use crate::view::{Admission, Node};

/// What pods ask of nodes. Two nodes that differ only in other things are equal for them: no two real nodes have all labels in
/// common.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The keys of labels.
    keys: BTreeSet<String>,
    /// The names and host names of nodes.
    names: BTreeSet<String>,
    /// The extended resources.
    resources: BTreeSet<String>,
}

impl Asked {
    /// Returns what these pods ask, and what every pod does.
    pub fn by<'p>(pods: impl IntoIterator<Item = &'p PodSpec>) -> Self {
        let always = OS_KEYS.iter().chain(&ARCH_KEYS).chain([&names::WINDOWS_BUILD]);
        let mut asked = Self { keys: always.map(|key| (*key).to_owned()).collect(), ..Self::default() };
        for pod in pods {
            asked.add(pod);
        }
        asked
    }

    fn add(&mut self, pod: &PodSpec) {
        self.names.extend(pod.node.clone());
        for (key, value) in &pod.node_selector {
            self.add_label(key, "In", std::slice::from_ref(value));
        }
        for term in &pod.terms {
            for expression in term.match_expressions.iter().flatten() {
                self.add_label(&expression.key, &expression.operator, expression.values.as_deref().unwrap_or_default());
            }
            self.names
                .extend(term.match_fields.iter().flatten().flat_map(|field| field.values.clone().unwrap_or_default()));
        }
        self.resources.extend(pod.containers.iter().flat_map(|container| container.extended_resources.keys().cloned()));
    }

    /// A host name asks for one node. All others are equal for it.
    fn add_label(&mut self, key: &str, operator: &str, values: &[String]) {
        if key == HOSTNAME && ["In", "NotIn"].contains(&operator) {
            self.names.extend(values.iter().cloned());
        } else {
            self.keys.insert(key.to_owned());
        }
    }

    /// Adds what these RuntimeClasses select.
    pub fn with_classes<'c>(mut self, classes: impl IntoIterator<Item = &'c Class>) -> Self {
        self.keys.extend(classes.into_iter().flat_map(|class| class.selector.keys().cloned()));
        self
    }

    /// Adds what is added to new pods.
    pub fn with_admission(mut self, admission: &Admission) -> Self {
        self.keys.extend(admission.keys());
        self
    }

    /// Returns the keys of the labels.
    pub fn into_keys(self) -> BTreeSet<String> {
        self.keys
    }

    /// Returns the name of the node, if a pod asks for it, and the labels that pods ask for.
    pub fn of<'n>(&self, name: &'n str, labels: &'n Labels) -> (Option<&'n str>, Labels) {
        let hostname = labels.get(HOSTNAME).unwrap_or_default();
        let is_named = self.names.contains(name) || self.names.contains(hostname);
        let keys = self.keys.iter().map(String::as_str).chain(is_named.then_some(HOSTNAME));
        (is_named.then_some(name), keys.filter_map(|key| Some((key, labels.get(key)?))).collect())
    }

    /// Returns what distinguishes the node, as text that is equal for equal nodes.
    pub fn group(&self, node: &Node) -> String {
        let (name, labels) = self.of(&node.name, &node.labels);
        let mut asked = Node { name: name.unwrap_or_default().to_owned(), labels, ..node.clone() };
        asked.allocatable.retain(|resource, _| self.resources.contains(resource));
        format!("{asked:?}")
    }
}

/// A group of equal nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The index of one of them in the list of nodes.
    pub index: usize,
    /// The number of its nodes.
    pub nodes: usize,
}

/// Returns the groups of nodes that have the same value in this list, in the order of their first nodes.
pub fn one_of_each<T: Ord>(alike: impl IntoIterator<Item = T>) -> Vec<Group> {
    let mut groups: BTreeMap<T, Group> = BTreeMap::new();
    for (index, value) in alike.into_iter().enumerate() {
        groups.entry(value).or_insert(Group { index, nodes: 0 }).nodes += 1;
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| group.index);
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pod::Pod;
    use crate::verdict::{Cluster, History, PlacedBy, Subject, Verdict};

    fn node(name: &str, pool: &str, taint: bool) -> Node {
        let labels = [(names::OS, "windows"), (HOSTNAME, name), ("pool", pool), ("unasked", name)];
        let taints = taint.then(winpool_core::api::Taint::os_windows).into_iter().collect();
        Node { name: name.to_owned(), labels: labels.into_iter().collect(), taints, ..Node::default() }
    }

    fn spec(yaml: &str) -> PodSpec {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn thousands_of_nodes_are_as_many_groups_as_pods_can_tell_apart() {
        let pods = [spec("{nodeSelector: {pool: a}}"), spec("{nodeName: n7}")];
        let asked = Asked::by(&pods);
        let nodes = (0..5000).map(|index| node(&format!("n{index}"), ["a", "b"][index % 2], index % 4 == 0));
        let groups = one_of_each(nodes.map(|node| asked.group(&node)));
        let sizes: Vec<(usize, usize)> = groups.iter().map(|group| (group.index, group.nodes)).collect();
        assert_eq!(sizes, [(0, 1250), (1, 2499), (2, 1250), (7, 1)]);
    }

    proptest! {
        /// A node that is left out is like one that stays.
        #[test]
        fn what_happens_on_a_node_happens_on_every_node_of_its_group(
            nodes in prop::collection::vec((0..4_usize, 0..2_usize, any::<bool>()), 1..12),
            pod in prop::sample::select(vec![
                "{}", "{nodeSelector: {pool: a}}", "{nodeSelector: {kubernetes.io/hostname: n1}}", "{nodeName: n2}",
                "{tolerations: [{operator: Exists}]}",
                "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
                    {matchFields: [{key: metadata.name, operator: NotIn, values: [n3]}]}]}}}}",
                "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
                    {matchExpressions: [{key: kubernetes.io/hostname, operator: Gt, values: ['1']}, {key: pool, operator: Exists}]}]}}}}",
            ]),
        ) {
            let nodes = nodes.into_iter().map(|(name, pool, taint)| node(&format!("n{name}"), ["a", "b"][pool], taint));
            let nodes: Vec<Node> = nodes.collect();
            let pod = Pod { spec: spec(pod), ..Pod::default() };
            let asked = Asked::by([&pod.spec]);
            let cluster = Cluster { nodes, ..Cluster::default() };
            let subject = Subject { pod: &pod, placed_by: PlacedBy::Anyone, history: History::default() };
            let verdict = Verdict::of(subject, &cluster);
            for (node, on) in cluster.nodes.iter().zip(&verdict.nodes) {
                for (other, on_other) in cluster.nodes.iter().zip(&verdict.nodes) {
                    if asked.group(node) == asked.group(other) {
                        prop_assert_eq!((on.is_possible(), on.starts), (on_other.is_possible(), on_other.starts));
                    }
                }
            }
        }
    }
}
