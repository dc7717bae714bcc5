//! A view in which some nodes run another Windows version, to answer questions before an upgrade.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use thiserror::Error;
use winpool_core::api::names;
use winpool_core::labels::Labels;
use winpool_core::node::{NodeFields, NodePlan};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::pools::pool::{Policy, policy_of};
use winpool_core::plan::taints::Consent;
use winpool_core::pod::affinity::holds;
use winpool_core::windows::Build;
use winpool_core::windows::builds;
use winpool_simulation::{Unfinished, request};

use crate::image::known::name_of;

use super::{SeenNode, View};

/// Labels of Azure Kubernetes Service that name the Windows version (learn.microsoft.com/azure/aks/use-labels).
const AKS_VERSION: [&str; 3] =
    ["kubernetes.azure.com/os-sku", "kubernetes.azure.com/os-sku-effective", "kubernetes.azure.com/os-sku-requested"];
/// The nodes of Azure Kubernetes Service with Windows Server 2025 have this label with the value `true`.
const AKS_FIPS: &str = "kubernetes.azure.com/fips_enabled";
const FIPS_SINCE: Build = Build::new(26100);
/// Labels whose value after an upgrade only the cloud knows.
const UNKNOWN: [&str; 2] = ["kubernetes.azure.com/node-image-version", "eks.amazonaws.com/nodegroup-image"];
/// The revision of Windows among what is not known.
const REVISION: &str = "revision";

/// An assumption: `SELECTOR:VERSION`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumption {
    /// The selector as the user wrote it.
    pub selector: String,
    wanted: Vec<NodeSelectorRequirement>,
    /// The build that the selected nodes run.
    pub build: Build,
}

/// An assumption that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssumeError {
    #[error("{0:?} is not SELECTOR:VERSION: write it as kubernetes.azure.com/agentpool=win:2025")]
    Malformed(String),
    #[error("{0:?} is not a Windows version: write one of {versions}, or its build", versions = versions())]
    UnknownVersion(String),
    #[error(
        "--assume {0}: no node that winpool knows has these labels; kubectl get nodes -l '{0}' shows those that do"
    )]
    NoNode(String),
    #[error(
        "--assume {selector}: node {node} does not run Windows; select only Windows nodes, for example with kubernetes.io/os=windows"
    )]
    NotWindows { selector: String, node: String },
    #[error(
        "--assume gives node {node} two versions, {one} and {other}; change the selectors so that each node has one"
    )]
    TwoVersions { node: String, one: Build, other: Build },
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
}

fn versions() -> String {
    builds::all().iter().map(|product| product.version).collect::<Vec<_>>().join(", ")
}

impl FromStr for Assumption {
    type Err = AssumeError;

    fn from_str(text: &str) -> Result<Self, AssumeError> {
        let malformed = || AssumeError::Malformed(text.to_owned());
        let (selector, version) = text.rsplit_once(':').ok_or_else(malformed)?;
        let by_version = builds::by_version(&version.to_ascii_lowercase()).map(|product| product.build);
        let build = by_version.or_else(|| version.parse().ok());
        let wanted: Option<Vec<_>> = selector.split(',').map(requirement).collect();
        Ok(Self {
            selector: selector.to_owned(),
            wanted: wanted.ok_or_else(malformed)?,
            build: build.ok_or_else(|| AssumeError::UnknownVersion(version.to_owned()))?,
        })
    }
}

/// Reads one requirement of a label selector, as `kubectl get -l` does except for sets.
fn requirement(text: &str) -> Option<NodeSelectorRequirement> {
    let text = text.trim();
    let (key, operator, value) = if let Some((key, value)) = text.split_once("!=") {
        (key, "NotIn", Some(value))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, "In", Some(value))
    } else if let Some(key) = text.strip_prefix('!') {
        (key, "DoesNotExist", None)
    } else {
        (text, "Exists", None)
    };
    let (key, values) = (key.trim().to_owned(), value.map(|value| vec![value.trim().to_owned()]));
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let is_key = !key.is_empty() && key.chars().all(is_of_key);
    is_key.then(|| NodeSelectorRequirement { key, operator: operator.to_owned(), values })
}

impl Assumption {
    fn selects(&self, labels: &Labels) -> bool {
        self.wanted.iter().all(|wanted| holds(wanted, labels.get(&wanted.key)))
    }
}

/// The changes that the assumptions made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// The builds that the nodes are assumed to run, by node.
    pub nodes: BTreeMap<String, Build>,
    /// The assumptions one by one.
    pub parts: Vec<AssumedNodes>,
}

/// An assumption, and the nodes that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssumedNodes {
    /// The selector of the nodes, as the user wrote it.
    pub selector: String,
    /// The build that these nodes are assumed to run.
    pub build: String,
    /// The builds that they run now.
    pub now: BTreeSet<String>,
    /// The names of the nodes.
    pub node_names: Vec<String>,
    /// Unknown properties of these nodes: `revision`, which stands for the revision of Windows, and labels.
    pub unknown: BTreeSet<String>,
}

/// Rewrites the selected nodes of the view as if they ran the assumed versions.
///
/// # Errors
/// Fails if an assumption selects no node or a node of another system, or if a node gets two versions.
pub fn assume(view: &mut View, assumptions: &[Assumption]) -> Result<Assumed, AssumeError> {
    let mut assumed = Assumed::default();
    for assumption in assumptions {
        let selector = || assumption.selector.clone();
        let nodes = view.nodes.known().into_iter().flatten();
        let selected = nodes.filter(|node| assumption.selects(&node.object.node.labels));
        let mut part = AssumedNodes {
            selector: selector(),
            build: assumption.build.to_string(),
            unknown: BTreeSet::from([REVISION.to_owned()]),
            ..AssumedNodes::default()
        };
        for SeenNode { object, .. } in selected {
            part.now.extend(object.node.windows_build().map(|build| build.to_string()));
            part.unknown.extend(unknown_labels(&object.node));
            let node = object.name.to_string();
            if !object.node.is_windows() {
                return Err(AssumeError::NotWindows { selector: selector(), node });
            }
            match assumed.nodes.insert(node.clone(), assumption.build) {
                Some(one) if one != assumption.build => {
                    return Err(AssumeError::TwoVersions { node, one, other: assumption.build });
                }
                _ => part.node_names.push(node),
            }
        }
        if part.node_names.is_empty() {
            return Err(AssumeError::NoNode(selector()));
        }
        assumed.parts.push(part);
    }
    let pools: Vec<_> = view.guarded().into_iter().flatten().cloned().collect();
    let policy = policy_of(&pools);
    // No container has started on what is assumed.
    view.written.started = view.started();
    for node in view.nodes.known_mut().into_iter().flatten() {
        if let Some(build) = assumed.nodes.get(&*node.object.name) {
            upgrade(node, *build, &policy);
        }
    }
    Ok(assumed)
}

/// Returns the labels without those that name the Windows version.
pub fn without_version(labels: &Labels) -> Labels {
    let had = |key: &&str| labels.get(key).is_some();
    let keys = AKS_VERSION.into_iter().chain([names::WINDOWS_BUILD]);
    request::labels(labels, keys.filter(had).map(|key| (key, None)))
}

/// The labels of the node whose values after an upgrade are not known.
fn unknown_labels(node: &NodeFields) -> impl Iterator<Item = String> + '_ {
    UNKNOWN.iter().filter(|key| node.labels.get(key).is_some()).map(|key| (*key).to_owned())
}

/// Rewrites a node as if it ran this build.
fn upgrade(seen: &mut SeenNode, build: Build, policy: &Policy) {
    let node = &mut seen.object.node;
    let (text, version) =
        (build.to_string(), builds::by_build(build).map(|product| format!("Windows{}", product.version)));
    let mut changes: Vec<(&str, Option<&str>)> = vec![(names::WINDOWS_BUILD, Some(text.as_str()))];
    let had = |key: &&&str| node.labels.get(key).is_some();
    let skus = AKS_VERSION.iter().filter(had);
    changes.extend(skus.clone().map(|key| (*key, version.as_deref())));
    if skus.count() > 0 && build >= FIPS_SINCE {
        changes.push((AKS_FIPS, Some("true")));
    }
    changes.extend(UNKNOWN.iter().map(|key| (*key, None)));
    node.labels = request::labels(&node.labels, changes);
    node.kernel_version = Some(text.as_str().into());
    if let Some(info) = seen.written.pointer_mut("/status/nodeInfo") {
        info["kernelVersion"] = json!(text);
    }
    // The labels that are not true any more go.
    let capability_labels = assess(node, policy, Consent::Given).plan.capability_labels;
    *node = request::node(node, &NodePlan { capability_labels, ..NodePlan::default() });
}

impl Assumed {
    /// Returns the labels of these nodes whose values are not known.
    pub fn unknown_labels(&self) -> BTreeSet<&str> {
        let unknown = self.parts.iter().flat_map(|part| &part.unknown);
        unknown.map(String::as_str).filter(|label| *label != REVISION).collect()
    }

    /// Returns what is not known, in words: the update level of the new nodes, and labels.
    pub fn unknown(&self) -> String {
        ["the update level of the new nodes"].into_iter().chain(self.unknown_labels()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the assumption as a note of the answer.
    pub fn note(&self) -> String {
        format!("This is the answer if {}. Not considered: {}.", self.sentence(), self.unknown())
    }

    /// Returns the assumption in a sentence: `win-1 and win-2 run Windows Server 2025`.
    pub fn sentence(&self) -> String {
        let mut by_build: BTreeMap<Build, Vec<&str>> = BTreeMap::new();
        for (node, build) in &self.nodes {
            by_build.entry(*build).or_default().push(node);
        }
        let parts = by_build.iter().map(|(build, nodes)| {
            let verb = if nodes.len() == 1 { "runs" } else { "run" };
            format!("{} {verb} {}", nodes.join(", "), name_of(*build))
        });
        parts.collect::<Vec<_>>().join(", and ")
    }
}
