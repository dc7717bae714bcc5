//! The one verdict about a container's image on a Windows node: by the answer of its registry, or else by its tag.

use winpool_core::api::Isolation;
use winpool_core::windows::Build;
use winpool_core::windows::compatibility::Runs;

use super::known::name_of;
use super::name::build_of;
use super::{Failure, Host, ImagePlatforms, Images, PlatformMatch, Source, runs, runs_on};

/// The source of what is known about the hosts of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign<'a> {
    /// The platforms that its registry reports.
    Registry(&'a ImagePlatforms),
    /// The build that its tag names.
    Tag(Build),
}

impl Images {
    /// Returns what is known about an image: the answer of its registry, or else its tag.
    pub fn sign(&self, name: &str) -> Option<Sign<'_>> {
        self.platforms(name).map(Sign::Registry).or_else(|| build_of(name).map(Sign::Tag))
    }
}

/// The verdict about an image on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// `None` if nothing shows if the node runs it.
    pub runs: Option<Runs>,
    /// The reason why it does not run, or may not.
    pub reason: Option<String>,
}

/// Returns the verdict about the image of a container on a node, in a pod with this isolation.
pub fn verdict(name: &str, is_host_process: bool, host: &Host, isolation: Isolation, images: &Images) -> Verdict {
    match images.sign(name) {
        Some(Sign::Registry(image)) => {
            let matched = by_registry(image, is_host_process, host, isolation);
            let runs = match matched {
                PlatformMatch::Runs(_) | PlatformMatch::NewerRevision(_) => Some(Runs::Yes),
                PlatformMatch::NoVersion(_) => is_host_process.then_some(Runs::Yes),
                PlatformMatch::IfContainerd(since, _) => Some(Runs::IfContainerd(since)),
                PlatformMatch::Fails(_) => Some(Runs::No),
            };
            let is_shown = !(is_host_process && matches!(matched, PlatformMatch::NoVersion(_)));
            let reason = matched.reason(host).filter(|_| is_shown).map(|why| format!("{name}: {why}"));
            Verdict { runs, reason }
        }
        // A host-process container runs on every build (KEP 1981), and shows nothing of the pod's others.
        Some(Sign::Tag(build)) if !is_host_process => {
            let runs = runs(isolation, build, host.windows());
            Verdict { runs: Some(runs), reason: reason(runs, build, host, isolation) }
        }
        Some(Sign::Tag(_)) | None => Verdict { runs: None, reason: None },
    }
}

/// Returns the result for the variants that a registry has. A host-process container uses the Windows files of the host.
pub fn by_registry<'a>(
    image: &'a ImagePlatforms,
    is_host_process: bool,
    host: &Host,
    isolation: Isolation,
) -> PlatformMatch<'a> {
    match (runs_on(image, host, isolation), image.source) {
        (PlatformMatch::Fails(Failure::OtherBuild(platform)), Source::Manifest) if is_host_process => {
            PlatformMatch::Runs(platform)
        }
        (PlatformMatch::NewerRevision(platform), _) if is_host_process => PlatformMatch::Runs(platform),
        (verdict, _) => verdict,
    }
}

/// Describes why a node does not run an image of a build, or may not run it.
fn reason(runs: Runs, image: Build, host: &Host, isolation: Isolation) -> Option<String> {
    let pair = format!("an image of {} on a node of {}", name_of(image), name_of(host.kernel.build));
    Some(match runs {
        Runs::Yes => return None,
        Runs::IfContainerd(since) => {
            format!("{pair}: it starts with containerd {since} or later, and the node does not report its version")
        }
        Runs::Unknown if isolation == Isolation::HyperV => format!(
            "{pair}: it is unknown if Hyper-V isolation starts it, because the virtual machine starts from the pause image of the \
             node (containerd/containerd#8348)"
        ),
        Runs::Unknown => format!("{pair}: it is unknown if this release of containerd starts it"),
        Runs::No => {
            format!("{pair}: \"no match for platform in manifest\" when it is pulled, or 0xc0370101 when it starts")
        }
    })
}
