//! HTTP requests to registries, with limits on size, time and redirects.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, LOCATION, RETRY_AFTER};
use axum::http::uri::{Authority, InvalidUri};
use axum::http::{Request, Response, StatusCode, Uri};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_util::client::proxy::matcher::Matcher;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use winpool_client::causes::with_causes;
use winpool_client::client::ConnectError;

use super::error::{OptionsError, RegistryErrorKind};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The largest answer that winpool reads: the manifest size that the distribution-spec requires registries to accept.
pub(super) const ANSWER_LIMIT: usize = 4 << 20;
/// The largest number of redirects and pauses of one request.
const MOST_DETOURS: usize = 5;
/// The longest pause that a host may ask for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The clients of hosts, created when they are needed.
pub(super) struct Web {
    plain: Vec<String>,
    /// The trusted certificates; `None` for those of the system only.
    roots: Option<Vec<Vec<u8>>>,
    proxies: Matcher,
    clients: Mutex<HashMap<String, Client>>,
}

impl Web {
    /// Returns clients that use plain HTTP for the hosts `plain` and also trust the certificates in the file `authorities`.
    pub(super) fn new(plain: Vec<String>, authorities: Option<&Path>) -> Result<Self, OptionsError> {
        let roots = authorities.map(roots).transpose()?;
        Ok(Self { plain, roots, proxies: Matcher::from_env(), clients: Mutex::default() })
    }

    /// Returns the beginning of each URL of this registry.
    pub(super) fn origin(&self, host: &str) -> String {
        // The API of Docker Hub has its own host.
        let host = if host == "docker.io" { "registry-1.docker.io" } else { host };
        format!("{}://{host}", if self.is_plain(host) { "http" } else { "https" })
    }

    /// True if plain HTTP is permitted: for hosts that the user names, and for localhost.
    fn is_plain(&self, host: &str) -> bool {
        self.plain.iter().any(|plain| plain == host) || (self.roots.is_none() && is_loopback(host))
    }

    /// True if `from` may refer to `to`: never from HTTPS to HTTP, and to HTTP only where it is permitted.
    pub(super) fn may_refer(&self, from: &Uri, to: &Uri) -> bool {
        match to.scheme_str() {
            Some("https") => true,
            Some("http") => from.scheme_str() == Some("http") && self.is_plain(host(to)),
            _ => false,
        }
    }

    /// Sends a request and reads the answer. It follows redirects, sends credentials only to the first host, and waits if the
    /// host asks for a short pause.
    pub(super) async fn exchange(&self, mut request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, RegistryErrorKind> {
        for detour in 0..=MOST_DETOURS {
            let from = request.uri().clone();
            let response = self.send(&request).await?;
            let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            let is_busy = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            let pause = text(RETRY_AFTER).and_then(pause);
            if let Some(pause) = pause.filter(|pause| is_busy && *pause <= PATIENCE && detour < MOST_DETOURS) {
                tokio::time::sleep(pause).await;
            } else if let Some(location) = text(LOCATION).filter(|_| response.status().is_redirection()) {
                let to = absolute(&from, location).filter(|to| self.may_refer(&from, to) && request.body().is_empty());
                let to = to.ok_or_else(|| {
                    RegistryErrorKind::Invalid("it redirects to a URL that winpool does not follow".to_owned())
                })?;
                if origin(&from) != origin(&to) {
                    request.headers_mut().remove(AUTHORIZATION);
                }
                *request.uri_mut() = to;
            } else {
                return read(response, &from).await;
            }
        }
        Err(RegistryErrorKind::Invalid("it redirects too often".to_owned()))
    }

    async fn send(&self, request: &Request<Vec<u8>>) -> Result<Response<Body>, RegistryErrorKind> {
        let unreachable = |error| unreachable(request.uri(), &error);
        let client = self.client(&origin(request.uri())).map_err(unreachable)?;
        client.send(request.clone().map(Body::from)).await.map_err(unreachable)
    }

    /// Returns the client of an origin, which keeps its connections.
    fn client(&self, origin: &str) -> kube::Result<Client> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(origin) {
            return Ok(client.clone());
        }
        let mut config = Config::new(origin.parse().map_err(|error: InvalidUri| kube::Error::HttpError(error.into()))?);
        config.connect_timeout = Some(CONNECT_LIMIT);
        // Plain HTTP needs no certificates, and an image without a system has none.
        config.root_cert = if origin.starts_with("http:") { Some(Vec::new()) } else { self.roots.clone() };
        config.proxy_url = self.proxy(&config.cluster_url);
        let client = crate::read::live::connect(config).map_err(|ConnectError(error)| *error)?;
        clients.insert(origin.to_owned(), client.clone());
        Ok(client)
    }

    /// Returns the proxy that the environment sets, with its password. Like other clients, it uses none for localhost.
    fn proxy(&self, url: &Uri) -> Option<Uri> {
        let proxy = self.proxies.intercept(url).filter(|_| !is_loopback(host(url)))?;
        let Some(basic) = proxy.basic_auth() else { return Some(proxy.uri().clone()) };
        let user = BASE64_STANDARD.decode(basic.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
        let authority = format!("{}@{}", percent_encode(&user, NON_ALPHANUMERIC), proxy.uri().authority()?);
        Uri::builder().scheme(proxy.uri().scheme_str()?).authority(authority).path_and_query("/").build().ok()
    }
}

/// Reads the header `Retry-After`: seconds or a date (RFC 9110 section 10.2.3).
fn pause(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = rfc2822::parse(text).ok()?.timestamp();
    // A date in the past asks for no pause.
    Some(until.duration_since(Timestamp::now()).try_into().unwrap_or_default())
}

async fn read(response: Response<Body>, uri: &Uri) -> Result<Response<Vec<u8>>, RegistryErrorKind> {
    let (head, body) = response.into_parts();
    let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > ANSWER_LIMIT) {
        return Err(RegistryErrorKind::TooLarge(ANSWER_LIMIT));
    }
    match Limited::new(body, ANSWER_LIMIT).collect().await {
        Ok(body) => Ok(Response::from_parts(head, body.to_bytes().into())),
        Err(error) if error.is::<LengthLimitError>() => Err(RegistryErrorKind::TooLarge(ANSWER_LIMIT)),
        Err(error) => Err(unreachable(uri, &*error)),
    }
}

fn unreachable(uri: &Uri, error: &(dyn std::error::Error + 'static)) -> RegistryErrorKind {
    RegistryErrorKind::Unreachable(format!("{}: {}", host(uri), with_causes(error)))
}

/// Returns the host and port of a URL, without the user.
fn host(uri: &Uri) -> &str {
    uri.authority().and_then(|authority| authority.as_str().rsplit('@').next()).unwrap_or_default()
}

fn origin(uri: &Uri) -> String {
    format!("{}://{}", uri.scheme_str().unwrap_or_default(), host(uri))
}

/// Returns the URL to which a redirect points.
fn absolute(from: &Uri, location: &str) -> Option<Uri> {
    let text = match location.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => format!("{}:{location}", from.scheme_str()?),
        Some(_) => format!("{}{location}", origin(from)),
        None => location.to_owned(),
    };
    text.parse().ok()
}

fn is_loopback(host: &str) -> bool {
    host.parse().is_ok_and(|authority: Authority| {
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// Returns the certificates of the file and of the system. It leaves out those that rustls cannot read.
fn roots(file: &Path) -> Result<Vec<Vec<u8>>, OptionsError> {
    let text = std::fs::read(file).map_err(|error| OptionsError::new(file, error))?;
    let is_usable = |certificate: &CertificateDer<'static>| RootCertStore::empty().add(certificate.clone()).is_ok();
    let of_file: Vec<_> = CertificateDer::pem_slice_iter(&text).flatten().filter(is_usable).collect();
    if of_file.is_empty() {
        return Err(OptionsError::new(file, "it has no certificate in PEM format that can be trusted"));
    }
    let of_system = rustls_native_certs::load_native_certs().certs.into_iter().filter(is_usable);
    Ok(of_file.into_iter().chain(of_system).map(|certificate| certificate.to_vec()).collect())
}
