//! The end: what winpool takes off when it is uninstalled.

pub mod cleanup;
pub mod installation;
