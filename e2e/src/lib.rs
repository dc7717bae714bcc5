//! A real Kubernetes control plane on this machine, with simulated nodes: for tests, the demo and use by hand.
//!
//! A test borrows what it needs. Everything ends with the test binary:
//!
//! ```no_run
//! # async fn test() -> winpool_e2e::error::Result<()> {
//! use winpool_e2e::nodes::simulated::SimulatedNode;
//! use winpool_e2e::servers::lending::{lend, lend_cluster};
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
//! A module uses only those before it: `error`, `machine`, `network`, `nodes`, `servers`, `wine`, `scene`, `harness`.
//!
//! `cargo run -p winpool-e2e --bin cluster` starts a cluster for experiments.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "only tests of this workspace use it")]

pub mod error;
pub mod harness;
pub mod machine;
pub mod network;
pub mod nodes;
pub mod scene;
pub mod servers;
pub mod wine;
