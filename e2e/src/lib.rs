//! A real Kubernetes control plane on this machine, with simulated nodes: for tests, the demo and use by hand.
//!
//! A test borrows what it needs. Everything ends with the test binary:
//!
//! ```no_run
//! # async fn test() -> winpool_e2e::Result<()> {
//! use winpool_e2e::{SimulatedNode, lend, lend_cluster};
//!
//! // An API server alone: enough for clients that watch and write.
//! let api = lend().await?;
//! SimulatedNode::server_2022("win-a").join(&api.client()).await?;
//! let as_kubelet = api.client_as("system:node:win-a", &["system:nodes"])?;
//!
//! // With scheduler, controller manager and kwok: nodes become ready and pods run.
//! let cluster = lend_cluster().await?;
//! SimulatedNode::linux().name("linux-a").join(&cluster.client()).await?;
//! cluster.node_ready("linux-a").await?;
//! # Ok(()) }
//! ```
//!
//! `cargo run -p winpool-e2e --bin cluster` starts a cluster for experiments.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "only tests of this workspace use it")]

mod api_server;
mod assets;
mod audit;
mod browser;
mod certificates;
mod cluster;
mod dice;
mod emptying;
mod error;
mod etcd;
mod faults;
mod go;
mod guard;
pub mod harness;
mod karpenter;
mod kubeconfig;
mod lending;
mod machine;
pub mod manifests;
mod nodes;
pub mod prelude;
mod process;
mod program;
mod prometheus;
mod proxy;
mod registry;
mod requests;
pub mod scene;
mod tools;
mod usage;
mod version;
mod wait;
mod webhook;

pub use api_server::{ApiServer, Neighbour};
pub use assets::{Component, kubernetes_version, prometheus_operator_definition};
pub use audit::{AuditLog, AuditedRequest};
pub use browser::{Browser, axe};
pub use cluster::{Cluster, Flags, start_controller_manager};
pub use dice::Dice;
pub use error::{Error, Result};
pub use etcd::Etcd;
pub use faults::{Fault, FaultProxy, InjectedError, Passed, Passing, Schedule};
pub use karpenter::{Karpenter, TYPES_WITH_BUILDS};
pub use lending::{Lent, lend, lend_cluster, lend_cluster_with, lend_with};
pub use machine::{
    Call, Machine, Printed, Session, WINDOWS_2019, WINDOWS_2022, WINDOWS_2025, Windows, prepare_machines,
    selected_by_containerd,
};
pub use nodes::{Kubelet, Sample, SimulatedNode, WINDOWS_BUILD};
pub use process::{Process, free_port};
pub use program::{Program, operator_program, program, start_child, start_winpool};
pub use prometheus::{Prometheus, promtool};
pub use proxy::Proxy;
pub use registry::{ImageRegistry, PASSWORD, Protection, USER};
pub use requests::{Requests, sample, scrape};
pub use usage::Usage;
pub use version::{Feature, MUTATING_ADMISSION_POLICY, running_kubernetes};
pub use wait::{LIMIT, wait_for};
pub use webhook::{HoldingWebhook, PodWebhook};
