//! One HTTP exchange with a host: bounded in size, patient to a degree, careful with redirects.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::http::{
    HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_LENGTH, LOCATION, RETRY_AFTER},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_util::client::proxy::matcher::Matcher;
use kube::{Client, Config, client::Body};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::error::{OptionsError, Problem};
use crate::api_server::{causes::with_causes, client::connect};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Redirects that one request follows.
const MOST_REDIRECTS: usize = 5;
/// Times that one request waits because the host asks for it.
const MOST_WAITS: usize = 2;

/// An answer that was read to its end.
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Clients of hosts, made when they are needed.
pub(super) struct Web {
    plain: Vec<String>,
    /// Trusted certificates; those of the system alone if there is no file with others.
    roots: Option<Vec<Vec<u8>>>,
    clients: Mutex<HashMap<String, Client>>,
    proxies: Matcher,
    /// The longest wait that a host may ask for.
    pub patience: Duration,
}

impl Web {
    /// # Errors
    /// If the file with certificates cannot be used.
    pub(super) fn new(plain: Vec<String>, authorities: Option<&Path>) -> Result<Self, OptionsError> {
        let roots = authorities.map(roots).transpose()?;
        let (clients, proxies, patience) = (Mutex::default(), Matcher::from_env(), Duration::from_secs(10));
        Ok(Self { plain, roots, clients, proxies, patience })
    }

    /// The beginning of each URL of this registry.
    pub(super) fn origin(&self, host: &str) -> String {
        // The API of Docker Hub has a host of its own.
        let host = if host == "docker.io" { "registry-1.docker.io" } else { host };
        format!("{}://{host}", if self.is_plain(host) { "http" } else { "https" })
    }

    /// Returns true if plain HTTP is permitted: for hosts that the user names, and for this machine.
    fn is_plain(&self, host: &str) -> bool {
        self.plain.iter().any(|plain| plain == host) || (self.roots.is_none() && is_loopback(host))
    }

    /// Returns true if `from` may refer to `to`: never from HTTPS to HTTP, and to HTTP only where it is permitted.
    pub(super) fn may_refer(&self, from: &Uri, to: &Uri) -> bool {
        let is_plain = |uri: &Uri| uri.scheme_str() == Some("http");
        match to.scheme_str() {
            Some("https") => true,
            Some("http") => is_plain(from) && self.is_plain(&host(to)),
            _ => false,
        }
    }

    /// Sends a request, follows redirects, waits if the host asks for a short pause, and reads an answer of at most `limit`
    /// bytes. Credentials go to the first host alone.
    pub(super) async fn exchange(&self, request: Request<Vec<u8>>, limit: usize) -> Result<Answer, Problem> {
        let (mut request, mut waits, mut redirects) = (request, 0, 0);
        loop {
            let from = request.uri().clone();
            let response = self.send(&request).await?;
            let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            if response.status() == StatusCode::TOO_MANY_REQUESTS
                || response.status() == StatusCode::SERVICE_UNAVAILABLE
            {
                let after = text(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
                match after.filter(|after| *after <= self.patience && waits < MOST_WAITS) {
                    Some(after) => tokio::time::sleep(after).await,
                    None => return Err(Problem::RateLimited { host: host(&from), after }),
                }
                waits += 1;
            } else if let Some(location) = text(LOCATION).filter(|_| response.status().is_redirection()) {
                let invalid = |reason: &str| Problem::Invalid { host: host(&from), reason: reason.to_owned() };
                let to = absolute(&from, location).ok_or_else(|| invalid("it redirects to what is no URL"))?;
                redirects += 1;
                if redirects > MOST_REDIRECTS || request.method() == Method::POST {
                    return Err(invalid("it redirects too often"));
                }
                if !self.may_refer(&from, &to) {
                    return Err(invalid("it redirects to a host without TLS; see --plain-http"));
                }
                if origin(&from) != origin(&to) {
                    request.headers_mut().remove(AUTHORIZATION);
                }
                *request.uri_mut() = to;
            } else {
                return read(response, &from, limit).await;
            }
        }
    }

    async fn send(&self, request: &Request<Vec<u8>>) -> Result<Response<Body>, Problem> {
        let unreachable =
            |error: kube::Error| Problem::Unreachable { host: host(request.uri()), reason: with_causes(&error) };
        let client = self.client(request.uri()).map_err(unreachable)?;
        client.send(request.clone().map(Body::from)).await.map_err(unreachable)
    }

    /// The client of the host, which keeps its connections.
    fn client(&self, uri: &Uri) -> kube::Result<Client> {
        let origin = origin(uri);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&origin) {
            return Ok(client.clone());
        }
        let url: Uri =
            origin.parse().map_err(|error: axum::http::uri::InvalidUri| kube::Error::HttpError(error.into()))?;
        let mut config = Config::new(url.clone());
        config.connect_timeout = Some(CONNECT_LIMIT);
        // Without TLS nothing is trusted, and no certificate is needed.
        config.root_cert = if url.scheme_str() == Some("http") { Some(Vec::new()) } else { self.roots.clone() };
        config.proxy_url = self.proxy(&url);
        let client = connect(config, None)?;
        clients.insert(origin, client.clone());
        Ok(client)
    }

    /// The proxy that the environment names, with its password. As other clients do, this machine is asked directly.
    fn proxy(&self, url: &Uri) -> Option<Uri> {
        let proxy = self.proxies.intercept(url).filter(|_| !is_loopback(&host(url)))?;
        let Some(basic) = proxy.basic_auth() else { return Some(proxy.uri().clone()) };
        let user = BASE64_STANDARD.decode(basic.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
        let authority = format!("{}@{}", percent_encode(&user, NON_ALPHANUMERIC), proxy.uri().authority()?);
        Uri::builder().scheme(proxy.uri().scheme_str()?).authority(authority).path_and_query("/").build().ok()
    }
}

async fn read(response: Response<Body>, uri: &Uri, limit: usize) -> Result<Answer, Problem> {
    let (head, body) = response.into_parts();
    let too_large = || Problem::TooLarge { host: host(uri), limit };
    let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if head.status.is_success() && length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let body = match Limited::new(body, limit).collect().await {
        Ok(body) => body.to_bytes().into(),
        Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
        Err(error) => return Err(Problem::Unreachable { host: host(uri), reason: with_causes(&*error) }),
    };
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// Host and port of a URL, without the user that may stand in it.
pub(super) fn host(uri: &Uri) -> String {
    uri.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default()).to_owned()
}

fn origin(uri: &Uri) -> String {
    format!("{}://{}", uri.scheme_str().unwrap_or_default(), host(uri))
}

/// What a redirect leads to.
fn absolute(from: &Uri, location: &str) -> Option<Uri> {
    let text = match location.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => format!("{}:{location}", from.scheme_str()?),
        Some(_) => format!("{}{location}", origin(from)),
        None => location.to_owned(),
    };
    text.parse().ok().filter(|uri: &Uri| uri.host().is_some())
}

fn is_loopback(host: &str) -> bool {
    let name =
        host.parse().map_or(host.to_owned(), |authority: axum::http::uri::Authority| authority.host().to_owned());
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The certificates of the system and those of a file. One of the system that rustls cannot read is left out.
fn roots(file: &Path) -> Result<Vec<Vec<u8>>, OptionsError> {
    let path = || file.display().to_string();
    let text = std::fs::read(file).map_err(|error| OptionsError::Unreadable { path: path(), error })?;
    let is_usable = |certificate: &CertificateDer<'static>| RootCertStore::empty().add(certificate.clone()).is_ok();
    let own: Vec<_> = CertificateDer::pem_slice_iter(&text).flatten().filter(is_usable).collect();
    if own.is_empty() {
        return Err(OptionsError::Certificates { path: path() });
    }
    let system = rustls_native_certs::load_native_certs().certs.into_iter().filter(is_usable);
    Ok(own.into_iter().chain(system).map(|certificate| certificate.to_vec()).collect())
}
