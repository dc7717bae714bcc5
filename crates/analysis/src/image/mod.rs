//! The platforms of container images, as registries report them, and the nodes that run the images.
//!
//! - [`name`]: reads the information about Windows in the name of an image, for use without registries.
//! - [`mod@reference`]: full names of images.
//! - [`document`]: reads the answers of registries: indexes, manifests and configs.
//! - [`containerd`]: the builds that a node takes, by its release of containerd.
//! - `linux_only`: images that exist only for Linux.
//! - [`matching`]: the nodes that run an image.
//! - [`known`]: the answers for the images of workloads.
//! - `pause`: the pause images for each build.
//! - [`tags`]: tags for another Windows build.
//! - [`mod@verdict`]: the verdict about an image on a node.

pub mod containerd;
pub mod document;
pub mod known;
pub(crate) mod linux_only;
pub mod matching;
pub mod name;
pub(crate) mod pause;
pub mod reference;
pub mod tags;
pub mod verdict;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::windows::Build;

pub use document::{Document, DocumentError, IndexEntry, read, read_config};
pub use known::{Images, Unresolved};
pub use matching::{Failure, Host, PlatformMatch, can_run, runs, runs_on};
pub use reference::{ImageReference, ParseReferenceError};
pub use verdict::{Sign, Verdict, by_registry, verdict};

/// The platform of an image variant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// The operating system: `windows` or `linux`.
    pub os: String,
    /// The architecture, as Go names it: `amd64`.
    pub architecture: String,
    /// The variant of the architecture: `v8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The version of the operating system; for Windows `10.0.<build>.<revision>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// The required features of the operating system, such as `win32k` for Windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub os_features: Vec<String>,
}

impl Platform {
    /// True for a variant for Windows.
    pub fn is_windows(&self) -> bool {
        self.os.eq_ignore_ascii_case("windows")
    }

    /// Returns the version in the variant, such as `10.0.20348.2113`.
    pub fn version(&self) -> &str {
        self.os_version.as_deref().unwrap_or("an unknown version")
    }

    /// Returns the build and revision of `10.0.<build>[.<revision>]`. containerd reads only the first three parts.
    fn build_and_revision(&self) -> Option<(Build, Option<u32>)> {
        let mut parts = self.os_version.as_deref()?.splitn(5, '.');
        let (major, minor) = (parts.next()?.parse::<u8>().ok()?, parts.next()?.parse::<u8>().ok()?);
        let build = parts.next()?.parse::<u16>().ok()?;
        let revision = parts.next().and_then(|text| text.parse().ok());
        ((major, minor) == (10, 0)).then_some((Build::new(build.into()), revision))
    }
}

/// The platforms of an image, as the registry reports them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImagePlatforms {
    /// The digest of the index, or of the manifest if there is no index.
    pub digest: String,
    /// The document that contains the platforms.
    pub source: Source,
    /// The platforms in the order of the index. Those that only a config contains come last, as containerd sorts them.
    pub platforms: Vec<Platform>,
}

impl ImagePlatforms {
    /// Returns the Windows builds for which the image has a variant.
    pub fn builds(&self) -> impl Iterator<Item = Build> {
        let windows = self.platforms.iter().filter(|platform| platform.is_windows());
        windows.filter_map(|platform| Some(platform.build_and_revision()?.0))
    }
}

/// The document that contains the platforms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Source {
    /// An index or a manifest list. containerd chooses a matching entry, or refuses the image.
    Index,
    /// The config of a single manifest. containerd accepts it without a check.
    Manifest,
}
