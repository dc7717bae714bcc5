//! The static binary of a release, run as in a container: as an unprivileged user, in a root directory that has only
//! the binary and the files of a `ServiceAccount`. `make binary-test` builds it and runs these tests, with QEMU also on
//! the binary of the other architecture.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use winpool_core::api::{WindowsPool, WindowsPoolSpec};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::lending::lend;

use crate::program::Program;

const USER: &str = "65532";

#[test]
#[ignore = "`make binary-test` builds the program first"]
fn it_needs_no_library_and_knows_which_crates_it_was_made_of() {
    let told = read_elf(&program());
    assert!(told.contains("LOAD"), "{told}");
    assert!(!told.contains("INTERP") && !told.contains("(NEEDED)"), "{told}");
    assert!(told.contains(".dep-v0"), "cargo-auditable's list is missing: {told}");
    if cfg!(target_env = "gnu") {
        let told = read_elf(Path::new(env!("CARGO_BIN_EXE_winpool-operator")));
        assert!(told.contains("INTERP") && told.contains("(NEEDED)"), "the development build needs libc: {told}");
    }
}

#[tokio::test]
#[ignore = "`make binary-test` builds the program first"]
async fn it_runs_in_an_empty_container_without_rights_and_does_its_work() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root may change the root directory and the user of a program");
        return;
    }
    let server = lend().await.unwrap();
    let client = server.client();
    install_crd(&client).await.unwrap();
    SimulatedNode::server_2022("win").join(&client).await.unwrap();
    let root = container(&server, &client).await;

    let mut program = Program::spawn(&server, |address| in_container(&server, &root, address));
    program.answers("/healthz", "is healthy", |code, body| code == 200 && body == "ok").await;
    program.answers("/readyz", "is ready", |code, body| code == 200 && body == "ok").await;
    program.answers("/metrics", "has metrics", |code, body| code == 200 && body.contains("winpool_build_info")).await;
    let status = fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap();
    let ids = [USER; 4].join("\t");
    for line in [format!("Uid:\t{ids}\n"), format!("Gid:\t{ids}\n"), "CapEff:\t0000000000000000\n".to_owned()] {
        assert!(status.contains(&line), "{line} {status}");
    }

    let pools: Api<WindowsPool> = Api::all(client.clone());
    pools.create(&PostParams::default(), &WindowsPool::new("default", WindowsPoolSpec::default())).await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    let owned = async || Ok(nodes.get_opt("win").await?.filter(|node| node.labels().contains_key("winpool.dev/pool")));
    wait_for("the node is the pool's", LIMIT, owned).await.unwrap();

    let told = Instant::now();
    let status = program.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
}

/// The binary that `make binary-test` has built.
fn program() -> PathBuf {
    std::env::var_os("WINPOOL_STATIC").expect("WINPOOL_STATIC names the static program: run `make binary-test`").into()
}

/// The static QEMU that runs the binary, if that is of another architecture.
fn emulator() -> Option<PathBuf> {
    Some(std::env::var_os("WINPOOL_EMULATOR")?.into())
}

/// Segments, sections and dynamic entries, printed by binutils, which every C compiler needs.
fn read_elf(program: &Path) -> String {
    let options = ["--wide", "--program-headers", "--section-headers", "--dynamic"];
    let output = Command::new("readelf").args(options).arg(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The root directory of a container of the image, with the files that the kubelet adds.
async fn container(server: &ApiServer, client: &Client) -> PathBuf {
    let root = server.directory().join("container");
    let account = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    fs::create_dir_all(&account).unwrap();
    fs::copy(program(), root.join("winpool-operator")).unwrap();
    emulator().map(|emulator| fs::copy(emulator, root.join("emulator")).unwrap());
    fs::copy(server.authority_file(), account.join("ca.crt")).unwrap();
    fs::write(account.join("namespace"), "default").unwrap();
    fs::write(account.join("token"), token(client).await).unwrap();
    let readable = Command::new("chmod").args(["-R", "a+rX"]).arg(&root).status().unwrap();
    assert!(readable.success());
    root
}

/// A token of a new `ServiceAccount` with all permissions: another test covers the permissions.
async fn token(client: &Client) -> String {
    let metadata = ObjectMeta { name: Some("winpool".to_owned()), ..ObjectMeta::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = ServiceAccount { metadata: metadata.clone(), ..ServiceAccount::default() };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = ClusterRoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: "cluster-admin".to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: "winpool".to_owned(),
            namespace: Some("default".to_owned()),
            ..Subject::default()
        }]),
    };
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let request =
        accounts.create_token_request("winpool", &PostParams::default(), &TokenRequest::default()).await.unwrap();
    request.status.unwrap().token
}

/// The entry point of the image with its arguments, and the environment that the kubelet gives it.
fn in_container(server: &ApiServer, root: &Path, address: SocketAddr) -> Command {
    let (host, port) = server.url().strip_prefix("https://").unwrap().rsplit_once(':').unwrap();
    let mut command = Command::new("chroot");
    command
        .arg(format!("--userspec={USER}:{USER}"))
        .arg("--groups=")
        .arg(root)
        .args(emulator().map(|_| "/emulator"))
        .args(["/winpool-operator", "run"])
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("KUBERNETES_SERVICE_HOST", host)
        .env("KUBERNETES_SERVICE_PORT", port)
        .env("WINPOOL_LISTEN", address.to_string());
    command
}
