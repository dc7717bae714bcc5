//! Certificates, kubeconfigs, and a network that can be cut.

pub(crate) mod certificates;
pub(crate) mod kubeconfig;
pub mod proxy;
