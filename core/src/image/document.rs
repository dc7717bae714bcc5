//! Reads what a registry answers about an image: the image index and the manifest of OCI, and Docker's manifest list and
//! manifest (opencontainers/image-spec `image-index.md`, `manifest.md`, `config.md`; distribution
//! `manifest-v2-2.md`).
//!
//! Of all their fields only those stand here that name a platform, so the few structs below take the place of a crate.
//! Everything read is bounded: a registry may answer anything.

use serde::Deserialize;
use thiserror::Error;

use super::Platform;
use super::reference::is_digest;

/// More variants than any image has; Docker's own have about 20.
pub const MOST_ENTRIES: usize = 1_000;
/// The longest part of a platform that is taken.
const LONGEST_WORD: usize = 128;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
/// What a client accepts, for the header `Accept`.
pub const ACCEPTED: [&str; 4] = [INDEXES[0], MANIFESTS[0], INDEXES[1], MANIFESTS[1]];

/// The answer to a request for a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Document {
    /// Several variants, in the order of the index, without attestations.
    Index(Vec<Entry>),
    /// One variant; its platform stands in this config.
    Manifest {
        /// Digest of the config.
        config: String,
        /// Media type of the config.
        media_type: String,
    },
}

/// One variant of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Digest of its manifest.
    pub digest: String,
    /// `None` if only the config of the manifest names the platform.
    pub platform: Option<Platform>,
}

/// What a registry answered does not tell for which platforms an image was built.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DocumentError {
    /// Not JSON, or not with the fields of such a document.
    #[error("the registry's answer cannot be read: {0}")]
    Unreadable(String),
    /// Neither an index nor a manifest.
    #[error("the registry answered with {0}, which is neither an image index nor an image manifest")]
    Unsupported(String),
    /// A manifest that says it is an index, or the reverse.
    #[error("the registry's answer is called {0} but has the fields of another type")]
    Contradiction(String),
    /// More entries than [`MOST_ENTRIES`].
    #[error("the image index has more than {MOST_ENTRIES} entries")]
    TooManyEntries,
    /// A digest that is none.
    #[error("the registry's answer names the digest {0:?}, which is not a digest")]
    Digest(String),
    /// Characters or lengths that no platform has.
    #[error("the registry's answer names a platform that cannot be read: {0:?}")]
    Platform(String),
    /// No `os` in the config.
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
    /// Set by Docker's builder: the entry is an attestation of another one.
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

/// Reads an index or a manifest. `media_type` is the header `Content-Type`; without it, or with one that says nothing
/// such as `application/json`, the document tells.
///
/// # Errors
/// If the answer is neither, contradicts itself, or is larger than any image's.
pub fn read(media_type: Option<&str>, bytes: &[u8]) -> Result<Document, DocumentError> {
    let raw: Raw = serde_json::from_slice(bytes).map_err(unreadable)?;
    let media_type = media_type.and_then(|text| text.split(';').next()).map(str::trim);
    let named = media_type.filter(|text| is_index(text) || is_manifest(text)).or(raw.media_type.as_deref());
    let named = named.unwrap_or_default().to_owned();
    if raw.fs_layers.is_some() {
        return Err(DocumentError::Unsupported("a manifest of schema 1".to_owned()));
    }
    // As containerd's `validateMediaType`, so that an index cannot pass for a manifest.
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
            Err(DocumentError::Unsupported(crate::words::plain(named, LONGEST_WORD)))
        }
    }
}

/// Reads the platform of a single manifest from the config.
///
/// # Errors
/// If it names none.
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
        Ok(Entry { digest: checked_digest(entry.digest)?, platform })
    });
    Ok(Document::Index(entries.collect::<Result<_, _>>()?))
}

/// Returns true for what does not run: the attestations of Docker's builder, and signatures.
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
    // A custom error of serde may repeat a value of the document.
    DocumentError::Unreadable(crate::words::plain(&error.to_string(), 200))
}
