//! A node as the API server shows it.

use std::sync::Arc;

use crate::plan::node::NodeFields;

/// A node as a watch or a read shows it: its identity, and the fields that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObject {
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    /// The fields that winpool decides by.
    pub node: NodeFields,
    /// True until the kubelet first reports the node's status after registration.
    pub is_as_registered: bool,
}
