//! Where a pod may run: what the Kubernetes scheduler asks of a node, as far as winpool's work can change the answer.
//!
//! Left out are cpu, memory and ephemeral storage, volumes, ports, and pods that want to be near or far from others.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    api::{Taint, quantity},
    plan::tolerations::{covers, normalised, toleration},
};

use super::Labels;

/// What the scheduler reads of a node.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `status.allocatable`.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// Why a pod does not land on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `spec.nodeName` names another node.
    NamesAnotherNode(String),
    /// The node is cordoned.
    Unschedulable,
    /// An entry of `nodeSelector` that the node's labels do not match, with what the node has.
    Selector {
        /// The label.
        key: String,
        /// What the pod wants.
        wanted: String,
        /// What the node has.
        found: Option<String>,
    },
    /// None of the terms of the required node affinity fits; the expressions of the first one that do not.
    Affinity(Vec<String>),
    /// A taint that the pod does not tolerate.
    Taint(Taint),
    /// An extended resource that the node has less of.
    Resource {
        /// Its name.
        name: String,
        /// What the pod wants.
        wanted: String,
        /// What the node has.
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
            Self::Resource { name, wanted, found } => write!(f, "the pod wants {wanted} of {name}, the node has {found}"),
        }
    }
}

/// Why the scheduler does not put this pod on the node; nothing when it may.
///
/// A pod with `spec.nodeName` is not scheduled at all: it is on that node whatever its taints and labels say, and nowhere
/// else.
#[must_use]
pub fn obstacles(pod: &Pod, host: &Host) -> Vec<Obstacle> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    if let Some(name) = spec.node_name.as_ref().filter(|name| !name.is_empty()) {
        return (*name != host.name).then(|| Obstacle::NamesAnotherNode(name.clone())).into_iter().collect();
    }
    let mut found = Vec::new();
    let selector = spec.node_selector.iter().flatten();
    found.extend(selector.filter(|(key, value)| host.labels.get(key) != Some(value)).map(|(key, value)| {
        Obstacle::Selector {
            key: key.clone(),
            wanted: value.clone(),
            found: host.labels.get(key).map(str::to_owned),
        }
    }));
    found.extend(affinity(spec, host));
    let tolerations = normalised(spec.tolerations.iter().flatten().cloned());
    let tolerated = |taint: &Taint| {
        let wanted = normalised([toleration(taint)]);
        wanted.iter().all(|wanted| tolerations.iter().any(|own| covers(own, wanted)))
    };
    let unschedulable = Taint::new("node.kubernetes.io/unschedulable", "", "NoSchedule");
    if host.unschedulable && !tolerated(&unschedulable) {
        found.push(Obstacle::Unschedulable);
    }
    let keeps_off = |taint: &&Taint| {
        taint.effect != "PreferNoSchedule" && !tolerated(taint) && !(host.unschedulable && **taint == unschedulable)
    };
    found.extend(host.taints.iter().filter(keeps_off).cloned().map(Obstacle::Taint));
    found.extend(resources(spec, host));
    found
}

/// Terms are alternatives; the expressions of a term hold together.
fn affinity(spec: &PodSpec, host: &Host) -> Option<Obstacle> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let terms = &required.node_selector_terms;
    let failing = |term: &NodeSelectorTerm| -> Option<Vec<String>> {
        let expressions = term.match_expressions.iter().flatten().map(|e| (e, host.labels.get(&e.key)));
        let fields = term.match_fields.iter().flatten();
        let fields = fields.map(|e| (e, (e.key == "metadata.name").then_some(host.name.as_str())));
        let all: Vec<_> = expressions.chain(fields).collect();
        // A term without expressions selects nothing.
        if all.is_empty() {
            return Some(vec!["something of an empty term, which selects no node".to_owned()]);
        }
        let failing: Vec<String> = all.iter().filter(|(e, found)| !holds(e, *found)).map(|(e, _)| describe(e)).collect();
        (!failing.is_empty()).then_some(failing)
    };
    let failures: Option<Vec<Vec<String>>> = terms.iter().map(failing).collect();
    match failures {
        Some(failures) => Some(Obstacle::Affinity(failures.into_iter().next().unwrap_or_default())),
        None => None,
    }
}

/// As `labels.Requirement` of k8s.io/apimachinery reads it: a node without the label satisfies `NotIn` and
/// `DoesNotExist`; `Gt` and `Lt` compare whole numbers.
fn holds(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
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

fn describe(requirement: &NodeSelectorRequirement) -> String {
    let NodeSelectorRequirement { key, operator, values } = requirement;
    match values.as_deref() {
        Some(values) if !values.is_empty() => format!("{key} {operator} ({})", values.join(", ")),
        _ => format!("{key} {operator}"),
    }
}

/// Extended resources are asked for in whole, and a node without them has none. What other pods use of them is not
/// known here.
fn resources(spec: &PodSpec, host: &Host) -> Vec<Obstacle> {
    let extended = |name: &str| name.contains('/') && !name.starts_with("kubernetes.io/") && !name.contains(".kubernetes.io/");
    let ask = |container: &k8s_openapi::api::core::v1::Container| -> BTreeMap<String, f64> {
        let resources = container.resources.as_ref();
        let of = |list: Option<&BTreeMap<String, Quantity>>| list.cloned().unwrap_or_default();
        // A limit is a request where there is none.
        let mut wanted = of(resources.and_then(|resources| resources.limits.as_ref()));
        wanted.extend(of(resources.and_then(|resources| resources.requests.as_ref())));
        let amounts = wanted.into_iter().filter(|(name, _)| extended(name));
        amounts.filter_map(|(name, amount)| Some((name, quantity::value(&amount)?))).collect()
    };
    let mut wanted: BTreeMap<String, f64> = BTreeMap::new();
    for container in &spec.containers {
        for (name, amount) in ask(container) {
            *wanted.entry(name).or_default() += amount;
        }
    }
    // Init containers run one after the other, before.
    for container in spec.init_containers.iter().flatten() {
        for (name, amount) in ask(container) {
            let known = wanted.entry(name).or_default();
            *known = known.max(amount);
        }
    }
    let found = |name: &str| host.allocatable.get(name).and_then(quantity::value).unwrap_or_default();
    let lacking = wanted.into_iter().filter(|(name, amount)| *amount > 0.0 && found(name) < *amount);
    lacking
        .map(|(name, amount)| Obstacle::Resource { wanted: amount.to_string(), found: found(&name).to_string(), name })
        .collect()
}
