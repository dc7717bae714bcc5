//! Clusters behind a proxy.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use winpool_e2e::machine::process::free_port;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::lending::lend;

/// Passes HTTP CONNECT requests on, and records their targets.
struct Tunnels {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tunnels {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(tunnel(client, Arc::clone(&seen)));
            }
        });
        Self { url, asked }
    }
}

async fn tunnel(client: TcpStream, asked: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let (mut client, mut head) = (BufReader::new(client), String::new());
    while !head.ends_with("\r\n\r\n") {
        client.read_line(&mut head).await?;
    }
    let target = head.split(' ').nth(1).expect("CONNECT host:port HTTP/1.1").to_owned();
    let mut server = TcpStream::connect(&target).await?;
    asked.lock().unwrap().push(target);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

/// The version of the cluster as winpool reads it.
async fn look(kubeconfig: PathBuf, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(["render", "kubelet"]).env("KUBECONFIG", kubeconfig).envs(environment.iter().copied());
    tokio::task::spawn_blocking(move || command.output().expect("the program starts")).await.unwrap()
}

/// The API server answered that there are no pools.
fn reached(output: &Output) -> bool {
    let errors = String::from_utf8_lossy(&output.stderr);
    errors.contains("has no WindowsPools") || errors.contains("there are 0")
}

fn address(server: &ApiServer) -> (Value, String) {
    let kubeconfig: Value = serde_json::from_slice(&std::fs::read(server.kubeconfig()).unwrap()).unwrap();
    let url = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let address = url.trim_start_matches("https://").to_owned();
    (kubeconfig, address)
}

#[tokio::test]
async fn the_proxy_of_a_kubeconfig_is_used() {
    let (server, tunnels) = (lend().await.unwrap(), Tunnels::start().await);
    let (mut kubeconfig, address) = address(&server);
    kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(tunnels.url);
    let file = server.directory().join("kubeconfig-proxy");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let output = look(file, &[]).await;
    assert!(reached(&output), "{output:?}");
    assert!(tunnels.asked.lock().unwrap().iter().all(|asked| *asked == address));
    assert!(!tunnels.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_but_for_what_it_excepts() {
    let (server, tunnels) = (lend().await.unwrap(), Tunnels::start().await);
    let kubeconfig = server.kubeconfig().to_owned();
    let output = look(kubeconfig.clone(), &[("HTTPS_PROXY", &tunnels.url), ("NO_PROXY", "127.0.0.0/8")]).await;
    assert!(reached(&output), "{output:?}");
    assert!(tunnels.asked.lock().unwrap().is_empty());
    let output = look(kubeconfig, &[("HTTPS_PROXY", &tunnels.url), ("NO_PROXY", "example.com")]).await;
    assert!(reached(&output), "{output:?}");
    assert!(!tunnels.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named_with_the_url_of_the_cluster() {
    let server = lend().await.unwrap();
    let (mut kubeconfig, address) = address(&server);
    let proxy = format!("127.0.0.1:{}", free_port().unwrap());
    kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(format!("http://user:secret@{proxy}"));
    let file = server.directory().join("kubeconfig-no-proxy");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let errors = String::from_utf8(look(file, &[]).await.stderr).unwrap();
    let expected = format!("cannot reach https://{address}/ through the proxy {proxy}");
    assert!(errors.contains(&expected) && !errors.contains("secret"), "{errors}");
}
