//! The tests of the answers, in one binary: they link once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod check_and_why;
#[allow(dead_code, reason = "the tests of the core use the rest")]
#[path = "../../core/tests/common/mod.rs"]
mod common;
mod forecast;
mod images;
mod lint;
mod pod_explanation;
mod readers;
mod remedies;
mod render;
mod system;

use std::collections::BTreeMap;

use serde_json::Value;
use winpool_analysis::explain::forecast::Snapshot;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::verdict::Cluster;
use winpool_analysis::view::{Admission, Known, Node, Policies, SeenNode, Workload, Workloads};
use winpool_core::api::WindowsPool;
use winpool_core::pod::Class;

use crate::common::{now, read};

/// A cluster of these pools and nodes, without classes, pods and workloads.
fn snapshot<'n>(
    pools: impl IntoIterator<Item = WindowsPool>,
    nodes: impl IntoIterator<Item = (&'n str, Value)>,
) -> Snapshot {
    Snapshot {
        pools: pools.into_iter().map(Into::into).collect(),
        nodes: nodes.into_iter().map(|(name, node)| (name.to_owned(), read(&node))).collect(),
        classes: Vec::new(),
        workloads: Workloads::default(),
        pods: Known::Complete(Vec::new()),
        policies: Known::Complete(Policies::default()),
        admission: Admission::default(),
        now: now(),
    }
}

/// What pods find with these nodes and classes, if no registry was asked.
fn cluster(nodes: &[Node], classes: &BTreeMap<String, Class>) -> Cluster {
    Cluster { nodes: nodes.to_vec(), classes: classes.clone(), ..Cluster::default() }
}

/// The workload of this kind in the object, which may leave out what it is.
fn workload_of(kind: &'static WorkloadKind, mut object: Value) -> Workload {
    (object["apiVersion"], object["kind"]) = (kind.api_version().into(), kind.name.into());
    Workload::read_all(kind, &object).unwrap().remove(0)
}

/// The node of this JSON.
fn seen(node: &Value) -> SeenNode {
    let listed: winpool_client::node::ListedNode = serde_json::from_value(node.clone()).unwrap();
    SeenNode::new(listed.object, node)
}

/// The node of this JSON as pods see it.
fn machine(node: &Value) -> Node {
    seen(node).host()
}
