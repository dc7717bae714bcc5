//! The names that nearly every test of the operator uses: its harness, JSON, and the objects and requests of Kubernetes.

pub use k8s_openapi::api::core::v1::{Node, Pod};
pub use k8s_openapi::api::node::v1::RuntimeClass;
pub use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
pub use kube::{Api, Client, ResourceExt};
pub use serde_json::{Value, json};
pub use winpool_core::api::{ClassState, WindowsPool};
pub use winpool_operator::Options;

pub use crate::harness::*;
pub use crate::{
    AuditLog, Cluster, Dice, Kubelet, LIMIT, MUTATING_ADMISSION_POLICY, SimulatedNode, lend, lend_cluster, manifests,
    needs, wait_for,
};
