//! Errors of commands that only read.

use thiserror::Error;
use winpool_core::plan::InvalidPool;

use crate::registry::OptionsError;

use super::{connect::ConnectError, input::InputError, live::ReadError, output::OutputError};

const EMPTY_POOL: &str = "{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {name: default}}";

/// An error of a command that only reads.
#[derive(Debug, Error)]
pub enum Error {
    /// Manifests cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// There is no cluster.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The answer cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The options for registries cannot be used.
    #[error(transparent)]
    Registry(#[from] OptionsError),
    /// The manifests have no pool.
    #[error("there is no WindowsPool among the manifests; add one, such as: {EMPTY_POOL}")]
    NoPool,
    /// The cluster has no pool.
    #[error("there is no WindowsPool in the cluster")]
    NotInCluster,
    /// A pool is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidPool),
    /// The object does not exist.
    #[error("there is no {kind} {name}")]
    NotFound {
        /// Its kind.
        kind: &'static str,
        /// Its name, with its namespace.
        name: String,
    },
    /// The argument does not name an object that winpool can explain.
    #[error("{0}")]
    Subject(String),
    /// There are several pools, and the user named none.
    #[error("there are several WindowsPools: {0}; name one with --pool")]
    Ambiguous(String),
    /// The provisioner's configuration cannot express what the user asked for.
    #[error("{0}")]
    NotRendered(String),
}
