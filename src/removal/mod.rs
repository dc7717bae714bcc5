//! Cleaning up, when winpool is uninstalled.

pub mod cleanup;
pub mod installation;
