//! Rules about images: registries have variants of them for the nodes on which the pod can be scheduled. These rules
//! report nothing if no registry was queried, but for the names of Windows images in pods for Linux.

use std::collections::{BTreeMap, BTreeSet};

use winpool_core::api::Isolation;
use winpool_core::windows::Build;
use winpool_core::words::count;

use crate::finding::Consequence::{Fails, Note};
use crate::finding::Severity::{Error, Info, Warning};
use crate::image::name::is_for_windows;
use crate::image::{Failure, Host, ImagePlatforms, PlatformMatch, by_registry, known};
use crate::lint::placement::builds::image_of;
use crate::lint::rule::{Hit, Judgement, Rule, Scope, Subject, own, rules};
use crate::pod::{Container, Target, isolation_with};
use crate::remedy::Edit;

/// The rule whose findings do not affect the exit code, because the workload is not at fault if a registry does not
/// answer.
pub const UNKNOWN_ID: &str = "image-platforms-unknown";

pub(in crate::lint) const RULES: &[Rule] = rules!([
    Rule {
        id: "image-for-another-os",
        verdict: Judgement(Error, Fails),
        scope: Scope::Any,
        field: "containers[*].image",
        reason: "by its name or its registry, the image has no variant for the operating system of the pod",
        remedy: "use another image, or select nodes of the other system",
        test: own(other_os),
        ..Rule::DEFAULT
    },
    Rule {
        id: "image-without-variant",
        verdict: Judgement(Error, Fails),
        field: "containers[*].image",
        reason: "the registry has no variant of the image for any Windows node on which the pod may land, so it is not \
                 pulled or does not start",
        remedy: "build the image for this Windows, or select nodes that run it",
        test: own(|subject, hits| variants(subject, true, hits)),
        ..Rule::DEFAULT
    },
    Rule {
        id: "image-variant-for-some-nodes",
        verdict: Judgement(Warning, Fails),
        field: "containers[*].image",
        reason: "the registry has a variant of the image for some of the Windows nodes on which the pod may land, and \
                 not for others",
        remedy: "select the nodes that run it by node.kubernetes.io/windows-build",
        test: own(|subject, hits| variants(subject, false, hits)),
        ..Rule::DEFAULT
    },
    Rule {
        id: "image-newer-than-node",
        verdict: Judgement(Warning, Fails),
        field: "containers[*].image",
        reason: "the image has a newer revision of Windows than a node on which the pod may land, which can refuse to \
                 start it with 0xc0370106",
        remedy: "update Windows on the nodes, or use an older image",
        test: own(newer_revision),
        ..Rule::DEFAULT
    },
    Rule {
        id: UNKNOWN_ID,
        verdict: Judgement(Info, Note),
        scope: Scope::Any,
        field: "containers[*].image",
        reason: "the registry does not say which platforms the image supports, so the exit code is 2 unless you ignore \
                 this rule",
        remedy: "fix what the message names; until then winpool judges the image by its tag",
        test: own(unknown),
        ..Rule::DEFAULT
    },
]);

/// Returns the images whose platforms are known.
fn known_images<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (&'a Container, &'a ImagePlatforms)> {
    let images = subject.facts.images();
    subject.pod.images().filter_map(move |(container, name)| Some((container, images.platforms(name)?)))
}

/// Returns the Windows nodes on which the pod can be scheduled or, if no nodes are known, one node of each build that
/// the pod selects. Empty if no image is known.
fn hosts(subject: &Subject<'_>) -> Vec<Host> {
    let is_open = subject.pod.runtime_class.is_some() && subject.class.is_none();
    let is_known = known_images(subject).next().is_some();
    if is_open || !is_known {
        return Vec::new();
    }
    if subject.facts.has_nodes() {
        return subject.facts.hosts_of(subject.pods).into_iter().cloned().collect();
    }
    subject.pod.wanted_builds(subject.class).into_iter().flatten().map(Host::supposed).collect()
}

fn isolation(subject: &Subject<'_>) -> Isolation {
    isolation_with(subject.class)
}

fn other_os(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (container, name) in subject.pod.images().filter(|(_, name)| subject.facts.images().get(name).is_none()) {
        if subject.target == Target::Linux && is_for_windows(name) {
            let message = "by its name the image is for Windows, and the pod is for Linux".to_owned();
            hits.push(Hit::at(image_of(container)).saying(message));
        }
    }
    for (container, image) in known_images(subject) {
        let has_windows = image.platforms.iter().any(|platform| platform.is_windows() || platform.os.is_empty());
        let has_others = image.platforms.iter().any(|platform| !platform.is_windows());
        let problem = match subject.target {
            Target::Windows | Target::WindowsImage if !has_windows => "and the pod is for Windows",
            Target::Linux if !has_others => "and the pod is for Linux",
            Target::Unknown if !has_others => "and nothing keeps the pod off Linux nodes",
            _ => continue,
        };
        let message = format!("the image is for {}, {problem}", known::summary(image));
        hits.push(Hit::at(image_of(container)).saying(message));
    }
}

/// Returns the number of nodes that do not run the image, by build.
fn failing(
    container: &Container,
    image: &ImagePlatforms,
    hosts: &[Host],
    isolation: Isolation,
) -> BTreeMap<Build, usize> {
    let mut failing = BTreeMap::new();
    for host in hosts {
        let verdict = by_registry(image, container.is_host_process, host, isolation);
        if matches!(verdict, PlatformMatch::Fails(Failure::NoVariant | Failure::OtherBuild(_))) {
            *failing.entry(host.kernel.build).or_default() += 1;
        }
    }
    failing
}

/// Reports the images that run on none of the possible nodes, or those that do not run on some of them.
fn variants(subject: &Subject<'_>, of_all: bool, hits: &mut Vec<Hit>) {
    let hosts = hosts(subject);
    for (container, image) in known_images(subject) {
        let failing = failing(container, image, &hosts, isolation(subject));
        let number: usize = failing.values().sum();
        if number == 0 || (number == hosts.len()) != of_all {
            continue;
        }
        let builds: Vec<String> = failing.iter().map(|(build, nodes)| of_build(subject, *build, *nodes)).collect();
        let message = format!("the image is for {}, and not for {}", known::summary(image), builds.join(" or "));
        let hit = Hit::at(image_of(container)).saying(message);
        hits.push(match class_that_runs(subject) {
            Some(name) => hit.remedied_by(vec![Edit::class(name)]),
            None => hit,
        });
    }
}

/// Formats a build with its number of nodes: `Windows 2019 (3 nodes)`.
fn of_build(subject: &Subject<'_>, build: Build, nodes: usize) -> String {
    let nodes = if subject.facts.has_nodes() { format!(" ({})", count(nodes, "node")) } else { String::new() };
    format!("Windows {}{nodes}", known::short(build))
}

/// Returns a class whose nodes run all images of the pod.
fn class_that_runs<'a>(subject: &Subject<'a>) -> Option<&'a str> {
    let builds: BTreeSet<Build> = subject.facts.hosts().map(|host| host.kernel.build).collect();
    let runs = |build: &Build| {
        let mut hosts = subject.facts.hosts().filter(|host| host.kernel.build == *build);
        let images =
            || subject.pod.images().map(|(container, name)| (container, subject.facts.images().platforms(name)));
        hosts.all(|host| {
            images().all(|(container, image)| {
                image
                    .is_some_and(|image| by_registry(image, container.is_host_process, host, Isolation::Process).runs())
            })
        })
    };
    builds.into_iter().rev().filter(runs).find_map(|build| Some(super::class_of(subject, build)?.0))
}

fn newer_revision(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let hosts = hosts(subject);
    for (container, image) in known_images(subject) {
        let older = hosts.iter().filter_map(|host| {
            match by_registry(image, container.is_host_process, host, isolation(subject)) {
                PlatformMatch::NewerRevision(platform) => Some((host.kernel.revision?, host.kernel.build, platform)),
                _ => None,
            }
        });
        let older: Vec<_> = older.collect();
        if let Some((revision, build, platform)) = older.iter().min_by_key(|(revision, ..)| *revision) {
            let message = format!(
                "the image is for {}, and {} on which the pod may land {} older, the oldest {build}.{revision}: such a node can \
                 refuse to start it with 0xc0370106",
                platform.version(),
                count(older.len(), "node"),
                if older.len() == 1 { "is" } else { "are" },
            );
            hits.push(Hit::at(image_of(container)).saying(message));
        }
    }
}

fn unknown(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (container, name) in subject.pod.images() {
        if let Some(Err(unresolved)) = subject.facts.images().get(name) {
            let message = format!("the platforms of the image are unknown: {}", unresolved.reason);
            hits.push(Hit::at(image_of(container)).saying(message));
        }
    }
}
