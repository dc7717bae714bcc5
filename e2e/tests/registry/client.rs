//! Tests of winpool's client with a real registry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use winpool::read::registry::{Registry, RegistryErrorKind, RegistryOptions};
use winpool_analysis::image::{ImagePlatforms, ImageReference, Source};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::registry::{ImageRegistry, PASSWORD, Protection, USER};

pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Returns the options of a user who has logged in with this password.
fn options(folder: &TempDir, registry: &ImageRegistry, password: Option<&str>) -> RegistryOptions {
    let auth = password.map(|password| BASE64_STANDARD.encode(format!("{USER}:{password}")));
    let auths: BTreeMap<_, _> = auth.map(|auth| (registry.host(), json!({"auth": auth}))).into_iter().collect();
    let file = folder.path().join(format!("config-{}.json", password.unwrap_or("none")));
    std::fs::write(&file, json!({"auths": auths}).to_string()).unwrap();
    let cache = Some(folder.path().join("cache"));
    RegistryOptions { registry_config: Some(file), registry_cache: cache, ..RegistryOptions::default() }
}

fn reference(registry: &ImageRegistry, name: &str) -> ImageReference {
    format!("{}/{name}", registry.host()).parse().unwrap()
}

/// Returns an entry of an index for a platform: `windows/amd64/10.0.20348.1`, `linux/arm64`.
fn entry(media_type: &str, number: u64, platform: &str) -> Value {
    let mut parts = platform.split('/');
    let (os, architecture) = (parts.next().unwrap(), parts.next().unwrap());
    let mut platform = json!({"os": os, "architecture": architecture});
    if let Some(version) = parts.next() {
        platform["os.version"] = json!(version);
    }
    json!({"mediaType": media_type, "digest": format!("sha256:{number:064x}"), "size": 1_000, "platform": platform})
}

pub fn index(media_type: &str, manifest: &str, platforms: &[&str]) -> Value {
    let manifests: Vec<_> = (1..).zip(platforms).map(|(number, platform)| entry(manifest, number, platform)).collect();
    json!({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests})
}

/// Formats platforms: `windows/amd64/10.0.20348.1`.
fn words(platforms: &ImagePlatforms) -> Vec<String> {
    let words = |platform: &winpool_analysis::image::Platform| {
        let version = platform.os_version.iter().map(|version| format!("/{version}"));
        version.fold(format!("{}/{}", platform.os, platform.architecture), |text, version| text + &version)
    };
    platforms.platforms.iter().map(words).collect()
}

#[tokio::test]
async fn platforms_are_those_that_were_pushed() {
    let registry = ImageRegistry::start(Protection::None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let usual = ["windows/amd64/10.0.20348.1", "windows/amd64/10.0.26100.1", "linux/amd64", "linux/arm64"];
    let mut attested = index(OCI_INDEX, OCI_MANIFEST, &["windows/amd64/10.0.17763.1", "unknown/unknown"]);
    attested["manifests"][1]["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let windows = json!({"os": "windows", "architecture": "amd64", "os.version": "10.0.17763.6189", "rootfs": {"type": "layers"}});
    let single = registry.push_image("team/base", "single", &windows, false).await.unwrap();
    let unnamed = json!({"schemaVersion": 2, "mediaType": OCI_INDEX,
        "manifests": [{"mediaType": OCI_MANIFEST, "digest": single, "size": 1_000}, entry(OCI_MANIFEST, 1, "linux/amd64")]});
    for (tag, document) in [
        ("oci", index(OCI_INDEX, OCI_MANIFEST, &usual)),
        ("docker", index(DOCKER_LIST, DOCKER_MANIFEST, &usual)),
        ("attested", attested),
        ("no-version", index(OCI_INDEX, OCI_MANIFEST, &["windows/amd64"])),
        ("unnamed", unnamed),
        ("empty", index(OCI_INDEX, OCI_MANIFEST, &[])),
    ] {
        registry.push("team/base", tag, &document).await.unwrap();
    }
    registry.push_image("team/base", "docker-single", &windows, true).await.unwrap();
    registry.push_image("team/base", "linux", &json!({"os": "linux", "architecture": "amd64"}), false).await.unwrap();
    registry.push_image("team/base", "chart", &json!({"name": "a Helm chart"}), false).await.unwrap();

    let client = Registry::new(options(&folder, &registry, None)).unwrap();
    for (tag, source, expected) in [
        ("oci", Source::Index, &usual[..]),
        ("docker", Source::Index, &usual),
        ("attested", Source::Index, &["windows/amd64/10.0.17763.1"]),
        ("no-version", Source::Index, &["windows/amd64"]),
        // Platforms that only a config contains come last.
        ("unnamed", Source::Index, &["linux/amd64", "windows/amd64/10.0.17763.6189"]),
        ("empty", Source::Index, &[]),
        ("single", Source::Manifest, &["windows/amd64/10.0.17763.6189"]),
        ("docker-single", Source::Manifest, &["windows/amd64/10.0.17763.6189"]),
        ("linux", Source::Manifest, &["linux/amd64"]),
    ] {
        let platforms = client.platforms(&reference(&registry, &format!("team/base:{tag}"))).await.unwrap();
        assert_eq!(
            (words(&platforms), platforms.source),
            (expected.iter().map(ToString::to_string).collect(), source),
            "{tag}"
        );
    }
    let by_digest = reference(&registry, &format!("team/base:other@{single}"));
    assert_eq!(client.platforms(&by_digest).await.unwrap().digest, single);

    for (name, is_expected) in [
        (
            "team/base:chart",
            (|problem| matches!(problem, RegistryErrorKind::Invalid(_))) as fn(&RegistryErrorKind) -> bool,
        ),
        ("team/base:none", |problem| *problem == RegistryErrorKind::NotFound),
        ("team/none:1", |problem| *problem == RegistryErrorKind::NotFound),
    ] {
        let error = client.platforms(&reference(&registry, name)).await.unwrap_err();
        assert!(is_expected(&error.kind), "{error}");
    }
}

#[tokio::test]
async fn a_protected_registry_answers_those_who_have_logged_in() {
    for protection in [Protection::Basic, Protection::Token] {
        let registry = ImageRegistry::start(protection).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = json!({"os": "windows", "architecture": "amd64", "os.version": "10.0.20348.1"});
        registry.push_image("app", "1", &config, false).await.unwrap();
        let image = reference(&registry, "app:1");
        for password in [None, Some("wrong")] {
            let client = Registry::new(options(&folder, &registry, password)).unwrap();
            let error = client.platforms(&image).await.unwrap_err();
            assert!(matches!(error.kind, RegistryErrorKind::Unauthorized(_)), "{protection:?}, {password:?}: {error}");
        }
        let before = pulls(&registry).len();
        let client = Registry::new(options(&folder, &registry, Some(PASSWORD))).unwrap();
        let platforms = client.platforms(&image).await.unwrap();
        assert_eq!(words(&platforms), ["windows/amd64/10.0.20348.1"], "{protection:?}");
        // The requests are the refused one and those for the manifest and the config.
        let all = pulls_until(&registry, before + 3).await;
        assert_eq!(all.len() - before, 3, "{:?}", &all[before..]);
    }
}

#[tokio::test]
async fn a_certificate_of_the_users_own_authority_is_trusted_if_it_is_named() {
    let registry = ImageRegistry::start(Protection::Tls).await.unwrap();
    let other = ImageRegistry::start(Protection::Tls).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    registry.push("app", "1", &index(OCI_INDEX, OCI_MANIFEST, &["linux/amd64"])).await.unwrap();
    let ask = async |authority: Option<&Path>| {
        let options =
            RegistryOptions { registry_ca: authority.map(Path::to_owned), ..options(&folder, &registry, None) };
        Registry::new(options).unwrap().platforms(&reference(&registry, "app:1")).await
    };
    assert_eq!(words(&ask(Some(&registry.authority())).await.unwrap()), ["linux/amd64"]);
    let error = ask(Some(&other.authority())).await.unwrap_err();
    assert!(matches!(&error.kind, RegistryErrorKind::Unreachable(reason) if reason.contains("certificate")), "{error}");
    // Without an authority, the client uses plain HTTP for a loopback address.
    let error = ask(None).await.unwrap_err();
    assert_eq!(error.kind, RegistryErrorKind::Failed(400));
}

/// There are 10 teams, each with 50 different images, half of them without an index, and 5 additional tags.
#[tokio::test]
async fn each_of_500_images_costs_one_manifest_request() {
    const TEAMS: usize = 10;
    let registry = ImageRegistry::start(Protection::None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut digests = BTreeSet::new();
    for (team, image) in (0..TEAMS).flat_map(|team| (0..50).map(move |image| (team, image))) {
        let repository = format!("team-{team}/app");
        let version = format!("10.0.20348.{}", team * 100 + image);
        let platform = format!("windows/amd64/{version}");
        let document = index(OCI_INDEX, OCI_MANIFEST, &[&platform, "linux/amd64"]);
        let config = json!({"os": "windows", "architecture": "amd64", "os.version": version});
        for tag in [Some(image), Some(image + 50).filter(|tag| *tag < 55)].into_iter().flatten() {
            let tag = tag.to_string();
            digests.insert(if image < 25 {
                registry.push(&repository, &tag, &document).await.unwrap()
            } else {
                registry.push_image(&repository, &tag, &config, image % 2 == 0).await.unwrap()
            });
        }
    }
    let tagged = |tags: std::ops::Range<usize>| -> BTreeSet<_> {
        let names = (0..TEAMS).flat_map(|team| tags.clone().map(move |tag| format!("team-{team}/app:{tag}")));
        names.map(|name| reference(&registry, &name)).collect()
    };
    let images = tagged(0..50);
    assert_eq!((images.len(), digests.len()), (500, 500));

    let started = Instant::now();
    let client = Registry::new(options(&folder, &registry, None)).unwrap();
    let answers = client.resolve_all(images.clone()).await;
    println!("500 images: {:?}", started.elapsed());
    assert!(answers.values().all(Result::is_ok));
    let found: BTreeSet<_> = answers.values().flatten().map(|platforms| platforms.digest.clone()).collect();
    assert_eq!(found, digests);

    let of = |all: &[String], beginning: &str, kind: &str| {
        all.iter().filter(|line| line.starts_with(beginning) && line.contains(kind)).cloned().collect::<Vec<_>>()
    };
    let all = pulls_until(&registry, 500 + 250).await;
    assert_eq!(of(&all, "", "/manifests/").len(), 500, "one request for each distinct digest");
    assert_eq!((of(&all, "GET ", "/blobs/").len(), all.len()), (250, 750));

    // The registry alone knows the digest of another tag. What the digest stands for is known.
    assert!(client.resolve_all(tagged(50..55)).await.values().all(Result::is_ok));
    let all = pulls_until(&registry, 750 + 50).await;
    assert_eq!(all.len(), 750 + 50);

    // A new client finds all documents on disk.
    let started = Instant::now();
    let again = Registry::new(options(&folder, &registry, None)).unwrap().resolve_all(images).await;
    println!("again, from the cache: {:?}", started.elapsed());
    assert_eq!(again, answers);
    let all = pulls_until(&registry, 800 + 500).await;
    assert_eq!((all.len(), of(&all, "HEAD ", "/manifests/").len()), (1_300, 500));
}

/// Returns the read requests so far.
fn pulls(registry: &ImageRegistry) -> Vec<String> {
    let requests = registry.requests().unwrap().into_iter().map(|(request, _)| request);
    requests.filter(|line| line.starts_with("GET /v2/") || line.starts_with("HEAD /v2/")).collect()
}

/// Waits for a number of read requests, because the registry writes its log after it answers.
async fn pulls_until(registry: &ImageRegistry, count: usize) -> Vec<String> {
    wait_for("the requests are logged", LIMIT, async || {
        let all = pulls(registry);
        Ok((all.len() >= count).then_some(all))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used_as_curl_uses_it() {
    let registry = ImageRegistry::start(Protection::None).await.unwrap();
    registry.push("app", "1", &index(OCI_INDEX, OCI_MANIFEST, &["linux/amd64"])).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let target = registry.host();
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let seen = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            seen.lock().unwrap().push(String::from_utf8(head).unwrap());
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut stream, &mut server).await });
        }
    });
    // Environment variables apply to the whole process, so another process runs the client.
    for (exceptions, is_used) in [("other.test", true), ("registry.test", false)] {
        heads.lock().unwrap().clear();
        let child = std::env::current_exe().unwrap();
        let mut command = Command::new(child);
        command.args(["--exact", "client::asks_through_the_proxy", "--ignored", "--nocapture"]);
        command.env("HTTP_PROXY", format!("http://me:sword%40fish@{proxy}")).env("NO_PROXY", exceptions);
        command.env("DOCKER_CONFIG", "/nonexistent");
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert_eq!(output.status.success(), is_used, "{}", String::from_utf8_lossy(&output.stdout));
        let heads = heads.lock().unwrap().clone();
        assert_eq!(!heads.is_empty(), is_used);
        let basic = format!("Basic {}", BASE64_STANDARD.encode("me:sword@fish"));
        for head in heads {
            assert!(head.starts_with("CONNECT registry.test:5000 ") && head.contains(&basic), "{head}");
        }
    }
}

#[tokio::test]
#[ignore = "run by a_proxy_of_the_environment_is_used_as_curl_uses_it"]
async fn asks_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let plain_http = vec!["registry.test:5000".to_owned()];
    let cache = Some(folder.path().to_owned());
    let client =
        Registry::new(RegistryOptions { plain_http, registry_cache: cache, ..RegistryOptions::default() }).unwrap();
    client.platforms(&"registry.test:5000/app:1".parse().unwrap()).await.unwrap();
}
