//! The nodes on which a pod can be scheduled: the rules of the Kubernetes scheduler, as far as winpool's changes can affect them.
//!
//! It does not cover CPU, memory and ephemeral storage, volumes, ports, and affinity between pods.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use winpool_core::api::quantity::amount;
use winpool_core::api::{Effect, Taint};
use winpool_core::labels::Labels;
use winpool_core::pod::affinity::{is_empty, matches_affinity};
use winpool_core::pod::{ARCH_KEYS, Class, Tolerance, tolerance, tolerate};

use crate::pod::{ContainerList, PodSpec, failing_expressions};
use crate::view::Node;

/// The label of each node with its host name.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// A reason why a pod cannot be scheduled to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `spec.nodeName` names another node.
    NamesAnotherNode(String),
    /// The node is cordoned.
    Unschedulable,
    /// An entry of `nodeSelector` that does not match the node's labels.
    Selector {
        key: String,
        /// The value in the pod.
        wanted: String,
        /// The value on the node.
        found: Option<String>,
    },
    /// No term of the required node affinity matches. Contains the expressions that do not match, of the first term that is not
    /// empty.
    Affinity(Vec<String>),
    /// A taint that the pod does not tolerate.
    Taint(Taint),
    /// A taint that the pod may tolerate by a toleration with an unknown operator.
    UnknownOperator(Taint),
    /// An extended resource that the node does not have enough of.
    Resource {
        name: String,
        /// The amount that the pod requests.
        wanted: String,
        /// The amount that the node has.
        found: String,
    },
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NamesAnotherNode(name) => write!(f, "spec.nodeName is {name}"),
            Self::Unschedulable => f.write_str("the node is cordoned (spec.unschedulable)"),
            Self::Selector { key, wanted, found: Some(found) } => {
                write!(f, "nodeSelector wants {key}={wanted}, the node has {found}")
            }
            Self::Selector { key, wanted, found: None } => {
                write!(f, "nodeSelector wants {key}={wanted}, the node has no such label")
            }
            Self::Affinity(expressions) => write!(f, "required node affinity wants {}", expressions.join(" and ")),
            Self::Taint(taint) => write!(f, "the taint {taint} is not tolerated"),
            Self::UnknownOperator(taint) => write!(
                f,
                "it is not known whether the taint {taint} is tolerated: the toleration has an operator other than Equal and \
                 Exists"
            ),
            Self::Resource { name, wanted, found } => {
                write!(f, "the pod wants {wanted} of {name}, the node has {found}")
            }
        }
    }
}

impl Obstacle {
    /// Returns what the pod selects: `node.kubernetes.io/windows-build: 10.0.20348`.
    pub fn wanted(&self) -> String {
        match self {
            Self::Selector { key, wanted, .. } => format!("{key}: {wanted}"),
            Self::Affinity(expressions) => expressions.join(" and "),
            other => other.to_string(),
        }
    }

    /// True if the node has another processor than the pod selects. The pod's images are for that processor.
    pub fn is_about_processor(&self) -> bool {
        let starts = |expression: &String| {
            ARCH_KEYS.iter().any(|key| expression.strip_prefix(key).is_some_and(|rest| rest.starts_with(' ')))
        };
        match self {
            Self::Selector { key, .. } => ARCH_KEYS.contains(&key.as_str()),
            Self::Affinity(expressions) => expressions.iter().any(starts),
            _ => false,
        }
    }
}

/// Returns the reasons why the scheduler does not place this pod on the node; empty if it may.
///
/// The scheduler ignores a pod with `spec.nodeName`. The pod is on that node even if taints or labels do not match.
pub fn obstacles(spec: &PodSpec, node: &Node) -> Vec<Obstacle> {
    if let Some(name) = &spec.node {
        return (*name != node.name).then(|| Obstacle::NamesAnotherNode(name.clone())).into_iter().collect();
    }
    let mut obstacles = label_obstacles(spec, node);
    let unschedulable = Taint::new("node.kubernetes.io/unschedulable", "", Effect::NoSchedule);
    if node.is_cordoned && !tolerate(&spec.tolerations, &unschedulable) {
        obstacles.push(Obstacle::Unschedulable);
    }
    let taints = node.taints.iter().filter(|taint| !(node.is_cordoned && **taint == unschedulable));
    obstacles.extend(taints.filter_map(|taint| match tolerance(&spec.tolerations, [taint]) {
        Tolerance::Yes => None,
        Tolerance::Unknown => Some(Obstacle::UnknownOperator(taint.clone())),
        Tolerance::No => Some(Obstacle::Taint(taint.clone())),
    }));
    obstacles.extend(resources(spec, node));
    obstacles
}

/// Returns those of the obstacles that are about the node's labels and name.
pub fn label_obstacles(spec: &PodSpec, node: &Node) -> Vec<Obstacle> {
    let affinity = lacked_affinity(&spec.terms, &node.labels, &node.name).map(Obstacle::Affinity);
    selector_obstacles(&spec.node_selector, node).chain(affinity).collect()
}

/// Returns the labels of a selector that the node does not have.
pub fn selector_obstacles<'s>(
    selector: impl IntoIterator<Item = (&'s String, &'s String)>,
    node: &Node,
) -> impl Iterator<Item = Obstacle> {
    let lacked = selector.into_iter().filter(|(key, value)| node.labels.get(key) != Some(value));
    lacked.map(|(key, wanted)| {
        let found = node.labels.get(key).map(str::to_owned);
        Obstacle::Selector { key: key.clone(), wanted: wanted.clone(), found }
    })
}

/// Returns the expressions that do not match, of the first term that is not empty, if no term of a required node affinity matches
/// the node.
fn lacked_affinity(terms: &[NodeSelectorTerm], labels: &Labels, name: &str) -> Option<Vec<String>> {
    let failing = |term| failing_expressions(term, labels, name);
    let failures: Option<Vec<Vec<String>>> = terms.iter().map(failing).collect();
    let first = terms.iter().position(|term| !is_empty(term)).unwrap_or_default();
    failures?.into_iter().nth(first)
}

/// Returns the extended resources that the node lacks. The usage of other pods is not known here.
fn resources(spec: &PodSpec, node: &Node) -> Vec<Obstacle> {
    let names: BTreeSet<&str> =
        spec.containers.iter().flat_map(|c| c.extended_resources.keys()).map(String::as_str).collect();
    let wanted = names.into_iter().map(|name| (name, wanted(spec, name)));
    let available = |name: &str| node.allocatable.get(name).and_then(amount).unwrap_or_default();
    let whole = |nanos: i128| (nanos / 1_000_000_000).to_string();
    let lacking = wanted.filter(|(name, amount)| available(name) < *amount);
    lacking
        .map(|(name, amount)| Obstacle::Resource {
            wanted: whole(amount),
            found: whole(available(name)),
            name: name.to_owned(),
        })
        .collect()
}

/// Returns the request of a pod. Init containers run one by one, before the containers; sidecars keep running (k8s.io/component-helpers
/// `resource/helpers.go`, `AggregateContainerRequests`).
fn wanted(spec: &PodSpec, name: &str) -> i128 {
    let (mut together, mut sidecars, mut initial) = (0, 0, 0);
    for container in &spec.containers {
        let amount = container.extended_resources.get(name).copied().unwrap_or_default();
        match container.list {
            ContainerList::InitContainers if container.is_sidecar => {
                (together, sidecars) = (together + amount, sidecars + amount);
                initial = sidecars.max(initial);
            }
            ContainerList::InitContainers => initial = (sidecars + amount).max(initial),
            ContainerList::Containers => together += amount,
            ContainerList::EphemeralContainers => {}
        }
    }
    initial.max(together)
}

/// True if the pod selects a node with these labels, by itself and by its class. Taints and resources do not count.
pub fn selects(spec: &PodSpec, class: Option<&Class>, labels: &Labels) -> bool {
    let by_class = class.is_none_or(|class| labels.matches(&class.selector));
    let name = labels.get(HOSTNAME).unwrap_or_default();
    by_class && labels.matches(&spec.node_selector) && matches_affinity(&spec.terms, labels, name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use winpool_client::node::ListedNode;

    use crate::view::SeenNode;

    use super::*;

    fn host(changes: &Value) -> Node {
        let mut node = json!({
            "metadata": {"name": "win-a", "labels": {"kubernetes.io/os": "windows", "tier": "7"}},
            "status": {"allocatable": {"cpu": "8", "example.com/gpu": "2"}},
        });
        json_patch::merge(&mut node, changes);
        let listed: ListedNode = serde_json::from_value(node.clone()).unwrap();
        SeenNode::new(listed.object, &node).host()
    }

    fn why_not(spec: &Value, changes: &Value) -> Vec<String> {
        let spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
        obstacles(&spec, &host(changes)).iter().map(ToString::to_string).collect()
    }

    fn fits(spec: &Value, changes: &Value) -> bool {
        why_not(spec, changes).is_empty()
    }

    fn affinity(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn affinity_is_read_as_the_scheduler_reads_it() {
        let label = |operator: &str, key: &str, values: &Value| {
            fits(
                &affinity(&json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}])),
                &json!({}),
            )
        };
        for (operator, key, values, expected) in [
            ("In", "tier", json!(["7", "8"]), true),
            ("In", "tier", json!(["8"]), false),
            ("In", "none", json!(["7"]), false),
            ("NotIn", "tier", json!(["7"]), false),
            ("NotIn", "tier", json!(["8"]), true),
            ("NotIn", "none", json!(["8"]), true),
            ("Exists", "tier", json!(null), true),
            ("Exists", "none", json!(null), false),
            ("DoesNotExist", "tier", json!(null), false),
            ("DoesNotExist", "none", json!(null), true),
            ("Gt", "tier", json!(["6"]), true),
            ("Gt", "tier", json!(["7"]), false),
            ("Lt", "tier", json!(["8"]), true),
            ("Lt", "none", json!(["8"]), false),
            ("Gt", "kubernetes.io/os", json!(["1"]), false),
            ("Nonsense", "tier", json!(["7"]), false),
        ] {
            assert_eq!(label(operator, key, &values), expected, "{operator} {key} {values}");
        }
        let field = |name: &str| {
            affinity(&json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]))
        };
        assert!(fits(&field("win-a"), &json!({})) && !fits(&field("win-b"), &json!({})));
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_selects_nothing() {
        let exists = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        assert!(fits(&affinity(&json!([exists("none"), exists("tier")])), &json!({})));
        assert!(!fits(&affinity(&json!([exists("none")])), &json!({})));
        assert!(!fits(&affinity(&json!([{}])), &json!({})));
        let beside = affinity(&json!([{}, exists("none"), {"matchExpressions": []}]));
        assert_eq!(why_not(&beside, &json!({})), ["required node affinity wants none Exists"]);
        assert!(fits(&affinity(&json!([{}, exists("tier")])), &json!({})));
        let both =
            json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}, {"key": "none", "operator": "Exists"}]});
        assert_eq!(why_not(&affinity(&json!([both])), &json!({})), ["required node affinity wants none Exists"]);
    }

    #[test]
    fn sidecars_count_together_with_the_containers() {
        let gpu = |count: u32, policy: &str| json!({"name": "c", "restartPolicy": policy, "resources": {"limits": {"example.com/gpu": count}}});
        let (always, never) =
            (|count| gpu(count, "Always"), |count| json!({"name": "i", "resources": gpu(count, "")["resources"]}));
        for (containers, init, expected) in [
            (1, vec![], true),
            (1, vec![always(1)], true),
            (2, vec![always(1)], false),
            (0, vec![always(1), never(2)], false),
            (0, vec![never(2), always(1)], true),
            (2, vec![never(2)], true),
        ] {
            let spec = json!({"containers": [never(containers)], "initContainers": init});
            assert_eq!(fits(&spec, &json!({})), expected, "{spec}");
        }
    }

    #[test]
    fn every_obstacle_is_named() {
        let spec = json!({
            "nodeSelector": {"kubernetes.io/os": "linux", "a": "b"},
            "containers": [
                {"name": "c", "resources": {"limits": {"example.com/gpu": 2, "memory": "1Ti"}}},
                {"name": "d", "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}},
            ],
            "initContainers": [{"name": "i", "resources": {"limits": {"example.com/gpu": "1"}}}],
        });
        let node = json!({"spec": {"unschedulable": true, "taints": [
            {"key": "os", "value": "windows", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, {"key": "gone", "effect": "NoExecute"},
        ]}});
        insta::assert_snapshot!(why_not(&spec, &node).join("\n"), @r"
        nodeSelector wants a=b, the node has no such label
        nodeSelector wants kubernetes.io/os=linux, the node has windows
        the node is cordoned (spec.unschedulable)
        the taint os=windows:NoSchedule is not tolerated
        the taint gone:NoExecute is not tolerated
        the pod wants 3 of example.com/gpu, the node has 2
        ");
        let unclear = json!({"tolerations": [{"key": "gone", "operator": "Gt", "value": "1"}, {"operator": "Exists", "effect": "NoSchedule"}]});
        insta::assert_snapshot!(why_not(&unclear, &node).join("\n"), @"it is not known whether the taint gone:NoExecute is tolerated: the toleration has an operator other than Equal and Exists");
        let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
        assert!(fits(&tolerant, &node));
        assert!(fits(&json!({"nodeName": "win-a"}), &node), "nobody schedules a pod that names its node");
        assert_eq!(why_not(&json!({"nodeName": "win-b"}), &json!({})), ["spec.nodeName is win-b"]);
    }
}
