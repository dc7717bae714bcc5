//! Workloads that are not pinned to a Windows version, and run on its nodes: whether they run elsewhere, and how that is
//! known.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::Isolation;
use winpool_core::pod::System;
use winpool_core::windows::Build;
use winpool_core::windows::compatibility::Runs;

use crate::explain::images::{Move, moved};
use crate::image::known::name_of;
use crate::image::name::build_of;
use crate::image::{Host, Sign, can_run, runs_on};
use crate::lint::facts::Facts;
use crate::pod::{PodSpec, isolation_with};
use crate::workload::WorkloadManifest;

use super::Group;

/// The evidence that a workload runs on the nodes that stay.
// In order: if one image has a variant and another only a tag, the tag is the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Evidence {
    /// All of its containers are host-process containers, which run on every version.
    HostProcess,
    /// One of its containers has started on a node of the target's version.
    RunsThere,
    /// The registry has a variant of each image for the target.
    Registry,
    /// The tag of each image names a version that the target runs.
    Tag,
    /// It starts on the version that you retire, and the target runs the images of that version.
    StartsHere,
}

impl Evidence {
    /// The evidence in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::HostProcess => "host-process containers run on every version",
            Self::RunsThere => "it also runs on the target's version",
            Self::Registry => "the registry has variants of its images for the target",
            Self::Tag => "the target runs images with these tags",
            Self::StartsHere => "it starts here, and the target runs images of this version",
        }
    }
}

/// Returns what is known about a workload without a pin. `None` if it is not concerned: it is for Linux or for another
/// version, nothing shows that it can be on nodes of `retired`, or, without a target, it also runs on another version.
/// `started_on` are the builds of the nodes on which its containers have started.
pub fn departure(
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
    retired: Build,
    target: Option<Build>,
    started_on: &BTreeSet<Build>,
) -> Option<Group> {
    let new = facts.pod_of(workload);
    let pods = facts.admitted(&new, workload);
    let (pod, class) = (&pods.template(), pods.class.map(|(_, class)| class));
    let (guess, isolation) = (facts.guess(pod), isolation_with(class));
    let is_linux = guess.is_some_and(|guess| guess.system == System::Linux && guess.is_certain());
    let is_elsewhere = pod.wanted_builds(class).is_some_and(|builds| !builds.contains(&retired));
    let starts_here = started_on.contains(&retired);
    if is_linux && !starts_here || is_elsewhere {
        return None;
    }
    let is_windows = guess.is_some_and(|guess| guess.system == System::Windows);
    let builds = facts.builds_of(&pods);
    // Without nodes, nothing shows that it fits another one.
    let may_be_here = starts_here || is_windows && (!facts.knows_nodes() || builds.contains(&retired));
    let is_for_another = images(pod).iter().any(|name| match facts.images().sign(name) {
        Some(Sign::Registry(image)) => !runs_on(image, &Host::supposed(retired), isolation).runs(),
        Some(Sign::Tag(build)) => !can_run(isolation, build, retired),
        None => false,
    });
    if !may_be_here || !starts_here && is_for_another {
        return None;
    }
    if pod.is_host_process() {
        return Some(Group::CanMove(Evidence::HostProcess));
    }
    let evidence = |target: Build| evidence(pod, isolation, facts, retired, target, started_on);
    match target {
        Some(target) => Some(
            evidence(target).map_or_else(|| Group::Unknown(unknown(pod, facts, retired, Some(target))), Group::CanMove),
        ),
        None if !starts_here && builds.into_iter().any(|other| other != retired && evidence(other).is_some()) => None,
        None => Some(Group::Unknown(unknown(pod, facts, retired, None))),
    }
}

/// Returns how it is known that nodes of `target` run a pod that nodes of `retired` run, or have run if `started_on`
/// contains it.
pub fn evidence(
    pod: &PodSpec,
    isolation: Isolation,
    facts: &Facts,
    retired: Build,
    target: Build,
    started_on: &BTreeSet<Build>,
) -> Option<Evidence> {
    if pod.is_host_process() {
        return Some(Evidence::HostProcess);
    }
    let images = images(pod);
    let runs = |build: Build| facts.runs(isolation, build, target) == Runs::Yes;
    let of_image = |name: &&str| match facts.images().sign(name)? {
        Sign::Registry(_) => {
            let hosts: Vec<_> = facts.hosts().filter(|host| host.kernel.build == target).collect();
            let moved = moved(name, target, &hosts, isolation, facts.images());
            matches!(moved, Some(Move::SameTag(_))).then_some(Evidence::Registry)
        }
        Sign::Tag(build) => runs(build).then_some(Evidence::Tag),
    };
    if started_on.contains(&target) {
        return Some(Evidence::RunsThere);
    }
    let weakest = images.iter().map(of_image).collect::<Option<Vec<_>>>().and_then(|found| found.into_iter().max());
    weakest.or_else(|| (started_on.contains(&retired) && runs(retired)).then_some(Evidence::StartsHere))
}

/// The images of a pod that need a version of Windows.
fn images(pod: &PodSpec) -> Vec<&str> {
    pod.images().filter(|(container, _)| !container.is_host_process).map(|(_, name)| name).collect()
}

/// Returns the missing information about a pod, and how to get it.
pub fn unknown(pod: &PodSpec, facts: &Facts, retired: Build, target: Option<Build>) -> String {
    let isolation = isolation_with(facts.known_class(pod));
    if let Some(target) = target
        && let Runs::IfContainerd(since) = facts.runs(isolation, retired, target)
    {
        let (target, retired) = (name_of(target), name_of(retired));
        return format!(
            "nodes of {target} run images of {retired} if their containerd is {since} or later, which is not known"
        );
    }
    let unclear: BTreeSet<&str> = images(pod).into_iter().filter(|name| build_of(name).is_none()).collect();
    let images = unclear.iter().copied().collect::<Vec<_>>().join(", ");
    if !unclear.is_empty() && facts.images().is_empty() {
        let (noun, verb) = if unclear.len() == 1 { ("image", "names") } else { ("images", "name") };
        return format!("{noun} {images} {verb} no Windows version; --resolve-images asks the registries");
    }
    let which = match target {
        Some(target) => format!("nothing shows that nodes of {} run its images", name_of(target)),
        None => format!("nothing shows that nodes of another version than {} run its images", name_of(retired)),
    };
    if images.is_empty() { which } else { format!("{which} ({images})") }
}
