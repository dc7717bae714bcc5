//! The conditions of a pool.

use std::{collections::BTreeMap, fmt::Write};

use k8s_openapi::jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde_json::json;

use crate::{
    api::{ClassState, Mode, NodeCounts, TaintPolicy, names::reason},
    plan::{
        nodes::numbers::Overlap,
        pods::failures::PoolFailures,
        pools::{pool::Pool, status::Observation},
    },
    windows::{Build, KubernetesSupport, product},
    words::{count as count_of, joined, yaml},
};

/// The status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    pub(crate) fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    pub(crate) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    pub(crate) fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "Unknown", reason, message: message.into() }
    }
}

/// The verdict about nodes while kinds cannot be read, which are given with the reasons.
pub fn unreadable_verdict(unreadable: &BTreeMap<&'static str, String>) -> Option<Verdict> {
    let (kinds, (_, why)) = (joined(unreadable.keys()), unreadable.first_key_value()?);
    let message = format!("winpool cannot read {kinds}, so this status may be old, and no taint is added: {why}");
    Some(Verdict::unknown(reason::READ_FAILED, message))
}

pub fn ready(pool: &Pool, observation: &Observation) -> Verdict {
    let nodes = observation.nodes;
    for lost in [reason::STATUS_NOT_STORED, reason::RECORD_REMOVED] {
        if let Some(problem) = observation.problems.iter().find(|problem| problem.reason == lost) {
            return Verdict::no(lost, problem.message.clone());
        }
    }
    let pending_classes = count(observation, ClassState::Pending);
    if pool.spec.mode == Mode::DryRun {
        let message = format!("dry run: winpool would change {}", changes(nodes.pending, pending_classes));
        return Verdict::yes(reason::DRY_RUN, message);
    }
    if nodes.pending > 0 || pending_classes > 0 {
        let message = format!("winpool has yet to change {}", changes(nodes.pending, pending_classes));
        return Verdict::no(reason::IN_PROGRESS, message);
    }
    if let Some(held) = &observation.held {
        return Verdict { status: "False", ..held.verdict.clone() };
    }
    if nodes.held > 0 {
        return waiting(nodes.held);
    }
    if count(observation, ClassState::Conflict) > 0 {
        return Verdict::no(reason::CLASS_CONFLICT, conflicts(observation));
    }
    if let Some(missing) = impossible_classes(observation) {
        return missing;
    }
    if let Some(contested) = observation.problems.iter().find(|problem| problem.reason == reason::CONTESTED) {
        return Verdict::no(reason::CONTESTED, format!("{}: {}", contested.object, contested.message));
    }
    if nodes.selected == 0 {
        return no_nodes(pool, observation);
    }
    let mut message = format!("{} of {} converged", nodes.converged, count_of(nodes.selected, "node"));
    // Writing to a String never fails.
    if nodes.blocked > 0 {
        let _ = write!(message, "; winpool cannot change {}, see problems", count_of(nodes.blocked, "node"));
    }
    if nodes.ignored > 0 {
        let _ = write!(message, "; winpool ignores {}", count_of(nodes.ignored, "node"));
    }
    Verdict::yes(reason::DONE, message)
}

fn changes(nodes: i64, classes: usize) -> String {
    format!("{} and {}", count_of(nodes, "node"), count_of(classes, "RuntimeClass"))
}

fn no_nodes(pool: &Pool, observation: &Observation) -> Verdict {
    let windows = count_of(observation.windows_nodes, "Windows node");
    let selector = &pool.spec.node_selector;
    if selector.is_empty() || observation.windows_nodes == 0 {
        return Verdict::yes(reason::NO_NODES_SELECTED, format!("the pool selects no node; the cluster has {windows}"));
    }
    let selector = yaml(&json!(selector));
    let message = format!(
        "nodeSelector {selector} matches none of {windows}: correct it, unless its node group has no nodes at present"
    );
    Verdict::yes(reason::NO_NODES_SELECTED, message)
}

/// The pods are not listed yet, or pods that run on the nodes are to get tolerations first.
fn waiting(held: i64) -> Verdict {
    Verdict::no(
        reason::WAITING,
        format!(
            "the taints of {} wait until winpool has listed the pods and added the toleration to those that run there",
            count_of(held, "node")
        ),
    )
}

/// The verdict about labels.
pub fn labels_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    nodes_verdict(pool, observation, observation.unlabeled, "labelled")
}

/// The verdict about taints.
pub fn taints_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    if let Some(held) = &observation.held {
        return held.verdict.clone();
    }
    if observation.nodes.held > 0 {
        return waiting(observation.nodes.held);
    }
    if pool.spec.taint_policy != TaintPolicy::Never {
        return nodes_verdict(pool, observation, observation.untainted, "tainted");
    }
    if observation.nodes.selected > 0 && observation.untainted == 0 {
        return Verdict::yes(reason::DONE, "taintPolicy is Never: winpool adds no taint");
    }
    nodes_verdict(pool, observation, observation.untainted, "freed of old taints")
}

/// The message if every node that winpool may change is done.
fn every_node(nodes: NodeCounts, done: &str) -> String {
    let ignored = count_of(nodes.ignored, "node");
    match nodes.ignored {
        0 => format!("every node is {done}"),
        all if all == nodes.selected => format!("winpool ignores {ignored}; the pool selects no other node"),
        _ => format!("winpool ignores {ignored}; every other node is {done}"),
    }
}

fn nodes_verdict(pool: &Pool, observation: &Observation, missing: usize, done: &str) -> Verdict {
    let nodes = observation.nodes;
    if nodes.selected == 0 {
        return no_nodes(pool, observation);
    }
    if missing == 0 {
        return Verdict::yes(reason::DONE, every_node(nodes, done));
    }
    if pool.spec.mode == Mode::DryRun {
        return Verdict::no(reason::DRY_RUN, format!("dry run: {} would be {done}", count_of(missing, "node")));
    }
    if nodes.pending > 0 {
        return Verdict::no(reason::IN_PROGRESS, format!("{} not {done} yet", count_of(missing, "node")));
    }
    let node_problem = observation.problems.iter().find(|problem| problem.object.kind == "Node");
    let mut reasons = [reason::ADMISSION_DENIED, reason::CONTESTED, reason::OPERATING_SYSTEM_DIFFERS].into_iter();
    let reason = reasons.find(|reason| node_problem.is_some_and(|problem| problem.reason == *reason));
    Verdict::no(
        reason.unwrap_or(reason::BUILD_UNKNOWN),
        format!("{} cannot be {done}, see problems", count_of(missing, "node")),
    )
}

/// False only if Microsoft or the cluster's vendor no longer supports a build in use. Kubernetes' lists are reported
/// and change nothing.
pub fn support_verdict(observation: &Observation, now: Timestamp) -> Verdict {
    let today = now.to_zoned(TimeZone::UTC).date();
    let name = |build: &Build| product::name_of(*build);
    let ended = |build: &&Build| product::by_build(**build).is_some_and(|p| p.end_of_support < today);
    let unlisted = |build: &&Build| observation.support_of(**build) == KubernetesSupport::Unlisted;
    let ended = joined(observation.builds.keys().filter(ended).map(name));
    let unlisted = joined(observation.builds.keys().filter(unlisted).map(name));
    let listing = match observation.kubernetes {
        Some(version) if !unlisted.is_empty() => {
            format!("; the documentation of Kubernetes {version} does not list {unlisted}")
        }
        _ => String::new(),
    };
    let (by_vendor, removed) = vendor_support(observation, today);
    let notes: String = removed.into_iter().map(|note| format!("; {note}")).chain([listing]).collect();
    if ended.is_empty() && by_vendor.is_empty() {
        return Verdict::yes(reason::SUPPORTED, format!("Microsoft supports every known build in use{notes}"));
    }
    let by_microsoft = (!ended.is_empty()).then(|| format!("past Microsoft's end of support: {ended}"));
    let ended: Vec<String> = by_microsoft.into_iter().chain(by_vendor).collect();
    Verdict::no(reason::END_OF_SUPPORT, format!("{}{notes}", ended.join("; ")))
}

/// The versions whose support a vendor has ended, and those that end with a newer Kubernetes.
fn vendor_support(observation: &Observation, today: Date) -> (Vec<String>, Vec<String>) {
    let rows = observation.vendors.iter().filter_map(|(build, vendor)| vendor.support_of(*build));
    let (mut ended, mut removed) = (Vec::new(), Vec::new());
    for row in rows {
        let (vendor, name) = (row.vendor.as_str(), product::name_of(row.build));
        if row.has_ended(today) {
            ended.push(format!("{vendor} supported {name} until {}", row.end));
        }
        if let Some(version) = observation.kubernetes.and_then(|now| row.removed_after(now)) {
            removed.push(format!("{vendor} has no nodes of {name} with Kubernetes {version} or later"));
        }
    }
    (ended, removed)
}

/// The verdict about pods. winpool does not see all of them for the reason `unseen`, if given.
pub fn health_verdict(failures: &PoolFailures, unseen: Option<&str>) -> Verdict {
    let unseen = unseen.map(|message| format!("winpool does not see all pods that fail: {message}"));
    if failures.counts.is_empty() {
        return match unseen {
            Some(message) => Verdict::unknown(reason::PODS_NOT_SEEN, message),
            None => Verdict::yes(reason::HEALTHY, "no pod is known to fail because of Windows"),
        };
    }
    let named = failures.workloads.iter().map(|workload| {
        format!("{} ({}, {})", workload.object, count_of(workload.pods, "pod"), workload.cause.as_str())
    });
    let named = joined(named);
    let more = if failures.more > 0 { format!(" and {} more", failures.more) } else { String::new() };
    let pods = count_of(failures.counts.values().sum::<usize>(), "pod");
    let unseen = unseen.map(|message| format!("; {message}")).unwrap_or_default();
    let message = format!("{pods} of {named}{more} cannot run because of Windows, see problems{unseen}");
    Verdict::no(reason::PODS_FAILING, message)
}

pub fn overlap_verdict(Overlap { nodes, example, owner }: &Overlap) -> Verdict {
    let message = format!(
        "{} in the nodeSelector of this pool and of an older one, such as {example} of {owner}; change one of the \
         nodeSelectors",
        count_of(*nodes, "node")
    );
    Verdict::yes(reason::OLDER_POOL, message)
}

pub fn classes_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    let pending = count(observation, ClassState::Pending);
    if pool.spec.mode == Mode::DryRun && pending > 0 {
        let message = format!("dry run: winpool would write {}", count_of(pending, "RuntimeClass"));
        return Verdict::no(reason::DRY_RUN, message);
    }
    if count(observation, ClassState::Conflict) > 0 {
        return Verdict::no(reason::CLASS_CONFLICT, conflicts(observation));
    }
    if pending > 0 {
        let message = format!("winpool has yet to write {}", count_of(pending, "RuntimeClass"));
        return Verdict::no(reason::IN_PROGRESS, message);
    }
    if let Some(missing) = impossible_classes(observation) {
        return missing;
    }
    let mut message = format!("{} up to date", count_of(observation.classes.len(), "RuntimeClass"));
    if !observation.labelled.is_empty() {
        let _ = write!(
            message,
            "; by capability label: {}. A new node serves them after winpool has labelled it, and an autoscaler needs the \
             labels in the template of an empty node group",
            observation.labelled.join(", ")
        );
    }
    Verdict::yes(reason::DONE, message)
}

/// The verdict if the pool lacks classes that winpool cannot create.
fn impossible_classes(observation: &Observation) -> Option<Verdict> {
    [reason::CLASS_NAME_INVALID, reason::TOO_MANY_CLASSES].into_iter().find_map(|reason| {
        let problem = observation.problems.iter().find(|problem| problem.reason == reason)?;
        Some(Verdict::no(reason, problem.message.clone()))
    })
}

fn count(observation: &Observation, state: ClassState) -> usize {
    observation.classes.iter().filter(|class| class.state == state).count()
}

fn conflicts(observation: &Observation) -> String {
    let conflicts = observation.problems.iter().filter(|problem| problem.reason == reason::CLASS_CONFLICT);
    let texts: Vec<String> = conflicts.map(|problem| format!("{} {}", problem.object, problem.message)).collect();
    texts.join("; ")
}
