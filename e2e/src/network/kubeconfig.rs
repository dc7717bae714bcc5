//! Access to an API server: kubeconfig files and client configurations.

use crate::error::{FileContext, Result, text};
use crate::network::certificates::{Authority, ClientCertificate};
use kube::config::AuthInfo;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// An API server's address, and the authority of its certificate.
pub(crate) struct Endpoint {
    pub url: String,
    /// The authority's certificate, as a file and as DER.
    pub authority: PathBuf,
    pub root: Vec<Vec<u8>>,
}

impl Endpoint {
    /// The server of this authority that listens on `port`.
    pub(crate) fn on(port: u16, authority: &Authority) -> Self {
        Self { url: format!("https://127.0.0.1:{port}"), authority: authority.certificate(), root: authority.root() }
    }

    /// Writes a kubeconfig for `identity` to `file`.
    pub(crate) fn write_kubeconfig(&self, identity: &ClientCertificate, file: &Path) -> Result<()> {
        let user = json!({
            "client-certificate": text(&identity.certificate)?,
            "client-key": text(&identity.key)?,
        });
        write(&self.url, &self.authority, &user, "default", file)
    }

    /// A client configuration for `identity`.
    ///
    /// Refused requests are not retried: a test needs to see a 429 or 503 at once.
    pub(crate) fn config(&self, identity: &ClientCertificate) -> Result<kube::Config> {
        let url = http::Uri::try_from(&self.url).map_err(http::Error::from)?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(self.root.clone());
        config.default_retry = false;
        config.auth_info = AuthInfo {
            client_certificate: Some(text(&identity.certificate)?.to_owned()),
            client_key: Some(text(&identity.key)?.to_owned()),
            ..AuthInfo::default()
        };
        Ok(config)
    }
}

/// Writes a kubeconfig of a user with this token, who works in this namespace.
pub(crate) fn token_kubeconfig(
    server: &str,
    authority: &Path,
    token: &str,
    namespace: &str,
    file: &Path,
) -> Result<()> {
    write(server, authority, &json!({"token": token}), namespace, file)
}

/// JSON, which is YAML too.
fn write(server: &str, authority: &Path, user: &Value, namespace: &str, file: &Path) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "winpool-e2e",
        "contexts": [{"name": "winpool-e2e", "context": {
            "cluster": "winpool-e2e", "user": "winpool-e2e", "namespace": namespace,
        }}],
        "clusters": [{"name": "winpool-e2e", "cluster": {"server": server, "certificate-authority": text(authority)?}}],
        "users": [{"name": "winpool-e2e", "user": user}],
    });
    std::fs::write(file, format!("{kubeconfig:#}\n")).when("write", file)
}

/// True if there is a client, and the server answers `path` with 200.
pub(crate) async fn answers(client: Result<kube::Client>, path: &str) -> bool {
    match (client, http::Request::get(path).body(Vec::new())) {
        (Ok(client), Ok(request)) => client.request_text(request).await.is_ok(),
        _ => false,
    }
}
