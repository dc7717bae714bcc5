//! The names that nearly every test of the operator uses: its harness, JSON, and the objects and requests of Kubernetes.

pub use k8s_openapi::api::{
    core::v1::{Node, Pod},
    node::v1::RuntimeClass,
};
pub use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
pub use serde_json::{Value, json};
pub use winpool_core::api::{ClassState, WindowsPool};
pub use winpool_operator::Options;

pub use crate::{
    AuditLog, Cluster, Dice, Kubelet, LIMIT, MUTATING_ADMISSION_POLICY, SimulatedNode, harness::*, lend, lend_cluster,
    manifests, needs, wait_for,
};
