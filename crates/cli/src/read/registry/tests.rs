//! Hosts that answer what no registry should.

mod logins;
mod tags;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Response;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use winpool_analysis::image::{ImagePlatforms, ImageReference};

use super::{Registry, RegistryErrorKind, RegistryOptions, disk};

const PASSWORD: &str = "swordfish";
const INDEX: &str = r#"{"schemaVersion":2,"manifests":[{"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000",
    "platform":{"os":"windows","architecture":"amd64","os.version":"10.0.20348.1"}}]}"#;

/// A request that a host has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    line: String,
    authorization: Option<String>,
    body: String,
}

/// A host on this machine.
struct Host {
    address: SocketAddr,
    seen: std::sync::Arc<std::sync::Mutex<Vec<Seen>>>,
}

impl Host {
    /// Answers each request, of which the line such as `GET /v2/…` and the header `Authorization` are given, with this.
    async fn start(answer: impl Fn(&Seen) -> Response<Body> + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = std::sync::Arc::<std::sync::Mutex<Vec<Seen>>>::default();
        let all = seen.clone();
        let answer = async move |request: Request| {
            let line = format!("{} {}", request.method(), request.uri());
            let authorization = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            let seen = Seen { line, authorization, body: String::from_utf8(body.into()).unwrap() };
            all.lock().unwrap().push(seen.clone());
            answer(&seen)
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { address, seen }
    }

    fn image(&self, version: &str) -> ImageReference {
        format!("{}/team/app{version}", self.address).parse().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// A client with a cache and a Docker configuration of its own.
struct Client {
    registry: Registry,
    folder: TempDir,
}

impl Client {
    fn new(configuration: &Value) -> Self {
        Self::with(configuration, RegistryOptions::default())
    }

    fn with(configuration: &Value, options: RegistryOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        fs::write(&file, configuration.to_string()).unwrap();
        let cache = Some(folder.path().join("cache"));
        let options = RegistryOptions { registry_config: Some(file), registry_cache: cache, ..options };
        Self { registry: Registry::new(options).unwrap(), folder }
    }

    /// A client of a later process, with the same files.
    fn again(&self) -> Registry {
        let path = |name: &str| Some(self.folder.path().join(name));
        let options = RegistryOptions {
            registry_config: path("config.json"),
            registry_cache: path("cache"),
            ..RegistryOptions::default()
        };
        Registry::new(options).unwrap()
    }

    async fn problem(&self, image: &ImageReference) -> RegistryErrorKind {
        let error = self.registry.platforms(image).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&image.to_string()), "{text}");
        assert!(!text.contains(PASSWORD) && text.len() < 600, "{text}");
        error.kind
    }
}

fn answer(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

fn with(mut response: Response<Body>, name: axum::http::HeaderName, value: &str) -> Response<Body> {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

fn token_server(realm: &str) -> Response<Body> {
    with(answer(401, ""), WWW_AUTHENTICATE, &format!(r#"Bearer realm="{realm}""#))
}

fn says(problem: &RegistryErrorKind, text: &str) -> bool {
    matches!(problem, RegistryErrorKind::Invalid(reason) if reason.contains(text))
}

fn password_of(host: &Host) -> Value {
    json!({"auths": {host.address.to_string(): {"auth": BASE64_STANDARD.encode(format!("me:{PASSWORD}"))}}})
}

/// Sends as much as is read.
fn endless() -> Body {
    Body::from_stream(futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 4096]))))
}

#[tokio::test]
async fn each_unusable_answer_has_its_problem() {
    type Case = (&'static str, fn() -> Response<Body>, fn(&RegistryErrorKind) -> bool);
    let deep = || answer(200, format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let cases: [Case; 21] = [
        ("404", || answer(404, "{}"), |problem| *problem == RegistryErrorKind::NotFound),
        (
            "401 without a challenge",
            || answer(401, ""),
            |problem| matches!(problem, RegistryErrorKind::Unauthorized(_)),
        ),
        ("403", || answer(403, ""), |problem| matches!(problem, RegistryErrorKind::Unauthorized(_))),
        (
            "a challenge without credentials",
            || with(answer(401, ""), WWW_AUTHENTICATE, "Basic"),
            |problem| matches!(problem, RegistryErrorKind::Unauthorized(_)),
        ),
        (
            "a token server of another scheme",
            || token_server("ftp://token.test/"),
            |problem| says(problem, "without TLS"),
        ),
        ("a token server without TLS", || token_server("http://token.test/"), |problem| says(problem, "without TLS")),
        ("a token server without URL", || token_server("http://"), |problem| says(problem, "no URL")),
        ("500", || answer(500, "x"), |problem| *problem == RegistryErrorKind::Failed(500)),
        ("503", || answer(503, "x"), |problem| *problem == RegistryErrorKind::Failed(503)),
        ("429", || answer(429, ""), |problem| *problem == RegistryErrorKind::RateLimited),
        (
            "429 until another century",
            || with(answer(429, ""), RETRY_AFTER, "Thu, 01 Jan 2099 00:00:00 GMT"),
            |problem| *problem == RegistryErrorKind::RateLimited,
        ),
        (
            "429 for a time that is none",
            || with(answer(429, ""), RETRY_AFTER, "soon"),
            |problem| *problem == RegistryErrorKind::RateLimited,
        ),
        (
            "429 for an hour",
            || with(answer(429, ""), RETRY_AFTER, "3600"),
            |problem| *problem == RegistryErrorKind::RateLimited,
        ),
        (
            "100 MB",
            || with(answer(200, vec![b' '; 100 << 20]), CONTENT_LENGTH, "104857600"),
            |problem| *problem == RegistryErrorKind::TooLarge(4 << 20),
        ),
        ("endless", || answer(200, endless()), |problem| *problem == RegistryErrorKind::TooLarge(4 << 20)),
        ("no JSON", || answer(200, "<html>"), |problem| says(problem, "cannot be read")),
        ("nothing", || answer(200, ""), |problem| says(problem, "cannot be read")),
        ("deep", deep, |problem| says(problem, "cannot be read")),
        ("a redirect to itself", || with(answer(302, ""), LOCATION, "/again"), |problem| says(problem, "too often")),
        (
            "a redirect to a host without TLS",
            || with(answer(302, ""), LOCATION, "http://169.254.169.254/latest"),
            |problem| says(problem, "does not follow"),
        ),
        (
            "a redirect to a file",
            || with(answer(302, ""), LOCATION, "file:///etc/passwd"),
            |problem| says(problem, "does not follow"),
        ),
    ];
    for (name, response, is_expected) in cases {
        let host = Host::start(move |_| response()).await;
        let problem = Client::new(&json!({})).problem(&host.image(":1")).await;
        assert!(is_expected(&problem), "{name}: {problem:?}");
    }
}

#[tokio::test]
async fn documents_are_compared_with_their_digest() {
    let host = Host::start(|_| answer(200, INDEX)).await;
    let digest = disk::sha256(INDEX.as_bytes());
    let other = format!("@sha256:{}", "0".repeat(64));
    let client = Client::new(&json!({}));
    let platforms = client.registry.platforms(&host.image(&format!("@{digest}"))).await.unwrap();
    assert_eq!(platforms.platforms[0].os_version.as_deref(), Some("10.0.20348.1"));
    let problem = client.problem(&host.image(&other)).await;
    assert!(says(&problem, "another digest"), "{problem:?}");
}

#[tokio::test]
async fn indexes_that_hide_their_platforms_are_followed_to_a_limit() {
    let nested = r#"{"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    let entry = |digest: &str| json!({"digest": digest});
    let inner = disk::sha256(nested.as_bytes());
    let outer = json!({"manifests": [entry(&inner)]}).to_string();
    let many: Vec<_> = (0..17).map(|number| entry(&format!("sha256:{number:064x}"))).collect();
    let many = json!({"manifests": many}).to_string();
    let documents = BTreeMap::from(
        [outer.clone(), many.clone(), nested.to_owned()].map(|text| (disk::sha256(text.as_bytes()), text)),
    );
    let host = Host::start(move |seen| {
        let digest = seen.line.rsplit('/').next().unwrap();
        documents.get(digest).map_or_else(|| answer(404, ""), |text| answer(200, text.clone()))
    })
    .await;
    let client = Client::new(&json!({}));
    for (document, expected) in [(outer, "index inside"), (many, "do not say their platform")] {
        let problem = client.problem(&host.image(&format!("@{}", disk::sha256(document.as_bytes())))).await;
        assert!(says(&problem, expected), "{problem:?}");
    }
    assert_eq!(host.seen().len(), 3, "no variant of an index with too many is asked for");
}

#[tokio::test]
async fn a_host_that_asks_for_a_short_pause_gets_it() {
    let host = Host::start(|_| answer(200, INDEX)).await;
    let target = host.url("/v2/team/app/manifests/1");
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let busy = Host::start(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => with(answer(429, ""), RETRY_AFTER, "1"),
        1 => with(answer(503, ""), RETRY_AFTER, "0"),
        // A date in the past.
        2 => with(answer(429, ""), RETRY_AFTER, "Sun, 06 Nov 1994 08:49:37 GMT"),
        _ => with(answer(307, ""), LOCATION, &target),
    })
    .await;
    let started = Instant::now();
    Client::new(&json!({})).registry.platforms(&busy.image(":1")).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));

    let always = Host::start(|_| with(answer(429, ""), RETRY_AFTER, "0")).await;
    let problem = Client::new(&json!({})).problem(&always.image(":1")).await;
    assert_eq!(problem, RegistryErrorKind::RateLimited);
    assert_eq!(always.seen().len(), 6, "it waits 5 times");
}

#[tokio::test]
async fn a_host_that_fails_repeatedly_gets_no_more_requests() {
    // The kernel accepts connections, and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let host = silent.local_addr().unwrap();
    let mut client = Client::new(&json!({}));
    client.registry.limit = Duration::from_millis(200);
    let images: Vec<ImageReference> = (0..100).map(|tag| format!("{host}/app:{tag}").parse().unwrap()).collect();
    let answers = client.registry.resolve_all(images).await;
    assert_eq!(answers.len(), 100);
    let problems: Vec<_> = answers.into_values().map(|answer| answer.unwrap_err().kind).collect();
    assert!(
        problems.iter().all(|problem| *problem == RegistryErrorKind::TimedOut(Duration::from_millis(200))),
        "{problems:?}"
    );
    let connections = std::iter::from_fn(|| silent.accept().ok()).count();
    // Eight at first, and one more for each of the first two that fail.
    assert!((8..=10).contains(&connections), "{connections} connections");

    let gone = format!("{host}/app:1").parse().unwrap();
    drop(silent);
    let problem = Client::new(&json!({})).problem(&gone).await;
    assert!(matches!(problem, RegistryErrorKind::Unreachable(_)), "{problem:?}");
}

#[tokio::test]
async fn credentials_are_sent_only_to_the_first_host() {
    let elsewhere = Host::start(|_| answer(200, INDEX)).await;
    let target = elsewhere.url("/elsewhere");
    let host = Host::start(move |seen| match (&seen.authorization, seen.line.as_str()) {
        (None, _) => with(answer(401, ""), WWW_AUTHENTICATE, r#"Basic realm="x""#),
        (Some(_), line) if line.ends_with("/here") => with(answer(307, ""), LOCATION, &target),
        (Some(_), _) => with(answer(307, ""), LOCATION, "/here"),
    })
    .await;
    let client = Client::new(&password_of(&host));
    client.registry.platforms(&host.image(&format!("@{}", disk::sha256(INDEX.as_bytes())))).await.unwrap();
    let here: Vec<_> = host.seen().into_iter().map(|seen| seen.authorization.is_some()).collect();
    assert_eq!(here, [false, true, true], "also after a redirect on the same host");
    let there: Vec<_> = elsewhere.seen().into_iter().map(|seen| (seen.line, seen.authorization)).collect();
    assert_eq!(there, [("GET /elsewhere".to_owned(), None)]);
}

#[test]
fn errors_about_options_do_not_show_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let options = |is_authority: bool| {
        let (registry_config, registry_ca) =
            if is_authority { (None, Some(file.clone())) } else { (Some(file.clone()), None) };
        RegistryOptions { registry_config, registry_ca, ..RegistryOptions::default() }
    };
    let error = |is_authority| Registry::new(options(is_authority)).map(drop).unwrap_err().to_string();
    for is_authority in [false, true] {
        assert!(error(is_authority).starts_with(&format!("cannot use {}: No such file", file.display())));
    }
    fs::write(&file, format!("{{\"auths\": {{\"a.test\": \"{PASSWORD}\"}}}}")).unwrap();
    let text = error(false);
    assert!(text.contains("line 1, column") && !text.contains(PASSWORD), "{text}");
    assert!(error(true).contains("no certificate"));
    let offline = RegistryOptions { offline: true, ..options(false) };
    assert!(Registry::new(offline).is_ok(), "there is nobody to log in to");
}

#[tokio::test]
async fn offline_nothing_is_asked_and_what_was_cached_is_used() {
    let digest = disk::sha256(INDEX.as_bytes());
    let named = digest.clone();
    let host =
        Host::start(move |_| with(answer(200, INDEX), axum::http::HeaderName::from_static(super::DIGEST), &named))
            .await;
    let online = Client::new(&json!({}));
    let directory = online.folder.path().join("cache");
    let cache = Some(directory.clone());
    let (image, other) = (host.image(":1"), host.image(":2"));
    let expected = online.registry.platforms(&image).await.unwrap();
    // The first process gets digest and document at once. The next one only asks if the tag has moved.
    assert_eq!(online.again().platforms(&image).await.unwrap(), expected);
    let lines: Vec<_> = host.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["GET /v2/team/app/manifests/1", "HEAD /v2/team/app/manifests/1"]);

    let offline =
        Registry::new(RegistryOptions { registry_cache: cache.clone(), offline: true, ..RegistryOptions::default() })
            .unwrap();
    let by_digest = host.image(&format!("@{digest}"));
    let answers = offline.resolve_all([image.clone(), by_digest, other.clone(), image.clone()]).await;
    assert_eq!(answers.len(), 3);
    for (asked, answer) in answers {
        let answer: Result<ImagePlatforms, _> = answer.map_err(|error| error.kind);
        assert_eq!(answer, if asked == other { Err(RegistryErrorKind::Offline) } else { Ok(expected.clone()) });
    }
    assert_eq!(host.seen().len(), 2);

    // A forged file is not believed.
    let document = directory.join("v1").join(digest.replace(':', "/"));
    assert_eq!(fs::metadata(&document).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&document, INDEX.replace("20348", "17763")).unwrap();
    let offline = Registry { known: super::Mutex::default(), ..offline };
    assert_eq!(offline.platforms(&image).await.unwrap_err().kind, RegistryErrorKind::Offline);
}

#[test]
fn the_oldest_files_of_a_large_cache_are_removed() {
    let folder = TempDir::new().unwrap();
    let options =
        |offline| RegistryOptions { registry_cache: Some(folder.path().into()), offline, ..RegistryOptions::default() };
    fs::create_dir_all(folder.path().join("v1/sha256")).unwrap();
    let names = ["v1/sha256/new", "v1/sha256/old", "of-others"];
    for (age, name) in names.iter().enumerate() {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        file.set_len(200 << 20).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_hours(age as u64)).unwrap();
    }
    let left = || names.map(|name| folder.path().join(name).exists());
    Registry::new(options(true)).unwrap();
    assert_eq!(left(), [true; 3]);
    Registry::new(options(false)).unwrap();
    assert_eq!(left(), [true, false, true]);
}
