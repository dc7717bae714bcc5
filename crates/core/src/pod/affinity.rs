//! Required node affinity, as the Kubernetes scheduler reads it.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};

use crate::labels::Labels;

/// True if the term has no expressions. It then selects no node, so beside other terms it changes nothing
/// (k8s.io/component-helpers scheduling/corev1/nodeaffinity, `isEmptyNodeSelectorTerm`).
pub fn is_empty(term: &NodeSelectorTerm) -> bool {
    let has = |list: &Option<Vec<NodeSelectorRequirement>>| list.as_ref().is_some_and(|list| !list.is_empty());
    !has(&term.match_expressions) && !has(&term.match_fields)
}

/// True if the required node affinity with these terms allows a node with these labels and this name.
pub fn matches_affinity(terms: &[NodeSelectorTerm], labels: &Labels, name: &str) -> bool {
    let holds_all = |term| found(term, labels, name).all(|(expression, found)| holds(expression, found));
    terms.is_empty() || terms.iter().any(|term| !is_empty(term) && holds_all(term))
}

/// The expressions of a term, each with the value that a node with these labels and this name has.
pub fn found<'a>(
    term: &'a NodeSelectorTerm,
    labels: &'a Labels,
    name: &'a str,
) -> impl Iterator<Item = (&'a NodeSelectorRequirement, Option<&'a str>)> {
    let expressions = term.match_expressions.iter().flatten().map(|e| (e, labels.get(&e.key)));
    let fields = term.match_fields.iter().flatten();
    expressions.chain(fields.map(move |e| (e, (e.key == "metadata.name").then_some(name))))
}

/// Follows `labels.Requirement` of k8s.io/apimachinery: a node without the label satisfies `NotIn` and `DoesNotExist`;
/// `Gt` and `Lt` compare whole numbers.
pub fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<i64>().ok();
    let compare = || Some((number(found?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|found| values.iter().any(|value| value == found)),
        "NotIn" => !found.is_some_and(|found| values.iter().any(|value| value == found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare().is_some_and(|(found, bound)| found > bound),
        "Lt" => compare().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}
