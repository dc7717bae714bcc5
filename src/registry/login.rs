//! Requests to registries, logged in as far as the registry asks for it.
//!
//! The first request to a registry is anonymous, and its answer says how to log in; later ones know. Credentials go to the
//! registry, and to the token server that it names, as with Docker; that server has to have TLS if the registry has.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use axum::http::{
    HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use winpool_core::image::{ImageReference, document::ACCEPTED};

use super::{
    Options,
    challenge::Challenge,
    credentials::{Credentials, Login},
    error::{OptionsError, Problem},
    web::{Answer, Web, host},
};

/// The largest answer of a token server.
const TOKEN_LIMIT: usize = 1 << 20;

/// What is known of registries and how to log in to them.
pub(super) struct Session {
    pub web: Web,
    credentials: Credentials,
    /// By registry.
    challenges: Mutex<HashMap<String, Challenge>>,
    /// By registry and repository: tokens are for one repository.
    authorizations: Mutex<HashMap<(String, String), HeaderValue>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    pub(super) fn new(options: Options) -> Result<Self, OptionsError> {
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
        limit: usize,
    ) -> Result<Answer, Problem> {
        let url = format!("{}/v2/{}/{path}", self.web.origin(&image.registry), image.repository);
        let url: Uri = url.parse().map_err(|_| invalid(image, "its name makes no URL"))?;
        let mut authorization = self.authorization(image, &url).await?;
        let mut has_logged_in = false;
        loop {
            let mut request = Request::new(Vec::new());
            (*request.method_mut(), *request.uri_mut()) = (method.clone(), url.clone());
            let headers = request.headers_mut();
            headers.extend(ACCEPTED.map(|media_type| (ACCEPT, HeaderValue::from_static(media_type))));
            headers.extend(authorization.take().map(|value| (AUTHORIZATION, value)));
            let answer = self.web.exchange(request, limit).await?;
            let challenge = Challenge::of(&answer.headers);
            match (answer.status, challenge) {
                (StatusCode::OK, _) => return Ok(answer),
                (StatusCode::UNAUTHORIZED, Some(challenge)) if !has_logged_in => {
                    has_logged_in = true;
                    authorization = Some(self.log_in(image, &url, &challenge).await?);
                    lock(&self.challenges).insert(image.registry.clone(), challenge);
                }
                (status, _) => return Err(refusal(status, image.registry.clone(), None)),
            }
        }
    }

    /// What a request to this repository is sent with, as far as it is known.
    async fn authorization(&self, image: &ImageReference, url: &Uri) -> Result<Option<HeaderValue>, Problem> {
        if let Some(known) = lock(&self.authorizations).get(&key(image)) {
            return Ok(Some(known.clone()));
        }
        let challenge = lock(&self.challenges).get(&image.registry).cloned();
        match challenge {
            Some(challenge) => self.log_in(image, url, &challenge).await.map(Some),
            None => Ok(None),
        }
    }

    async fn log_in(&self, image: &ImageReference, url: &Uri, challenge: &Challenge) -> Result<HeaderValue, Problem> {
        let (login, reason) = match self.credentials.of(image).await {
            Ok(login) => (login, None),
            Err(reason) => (None, Some(reason)),
        };
        let unauthorized = |reason| Problem::Unauthorized { host: image.registry.clone(), reason };
        let value = match (challenge, login) {
            (_, Some(Login::RegistryToken(token))) => format!("Bearer {token}"),
            (Challenge::Basic, Some(Login::Password { user, password })) => basic(&user, &password),
            (Challenge::Basic, _) => return Err(unauthorized(reason)),
            (Challenge::Bearer { realm, service }, login) => {
                let request = token_request(image, realm, service.as_deref(), login);
                let request = request.ok_or_else(|| invalid(image, "it names no usable token server"))?;
                if !self.web.may_refer(url, request.uri()) {
                    return Err(invalid(image, "its token server has no TLS"));
                }
                let server = host(request.uri());
                let answer = self.web.exchange(request, TOKEN_LIMIT).await?;
                if answer.status != StatusCode::OK {
                    return Err(refusal(answer.status, server, reason));
                }
                let token: Option<Token> = serde_json::from_slice(&answer.body).ok();
                let token =
                    token.and_then(|token| token.token.or(token.access_token)).filter(|token| !token.is_empty());
                format!("Bearer {}", token.ok_or_else(|| invalid(image, "its token server answers without a token"))?)
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| unauthorized(Some(UNUSABLE.to_owned())))?;
        value.set_sensitive(true);
        lock(&self.authorizations).insert(key(image), value.clone());
        Ok(value)
    }
}

const UNUSABLE: &str = "the credentials have characters that HTTP does not permit";

/// distribution `docs/content/spec/auth/token.md` and `oauth.md`.
fn token_request(
    image: &ImageReference,
    realm: &str,
    service: Option<&str>,
    login: Option<Login>,
) -> Option<Request<Vec<u8>>> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("scope", &format!("repository:{}:pull", image.repository));
    form.extend_pairs(service.map(|service| ("service", service)));
    if let Some(Login::IdentityToken(token)) = &login {
        form.extend_pairs([("grant_type", "refresh_token"), ("client_id", "winpool"), ("refresh_token", token)]);
        let request = Request::post(realm).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        return request.body(form.finish().into_bytes()).ok();
    }
    let separator = if realm.contains('?') { '&' } else { '?' };
    let mut request = Request::get(format!("{realm}{separator}{}", form.finish()));
    if let Some(Login::Password { user, password }) = &login {
        request = request.header(AUTHORIZATION, basic(user, password));
    }
    request.body(Vec::new()).ok()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// What a status other than 200 means.
fn refusal(status: StatusCode, host: String, reason: Option<String>) -> Problem {
    match status {
        StatusCode::NOT_FOUND => Problem::NotFound { host },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Problem::Unauthorized { host, reason },
        _ => Problem::Failed { host, status: status.as_u16() },
    }
}

fn invalid(image: &ImageReference, reason: &str) -> Problem {
    Problem::Invalid { host: image.registry.clone(), reason: reason.to_owned() }
}

fn key(image: &ImageReference) -> (String, String) {
    (image.registry.clone(), image.repository.clone())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
