//! The command line for Windows, `winpool.exe`, under Wine with a real API server.

use std::fs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::lending::lend;
use winpool_e2e::wine::session::{Printed, Session};

/// A Deployment that breaks one rule.
const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      os: {name: windows}
      nodeSelector:
        kubernetes.io/os: windows
      tolerations: [{key: os, value: windows}]
      securityContext:
        runAsUser: 0
      containers:
      - name: web
        image: example.com/web
";

/// A Windows with `C:\winpool.exe` and a kubeconfig in the user's home directory. `WINPOOL_EXE` is the path of the program.
async fn session(kubeconfig: &[u8]) -> Session {
    let program = std::env::var_os("WINPOOL_EXE").expect("make kubelet-test builds winpool.exe and sets WINPOOL_EXE");
    let session = Session::start().await.unwrap();
    session.write("winpool.exe", &fs::read(program).unwrap()).unwrap();
    session.write("users/root/.kube/config", kubeconfig).unwrap();
    session
}

/// The kubeconfig with its certificates inside, because Wine has no drive for the files of Linux.
fn inlined(kubeconfig: &std::path::Path) -> Vec<u8> {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(kubeconfig).unwrap()).unwrap();
    let inline = |object: &mut serde_json::Value, key: &str| {
        let object = object.as_object_mut().unwrap();
        if let Some(path) = object.remove(key) {
            let bytes = fs::read(path.as_str().unwrap()).unwrap();
            object.insert(format!("{key}-data"), BASE64_STANDARD.encode(bytes).into());
        }
    };
    inline(&mut config["clusters"][0]["cluster"], "certificate-authority");
    inline(&mut config["users"][0]["user"], "client-certificate");
    inline(&mut config["users"][0]["user"], "client-key");
    config.to_string().into_bytes()
}

#[tokio::test]
async fn the_command_line_for_windows_reads_a_cluster() {
    let server = lend().await.unwrap();
    install_crd(&server.client()).await.unwrap();
    SimulatedNode::server_2022("win").join(&server.client()).await.unwrap();
    let session = session(&inlined(server.kubeconfig())).await;
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let arguments = [&[r"C:\winpool.exe"], arguments].concat();
        session.run(&arguments, variables).unwrap()
    };
    // The kubeconfig in the home directory, and in a list whose first file is missing.
    let own = r"C:\users\root\.kube\config";
    for variables in [&[][..], &[("KUBECONFIG", &*format!(r"C:\missing;{own}"))]] {
        let Printed { code, out, error } = run(&["status"], variables);
        assert_eq!(code, Some(2), "{out}{error}");
        assert!(out.contains("no operator is installed") && out.contains("1 Windows node"), "{out}{error}");
    }
    let Printed { code, out, error } = run(&["why", "node/win"], &[]);
    assert!(code != Some(1) && out.contains("10.0.20348"), "{out}{error}");
    let Printed { out, error, .. } = run(&["status", "--kubeconfig", r"C:\missing"], &[]);
    assert!(error.contains(r"C:\missing"), "{out}{error}");
}

#[tokio::test]
async fn the_command_line_for_windows_reads_files_as_windows_writes_them() {
    let session = session(b"").await;
    // Equal objects in several files are one.
    let named = |name: &str| DEPLOYMENT.replacen("name: web", &format!("name: {name}"), 1);
    let utf_16: Vec<u8> = format!("\u{feff}{}", named("d")).encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (directory, content) in [
        ("plain", named("a").into_bytes()),
        ("crlf", named("b").replace('\n', "\r\n").into_bytes()),
        ("marked", format!("\u{feff}{}", named("c")).into_bytes()),
        ("utf 16", utf_16),
    ] {
        session.write(&format!("manifests/{directory}/web.yaml"), &content).unwrap();
    }
    for directory in [r"manifests", r"C:\manifests"] {
        let arguments = [r"C:\winpool.exe", "check", "-f", directory, "-o", "sarif"];
        let Printed { code, out, error } = session.run(&arguments, &[]).unwrap();
        assert_eq!(code, Some(2), "{out}{error}");
        let sarif: serde_json::Value = serde_json::from_str(&out).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap().iter();
        let results = results.filter(|result| result["ruleId"] == "run-as-user");
        let found: Vec<String> = results
            .map(|result| {
                let place = &result["locations"][0]["physicalLocation"];
                let (uri, line) = (place["artifactLocation"]["uri"].as_str().unwrap(), &place["region"]["startLine"]);
                format!("{}:{line}", uri.trim_start_matches("file:///C:/"))
            })
            .collect();
        let expected = ["crlf", "marked", "plain", "utf%2016"].map(|name| format!("manifests/{name}/web.yaml:17"));
        assert_eq!(found, expected, "{directory}");
    }
}

#[tokio::test]
async fn the_command_line_for_windows_ends_without_an_error_if_nobody_reads_its_output() {
    let session = session(b"").await;
    for _ in 0..5 {
        let code = session.run_without_reader(&[r"C:\winpool.exe", "check", "--help"]).unwrap();
        assert_eq!(code, Some(0));
    }
}

#[tokio::test]
async fn the_command_line_for_windows_keeps_what_registries_say_in_the_users_home() {
    let session = session(b"").await;
    session.write("web.yaml", DEPLOYMENT.as_bytes()).unwrap();
    // Nothing answers at this address; only the place of the credentials is of interest.
    session.write("users/root/.docker/config.json", b"not JSON").unwrap();
    let arguments = [r"C:\winpool.exe", "images", "-f", "web.yaml"];
    let Printed { code, error, .. } = session.run(&arguments, &[]).unwrap();
    assert!(code == Some(1) && error.contains(r"C:\users\root\.docker\config.json"), "{error}");
}
