//! `winpool fix` in Helm and kustomize: the pods of a chart without selectors land on Linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use winpool_e2e::machine::assets::Component;

use super::{directory, notes, out};

const CHART: &str = "apiVersion: v2\nname: web\nversion: 0.1.0\n";
const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1.27
";
const FUNCTION: &str = "\
apiVersion: winpool.dev/v1alpha1
kind: Fix
metadata:
  name: fix
  annotations:
    config.kubernetes.io/function: |
      exec:
        path: winpool
        args: [fix, -f, '-']
";
const KUSTOMIZATION: &str = "resources: [templates/web.yaml]\ntransformers: [fix.yaml]\n";
const SELECTOR: &str = "      nodeSelector:\n        kubernetes.io/os: linux\n";

fn files() -> TempDir {
    directory(&[
        ("Chart.yaml", CHART),
        ("templates/web.yaml", DEPLOYMENT),
        ("fix.yaml", FUNCTION),
        ("kustomization.yaml", KUSTOMIZATION),
    ])
}

/// Runs the program in this directory, with winpool in the PATH, and returns what it prints.
fn run(program: &Path, arguments: &[&str], directory: &Path) -> String {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_winpool"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("PATH", format!("{}:{path}", own.parent().unwrap().display()));
    for variable in ["HELM_DATA_HOME", "HELM_CONFIG_HOME", "HELM_CACHE_HOME"] {
        command.env(variable, directory.join("home").join(variable));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{} {arguments:?}: {}", program.display(), notes(&output));
    out(&output)
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn it_is_a_post_renderer_of_helm_3() {
    let (helm, files) = (Component::Helm3.path().await.unwrap(), files());
    let flags = ["fix", "-f", "-"].map(|argument| format!("--post-renderer-args={argument}"));
    let [fix, file, stream] = &flags;
    let printed = run(&helm, &["template", "web", ".", "--post-renderer", "winpool", fix, file, stream], files.path());
    assert!(printed.ends_with(SELECTOR), "{printed}");
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn it_is_a_post_renderer_plugin_of_helm_4() {
    let (helm, files) = (Component::Helm.path().await.unwrap(), files());
    let plugin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/helm");
    run(&helm, &["plugin", "install", plugin], files.path());
    let printed = run(&helm, &["template", "web", ".", "--post-renderer", "winpool-fix"], files.path());
    assert!(printed.ends_with(SELECTOR), "{printed}");
    let version = format!("\nversion: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(fs::read_to_string(Path::new(plugin).join("plugin.yaml")).unwrap().contains(&version));
}

#[tokio::test]
#[ignore = "needs kustomize: make verify"]
async fn it_is_a_function_of_kustomize() {
    let (kustomize, files) = (Component::Kustomize.path().await.unwrap(), files());
    let printed = run(&kustomize, &["build", "--enable-alpha-plugins", "--enable-exec", "."], files.path());
    assert!(printed.ends_with(SELECTOR), "{printed}");
}
