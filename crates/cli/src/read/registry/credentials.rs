//! Credentials of registries, from where `docker login` keeps them.
//!
//! `config.json` of Docker (docker/cli `cli/config/configfile/file.go`) names a program that has the credentials, or has them
//! itself. The program is `docker-credential-<name>` (docker/docker-credential-helpers). Podman and Secrets of type
//! `kubernetes.io/dockerconfigjson` use the same file, and may name a repository where Docker names a host.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use winpool_analysis::image::ImageReference;

use super::error::OptionsError;

/// The time limit for a helper, which may ask the user to unlock a keychain.
const HELPER_LIMIT: Duration = Duration::from_secs(20);
/// The output of helpers that do not know the registry (docker-credential-helpers `credentials/error.go`).
const UNKNOWN_TO_HELPER: &str = "credentials not found in native keychain";

#[derive(Clone)]
pub(super) enum Login {
    Password(String, String),
    /// An identity token, which is exchanged for tokens of the registry.
    Identity(String),
    Registry(String),
}

/// Credentials, or why a helper has none to give.
pub(super) type LoginResult = Result<Option<Login>, String>;

/// The Docker configuration, and what its helpers have answered.
#[derive(Default)]
pub(super) struct Credentials {
    configuration: Configuration,
    helped: Mutex<HashMap<String, Arc<OnceCell<LoginResult>>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    auths: BTreeMap<String, AuthConfig>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthConfig {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

impl Credentials {
    /// Reads this file, or Docker's own if it is there.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, OptionsError> {
        let variable = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let directory = variable("DOCKER_CONFIG").or_else(|| Some(std::env::home_dir()?.join(".docker")));
        let path = file.map(Path::to_owned).or_else(|| Some(directory?.join("config.json")));
        let Some(path) = path else { return Ok(Self::default()) };
        let text = match std::fs::read(&path) {
            Err(error) if file.is_none() && error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(|error| OptionsError::new(&path, error))?,
        };
        let configuration = serde_json::from_slice(&text).map_err(|error| {
            // The text of the error would repeat values.
            let (line, column) = (error.line(), error.column());
            OptionsError::new(&path, format_args!("line {line}, column {column} is not as in a Docker configuration"))
        })?;
        Ok(Self { configuration, helped: Mutex::default() })
    }

    /// The credentials for an image: those of a helper, or else those in the file.
    pub(super) async fn of(&self, image: &ImageReference) -> LoginResult {
        let entry = self.configuration.cred_helpers.iter().find(|(key, _)| name_of(key) == image.registry);
        let helper = entry.map_or(&self.configuration.creds_store, |(_, helper)| helper);
        let answer = if helper.is_empty() { Ok(None) } else { self.helped(helper, &image.registry).await };
        match (answer, self.in_file(image)) {
            (Ok(None) | Err(_), Some(login)) => Ok(Some(login)),
            (answer, _) => answer,
        }
    }

    /// Asks a helper once for each registry.
    async fn helped(&self, helper: &str, host: &str) -> LoginResult {
        let answer = self.helped.lock().entry(host.to_owned()).or_default().clone();
        // The name under which Docker keeps the credentials of Docker Hub.
        let server = if host == "docker.io" { "https://index.docker.io/v1/" } else { host };
        let asked = async || ask(helper, server).await.map_err(|reason| format!("docker-credential-{helper} {reason}"));
        answer.get_or_init(asked).await.clone()
    }

    /// The entry with the longest name that the image begins with.
    fn in_file(&self, image: &ImageReference) -> Option<Login> {
        let image = format!("{}/{}", image.registry, image.repository);
        let fits = |key: &str| image.strip_prefix(name_of(key)).is_some_and(|rest| rest.starts_with('/'));
        let entries = self.configuration.auths.iter().filter(|(key, _)| fits(key));
        let logins = entries.filter_map(|(key, entry)| Some((name_of(key).len(), entry.login()?)));
        logins.max_by_key(|(length, _)| *length).map(|(_, login)| login)
    }
}

impl AuthConfig {
    fn login(&self) -> Option<Login> {
        if !self.registrytoken.is_empty() {
            return Some(Login::Registry(self.registrytoken.clone()));
        }
        if !self.identitytoken.is_empty() {
            return Some(Login::Identity(self.identitytoken.clone()));
        }
        let decoded = BASE64_STANDARD_NO_PAD.decode(self.auth.trim().trim_end_matches('=')).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let (user, password) =
            decoded.as_ref().and_then(|text| text.split_once(':')).unwrap_or((&self.username, &self.password));
        // Docker pads passwords with zeros.
        let password = password.trim_end_matches('\0');
        (!user.is_empty()).then(|| Login::Password(user.to_owned(), password.to_owned()))
    }
}

/// The host, or the beginning of an image's name, that a key of the file stands for: without scheme and API version.
fn name_of(key: &str) -> &str {
    let name = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let name = name.trim_end_matches("/v1").trim_end_matches("/v2");
    if matches!(name, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { name }
}

/// Asks a helper. An error repeats nothing that the helper printed.
async fn ask(helper: &str, server: &str) -> LoginResult {
    if helper.contains(['/', '\\']) {
        return Err("is not the name of a program".to_owned());
    }
    let mut command = Command::new(format!("docker-credential-{helper}"));
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read answers all the same, or fails.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    let output = match timeout(HELPER_LIMIT, child.wait_with_output()).await {
        Ok(output) => output.map_err(|error| format!("failed: {error}"))?,
        Err(_) => return Err(format!("did not answer within {HELPER_LIMIT:?}")),
    };
    if String::from_utf8_lossy(&output.stdout).trim() == UNKNOWN_TO_HELPER {
        return Ok(None);
    }
    match serde_json::from_slice(&output.stdout) {
        Ok(Helped { username, secret }) if username == "<token>" => Ok(Some(Login::Identity(secret))),
        Ok(Helped { username, secret }) => Ok(Some(Login::Password(username, secret))),
        Err(_) => Err(format!("did not answer with credentials ({})", output.status)),
    }
}
