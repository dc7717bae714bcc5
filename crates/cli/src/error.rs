//! Errors of commands that only read.

use thiserror::Error;
use winpool_analysis::view::assume::AssumeError;
use winpool_client::kubeconfig::Unusable;
use winpool_core::plan::pools::pool::InvalidPool;
use winpool_simulation::Unfinished;

use crate::manifests::InputError;
use crate::print::output::OutputError;
use crate::read::live::ReadError;
use crate::read::registry::OptionsError;

const EMPTY_POOL: &str = "{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {name: default}}";

/// The other way to get an answer, if no cluster is known.
fn instead(error: &Unusable) -> &'static str {
    if matches!(error, Unusable::Infer(_)) { ". To read manifests, use -f" } else { "" }
}

impl Error {
    /// True if the same question may be answered later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotIn { .. } | Self::Read(ReadError::Failed { .. }))
    }

    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Lacking(_)) { 2 } else { 1 }
    }
}

/// An error of a command that only reads.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Assume(#[from] AssumeError),
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("{error}{hint}", error = .0, hint = instead(.0))]
    Connect(#[from] Unusable),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Registry(#[from] OptionsError),
    #[error("winpool read no WindowsPool in the manifests; add one, such as: {EMPTY_POOL}")]
    NoPool,
    #[error("there is no WindowsPool in the cluster")]
    NotInCluster,
    #[error(transparent)]
    Invalid(#[from] InvalidPool),
    #[error("there is no {kind} {name}")]
    NotFound { kind: &'static str, name: String },
    #[error("there is no {kind} {name} in namespace {namespace}")]
    NotIn { kind: &'static str, name: String, namespace: String },
    #[error("{0}")]
    Subject(String),
    /// The input does not show what the answer needs.
    #[error("{0}")]
    Lacking(String),
    #[error("cannot read the object: {0}")]
    Decode(#[from] serde_json::Error),
    #[error("there are several WindowsPools: {0}; name one with --pool")]
    Ambiguous(String),
    #[error("{0}")]
    NotRendered(String),
    #[error("cannot read the earlier report {path}: {reason}; make it with winpool report -o json")]
    Previous { path: String, reason: String },
    #[error("{path} is not the report of a cluster: {reason}; make it with winpool report -o json")]
    Report { path: String, reason: String },
    #[error("{path} is not a snapshot that this version can read: {reason}; make it with winpool snapshot > {path}")]
    Snapshot { path: String, reason: String },
    #[error("--move-to has to be a newer version than the one to retire: {target} does not replace {retired}")]
    OlderTarget { retired: &'static str, target: &'static str },
}
