//! What the conditions of a pool say.

use k8s_openapi::jiff::{Timestamp, tz::TimeZone};
use serde_json::json;

use crate::{
    api::{ClassState, Mode, names::reason},
    windows::{Build, KubernetesSupport, product},
    words::yaml,
};

use super::{
    super::{Pool, tolerations::toleration},
    Held, Observation, Overlap, support_of,
};

/// Workloads named in a condition.
const WORKLOADS: usize = 10;

/// What a condition says.
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
}

pub fn ready(pool: &Pool, observation: &Observation) -> Verdict {
    let nodes = observation.nodes;
    let pending_classes = count(observation, ClassState::Pending);
    if pool.mode == Mode::DryRun {
        let message =
            format!("dry run: {} node(s) and {pending_classes} RuntimeClass(es) would be changed", nodes.pending);
        return Verdict::yes(reason::DRY_RUN, message);
    }
    if nodes.pending > 0 || pending_classes > 0 {
        let message =
            format!("{} node(s) and {pending_classes} RuntimeClass(es) are still to be changed", nodes.pending);
        return Verdict::no(reason::IN_PROGRESS, message);
    }
    if let Some(held) = &observation.held {
        return held_verdict(pool, held);
    }
    if nodes.held > 0 {
        return Verdict::no(reason::IN_PROGRESS, format!("{} node(s) wait for a look at their pods", nodes.held));
    }
    if count(observation, ClassState::Conflict) > 0 {
        return Verdict::no(reason::CLASS_CONFLICT, conflicts(observation));
    }
    if let Some(contested) = observation.problems.iter().find(|problem| problem.reason == reason::CONTESTED) {
        return Verdict::no(reason::CONTESTED, format!("{}: {}", contested.object, contested.message));
    }
    let blocked =
        if nodes.blocked > 0 { format!(", {} cannot be, see problems", nodes.blocked) } else { String::new() };
    Verdict::yes(
        reason::DONE,
        format!("{} of {} node(s) are as they should be{blocked}", nodes.converged, nodes.selected),
    )
}

pub fn nodes_verdict(pool: &Pool, observation: &Observation, missing: usize, done: &str) -> Verdict {
    let nodes = observation.nodes;
    if missing == 0 {
        return Verdict::yes(reason::DONE, format!("every node is {done}"));
    }
    if pool.mode == Mode::DryRun {
        return Verdict::no(reason::DRY_RUN, format!("dry run: {missing} node(s) would be {done}"));
    }
    if nodes.pending > 0 {
        return Verdict::no(reason::IN_PROGRESS, format!("{missing} node(s) are not {done} yet"));
    }
    let node_problem = observation.problems.iter().find(|problem| problem.object.starts_with("Node/"));
    let reason = match node_problem.map(|problem| problem.reason.as_str()) {
        Some(reason::ADMISSION_DENIED) => reason::ADMISSION_DENIED,
        Some(reason::CONTESTED) => reason::CONTESTED,
        _ => reason::BUILD_UNKNOWN,
    };
    Verdict::no(reason, format!("{missing} node(s) cannot be {done}, see problems"))
}

/// False only when Microsoft no longer supports a build in use; what Kubernetes lists is told, not judged.
pub fn support_verdict(observation: &Observation, now: Timestamp) -> Verdict {
    let today = now.to_zoned(TimeZone::UTC).date();
    let name = |build: &Build| product::by_build(*build).map_or_else(|| build.to_string(), |p| p.name.to_owned());
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
        "{nodes} node(s) that this pool selects belong to an older pool, such as {example} to {owner}; make their \
         nodeSelectors differ"
    );
    Verdict::yes(reason::OLDER_POOL, message)
}

/// Names whom the taints would strand, and what to write.
pub fn held_verdict(pool: &Pool, held: &Held) -> Verdict {
    let taints: Vec<String> = pool.held.iter().map(ToString::to_string).collect();
    let taints = taints.join(", ");
    let message = match held {
        Held::PodsUnreadable(words) => format!(
            "{taints} held: it cannot be read which pods tolerate it: {words}. Allow winpool to list pods, or set \
             taintPolicy: Always"
        ),
        Held::Stranded(workloads) => {
            let named = workloads.iter().take(WORKLOADS).map(|(name, pods)| format!("{name} ({pods} pod(s))"));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = workloads.len().saturating_sub(WORKLOADS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let tolerations: Vec<String> = pool.held.iter().map(|taint| yaml(&json!(toleration(taint)))).collect();
            format!(
                "{taints} held: on the pool's nodes, {named}{more} do not tolerate it and would find no node after \
                 their next rollout. Add to the pod templates: tolerations: [{}]; or set taintPolicy: Always",
                tolerations.join(", ")
            )
        }
    };
    Verdict::no(reason::WORKLOADS_NOT_TOLERATING, message)
}

pub fn classes_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    let pending = count(observation, ClassState::Pending);
    if pool.mode == Mode::DryRun && pending > 0 {
        return Verdict::no(reason::DRY_RUN, format!("dry run: {pending} RuntimeClass(es) would be written"));
    }
    if count(observation, ClassState::Conflict) > 0 {
        return Verdict::no(reason::CLASS_CONFLICT, conflicts(observation));
    }
    if pending > 0 {
        return Verdict::no(reason::IN_PROGRESS, format!("{pending} RuntimeClass(es) are still to be written"));
    }
    Verdict::yes(reason::DONE, format!("{} RuntimeClass(es) are as they should be", observation.classes.len()))
}

fn count(observation: &Observation, state: ClassState) -> usize {
    observation.classes.iter().filter(|class| class.state == state).count()
}

fn conflicts(observation: &Observation) -> String {
    let conflicts = observation.problems.iter().filter(|problem| problem.reason == reason::CLASS_CONFLICT);
    let texts: Vec<String> = conflicts.map(|problem| format!("{} {}", problem.object, problem.message)).collect();
    texts.join("; ")
}
