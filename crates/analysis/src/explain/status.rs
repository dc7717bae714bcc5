//! Summarises a cluster: nodes by build and state, RuntimeClasses and their pods, held taints, and the next end of
//! support.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::names::{self, reason};
use winpool_core::api::{HelpedWorkload, NodeCounts, ObjectReference, Problem, WindowsPoolStatus, number};
use winpool_core::node::NodeFields;
use winpool_core::plan::nodes::assessment::{NodeState, assess_as};
use winpool_core::plan::pools::pool::{GuardedPool, Policy, Pool, policy_of};
use winpool_core::plan::taints::Consent;
use winpool_core::pod::{Class, selects_windows};
use winpool_core::windows::{Build, builds};
use winpool_simulation::Unfinished;

use crate::explain::forecast::{ForecastOutcome, OF_CLASSES, Snapshot, forecast, mode_of};
use crate::explain::installation::Installation;
use crate::explain::node::{UNOWNED, selects, state_under};
use crate::explain::pod_count::PodCount;
use crate::explain::pod_defaults::unused;
use crate::image::known::name_of;
use crate::pod::Pod;
use crate::support::{Vendor, ends_of_support};
use crate::verdict::ending;
use crate::view::{self, Known, Policies, View, Workloads};

/// The sentence for a cluster without pools.
pub const NO_POOL: &str = "There is no WindowsPool, so winpool does nothing.";

/// The state of a cluster's Windows nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// winpool's own installation; absent for manifests, or if you may not list Deployments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installation: Option<Installation>,
    /// The WindowsPools.
    pub pools: Vec<PoolSummary>,
    /// Number of Windows nodes by state, as the pools report them: `converged`, `pending`, `held`, `contested`, `blocked`,
    /// `ignored`, or `unowned` if no pool owns them.
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
    /// The `DaemonSets` that would make no pods for nodes with these taints, each with the number of those nodes; absent if the
    /// message of the pool names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_for: Vec<PodCount>,
    /// The workloads whose pods last got tolerations from winpool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helped_workloads: Vec<HelpedWorkload>,
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
    /// Number of Windows nodes with it in the whole cluster, also of nodes that no pool selects.
    pub node_count: usize,
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
pub(super) fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Returns the build of a node and the vendor that its labels show.
fn vendor_of(node: &NodeFields) -> Option<(Build, Vendor)> {
    Some((node.windows_build()?, Vendor::of(&node.labels)?))
}

/// Returns notes about what cannot be read: pods, workloads and admission policies.
pub fn unread(pods: &Known<Vec<Pod>>, workloads: &Workloads, policies: &Known<Policies>) -> Vec<String> {
    let pods = pods.refusal().map(|message| format!("Pods cannot be listed: {message}"));
    let unlisted = workloads.refused();
    let workloads = unlisted.first_key_value().map(|(_, message)| {
        let kinds: Vec<&str> = unlisted.keys().copied().collect();
        format!(
            "Workloads may be missing from the answer, because these cannot be listed: {} ({message})",
            kinds.join(", ")
        )
    });
    let policy = policies.refusal().map(|message| {
        format!("It is not known what admission policies change, because they cannot be listed: {message}")
    });
    pods.into_iter().chain(workloads).chain(policy).collect()
}

/// Returns the status of this pool, if it can be true now: it is about the pool's present spec, it counts as many nodes as the pool
/// selects, and no more of them are converged than have all that the pool gives them.
fn reported<'a, 'n>(
    pool: &'a GuardedPool,
    policy: &Policy,
    nodes: impl Iterator<Item = &'n NodeFields>,
) -> Option<&'a WindowsPoolStatus> {
    let status = pool.status.as_ref().filter(|status| status.observed_generation == pool.metadata.generation)?;
    let is_it = |of: &Pool| pool.metadata.name.as_ref() == Some(&of.spec.name);
    let selects = |node: &&NodeFields| match policy.owner(&node.labels) {
        Some(owner) if is_it(&owner.pool) => true,
        _ => policy.previews(&node.labels).any(|previewed| is_it(previewed)),
    };
    let wanted = policy.pool(&pool.name_any()).map(Arc::as_ref);
    let is_converged =
        |node: &&&NodeFields| assess_as(node, wanted, policy, Consent::Given).state() == NodeState::Converged;
    let selected: Vec<&NodeFields> = nodes.filter(|node| node.is_windows()).filter(selects).collect();
    let converged = selected.iter().filter(is_converged).count();
    let NodeCounts { selected: counted, converged: reported, .. } = status.nodes;
    (counted == number(selected.len()) && reported <= number(converged)).then_some(status)
}

/// True if the pools report what [`status`] shows, so that it does not simulate the operator.
pub fn is_reported(view: &View) -> bool {
    let pools: Vec<_> = view.guarded().into_iter().flatten().collect();
    let policy = policy_of(&pools);
    let nodes = || view.nodes.known().into_iter().flatten().map(|seen| &seen.object.node);
    pools.iter().all(|pool| reported(pool, &policy, nodes()).is_some())
}

/// Summarises the cluster by what its pools report. If a pool does not, or the cluster `is_assumed`, the operator is simulated.
///
/// # Errors
/// Fails if the operator does not finish.
pub fn status(snapshot: &Snapshot, is_assumed: bool) -> Result<ClusterStatus, Unfinished> {
    let policy = policy_of(&snapshot.pools);
    let report = |pool| reported(pool, &policy, snapshot.nodes.values()).filter(|_| !is_assumed);
    let reports: Vec<_> = snapshot.pools.iter().map(|pool| (pool, report(pool))).collect();
    let is_simulated = reports.iter().any(|(_, report)| report.is_none());
    let outcome = is_simulated.then(|| forecast(snapshot)).transpose()?;
    let windows = || snapshot.nodes.iter().filter(|(_, node)| node.is_windows());
    let hosts: Vec<view::Node> = windows().map(|(name, node)| view::Node::of(name, node)).collect();
    let mut by_build: BTreeMap<Option<Build>, usize> = BTreeMap::new();
    for (_, node) in windows() {
        *by_build.entry(node.windows_build()).or_default() += 1;
    }
    let vendors: BTreeSet<(Build, Vendor)> = snapshot.nodes.values().filter_map(vendor_of).collect();
    let classes = snapshot.classes.iter();
    let windows_classes = classes.filter(|class| selects_windows(&Class::from(class.as_ref()).selector));
    let pods = snapshot.pods.known();
    let is_without_class = |pod: &&Pod| {
        let node = pod.spec.node.as_ref().and_then(|name| snapshot.nodes.get(name));
        pod.spec.runtime_class.is_none() && node.is_some_and(NodeFields::is_windows)
    };
    Ok(ClusterStatus {
        pods_that_end: ending(pods.into_iter().flatten(), &hosts).count(),
        installation: None,
        pools: reports.iter().map(|(pool, report)| pool_summary(pool, *report, outcome.as_ref(), snapshot)).collect(),
        nodes_by_state: count_states(windows(), &policy, &reports, outcome.as_ref()),
        support_ends_next: support_ends_next(&by_build, &vendors, snapshot.now.time),
        runtime_classes: windows_classes
            .map(|class| ClassSummary {
                name: class.name_any(),
                pool: winpool_core::plan::classes::runtime_class::owner(class).map(str::to_owned),
                state: snapshot.pools.iter().find_map(|pool| class_state(pool, &class.name_any())),
                node_count: snapshot.nodes.values().filter(|node| selects(class, node)).count(),
                pods: pods.map(|pods| count_pods(pods, &class.name_any())),
            })
            .collect(),
        pods_without_class: pods.map(|pods| pods.iter().filter(is_without_class).count()),
        builds: by_build.into_iter().map(|(build, nodes)| build_summary(build, nodes, &vendors)).collect(),
        notes: reports
            .iter()
            .filter(|(pool, report)| report.is_none() && pool.status.is_some() && !is_assumed)
            .map(|(pool, _)| outdated(&pool.name_any()))
            .chain(unread(&snapshot.pods, &snapshot.workloads, &snapshot.policies))
            .collect(),
    })
}

fn outdated(pool: &str) -> String {
    format!(
        "WindowsPool {pool} or its nodes changed since winpool wrote its status: the number of nodes in each state is what \
         winpool would find now"
    )
}

/// Counts the Windows nodes by state: those of pools that report as the pool reports them, and others as the simulation finds them.
fn count_states<'a>(
    nodes: impl Iterator<Item = (&'a String, &'a NodeFields)>,
    policy: &Policy,
    reports: &[(&GuardedPool, Option<&WindowsPoolStatus>)],
    outcome: Option<&ForecastOutcome>,
) -> BTreeMap<String, usize> {
    let reports: BTreeMap<String, NodeCounts> =
        reports.iter().filter_map(|(pool, report)| Some((pool.name_any(), (*report)?.nodes))).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut owners = BTreeSet::new();
    for (name, node) in nodes {
        match policy.owner(&node.labels).map(|owner| &owner.pool.spec.name) {
            Some(owner) if reports.contains_key(owner) => _ = owners.insert(owner),
            _ => {
                let state = outcome.map_or(UNOWNED, |outcome| state_under(name, node, outcome));
                *counts.entry(state.to_owned()).or_default() += 1;
            }
        }
    }
    for (state, number) in owners.iter().filter_map(|owner| reports.get(*owner)).flat_map(by_state) {
        *counts.entry(state.as_str().to_owned()).or_default() += usize::try_from(number).unwrap_or_default();
    }
    counts.retain(|_, number| *number > 0);
    counts
}

fn by_state(counts: &NodeCounts) -> [(NodeState, i64); 6] {
    let NodeCounts { converged, pending, held, contested, blocked, ignored, selected: _ } = *counts;
    [
        (NodeState::Converged, converged),
        (NodeState::Pending, pending),
        (NodeState::Held, held),
        (NodeState::Contested, contested),
        (NodeState::Blocked, blocked),
        (NodeState::Ignored, ignored),
    ]
}

pub(super) fn count_pods(pods: &[Pod], class: &str) -> usize {
    pods.iter().filter(|pod| pod.spec.runtime_class.as_deref() == Some(class)).count()
}

fn support_ends_next(
    by_build: &BTreeMap<Option<Build>, usize>,
    vendors: &BTreeSet<(Build, Vendor)>,
    now: Timestamp,
) -> Option<SupportEnd> {
    let known = by_build.iter().filter_map(|(build, nodes)| Some(((*build)?, nodes)));
    let ends = known.flat_map(|(build, nodes)| {
        ends_of_support(build, vendors).map(move |(by, day)| SupportEnd {
            product: name_of(build),
            node_count: *nodes,
            by: by.to_owned(),
            day,
            days_left: days_until(day, now),
        })
    });
    ends.min_by_key(|end| end.day)
}

fn build_summary(build: Option<Build>, node_count: usize, vendors: &BTreeSet<(Build, Vendor)>) -> BuildSummary {
    let product = build.and_then(builds::by_build);
    let vendors = vendors.iter().filter(|(its, _)| build == Some(*its));
    let support_by = |(build, vendor): &(Build, Vendor)| (vendor.as_str().to_owned(), vendor.support_end(*build));
    BuildSummary {
        build: build.map(|build| build.to_string()),
        version: product.map(|product| product.version.to_owned()),
        end_of_support: product.map(|product| product.end_of_support),
        vendors: vendors.map(support_by).collect(),
        node_count,
    }
}

fn class_state(pool: &GuardedPool, name: &str) -> Option<String> {
    let status = pool.status.as_ref()?;
    let is_contested = |problem: &Problem| {
        problem.reason == reason::CONTESTED && problem.object == ObjectReference::runtime_class(name)
    };
    if status.problems.iter().any(is_contested) {
        return Some(reason::CONTESTED.to_owned());
    }
    let class = status.runtime_classes.iter().find(|class| class.name == name)?;
    Some(class.state.as_str().to_owned())
}

/// True if the operator reported that a class selects no node, and now there is one.
fn is_over(problem: &Problem, snapshot: &Snapshot) -> bool {
    let is_it = |name: &str| ObjectReference::runtime_class(name) == problem.object;
    let class = snapshot.classes.iter().find(|class| is_it(&class.name_any()));
    problem.reason == reason::CLASS_WITHOUT_NODES
        && class.is_some_and(|class| snapshot.nodes.values().any(|node| selects(class, node)))
}

fn pool_summary(
    pool: &GuardedPool,
    report: Option<&WindowsPoolStatus>,
    outcome: Option<&ForecastOutcome>,
    snapshot: &Snapshot,
) -> PoolSummary {
    let name = pool.name_any();
    let status = pool.status.clone().unwrap_or_default();
    let condition = |name: &str| status.conditions.iter().find(|condition| condition.type_ == name);
    let ready = condition(names::condition::READY);
    let healthy = condition(names::condition::WORKLOADS_HEALTHY).filter(|condition| condition.status != "True");
    let failing_pods = healthy.map(|condition| condition.message.clone());
    let (ready, reason, message) = match ready {
        Some(ready) => (ready.status.clone(), ready.reason.clone(), ready.message.clone()),
        None => ("Unknown".to_owned(), "NoStatus".to_owned(), "the operator has not written its status yet".to_owned()),
    };
    let forecast = outcome.filter(|_| report.is_none()).and_then(|outcome| outcome.forecast.pool(&name));
    let (held_taints, held_for) = match forecast {
        Some(pool) if pool.held_taints.is_empty() => (Vec::new(), Vec::new()),
        Some(pool) => (pool.held_taints.clone(), pool.without_pods.clone()),
        None => (report.map(|status| held_taints(pool, status)).unwrap_or_default(), Vec::new()),
    };
    let is_new = |problem: &&Problem| {
        let is_it = |known: &Problem| (&known.reason, &known.object) == (&problem.reason, &problem.object);
        OF_CLASSES.contains(&problem.reason.as_str()) && !status.problems.iter().any(is_it)
    };
    let of_classes: Vec<Problem> = forecast.iter().flat_map(|pool| &pool.problems).filter(is_new).cloned().collect();
    let mode = mode_of(pool);
    // In dry run the message of Ready does not name the `DaemonSets`.
    let held = condition(names::condition::TAINTS_APPLIED)
        .filter(|_| mode == "DryRun" && !held_taints.is_empty() && held_for.is_empty())
        .map(|held| Problem {
            reason: held.reason.clone(),
            object: ObjectReference::windows_pool(&name),
            message: held.message.clone(),
        });
    PoolSummary {
        mode: mode.to_owned(),
        ready,
        reason,
        message,
        node_count: status.nodes.selected,
        converged: status.nodes.converged,
        held_for,
        held_taints,
        helped_workloads: status.helped_workloads,
        failing_pods,
        problems: held
            .into_iter()
            .chain(status.problems.into_iter().filter(|problem| !is_over(problem, snapshot)))
            .chain(unused(pool, &snapshot.policies))
            .chain(of_classes)
            .collect(),
        name,
    }
}

/// Names the `DaemonSets` because of which taints of these pools are held, if the pools report the taints. A status names only the
/// first of them, in words.
pub(super) fn name_held_for(pools: &mut [PoolSummary], snapshot: &Snapshot) -> Result<(), Unfinished> {
    if pools.iter().any(|pool| !pool.held_taints.is_empty() && pool.held_for.is_empty()) {
        let outcome = forecast(snapshot)?;
        for pool in pools {
            let forecast = outcome.forecast.pool(&pool.name).filter(|_| !pool.held_taints.is_empty());
            pool.held_for = forecast.map(|forecast| forecast.without_pods.clone()).unwrap_or_default();
        }
    }
    Ok(())
}

/// Returns the taints that winpool does not add yet, as the status of the pool reports them.
fn held_taints(pool: &GuardedPool, status: &WindowsPoolStatus) -> Vec<String> {
    const HELD: [&str; 3] = [reason::DAEMON_SETS_NOT_TOLERATING, reason::PODS_NOT_SEEN, reason::WAITING];
    let is_held = |condition: &Condition| {
        condition.type_ == names::condition::TAINTS_APPLIED && HELD.contains(&condition.reason.as_str())
    };
    let Some(pool) = pool.read().ok().filter(|_| status.conditions.iter().any(is_held)) else { return Vec::new() };
    let applicable = pool.applicable_taints();
    let held = pool.spec.wanted_taints().into_iter().filter(|taint| !applicable.contains(taint));
    held.map(|taint| taint.to_string()).collect()
}

/// Returns the days until this day; negative if it is over.
pub(super) fn days_until(day: Date, now: Timestamp) -> i32 {
    let today = now.to_zoned(TimeZone::UTC).date();
    today.until(day).map_or(i32::MAX, |span| span.get_days())
}
