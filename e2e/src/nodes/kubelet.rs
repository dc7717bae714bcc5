//! The kubelet of a simulated node: its writes to its Node after it has joined.

use super::simulated::{ARCH, OS, SimulatedNode, WINDOWS_BUILD, conditions};
use super::windows;
use crate::error::Result;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

/// The labels that a kubelet sets whenever it starts. It does not change other labels.
const SET_AT_START: [&str; 5] = [OS, ARCH, "beta.kubernetes.io/os", "beta.kubernetes.io/arch", WINDOWS_BUILD];

/// The kubelet of a simulated node that has joined.
#[derive(Clone)]
pub struct Kubelet {
    node: SimulatedNode,
    nodes: Api<Node>,
}

impl Kubelet {
    pub(super) fn of(node: SimulatedNode, nodes: Api<Node>) -> Self {
        Self { node, nodes }
    }

    pub(super) fn node(&self) -> &SimulatedNode {
        &self.node
    }

    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The node as it is on the server now.
    pub async fn get(&self) -> Result<Node> {
        Ok(self.nodes.get(self.name()).await?)
    }

    /// Sends one periodic status report: only heartbeat times and the list of images change.
    pub async fn heartbeat(&self) -> Result<()> {
        let now = Timestamp::now();
        let node = self.get().await?;
        let reported = node.status.and_then(|status| status.conditions);
        let conditions: Vec<Value> = reported
            .iter()
            .flatten()
            .map(|condition| json!({"type": condition.type_, "lastHeartbeatTime": now}))
            .collect();
        let image = format!("example.com/heartbeat:{}", now.as_nanosecond());
        self.report(&json!({
            "conditions": conditions,
            "images": [{"names": [image], "sizeBytes": 320_000}],
        }))
        .await
    }

    /// Reports the node as Ready, or as not ready.
    pub async fn report_ready(&self, ready: bool) -> Result<()> {
        self.report(&json!({"conditions": conditions(ready, Timestamp::now())})).await
    }

    /// Restarts the kubelet: it sets its own labels again, even if they were changed, and reports its status.
    pub async fn restart(&self) -> Result<()> {
        let mut labels = self.node.all_labels();
        labels.retain(|key, _| SET_AT_START.contains(&key.as_str()));
        self.patch(&json!({"metadata": {"labels": labels}})).await?;
        self.report(&json!({"nodeInfo": self.node.info})).await
    }

    /// Upgrades the machine to another Windows or revision under the same Node. The kubelet restarts and reports it; a
    /// kubelet that sets windows-build (1.17 or later) corrects the label.
    pub async fn upgrade_in_place(&self, kernel_version: &str) -> Result<Self> {
        let upgraded = self.with_kernel(kernel_version);
        upgraded.restart().await?;
        Ok(upgraded)
    }

    /// The same upgrade with a kubelet that does not correct the label: one before 1.17, or one that may not register
    /// its node.
    pub async fn upgrade_in_place_without_label(&self, kernel_version: &str) -> Result<Self> {
        let upgraded = self.with_kernel(kernel_version);
        upgraded.report(&json!({"nodeInfo": upgraded.node.info})).await?;
        Ok(upgraded)
    }

    /// The machine comes back as `other`, with the same name and the same Node object: os, arch and all reported
    /// fields change; labels, annotations and taints of other writers stay.
    pub async fn reimage(&self, other: SimulatedNode) -> Result<Self> {
        let reimaged = Self { node: other.name(self.name()), nodes: self.nodes.clone() };
        reimaged.restart().await?;
        Ok(reimaged)
    }

    /// The machine is removed by a scale-down: its Node is deleted.
    pub async fn leave(self) -> Result<()> {
        self.nodes.delete(self.name(), &DeleteParams::default()).await?;
        Ok(())
    }

    fn with_kernel(&self, kernel_version: &str) -> Self {
        let mut upgraded = self.clone();
        let info = &mut upgraded.node.info;
        kernel_version.clone_into(&mut info.kernel_version);
        let build = windows::build_label(kernel_version).unwrap_or_default();
        windows::os_image(&build).clone_into(&mut info.os_image);
        upgraded
    }

    /// Kubelets report with strategic merge patches of the status, in which lists merge by type or name.
    async fn report(&self, status: &Value) -> Result<()> {
        let patch = Patch::Strategic(json!({"status": status}));
        let params = PatchParams::default();
        self.nodes.patch_status(self.name(), &params, &patch).await?;
        Ok(())
    }

    async fn patch(&self, node: &Value) -> Result<()> {
        let params = PatchParams::default();
        self.nodes.patch(self.name(), &params, &Patch::Strategic(node)).await?;
        Ok(())
    }
}
