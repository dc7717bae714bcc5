//! A proxy that injects faults between a client and an API server.

mod answer;
pub mod proxy;
pub mod schedule;
pub mod traffic;
