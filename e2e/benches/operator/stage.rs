//! A control plane with nodes, on which winpool and the floor take turns.

use crate::Result;
use crate::fleet::Fleet;
use crate::observer::Observer;
use crate::process::Bare;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use winpool_core::api::WindowsPool;
use winpool_core::plan::{Entry, Policy, Pool};
use winpool_e2e::scene::install_crd;
use winpool_e2e::{ApiServer, Etcd, LIMIT, Program, wait_for};

/// Which nodes are watched, as winpool does it.
pub const WINDOWS: &str = "kubernetes.io/os=windows";

/// What nodes are judged by once a pool with this spec has done all that comes before: its classes are right, and nobody
/// would be stranded.
pub fn policy(spec: &str) -> Result<Policy> {
    let pool = Pool::read(&WindowsPool::new("default", serde_json::from_str(spec)?))?;
    Ok(Policy::new([Entry { pool: Arc::new(pool), ready: true }], BTreeSet::new()))
}

/// An API server with an etcd of its own, nodes, and somebody who watches them.
pub struct Stage {
    // Dropped first: it would complain about a missing API server.
    pub observer: Observer,
    pub server: ApiServer,
    pub client: Client,
    pub fleet: Fleet,
    /// How many nodes stand on it from the beginning.
    pub size: usize,
    program: PathBuf,
    spec: String,
}

impl Stage {
    /// Sets it. Nodes are observed until they are as a pool with this spec would have them.
    pub async fn set(
        program: &Path,
        size: usize,
        taint: Option<(&'static str, &'static str)>,
        spec: &Value,
    ) -> Result<Self> {
        let server = start_server().await?;
        let client = server.connect()?;
        install_crd(&client).await?;
        let fleet = Fleet::new(client.clone(), taint);
        fleet.join(0..size).await?;
        let spec = spec.to_string();
        let observer = Observer::start(server.connect()?, policy(&spec)?);
        observer.until(size, 0).await?;
        Ok(Self { server, client, fleet, observer, size, program: program.to_owned(), spec })
    }

    /// The operator starts, has filled its caches, and leads.
    pub async fn operator(&self) -> Result<Program> {
        let operator = Program::start(&self.program, &self.server)?;
        operator.answers("/readyz").await?;
        operator.leads().await?;
        Ok(operator)
    }

    /// A bare client that writes what a pool with the spec of this stage would; see [`crate::children`].
    pub async fn bare(&self, what: &str) -> Result<Bare> {
        let mut bare = Bare::start(&[what, &self.spec], &self.server)?;
        bare.says("ready").await?;
        Ok(bare)
    }

    /// The pool `default` gets this spec.
    pub async fn apply_pool(&self, spec: &Value) -> Result<()> {
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": spec,
        });
        self.pools().patch("default", &PatchParams::apply("bench").force(), &Patch::Apply(pool)).await?;
        Ok(())
    }

    /// Waits until the pool is Ready by its newest spec and counts so many converged nodes.
    pub async fn until_ready(&self, converged: i64) -> Result<()> {
        let pools = self.pools();
        wait_for("WindowsPool default is Ready", 10 * LIMIT, async || {
            let pool = pools.get("default").await?;
            let ready = pool.status.is_some_and(|status| {
                let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
                ready && status.nodes.converged == converged && status.observed_generation == pool.metadata.generation
            });
            Ok(ready.then_some(()))
        })
        .await?;
        Ok(())
    }

    /// Takes away the pool and its classes, without an operator, and every mark on these nodes.
    pub async fn reset(&self, numbers: impl IntoIterator<Item = usize>, nodes_left: usize) -> Result<()> {
        let pools = self.pools();
        if pools.get_opt("default").await?.is_some() {
            let unfinished = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            pools.patch("default", &PatchParams::default(), &unfinished).await?;
            pools.delete("default", &DeleteParams::default()).await?;
        }
        let classes: Api<RuntimeClass> = Api::all(self.client.clone());
        classes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        self.fleet.reset(numbers).await?;
        self.observer.until(nodes_left, 0).await
    }

    fn pools(&self) -> Api<WindowsPool> {
        Api::all(self.client.clone())
    }
}

/// Compacted often: every turn writes all nodes anew, and etcd keeps each version until then.
pub async fn start_server() -> Result<ApiServer> {
    let etcd = Arc::new(Etcd::start().await?);
    let flags = ["--disable-admission-plugins=ServiceAccount", "--etcd-compaction-interval=1m"];
    Ok(ApiServer::start_with(&etcd, "bench", &flags).await?)
}
