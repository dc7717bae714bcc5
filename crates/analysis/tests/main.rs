//! The tests of the answers, in one binary: they link once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the tests of the core use the rest")]
#[path = "../../core/tests/common/mod.rs"]
mod common;
mod forecast;
mod images;
mod lint;
mod pod_explanation;
mod policies;
mod readers;
mod remedies;
mod render;
mod system;

use serde_json::Value;
use winpool_analysis::view::{Node, SeenNode};

/// The node of this JSON.
fn seen(node: &Value) -> SeenNode {
    let listed: winpool_client::node::ListedNode = serde_json::from_value(node.clone()).unwrap();
    SeenNode::new(listed.object, node)
}

/// The node of this JSON as pods see it.
fn machine(node: &Value) -> Node {
    seen(node).host()
}
