//! A machine: its runtime, its kubelet and its files.

use super::windows::Windows;
use super::{prefix, programs};
use crate::error::{Error, FileContext, Result, text};
use crate::machine::assets::off_the_runtime;
use crate::machine::guard::{Directory, Guard};
use crate::machine::process::{Launch, Process, start_on_free_port};
use crate::servers::api_server::ApiServer;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A call that the kubelet made to the container runtime, of those that change something.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Call {
    /// Such as `RunPodSandbox`.
    pub call: String,
    /// The pod, as `namespace/name`.
    pub pod: Option<String>,
    /// The runtime handler of a sandbox.
    pub handler: Option<String>,
    /// The image that is pulled, or of which a container is created.
    pub image: Option<String>,
}

/// A machine with a running container runtime, and a kubelet that may run. It ends with this process.
pub struct Machine {
    name: String,
    windows: Windows,
    /// Dropped before the files that it uses.
    kubelet: Option<Process>,
    runtime: Process,
    runtime_port: u16,
    wine_prefix: String,
    server: String,
    directory: Directory,
}

impl Machine {
    /// Returns the reason if no such machine can be started here: the missing packages.
    pub fn unavailable() -> Option<String> {
        prefix::missing()
    }

    /// Installs a machine, without starting its kubelet.
    pub async fn install(server: &ApiServer, name: &str, windows: Windows) -> Result<Self> {
        if let Some(missing) = prefix::missing() {
            return Err(Error::WineMissing(missing));
        }
        let kubelet = off_the_runtime(programs::kubelet).await?;
        let directory = Guard::get()?.directory("machine")?;
        let prefix = directory.path().join("wine");
        let wine_prefix = text(&prefix)?.to_owned();
        let to = prefix.clone();
        off_the_runtime(move || prefix::install(&to)).await?;

        let kubelet_directory = prefix.join("drive_c/k");
        fs::create_dir_all(&kubelet_directory).when("make the directory", &kubelet_directory)?;
        let program = kubelet_directory.join("kubelet.exe");
        std::os::unix::fs::symlink(&kubelet, &program).when("make the link", &program)?;
        let identity = server.identity(&format!("system:node:{name}"), "system:nodes")?;
        for (from, to) in
            [(identity.certificate, "node.crt"), (identity.key, "node.key"), (server.authority_file(), "ca.crt")]
        {
            let to = kubelet_directory.join(to);
            fs::copy(&from, &to).when("write", &to)?;
        }
        let (runtime, runtime_port) = start_runtime(directory.path(), windows, None).await?;
        let server = server.url().to_owned();
        let name = name.to_owned();
        Ok(Self { name, windows, kubelet: None, runtime, runtime_port, wine_prefix, server, directory })
    }

    /// Installs a machine and starts its kubelet.
    pub async fn start(server: &ApiServer, name: &str, windows: Windows, flags: &[&str]) -> Result<Self> {
        let mut machine = Self::install(server, name, windows).await?;
        machine.start_kubelet(flags)?;
        Ok(machine)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the kubelet with these flags in addition to the usual ones.
    pub fn start_kubelet(&mut self, flags: &[&str]) -> Result<()> {
        self.stop_kubelet();
        let drive = self.drive();
        prefix::forget_server(Path::new(&self.wine_prefix))?;
        prefix::write_registry(Path::new(&self.wine_prefix), &self.name, self.windows)?;
        write(&drive.join("k/config"), &self.kubeconfig())?;
        write(&drive.join("k/kubelet.yaml"), &self.configuration())?;
        let usual = [
            r"C:\k\kubelet.exe",
            r"--config=C:\k\kubelet.yaml",
            r"--kubeconfig=C:\k\config",
            r"--root-dir=C:\var\lib\kubelet",
            r"--cert-dir=C:\var\lib\kubelet\pki",
            &format!("--hostname-override={}", self.name),
            "--v=2",
        ];
        let launch = Launch {
            name: "kubelet",
            program: Path::new(prefix::WINE),
            arguments: usual.iter().chain(flags).map(ToString::to_string).collect(),
            // Paths without a drive are on the drive of the working directory.
            directory: &drive,
            logs: self.directory.path(),
        };
        self.kubelet = Some(Process::start_in(launch, prefix::environment(&self.wine_prefix))?);
        Ok(())
    }

    /// Kills the kubelet (SIGKILL). The containers continue.
    pub fn stop_kubelet(&mut self) {
        if let Some(kubelet) = self.kubelet.take() {
            drop(kubelet);
            prefix::end(&self.wine_prefix);
        }
    }

    /// Fails with the end of the kubelet's log if the kubelet has ended.
    pub fn check(&self) -> Result<()> {
        self.kubelet.iter().try_for_each(Process::check)
    }

    /// Installs another Windows in place and restarts the kubelet with these flags. No container survives that.
    pub async fn upgrade(&mut self, windows: Windows, flags: &[&str]) -> Result<()> {
        self.stop_kubelet();
        self.windows = windows;
        self.restart_runtime(None).await?;
        self.start_kubelet(flags)
    }

    /// Restarts the container runtime without containers and images. `pause` is the Windows build of its pause image,
    /// if that differs from the machine's. The kubelet has to be restarted.
    pub async fn restart_runtime(&mut self, pause: Option<Windows>) -> Result<()> {
        (self.runtime, self.runtime_port) = start_runtime(self.directory.path(), self.windows, pause).await?;
        Ok(())
    }

    /// The kubelet's calls of the container runtime since that was started.
    pub fn calls(&self) -> Result<Vec<Call>> {
        let log = self.directory.path().join("container-runtime.log");
        let text = fs::read_to_string(&log).when("read", &log)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The kubelet's log since it was started.
    pub fn log(&self) -> Result<String> {
        let log = self.directory.path().join("kubelet.log");
        fs::read_to_string(&log).when("read", &log)
    }

    fn drive(&self) -> PathBuf {
        Path::new(&self.wine_prefix).join("drive_c")
    }

    fn kubeconfig(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "node",
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": "node"}}],
            "clusters": [{"name": "node", "cluster": {"server": self.server, "certificate-authority": r"C:\k\ca.crt"}}],
            "users": [{"name": "node", "user": {"client-certificate": r"C:\k\node.crt", "client-key": r"C:\k\node.key"}}],
        })
    }

    /// The configuration that an installer writes, except for the ports and the disk of the Linux machine below.
    fn configuration(&self) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("tcp://127.0.0.1:{}", self.runtime_port),
            "enableServer": false, "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": false}, "x509": {"clientCAFile": r"C:\k\ca.crt"}},
            "authorization": {"mode": "Webhook"},
            "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
            "cgroupsPerQOS": false, "enforceNodeAllocatable": [], "failSwapOn": false,
            "resolvConf": "", "clusterDNS": ["10.0.0.10"],
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop_kubelet();
    }
}

/// Builds the programs of machines, unless they exist.
pub async fn prepare_machines() -> Result<()> {
    if let Some(missing) = prefix::missing() {
        return Err(Error::WineMissing(missing));
    }
    off_the_runtime(|| programs::kubelet().and(programs::runtime()).map(drop)).await
}

async fn start_runtime(directory: &Path, windows: Windows, pause: Option<Windows>) -> Result<(Process, u16)> {
    let program = off_the_runtime(programs::runtime).await?;
    let mut arguments = vec![format!("-build={}", windows.kernel_version())];
    arguments.extend(pause.map(|pause| format!("-pause={}", pause.kernel_version())));
    let launch = |port| {
        let port = format!("-port={port}");
        let arguments = arguments.iter().cloned().chain([port]).collect();
        Process::start(Launch { name: "container-runtime", program: &program, arguments, directory, logs: directory })
    };
    start_on_free_port(launch, async |port| tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await
}

fn write(file: &Path, value: &Value) -> Result<()> {
    fs::write(file, value.to_string()).when("write", file)
}
