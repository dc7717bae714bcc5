//! Rules about builds: the pod names a build, nodes of that build exist, and they run the pod's images.

use std::collections::BTreeSet;

use winpool_core::{
    api::{Isolation, names},
    pod::Container,
    windows::{
        Build, KernelVersion,
        compatibility::{can_run_by_process_isolation, runs_by_hyperv_isolation, runs_by_process_isolation},
        product::by_version,
    },
};

use crate::{
    finding::{
        Consequence::{Fails, Note, Pending},
        Severity::{Error, Info, Warning},
    },
    lint::rule::{Hit, Judgement, Rule, Scope, Subject, own, rule},
    pod::{ClassExt, PodSpecExt, path_of},
};

/// The remedy for a DaemonSet, whose controller ignores classes.
const PER_BUILD: &str = "add nodeSelector node.kubernetes.io/windows-build, and a DaemonSet for each other build";

pub(in crate::lint) const RULES: &[Rule] = &[
    rule(
        "build-malformed",
        Judgement(Error, Pending),
        Scope::Any,
        "nodeSelector",
        "the value of node.kubernetes.io/windows-build is not a build, so no node has it",
        "write 10.0.<number>, such as 10.0.20348",
        own(malformed),
    ),
    rule(
        "build-not-selected",
        Judgement(Warning, Fails),
        Scope::AnyWindows,
        "nodeSelector",
        "the pod can be scheduled to Windows nodes of several builds, and not all of them run its images",
        "add nodeSelector node.kubernetes.io/windows-build with the build of its images",
        own(not_selected),
    ),
    rule(
        "build-without-node",
        Judgement(Warning, Pending),
        Scope::Windows,
        "nodeSelector",
        "no node has the build that the pod selects",
        "add such nodes, or move the pod to another build",
        own(without_node),
    ),
    rule(
        "image-builds-differ",
        Judgement(Error, Fails),
        Scope::Any,
        "containers[*].image",
        "the containers of a pod run on one node, and no host runs all their images, which are for different builds",
        "use images of one build",
        own(images_differ),
    ),
    rule(
        "image-build-mismatch",
        Judgement(Error, Fails),
        Scope::Windows,
        "containers[*].image",
        "the image does not start on hosts of the build that the pod selects",
        "use an image of the same build, or another class or selector",
        own(|subject, hits| mismatches(subject, Runs::Never, hits)),
    ),
    rule(
        "image-older-than-host",
        Judgement(Info, Note),
        Scope::Windows,
        "containers[*].image",
        "the image is for an older build than the hosts that the pod selects; they run it if their containerd is 1.7.19 or later",
        "use an image of the same build, or make sure of the hosts' containerd",
        own(|subject, hits| mismatches(subject, Runs::Perhaps, hits)),
    ),
];

fn malformed(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    if let Some(value) = subject.pod.selected(names::WINDOWS_BUILD)
        && value.parse::<Build>().is_err()
    {
        // The version of the product, or a build with its revision.
        let by_revision = || value.parse::<KernelVersion>().ok().map(|version| version.build);
        let meant = by_version(value).map(|product| product.build).or_else(by_revision);
        let value: String = value.chars().take(63).collect();
        let message = format!("{}={value:?} is not a build, so no node has it", names::WINDOWS_BUILD);
        let hit = Hit::at("nodeSelector").saying(message);
        hits.push(match meant {
            Some(build) => hit.remedied_by(format!("write {}: {build}", names::WINDOWS_BUILD)),
            None => hit,
        });
    }
}

fn not_selected(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let builds = subject.facts.builds_of(subject.pod, subject.class);
    let pod = subject.pod;
    let has_capability = |key: &String| key.starts_with(names::CAPABILITY_LABEL_PREFIX);
    let of_class = subject.class.into_iter().flat_map(|class| class.selector.keys());
    let by_capability = pod.node_selector.keys().chain(of_class).any(has_capability);
    // The selector of an unknown class is unknown.
    let unknown = pod.runtime_class.is_some() && subject.class.is_none() || pod.node.is_some();
    let is_chosen = pod.wanted_builds(subject.class).is_some() || by_capability;
    if builds.len() < 2 || is_chosen || unknown || pod.is_host_process() {
        return;
    }
    // Without a build in the tags nothing shows that a node does not run the images. If registries were asked, another
    // rule reports the nodes that do not.
    let tagged: BTreeSet<Build> = pod
        .image_builds()
        .filter(|(container, _)| !is_in_a_registry(subject, container))
        .map(|(_, build)| build)
        .collect();
    let running = |least: Runs| -> BTreeSet<Build> {
        let runs_all = |host: &&Build| tagged.iter().all(|image| runs(subject, **host, *image) <= least);
        builds.iter().filter(runs_all).copied().collect()
    };
    let surely = running(Runs::Surely);
    if surely != builds {
        let able = if surely.is_empty() { running(Runs::Perhaps) } else { surely };
        hits.push(Hit::at("nodeSelector").remedied_by(selection(subject, &tagged, &able)));
    }
}

/// Returns how to select one of the `able` builds, which run images of the `tagged` builds.
fn selection(subject: &Subject<'_>, tagged: &BTreeSet<Build>, able: &BTreeSet<Build>) -> String {
    let own = able.intersection(tagged).next();
    let Some(build) = own.or(able.first()) else {
        return "use images of a build that the nodes have, or add nodes that run them".to_owned();
    };
    if subject.workload.is_daemon_set() {
        return PER_BUILD.to_owned();
    }
    match (subject.facts.classes_of(*build).next(), own.is_some()) {
        (Some(class), true) => format!("add runtimeClassName: {class}, which selects the build of its images"),
        (Some(class), false) => format!("add runtimeClassName: {class}, whose nodes run its images"),
        (None, true) => format!("add nodeSelector {}: {build}, the build of its images", names::WINDOWS_BUILD),
        (None, false) => format!("add nodeSelector {}: {build}, whose nodes run its images", names::WINDOWS_BUILD),
    }
}

fn without_node(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(wanted) = subject.pod.wanted_builds(subject.class) else { return };
    let there = subject.facts.builds();
    if subject.facts.has_nodes() && !wanted.is_empty() && !wanted.iter().any(|build| there.contains_key(build)) {
        let field = if subject.pod.builds().is_some() { "nodeSelector" } else { "runtimeClassName" };
        let wanted: Vec<String> = wanted.iter().take(4).map(ToString::to_string).collect();
        hits.push(
            Hit::at(field).saying(format!("no node has the build that the pod selects, {}", wanted.join(" or "))),
        );
    }
}

fn images_differ(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let by_tag = || subject.pod.image_builds().filter(|(container, _)| !is_in_a_registry(subject, container));
    let builds: BTreeSet<Build> = by_tag().map(|(_, build)| build).collect();
    let Some((newest, (last, _))) = builds.last().zip(by_tag().last()) else { return };
    // No other host runs more of them than one of the newest build.
    let run_together = builds.iter().all(|image| runs(subject, *newest, *image) != Runs::Never);
    if !run_together && !subject.pod.is_host_process() {
        let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
        let message =
            format!("the containers of a pod run on one node, and their images are for {}", builds.join(" and "));
        hits.push(Hit::at(image_of(last)).saying(message));
    }
}

pub(super) fn image_of(container: &Container) -> String {
    format!("{}.image", path_of(container))
}

/// True if the image's platforms are known from a registry, so that its tag is not used.
fn is_in_a_registry(subject: &Subject<'_>, container: &Container) -> bool {
    container.image.as_deref().is_some_and(|name| subject.facts.images().platforms(name).is_some())
}

/// The answer to "does the host run the image?", the best answer first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Runs {
    Surely,
    /// The host runs it if its containerd is new enough.
    Perhaps,
    Never,
}

fn runs(subject: &Subject<'_>, host: Build, image: Build) -> Runs {
    let hyperv = subject.class.is_some_and(|class| class.isolation() == Isolation::HyperV);
    if runs_by_process_isolation(host, None, image) || hyperv && runs_by_hyperv_isolation(host, image) {
        Runs::Surely
    } else if can_run_by_process_isolation(host, image) {
        Runs::Perhaps
    } else {
        Runs::Never
    }
}

/// Reports the images of which `wanted` is the best answer for a host that the pod asks for.
fn mismatches(subject: &Subject<'_>, wanted: Runs, hits: &mut Vec<Hit>) {
    let Some(hosts) = subject.pod.wanted_builds(subject.class).filter(|hosts| !hosts.is_empty()) else { return };
    if subject.pod.is_host_process() {
        return;
    }
    for (container, image) in subject.pod.image_builds().filter(|(container, _)| !is_in_a_registry(subject, container))
    {
        let best = hosts.iter().map(|host| runs(subject, *host, image)).min();
        if best == Some(wanted) {
            let hosts: Vec<String> = hosts.iter().take(4).map(ToString::to_string).collect();
            let hosts = hosts.join(" or ");
            hits.push(Hit::at(image_of(container)).saying(if wanted == Runs::Never {
                format!("the image is for build {image} and does not start on hosts of {hosts}, which the pod selects")
            } else {
                format!(
                    "the image is for build {image}; hosts of {hosts} run it if their containerd is 1.7.19 or later"
                )
            }));
        }
    }
}
