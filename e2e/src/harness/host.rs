//! A Linux node that runs pods: those of winpool's image run the binary, all others only wait for their end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::machine::guard::Guard;
use crate::machine::process::free_port;
use crate::network::kubeconfig::token_kubeconfig;
use crate::nodes::kubelet::Kubelet;
use crate::nodes::simulated::SimulatedNode;
use crate::servers::cluster::Cluster;

/// Much shorter than a kubelet's interval.
const INTERVAL: Duration = Duration::from_millis(50);
/// The image without its tag, as in the manifests.
const IMAGE: &str = "ghcr.io/winpool/winpool";
/// Runs until it is told to end.
const WAIT: &str = "trap 'kill $!; exit 0' TERM; sleep infinity & wait";
/// A node without a heartbeat for 40 seconds counts as lost.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The node; its pods end when this is dropped.
pub struct HostNode {
    task: JoinHandle<()>,
}

impl HostNode {
    /// Registers a node that kwok ignores. Containers of winpool's image run this binary.
    pub async fn join(cluster: &Cluster, name: &str, program: &Path) -> Self {
        Self::join_with(cluster, name, vec![(String::new(), program.to_owned())]).await
    }

    /// Does so with several binaries: an image runs the first whose tag it begins with.
    pub async fn join_with(cluster: &Cluster, name: &str, programs: Vec<(String, PathBuf)>) -> Self {
        let node = SimulatedNode::linux().name(name).without_kwok().ready();
        let kubelet = node.join(&cluster.client()).await.unwrap();
        let agent = Agent {
            kubelet,
            client: cluster.client(),
            server: cluster.api_server().url().to_owned(),
            authority: cluster.api_server().authority_file(),
            programs,
            directory: cluster.api_server().directory().to_owned(),
            containers: BTreeMap::new(),
        };
        let host = Self { task: tokio::spawn(agent.work()) };
        cluster.node_ready(name).await.unwrap();
        host
    }
}

impl Drop for HostNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The parts of a kubelet that tests need.
struct Agent {
    kubelet: Kubelet,
    client: Client,
    /// The address of the API server.
    server: String,
    /// The certificate by which it is known.
    authority: PathBuf,
    /// The binaries, by the beginning of the image's tag.
    programs: Vec<(String, PathBuf)>,
    directory: PathBuf,
    /// By the pod's uid.
    containers: BTreeMap<String, HostContainer>,
}

/// A container that was started.
struct HostContainer {
    process: Child,
    address: SocketAddr,
    told_to_end: bool,
}

impl Agent {
    async fn work(mut self) {
        let on_this_node = ListParams::default().fields(&format!("spec.nodeName={}", self.kubelet.name()));
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut next_heartbeat = Instant::now() + HEARTBEAT;
        loop {
            for pod in pods.list(&on_this_node).await.expect("pods can be listed") {
                self.sync(&pod).await;
            }
            if Instant::now() >= next_heartbeat {
                self.kubelet.heartbeat().await.expect("the node is there");
                next_heartbeat += HEARTBEAT;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn sync(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap();
        let is_going = pod.metadata.deletion_timestamp.is_some();
        let Some(running) = self.containers.get_mut(&uid) else {
            match phase(pod) {
                _ if is_going => self.remove(pod).await,
                "Pending" => {
                    let running = self.start(pod).await;
                    self.containers.extend(running.map(|running| (uid, running)));
                }
                _ => {}
            }
            return;
        };
        if let Some(status) = running.process.try_wait().unwrap() {
            self.containers.remove(&uid);
            self.ended(pod, status, is_going).await;
        } else if is_going && !running.told_to_end {
            running.terminate();
        } else if phase(pod) == "Pending" && running.is_ready(container(pod)) {
            self.report(pod, json!({"phase": "Running", "conditions": ready(), "startTime": Timestamp::now()})).await;
        }
    }

    async fn ended(&mut self, pod: &Pod, status: ExitStatus, is_going: bool) {
        if is_going {
            assert_eq!(status.code(), Some(0), "{} was told to end", pod.name_any());
            self.remove(pod).await;
        } else if pod.spec.as_ref().unwrap().restart_policy.as_deref() == Some("Never") {
            let phase = if status.success() { "Succeeded" } else { "Failed" };
            self.report(pod, json!({"phase": phase})).await;
        } else {
            self.report(pod, json!({"phase": "Pending", "conditions": []})).await;
        }
    }

    /// Removes a pod that has ended, as only the kubelet does.
    async fn remove(&self, pod: &Pod) {
        let _ = self.pods(pod).delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
    }

    async fn report(&self, pod: &Pod, status: Value) {
        let patch = Patch::Strategic(json!({"status": status}));
        let _ = self.pods(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap())
    }

    /// Starts the container as the image would: the entry point is winpool, with the pod's arguments and environment. `None` if it
    /// cannot start now.
    async fn start(&self, pod: &Pod) -> Option<HostContainer> {
        let container = container(pod);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let Some(tag) = container.image.as_deref().and_then(|image| image.strip_prefix(IMAGE)) else {
            let mut command = Command::new("sh");
            command.args(["-c", WAIT]).process_group(Guard::get().unwrap().process_group());
            return Some(HostContainer { process: command.spawn().expect("sh starts"), address, told_to_end: false });
        };
        assert_eq!(container.command, None, "the image has the program");
        let is_of_tag = |(start, _): &&(String, PathBuf)| tag.trim_start_matches(':').starts_with(start);
        let (_, program) = self.programs.iter().find(is_of_tag).expect("a program of this image");
        let mut command = Command::new(program);
        command.args(container.args.iter().flatten()).env_clear();
        command.process_group(Guard::get().unwrap().process_group());
        for variable in container.env.iter().flatten() {
            let field =
                variable.value_from.as_ref().and_then(|from| Some(from.field_ref.as_ref()?.field_path.as_str()));
            let value =
                if field == Some("metadata.name") { pod.metadata.name.as_ref() } else { variable.value.as_ref() };
            command.env(&variable.name, value.expect("a plain value, or the name of the pod"));
        }
        // Pods share one host here, and must not be reachable from outside of it.
        command.env("WINPOOL_LISTEN", address.to_string()).env("KUBECONFIG", self.account(pod).await?);
        let log = File::create(self.directory.join(format!("{}.log", pod.name_any()))).unwrap();
        let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("the program starts");
        Some(HostContainer { process, address, told_to_end: false })
    }

    /// Writes a kubeconfig with the account's token, in place of the volume with that token. `None` if there is no token: in a
    /// namespace that is being deleted the API server creates none, and a container may start again before its pod is deleted.
    async fn account(&self, pod: &Pod) -> Option<PathBuf> {
        let spec = pod.spec.as_ref().unwrap();
        let sources = spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
        let mut sources = sources.flat_map(|projected| projected.sources.iter().flatten());
        assert!(sources.any(|source| source.service_account_token.is_some()), "the pod asks for a token");
        let (namespace, name) = (pod.namespace().unwrap(), pod.name_any());
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(name.clone()),
            uid: pod.uid(),
        };
        let request = TokenRequest {
            spec: TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        let account = spec.service_account_name.as_deref().unwrap();
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.ok()?;
        let (token, file) = (answer.status.unwrap().token, self.directory.join(format!("{name}.kubeconfig")));
        token_kubeconfig(&self.server, &self.authority, &token, &namespace, &file).unwrap();
        Some(file)
    }
}

impl HostContainer {
    fn terminate(&mut self) {
        let killed = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().unwrap();
        self.told_to_end = killed.success();
    }

    /// Without a probe a container is ready once it runs.
    fn is_ready(&self, container: &Container) -> bool {
        let probe = container.readiness_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
        probe.is_none_or(|get| self.answers(get.path.as_deref().unwrap_or("/")).unwrap_or(false))
    }

    fn answers(&self, path: &str) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    }
}

impl Drop for HostContainer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn container(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn ready() -> Value {
    let now = Timestamp::now();
    ["Initialized", "Ready", "ContainersReady"]
        .map(|condition| json!({"type": condition, "status": "True", "lastTransitionTime": now}))
        .into_iter()
        .collect()
}
