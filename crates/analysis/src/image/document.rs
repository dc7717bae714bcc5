//! Reads a registry's answer about an image: the OCI image index and manifest, and Docker's manifest list and
//! manifest (opencontainers/image-spec `image-index.md`, `manifest.md`, `config.md`; distribution
//! `manifest-v2-2.md`).
//!
//! The structs below contain only the fields that specify a platform, so no crate is needed. All input is limited in
//! size, because a registry may answer with anything.

use serde::Deserialize;
use thiserror::Error;

use super::Platform;
use super::reference::is_digest;

/// The limit for variants; no image has as many. Docker's own images have about 20.
pub const MOST_ENTRIES: usize = 1_000;
/// The largest length of a part of a platform.
const LONGEST_WORD: usize = 128;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
/// The media types in the header `Accept`.
pub const ACCEPTED: [&str; 4] = [INDEXES[0], MANIFESTS[0], INDEXES[1], MANIFESTS[1]];

/// The answer to a request for a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// An index: several variants, in the order of the index, without attestations.
    Index(Vec<IndexEntry>),
    /// A manifest of one variant, whose platform is in this config.
    Manifest { config: String, media_type: String },
}

/// A variant in an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    pub digest: String,
    /// The platform; `None` if only the config of the manifest contains it.
    pub platform: Option<Platform>,
}

/// The registry's answer does not specify the platforms of an image.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DocumentError {
    #[error("the registry's answer cannot be read: {0}")]
    Unreadable(String),
    #[error("the registry answered with {0}, which is neither an image index nor an image manifest")]
    Unsupported(String),
    #[error("the registry's answer is called {0} but has the fields of another type")]
    Contradiction(String),
    #[error("the image index has more than {MOST_ENTRIES} entries")]
    TooManyEntries,
    #[error("the registry's answer names the digest {0:?}, which is not a digest")]
    Digest(String),
    #[error("the registry's answer names a platform that cannot be read: {0:?}")]
    Platform(String),
    #[error("the config of the image does not say for which operating system it is")]
    NoPlatform,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    manifests: Option<Vec<RawEntry>>,
    config: Option<RawDescriptor>,
    layers: Option<serde::de::IgnoredAny>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct RawEntry {
    digest: String,
    platform: Option<RawPlatform>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Annotations {
    /// Set by Docker's builder: the entry is an attestation of another entry.
    #[serde(rename = "vnd.docker.reference.type")]
    reference_type: Option<String>,
}

#[derive(Deserialize)]
struct RawDescriptor {
    digest: String,
    #[serde(rename = "mediaType", default)]
    media_type: Option<String>,
}

#[derive(Deserialize)]
struct RawPlatform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
    #[serde(rename = "os.version")]
    os_version: Option<String>,
    #[serde(rename = "os.features")]
    os_features: Option<Vec<String>>,
}

/// Reads an index or a manifest. `media_type` is the header `Content-Type`. If it is absent or generic, such as
/// `application/json`, the media type in the document is used.
pub fn read(media_type: Option<&str>, bytes: &[u8]) -> Result<Document, DocumentError> {
    let raw: Raw = serde_json::from_slice(bytes).map_err(unreadable)?;
    let media_type = media_type.and_then(|text| text.split(';').next()).map(str::trim);
    let named = media_type.filter(|text| is_index(text) || is_manifest(text)).or(raw.media_type.as_deref());
    let named = named.unwrap_or_default().to_owned();
    if raw.fs_layers.is_some() {
        return Err(DocumentError::Unsupported("a manifest of schema 1".to_owned()));
    }
    // Follows containerd's `validateMediaType`, so that an index cannot pass for a manifest.
    let has_parts = raw.config.is_some() || raw.layers.is_some();
    let other = raw.media_type.as_deref().unwrap_or_default();
    if is_index(&named) && (has_parts || is_manifest(other))
        || is_manifest(&named) && (raw.manifests.is_some() || is_index(other))
    {
        return Err(DocumentError::Contradiction(named));
    }
    match (raw.manifests, raw.config) {
        (Some(entries), None) if !is_manifest(&named) => index(entries),
        (None, Some(config)) if !is_index(&named) => {
            let media_type = config.media_type.unwrap_or_default();
            Ok(Document::Manifest { config: checked_digest(config.digest)?, media_type })
        }
        (None, None) if is_index(&named) => Ok(Document::Index(Vec::new())),
        _ => {
            let words = [named.as_str(), media_type.unwrap_or_default()];
            let named = words.into_iter().find(|text| !text.is_empty()).unwrap_or("an untyped document");
            Err(DocumentError::Unsupported(winpool_core::words::plain(named, LONGEST_WORD)))
        }
    }
}

/// Reads the platform of a single manifest from the config.
pub fn read_config(bytes: &[u8]) -> Result<Platform, DocumentError> {
    let raw: RawPlatform = serde_json::from_slice(bytes).map_err(unreadable)?;
    let platform = platform(raw)?;
    if platform.os.is_empty() { Err(DocumentError::NoPlatform) } else { Ok(platform) }
}

fn index(entries: Vec<RawEntry>) -> Result<Document, DocumentError> {
    if entries.len() > MOST_ENTRIES {
        return Err(DocumentError::TooManyEntries);
    }
    let entries = entries.into_iter().filter(|entry| !is_attestation(entry)).map(|entry| {
        let platform = entry.platform.map(platform).transpose()?;
        Ok(IndexEntry { digest: checked_digest(entry.digest)?, platform })
    });
    Ok(Document::Index(entries.collect::<Result<_, _>>()?))
}

/// True for entries that are not images: attestations of Docker's builder, and signatures.
fn is_attestation(entry: &RawEntry) -> bool {
    let is_unknown = |text: &Option<String>| text.as_deref() == Some("unknown");
    match &entry.platform {
        Some(platform) => is_unknown(&platform.os) || is_unknown(&platform.architecture),
        None => entry.annotations.as_ref().is_some_and(|annotations| annotations.reference_type.is_some()),
    }
}

fn platform(raw: RawPlatform) -> Result<Platform, DocumentError> {
    let word = |text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        match text {
            Some(text) if text.len() > LONGEST_WORD || !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(DocumentError::Platform(text.chars().take(40).collect()))
            }
            text => Ok(text),
        }
    };
    let features = raw.os_features.unwrap_or_default();
    if features.len() > LONGEST_WORD {
        return Err(DocumentError::Platform(format!("{} features", features.len())));
    }
    let features = features.into_iter().map(|feature| word(Some(feature)).map(Option::unwrap_or_default));
    Ok(Platform {
        os: word(raw.os)?.unwrap_or_default(),
        architecture: word(raw.architecture)?.unwrap_or_default(),
        variant: word(raw.variant)?,
        os_version: word(raw.os_version)?,
        os_features: features.collect::<Result<_, _>>()?,
    })
}

fn checked_digest(digest: String) -> Result<String, DocumentError> {
    if is_digest(&digest) { Ok(digest) } else { Err(DocumentError::Digest(digest.chars().take(80).collect())) }
}

fn is_index(media_type: &str) -> bool {
    INDEXES.contains(&media_type)
}

fn is_manifest(media_type: &str) -> bool {
    MANIFESTS.contains(&media_type)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: serde_json::Error) -> DocumentError {
    // A custom error of serde may quote a value of the document.
    DocumentError::Unreadable(winpool_core::words::plain(&error.to_string(), 200))
}
