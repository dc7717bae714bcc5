//! Asks registries for which systems an image was built (opencontainers/distribution-spec, "Pull").
//!
//! Each tag costs one request: a `GET`, or, if its document is cached, a `HEAD`, which Docker Hub does not count. Each distinct digest
//! costs a `GET`, or nothing if it is cached. `docs/decisions/0017-registry-client.md` says why this is not a crate.

mod credentials;
mod disk;
mod error;
mod login;
mod options;
#[cfg(test)]
mod tests;
mod web;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::LINK;
use axum::http::{Method, Response};
use futures::{StreamExt, future, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use winpool_analysis::image::{self, Document, ImagePlatforms, ImageReference, Platform, Source};

use self::disk::Disk;
use self::login::RegistryAuth;

pub use error::{OptionsError, RegistryError, RegistryErrorKind};
pub use options::RegistryOptions;

/// Images that are looked up at the same time.
const CONCURRENCY: usize = 8;
/// For all requests of one image.
const IMAGE_LIMIT: Duration = Duration::from_secs(30);
/// Variants of an index that do not say their platform; each costs two requests.
const MOST_UNNAMED: usize = 16;
/// Failures in a row after which a registry is not asked any more.
const MOST_FAILURES: usize = 3;
/// Pages of a list of tags, and the tags of a page.
const MOST_PAGES: usize = 10;
const PAGE: &str = "1000";
const DIGEST: &str = "docker-content-digest";

#[derive(Deserialize)]
struct TagList {
    /// Absent in a repository without tags.
    tags: Option<Vec<String>>,
}

/// A client of all registries, for one command.
pub struct Registry {
    session: RegistryAuth,
    disk: Disk,
    offline: bool,
    limit: Duration,
    /// By digest.
    known: Mutex<HashMap<String, Arc<OnceCell<ImagePlatforms>>>>,
    /// Failures in a row, by registry.
    failures: Mutex<HashMap<String, Vec<RegistryErrorKind>>>,
}

impl Registry {
    /// Makes a client. It sends nothing yet.
    pub fn new(mut options: RegistryOptions) -> Result<Self, OptionsError> {
        let disk = Disk::new(options.registry_cache.take());
        if !options.offline {
            disk.prune();
        }
        Ok(Self {
            disk,
            offline: options.offline,
            session: RegistryAuth::new(options)?,
            limit: IMAGE_LIMIT,
            known: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    /// Looks up images, each once, 8 at a time.
    pub async fn resolve_all(
        &self,
        images: impl IntoIterator<Item = ImageReference>,
    ) -> BTreeMap<ImageReference, Result<ImagePlatforms, RegistryError>> {
        let images: BTreeSet<ImageReference> = images.into_iter().collect();
        let answers = stream::iter(images).map(async |image| {
            let platforms = self.platforms(&image).await;
            (image, platforms)
        });
        answers.buffer_unordered(CONCURRENCY).collect().await
    }

    /// Returns the platforms for which an image was built.
    pub async fn platforms(&self, image: &ImageReference) -> Result<ImagePlatforms, RegistryError> {
        let answer =
            timeout(self.limit, self.look_up(image)).await.unwrap_or(Err(RegistryErrorKind::TimedOut(self.limit)));
        match &answer {
            Err(
                problem @ (RegistryErrorKind::RateLimited
                | RegistryErrorKind::Unreachable(_)
                | RegistryErrorKind::TimedOut(_)),
            ) => {
                self.failures.lock().entry(image.registry.clone()).or_default().push(problem.clone());
            }
            Err(RegistryErrorKind::Offline) => {}
            _ => drop(self.failures.lock().remove(&image.registry)),
        }
        answer.map_err(|problem| RegistryError { image: image.to_string(), kind: problem })
    }

    async fn look_up(&self, image: &ImageReference) -> Result<ImagePlatforms, RegistryErrorKind> {
        let (digest, document) = match &image.digest {
            Some(digest) => (digest.clone(), None),
            None => self.tagged(image).await.map(|(digest, document)| (digest, Some(document)))?,
        };
        let platforms = self.known.lock().entry(digest.clone()).or_default().clone();
        platforms.get_or_try_init(|| self.read(image, digest, document)).await.cloned()
    }

    /// True if it asks no registry.
    pub fn is_offline(&self) -> bool {
        self.offline
    }

    /// Returns the digest and the document of a tag. The registry is asked even if the tag is cached, unless winpool is offline.
    async fn tagged(&self, image: &ImageReference) -> Result<(String, Vec<u8>), RegistryErrorKind> {
        let path = format!("manifests/{}", image.version());
        if let Some(digest) = self.disk.tagged(image)
            && let Some(document) = self.disk.document(&digest)
            && (self.offline || self.has_digest(image, &path, &digest).await?)
        {
            return Ok((digest, document));
        }
        let document = self.ask(image, Method::GET, &path).await?.into_body();
        let digest = disk::sha256(&document);
        self.disk.keep_document(&digest, &document);
        self.disk.keep_tag(image, &digest);
        Ok((digest, document))
    }

    /// True if the registry confirms without a download that a tag has this digest.
    async fn has_digest(&self, image: &ImageReference, path: &str, digest: &str) -> Result<bool, RegistryErrorKind> {
        match self.ask(image, Method::HEAD, path).await {
            Ok(answer) => Ok(answer.headers().get(DIGEST).is_some_and(|value| value == digest)),
            // Not every registry knows `HEAD`.
            Err(RegistryErrorKind::Failed(_)) => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// Lists the tags of repositories, each once, 8 at a time. It leaves out those whose registry does not list them.
    pub async fn tags_of_all(
        &self,
        repositories: impl IntoIterator<Item = ImageReference>,
    ) -> BTreeMap<ImageReference, Vec<String>> {
        let repositories: BTreeSet<ImageReference> = repositories.into_iter().collect();
        let lists = stream::iter(repositories).map(async |repository| {
            let tags = timeout(self.limit, self.list_tags(&repository)).await.ok()?.ok()?;
            Some((repository, tags))
        });
        lists.buffer_unordered(CONCURRENCY).filter_map(future::ready).collect().await
    }

    /// Asks for the tags of a repository, at most those of the first pages.
    async fn list_tags(&self, image: &ImageReference) -> Result<Vec<String>, RegistryErrorKind> {
        let mut tags: Vec<String> = Vec::new();
        for _ in 0..MOST_PAGES {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("n", PAGE).extend_pairs(tags.last().map(|last| ("last", last)));
            let answer = self.ask(image, Method::GET, &format!("tags/list?{}", query.finish())).await?;
            let page: TagList = serde_json::from_slice(answer.body())
                .map_err(|_| RegistryErrorKind::Invalid("it lists no tags".to_owned()))?;
            let page = page.tags.unwrap_or_default();
            let is_last = page.is_empty() || !answer.headers().contains_key(LINK);
            tags.extend(page);
            if is_last {
                break;
            }
        }
        Ok(tags)
    }

    async fn read(
        &self,
        image: &ImageReference,
        digest: String,
        document: Option<Vec<u8>>,
    ) -> Result<ImagePlatforms, RegistryErrorKind> {
        let document = match document {
            Some(document) => image::read(None, &document)?,
            None => self.manifest(image, &digest).await?,
        };
        let entries = match document {
            Document::Index(entries) => entries,
            Document::Manifest { config, .. } => {
                let platforms = vec![self.configured(image, &config).await?];
                return Ok(ImagePlatforms { digest, source: Source::Manifest, platforms });
            }
        };
        let (named, unnamed): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.platform.is_some());
        let mut platforms: Vec<_> = named.into_iter().filter_map(|entry| entry.platform).collect();
        if unnamed.len() > MOST_UNNAMED {
            return Err(RegistryErrorKind::Invalid(format!(
                "more than {MOST_UNNAMED} variants do not say their platform"
            )));
        }
        for entry in unnamed {
            match self.manifest(image, &entry.digest).await? {
                Document::Manifest { config, .. } => platforms.push(self.configured(image, &config).await?),
                Document::Index(_) => {
                    return Err(RegistryErrorKind::Invalid("it is an index with an index inside".to_owned()));
                }
            }
        }
        Ok(ImagePlatforms { digest, source: Source::Index, platforms })
    }

    async fn manifest(&self, image: &ImageReference, digest: &str) -> Result<Document, RegistryErrorKind> {
        Ok(image::read(None, &self.document(image, "manifests", digest).await?)?)
    }

    /// The platform that a config names.
    async fn configured(&self, image: &ImageReference, config: &str) -> Result<Platform, RegistryErrorKind> {
        Ok(image::read_config(&self.document(image, "blobs", config).await?)?)
    }

    /// The document with this digest, from disk or else from the registry.
    async fn document(&self, image: &ImageReference, kind: &str, digest: &str) -> Result<Vec<u8>, RegistryErrorKind> {
        if let Some(document) = self.disk.document(digest) {
            return Ok(document);
        }
        let document = self.ask(image, Method::GET, &format!("{kind}/{digest}")).await?.into_body();
        if !disk::matches(digest, &document) {
            return Err(RegistryErrorKind::Invalid("the document has another digest than it was asked for".to_owned()));
        }
        self.disk.keep_document(digest, &document);
        Ok(document)
    }

    /// Sends a request unless it is certain to fail.
    async fn ask(
        &self,
        image: &ImageReference,
        method: Method,
        path: &str,
    ) -> Result<Response<Vec<u8>>, RegistryErrorKind> {
        if self.offline {
            return Err(RegistryErrorKind::Offline);
        }
        let failed =
            self.failures.lock().get(&image.registry).filter(|failures| failures.len() >= MOST_FAILURES).cloned();
        match failed.and_then(|failures| failures.into_iter().next()) {
            Some(problem) => Err(problem),
            None => self.session.ask(image, method, path).await,
        }
    }
}
