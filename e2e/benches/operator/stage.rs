//! A control plane with nodes, on which winpool and the floor take turns.

use crate::Result;
use crate::objects::{self, NODES, create, each, node_name, policy};
use crate::observer::{LIMIT, Observer};
use crate::report::Turn;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use winpool_core::api::WindowsPool;
use winpool_e2e::machine::usage::Usage;
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::scene::install_crd;
use winpool_e2e::scene::program::{Program, start_child};
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::etcd::Etcd;

/// The first argument of the bench's own child processes.
pub const CHILD: &str = "child";

/// Heartbeats in parallel: the machine is busy, but not overloaded.
const HEARTBEATS: usize = 16;

/// The most CPU time, in seconds, that an idle process needs in a second.
const IDLE: f64 = 0.02;

pub struct Stage {
    // Dropped first, or it would report that the API server is gone.
    pub observer: Observer,
    pub server: ApiServer,
    pub client: Client,
    nodes: Api<Node>,
    pools: Api<WindowsPool>,
    /// The number of nodes that exist between turns.
    pub size: usize,
    pub program: PathBuf,
    taints: Value,
    /// The spec by which nodes are observed, and which the floor writes.
    spec: Value,
}

impl Stage {
    /// Starts a control plane whose nodes have these taints.
    pub async fn start(program: &Path, size: usize, taints: Value, spec: Value) -> Result<Self> {
        let etcd = Arc::new(Etcd::start().await?);
        // Every turn writes all nodes, and etcd keeps each version until it is compacted.
        let flags = ["--disable-admission-plugins=ServiceAccount", "--etcd-compaction-interval=1m"];
        let server = ApiServer::start_with(&etcd, "bench", &flags).await?;
        let client = server.connect()?;
        install_crd(&client).await?;
        let observer = Observer::start(server.connect()?, policy(&spec.to_string())?);
        let (nodes, pools) = (Api::all(client.clone()), Api::all(client.clone()));
        let stage = Self { observer, server, client, nodes, pools, size, program: program.to_owned(), taints, spec };
        stage.join(0..size).await?;
        stage.until(size, 0).await?;
        Ok(stage)
    }

    /// Waits until this many nodes exist, and this many are converged.
    pub async fn until(&self, nodes: usize, converged: usize) -> Result<()> {
        self.observer.until(|n, c| (n, c) == (nodes, converged)).await
    }

    pub async fn join(&self, numbers: Range<usize>) -> Result<()> {
        create(&self.client, NODES, &objects::node(&self.taints), numbers).await
    }

    /// Creates the pool `default` or changes its spec.
    pub async fn apply_pool(&self, spec: &Value) -> Result<()> {
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": spec,
        });
        self.pools.patch("default", &PatchParams::apply("bench").force(), &Patch::Apply(pool)).await?;
        Ok(())
    }

    /// Lets winpool say at its start that it runs, so that it does not say so again within the next ten minutes.
    pub async fn forget_last_seen(&self) -> Result<()> {
        let unseen = Patch::Merge(json!({"status": {"lastSeen": null}}));
        self.pools.patch_status("default", &PatchParams::default(), &unseen).await?;
        Ok(())
    }

    /// Waits until the pool is Ready by its newest spec, and counts all nodes as converged.
    pub async fn until_ready(&self) -> Result<()> {
        wait_for("WindowsPool default is Ready", LIMIT, async || {
            let pool = self.pools.get("default").await?;
            let ready = pool.status.is_some_and(|status| {
                let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
                let all = usize::try_from(status.nodes.converged) == Ok(self.size);
                ready && all && status.observed_generation == pool.metadata.generation
            });
            Ok(ready.then_some(()))
        })
        .await?;
        Ok(())
    }

    /// Creates the pool, and lets winpool converge the nodes.
    pub async fn converge(&self) -> Result<()> {
        let writer = self.writer(Turn::Winpool, "").await?;
        self.apply_pool(&self.spec).await?;
        self.until(self.size, self.size).await?;
        self.until_ready().await?;
        writer.stop().await
    }

    /// Deletes the pool, its classes and all nodes, and creates the first nodes again.
    pub async fn reset(&self) -> Result<()> {
        self.delete_pool().await?;
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        Api::<RuntimeClass>::all(self.client.clone()).delete_collection(&delete, &all).await?;
        self.nodes.delete_collection(&delete, &all).await?;
        self.until(0, 0).await?;
        self.join(0..self.size).await?;
        self.until(self.size, 0).await
    }

    /// Deletes the pool, and leaves its nodes as they are.
    pub async fn delete_pool(&self) -> Result<()> {
        if self.pools.get_opt("default").await?.is_some() {
            let no_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            self.pools.patch("default", &PatchParams::default(), &no_finalizers).await?;
            self.pools.delete("default", &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Sends heartbeats of each node in turn.
    pub async fn heartbeats(&self, count: usize) -> Result<()> {
        let start = Timestamp::now().as_second();
        each(HEARTBEATS, 0..count, async |beat| {
            // Times have whole seconds, and a heartbeat that changes nothing makes no event.
            let time = Timestamp::from_second(start + i64::try_from(beat)?)?;
            let patch = json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": time}]}});
            let name = node_name(beat % self.size);
            self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
            Ok(())
        })
        .await
    }

    /// Starts winpool, or this child of the bench as the floor, and waits until it is ready.
    pub async fn writer(&self, turn: Turn, floor: &str) -> Result<Writer> {
        let started = Instant::now();
        let (process, ready) = match turn {
            Turn::Winpool => {
                let (operator, ready) = self.operator().await?;
                (Writing::Winpool(operator), ready)
            }
            Turn::Floor | Turn::Smallest => {
                let mut floor = Floor::start(&[floor.to_owned(), self.spec.to_string()], &self.server)?;
                floor.says("ready").await?;
                (Writing::Floor(floor), started.elapsed())
            }
        };
        Ok(Writer { process, ready: ready.as_secs_f64() })
    }

    /// Waits until the pool says that the pods are counted.
    pub async fn until_pods_are_counted(&self) -> Result<()> {
        wait_for("the pods are counted", LIMIT, async || {
            let status = self.pools.get("default").await?.status.unwrap_or_default();
            let is_counted = status.conditions.iter().any(|c| c.type_ == "WorkloadsHealthy" && c.status == "True");
            Ok(is_counted.then_some(()))
        })
        .await?;
        Ok(())
    }

    /// Changes the status of a pod twice, as a kubelet does, and deletes it.
    pub async fn change_and_delete_pod(&self, name: &str, status: &Value) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let creating = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}});
        for status in [creating, json!({"status": status})] {
            pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Starts winpool, and waits until it is ready and leads.
    pub async fn operator(&self) -> Result<(Program, Duration)> {
        let operator = Program::start(&self.program, &self.server)?;
        let ready = operator.answers("/readyz").await?;
        operator.leads().await?;
        Ok((operator, ready))
    }

    /// Lets the writer begin: winpool by its pool, the floor by a signal.
    pub async fn begin(&self, writer: &mut Writer) -> Result<()> {
        match &mut writer.process {
            Writing::Winpool(_) => self.apply_pool(&self.spec).await,
            Writing::Floor(floor) => Ok(floor.input.write_all(b"go\n").await?),
        }
    }
}

/// A process that is measured while it writes nodes.
pub struct Writer {
    process: Writing,
    /// Seconds from its start until it was ready.
    pub ready: f64,
}

enum Writing {
    Winpool(Program),
    Floor(Floor),
}

impl Writer {
    pub fn usage(&self) -> Result<Usage> {
        Ok(match &self.process {
            Writing::Winpool(operator) => operator.usage()?,
            Writing::Floor(floor) => Usage::of(floor.pid)?,
        })
    }

    /// Waits until the process is idle: a new winpool has listed the pods then.
    pub async fn until_idle(&self) -> Result<()> {
        let mut before = f64::NEG_INFINITY;
        loop {
            let now = self.usage()?.cpu_seconds;
            if now - before < IDLE {
                return Ok(());
            }
            before = now;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until the floor has its last answer.
    pub async fn done(&mut self) -> Result<()> {
        if let Writing::Floor(floor) = &mut self.process { floor.says("done").await } else { Ok(()) }
    }

    pub async fn stop(self) -> Result<()> {
        match self.process {
            Writing::Winpool(operator) => Ok(operator.stop().await?),
            Writing::Floor(mut floor) => Ok(floor.process.kill().await?),
        }
    }
}

struct Floor {
    process: Child,
    pid: u32,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Floor {
    fn start(arguments: &[String], server: &ApiServer) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).args(arguments).env("KUBECONFIG", server.kubeconfig());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (mut process, pid) = start_child(command)?;
        let (input, output) = process.stdin.take().zip(process.stdout.take()).ok_or("no pipes")?;
        Ok(Self { process, pid, input, output: BufReader::new(output).lines() })
    }

    async fn line(&mut self) -> Result<String> {
        let line = tokio::time::timeout(LIMIT, self.output.next_line()).await??;
        line.ok_or_else(|| "a child of the bench ended early".into())
    }

    async fn says(&mut self, word: &str) -> Result<()> {
        let line = self.line().await?;
        if line == word { Ok(()) } else { Err(format!("a child of the bench says {line}, not {word}").into()) }
    }
}

/// Runs a child that measures itself, and returns the JSON that it prints.
pub async fn measured_by_child(arguments: &[String], server: &ApiServer) -> Result<Value> {
    let line = Floor::start(arguments, server)?.line().await?;
    Ok(serde_json::from_str(&line)?)
}
