//! A Windows build is one row: every command, the CRD and the policies know a build that does not exist.
//!
//! The test starts itself with the arguments of `winpool`, and is `winpool` with one more row then.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, ExitCode};

use k8s_openapi::jiff::civil::date;
use winpool_analysis::reference::assign_class;
use winpool_core::windows::Build;
use winpool_core::windows::builds::{self, Cloud, MADE_UP, Product};

const NEW: Product = Product {
    build: Build::new(30000),
    version: "2028",
    name: "Windows Server 2028",
    half_year: Some("27H2"),
    is_ltsc: true,
    available: date(2027, 11, 1),
    mainstream_end: date(2032, 11, 9),
    end_of_support: date(2037, 11, 10),
    base_tags: &["ltsc2028", "2709"],
    pause_images: Some(("3.12", None)),
    kubernetes: Some((37, None)),
    clouds: &[Cloud::Gke],
};

/// Is set in the process that is `winpool`.
const IS_WINPOOL: &str = "WINPOOL_WITH_A_NEW_BUILD";

const POOL: &str = "\
apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: default}
spec: {runtimeClasses: [{name: apps, version: ltsc2028}]}
";

const NODE: &str = "\
apiVersion: v1
kind: Node
metadata: {name: new, labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.30000}}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.30000.1, containerRuntimeVersion: 'containerd://2.3.0'}}
";

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  os: {name: windows}
  nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.26100}
  containers: [{name: web, image: 'example.com/web:4.8-nanoserver-ltsc2019'}, {name: log, image: 'log:servercore27H2'}]
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    MADE_UP.set([builds::all(), &[NEW]].concat()).expect("the table is set once");
    if std::env::var_os(IS_WINPOOL).is_some() {
        return winpool::commands::main().await;
    }
    commands_know_it();
    the_policy_knows_it();
    println!("a Windows build is one row: ok");
    ExitCode::SUCCESS
}

/// Returns what a command prints, with one space between words.
fn winpool(arguments: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pool.yaml"), POOL).unwrap();
    std::fs::write(folder.path().join("all.yaml"), [POOL, NODE, POD].join("---\n")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.env(IS_WINPOOL, "1").env("COLUMNS", "200").env("KUBECONFIG", "/nonexistent");
    let output = command.args(arguments.split(' ')).current_dir(folder.path()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn commands_know_it() {
    for (arguments, expected) in [
        ("builds", "2028 10.0.30000 ltsc2028, 2709 1.37 2037-11-10 2025, 2028"),
        ("status -f all.yaml", "Windows Server 2028 (1 node): Microsoft's support ends 2037-11-10"),
        ("plan -f all.yaml", "windows-2028 (Create)"),
        ("check -f all.yaml", "the image is for build 10.0.30000 and does not start on hosts of 10.0.26100"),
        ("why node new -f all.yaml", "10.0.30000, Windows Server 2028"),
        ("blockers --retire 2019 --move-to 2028 -f all.yaml", "example.com/web:4.8-nanoserver-ltsc2028"),
        ("render gke --windows ltsc2028 -f pool.yaml", "--windows-os-version=ltsc2028"),
        (
            "render gke --windows 2025 -f pool.yaml",
            "GKE has node pools of Windows 2019, 2022 and 2028 only, not of 2025",
        ),
        ("render aks --windows 2028 -f pool.yaml", "AKS has node pools of Windows 2022 and 2025 only, not of 2028"),
        ("crd", "'2028', 'ltsc2028'"),
    ] {
        let text = winpool(arguments);
        assert!(text.contains(expected), "{arguments}: {text}");
    }
}

fn the_policy_knows_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/components/assign-class/policy.yaml");
    let policy = assign_class::with_builds(&std::fs::read_to_string(path).unwrap()).unwrap();
    let pattern =
        ":([^/:]*[-_.])?(ltsc2028|10[.]0[.]30000([.][0-9]+)?|(nanoserver|servercore|windows)[-_.]?2709)([-_.][^/:]*)?$";
    assert_eq!(policy.matches(&format!("['10.0.30000', '{pattern}")).count(), 2, "in `tags` and `runsOn`: {policy}");
    assert!(policy.contains("['10.0.26100,10.0.30000', "), "it runs images of 2025: {policy}");
}
