//! Explains the state of a node.

use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::names::reason;
use winpool_core::api::{Mode, ObjectReference, Problem, Taint, names};
use winpool_core::node::{Applied, NodeFields};
use winpool_core::plan::nodes::assessment::{Assessment, NodeState, assess};
use winpool_core::plan::pools::pool::{Policy, Pool};
use winpool_core::plan::taints::Consent;
use winpool_core::windows::builds;
use winpool_core::windows::taint::SPELLINGS;
use winpool_core::words::count;

use crate::explain::forecast::{Change, ForecastOutcome, PoolForecast};
use crate::placement::Obstacle;
use crate::pod::Pod;
use crate::verdict::ending;
use crate::view::SeenNode;

/// The state of a node that no pool owns.
pub const UNOWNED: &str = "unowned";

/// The explanation of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    /// The name of the node.
    pub node: String,
    /// The Windows build, if it is known.
    pub build: Option<String>,
    /// The product with that build.
    pub product: Option<String>,
    /// The last day on which Microsoft publishes fixes for it.
    pub end_of_support: Option<String>,
    /// The pool that owns the node.
    pub pool: Option<String>,
    /// `converged`, `pending`, `held`, `blocked` or `ignored`; `unowned` if no pool owns the node and it needs no
    /// change.
    pub state: String,
    /// The reasons why this pool or no pool owns the node, and the reasons why its changes are held.
    pub reasons: Vec<String>,
    /// The taints, each with its origin if that is known.
    pub taints: Vec<TaintExplanation>,
    /// The RuntimeClasses whose pods can be scheduled to the node.
    pub runtime_classes: Vec<String>,
    /// The changes that the operator would make.
    pub changes: Vec<Change>,
    /// What the answer lacks, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A taint and its origin.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TaintExplanation {
    /// The taint as `key=value:effect`.
    pub taint: String,
    /// The writer or the purpose of the taint.
    pub origin: String,
}

/// Explains the node, with the policy of all pools and the changes that the operator would make to the cluster.
pub fn node_explanation(
    name: &str,
    node: &NodeFields,
    policy: &Policy,
    classes: &[Arc<RuntimeClass>],
    outcome: &ForecastOutcome,
) -> NodeExplanation {
    let assessment = assess_under(node, outcome);
    let build = assessment.build.or_else(|| node.windows_build());
    let product = build.and_then(builds::by_build);
    let mut reasons = belonging(node, policy);
    reasons.extend(build_reasons(node));
    if let Some(pool) = assessment.pool.as_deref().and_then(|name| outcome.forecast.pool(name)) {
        reasons.extend(held_reasons(pool, !assessment.taints.held.is_empty()));
        let is_unnamed = |problem: &&Problem| product.is_none() && problem.reason == reason::BUILD_NOT_NAMED;
        reasons.extend(pool.problems.iter().filter(is_unnamed).map(|problem| problem.message.clone()));
    }
    NodeExplanation {
        node: name.to_owned(),
        build: build.map(|build| build.to_string()),
        product: product.map(|product| product.name.to_owned()),
        end_of_support: product.map(|product| product.end_of_support.to_string()),
        pool: assessment.pool.clone(),
        state: state_under(name, node, outcome).to_owned(),
        reasons,
        taints: node.taints.taints().iter().map(|taint| taint_explanation(taint, node, policy)).collect(),
        runtime_classes: classes
            .iter()
            .filter(|class| selects(class, node))
            .filter_map(|c| c.metadata.name.clone())
            .collect(),
        changes: outcome.forecast.node(name).map(|forecast| forecast.changes.clone()).unwrap_or_default(),
        notes: Vec::new(),
    }
}

/// Assesses the node as the operator does. The taints of its pool are held if they are held in this outcome.
fn assess_under(node: &NodeFields, outcome: &ForecastOutcome) -> Assessment {
    let owner = outcome.policy.owner(&node.labels).and_then(|owner| outcome.forecast.pool(&owner.pool.spec.name));
    let is_held = owner.is_some_and(|pool| !pool.held_taints.is_empty());
    assess(node, &outcome.policy, if is_held { Consent::Withheld } else { Consent::Given })
}

/// Returns the state of the node, [`UNOWNED`] included. A node is pending if the operator would change it.
pub(super) fn state_under(name: &str, node: &NodeFields, outcome: &ForecastOutcome) -> &'static str {
    if outcome.forecast.node(name).is_some() {
        return NodeState::Pending.as_str();
    }
    match assess_under(node, outcome) {
        Assessment { pool: None, ignored: false, plan, .. } if plan.is_empty() => UNOWNED,
        assessment => assessment.state().as_str(),
    }
}

/// Returns which pools select the node and which one owns it, as sentences.
fn belonging(node: &NodeFields, policy: &Policy) -> Vec<String> {
    if !node.is_windows() {
        let os = node.labels.get(names::OS).unwrap_or("missing");
        return vec![format!("its label kubernetes.io/os is {os}: no pool selects it")];
    }
    let mut reasons = Vec::new();
    if let Some(os) = node.operating_system.as_deref().filter(|_| node.contradicts_itself()) {
        reasons.push(format!("its kubelet reports {os}, which its labels contradict: nothing is written"));
    }
    if node.is_ignored() {
        reasons.push(format!("its annotation {} is true: winpool does not change it", names::IGNORE));
    }
    let mut owner: Option<&str> = None;
    for entry in policy.entries() {
        let pool = &entry.pool;
        reasons.push(match (pool.spec.selects(&node.labels), owner) {
            (false, _) => format!("WindowsPool {} does not select it: {}", pool.spec.name, mismatch(node, pool)),
            (true, _) if pool.spec.deleting => {
                format!("WindowsPool {} selects it and is being deleted", pool.spec.name)
            }
            (true, _) if pool.spec.mode == Mode::DryRun => {
                format!("WindowsPool {} selects it, in dry run: nothing is written", pool.spec.name)
            }
            (true, Some(owner)) => format!("WindowsPool {} selects it, but {owner} is older", pool.spec.name),
            (true, None) => {
                owner = Some(&pool.spec.name);
                let and = match node {
                    _ if node.contradicts_itself() => "by its labels",
                    _ if node.is_ignored() => "and counts it as ignored",
                    _ => "and owns it",
                };
                format!("WindowsPool {} selects it {and}", pool.spec.name)
            }
        });
    }
    if policy.entries().is_empty() {
        reasons.push("there is no valid WindowsPool".to_owned());
    }
    reasons
}

fn mismatch(node: &NodeFields, pool: &Pool) -> String {
    let differing = pool.spec.node_selector.iter().filter(|(key, value)| node.labels.get(key) != Some(value));
    let texts: Vec<String> = differing
        .map(|(key, value)| match node.labels.get(key) {
            Some(found) => format!("it wants {key}={value}, the node has {found}"),
            None => format!("it wants {key}={value}, the node has no such label"),
        })
        .collect();
    texts.join(", ")
}

fn build_reasons(node: &NodeFields) -> Vec<String> {
    let label = node.labels.get(names::WINDOWS_BUILD);
    let reported = node.kernel_version.as_deref().filter(|version| !version.is_empty());
    if !node.is_windows() {
        return Vec::new();
    }
    match (node.windows_build(), reported, label) {
        (None, reported, _) => vec![format!(
            "its build is not known: status.nodeInfo.kernelVersion is {:?} and the label {} is no build",
            reported.unwrap_or_default(),
            names::WINDOWS_BUILD
        )],
        (Some(build), Some(reported), Some(label)) if build.to_string() != label => {
            vec![format!("its label {} is {label}, but it reports {reported}", names::WINDOWS_BUILD)]
        }
        (Some(build), Some(reported), Some(_))
            if node.kernel_version.as_ref().is_some_and(|known| known.version.is_none()) =>
        {
            vec![format!(
                "status.nodeInfo.kernelVersion is {reported:?}, which is not a Windows version: winpool uses the build of its label {}, \
                 {build}. Check the kubelet",
                names::WINDOWS_BUILD
            )]
        }
        (Some(_), Some(reported), None) => {
            vec![format!("it reports {reported} and lacks the label {}", names::WINDOWS_BUILD)]
        }
        _ => Vec::new(),
    }
}

/// Returns a sentence about the pods that the node's kubelet ends when it starts; `None` if there are none.
pub fn pods_that_end(node: &SeenNode, pods: &[Pod]) -> Option<String> {
    let hosts = [node.host()];
    let mut ended = ending(pods.iter(), &hosts);
    let (pod, _, obstacles) = ended.next()?;
    let (number, wanted) = (ended.count() + 1, obstacles.first().map(Obstacle::wanted).unwrap_or_default());
    let (pods, select) = if number == 1 { ("it", "selects") } else { ("them", "select") };
    Some(format!(
        "{} {select} what the node does not have, such as {}/{}, which selects {wanted}: the kubelet ends {pods} when it starts",
        count(number, "pod"),
        pod.namespace,
        pod.name
    ))
}

fn held_reasons(pool: &PoolForecast, held: bool) -> Vec<String> {
    if !held || pool.held_taints.is_empty() {
        return Vec::new();
    }
    let sets: Vec<String> = pool.without_pods.iter().take(10).map(|held| held.object.to_string()).collect();
    if sets.is_empty() {
        let of_pool =
            pool.problems.iter().filter(|problem| problem.object == ObjectReference::windows_pool(&pool.name));
        return of_pool.map(|problem| problem.message.clone()).collect();
    }
    let (taints, sets) = (pool.held_taints.join(", "), sets.join(", "));
    vec![format!("{taints} is held, because with it these DaemonSets would make no pods: {sets}")]
}

fn taint_explanation(taint: &Taint, node: &NodeFields, policy: &Policy) -> TaintExplanation {
    let applied = node.applied.as_deref().and_then(Applied::parse);
    let text = taint.to_string();
    let claimed = applied.filter(|applied| applied.taints.contains(&text) && policy.may_remove(taint));
    let spelling = SPELLINGS.iter().find(|s| s.key == taint.key && s.value == taint.value);
    let origin = match (claimed, spelling) {
        (Some(applied), _) => format!("winpool, for WindowsPool {}", applied.pool),
        (None, Some(spelling)) => format!("another writer; a Windows taint as used by {}", spelling.used_by),
        (None, None) if taint.marks_windows() => {
            "another writer; by its key and value it marks Windows nodes".to_owned()
        }
        (None, None) if taint.has_foreign_key() => "Kubernetes or an autoscaler; never winpool's".to_owned(),
        (None, None) => "another writer".to_owned(),
    };
    TaintExplanation { taint: text, origin }
}

/// True if pods of the class can be scheduled to the node.
pub(super) fn selects(class: &RuntimeClass, node: &NodeFields) -> bool {
    let Some(scheduling) = &class.scheduling else { return false };
    let selector = scheduling.node_selector.iter().flatten();
    // Kubernetes adds and removes its own taints with the node's condition.
    let keeps_off = |taint: &&Taint| taint.effect.keeps_off() && !taint.has_foreign_key();
    let keeps_off = node.taints.taints().iter().filter(keeps_off);
    node.labels.matches(selector) && !winpool_core::plan::classes::runtime_class::lacks_tolerations(class, keeps_off)
}
