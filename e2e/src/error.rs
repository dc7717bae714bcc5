//! Errors that say what to do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use winpool::api_server::causes::with_causes;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why the control plane could not be built, started, reached or used.
#[derive(thiserror::Error)]
pub enum Error {
    /// Go is not installed, and something has to be built.
    #[error(
        "building {component} needs Go, and `go` could not be started ({source}). \
         Install Go 1.26 or later (https://go.dev/dl)"
    )]
    GoMissing { component: String, source: io::Error },

    /// A Go command ran and failed.
    #[error(
        "`{command}` failed ({status}). It needs a Go module proxy or a filled module cache. Its last words:\n{tail}"
    )]
    GoFailed { command: String, status: String, tail: String },

    /// Wine is not installed, which a real kubelet needs.
    #[error("{0}")]
    WineMissing(String),

    /// A source file of Go is not the expected one.
    #[error("{} has no {line:?} any more: see e2e/kubelet/README.md", .file.display())]
    Moved {
        /// The file of the standard library.
        file: PathBuf,
        /// The expected content.
        line: &'static str,
    },

    /// `KUBEBUILDER_ASSETS` names a directory without the binary.
    #[error(
        "KUBEBUILDER_ASSETS is set, but {} is not there. Fill the directory (`setup-envtest use`) \
         or unset the variable to have it built", .path.display()
    )]
    AssetMissing { path: PathBuf },

    /// A go.mod of this crate does not name the module it must pin.
    #[error("{module} is not required in its go.mod: restore e2e/*/go.mod from version control")]
    NotPinned { module: String },

    /// A Kubernetes version without a go.mod.
    #[error("{variable}={wanted}: there is a control plane of 1.33, 1.34, 1.35, 1.36 and 1.37")]
    UnknownKubernetes { variable: &'static str, wanted: String },

    /// A text that is no version of Kubernetes.
    #[error("{told_by} says that Kubernetes is {version:?}, which is not a version such as v1.36.3")]
    UnreadableVersion { told_by: &'static str, version: String },

    /// There is no directory for the cache.
    #[error("no cache directory: set XDG_CACHE_HOME or HOME")]
    NoCacheFolder,

    /// A file or directory could not be read, written or created.
    #[error("could not {action} {}: {source}", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },

    /// There is no free port on 127.0.0.1.
    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),

    /// A program could not be started.
    #[error("{program} could not be started: {source}")]
    NotStarted { program: String, source: io::Error },

    /// kubectl or Helm ended with an error.
    #[error("`{command}` failed ({status}). It said:\n{output}")]
    ToolFailed { command: String, status: String, output: String },

    /// A process of the control plane ended by itself.
    #[error("{program} ended by itself ({status}). The end of its log:\n{tail}")]
    Died { program: String, status: String, tail: String },

    /// A condition did not become true in time.
    #[error("{what}: not so after {} s. {seen}", .limit.as_secs_f32())]
    Timeout { what: String, limit: Duration, seen: String },

    /// A certificate could not be created.
    #[error("a certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),

    /// The API server refused a request or could not be reached.
    #[error("the API server: {}", with_causes(.0.as_ref()))]
    Kube(Box<kube::Error>),

    /// An API server could not be restored to its initial state.
    #[error("it cannot be emptied: {0}")]
    NotEmptied(String),

    /// A manifest cannot be used.
    #[error("{}: {why}", .path.display())]
    Manifest { path: PathBuf, why: String },

    /// The operator could not start, or ended with an error.
    #[error("the operator: {0}")]
    Operator(#[from] winpool::Error),

    /// The operator ended without an error but too early, or by a panic.
    #[error("the operator ended by itself: {0}")]
    OperatorEnded(String),

    /// The process cannot be told to stop.
    #[error("signals cannot be received: {0}")]
    Signal(io::Error),

    /// A path that must go into a flag or a kubeconfig is not UTF-8.
    #[error("{} is not UTF-8: set TMPDIR or XDG_CACHE_HOME to another directory", .0.display())]
    NotUtf8(PathBuf),
}

/// Shows the message, because a failed test prints this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

impl From<http::Error> for Error {
    fn from(error: http::Error) -> Self {
        Self::from(kube::Error::HttpError(error))
    }
}

/// Adds the file and the action to an I/O error.
pub(crate) trait FileContext<T> {
    fn when(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn when(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::File { action, path: path.to_owned(), source })
    }
}

/// The path as text, for a flag.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::NotUtf8(path.to_owned()))
}
