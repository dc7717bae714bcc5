//! The tests of the command line, in one binary: they link once, and share API servers.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests prepare a cluster")]

mod access;
mod admission;
mod against;
mod agreement;
mod assembled;
mod assume;
mod blockers;
mod check;
mod cli;
mod extensions;
mod failing;
mod fix;
mod frozen;
mod fuzz;
mod images;
mod input;
mod installation;
mod kinds;
mod manifests;
mod mixed;
mod output;
mod piped;
mod plan;
mod proxy;
mod reads_only;
mod report;
mod teams;
mod unknown;
mod upgrade;
mod why;
