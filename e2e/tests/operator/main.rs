//! What winpool does on a real Kubernetes control plane. Every test has an API server of its own.

mod empty_pool;
mod spellings;
mod support;
