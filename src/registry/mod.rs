//! Asks registries for which systems an image was built (opencontainers/distribution-spec, "Pull").
//!
//! A tag costs a `HEAD`, which most registries do not count, and each distinct digest one `GET`, or none if it is on disk.
//! `docs/decisions/0017-registry-client.md` says why this is not another crate.

mod challenge;
mod credentials;
mod disk;
mod error;
mod login;
#[cfg(test)]
mod tests;
mod web;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderName, Method};
use futures::{StreamExt, stream};
use tokio::{sync::OnceCell, time::timeout};
use winpool_core::image::{
    Document, DocumentError, ImagePlatforms, ImageReference, Platform, Source, reference::is_digest,
};

use self::{disk::Disk, login::Session, web::Answer};
pub use error::{OptionsError, Problem, RegistryError};

const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const NESTED: &str = "it is an index inside of an index, which winpool does not read";
const TOO_MANY_UNNAMED: &str = "too many of its variants do not say their platform";
const WRONG_DIGEST: &str = "the document has another digest than it was asked for";
/// Images that are looked up at the same time.
const CONCURRENCY: usize = 8;
/// For all requests of one image.
const IMAGE_LIMIT: Duration = Duration::from_secs(30);
/// The largest manifest: what registries have to accept, by the distribution-spec.
const MANIFEST_LIMIT: usize = 4 << 20;
/// The largest config. Usual ones have a few KB; a long history of commands makes them larger.
const CONFIG_LIMIT: usize = 8 << 20;
/// Variants of an index that do not say their platform; each costs two requests.
const MOST_UNNAMED: usize = 16;
/// Failures in a row after which a host is not asked any more.
const MOST_FAILURES: u32 = 3;

/// How registries are asked.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Registries")]
pub struct Options {
    /// Docker configuration with the credentials of registries; `config.json` in DOCKER_CONFIG or ~/.docker if not set.
    #[arg(long, value_name = "FILE")]
    pub registry_config: Option<PathBuf>,
    /// Certificates to trust besides those of the system, in PEM format.
    #[arg(long, value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
    /// Registry to ask without TLS; can be repeated. This machine is asked without TLS unless --registry-ca is set.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub plain_http: Vec<String>,
    /// Directory in which manifests are cached; ~/.cache/winpool/registry if not set.
    #[arg(long, value_name = "DIRECTORY")]
    pub registry_cache: Option<PathBuf>,
    /// Ask no registry, and use only what is cached.
    #[arg(long)]
    pub offline: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Manifest,
    Config,
}

/// A client of all registries, for one command.
pub struct Registry {
    session: Session,
    disk: Disk,
    offline: bool,
    limit: Duration,
    /// By digest.
    known: Mutex<HashMap<String, Arc<OnceCell<ImagePlatforms>>>>,
    /// Failures in a row, by registry, and the last one.
    failures: Mutex<HashMap<String, (u32, Problem)>>,
}

impl Registry {
    /// Makes a client. It sends nothing yet.
    ///
    /// # Errors
    /// If a file that the options name cannot be used, or the user's Docker configuration cannot be read.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        Ok(Self {
            disk: Disk::new(options.registry_cache.as_deref()),
            offline: options.offline,
            session: Session::new(options)?,
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
    ///
    /// # Errors
    /// If the registry does not tell, within a time limit.
    pub async fn platforms(&self, image: &ImageReference) -> Result<ImagePlatforms, RegistryError> {
        let (host, limit) = (&image.registry, self.limit);
        let answer = timeout(limit, self.look_up(image)).await;
        let answer = answer.unwrap_or_else(|_| Err(Problem::TimedOut { host: host.clone(), limit }));
        match &answer {
            Err(problem) if problem.is_of_the_host() => {
                self.failures()
                    .entry(host.clone())
                    .and_modify(|(count, _)| *count += 1)
                    .or_insert((1, problem.clone()));
            }
            Err(Problem::Offline) => {}
            _ => drop(self.failures().remove(host)),
        }
        answer.map_err(|problem| RegistryError { image: image.to_string(), problem })
    }

    async fn look_up(&self, image: &ImageReference) -> Result<ImagePlatforms, Problem> {
        let digest = match &image.digest {
            Some(digest) => digest.clone(),
            None if self.offline => self.disk.tagged(image).ok_or(Problem::Offline)?,
            None => self.tagged(image).await?,
        };
        let known = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(digest.clone()).or_default().clone()
        };
        known.get_or_try_init(|| self.read(image, digest)).await.cloned()
    }

    /// Asks for the digest of a tag.
    async fn tagged(&self, image: &ImageReference) -> Result<String, Problem> {
        let path = format!("manifests/{}", image.version());
        let digest = match self.ask(image, Method::HEAD, &path, MANIFEST_LIMIT).await {
            Ok(answer) => answer.header(&DIGEST).filter(|digest| is_digest(digest)).map(str::to_owned),
            // `HEAD` is not for every registry.
            Err(Problem::Failed { .. }) => None,
            Err(problem) => return Err(problem),
        };
        let digest = match digest {
            Some(digest) => digest,
            None => {
                let document = self.ask(image, Method::GET, &path, MANIFEST_LIMIT).await?.body;
                let digest = disk::sha256(&document);
                self.disk.keep_document(&digest, &document);
                digest
            }
        };
        self.disk.keep_tag(image, &digest);
        Ok(digest)
    }

    async fn read(&self, image: &ImageReference, digest: String) -> Result<ImagePlatforms, Problem> {
        let invalid =
            |error: DocumentError| Problem::Invalid { host: image.registry.clone(), reason: error.to_string() };
        let document = self.document(image, Kind::Manifest, &digest).await?;
        let entries = match winpool_core::image::read(None, &document).map_err(invalid)? {
            Document::Manifest { config, .. } => {
                let platforms = vec![self.configured(image, &config).await?];
                return Ok(ImagePlatforms { digest, source: Source::Manifest, platforms });
            }
            Document::Index(entries) => entries,
        };
        let (named, unnamed): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.platform.is_some());
        if unnamed.len() > MOST_UNNAMED {
            return Err(Problem::Invalid { host: image.registry.clone(), reason: TOO_MANY_UNNAMED.to_owned() });
        }
        let mut platforms: Vec<_> = named.into_iter().filter_map(|entry| entry.platform).collect();
        for entry in unnamed {
            let document = self.document(image, Kind::Manifest, &entry.digest).await?;
            match winpool_core::image::read(None, &document).map_err(invalid)? {
                Document::Manifest { config, .. } => platforms.push(self.configured(image, &config).await?),
                Document::Index(_) => {
                    return Err(Problem::Invalid { host: image.registry.clone(), reason: NESTED.to_owned() });
                }
            }
        }
        Ok(ImagePlatforms { digest, source: Source::Index, platforms })
    }

    /// The platform that a config names.
    async fn configured(&self, image: &ImageReference, config: &str) -> Result<Platform, Problem> {
        let document = self.document(image, Kind::Config, config).await?;
        let invalid =
            |error: DocumentError| Problem::Invalid { host: image.registry.clone(), reason: error.to_string() };
        winpool_core::image::read_config(&document).map_err(invalid)
    }

    /// The document with this digest, from disk or else from the registry.
    async fn document(&self, image: &ImageReference, kind: Kind, digest: &str) -> Result<Vec<u8>, Problem> {
        if let Some(document) = self.disk.document(digest) {
            return Ok(document);
        }
        let (path, limit) = match kind {
            Kind::Manifest => ("manifests", MANIFEST_LIMIT),
            Kind::Config => ("blobs", CONFIG_LIMIT),
        };
        let document = self.ask(image, Method::GET, &format!("{path}/{digest}"), limit).await?.body;
        if !disk::matches(digest, &document) {
            return Err(Problem::Invalid { host: image.registry.clone(), reason: WRONG_DIGEST.to_owned() });
        }
        self.disk.keep_document(digest, &document);
        Ok(document)
    }

    /// Sends a request unless it is certain to fail.
    async fn ask(&self, image: &ImageReference, method: Method, path: &str, limit: usize) -> Result<Answer, Problem> {
        if self.offline {
            return Err(Problem::Offline);
        }
        let failed = self.failures().get(&image.registry).filter(|(count, _)| *count >= MOST_FAILURES).cloned();
        match failed {
            Some((_, problem)) => Err(problem),
            None => self.session.ask(image, method, path, limit).await,
        }
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, (u32, Problem)>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
