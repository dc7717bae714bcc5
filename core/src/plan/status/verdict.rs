//! The conditions of a pool.

use std::{collections::BTreeMap, fmt::Write};

use k8s_openapi::jiff::{Timestamp, tz::TimeZone};
use serde_json::json;

use crate::{
    api::{ClassState, Mode, names::reason},
    pod::tolerations::toleration,
    windows::{Build, KubernetesSupport, product},
    words::{count as count_of, yaml},
};

use super::{super::Pool, HeldBecause, HeldTaints, Observation, Overlap, number, support_of};

/// The limit of workloads named in a condition.
const WORKLOADS: usize = 10;

/// The status, reason and message of a condition.
pub(super) struct Verdict {
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    /// Adds the kinds that the workload check had to leave out.
    pub fn with_unlisted(mut self, unlisted: &BTreeMap<String, String>) -> Self {
        if let Some((_, words)) = unlisted.first_key_value() {
            let kinds = unlisted.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let _ = write!(self.message, "; not checked, because winpool may not list them: {kinds} ({words})");
        }
        self
    }
}

pub fn ready(pool: &Pool, observation: &Observation) -> Verdict {
    let nodes = observation.nodes;
    let pending_classes = count(observation, ClassState::Pending);
    if pool.mode == Mode::DryRun {
        let message = format!("dry run: winpool would change {}", changes(nodes.pending, pending_classes));
        return Verdict::yes(reason::DRY_RUN, message);
    }
    if nodes.pending > 0 || pending_classes > 0 {
        let message = format!("winpool has yet to change {}", changes(nodes.pending, pending_classes));
        return Verdict::no(reason::IN_PROGRESS, message);
    }
    if let Some(held) = &observation.held {
        return Verdict { status: "False", ..held_verdict(pool, held) };
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
        return no_nodes(observation);
    }
    let blocked = match nodes.blocked {
        0 => String::new(),
        blocked => format!("; winpool cannot change {}, see problems", count_of(blocked, "node")),
    };
    let converged = format!("{} of {} converged{blocked}", nodes.converged, count_of(nodes.selected, "node"));
    Verdict::yes(reason::DONE, converged)
}

fn changes(nodes: i64, classes: usize) -> String {
    format!("{} and {}", count_of(nodes, "node"), count_of(classes, "RuntimeClass"))
}

fn no_nodes(observation: &Observation) -> Verdict {
    let windows = count_of(number(observation.windows_nodes), "Windows node");
    Verdict::yes(reason::NO_NODES_SELECTED, format!("the pool selects no node; the cluster has {windows}"))
}

/// The workload check is not done yet.
pub fn waiting(held: i64) -> Verdict {
    Verdict::no(reason::WAITING, format!("the taints of {} wait for a workload check", count_of(held, "node")))
}

pub fn nodes_verdict(pool: &Pool, observation: &Observation, missing: usize, done: &str) -> Verdict {
    let nodes = observation.nodes;
    if nodes.selected == 0 {
        return no_nodes(observation);
    }
    if missing == 0 {
        return Verdict::yes(reason::DONE, format!("every node is {done}"));
    }
    if pool.mode == Mode::DryRun {
        return Verdict::no(reason::DRY_RUN, format!("dry run: {} would be {done}", count_of(missing, "node")));
    }
    if nodes.pending > 0 {
        return Verdict::no(reason::IN_PROGRESS, format!("{} not {done} yet", count_of(missing, "node")));
    }
    let node_problem = observation.problems.iter().find(|problem| problem.object.kind == "Node");
    let reason = match node_problem.map(|problem| problem.reason.as_str()) {
        Some(reason::ADMISSION_DENIED) => reason::ADMISSION_DENIED,
        Some(reason::CONTESTED) => reason::CONTESTED,
        _ => reason::BUILD_UNKNOWN,
    };
    Verdict::no(reason, format!("{} cannot be {done}, see problems", count_of(missing, "node")))
}

/// False only if Microsoft no longer supports a build in use. Kubernetes' lists are reported and change nothing.
pub fn support_verdict(observation: &Observation, now: Timestamp) -> Verdict {
    let today = now.to_zoned(TimeZone::UTC).date();
    let name = |build: &Build| product::name_of(*build);
    let ended = |build: &&Build| product::by_build(**build).is_some_and(|p| p.end_of_support() < today);
    let unlisted = |build: &&Build| support_of(observation, **build) == KubernetesSupport::Unlisted;
    let ended: Vec<String> = observation.builds.keys().filter(ended).map(name).collect();
    let unlisted: Vec<String> = observation.builds.keys().filter(unlisted).map(name).collect();
    let listing = match observation.kubernetes {
        Some(version) if !unlisted.is_empty() => {
            format!("; the documentation of Kubernetes {version} does not list {}", unlisted.join(", "))
        }
        _ => String::new(),
    };
    if ended.is_empty() {
        return Verdict::yes(reason::SUPPORTED, format!("Microsoft supports every known build in use{listing}"));
    }
    let message = format!("past Microsoft's end of support: {}{listing}", ended.join(", "));
    Verdict::no(reason::END_OF_SUPPORT, message)
}

pub fn overlap_verdict(Overlap { nodes, example, owner }: &Overlap) -> Verdict {
    let message = format!(
        "{} in the nodeSelector of this pool and of an older one, such as {example} of {owner}; change one of the \
         nodeSelectors",
        count_of(*nodes, "node")
    );
    Verdict::yes(reason::OLDER_POOL, message)
}

/// The reason why the taints wait, with the remedy.
pub fn held_verdict(pool: &Pool, HeldTaints { taints, because }: &HeldTaints) -> Verdict {
    let names = taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match because {
        HeldBecause::CheckFailed(error) => Verdict {
            status: "Unknown",
            reason: reason::WORKLOAD_CHECK_FAILED,
            message: format!("{names} held: the workload check failed and is repeated: {error}"),
        },
        HeldBecause::PodsUnreadable(words) => Verdict::no(
            reason::WORKLOADS_NOT_TOLERATING,
            format!(
                "{names} held: winpool cannot find out which pods tolerate it: {words}. Allow winpool to list pods, or \
                 set taintPolicy: Always"
            ),
        ),
        HeldBecause::Classes(classes) => {
            let classes = classes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("{names} held until these RuntimeClasses tolerate it: {classes}; see problems");
            Verdict::no(reason::WAITING, message)
        }
        HeldBecause::Unschedulable(workloads) => {
            let described = workloads.iter().take(WORKLOADS).map(|(name, pods)| match pods {
                0 => name.clone(),
                pods => format!("{name} ({})", count_of(number(*pods), "pod")),
            });
            let described = described.collect::<Vec<_>>().join(", ");
            let more = workloads.len().saturating_sub(WORKLOADS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let tolerations: Vec<String> = taints.iter().map(|taint| yaml(&json!(toleration(taint)))).collect();
            let held = if pool.mode == Mode::DryRun { "would be held" } else { "held" };
            let message = format!(
                "{names} {held}: {described}{more} would find no node. Add to the pod templates: tolerations: [{}]; or set \
                 taintPolicy: Always",
                tolerations.join(", ")
            );
            Verdict::no(reason::WORKLOADS_NOT_TOLERATING, message)
        }
    }
}

pub fn classes_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    let pending = count(observation, ClassState::Pending);
    if pool.mode == Mode::DryRun && pending > 0 {
        return Verdict::no(
            reason::DRY_RUN,
            format!("dry run: winpool would write {}", count_of(pending, "RuntimeClass")),
        );
    }
    if count(observation, ClassState::Conflict) > 0 {
        return Verdict::no(reason::CLASS_CONFLICT, conflicts(observation));
    }
    if pending > 0 {
        return Verdict::no(
            reason::IN_PROGRESS,
            format!("winpool has yet to write {}", count_of(pending, "RuntimeClass")),
        );
    }
    if let Some(missing) = impossible_classes(observation) {
        return missing;
    }
    Verdict::yes(reason::DONE, format!("{} up to date", count_of(observation.classes.len(), "RuntimeClass")))
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
