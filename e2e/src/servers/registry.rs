//! A real image registry (distribution), and functions that push images to it.

use crate::error::{Error, FileContext, Result, text};
use crate::machine::assets::Component;
use crate::machine::guard::{Directory, Guard};
use crate::machine::process::{Launch, Process, start_on_free_port};
use crate::network::certificates::Authority;
use crate::network::kubeconfig::answers;
use crate::network::proxy::serve;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use futures::FutureExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use rcgen::{KeyPair, PKCS_ED25519, SigningKey};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::DropGuard;

/// The user who may pull from a protected registry.
pub const USER: &str = "me";
pub const PASSWORD: &str = "swordfish";
/// The hash of the password, as `htpasswd -B` writes it.
const HASHED: &str = "$2a$04$mojUwKtmbdjsyZM99kxJt.hWAFytb4yv8Go54Wu.9htRWOmw8PwX6";
/// The issuer of the tokens, as the registry and the token server name it.
const ISSUER: &str = "tokens";
const SERVICE: &str = "a registry";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// None: plain HTTP without authentication.
    None,
    /// TLS with a certificate of the registry's own authority.
    Tls,
    /// Basic authentication with the password of [`USER`].
    Basic,
    /// Tokens that a token server issues to [`USER`].
    Token,
}

/// A running registry, empty at first. It stops with this process and leaves no files.
pub struct ImageRegistry {
    _process: Process,
    _tokens: Option<Tokens>,
    port: u16,
    client: Client,
    /// The header `Authorization` for pushes.
    authorization: Option<String>,
    directory: Directory,
}

impl ImageRegistry {
    /// Starts a registry.
    pub async fn start(protection: Protection) -> Result<Self> {
        let program = Component::Registry.path().await?;
        let directory = Guard::get()?.directory("registry")?;
        let authority = Authority::new(directory.path())?;
        let tokens = if protection == Protection::Token { Some(Tokens::start().await?) } else { None };
        let mut configuration = json!({
            "version": "0.1", "log": {"accesslog": {"disabled": false}},
            "storage": {"inmemory": {}}, "http": {"secret": "any"},
            "validation": {"manifests": {"indexes": {"platforms": "none"}}},
        });
        match (protection, &tokens) {
            (Protection::Tls, _) => {
                let serving = authority.serving()?;
                configuration["http"]["tls"] =
                    json!({"certificate": text(&serving.certificate)?, "key": text(&serving.key)?});
            }
            (Protection::Basic, _) => {
                let file = directory.path().join("htpasswd");
                fs::write(&file, format!("{USER}:{HASHED}\n")).when("write", &file)?;
                configuration["auth"] = json!({"htpasswd": {"realm": "any", "path": text(&file)?}});
            }
            (Protection::Token, Some(tokens)) => {
                let file = directory.path().join("jwks.json");
                fs::write(&file, tokens.key_set().to_string()).when("write", &file)?;
                let realm = format!("http://127.0.0.1:{}/token", tokens.port);
                configuration["auth"] = json!({"token":
                    {"realm": realm, "service": SERVICE, "issuer": ISSUER, "jwks": text(&file)?}});
            }
            _ => {}
        }
        let file = directory.path().join("config.json");
        fs::write(&file, configuration.to_string()).when("write", &file)?;
        let launch = |port| {
            let arguments = vec!["serve".to_owned(), text(&file)?.to_owned()];
            let (name, logs) = (Component::Registry.name(), directory.path());
            let launch = Launch { name, program: &program, arguments, directory: logs, logs };
            Process::start_in(launch, vec![("REGISTRY_HTTP_ADDR", format!("127.0.0.1:{port}"))])
        };
        let scheme = if protection == Protection::Tls { "https" } else { "http" };
        let client = |port| {
            let mut config =
                Config::new(http::Uri::try_from(format!("{scheme}://127.0.0.1:{port}")).map_err(http::Error::from)?);
            config.root_cert = Some(authority.root());
            config.default_retry = false;
            Result::Ok(Client::try_from(config)?)
        };
        // This path needs no password.
        let ready = async |port| answers(client(port), "/").await;
        let (process, port) = start_on_free_port(launch, ready).await?;
        let authorization = match (protection, &tokens) {
            (Protection::Basic, _) => Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")))),
            (_, tokens) => {
                tokens.as_ref().map(|tokens| format!("Bearer {}", tokens.issuer.token("app", &["pull", "push"])))
            }
        };
        let client = client(port)?;
        Ok(Self { _process: process, _tokens: tokens, port, client, authorization, directory })
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the certificate of the authority that signed the registry's certificate.
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// Pushes a manifest or an index under a tag, and returns its digest. With tokens, the repository must be `app`.
    pub async fn push(&self, repository: &str, tag: &str, document: &Value) -> Result<String> {
        let media_type = document["mediaType"].as_str().unwrap_or("application/vnd.oci.image.index.v1+json");
        let request = Request::put(format!("/v2/{repository}/manifests/{tag}")).header(CONTENT_TYPE, media_type);
        let answer = self.send(request, document.to_string()).await?;
        Ok(header(&answer, &HeaderName::from_static("docker-content-digest")))
    }

    /// Pushes a single manifest with this config and without layers, and returns its digest.
    pub async fn push_image(&self, repository: &str, tag: &str, config: &Value, is_docker: bool) -> Result<String> {
        let [manifest, media_type] = if is_docker {
            ["application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.container.image.v1+json"]
        } else {
            ["application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.config.v1+json"]
        };
        let config = config.to_string();
        let digest = ring::digest::digest(&ring::digest::SHA256, config.as_bytes());
        let digest = digest.as_ref().iter().fold("sha256:".to_owned(), |mut text, byte| {
            // Writing to a String never fails.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let size = config.len();
        let begun = self.send(Request::post(format!("/v2/{repository}/blobs/uploads/")), String::new()).await?;
        let upload = Request::put(format!("{}&digest={digest}", header(&begun, &LOCATION)));
        self.send(upload.header(CONTENT_TYPE, "application/octet-stream"), config).await?;
        let document = json!({
            "schemaVersion": 2, "mediaType": manifest, "layers": [],
            "config": {"mediaType": media_type, "digest": digest, "size": size},
        });
        self.push(repository, tag, &document).await
    }

    /// Returns the method, path and status of each request so far, in the order of the access log.
    pub fn requests(&self) -> Result<Vec<(String, u16)>> {
        let log = self.directory.path().join("registry.log");
        let log = fs::read_to_string(&log).when("read", &log)?;
        let lines = log.lines().filter_map(|line| {
            // The common log format: `127.0.0.1 - - [date] "GET /v2/ HTTP/1.1" 200 …`.
            let (_, rest) = line.split_once("] \"")?;
            let (request, rest) = rest.split_once(" HTTP/1.1\" ")?;
            Some((request.to_owned(), rest.split(' ').next()?.parse().ok()?))
        });
        Ok(lines.collect())
    }

    async fn send(&self, mut request: http::request::Builder, body: String) -> Result<Response<Body>> {
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = self.client.send(request.body(Body::from(body.into_bytes()))?).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (command, status) = ("a push to the registry".to_owned(), answer.status().to_string());
        Err(Error::ToolFailed { command, status, output: String::new() })
    }
}

fn header(answer: &Response<Body>, name: &HeaderName) -> String {
    answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// A token server for [`USER`], following the documentation of distribution.
struct Tokens {
    issuer: Arc<Issuer>,
    port: u16,
    _stop: DropGuard,
}

struct Issuer {
    key: KeyPair,
}

impl Tokens {
    async fn start() -> Result<Self> {
        let issuer = Arc::new(Issuer { key: KeyPair::generate_for(&PKCS_ED25519)? });
        let shared = Arc::clone(&issuer);
        let (port, stop) = serve(move |stream| {
            let issuer = Arc::clone(&shared);
            let service = service_fn(move |request| {
                let answer = issuer.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).map(|_| ())
        })
        .await?;
        Ok(Self { issuer, port, _stop: stop })
    }

    fn key_set(&self) -> Value {
        let point = BASE64_URL_SAFE_NO_PAD.encode(self.issuer.key.public_key_raw());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "use": "sig", "alg": "EdDSA", "x": point}]})
    }
}

impl Issuer {
    /// Issues a token for pulls from the repository in the scope, if the client sends the right password.
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let query: Vec<_> = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()).collect();
        let of = |name: &str| query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value);
        let repository = of("scope").strip_prefix("repository:").and_then(|rest| rest.strip_suffix(":pull"));
        let is_user = request.headers().get(AUTHORIZATION).is_some_and(|value| value == expected.as_str());
        let (status, body) = match repository {
            Some(repository) if is_user && of("service") == SERVICE => {
                (StatusCode::OK, json!({"token": self.token(repository, &["pull"])}).to_string())
            }
            _ => (StatusCode::UNAUTHORIZED, String::new()),
        };
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = status;
        answer
    }

    fn token(&self, repository: &str, actions: &[&str]) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = json!({
            "iss": ISSUER, "aud": SERVICE, "sub": USER, "nbf": now - 60, "exp": now + 3600, "iat": now, "jti": "1",
            "access": [{"type": "repository", "name": repository, "actions": actions}],
        });
        let head = json!({"alg": "EdDSA", "typ": "JWT", "kid": "1"});
        let [head, claims] = [head, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{head}.{claims}");
        let signature = self.key.sign(signed.as_bytes()).unwrap_or_default();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}
