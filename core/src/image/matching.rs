//! Which nodes run an image: containerd's choice among the variants, and whether the chosen one starts.
//!
//! Read in containerd/platforms (`platforms.go`, `compare.go`, `platform_windows_compat.go`) in the version that each
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
//! A host before 20348 needs its own build. The revision is not compared, and a variant without version fits each host.
//! All this holds for an index; containerd's `images.Manifest` takes a single manifest without looking at its platform
//! (`core/images/image.go`), so one for another host fails when it starts.

use super::{ImagePlatforms, Platform, Source};
use crate::windows::compatibility::can_run_by_process_isolation;
use crate::windows::container_runtime::{RuntimeName, RuntimeVersion, Stage};
use crate::windows::{Build, ContainerRuntime, KernelVersion};

/// What decides which variant a Windows node takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// The build and revision of Windows.
    pub kernel: KernelVersion,
    /// As Go names it: `amd64`.
    pub architecture: String,
    /// `None` if the node does not report it.
    pub runtime: Option<ContainerRuntime>,
}

impl Host {
    /// A node of this build of which nothing else is known. It is supposed to have a containerd of today.
    #[must_use]
    pub fn supposed(build: Build) -> Self {
        let version = Some(RuntimeVersion { major: 2, minor: 4, patch: 0, stage: Stage::Release });
        Self {
            kernel: KernelVersion { build, revision: None },
            architecture: "amd64".to_owned(),
            runtime: Some(ContainerRuntime { name: RuntimeName::Containerd, version }),
        }
    }
}

/// What happens with an image on a Windows node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict<'a> {
    /// The node runs this variant.
    Runs(&'a Platform),
    /// The node takes this variant, which does not say for which Windows it is: it runs only if it has no Windows files
    /// of its own, as a host-process image.
    NoVersion(&'a Platform),
    /// The node takes this variant, whose revision is newer than the node's: it can fail to start with 0xc0370106
    /// (microsoft/Windows-Containers#591, actions/runner-images#11582, Azure/AKS#1465).
    NewerRevision(&'a Platform),
    /// The node does not run the image.
    Fails(Failure<'a>),
}

/// Why a node does not run an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure<'a> {
    /// No variant is for Windows: `no match for platform in manifest`, or it does not start.
    NotWindows,
    /// There are variants for Windows, but none for this node: `no match for platform in manifest`.
    NoVariant,
    /// The only variant is for another Windows, and does not start: 0xc0370101.
    OtherBuild(&'a Platform),
}

impl Verdict<'_> {
    /// Returns true if the node takes the image and nothing says that it does not start.
    #[must_use]
    pub const fn runs(&self) -> bool {
        !matches!(self, Self::Fails(_))
    }
}

/// Says what a Windows node does with an image in a process-isolated container.
#[must_use]
pub fn runs_on<'a>(image: &'a ImagePlatforms, host: &Host) -> Verdict<'a> {
    let is_windows = |platform: &Platform| platform.is_windows() || platform.os.is_empty();
    let Some(only) = image.platforms.iter().find(|platform| is_windows(platform)) else {
        return Verdict::Fails(Failure::NotWindows);
    };
    let taken = match image.source {
        Source::Manifest => only,
        Source::Index => match chosen(&image.platforms, host) {
            Some(platform) => platform,
            None => return Verdict::Fails(Failure::NoVariant),
        },
    };
    let Some(version) = taken.os_version.as_deref() else { return Verdict::NoVersion(taken) };
    let Some((build, revision)) = build_and_revision(version) else {
        return Verdict::Fails(Failure::OtherBuild(taken));
    };
    if image.source == Source::Manifest
        && (normalized_architecture(taken).0 != host.architecture
            || !can_run_by_process_isolation(host.kernel.build, Build::new(build)))
    {
        return Verdict::Fails(Failure::OtherBuild(taken));
    }
    // An older build has revisions of its own.
    let is_newer = build == host.kernel.build.number() && revision > host.kernel.revision;
    if is_newer && host.kernel.revision.is_some() { Verdict::NewerRevision(taken) } else { Verdict::Runs(taken) }
}

/// The variant of an index that containerd takes on this host.
#[must_use]
pub fn chosen<'a>(platforms: &'a [Platform], host: &Host) -> Option<&'a Platform> {
    let rule = Rule::of(host.runtime);
    let mut fitting = platforms.iter().filter_map(|platform| Some((rule.rank(platform, host)?, platform)));
    let first = fitting.next()?;
    // `sort.SliceStable`: of equals, the first of the index.
    let best = fitting.fold(first, |best, next| if rule.is_before(next, best) { next } else { best });
    Some(best.1)
}

/// How a release of containerd matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rule {
    /// Only the host's own build: before 1.7.6, another runtime, or an unknown one, so that nothing is promised.
    OwnBuild,
    /// From 20348 on.
    Since2022,
    /// From the newest LTSC release below the host's build on.
    BelowHost,
    /// The same, and features of the variant besides `win32k` exclude it.
    BelowHostWithFeatures,
    /// From the LTSC release before that of the host's generation on.
    Generation,
}

/// The LTSC releases that containerd's list has in all these versions, not what is in [`crate::windows::product`].
const LTSC: [u32; 2] = [20348, 26100];

impl Rule {
    fn of(runtime: Option<ContainerRuntime>) -> Self {
        let Some(ContainerRuntime { name: RuntimeName::Containerd, version: Some(version) }) = runtime else {
            return Self::OwnBuild;
        };
        let release = |major, minor, patch| RuntimeVersion { major, minor, patch, stage: Stage::Release };
        // Which of the pre-releases of 2.0.0 has which rule was not read.
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

    /// `None` if the variant does not fit the host; otherwise the position of the first architecture that fits.
    fn rank(self, platform: &Platform, host: &Host) -> Option<usize> {
        let is_windows = platform.is_windows() || platform.os.is_empty();
        let rank = self.architecture_rank(platform, host)?;
        let fits = is_windows && self.fits_version(platform, host) && self.fits_features(platform);
        fits.then_some(rank)
    }

    /// containerd's `Only` also takes the architectures that the processor runs besides its own.
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

    /// A host has no features, and `windowsStripFeaturesMatcher` takes one away.
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

/// Build and revision of `10.0.<build>[.<revision>]`. containerd reads the first three parts alone.
#[must_use]
pub fn build_and_revision(version: &str) -> Option<(u32, Option<u32>)> {
    let mut parts = version.splitn(5, '.');
    let (major, minor) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
    let build = parts.next()?.parse::<u16>().ok()?;
    let revision = parts.next().and_then(|text| text.parse().ok());
    ((major, minor) == (10, 0)).then_some((build.into(), revision))
}

/// `normalizeArch` of containerd/platforms `database.go`, for the architectures of Windows.
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
