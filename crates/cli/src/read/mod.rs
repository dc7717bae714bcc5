//! What commands read: a live cluster, manifests and registries.

pub(crate) mod against;
pub(crate) mod assume;
pub mod forecast;
pub(crate) mod gaps;
pub(crate) mod installation;
pub(crate) mod live;
pub(crate) mod origin;
pub mod registry;
pub(crate) mod resolve;
pub mod view;
