//! Errors of commands that only read.

use thiserror::Error;
use winpool_core::plan::InvalidPool;

use crate::registry::OptionsError;

use super::{connect::ConnectError, input::InputError, live::ReadError, output::OutputError};

const EMPTY_POOL: &str = "{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {name: default}}";

/// A command that only reads cannot answer.
#[derive(Debug, Error)]
pub enum Error {
    /// Manifests cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// No cluster to talk to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster does not show what is needed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output does not take the answer.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The options for registries cannot be used.
    #[error(transparent)]
    Registry(#[from] OptionsError),
    /// Without a pool there is nothing to plan.
    #[error("there is no WindowsPool among the manifests; add one, an empty one will do: {EMPTY_POOL}")]
    NoPool,
    /// The cluster has no pool.
    #[error("there is no WindowsPool in the cluster")]
    NotInCluster,
    /// A pool cannot be used.
    #[error(transparent)]
    Invalid(#[from] InvalidPool),
    /// There is nothing of that name.
    #[error("there is no {kind} {name}")]
    NotFound {
        /// Of which kind.
        kind: &'static str,
        /// Its name, with its namespace.
        name: String,
    },
    /// The words name nothing that can be explained.
    #[error("{0}")]
    Subject(String),
    /// Which pool is meant?
    #[error("there are several WindowsPools: {0}; name one with --pool")]
    Ambiguous(String),
    /// The provisioner's configuration cannot express what the user asked for.
    #[error("{0}")]
    NotRendered(String),
}
