//! Karpenter, with its provider of simulated nodes.

use crate::error::{Error, Result, text};
use crate::machine::assets::{Component, karpenter_definitions};
use crate::machine::process::{Launch, Process, free_port};
use crate::servers::cluster::Cluster;
use crate::servers::definitions::define;
use kube::Client;

/// Instance types with a Windows build, like those of AWS. The built-in types have none.
pub const TYPES_WITH_BUILDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/karpenter/types-aws-like.json");

/// A running Karpenter, which stops when this value is dropped.
pub struct Karpenter(Process);

impl Karpenter {
    /// Installs the CRDs of Karpenter and of its provider of simulated nodes.
    pub async fn install(client: &Client) -> Result<()> {
        for definition in karpenter_definitions().await? {
            let read = serde_yaml::from_str(&definition);
            let read = read.map_err(|error| Error::Manifest { path: "Karpenter".into(), why: error.to_string() })?;
            define(client, &read).await?;
        }
        Ok(())
    }

    /// Installs the CRDs and starts Karpenter, with the instance types of a file or the 144 built-in types.
    pub async fn start(cluster: &Cluster, types: Option<&str>) -> Result<Self> {
        let program = Component::Karpenter.path().await?;
        Self::install(&cluster.client()).await?;
        let directory = cluster.api_server().directory();
        let launch = Launch { name: "karpenter", program: &program, arguments: Vec::new(), directory, logs: directory };
        let mut environment = vec![
            ("KUBECONFIG", text(cluster.kubeconfig())?.to_owned()),
            ("SYSTEM_NAMESPACE", "default".to_owned()),
            ("DISABLE_LEADER_ELECTION", "true".to_owned()),
            ("METRICS_PORT", free_port()?.to_string()),
            ("HEALTH_PROBE_PORT", free_port()?.to_string()),
        ];
        environment.extend(types.map(|types| ("INSTANCE_TYPES_FILE_PATH", types.to_owned())));
        Process::start_in(launch, environment).map(Self)
    }

    /// Fails with the last lines of the log if Karpenter has stopped.
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }
}
