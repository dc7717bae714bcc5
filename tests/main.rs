//! The tests of the operator's program and of the installation, in one binary: they link once, and share API servers.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod cleanup;
mod container;
mod decoded;
mod documentation;
mod hostile;
mod install;
mod leadership;
mod program;
mod release;
mod run;
