//! The client with which winpool's programs read a cluster, its pages and its errors. Nothing here writes.

pub mod causes;
pub mod client;
pub mod error;
pub mod kubeconfig;
pub mod managed_fields;
pub mod node;
pub mod pages;
pub mod pods;
pub mod request_info;
pub mod requests;
pub mod terminal;
pub mod watches;
