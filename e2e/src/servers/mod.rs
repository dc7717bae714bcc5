//! The control plane and other servers, as processes of this machine.

pub mod api_server;
pub mod audit;
pub mod cluster;
pub mod definitions;
mod emptying;
pub mod etcd;
pub mod faults;
pub mod karpenter;
pub mod lending;
pub mod prometheus;
pub mod registry;
pub mod requests;
pub mod version;
pub mod webhook;
