//! Examples for the rules about what is recommended.

use serde_json::{Value, json};

use super::rules::{Row, container, mount, pod, volume};

fn host_path(path: &str) -> Value {
    volume(&json!({"name": "v", "hostPath": {"path": path}}))
}

fn gmsa(text: &str) -> Value {
    pod(&json!({"windowsOptions": {"gmsaCredentialSpec": text}}))
}

fn gmsa_name(name: &str) -> Value {
    pod(&json!({"windowsOptions": {"gmsaCredentialSpecName": name}}))
}

fn image(name: &str) -> Value {
    container(&json!({"image": name}))
}

/// The rules about what is recommended.
pub fn table() -> Vec<Row> {
    let cpu_only = json!({"requests": {"cpu": "1"}});
    let both = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    vec![
        (
            "resources-missing",
            vec![container(&json!({"resources": {}})), container(&json!({"resources": cpu_only}))],
            vec![container(&json!({"resources": both}))],
        ),
        (
            "docker-hub-image",
            vec![image("microsoft/iis"), image("docker.io/microsoft/nanoserver:sac2016")],
            vec![image("mcr.microsoft.com/windows/servercore/iis"), image("example.com/microsoft/iis")],
        ),
        (
            "dns-searches",
            vec![
                json!({"dnsConfig": {"searches": ["example.com"]}}),
                json!({"dnsPolicy": "None", "dnsConfig": {"searches": ["a.example", "b.example"]}}),
            ],
            vec![
                json!({"dnsPolicy": "None", "dnsConfig": {"searches": ["a.example"]}}),
                json!({"dnsConfig": {"searches": []}}),
            ],
        ),
        (
            "path-control-character",
            vec![mount(&json!({"name": "v", "mountPath": "C:\temp"})), host_path("C:\new")],
            vec![mount(&json!({"name": "v", "mountPath": r"C:\temp"})), host_path("C:/new")],
        ),
        (
            "mount-path-root",
            ["C:", r"c:\", "C:/", "/"].map(|path| mount(&json!({"name": "v", "mountPath": path}))).into(),
            ["/data", "D:/", "C:/data"].map(|path| mount(&json!({"name": "v", "mountPath": path}))).into(),
        ),
        (
            "host-path-without-drive",
            vec![host_path("/var/log"), host_path("data")],
            vec![host_path("C:/data"), host_path(r"\\.\pipe\docker_engine"), host_path(r"d:\data")],
        ),
        (
            "gmsa-credential-spec",
            vec![gmsa("webapp"), gmsa("{}")],
            vec![gmsa(r#"{"DomainJoinConfig": {}, "ActiveDirectoryConfig": {}}"#)],
        ),
        (
            "gmsa-name-invalid",
            vec![gmsa_name("WebApp1"), gmsa_name("")],
            vec![gmsa_name("webapp-1"), gmsa_name("webapp.shop")],
        ),
    ]
}
