//! Rules about builds: the pod names a build, nodes of that build exist, and they run the pod's images.

use std::collections::BTreeSet;

use winpool_core::api::{Isolation, names};
use winpool_core::windows::builds::by_version;
use winpool_core::windows::compatibility::Runs;
use winpool_core::windows::{Build, KernelVersion};

use crate::finding::Consequence::{Fails, Note, Pending};
use crate::finding::Severity::{Error, Info, Warning};
use crate::image::{Sign, can_run, runs};
use crate::lint::rule::{Hit, Judgement, Rule, Scope, Subject, own, rules};
use crate::pod::{Container, Target, isolation_with, path_of};
use crate::remedy::{Edit, Remedy};

pub(in crate::lint) const RULES: &[Rule] = rules!([
    /// - Breaks: `nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: '2019'}`
    /// - Keeps: `nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: '10.0.17763'}`
    Rule {
        id: "build-malformed",
        verdict: Judgement(Error, Pending),
        scope: Scope::Any,
        field: "nodeSelector",
        reason: "the value of node.kubernetes.io/windows-build is not a build, so no node has it",
        remedy: "write 10.0.<number>, such as 10.0.20348",
        test: own(malformed),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `containers: [{image: a:ltsc2019}]`
    Rule {
        id: "build-not-selected",
        verdict: Judgement(Warning, Fails),
        scope: Scope::AnyWindows,
        field: "nodeSelector",
        reason: "the pod can be scheduled to Windows nodes of several builds, and not all of them run its images",
        remedy: "set nodeSelector node.kubernetes.io/windows-build to the build of its images",
        test: own(not_selected),
        ..Rule::DEFAULT
    },
    /// - Breaks in a known cluster: `nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build:
    ///   '10.0.26100'}`
    Rule {
        id: "build-without-node",
        verdict: Judgement(Warning, Pending),
        field: "nodeSelector",
        reason: "no node has the build that the pod selects",
        remedy: "add such nodes, or move the pod to another build",
        test: own(without_node),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{image: a:ltsc2019}], initContainers: [{image: b:ltsc2022}]`
    /// - Keeps: `containers: [{image: a:ltsc2022}], initContainers: [{image: b:ltsc2022}]`
    Rule {
        id: "image-builds-differ",
        verdict: Judgement(Error, Fails),
        scope: Scope::Any,
        field: "containers[*].image",
        reason: "the containers of a pod run on one node, and no host runs all their images, which are for different \
                 builds",
        remedy: "use images of one build",
        test: own(images_differ),
        ..Rule::DEFAULT
    },
    /// - Breaks: `nodeSelector: {node.kubernetes.io/windows-build: '10.0.20348'}, containers: [{image: a:ltsc2019}]`
    /// - Breaks: `containers: [{image: a:ltsc2019}], affinity: {nodeAffinity:
    ///   {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key:
    ///   node.kubernetes.io/windows-build, operator: In, values: ['10.0.20348']}]}, {}]}}}`
    /// - Keeps: `nodeSelector: {node.kubernetes.io/windows-build: '10.0.17763'}, containers: [{image: a:ltsc2019}]`
    Rule {
        id: "image-build-mismatch",
        verdict: Judgement(Error, Fails),
        scope: Scope::AnyWindows,
        field: "containers[*].image",
        reason: "the image does not start on hosts of the build that the pod selects",
        remedy: "use an image of the same build, or another class or selector",
        test: own(|subject, hits| mismatches(subject, false, hits)),
        ..Rule::DEFAULT
    },
    /// - Breaks: `nodeSelector: {node.kubernetes.io/windows-build: '10.0.26100'}, containers: [{image: a:ltsc2022}]`
    Rule {
        id: "image-older-than-host",
        verdict: Judgement(Info, Note),
        field: "containers[*].image",
        reason: "the image is for an older build than the hosts that the pod selects; they run it if their containerd \
                 is 1.7.19 or later",
        remedy: "use an image of the same build, or make sure of the hosts' containerd",
        test: own(|subject, hits| mismatches(subject, true, hits)),
        ..Rule::DEFAULT
    },
]);

/// Precedes a remedy that keeps the images.
const OTHER_IMAGE: &str = "use an image of the same build, or ";

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
            Some(build) => hit.remedied_by(vec![Edit::select(names::WINDOWS_BUILD, &build.to_string())]),
            None => hit,
        });
    }
}

fn not_selected(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let hosts = subject.facts.windows_hosts(subject.pods);
    let builds: BTreeSet<Build> = hosts.iter().map(|host| host.build).collect();
    let pod = subject.pod;
    let has_capability = |key: &String| key.starts_with(names::CAPABILITY_LABEL_PREFIX);
    let of_class = subject.class.into_iter().flat_map(|class| class.selector.keys());
    let by_capability = pod.node_selector.keys().chain(of_class).any(has_capability);
    // The selector of an unknown class is unknown.
    let unknown = pod.runtime_class.is_some() && subject.class.is_none() || pod.node.is_some();
    if builds.len() < 2 || by_capability || unknown {
        return;
    }
    // Without a build in the tags nothing shows that a node does not run the images. If registries were asked, another
    // rule reports the nodes that do not.
    let tagged: BTreeSet<Build> = tagged(subject).map(|(_, build)| build).collect();
    let worst = |build: &Build| {
        let hosts = hosts.iter().filter(|host| host.build == *build);
        let answers =
            hosts.flat_map(|host| tagged.iter().map(|image| runs(isolation_with(subject.class), *image, *host)));
        answers.max().unwrap_or(Runs::Yes)
    };
    // Nodes that do not report their containerd may run the images.
    let able: BTreeSet<Build> = builds.iter().copied().filter(|build| worst(build) != Runs::No).collect();
    if able != builds {
        let surely: BTreeSet<Build> = able.iter().copied().filter(|build| worst(build) == Runs::Yes).collect();
        let mut able = if surely.is_empty() { able } else { surely };
        able.retain(|build| !subject.facts.retired.contains(build));
        hits.push(Hit::at("nodeSelector").remedied_by(selection(subject, &tagged, &able)));
    }
}

/// Returns how to select one of the `able` builds, which run images of the `tagged` builds.
fn selection(subject: &Subject<'_>, tagged: &BTreeSet<Build>, able: &BTreeSet<Build>) -> Remedy {
    let Some(build) = able.intersection(tagged).next().or(able.first()) else {
        return Remedy::advice("use images of a build that the nodes have, or add nodes that run them");
    };
    let by_label = Remedy::of(vec![Edit::select(names::WINDOWS_BUILD, &build.to_string())]);
    if subject.workload.is_daemon_set() {
        return by_label.and(", and create a DaemonSet for each other build").undecided();
    }
    let has_label = subject.facts.value_of_build(*build, names::WINDOWS_BUILD).is_some();
    match super::class_of(subject, *build) {
        Some((name, _)) => Remedy::of(vec![Edit::class(name)]),
        None if has_label => by_label,
        None => by_label.undecided(),
    }
}

fn without_node(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let Some(wanted) = subject.pod.wanted_builds(subject.class) else { return };
    let there = subject.facts.builds();
    if subject.facts.has_nodes() && !wanted.is_empty() && !wanted.iter().any(|build| there.contains_key(build)) {
        let field = if subject.pod.builds().is_some() { "nodeSelector" } else { "runtimeClassName" };
        // What the nodes have to run: images of the class's build, and those of the pod.
        let images: BTreeSet<Build> = wanted.iter().copied().chain(tagged(subject).map(|(_, image)| image)).collect();
        let isolation = isolation_with(subject.class);
        let runs = |host: &Build| images.iter().all(|image| subject.facts.runs(isolation, *image, *host) == Runs::Yes);
        let by_pool = subject.pod.runtime_class.as_ref();
        let by_pool = by_pool.filter(|_| subject.pod.builds().is_none() && there.keys().any(runs));
        let named: Vec<String> = wanted.iter().take(4).map(ToString::to_string).collect();
        let hit = Hit::at(field).saying(format!("no node has the build that the pod selects, {}", named.join(" or ")));
        hits.push(match by_pool.and_then(|class| subject.facts.compatible(class)) {
            Some(remedy) => hit.remedied_by(remedy),
            None => hit,
        });
    }
}

fn images_differ(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let builds: BTreeSet<Build> = tagged(subject).map(|(_, build)| build).collect();
    let Some((newest, (last, _))) = builds.last().zip(tagged(subject).last()) else { return };
    // No other host runs more of them than one of the newest build.
    let run_together = builds.iter().all(|image| can_run(isolation_with(subject.class), *image, *newest));
    if !run_together {
        let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
        let message =
            format!("the containers of a pod run on one node, and their images are for {}", builds.join(" and "));
        hits.push(Hit::at(image_of(last)).saying(message));
    }
}

pub(in crate::lint) fn image_of(container: &Container) -> String {
    format!("{}.image", path_of(container))
}

/// Returns the images that are judged by their tags, with the builds there. Others are judged by registries, and
/// host-process containers run on every build.
fn tagged<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (&'a Container, Build)> {
    let images = subject.facts.images();
    let needing = subject.pod.images().filter(|(container, _)| !container.is_host_process);
    needing.filter_map(|(container, name)| match images.sign(name)? {
        Sign::Tag(build) => Some((container, build)),
        Sign::Registry(_) => None,
    })
}

/// Reports the images that no build which the pod selects runs or, with `of_containerd`, that it runs only with a
/// newer containerd than is known of its nodes.
fn mismatches(subject: &Subject<'_>, of_containerd: bool, hits: &mut Vec<Hit>) {
    // If only an image says that the pod is for Windows, it may be on nodes of any build.
    if subject.target != Target::Windows || subject.pod.node.is_some() {
        return;
    }
    // Other labels may select nodes of one build too, or of some of those that it names.
    let (wanted, there) = (subject.pod.wanted_builds(subject.class), subject.facts.builds_of(subject.pods));
    let is_chosen = wanted.is_some() || there.len() == 1;
    let hosts = if there.is_empty() { wanted.unwrap_or_default() } else { there };
    if hosts.is_empty() || !is_chosen {
        return;
    }
    let isolation = isolation_with(subject.class);
    for (container, image) in tagged(subject) {
        let is_possible = hosts.iter().any(|host| can_run(isolation, image, *host));
        let runs = hosts.iter().any(|host| subject.facts.runs(isolation, image, *host) == Runs::Yes);
        // By Hyper-V isolation no containerd decides.
        if runs || is_possible != of_containerd || is_possible && isolation == Isolation::HyperV {
            continue;
        }
        let hosts: Vec<String> = hosts.iter().take(4).map(ToString::to_string).collect();
        let hosts = hosts.join(" or ");
        let hit = Hit::at(image_of(container)).saying(if of_containerd {
            format!("the image is for build {image}; hosts of {hosts} run it if their containerd is 1.7.19 or later")
        } else {
            format!("the image is for build {image} and does not start on hosts of {hosts}, which the pod selects")
        });
        let change = super::change(subject).filter(|_| !of_containerd);
        hits.push(Hit { remedy: change.map(|change| change.after(OTHER_IMAGE).undecided()), ..hit });
    }
}
