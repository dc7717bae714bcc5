//! Credentials of registries, from where `docker login` keeps them.
//!
//! `config.json` of Docker (docker/cli `cli/config/configfile/file.go`) names a program that has the credentials, or has them
//! itself. The program is `docker-credential-<name>` (docker/docker-credential-helpers). Podman and Secrets of type
//! `kubernetes.io/dockerconfigjson` use the same file, and may name a repository where Docker names a host.

use std::{
    collections::{BTreeMap, HashMap},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use tokio::{io::AsyncWriteExt, process::Command, sync::OnceCell, time::timeout};
use winpool_core::image::ImageReference;

use super::error::OptionsError;

/// How long a helper may take. It may ask the user to unlock a keychain.
const HELPER_LIMIT: Duration = Duration::from_secs(20);
/// The name under which Docker keeps the credentials of Docker Hub.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// What helpers print if they do not know the registry (docker-credential-helpers `credentials/error.go`).
const UNKNOWN_TO_HELPER: &str = "credentials not found in native keychain";
/// In place of a user's name: the secret is an identity token.
const IDENTITY_TOKEN: &str = "<token>";

/// What a user logs in with.
#[derive(Clone)]
pub(super) enum Login {
    Password {
        user: String,
        password: String,
    },
    /// Exchanged for tokens of the registry.
    IdentityToken(String),
    /// A token of the registry itself.
    RegistryToken(String),
}

/// The Docker configuration, and what its helpers have answered.
#[derive(Default)]
pub(super) struct Credentials {
    configuration: Configuration,
    helpers: Mutex<HashMap<String, Arc<OnceCell<Found>>>>,
}

/// Credentials, or why a helper has none to give.
pub(super) type Found = Result<Option<Login>, String>;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

impl Credentials {
    /// Reads this file, or Docker's own if it is there.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, OptionsError> {
        let directory = std::env::var_os("DOCKER_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let docker = || {
            Some(
                directory
                    .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?
                    .join("config.json"),
            )
        };
        let Some(path) = file.map(Path::to_owned).or_else(docker) else { return Ok(Self::default()) };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if file.is_none() && error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(OptionsError::Unreadable { path: path.display().to_string(), error }),
        };
        let configuration = serde_json::from_slice(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            OptionsError::Configuration { path: path.display().to_string(), line, column }
        })?;
        Ok(Self { configuration, helpers: Mutex::default() })
    }

    /// The credentials for an image: those of a helper, or else those in the file.
    pub(super) async fn of(&self, image: &ImageReference) -> Found {
        let asked = match self.helper(&image.registry) {
            Some(helper) => self.asked(helper, &image.registry).await,
            None => Ok(None),
        };
        match asked {
            Ok(Some(login)) => Ok(Some(login)),
            Ok(None) => Ok(self.in_file(image)),
            Err(reason) => self.in_file(image).map(Some).ok_or(reason),
        }
    }

    fn helper(&self, host: &str) -> Option<&str> {
        let own = self.configuration.cred_helpers.iter().find(|(key, _)| name_of(key) == host);
        own.map(|(_, helper)| helper.as_str())
            .or(self.configuration.creds_store.as_deref())
            .filter(|name| !name.is_empty())
    }

    /// A helper is asked once for each registry.
    async fn asked(&self, helper: &str, host: &str) -> Found {
        let answer = {
            let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
            helpers.entry(host.to_owned()).or_default().clone()
        };
        answer.get_or_init(|| ask(helper, if host == "docker.io" { DOCKER_HUB } else { host })).await.clone()
    }

    /// The entry of the longest name that the image begins with.
    fn in_file(&self, image: &ImageReference) -> Option<Login> {
        let image = format!("{}/{}/", image.registry, image.repository);
        let fits = |name: &str| image.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let entries = self.configuration.auths.iter().map(|(key, entry)| (name_of(key), entry));
        let mut entries: Vec<_> = entries.filter(|(name, _)| fits(name)).collect();
        entries.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        entries.into_iter().find_map(|(_, entry)| entry.login())
    }
}

impl Entry {
    fn login(&self) -> Option<Login> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = given(&self.identitytoken) {
            return Some(Login::IdentityToken(token));
        }
        if let Some(token) = given(&self.registrytoken) {
            return Some(Login::RegistryToken(token));
        }
        let decoded =
            self.auth.as_ref().and_then(|text| String::from_utf8(BASE64_STANDARD.decode(text.trim()).ok()?).ok());
        let (user, password) = match decoded.as_ref().and_then(|text| text.split_once(':')) {
            // Docker's own padding.
            Some((user, password)) => (user.to_owned(), password.trim_end_matches('\0').to_owned()),
            None => (given(&self.username)?, given(&self.password)?),
        };
        Some(Login::Password { user, password })
    }
}

/// The host, or the beginning of an image's name, that a key of the file stands for: without scheme and API version.
fn name_of(key: &str) -> &str {
    let name =
        key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key).trim_end_matches('/');
    let name = name.strip_suffix("/v1").or_else(|| name.strip_suffix("/v2")).unwrap_or(name);
    if matches!(name, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { name }
}

/// Asks a helper. An error says nothing of what the helper printed.
async fn ask(helper: &str, server: &str) -> Found {
    let program = format!("docker-credential-{helper}");
    let failed = |reason: &dyn std::fmt::Display| format!("{program}, which your Docker configuration names, {reason}");
    if helper.contains(['/', '\\']) {
        return Err(failed(&"is not the name of a program"));
    }
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| failed(&format_args!("cannot be started: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read will answer all the same, or fail.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    let output = match timeout(HELPER_LIMIT, child.wait_with_output()).await {
        Ok(output) => output.map_err(|error| failed(&format_args!("failed: {error}")))?,
        Err(_) => return Err(failed(&format_args!("did not answer within {HELPER_LIMIT:?}"))),
    };
    if !output.status.success() {
        let is_unknown = String::from_utf8_lossy(&output.stdout).trim() == UNKNOWN_TO_HELPER;
        return if is_unknown { Ok(None) } else { Err(failed(&format_args!("failed: {}", output.status))) };
    }
    let helped: Helped =
        serde_json::from_slice(&output.stdout).map_err(|_| failed(&"answered with something else than credentials"))?;
    Ok(Some(match helped {
        Helped { username, secret } if username == IDENTITY_TOKEN => Login::IdentityToken(secret),
        Helped { username: user, secret: password } => Login::Password { user, password },
    }))
}
