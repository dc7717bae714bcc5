//! Decides which nodes run an image: the variant that containerd chooses, and if it starts.
//!
//! Sources: containerd/platforms (`platforms.go`, `compare.go`, `platform_windows_compat.go`) in the version that each
//! release of containerd requires in its `go.mod`, and before that in containerd's own `platforms/defaults_windows.go`
//! with microsoft/hcsshim `osversion/platform_compat_windows.go`:
//!
//! | containerd | rule from | oldest image on a host of 20348 or later | variant taken |
//! |---|---|---|---|
//! | until 1.7.5 | containerd | the host's own build | the first |
//! | 1.7.6 to 1.7.18 | hcsshim 0.11 | 20348 | the first |
//! | 1.7.19 and later 1.7 | platforms 0.2.1 | 20348 | the first |
//! | 2.0.0 to 2.1.5 | platforms 1.0.0-rc.0, rc.1 | 20348 | the first |
//! | 2.1.6 to 2.2.x | platforms 1.0.0-rc.2 | the newest LTSC release below the host | highest version, compared as text |
//! | 2.3.0 to 2.3.4 | platforms 1.0.0-rc.4 | the same | the same |
//! | 2.3.5 and later | platforms 1.0.0-rc.5 | the LTSC release before that of the host's generation | the same |
//!
//! A host before 20348 needs its own build. The revision is not compared, and a variant without a version matches every
//! host. This is true for an index. containerd's `images.Manifest` accepts a single manifest without checking its
//! platform (`core/images/image.go`), so a manifest for another host fails when it starts.

use winpool_core::{
    api::Isolation,
    pod::Class,
    windows::{
        Build, ContainerRuntime, KernelVersion,
        compatibility::{can_run_by_process_isolation, runs_by_hyperv_isolation},
        container_runtime::{RuntimeName, RuntimeVersion, VersionStage},
    },
};

use crate::pod::ClassExt;

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
        let version = Some(RuntimeVersion { major: 2, minor: 4, patch: 0, stage: VersionStage::Release });
        Self {
            kernel: KernelVersion { build, revision: None },
            architecture: "amd64".to_owned(),
            runtime: Some(ContainerRuntime { name: RuntimeName::Containerd, version }),
        }
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
            None => return PlatformMatch::Fails(Failure::NoVariant),
        },
    };
    let Some(version) = taken.os_version.as_deref() else { return PlatformMatch::NoVersion(taken) };
    let Some((build, revision)) = build_and_revision(version) else {
        return PlatformMatch::Fails(Failure::OtherBuild(taken));
    };
    if image.source == Source::Manifest
        && (normalized_architecture(taken).0 != host.architecture
            || !can_run(isolation, host.kernel.build, Build::new(build)))
    {
        return PlatformMatch::Fails(Failure::OtherBuild(taken));
    }
    // Revisions of different builds cannot be compared. With Hyper-V isolation the container has a kernel of its own.
    let is_newer =
        isolation == Isolation::Process && build == host.kernel.build.number() && revision > host.kernel.revision;
    if is_newer && host.kernel.revision.is_some() {
        PlatformMatch::NewerRevision(taken)
    } else {
        PlatformMatch::Runs(taken)
    }
}

/// True if hosts of this build run images of the other one, if their containerd is new enough.
pub fn can_run(isolation: Isolation, host: Build, image: Build) -> bool {
    match isolation {
        Isolation::Process => can_run_by_process_isolation(host, image),
        Isolation::HyperV => runs_by_hyperv_isolation(host, image),
    }
}

/// Returns the isolation of pods that have this class.
pub fn isolation_with(class: Option<&Class>) -> Isolation {
    class.map_or(Isolation::Process, Class::isolation)
}

/// Returns the variant of an index that containerd chooses on this host.
pub fn chosen<'a>(platforms: &'a [Platform], host: &Host) -> Option<&'a Platform> {
    let rule = MatchingRule::of(host.runtime);
    let mut fitting = platforms.iter().filter_map(|platform| Some((rule.rank(platform, host)?, platform)));
    let first = fitting.next()?;
    // Follows `sort.SliceStable`: of equal variants, the first in the index wins.
    let best = fitting.fold(first, |best, next| if rule.is_before(next, best) { next } else { best });
    Some(best.1)
}

/// The matching rule of a containerd release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum MatchingRule {
    /// Only the host's own build. Used for releases before 1.7.6, and for other or unknown runtimes as the cautious
    /// answer.
    OwnBuild,
    /// Builds from 20348 on.
    Since2022,
    /// Builds from the newest LTSC release below the host's build on.
    BelowHost,
    /// The same, but variants with features other than `win32k` do not match.
    BelowHostWithFeatures,
    /// Builds from the LTSC release before that of the host's generation on.
    Generation,
}

/// The LTSC releases in containerd's list in all these versions. It differs from [`winpool_core::windows::product`].
const LTSC: [u32; 2] = [20348, 26100];

impl MatchingRule {
    fn of(runtime: Option<ContainerRuntime>) -> Self {
        let Some(ContainerRuntime { name: RuntimeName::Containerd, version: Some(version) }) = runtime else {
            return Self::OwnBuild;
        };
        let release = |major, minor, patch| RuntimeVersion { major, minor, patch, stage: VersionStage::Release };
        // The rules of the pre-releases of 2.0.0 were not checked.
        if version.major == 2 && version < release(2, 0, 0) {
            return Self::OwnBuild;
        }
        let since = [
            (release(2, 3, 5), Self::Generation),
            (release(2, 3, 0), Self::BelowHostWithFeatures),
            (release(2, 1, 6), Self::BelowHost),
            (release(1, 7, 6), Self::Since2022),
        ];
        since.into_iter().find(|(first, _)| version >= *first).map_or(Self::OwnBuild, |(_, rule)| rule)
    }

    /// Returns `None` if the variant does not match the host; otherwise the position of the first architecture that
    /// matches.
    fn rank(self, platform: &Platform, host: &Host) -> Option<usize> {
        let is_windows = platform.is_windows() || platform.os.is_empty();
        let rank = self.architecture_rank(platform, host)?;
        let fits = is_windows && self.fits_version(platform, host) && self.fits_features(platform);
        fits.then_some(rank)
    }

    /// containerd's `Only` also accepts the other architectures that the processor supports.
    fn architecture_rank(self, platform: &Platform, host: &Host) -> Option<usize> {
        let (architecture, variant) = normalized_architecture(platform);
        match (host.architecture.as_str(), architecture.as_str(), variant.as_str()) {
            (own, other, "") if own == other => Some(0),
            ("amd64", "386", "") if self <= Self::Since2022 => Some(1),
            ("arm64", "arm", variant) if self <= Self::Since2022 => {
                ["v8", "v7", "v6", "v5"].iter().position(|known| *known == variant).map(|position| position + 1)
            }
            _ => None,
        }
    }

    fn fits_version(self, platform: &Platform, host: &Host) -> bool {
        let Some(version) = platform.os_version.as_deref() else { return true };
        let Some((image, _)) = build_and_revision(version) else { return false };
        let own = host.kernel.build.number();
        if own < LTSC[0] || self == Self::OwnBuild {
            return image == own;
        }
        let below = |limit: u32| LTSC.into_iter().filter(|build| *build < limit).max().unwrap_or(LTSC[0]);
        let floor = match self {
            Self::OwnBuild => own,
            Self::Since2022 => LTSC[0],
            Self::BelowHost | Self::BelowHostWithFeatures => below(own),
            Self::Generation => below(below(own + 1)),
        };
        (floor..=own).contains(&image)
    }

    /// A host has no features, and `windowsStripFeaturesMatcher` removes one from the variant.
    fn fits_features(self, platform: &Platform) -> bool {
        let features = &platform.os_features;
        let stripped = usize::from(features.iter().any(|feature| feature == "win32k"));
        self < Self::BelowHostWithFeatures || features.len() == stripped
    }

    fn is_before(self, one: (usize, &Platform), other: (usize, &Platform)) -> bool {
        if self <= Self::Since2022 {
            return one.0 < other.0;
        }
        one.1.os_version.as_deref().unwrap_or_default() > other.1.os_version.as_deref().unwrap_or_default()
    }
}

/// True if a Linux node of this architecture may use the variant. Follows containerd's `platformVector`, and ignores
/// the variants of an architecture.
pub fn may_run_on_linux(platform: &Platform, architecture: &str) -> bool {
    let (own, _) = normalized_architecture(platform);
    own == architecture || matches!((architecture, own.as_str()), (_, "") | ("amd64", "386") | ("arm64", "arm"))
}

/// Returns the build and revision of `10.0.<build>[.<revision>]`. containerd reads only the first three parts.
pub fn build_and_revision(version: &str) -> Option<(u32, Option<u32>)> {
    let mut parts = version.splitn(5, '.');
    let (major, minor) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
    let build = parts.next()?.parse::<u16>().ok()?;
    let revision = parts.next().and_then(|text| text.parse().ok());
    ((major, minor) == (10, 0)).then_some((build.into(), revision))
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
