//! The rules by which containerd takes a variant of an image, by release.
//!
//! Sources: containerd/platforms (`platforms.go`, `compare.go`, `platform_windows_compat.go`) in the version that each
//! release of containerd requires in its `go.mod`, and before that containerd's own `platforms/defaults_windows.go`:
//!
//! | containerd | rule from | oldest image on a host of 20348 or later |
//! |---|---|---|
//! | until 1.6.22, and 1.7.0 to 1.7.5 | containerd | the host's own build |
//! | 1.6.23 and later 1.6 | hcsshim 0.9.10 | 20348 |
//! | 1.7.6 to 1.7.18 | hcsshim 0.11 | 20348 |
//! | 1.7.19 and later 1.7 | platforms 0.2.1 | 20348 |
//! | 2.0.0 to 2.1.5 | platforms 1.0.0-rc.0, rc.1 | 20348 |
//! | 2.1.6 to 2.2.x | platforms 1.0.0-rc.2 | the newest LTSC release below the host |
//! | 2.3.0 to 2.3.4 | platforms 1.0.0-rc.4 | the same |
//! | 2.3.5 and later | platforms 1.0.0-rc.5 | the LTSC release before that of the host's generation |
//!
//! A host before 20348 needs its own build.

use winpool_core::windows::compatibility::{STABLE_ABI, can_run, newest_ltsc};
use winpool_core::windows::container_runtime::{RuntimeName, RuntimeVersion};
use winpool_core::windows::{Build, ContainerRuntime};

/// The rule of a containerd release for the images that a host takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MatchingRule {
    /// Only the host's own build. Used for releases without the later rules, and for other or unknown runtimes as the cautious
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

impl MatchingRule {
    /// Returns the rule of this container runtime.
    pub fn of(runtime: Option<ContainerRuntime>) -> Self {
        let Some(ContainerRuntime { name: RuntimeName::Containerd, version: Some(version) }) = runtime else {
            return Self::OwnBuild;
        };
        let release = RuntimeVersion::release;
        // The rules of the pre-releases of 2.0.0 were not checked.
        if version.major == 2 && version < release(2, 0, 0) {
            return Self::OwnBuild;
        }
        if (version.major, version.minor) == (1, 6) && version >= release(1, 6, 23) {
            return Self::Since2022;
        }
        let since = [
            (release(2, 3, 5), Self::Generation),
            (release(2, 3, 0), Self::BelowHostWithFeatures),
            (release(2, 1, 6), Self::BelowHost),
            (release(1, 7, 6), Self::Since2022),
        ];
        since.into_iter().find(|(first, _)| version >= *first).map_or(Self::OwnBuild, |(_, rule)| rule)
    }

    /// True if a host of this build takes images of a build.
    pub fn takes(self, image: Build, host: Build) -> bool {
        let since = |oldest: Build| image == host || (oldest..=host).contains(&image);
        match self {
            Self::OwnBuild => image == host,
            Self::Since2022 => since(STABLE_ABI),
            Self::BelowHost | Self::BelowHostWithFeatures => can_run(image, host),
            Self::Generation => since(newest_ltsc(..newest_ltsc(..=host))),
        }
    }
}
