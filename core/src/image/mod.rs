//! What registries say of container images: for which systems and versions of Windows each was built, and which nodes
//! run it.
//!
//! - [`mod@reference`]: names of images, in full.
//! - [`document`]: reads what a registry answers: indexes, manifests and configs.
//! - [`matching`]: which nodes run an image.
//! - [`known`]: the answers for the images of workloads.
//!
//! [`crate::windows::image`] reads tags, for the case that no registry was asked.

pub mod document;
pub mod known;
pub mod matching;
pub mod reference;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use document::{Document, DocumentError, Entry, read, read_config};
pub use known::{Images, Unresolved};
pub use matching::{Failure, Host, Verdict, runs_on};
pub use reference::{ImageReference, ParseReferenceError};

/// For what a variant of an image was built.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// `windows` or `linux`.
    pub os: String,
    /// As Go names it: `amd64`.
    pub architecture: String,
    /// Of the architecture: `v8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// For Windows `10.0.<build>.<revision>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// For Windows perhaps `win32k`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub os_features: Vec<String>,
}

impl Platform {
    /// Returns true for a variant for Windows.
    #[must_use]
    pub fn is_windows(&self) -> bool {
        self.os.eq_ignore_ascii_case("windows")
    }
}

/// What a registry says of one image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImagePlatforms {
    /// The digest of the index, or of the manifest where there is no index.
    pub digest: String,
    /// The document in which the platforms stand.
    pub source: Source,
    /// In the order of the index; those that only a config names come last, as containerd sorts them.
    pub platforms: Vec<Platform>,
}

/// The document in which platforms stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Source {
    /// An index or a manifest list. containerd takes an entry that fits, or refuses the image.
    Index,
    /// The config of a single manifest. containerd takes it as it is.
    Manifest,
}
