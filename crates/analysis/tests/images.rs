//! What registries answer, and on which nodes an image runs.

use proptest::prelude::*;
use serde_json::{Value, json};
use winpool_analysis::image::document::MOST_ENTRIES;
use winpool_analysis::image::known::summary;
use winpool_analysis::image::matching::chosen;
use winpool_analysis::image::{
    Document, DocumentError, Host, ImagePlatforms, Platform, Source, read, read_config, runs_on,
};
use winpool_core::api::Isolation;
use winpool_core::windows::{Build, KernelVersion};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

fn parse(media_type: Option<&str>, value: &Value) -> Result<Document, DocumentError> {
    read(media_type, value.to_string().as_bytes())
}

fn entry(platform: &Value) -> Value {
    json!({"digest": DIGEST, "mediaType": OCI_MANIFEST, "size": 1, "platform": platform})
}

fn platform(version: &str) -> Platform {
    let os_version = (!version.is_empty()).then(|| version.to_owned());
    Platform { os: "windows".to_owned(), architecture: "amd64".to_owned(), os_version, ..Platform::default() }
}

#[test]
fn an_index_names_platforms_and_attestations_are_none() {
    let index = json!({"schemaVersion": 2, "manifests": [
        entry(&json!({"os": "windows", "architecture": "amd64", "os.version": "10.0.20348.1", "os.features": ["win32k"]})),
        entry(&json!({"os": "linux", "architecture": "arm64", "variant": "v8", "os.version": ""})),
        entry(&json!({"os": "unknown", "architecture": "unknown"})),
        {"digest": DIGEST, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}},
        {"digest": DIGEST, "annotations": {"other": "x"}},
    ]});
    for media_type in [Some(OCI_INDEX), Some(LIST), None, Some("application/json; charset=utf-8")] {
        let Document::Index(entries) = parse(media_type, &index).unwrap() else { panic!("{media_type:?}") };
        let platforms: Vec<_> = entries.into_iter().map(|entry| entry.platform).collect();
        let windows = Platform { os_features: vec!["win32k".to_owned()], ..platform("10.0.20348.1") };
        let linux = Platform {
            os: "linux".to_owned(),
            architecture: "arm64".to_owned(),
            variant: Some("v8".to_owned()),
            ..Platform::default()
        };
        assert_eq!(platforms, [Some(windows), Some(linux), None], "{media_type:?}");
    }
}

#[test]
fn a_manifest_names_its_config_and_that_the_platform() {
    let config = "application/vnd.docker.container.image.v1+json";
    let manifest = json!({"config": {"digest": DIGEST, "mediaType": config}, "layers": []});
    for media_type in [Some(OCI_MANIFEST), Some(MANIFEST), None] {
        let read = parse(media_type, &manifest).unwrap();
        assert_eq!(read, Document::Manifest { config: DIGEST.to_owned(), media_type: config.to_owned() });
    }
    let config = json!({"os": "windows", "architecture": "amd64", "os.version": "10.0.17763.1", "history": [{}]});
    assert_eq!(read_config(config.to_string().as_bytes()), Ok(platform("10.0.17763.1")));
    assert_eq!(read_config(b"{}"), Err(DocumentError::NoPlatform));
}

#[test]
fn anything_else_is_refused_with_a_reason() {
    let config = json!({"digest": DIGEST});
    let many: Vec<Value> = (0..=MOST_ENTRIES).map(|_| entry(&json!({}))).collect();
    for (media_type, answer, reason) in [
        (None, json!({}), "neither an image index nor an image manifest"),
        (Some("text/html"), json!({}), "text/html"),
        (None, json!([]), "cannot be read"),
        (None, json!({"fsLayers": [], "schemaVersion": 1}), "schema 1"),
        (Some(OCI_INDEX), json!({"manifests": [], "config": config}), "has the fields of another type"),
        (Some(MANIFEST), json!({"manifests": [], "config": config}), "has the fields of another type"),
        (Some(MANIFEST), json!({"mediaType": LIST, "config": config}), "has the fields of another type"),
        (None, json!({"manifests": many}), "more than 1000 entries"),
        (None, json!({"manifests": [{"digest": "x"}]}), "not a digest"),
        (None, json!({"config": {"digest": "sha256:../../x"}}), "not a digest"),
        (None, json!({"manifests": [entry(&json!({"os": "win\u{1b}[2J"}))]}), "a platform that cannot be read"),
        (None, json!({"manifests": [entry(&json!({"os": "x".repeat(1000)}))]}), "a platform that cannot be read"),
    ] {
        let error = parse(media_type, &answer).unwrap_err().to_string();
        assert!(error.contains(reason) && error.len() < 400 && !error.contains('\u{1b}'), "{error}");
    }
}

fn host(kernel: &str, runtime: &str) -> Host {
    let (build, revision) = kernel.split_once('.').unwrap_or((kernel, "0"));
    let kernel = KernelVersion { build: Build::new(build.parse().unwrap()), revision: revision.parse().ok() };
    Host { kernel, architecture: "amd64".to_owned(), runtime: runtime.parse().ok() }
}

/// containerd's releases at both ends of each row of the table in `crates/analysis/src/image/matching.rs`.
const EXACT: [&str; 6] = [
    "containerd://1.6.22",
    "containerd://1.7.5",
    "containerd://2.0.0-rc.6",
    "containerd://Unknown",
    "docker://28.0.0",
    "",
];
const SINCE_2022: [&str; 7] = [
    "containerd://1.6.23",
    "containerd://1.6.36",
    "containerd://1.7.6",
    "containerd://1.7.18+azure",
    "containerd://1.7.33",
    "containerd://2.0.0",
    "containerd://2.1.5",
];
const BELOW_HOST: [&str; 4] = ["containerd://2.1.6", "containerd://2.2.9", "containerd://2.3.0", "containerd://2.3.4"];
const GENERATION: [&str; 3] = ["containerd://2.3.5", "containerd://2.4.0", "containerd://3.0.0"];

/// Releases of containerd with one rule, and which images fit which host.
type Row = (&'static [&'static str], [(&'static str, &'static str); 5]);

#[test]
fn an_index_fits_hosts_by_the_rule_of_their_containerd() {
    const IMAGES: [&str; 8] = [
        "10.0.17763.1",
        "10.0.19042.1",
        "10.0.20348.1",
        "10.0.25398.1",
        "10.0.26100.1",
        "10.0.26200.1",
        "6.3.9600.1",
        "10.0",
    ];
    let rows: [Row; 4] = [
        (
            &EXACT,
            [
                ("17763", "Ynnnnnnn"),
                ("20348", "nnYnnnnn"),
                ("25398", "nnnYnnnn"),
                ("26100", "nnnnYnnn"),
                ("26200", "nnnnnYnn"),
            ],
        ),
        (
            &SINCE_2022,
            [
                ("17763", "Ynnnnnnn"),
                ("20348", "nnYnnnnn"),
                ("25398", "nnYYnnnn"),
                ("26100", "nnYYYnnn"),
                ("26200", "nnYYYYnn"),
            ],
        ),
        (
            &BELOW_HOST,
            [
                ("17763", "Ynnnnnnn"),
                ("20348", "nnYnnnnn"),
                ("25398", "nnYYnnnn"),
                ("26100", "nnYYYnnn"),
                ("26200", "nnnnYYnn"),
            ],
        ),
        (
            &GENERATION,
            [
                ("17763", "Ynnnnnnn"),
                ("20348", "nnYnnnnn"),
                ("25398", "nnYYnnnn"),
                ("26100", "nnYYYnnn"),
                ("26200", "nnYYYYnn"),
            ],
        ),
    ];
    for (runtimes, hosts) in rows {
        for (runtime, (build, row)) in runtimes.iter().flat_map(|runtime| hosts.iter().map(move |row| (runtime, row))) {
            let host = host(build, runtime);
            let fits: String = IMAGES
                .iter()
                .map(|image| if chosen(&[platform(image)], &host).is_some() { 'Y' } else { 'n' })
                .collect();
            assert_eq!(fits, *row, "{build} with {runtime}");
            assert!(chosen(&[platform("")], &host).is_some(), "a variant without version fits each host");
        }
    }
}

#[test]
fn early_releases_take_the_first_variant_and_later_ones_the_highest() {
    let of = |versions: &[&str]| versions.iter().map(|version| platform(version)).collect::<Vec<_>>();
    for (versions, first, highest) in [
        (&["10.0.20348.1", "10.0.26100.2"][..], "10.0.20348.1", "10.0.26100.2"),
        (&["10.0.20348.1006", "10.0.20348.999"], "10.0.20348.1006", "10.0.20348.999"),
        (&["", "10.0.20348.1"], "", "10.0.20348.1"),
        (&["10.0.17763.1", "10.0.20348.1", "10.0.20348.1"], "10.0.20348.1", "10.0.20348.1"),
    ] {
        let platforms = of(versions);
        for (runtime, expected) in SINCE_2022.map(|r| (r, first)).into_iter().chain(BELOW_HOST.map(|r| (r, highest))) {
            let taken = chosen(&platforms, &host("26100", runtime)).unwrap();
            assert_eq!(taken.os_version.as_deref().unwrap_or_default(), expected, "{versions:?} with {runtime}");
        }
    }
}

#[test]
fn architecture_and_features_decide_too() {
    let with = |architecture: &str, variant: &str, features: &[&str]| Platform {
        architecture: architecture.to_owned(),
        variant: (!variant.is_empty()).then(|| variant.to_owned()),
        os_features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        ..platform("10.0.20348.1")
    };
    for (platform, early, late) in [
        (with("amd64", "", &[]), true, true),
        (with("AMD64", "v1", &[]), true, true),
        (with("x86_64", "", &[]), true, true),
        (with("amd64", "v2", &[]), false, false),
        (with("arm64", "", &[]), false, false),
        // `platforms.Only` takes what the processor runs besides.
        (with("386", "", &[]), true, false),
        (with("amd64", "", &["win32k"]), true, true),
        (with("amd64", "", &["other"]), true, false),
    ] {
        let fits = |runtime| chosen(std::slice::from_ref(&platform), &host("20348", runtime)).is_some();
        assert_eq!((fits("containerd://1.7.20"), fits("containerd://2.3.5")), (early, late), "{platform:?}");
    }
    let any = |runtime| chosen(&[with("386", "", &[]), with("amd64", "", &[])], &host("20348", runtime)).cloned();
    assert_eq!(any("containerd://1.7.20").unwrap().architecture, "amd64", "its own architecture comes first");
}

#[test]
fn the_variant_that_a_host_takes_may_fail_to_start() {
    let windows = |version: &str| vec![platform(version)];
    let linux = Platform { os: "linux".to_owned(), architecture: "amd64".to_owned(), ..Platform::default() };
    for (source, platforms, host, verdict) in [
        (Source::Index, windows("10.0.20348.5"), host("20348.5", "containerd://2.2.0"), "Runs"),
        (Source::Index, windows("10.0.20348.6"), host("20348.5", "containerd://2.2.0"), "NewerRevision"),
        (Source::Index, windows("10.0.20348.6"), host("20348.x", "containerd://2.2.0"), "Runs"),
        // Revisions of another build say nothing.
        (Source::Index, windows("10.0.20348.6"), host("26100.5", "containerd://2.2.0"), "Runs"),
        (Source::Index, windows(""), host("20348.5", "containerd://2.2.0"), "NoVersion"),
        (Source::Index, windows("10.0.17763.1"), host("20348.5", "containerd://2.2.0"), "Fails(NoVariant"),
        (Source::Index, vec![linux.clone()], host("20348.5", "containerd://2.2.0"), "Fails(NotWindows"),
        (Source::Index, Vec::new(), host("20348.5", "containerd://2.2.0"), "Fails(NotWindows"),
        // Nothing compares the platform of a single manifest, whatever the containerd.
        (Source::Manifest, windows("10.0.17763.1"), host("20348.5", "containerd://2.2.0"), "Fails(OtherBuild"),
        (Source::Manifest, windows("10.0.20348.1"), host("26100.5", "containerd://1.6.0"), "Runs"),
        (Source::Manifest, windows("10.0.20348.6"), host("20348.5", ""), "NewerRevision"),
        (Source::Index, windows("10.0.20348.6"), host("26100.5", "containerd://Unknown"), "IfContainerd"),
        (Source::Index, windows("10.0.17763.6"), host("26100.5", "containerd://Unknown"), "Fails(NoVariant"),
        (Source::Manifest, vec![linux], host("20348.5", ""), "Fails(NotWindows"),
    ] {
        let image = ImagePlatforms { digest: DIGEST.to_owned(), source, platforms };
        let told = format!("{:?}", runs_on(&image, &host, Isolation::Process));
        assert!(told.starts_with(verdict), "{image:?} on {host:?}: {told}");
    }
}

#[test]
fn with_hyperv_isolation_the_same_variant_is_taken_and_an_older_one_starts() {
    for (source, version, on, verdict) in [
        (Source::Index, "10.0.20348.6", "20348.5", "Runs"),
        (Source::Index, "10.0.17763.1", "20348.5", "Fails(NoVariant"),
        (Source::Manifest, "10.0.17763.1", "20348.5", "Runs"),
        (Source::Manifest, "10.0.20348.6", "20348.5", "Runs"),
        (Source::Manifest, "10.0.26100.1", "20348.5", "Fails(OtherBuild"),
    ] {
        let image = ImagePlatforms { digest: DIGEST.to_owned(), source, platforms: vec![platform(version)] };
        let told = format!("{:?}", runs_on(&image, &host(on, "containerd://2.2.0"), Isolation::HyperV));
        assert!(told.starts_with(verdict), "{source:?} of {version} on {on}: {told}");
    }
}

#[test]
fn a_summary_names_systems_and_versions() {
    let linux = |architecture: &str| Platform {
        os: "linux".to_owned(),
        architecture: architecture.to_owned(),
        ..Platform::default()
    };
    for (platforms, expected) in [
        (
            vec![linux("amd64"), platform("10.0.26100.1"), linux("arm64"), platform("10.0.17763.1")],
            "Windows 2019, 2025; Linux amd64, arm64",
        ),
        (vec![platform("10.0.20348.1"), platform("10.0.20348.2")], "Windows 2022"),
        (vec![platform("10.0.29000.1")], "Windows 10.0.29000"),
        (vec![platform("")], "Windows of any version"),
        (vec![], "no platform"),
    ] {
        let image = ImagePlatforms { digest: DIGEST.to_owned(), source: Source::Index, platforms };
        assert_eq!(summary(&image), expected);
    }
}

proptest! {
    #[test]
    fn no_answer_panics(bytes: Vec<u8>, text in "\\{[\"a-z:{}\\[\\], 0-9.]{0,80}\\}") {
        let _ = read(None, &bytes);
        let _ = read(Some(OCI_INDEX), text.as_bytes());
        let _ = read_config(&bytes);
    }

    #[test]
    fn a_host_takes_one_of_the_variants_and_prefers_its_own_build(
        builds in prop::collection::vec(prop::sample::select(vec![17763_u32, 20348, 25398, 26100, 26200, 70000]), 0..6),
        own in prop::sample::select(vec![17763_u32, 20348, 25398, 26100, 26200]),
        version in (1_u32..3, 0_u32..9, 0_u32..40),
    ) {
        let platforms: Vec<Platform> = builds.iter().map(|build| platform(&format!("10.0.{build}.1"))).collect();
        let host = host(&own.to_string(), &format!("containerd://{}.{}.{}", version.0, version.1, version.2));
        let taken = chosen(&platforms, &host);
        prop_assert!(taken.is_none_or(|taken| platforms.contains(taken)));
        prop_assert!(taken.is_some() || !builds.contains(&own));
    }
}
