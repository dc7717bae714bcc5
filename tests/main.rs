//! The tests of the program, in one binary: they link once, and share API servers.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod check;
mod cleanup;
mod cli;
mod container;
mod documentation;
mod fuzz;
mod generated;
mod hostile;
mod images;
mod install;
mod leadership;
mod output;
mod program;
mod proxy;
mod release;
mod run;
mod why;
