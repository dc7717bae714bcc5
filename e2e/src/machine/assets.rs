//! The binaries of the control plane and its tools: found, or built once from pinned Go modules and kept in the user's
//! cache.

use crate::error::{Error, FileContext, Result};
use crate::machine::go::{self, Module};
use std::fs;
use std::path::{Path, PathBuf};

/// A binary of the control plane, or a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    Etcd,
    KubeApiserver,
    KubeScheduler,
    KubeControllerManager,
    /// kwok, the kubelet of simulated nodes.
    Kwok,
    Prometheus,
    /// promtool, which checks and tests rules.
    Promtool,
    /// kubectl, which includes kustomize.
    Kubectl,
    Helm,
    Helm3,
    /// kustomize itself: the one in kubectl runs no functions.
    Kustomize,
    /// distribution, a registry of images.
    Registry,
    /// Karpenter with its provider of simulated nodes.
    Karpenter,
}

/// The Go module in a directory of this crate.
macro_rules! module {
    ($directory:literal, $tags:literal, $duration:literal) => {
        Module {
            directory: concat!(env!("CARGO_MANIFEST_DIR"), "/", $directory),
            go_mod: include_str!(concat!("../../", $directory, "/go.mod")),
            go_sum: include_str!(concat!("../../", $directory, "/go.sum")),
            tags: $tags,
            duration: $duration,
        }
    };
}

/// The newest supported Kubernetes, with kubectl, and etcd and kwok for all versions. In one module their common libraries are
/// compiled once.
const CONTROL_PLANE: Module = module!("control-plane", "", "all of it takes about 4 minutes");

/// Selects an older Kubernetes for API server, scheduler and controller manager, such as 1.33.
const VERSION_VARIABLE: &str = "WINPOOL_E2E_KUBERNETES";

/// The older versions, by the value of [`VERSION_VARIABLE`].
const OLDER: [(&str, Module); 4] = [
    ("1.33", module!("control-plane/1.33", "", "all of it takes about 3 minutes")),
    ("1.34", module!("control-plane/1.34", "", "all of it takes about 3 minutes")),
    ("1.35", module!("control-plane/1.35", "", "all of it takes about 3 minutes")),
    ("1.36", module!("control-plane/1.36", "", "all of it takes about 3 minutes")),
];

/// Prometheus without its web pages, which the module does not contain, and without service discoveries, whose clients
/// are a third of its packages.
const PROMETHEUS: Module = module!("prometheus", "remove_all_sd", "about 2 minutes");

/// Not built: only its CRDs are read.
const PROMETHEUS_OPERATOR: Module = module!("prometheus-operator", "", "");

/// Helm 4 and 3 share their libraries, which are newer than those of the control plane.
const HELM: Module = module!("helm", "", "about 2 minutes");

/// Its own module, because the one of kubectl does not contain its command line.
const KUSTOMIZE: Module = module!("kustomize", "", "about a minute");

/// Its own module, because distribution needs other versions of the same libraries.
const REGISTRY: Module = module!("registry", "", "about 2 minutes");

const KUBERNETES: &str = "k8s.io/kubernetes";
const KWOK_MODULE: &str = "sigs.k8s.io/kwok";
const KARPENTER_MODULE: &str = "sigs.k8s.io/karpenter";

/// Karpenter pins other versions of the same libraries.
const KARPENTER: Module = module!("karpenter", "", "about 3 minutes");

/// The stage in which a simulated node becomes ready.
const NODE_READY: &str = include_str!("../../kwok/node-ready.yaml");

/// The other stages of a node and its pods: files of the kwok module.
const STAGES: [&str; 3] =
    ["node/heartbeat-with-lease/node-heartbeat-with-lease.yaml", "pod/fast/pod-ready.yaml", "pod/fast/pod-delete.yaml"];

/// The version of Kubernetes to build, as pinned in go.mod.
pub fn kubernetes_version() -> Result<&'static str> {
    kubernetes()?.version_of(KUBERNETES)
}

pub(crate) fn newest_kubernetes() -> Result<&'static str> {
    CONTROL_PLANE.version_of(KUBERNETES)
}

/// The versions of all control planes that can be built.
#[cfg(test)]
pub(crate) fn all_kubernetes() -> impl Iterator<Item = &'static str> {
    [&CONTROL_PLANE]
        .into_iter()
        .chain(OLDER.iter().map(|(_, module)| module))
        .filter_map(|module| module.version_of(KUBERNETES).ok())
}

/// The module of API server, scheduler and controller manager.
fn kubernetes() -> Result<&'static Module> {
    let Ok(wanted) = std::env::var(VERSION_VARIABLE) else { return Ok(&CONTROL_PLANE) };
    if newest_kubernetes()?.starts_with(&format!("v{wanted}.")) {
        return Ok(&CONTROL_PLANE);
    }
    let module = OLDER.iter().find(|(version, _)| *version == wanted);
    module.map(|(_, module)| module).ok_or(Error::UnknownKubernetes { variable: VERSION_VARIABLE, wanted })
}

impl Component {
    const ALL: [Self; 13] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeScheduler,
        Self::KubeControllerManager,
        Self::Kwok,
        Self::Prometheus,
        Self::Promtool,
        Self::Kubectl,
        Self::Helm,
        Self::Helm3,
        Self::Kustomize,
        Self::Registry,
        Self::Karpenter,
    ];

    /// The file name of the binary, the Go module whose version is its version, and its package in that module.
    fn origin(self) -> [&'static str; 3] {
        match self {
            Self::Etcd => ["etcd", "go.etcd.io/etcd/server/v3", ""],
            Self::KubeApiserver => ["kube-apiserver", KUBERNETES, "/cmd/kube-apiserver"],
            Self::KubeScheduler => ["kube-scheduler", KUBERNETES, "/cmd/kube-scheduler"],
            Self::KubeControllerManager => ["kube-controller-manager", KUBERNETES, "/cmd/kube-controller-manager"],
            Self::Kwok => ["kwok", KWOK_MODULE, "/cmd/kwok"],
            Self::Prometheus => ["prometheus", "github.com/prometheus/prometheus", "/cmd/prometheus"],
            Self::Promtool => ["promtool", "github.com/prometheus/prometheus", "/cmd/promtool"],
            Self::Kubectl => ["kubectl", KUBERNETES, "/cmd/kubectl"],
            Self::Helm => ["helm", "helm.sh/helm/v4", "/cmd/helm"],
            Self::Helm3 => ["helm3", "helm.sh/helm/v3", "/cmd/helm"],
            Self::Kustomize => ["kustomize", "sigs.k8s.io/kustomize/kustomize/v5", ""],
            Self::Registry => ["registry", "github.com/distribution/distribution/v3", "/cmd/registry"],
            Self::Karpenter => ["karpenter", KARPENTER_MODULE, "/kwok"],
        }
    }

    /// The file name of the binary.
    pub fn name(self) -> &'static str {
        self.origin()[0]
    }

    /// The path of the binary: in the directory `KUBEBUILDER_ASSETS`, else where `setup-envtest use` keeps this version of Kubernetes,
    /// else in the cache, else built now.
    ///
    /// `KUBEBUILDER_ASSETS` must have etcd and kube-apiserver; it seldom has the others, which are then built.
    pub async fn path(self) -> Result<PathBuf> {
        off_the_runtime(move || self.find()).await
    }

    fn find(self) -> Result<PathBuf> {
        if let Some(directory) = std::env::var_os("KUBEBUILDER_ASSETS") {
            let path = Path::new(&directory).join(self.name());
            if path.is_file() {
                return Ok(path);
            }
            if matches!(self, Self::Etcd | Self::KubeApiserver) {
                return Err(Error::AssetMissing { path });
            }
        }
        match self.of_envtest()? {
            Some(path) if path.is_file() => Ok(path),
            _ => self.cached(),
        }
    }

    fn of_envtest(self) -> Result<Option<PathBuf>> {
        if !matches!(self, Self::Etcd | Self::KubeApiserver | Self::Kubectl) {
            return Ok(None);
        }
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let version = self.module()?.version_of(KUBERNETES)?.trim_start_matches('v');
        Ok(home("XDG_DATA_HOME", ".local/share")
            .map(|data| data.join(format!("kubebuilder-envtest/k8s/{version}-linux-{architecture}")).join(self.name())))
    }

    fn cached(self) -> Result<PathBuf> {
        let target = self.target()?;
        make_once(&target, self.name(), |unfinished| {
            let flags = self.linker_flags()?;
            let mut missing = Vec::new();
            for component in Self::ALL {
                let is_alike =
                    component.module()?.directory == self.module()?.directory && component.linker_flags()? == flags;
                // No cluster needs kubectl.
                let is_wanted = component == self || component != Self::Kubectl && self != Self::Kubectl;
                if is_alike && is_wanted && !component.target()?.exists() {
                    missing.push(component);
                }
            }
            let packages: Vec<String> = missing.iter().map(|component| component.package()).collect();
            let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
            let names: Vec<&str> = missing.iter().map(|component| component.name()).collect();
            let directory = unfinished.with_added_extension("programs");
            fs::create_dir_all(&directory).when("make the directory", &directory)?;
            let options = go::BuildOptions { linker_flags: &flags, ..go::BuildOptions::default() };
            go::build(self.module()?, &packages, &options, &names.join(", "), &directory)?;
            for component in missing {
                let (built, target) = (directory.join(component.built_as()), component.target()?);
                let target = if component == self { unfinished } else { &target };
                fs::rename(&built, target).when("rename", &built)?;
            }
            fs::remove_dir_all(&directory).when("remove", &directory)
        })?;
        Ok(target)
    }

    /// Its file in the cache. The name contains everything that it is built from.
    fn target(self) -> Result<PathBuf> {
        let (module, flags) = (self.module()?, self.linker_flags()?);
        let version = module.version_of(self.pinned_module())?;
        let tags = Some(module.tags).filter(|tags| !tags.is_empty());
        let parts: Vec<&str> = [module.go_mod, module.go_sum, &flags].into_iter().chain(tags).collect();
        Ok(cache_folder()?.join(format!("{}-{version}-{}", self.name(), fingerprint(&parts))))
    }

    fn module(self) -> Result<&'static Module> {
        Ok(match self {
            Self::Prometheus | Self::Promtool => &PROMETHEUS,
            Self::Helm | Self::Helm3 => &HELM,
            Self::Kustomize => &KUSTOMIZE,
            Self::Registry => &REGISTRY,
            Self::Karpenter => &KARPENTER,
            Self::Etcd | Self::Kwok | Self::Kubectl => &CONTROL_PLANE,
            Self::KubeApiserver | Self::KubeScheduler | Self::KubeControllerManager => kubernetes()?,
        })
    }

    fn pinned_module(self) -> &'static str {
        self.origin()[1]
    }

    fn package(self) -> String {
        self.origin()[1..].concat()
    }

    /// The file name that Go gives to the binary: the last part of the package without the major version.
    fn built_as(self) -> String {
        let is_version = |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
        self.package().rsplit('/').find(|part| !is_version(part)).unwrap_or_default().to_owned()
    }

    /// Programs of one module with the same flags are built together. Kubernetes and Helm learn their versions only from the linker;
    /// without these flags the API server reports v0.0.0.
    fn linker_flags(self) -> Result<String> {
        let module = self.module()?;
        let small = "-s -w";
        Ok(match self {
            Self::Etcd
            | Self::Kwok
            | Self::KubeApiserver
            | Self::KubeScheduler
            | Self::KubeControllerManager
            | Self::Kubectl => kubernetes_linker_flags(module.version_of(KUBERNETES)?),
            Self::Helm | Self::Helm3 => {
                let helm = self.pinned_module();
                let version = module.version_of(helm)?;
                format!("{small} -X {helm}/internal/version.version={version}")
            }
            _ => small.to_owned(),
        })
    }
}

/// Linker flags that set the version, and leave out debug information.
pub(crate) fn kubernetes_linker_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let variable = "-X k8s.io/component-base/version.git";
    format!("-s -w {variable}Version={version} {variable}Major={major} {variable}Minor={minor}")
}

/// Writes one file with the stages for kwok.
pub(crate) async fn kwok_stages() -> Result<PathBuf> {
    off_the_runtime(|| {
        let version = CONTROL_PLANE.version_of(KWOK_MODULE)?;
        let fingerprint = fingerprint(&[&[NODE_READY], &STAGES[..]].concat());
        let target = cache_folder()?.join(format!("kwok-stages-{version}-{fingerprint}.yaml"));
        make_once(&target, "kwok's stages", |path| {
            let directory = go::source_folder(&CONTROL_PLANE, KWOK_MODULE)?.join("kustomize/stage");
            let mut stages = NODE_READY.to_owned();
            for stage in STAGES {
                let file = directory.join(stage);
                stages.push_str("---\n");
                stages.push_str(&fs::read_to_string(&file).when("read", &file)?);
            }
            fs::write(path, stages).when("write", path)
        })?;
        Ok(target)
    })
    .await
}

/// The CRD of a kind of the Prometheus operator, by its plural, as YAML.
pub async fn prometheus_operator_definition(plural: &'static str) -> Result<String> {
    off_the_runtime(move || {
        let module = go::source_folder(&PROMETHEUS_OPERATOR, "github.com/prometheus-operator/prometheus-operator")?;
        let file = module.join(format!("example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"));
        fs::read_to_string(&file).when("read", &file)
    })
    .await
}

/// The CRDs of Karpenter and of its provider of simulated nodes, as YAML.
pub(crate) async fn karpenter_definitions() -> Result<Vec<String>> {
    off_the_runtime(|| {
        let module = go::source_folder(&KARPENTER, KARPENTER_MODULE)?;
        let mut definitions = Vec::new();
        for directory in ["pkg/apis/crds", "kwok/apis/crds"] {
            let directory = module.join(directory);
            for file in fs::read_dir(&directory).when("list", &directory)? {
                let path = file.when("list", &directory)?.path();
                definitions.push(fs::read_to_string(&path).when("read", &path)?);
            }
        }
        Ok(definitions)
    })
    .await
}

/// Creates `target` unless it exists. Only one process does so, and an interrupted one leaves no incomplete file: the
/// file is renamed at the end.
pub(crate) fn make_once(target: &Path, what: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    // One lock for all: builds share most of their packages, and in parallel each would compile them.
    let lock_path = target.with_file_name("lock");
    let lock = fs::File::create(&lock_path).when("write", &lock_path)?;
    if lock.try_lock().is_err() {
        go::progress(&format!("{what} waits for another build"));
        lock.lock().when("lock", &lock_path)?;
    }
    if target.exists() {
        return Ok(());
    }
    let unfinished = target.with_added_extension("unfinished");
    make(&unfinished)?;
    fs::rename(&unfinished, target).when("rename", &unfinished)
}

/// The directory that this variable names, or else this one in the user's home.
fn home(variable: &str, below: &str) -> Option<PathBuf> {
    let from = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    from(variable).filter(|path| path.is_absolute()).or_else(|| Some(from("HOME")?.join(below)))
}

/// `$XDG_CACHE_HOME/winpool` or `~/.cache/winpool`.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let directory = home("XDG_CACHE_HOME", ".cache").ok_or(Error::NoCacheFolder)?.join("winpool");
    fs::create_dir_all(&directory).when("make the directory", &directory)?;
    Ok(directory)
}

/// FNV-1a: short, and the same in every release of Rust, unlike the standard hasher.
pub(crate) fn fingerprint(parts: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")[..8].to_owned()
}

/// In its own thread: building takes minutes, and a test's runtime may have other work.
pub(crate) async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is ending, so the result is not needed.
            Err(_) => std::future::pending().await,
        },
    }
}
