//! Decides which variant of an image a node takes, and if it starts.
//!
//! The variant is the first one that fits until containerd 2.1.5, and then the one with the highest version, compared as
//! text (containerd/platforms `compare.go`). [`MatchingRule`] says which builds fit. The revision is not compared, and a
//! variant without a version matches every host. This is true for an index. containerd's `images.Manifest` accepts a
//! single manifest without checking its platform (`core/images/image.go`), so a manifest for another host fails when it
//! starts.

use winpool_core::api::Isolation;
use winpool_core::windows::compatibility::{self, Runs, WindowsHost};
use winpool_core::windows::container_runtime::{RuntimeName, RuntimeVersion};
use winpool_core::windows::{Build, ContainerRuntime, KernelVersion};

use super::containerd::MatchingRule;
use super::{ImagePlatforms, Platform, Source};

/// The properties of a Windows node that decide which variant it uses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// The build and revision of Windows.
    pub kernel: KernelVersion,
    /// The architecture, as Go names it: `amd64`.
    pub architecture: String,
    /// The container runtime; `None` if the node does not report it.
    pub runtime: Option<ContainerRuntime>,
}

impl Host {
    /// Returns a node of this build with a current containerd, if nothing else is known about the node.
    pub fn supposed(build: Build) -> Self {
        let version = Some(RuntimeVersion::release(2, 4, 0));
        Self {
            kernel: KernelVersion { build, revision: None },
            architecture: "amd64".to_owned(),
            runtime: Some(ContainerRuntime { name: RuntimeName::Containerd, version }),
        }
    }

    /// Returns what decides which builds it runs.
    pub fn windows(&self) -> WindowsHost {
        WindowsHost { build: self.kernel.build, runtime: self.runtime }
    }
}

/// The result for an image on a Windows node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlatformMatch<'a> {
    /// The node runs this variant.
    Runs(&'a Platform),
    /// The node chooses this variant, which does not specify a Windows version. It runs only if it has no Windows files
    /// of its own, like a host-process image.
    NoVersion(&'a Platform),
    /// The node chooses this variant, whose revision is newer than the node's: it can fail to start with 0xc0370106
    /// (microsoft/Windows-Containers#591, actions/runner-images#11582, Azure/AKS#1465).
    NewerRevision(&'a Platform),
    /// A node with this containerd or a later one runs this variant. The node does not report its version.
    IfContainerd(RuntimeVersion, &'a Platform),
    /// The node does not run the image.
    Fails(Failure<'a>),
}

/// The reason why a node does not run an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure<'a> {
    /// No variant is for Windows: `no match for platform in manifest`, or the container does not start.
    NotWindows,
    /// The image has variants for Windows, but none for this node: `no match for platform in manifest`.
    NoVariant,
    /// The only variant is for another Windows version and does not start: 0xc0370101.
    OtherBuild(&'a Platform),
}

impl PlatformMatch<'_> {
    /// True if the node chooses a variant that is not known to fail.
    pub const fn runs(&self) -> bool {
        !matches!(self, Self::Fails(_))
    }

    /// Describes why a node does not run an image, or may not run it.
    pub fn reason(&self, host: &Host) -> Option<String> {
        Some(match self {
            Self::Runs(_) => return None,
            Self::NoVersion(_) => {
                "the variant names no Windows version; it runs if it is for host-process containers".to_owned()
            }
            Self::NewerRevision(platform) => {
                let revision = host.kernel.revision.map_or_else(String::new, |revision| format!(".{revision}"));
                format!(
                    "the image has {}, and the node {}{revision}: it can fail to start with 0xc0370106 until the node is updated",
                    platform.version(),
                    host.kernel.build
                )
            }
            Self::IfContainerd(since, platform) => format!(
                "containerd {since} or later takes the variant for {}, and the node does not report its version",
                platform.version()
            ),
            Self::Fails(Failure::NotWindows) => "no variant is for Windows".to_owned(),
            Self::Fails(Failure::NoVariant) => {
                format!(
                    "no variant is for {}: \"no match for platform in manifest\" when it is pulled",
                    host.kernel.build
                )
            }
            Self::Fails(Failure::OtherBuild(platform)) => format!(
                "its only variant is for {}: it is pulled and fails with 0xc0370101 when it starts",
                platform.version()
            ),
        })
    }
}

/// Returns the result for an image on a Windows node, in a container with this isolation.
///
/// containerd chooses the same variant for both isolations, because it compares it with the host and not with the
/// runtime handler (Kubernetes enhancement proposal 4216, containerd/containerd#9478; `internal/cri/server/images` of
/// 2.3.5). But with Hyper-V isolation a variant for an older build starts.
pub fn runs_on<'a>(image: &'a ImagePlatforms, host: &Host, isolation: Isolation) -> PlatformMatch<'a> {
    let is_windows = |platform: &Platform| platform.is_windows() || platform.os.is_empty();
    let Some(only) = image.platforms.iter().find(|platform| is_windows(platform)) else {
        return PlatformMatch::Fails(Failure::NotWindows);
    };
    let taken = match image.source {
        Source::Manifest => only,
        Source::Index => match chosen(&image.platforms, host) {
            Some(platform) => platform,
            None => return of_newer_containerd(image, host).unwrap_or(PlatformMatch::Fails(Failure::NoVariant)),
        },
    };
    if taken.os_version.is_none() {
        return PlatformMatch::NoVersion(taken);
    }
    let Some((build, revision)) = taken.build_and_revision() else {
        return PlatformMatch::Fails(Failure::OtherBuild(taken));
    };
    if image.source == Source::Manifest
        && (normalized_architecture(taken).0 != host.architecture || !can_run(isolation, build, host.kernel.build))
    {
        return PlatformMatch::Fails(Failure::OtherBuild(taken));
    }
    // Revisions of different builds cannot be compared. With Hyper-V isolation the container has a kernel of its own.
    let is_newer = isolation == Isolation::Process && build == host.kernel.build && revision > host.kernel.revision;
    if is_newer && host.kernel.revision.is_some() {
        PlatformMatch::NewerRevision(taken)
    } else {
        PlatformMatch::Runs(taken)
    }
}

/// Returns the variant that the host takes if its containerd, which it does not report, is new enough.
fn of_newer_containerd<'a>(image: &'a ImagePlatforms, host: &Host) -> Option<PlatformMatch<'a>> {
    image.builds().find_map(|build| {
        let Runs::IfContainerd(since) = compatibility::runs(build, host.windows()) else { return None };
        let runtime = Some(ContainerRuntime { name: RuntimeName::Containerd, version: Some(since) });
        let taken = chosen(&image.platforms, &Host { runtime, ..host.clone() })?;
        Some(PlatformMatch::IfContainerd(since, taken))
    })
}

/// Returns whether a host runs images of a build in containers with this isolation.
///
/// By Hyper-V isolation it runs its own build, and never a newer one than the host's (Microsoft, and Kubernetes enhancement proposal
/// 1301). An older one is unknown: the virtual machine starts from the pause image, and not from the image of the container
/// (containerd/containerd#8348). The build does not show if the host supports Hyper-V. Microsoft does not document version 23H2.
pub fn runs(isolation: Isolation, image: Build, host: WindowsHost) -> Runs {
    match isolation {
        Isolation::HyperV if image == host.build => Runs::Yes,
        Isolation::HyperV if image < host.build => Runs::Unknown,
        Isolation::HyperV => Runs::No,
        Isolation::Process => compatibility::runs(image, host),
    }
}

/// True if hosts of this build, with containerd 1.7.19 or later, run images of a build.
pub fn can_run(isolation: Isolation, image: Build, host: Build) -> bool {
    runs(isolation, image, WindowsHost { build: host, runtime: None }) != Runs::No
}

/// Returns the variant of an index that containerd chooses on this host.
pub fn chosen<'a>(platforms: &'a [Platform], host: &Host) -> Option<&'a Platform> {
    let rule = MatchingRule::of(host.runtime);
    let mut fitting = platforms.iter().filter_map(|platform| Some((rank(rule, platform, host)?, platform)));
    let first = fitting.next()?;
    // Follows `sort.SliceStable`: of equal variants, the first in the index wins.
    let best = fitting.fold(first, |best, next| if is_before(rule, next, best) { next } else { best });
    Some(best.1)
}

/// Returns `None` if the variant does not match the host; otherwise the position of the first architecture that
/// matches.
fn rank(rule: MatchingRule, platform: &Platform, host: &Host) -> Option<usize> {
    let is_windows = platform.is_windows() || platform.os.is_empty();
    let rank = architecture_rank(rule, platform, host)?;
    let fits = is_windows && fits_version(rule, platform, host) && fits_features(rule, platform);
    fits.then_some(rank)
}

/// containerd's `Only` also accepts the other architectures that the processor supports.
fn architecture_rank(rule: MatchingRule, platform: &Platform, host: &Host) -> Option<usize> {
    let (architecture, variant) = normalized_architecture(platform);
    match (host.architecture.as_str(), architecture.as_str(), variant.as_str()) {
        (of_host, of_image, "") if of_host == of_image => Some(0),
        ("amd64", "386", "") if rule <= MatchingRule::Since2022 => Some(1),
        ("arm64", "arm", variant) if rule <= MatchingRule::Since2022 => {
            ["v8", "v7", "v6", "v5"].iter().position(|candidate| *candidate == variant).map(|position| position + 1)
        }
        _ => None,
    }
}

fn fits_version(rule: MatchingRule, platform: &Platform, host: &Host) -> bool {
    platform.os_version.is_none()
        || platform.build_and_revision().is_some_and(|(image, _)| rule.takes(image, host.kernel.build))
}

/// A host has no features, and `windowsStripFeaturesMatcher` removes one from the variant.
fn fits_features(rule: MatchingRule, platform: &Platform) -> bool {
    let features = &platform.os_features;
    let stripped = usize::from(features.iter().any(|feature| feature == "win32k"));
    rule < MatchingRule::BelowHostWithFeatures || features.len() == stripped
}

fn is_before(rule: MatchingRule, first: (usize, &Platform), second: (usize, &Platform)) -> bool {
    if rule <= MatchingRule::Since2022 {
        return first.0 < second.0;
    }
    first.1.os_version.as_deref().unwrap_or_default() > second.1.os_version.as_deref().unwrap_or_default()
}

/// True if a Linux node of this architecture may use the variant. Follows containerd's `platformVector`, and ignores
/// the variants of an architecture.
pub fn may_run_on_linux(platform: &Platform, architecture: &str) -> bool {
    let (of_image, _) = normalized_architecture(platform);
    of_image == architecture
        || matches!((architecture, of_image.as_str()), (_, "") | ("amd64", "386") | ("arm64", "arm"))
}

/// Follows `normalizeArch` of containerd/platforms `database.go`.
fn normalized_architecture(platform: &Platform) -> (String, String) {
    let architecture = platform.architecture.to_ascii_lowercase();
    let variant = platform.variant.as_deref().unwrap_or_default().to_ascii_lowercase();
    match (architecture.as_str(), variant.as_str()) {
        ("i386", _) => ("386".to_owned(), String::new()),
        ("x86_64" | "x86-64" | "amd64", "v1") => ("amd64".to_owned(), String::new()),
        ("x86_64" | "x86-64", _) => ("amd64".to_owned(), variant),
        ("aarch64" | "arm64", "8" | "v8" | "v8.0") => ("arm64".to_owned(), String::new()),
        ("aarch64", _) => ("arm64".to_owned(), variant),
        ("armhf", _) | ("arm", "" | "7") => ("arm".to_owned(), "v7".to_owned()),
        ("armel", _) => ("arm".to_owned(), "v6".to_owned()),
        ("arm", "5" | "6" | "8") => ("arm".to_owned(), format!("v{variant}")),
        _ => (architecture, variant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(isolation: Isolation, image: u32, host: u32) -> bool {
        let runtime = "containerd://2.0.4+azure".parse().ok();
        // It is not known if Kubernetes starts what Microsoft's table has for Hyper-V.
        let most = if isolation == Isolation::HyperV { Runs::Unknown } else { Runs::Yes };
        runs(isolation, Build::new(image), WindowsHost { build: Build::new(host), runtime }) <= most
    }

    #[test]
    fn the_table_of_microsoft() {
        // Process (P) and Hyper-V (H) isolation of images of Windows Server 2025, 2022, 2019, 2016. An image newer
        // than the host is absent there, or "no".
        let table = [
            (26100, ["PH", "PH", "H", "H"]),
            (20348, ["", "PH", "H", "H"]),
            (17763, ["", "", "PH", "H"]),
            (14393, ["", "", "", "PH"]),
            // Windows 11 runs images of 2025 from 24H2 (26100) only.
            (22000, ["", "PH", "H", "H"]),
            (22621, ["", "PH", "H", "H"]),
            // Windows 10.
            (19045, ["", "", "H", "H"]),
        ];
        for (host, row) in table {
            for (image, isolations) in [26100, 20348, 17763, 14393].into_iter().zip(row) {
                for (isolation, letter) in [(Isolation::Process, 'P'), (Isolation::HyperV, 'H')] {
                    let is_run = starts(isolation, image, host);
                    assert_eq!(is_run, isolations.contains(letter), "{image} on {host} by {isolation:?}");
                }
            }
        }
        // Another text documents version 23H2, for process isolation only.
        let by_23h2 = [26100, 20348, 17763, 14393].map(|image| starts(Isolation::Process, image, 25398));
        assert_eq!(by_23h2, [false, true, false, false]);
    }
}
