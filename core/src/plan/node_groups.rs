//! Nodes in groups by what decides if a pod fits them. There may be thousands of nodes and of pods, but most nodes have
//! the same labels, apart from those that name a single node.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use crate::{
    labels::Labels,
    pod::{PodSpec, affinity::matches_affinity},
};

/// The number of values above which nodes are not grouped by a label.
const VALUES: usize = 32;
/// The operators that tell nodes apart only by the values that a requirement names. The others compare numbers.
const COMPARES_TEXT: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
/// The key of a node's name, which no label can have.
const NAME: &str = "(name)";

/// True if node selector and required affinity of an admitted pod allow a node with these labels and this name.
pub(super) fn fits(spec: &PodSpec, labels: &Labels, name: &str) -> bool {
    labels.matches(&spec.node_selector) && matches_affinity(&spec.terms, labels, name)
}

/// The nodes, each with the number of its class: what its owner takes for equal besides labels.
#[derive(Clone, Debug, Default)]
pub struct NodeGroups {
    nodes: Vec<GroupedNode>,
    /// Indexes of nodes with equal classes and labels, apart from the values of labels with many.
    groups: Vec<Vec<usize>>,
    /// The group of each node.
    group_of: Vec<usize>,
    /// For each label with many values and for the name, indexes of nodes in the order of the values.
    by_value: HashMap<Box<str>, Vec<usize>>,
}

/// The properties of a node that requirements of a pod can match.
#[derive(Clone, Debug)]
pub struct GroupedNode {
    pub labels: Labels,
    pub name: Arc<str>,
    pub class: usize,
}

impl GroupedNode {
    fn value(&self, key: &str) -> Option<&str> {
        if key == NAME { Some(&*self.name) } else { self.labels.get(key) }
    }
}

impl NodeGroups {
    pub fn new(nodes: Vec<GroupedNode>) -> Self {
        let mut values: HashMap<&str, HashSet<&str>> = HashMap::new();
        for (key, value) in nodes.iter().flat_map(|node| node.labels.with_prefix("")) {
            let known = values.entry(key).or_default();
            if known.len() <= VALUES {
                known.insert(value);
            }
        }
        let wide = values.into_iter().filter(|(_, values)| values.len() > VALUES).map(|(key, _)| key);
        let wide: BTreeSet<&str> = wide.chain([NAME]).collect();
        let (mut by_labels, mut group_of) = (HashMap::new(), Vec::with_capacity(nodes.len()));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let labels = node.labels.with_prefix("");
            let labels: Vec<_> =
                labels.map(|(key, value)| if wide.contains(key) { (key, "") } else { (key, value) }).collect();
            let group = *by_labels.entry((node.class, labels)).or_insert(groups.len());
            groups.resize_with(groups.len().max(group + 1), Vec::new);
            groups[group].push(index);
            group_of.push(group);
        }
        let sorted = |key: &str| {
            let mut having: Vec<usize> = (0..nodes.len()).filter(|index| nodes[*index].value(key).is_some()).collect();
            having.sort_by_cached_key(|index| nodes[*index].value(key));
            (Box::from(key), having)
        };
        let by_value = wide.iter().map(|key| sorted(key)).collect();
        Self { nodes, groups, group_of, by_value }
    }

    pub fn node(&self, index: usize) -> &GroupedNode {
        &self.nodes[index]
    }

    /// The nodes that node selector and required affinity of the pod allow, in groups of one class.
    pub fn fitting<'a>(&'a self, spec: &'a PodSpec) -> Box<dyn Iterator<Item = &'a [usize]> + 'a> {
        let fits_first = move |group: &&[usize]| {
            let first = group.first().map(|index| &self.nodes[*index]);
            first.is_some_and(|node| fits(spec, &node.labels, &node.name))
        };
        if let Some(named) = self.named(spec) {
            return Box::new(named.into_iter().flat_map(|nodes| nodes.chunks(1)).filter(fits_first));
        }
        let required = || {
            let all = spec.terms.iter().flat_map(requirements);
            all.filter(|(key, _)| self.by_value.contains_key(*key))
        };
        if required().any(|(_, requirement)| !COMPARES_TEXT.contains(&requirement.operator.as_str())) {
            return Box::new(self.groups.iter().flat_map(|group| group.chunks(1)).filter(fits_first));
        }
        // The other nodes of a group are equal to the pod.
        let mut named: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        for (key, requirement) in required() {
            let values: BTreeSet<&String> = requirement.values.iter().flatten().collect();
            for index in values.into_iter().filter_map(|value| self.having(key, value)).flatten() {
                named.entry(self.group_of[*index]).or_default().insert(*index);
            }
        }
        let parts = move |(number, group): (usize, &'a Vec<usize>)| match named.get(&number) {
            Some(named) => apart(group, named),
            None => vec![group.as_slice()],
        };
        Box::new(self.groups.iter().enumerate().flat_map(parts).filter(fits_first))
    }

    /// The nodes with the values that the pod requires of a label with many values, or with the required names; `None` if
    /// it requires none.
    fn named(&self, spec: &PodSpec) -> Option<Vec<&[usize]>> {
        let selected = spec.node_selector.iter().find_map(|(key, value)| self.having(key, value));
        let of_term = |term: &NodeSelectorTerm| {
            let mut required = requirements(term).filter(|(_, requirement)| requirement.operator == "In");
            required.find_map(|(key, requirement)| {
                let values: BTreeSet<&String> = requirement.values.iter().flatten().collect();
                values.into_iter().map(|value| self.having(key, value)).collect::<Option<Vec<_>>>()
            })
        };
        let of_terms = || spec.selecting_terms().map(of_term).collect::<Option<Vec<_>>>().map(|nodes| nodes.concat());
        selected.map(|nodes| vec![nodes]).or_else(|| of_terms().filter(|_| !spec.terms.is_empty()))
    }

    /// The nodes with this value of a label that has many; `None` for other labels.
    fn having(&self, key: &str, value: &str) -> Option<&[usize]> {
        let sorted = self.by_value.get(key)?;
        let start = sorted.partition_point(|index| self.nodes[*index].value(key) < Some(value));
        let end = sorted.partition_point(|index| self.nodes[*index].value(key) <= Some(value));
        sorted.get(start..end)
    }
}

/// Each of these nodes of a group by itself, and the nodes between them. Indexes of a group are in order.
fn apart<'a>(group: &'a [usize], nodes: &BTreeSet<usize>) -> Vec<&'a [usize]> {
    let (mut parts, mut rest) = (Vec::new(), group);
    for index in nodes {
        let (before, from) = rest.split_at(rest.partition_point(|other| other < index));
        let (node, after) = from.split_at(from.len().min(1));
        parts.extend([before, node]);
        rest = after;
    }
    parts.push(rest);
    parts
}

/// The requirements of a term, each with the key of a label or [`NAME`].
fn requirements(term: &NodeSelectorTerm) -> impl Iterator<Item = (&str, &NodeSelectorRequirement)> {
    let expressions =
        term.match_expressions.iter().flatten().map(|requirement| (requirement.key.as_str(), requirement));
    expressions.chain(term.match_fields.iter().flatten().map(|requirement| (NAME, requirement)))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};
    use serde_json::json;

    use super::*;

    fn nodes(count: usize) -> Vec<GroupedNode> {
        let node = |number: usize| {
            let name = format!("node-{number}");
            let mut labels = vec![("host", name.clone()), ("team", ["a", "b", "c"][number % 3].to_owned())];
            labels.extend(number.is_multiple_of(2).then(|| ("gpu", "yes".to_owned())));
            labels.extend((number % 4 == 1).then(|| ("rack", format!("rack-{}", number / 8))));
            labels.extend((number % 3 == 1).then(|| ("size", number.to_string())));
            GroupedNode { labels: labels.into_iter().collect(), name: name.into(), class: number % 5 }
        };
        (0..count).map(node).collect()
    }

    fn requirement() -> impl Strategy<Value = serde_json::Value> {
        let key = select(vec!["host", "team", "gpu", "rack", "size", "other"]);
        let operator = select(vec!["In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist", "Gt"]);
        let values = vec(select(vec!["node-1", "node-9", "a", "b", "yes", "rack-0", "rack-3"]), 1..3);
        (key, operator, values).prop_map(|(key, operator, values)| match operator {
            "Gt" => json!({"key": key, "operator": operator, "values": ["7"]}),
            "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
            _ => json!({"key": key, "operator": operator}),
        })
    }

    prop_compose! {
        fn spec()(
            selector in prop::collection::btree_map(
                select(vec!["host", "team", "gpu", "rack"]),
                select(vec!["node-1", "node-4", "a", "yes", "rack-0"]),
                0..2,
            ),
            terms in vec(
                (
                    vec(requirement(), 0..3),
                    prop::option::of((select(vec!["In", "NotIn"]), select(vec!["node-1", "node-7"]))),
                ),
                0..3,
            ),
        ) -> PodSpec {
            let term = |(expressions, name): (Vec<_>, Option<(&str, &str)>)| {
                let fields = name.map(|(operator, name)| {
                    json!([{"key": "metadata.name", "operator": operator, "values": [name]}])
                });
                json!({"matchExpressions": expressions, "matchFields": fields})
            };
            let terms: Vec<_> = terms.into_iter().map(term).collect();
            let required = json!({"nodeSelectorTerms": terms});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            let affinity = if terms.is_empty() { json!(null) } else { affinity };
            serde_json::from_value(json!({"nodeSelector": selector, "affinity": affinity})).unwrap()
        }
    }

    proptest! {
        #[test]
        fn groups_have_the_same_nodes_as_a_search_among_all(count in 0..200_usize, spec in spec()) {
            let nodes = nodes(count);
            let is_it = |index: &usize| fits(&spec, &nodes[*index].labels, &nodes[*index].name);
            let expected: BTreeSet<usize> = (0..count).filter(is_it).collect();
            let groups = NodeGroups::new(nodes.clone());
            for group in groups.fitting(&spec) {
                prop_assert!(group.iter().all(|index| nodes[*index].class == nodes[group[0]].class));
            }
            let found: Vec<usize> = groups.fitting(&spec).flatten().copied().collect();
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    #[test]
    fn the_number_of_groups_does_not_depend_on_the_number_of_nodes() {
        let groups = NodeGroups::new(nodes(6000));
        assert!(groups.groups.len() <= 3 * 4 * 5 * 3, "{}", groups.groups.len());
        let named: PodSpec = serde_json::from_value(json!({"nodeSelector": {"host": "node-5"}})).unwrap();
        assert_eq!(groups.named(&named).unwrap().concat(), [5]);
        let expression = json!([{"key": "host", "operator": "NotIn", "values": ["node-5", "node-7"]}]);
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": expression}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let elsewhere: PodSpec = serde_json::from_value(json!({"affinity": affinity})).unwrap();
        assert!(groups.fitting(&elsewhere).count() <= groups.groups.len() + 2);
        assert_eq!(groups.fitting(&elsewhere).flatten().count(), 5998);
    }
}
