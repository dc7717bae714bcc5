//! The files of a release, which `make dist` builds before it runs these tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use winpool_analysis::crd::broken_rules;
use winpool_core::api::WindowsPool;

const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
const IMAGE: &str = concat!("ghcr.io/winpool/winpool:v", env!("CARGO_PKG_VERSION"));
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_targets_that_need_a_binary_build_the_one_for_this_machine() {
    for target in ["bench", "binary-test"] {
        let planned = Command::new("make").args(["--dry-run", target]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let planned = String::from_utf8(planned.unwrap().stdout).unwrap();
        let builds = |architecture: &&str| planned.contains(&format!("hack/release binary {architecture} "));
        assert_eq!(ARCHITECTURES.iter().filter(|architecture| builds(architecture)).count(), 1, "{target}: {planned}");
    }
}

#[test]
#[ignore = "`make dist` builds the files first"]
fn all_files_have_a_checksum_and_none_is_missing() {
    let sums = read(&dist("SHA256SUMS"));
    let of = |line: &str| line.split_once("  ").unwrap().1.to_owned();
    let listed: BTreeSet<String> = sums.lines().map(of).collect();
    let mut expected: BTreeSet<String> = ["install.yaml", "winpool.dev_windowspools.yaml"].map(str::to_owned).into();
    expected.extend([format!("winpool-{VERSION}.tgz"), format!("winpool-fix-{VERSION}.tgz")]);
    for architecture in ARCHITECTURES {
        expected.insert(format!("winpool-operator-linux-{architecture}"));
        expected.insert(format!("winpool-operator-linux-{architecture}.cdx.json"));
    }
    for (platform, ending) in platforms() {
        expected.insert(format!("winpool-{platform}{ending}"));
        expected.insert(format!("winpool-{platform}.cdx.json"));
        expected.insert(format!("kubectl-winpool-{platform}.tar.gz"));
    }
    assert_eq!(listed, expected);
    let check = Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(dist("")).status();
    assert!(check.unwrap().success());
}

#[test]
#[ignore = "`make dist` builds the files first"]
fn the_image_of_each_architecture_has_only_the_binary() {
    let layout = tempfile::tempdir().unwrap();
    tar(&["--extract", "--file", target("image/winpool.tar").to_str().unwrap()], layout.path());
    let blob = |digest: &Value| layout.path().join("blobs").join(digest.as_str().unwrap().replace(':', "/"));
    let index = json(&layout.path().join("index.json"));
    assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], IMAGE);
    let images = json(&blob(&index["manifests"][0]["digest"]));
    assert_eq!(images["manifests"].as_array().unwrap().len(), ARCHITECTURES.len());
    for (image, architecture) in images["manifests"].as_array().unwrap().iter().zip(ARCHITECTURES) {
        assert_eq!(image["platform"]["architecture"], architecture);
        let manifest = json(&blob(&image["digest"]));
        let config = json(&blob(&manifest["config"]["digest"]));
        assert_eq!(config["architecture"], architecture);
        let config = &config["config"];
        assert_eq!(config["User"], "65532:65532");
        assert_eq!(
            (&config["Entrypoint"][0], &config["Cmd"][0]),
            (&Value::from("/winpool-operator"), &Value::from("run"))
        );
        assert_eq!(config["Labels"]["org.opencontainers.image.version"], VERSION);
        let mut files = Vec::new();
        for layer in manifest["layers"].as_array().unwrap() {
            let layer = blob(&layer["digest"]);
            files.extend(tar(&["--list", "--file", layer.to_str().unwrap()], layout.path()).lines().map(str::to_owned));
            tar(&["--extract", "--file", layer.to_str().unwrap()], layout.path());
        }
        assert_eq!(files, ["winpool-operator"]);
        let in_image = fs::read(layout.path().join("winpool-operator")).unwrap();
        assert!(in_image == fs::read(dist(&format!("winpool-operator-linux-{architecture}"))).unwrap());
    }
}

#[test]
#[ignore = "`make dist` builds the files first"]
fn the_sbom_names_the_crates_with_versions_and_licences_and_no_directory() {
    let operators =
        ARCHITECTURES.map(|architecture| (format!("winpool-operator-linux-{architecture}"), "prometheus-client"));
    let commands = platforms().into_iter().map(|(platform, _)| (format!("winpool-{platform}"), "clap_complete"));
    for (program, own) in operators.into_iter().chain(commands) {
        let text = read(&dist(&format!("{program}.cdx.json")));
        let sbom: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&sbom["bomFormat"], &sbom["specVersion"]), (&Value::from("CycloneDX"), &Value::from("1.5")));
        assert_eq!(sbom["metadata"]["component"]["version"], VERSION);
        let components = sbom["components"].as_array().unwrap();
        for component in components {
            let is_told = |field: &str| component[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(is_told("name") && is_told("version") && is_told("purl"), "{component}");
            assert!(component["licenses"].as_array().is_some_and(|all| !all.is_empty()), "{component}");
        }
        for name in ["kube-client", "rustls", "tokio", "winpool-core", own] {
            assert!(components.iter().any(|component| component["name"] == name), "{program}: {name}");
        }
        assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "it names the directory of the build");
    }
}

#[test]
#[ignore = "`make dist` builds the files first"]
fn the_archives_for_krew_have_the_binary_and_the_licence() {
    for (platform, ending) in platforms() {
        let archive = dist(&format!("kubectl-winpool-{platform}.tar.gz"));
        let list = tar(&["--list", "--file", archive.to_str().unwrap()], Path::new("/"));
        assert_eq!(list, format!("LICENSE\nkubectl-winpool{ending}\n"));
    }
}

#[test]
#[ignore = "`make dist` builds the files first"]
fn install_yaml_has_the_crd_and_the_operator_of_this_version() {
    let text = read(&dist("install.yaml"));
    let objects: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("{kind}"));
    assert_eq!(of("Deployment")["spec"]["template"]["spec"]["containers"][0]["image"], IMAGE);
    let crd: CustomResourceDefinition =
        serde_yaml::from_str(&read(Path::new("crds/winpool.dev_windowspools.yaml"))).unwrap();
    // Numbers are compared as such: kustomize writes 0.0 as 0.
    let installed: CustomResourceDefinition = serde_json::from_value(of("CustomResourceDefinition").clone()).unwrap();
    assert_eq!(installed.spec, crd.spec);
}

#[test]
fn the_chart_describes_itself_to_artifact_hub() {
    let yaml = |text: &str| -> Value { serde_yaml::from_str(text).unwrap() };
    let chart = yaml(&read(Path::new("charts/winpool/Chart.yaml")));
    let text =
        |key: &str| chart["annotations"][format!("artifacthub.io/{key}")].as_str().unwrap_or_else(|| panic!("{key}"));
    assert_eq!((text("license"), text("operator")), (env!("CARGO_PKG_LICENSE"), "true"));
    let capabilities = ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
    assert!(capabilities.contains(&text("operatorCapabilities")));
    assert_eq!(yaml(text("images"))[0]["image"], format!("ghcr.io/winpool/winpool:v{VERSION}"));
    let definition = yaml(&read(Path::new("crds/winpool.dev_windowspools.yaml")));
    let named = &yaml(text("crds"))[0];
    assert_eq!(named["name"], definition["metadata"]["name"]);
    assert_eq!(named["kind"], definition["spec"]["names"]["kind"]);
    assert_eq!(named["version"], definition["spec"]["versions"][0]["name"]);
    let examples = yaml(text("crdsExamples"));
    assert!(examples.as_array().unwrap().iter().all(|pool| broken_rules(pool).is_empty()));
    serde_json::from_value::<Vec<WindowsPool>>(examples).unwrap();
    for (list, field) in [("changes", "description"), ("links", "url")] {
        assert!(yaml(text(list)).as_array().unwrap().iter().all(|entry| entry[field].is_string()), "{list}");
    }
}

/// The platforms of the command line, and what the names of programs end with there. `WINPOOL_DARWIN` has the architectures of
/// macOS whose programs a runner with macOS built.
fn platforms() -> Vec<(String, &'static str)> {
    let darwin = std::env::var("WINPOOL_DARWIN").unwrap_or_default();
    let linux = ARCHITECTURES.map(|architecture| (format!("linux-{architecture}"), ""));
    let darwin = darwin.split_whitespace().map(|architecture| (format!("darwin-{architecture}"), ""));
    linux.into_iter().chain([("windows-amd64".to_owned(), ".exe")]).chain(darwin).collect()
}

fn target(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(path)
}

fn dist(file: &str) -> PathBuf {
    target("dist").join(file)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&read(path)).unwrap()
}

/// Runs tar in a directory, and returns its output.
fn tar(arguments: &[&str], directory: &Path) -> String {
    let output = Command::new("tar").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
