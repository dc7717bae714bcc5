//! Requests to registries, logged in as far as the registry asks for it.
//!
//! The first request to a registry is anonymous, and its answer says how to log in; later ones know. Credentials go to the
//! registry, and to the token server that it names, as with Docker; that server has to have TLS if the registry has.

use std::collections::HashMap;

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde::Deserialize;
use winpool_analysis::image::ImageReference;
use winpool_analysis::image::document::ACCEPTED;

use super::credentials::{Credentials, Login};
use super::error::{OptionsError, RegistryErrorKind};
use super::options::RegistryOptions;
use super::web::Web;

/// The registries' login methods, and the credentials for them.
pub(super) struct RegistryAuth {
    web: Web,
    credentials: Credentials,
    /// By registry.
    challenges: Mutex<HashMap<String, Challenge>>,
    /// By registry and repository: tokens are for one repository.
    authorizations: Mutex<HashMap<(String, String), HeaderValue>>,
}

/// The login method that a registry requires: the header `WWW-Authenticate` (RFC 9110 section 11.6.1, and distribution
/// `docs/content/spec/auth/token.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// With user and password.
    Basic,
    /// With a token of the server at `realm`, where the registry calls itself `service`.
    Bearer { realm: String, service: String },
}

impl Challenge {
    /// The challenge of a response: tokens if there is a choice.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges = values.filter_map(|value| match value.trim().to_ascii_lowercase() {
            text if text.starts_with("basic") => Some(Self::Basic),
            text if text.starts_with("bearer ") => {
                let service = parameter(value, "service").unwrap_or_default();
                Some(Self::Bearer { realm: parameter(value, "realm")?, service })
            }
            _ => None,
        });
        challenges.max_by_key(|challenge| *challenge != Self::Basic)
    }
}

fn parameter(challenge: &str, name: &str) -> Option<String> {
    let name = format!("{name}=\"");
    let start = challenge.to_ascii_lowercase().find(&name)? + name.len();
    challenge[start..].split_once('"').map(|(value, _)| value.to_owned())
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl RegistryAuth {
    pub(super) fn new(options: RegistryOptions) -> Result<Self, OptionsError> {
        // Offline there is nobody to log in to.
        let file = options.registry_config.as_deref();
        let credentials = if options.offline { Credentials::default() } else { Credentials::read(file)? };
        let web = Web::new(options.plain_http, options.registry_ca.as_deref())?;
        Ok(Self { web, credentials, challenges: Mutex::default(), authorizations: Mutex::default() })
    }

    /// Asks the registry for something of the image's repository. Only an answer with status 200 is returned.
    pub(super) async fn ask(
        &self,
        image: &ImageReference,
        method: Method,
        path: &str,
    ) -> Result<Response<Vec<u8>>, RegistryErrorKind> {
        let url = format!("{}/v2/{}/{path}", self.web.origin(&image.registry), image.repository);
        let url: Uri = url.parse().map_err(|_| invalid("the name of the image makes no URL"))?;
        let challenge = self.challenges.lock().get(&image.registry).cloned();
        let earlier = self.authorizations.lock().get(&key(image)).cloned();
        let mut authorization = match (earlier, challenge) {
            (None, Some(challenge)) => Some(self.log_in(image, &url, &challenge).await?),
            (earlier, _) => earlier,
        };
        let mut has_logged_in = false;
        loop {
            let mut request = Request::new(Vec::new());
            (*request.method_mut(), *request.uri_mut()) = (method.clone(), url.clone());
            request.headers_mut().extend(ACCEPTED.map(|media_type| (ACCEPT, HeaderValue::from_static(media_type))));
            request.headers_mut().extend(authorization.take().map(|value| (AUTHORIZATION, value)));
            let answer = self.web.exchange(request).await?;
            match Challenge::of(answer.headers()) {
                Some(challenge) if answer.status() == StatusCode::UNAUTHORIZED && !has_logged_in => {
                    has_logged_in = true;
                    authorization = Some(self.log_in(image, &url, &challenge).await?);
                    self.challenges.lock().insert(image.registry.clone(), challenge);
                }
                _ => return successful(answer, "no credentials fit"),
            }
        }
    }

    async fn log_in(
        &self,
        image: &ImageReference,
        url: &Uri,
        challenge: &Challenge,
    ) -> Result<HeaderValue, RegistryErrorKind> {
        let (login, reason) = match self.credentials.of(image).await {
            Ok(Some(login)) => (Some(login), "it does not accept your credentials".to_owned()),
            Ok(None) => (None, "your Docker configuration has no credentials for it".to_owned()),
            Err(reason) => (None, reason),
        };
        let value = match (challenge, login) {
            (Challenge::Basic, Some(Login::Password(user, password))) => basic(&user, &password),
            (Challenge::Basic, _) => return Err(RegistryErrorKind::Unauthorized(reason)),
            (Challenge::Bearer { .. }, Some(Login::Registry(token))) => format!("Bearer {token}"),
            (Challenge::Bearer { realm, service }, login) => {
                let request = token_request(image, realm, service, login);
                let request = request.map_err(|_| invalid("it names a token server that is no URL"))?;
                if !self.web.may_refer(url, request.uri()) {
                    return Err(invalid("it names a token server without TLS"));
                }
                let answer = successful(self.web.exchange(request).await?, &reason)?;
                let token: Option<Token> = serde_json::from_slice(answer.body()).ok();
                let token = token.and_then(|token| token.token.or(token.access_token));
                format!("Bearer {}", token.ok_or_else(|| invalid("its token server answers without a token"))?)
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| RegistryErrorKind::Unauthorized(reason))?;
        value.set_sensitive(true);
        self.authorizations.lock().insert(key(image), value.clone());
        Ok(value)
    }
}

/// distribution `docs/content/spec/auth/token.md` and `oauth.md`.
fn token_request(
    image: &ImageReference,
    realm: &str,
    service: &str,
    login: Option<Login>,
) -> axum::http::Result<Request<Vec<u8>>> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("scope", &format!("repository:{}:pull", image.repository)).append_pair("service", service);
    if let Some(Login::Identity(token)) = &login {
        form.extend_pairs([("grant_type", "refresh_token"), ("client_id", "winpool"), ("refresh_token", token)]);
        let request = Request::post(realm).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        return request.body(form.finish().into_bytes());
    }
    let separator = if realm.contains('?') { '&' } else { '?' };
    let request = Request::get(format!("{realm}{separator}{}", form.finish()));
    match login {
        Some(Login::Password(user, password)) => request.header(AUTHORIZATION, basic(&user, &password)),
        _ => request,
    }
    .body(Vec::new())
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Turns a status other than 200 into what it means.
fn successful(answer: Response<Vec<u8>>, reason: &str) -> Result<Response<Vec<u8>>, RegistryErrorKind> {
    match answer.status() {
        StatusCode::OK => Ok(answer),
        StatusCode::NOT_FOUND => Err(RegistryErrorKind::NotFound),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryErrorKind::Unauthorized(reason.to_owned())),
        StatusCode::TOO_MANY_REQUESTS => Err(RegistryErrorKind::RateLimited),
        status => Err(RegistryErrorKind::Failed(status.as_u16())),
    }
}

fn invalid(reason: &str) -> RegistryErrorKind {
    RegistryErrorKind::Invalid(reason.to_owned())
}

fn key(image: &ImageReference) -> (String, String) {
    (image.registry.clone(), image.repository.clone())
}
