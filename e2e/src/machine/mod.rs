//! This machine: programs that are built or found once, processes with their logs, and the guard that ends them.

pub mod assets;
pub mod browser;
pub mod dice;
pub(crate) mod go;
pub(crate) mod guard;
pub mod process;
mod tools;
pub mod usage;
pub mod wait;
