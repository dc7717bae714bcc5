//! Summarises a cluster: nodes by build and state, RuntimeClasses and their pods, held taints, and the next end of
//! support.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{Timestamp, civil::Date, tz::TimeZone};
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::{
    api::{
        Problem, TaintTrial,
        names::{self, reason},
        number,
    },
    plan::{GuardedPool, NodeFields, NodeState, policy_of},
    pod::{Class, Pod, selects_windows},
    windows::{Build, Vendor, product, vendor::ends_of_support},
};

use crate::explain::{
    forecast::{ForecastOutcome, PoolForecast, Snapshot, forecast},
    installation::Installation,
    node::{selects, state_under},
    pod::ending,
    pod_count::PodCount,
};
use crate::view;

/// The state of a cluster's Windows nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// winpool's own installation; absent for manifests, or if you may not list Deployments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installation: Option<Installation>,
    /// The WindowsPools.
    pub pools: Vec<PoolSummary>,
    /// Number of Windows nodes by state: `converged`, `pending`, `held`, `contested`, `blocked`, `ignored`, or `unowned` if
    /// no pool owns them.
    pub nodes_by_state: BTreeMap<String, usize>,
    /// The Windows builds of the nodes, oldest first.
    pub builds: Vec<BuildSummary>,
    /// The RuntimeClasses that select Windows nodes.
    pub runtime_classes: Vec<ClassSummary>,
    /// Number of unfinished pods on Windows nodes that have no RuntimeClass; absent if winpool cannot list pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_without_class: Option<usize>,
    /// Number of pods that select labels which their node does not have: the kubelet ends them when it starts. With
    /// `--assume`, the pods that an in-place upgrade ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pods_that_end: usize,
    /// The build of the nodes whose support ends next, or has ended; absent if winpool knows none of the builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub support_ends_next: Option<SupportEnd>,
    /// The objects that winpool cannot read, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A WindowsPool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSummary {
    /// The name of the pool.
    pub name: String,
    /// `Enforce`, `DryRun`, `Invalid` or `Deleting`.
    pub mode: String,
    /// The status of its condition Ready: `True`, `False` or `Unknown`.
    pub ready: String,
    /// The reason of that condition.
    pub reason: String,
    /// The message of that condition.
    pub message: String,
    /// Number of nodes that it selects, as the operator counted them.
    pub node_count: i64,
    /// Number of those that have the right label and taints.
    pub converged: i64,
    /// Taints that winpool does not add yet, as `key=value:effect`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_taints: Vec<String>,
    /// True if one of the workloads below may be for Linux.
    #[serde(skip)]
    pub may_be_for_linux: bool,
    /// Workloads for which winpool holds these taints, each with the number of its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_for: Vec<PodCount>,
    /// The taints on trial, and those that winpool removed because a pod waited only because of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taint_trials: Vec<TaintTrial>,
    /// The message of the condition `WorkloadsHealthy`, unless that is True: pods fail because of Windows, or winpool does not see
    /// all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_pods: Option<String>,
    /// The problems that need attention, as the operator reports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A Windows build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildSummary {
    /// The build, such as `10.0.20348`; absent for nodes whose build is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The version, such as `2022`; absent if winpool does not know the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The last day of support by Microsoft; absent if winpool does not know the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub end_of_support: Option<Date>,
    /// The last day of support by each vendor that labels of its nodes show; no day if the vendor names none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Option<String>>")]
    pub vendors: BTreeMap<String, Option<Date>>,
    /// Number of its nodes by state.
    pub nodes_by_state: BTreeMap<String, usize>,
}

/// A RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassSummary {
    /// The name of the RuntimeClass.
    pub name: String,
    /// The pool that manages it; absent if winpool does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its state in the status of that pool, or `Contested` if another writer keeps reverting winpool's changes; absent if
    /// the status does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Number of nodes on which its pods can be scheduled.
    pub node_count: usize,
    /// Number of its unfinished pods; absent if winpool cannot list pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<usize>,
}

/// The end of support of a Windows version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportEnd {
    /// The product, such as `Windows Server 2019`.
    pub product: String,
    /// Number of its nodes.
    pub node_count: usize,
    /// The one who ends it: Microsoft, or the vendor that labels of the nodes show, such as AKS.
    pub by: String,
    /// The last day.
    #[schemars(with = "String")]
    pub day: Date,
    /// Days until then; negative if it is over.
    pub days_left: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Returns the build of a node and the vendor that its labels show.
fn vendor_of(node: &NodeFields) -> Option<(Build, Vendor)> {
    Some((node.windows_version()?.build, Vendor::of(&node.labels)?))
}

/// Returns notes about the pods, workloads and admission policies that cannot be read.
pub fn unread(snapshot: &Snapshot) -> Vec<String> {
    let pods = snapshot.pods.refusal().map(|message| format!("Pods cannot be listed: {message}"));
    let unlisted = snapshot.workloads.refused();
    let workloads = unlisted.first_key_value().map(|(_, message)| {
        let kinds: Vec<&str> = unlisted.keys().copied().collect();
        format!(
            "Held taints are shown only as far as pods show them, because these cannot be listed: {} ({message})",
            kinds.join(", ")
        )
    });
    let policies = &snapshot.control_plane.admission.unreadable;
    let policies = (!policies.is_empty()).then(|| {
        let names: Vec<&str> = policies.iter().copied().collect();
        format!(
            "The answer assumes that these admission policies are not installed, because they cannot be read: {}",
            names.join(", ")
        )
    });
    pods.into_iter().chain(workloads).chain(policies).collect()
}

/// Summarises the cluster. Events name the nodes `reverted`: there another writer reverted winpool's changes.
pub fn status(snapshot: Snapshot, reverted: &BTreeSet<String>) -> ClusterStatus {
    let (nodes, classes) = (snapshot.nodes.clone(), snapshot.classes.clone());
    let (pods, guarded) = (snapshot.pods.known().cloned(), snapshot.pools.clone());
    let (today, gaps) = (snapshot.now.time, unread(&snapshot));
    let outcome = forecast(snapshot);
    let states = node_states(&nodes, &guarded, &outcome, reverted);
    let hosts = nodes.iter().filter(|(_, node)| node.is_windows());
    let hosts: Vec<view::Node> = hosts.map(|(name, node)| view::Node::of(name, node)).collect();
    let by_build = count_states(&nodes, &states);
    let mut nodes_by_state = BTreeMap::new();
    for (state, count) in by_build.values().flatten() {
        *nodes_by_state.entry(state.clone()).or_default() += count;
    }
    let vendors: BTreeSet<(Build, Vendor)> = nodes.values().filter_map(vendor_of).collect();
    let windows_classes = classes.iter().filter(|class| selects_windows(&Class::from(class.as_ref()).selector));
    let is_without_class = |pod: &&Pod| {
        let node = pod.spec.node.as_ref().and_then(|name| nodes.get(name));
        pod.spec.runtime_class.is_none() && node.is_some_and(NodeFields::is_windows)
    };
    ClusterStatus {
        pods_that_end: ending(pods.iter().flatten(), &hosts).count(),
        installation: None,
        pools: guarded.iter().map(|pool| pool_summary(pool, &outcome.forecast.summary.pools)).collect(),
        nodes_by_state,
        support_ends_next: support_ends_next(&by_build, &vendors, today),
        runtime_classes: windows_classes
            .map(|class| ClassSummary {
                name: class.name_any(),
                pool: winpool_core::plan::owner(class).map(str::to_owned),
                state: guarded.iter().find_map(|pool| class_state(pool, &class.name_any())),
                node_count: nodes.values().filter(|node| selects(class, node)).count(),
                pods: pods.as_ref().map(|pods| count_pods(pods, &class.name_any())),
            })
            .collect(),
        pods_without_class: pods.as_ref().map(|pods| pods.iter().filter(is_without_class).count()),
        builds: by_build.into_iter().map(|(build, nodes)| build_summary(build, nodes, &vendors)).collect(),
        notes: gaps,
    }
}

/// Returns the state of each Windows node.
fn node_states<'a>(
    nodes: &'a BTreeMap<String, NodeFields>,
    pools: &[GuardedPool],
    outcome: &ForecastOutcome,
    reverted: &BTreeSet<String>,
) -> BTreeMap<&'a str, &'static str> {
    let policy = policy_of(pools);
    let windows = nodes.iter().filter(|(_, node)| node.is_windows());
    let mut states: BTreeMap<&str, _> =
        windows.map(|(name, node)| (name.as_str(), state_under(node, &policy, outcome))).collect();
    for pool in pools {
        let is_of_pool = |name: &str| {
            let owner = nodes.get(name).and_then(|node| policy.owner(&node.labels));
            owner.is_some_and(|owner| owner.pool.spec.name == pool.name_any())
        };
        for name in contested(pool, &states, is_of_pool, reverted) {
            states.insert(name, NodeState::Contested.as_str());
        }
    }
    states
}

/// Counts the nodes by build and state.
fn count_states(
    nodes: &BTreeMap<String, NodeFields>,
    states: &BTreeMap<&str, &str>,
) -> BTreeMap<Option<Build>, BTreeMap<String, usize>> {
    let mut counts: BTreeMap<Option<Build>, BTreeMap<String, usize>> = BTreeMap::new();
    for (name, state) in states {
        let build = nodes.get(*name).and_then(NodeFields::windows_version).map(|version| version.build);
        *counts.entry(build).or_default().entry((*state).to_owned()).or_default() += 1;
    }
    counts
}

fn count_pods(pods: &[Pod], class: &str) -> usize {
    pods.iter().filter(|pod| pod.spec.runtime_class.as_deref() == Some(class)).count()
}

fn support_ends_next(
    by_build: &BTreeMap<Option<Build>, BTreeMap<String, usize>>,
    vendors: &BTreeSet<(Build, Vendor)>,
    now: Timestamp,
) -> Option<SupportEnd> {
    let known = by_build.iter().filter_map(|(build, nodes)| Some(((*build)?, nodes)));
    let ends = known.flat_map(|(build, nodes)| {
        ends_of_support(build, vendors).map(move |(by, day)| SupportEnd {
            product: product::name_of(build),
            node_count: nodes.values().sum(),
            by: by.to_owned(),
            day,
            days_left: days_until(day, now),
        })
    });
    ends.min_by_key(|end| end.day)
}

fn build_summary(
    build: Option<Build>,
    nodes_by_state: BTreeMap<String, usize>,
    vendors: &BTreeSet<(Build, Vendor)>,
) -> BuildSummary {
    let product = build.and_then(product::by_build);
    let vendors = vendors.iter().filter(|(its, _)| build == Some(*its));
    let support_by = |(build, vendor): &(Build, Vendor)| {
        (vendor.as_str().to_owned(), vendor.support_of(*build).and_then(|support| support.end))
    };
    BuildSummary {
        build: build.map(|build| build.to_string()),
        version: product.map(|product| product.version.to_owned()),
        end_of_support: product.map(product::Product::end_of_support),
        vendors: vendors.map(support_by).collect(),
        nodes_by_state,
    }
}

/// Returns the objects of this kind of which the status of the pool says that another writer reverts winpool's changes.
fn contested_objects<'a>(pool: &'a GuardedPool, kind: &'a str) -> impl Iterator<Item = &'a str> {
    let problems = pool.status.iter().flat_map(|status| &status.problems);
    let contested = problems.filter(move |problem| problem.reason == reason::CONTESTED && problem.object.kind == kind);
    contested.map(|problem| problem.object.name.as_str())
}

/// Returns the pending nodes of the pool that another writer keeps reverting: those that the status of the pool or an
/// Event names, or all pending nodes if the status counts as many.
fn contested<'a>(
    pool: &GuardedPool,
    states: &BTreeMap<&'a str, &str>,
    is_of_pool: impl Fn(&str) -> bool,
    reverted: &BTreeSet<String>,
) -> Vec<&'a str> {
    let count = pool.status.as_ref().map_or(0, |status| status.nodes.contested);
    let pending = states.iter().filter(|(_, state)| **state == NodeState::Pending.as_str()).map(|(name, _)| *name);
    let pending: Vec<&str> = pending.filter(|name| count > 0 && is_of_pool(name)).collect();
    if number(pending.len()) <= count {
        return pending;
    }
    let is_named = |name: &str| contested_objects(pool, "Node").any(|named| named == name) || reverted.contains(name);
    pending.into_iter().filter(|name| is_named(name)).collect()
}

fn class_state(pool: &GuardedPool, name: &str) -> Option<String> {
    if contested_objects(pool, "RuntimeClass").any(|contested| contested == name) {
        return Some(reason::CONTESTED.to_owned());
    }
    let class = pool.status.as_ref()?.runtime_classes.iter().find(|class| class.name == name)?;
    Some(class.state.as_str().to_owned())
}

fn pool_summary(pool: &GuardedPool, forecasts: &[PoolForecast]) -> PoolSummary {
    let name = pool.name_any();
    let status = pool.status.clone().unwrap_or_default();
    let condition = |name: &str| status.conditions.iter().find(|condition| condition.type_ == name);
    let ready = condition(names::condition::READY);
    let healthy = condition(names::condition::WORKLOADS_HEALTHY).filter(|condition| condition.status != "True");
    let failing_pods = healthy.map(|condition| condition.message.clone());
    let forecast = forecasts.iter().find(|forecast| forecast.name == name);
    let held_taints = forecast.map(|forecast| forecast.held_taints.clone()).unwrap_or_default();
    let (ready, reason, message) = match ready {
        Some(ready) => (ready.status.clone(), ready.reason.clone(), ready.message.clone()),
        None => ("Unknown".to_owned(), "NoStatus".to_owned(), "the operator has not written its status yet".to_owned()),
    };
    PoolSummary {
        mode: forecast.map(|forecast| forecast.mode.clone()).unwrap_or_default(),
        ready,
        reason,
        message,
        node_count: status.nodes.selected,
        converged: status.nodes.converged,
        held_for: forecast.filter(|_| !held_taints.is_empty()).map(|f| f.unschedulable.clone()).unwrap_or_default(),
        held_taints,
        may_be_for_linux: forecast.is_some_and(|forecast| forecast.may_be_for_linux),
        taint_trials: status.taint_trials,
        failing_pods,
        problems: status.problems,
        name,
    }
}

/// Returns the days until this day; negative if it is over.
pub(super) fn days_until(day: Date, now: Timestamp) -> i32 {
    let today = now.to_zoned(TimeZone::UTC).date();
    today.until(day).map_or(i32::MAX, |span| span.get_days())
}
