//! Errors that say what to do next.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use winpool_client::causes::with_causes;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why the control plane could not be built, started, reached or used.
#[derive(thiserror::Error)]
pub enum Error {
    #[error(
        "building {component} needs Go, and `go` could not be started ({source}). \
         Install Go 1.26 or later (https://go.dev/dl)"
    )]
    GoMissing { component: String, source: io::Error },

    #[error(
        "`{command}` failed ({status}). It needs a Go module proxy or a filled module cache. Its last words:\n{tail}"
    )]
    GoFailed { command: String, status: String, tail: String },

    #[error("{0}")]
    WineMissing(String),

    #[error("no browser: install {0}")]
    BrowserMissing(String),

    #[error("no axe-core: set WINPOOL_AXE to the path that e2e/browser/prepare.sh prints, or run make programs-test")]
    AxeMissing,

    #[error("the browser: {0}")]
    Browser(String),

    #[error("{} has no {line:?} any more: see e2e/kubelet/README.md", .file.display())]
    Moved { file: PathBuf, line: &'static str },

    #[error(
        "KUBEBUILDER_ASSETS is set, but {} is not there. Fill the directory (`setup-envtest use`) \
         or unset the variable to have it built", .path.display()
    )]
    AssetMissing { path: PathBuf },

    #[error("{module} is not required in its go.mod: restore e2e/*/go.mod from version control")]
    NotPinned { module: String },

    #[error("{variable}={wanted}: there is a control plane of 1.33, 1.34, 1.35, 1.36 and 1.37")]
    UnknownKubernetes { variable: &'static str, wanted: String },

    #[error("{told_by} says that Kubernetes is {version:?}, which is not a version such as v1.36.3")]
    UnreadableVersion { told_by: &'static str, version: String },

    #[error("no cache directory: set XDG_CACHE_HOME or HOME")]
    NoCacheFolder,

    #[error("could not {action} {}: {source}", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },

    #[error("no free port on 127.0.0.1: {0}")]
    Port(io::Error),

    #[error("{program} could not be started: {source}")]
    NotStarted { program: String, source: io::Error },

    #[error("`{command}` failed ({status}). It said:\n{output}")]
    ToolFailed { command: String, status: String, output: String },

    #[error("{program} ended by itself ({status}). The end of its log:\n{tail}")]
    Died { program: String, status: String, tail: String },

    #[error("{what}: not so after {} s. {seen}", .limit.as_secs_f32())]
    Timeout { what: String, limit: Duration, seen: String },

    #[error("a certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),

    #[error("the API server: {}", with_causes(.0.as_ref()))]
    Kube(Box<kube::Error>),

    #[error("it cannot be emptied: {0}")]
    NotEmptied(String),

    #[error("{}: {why}", .path.display())]
    Manifest { path: PathBuf, why: String },

    #[error("the operator: {0}")]
    Operator(#[from] winpool_operator::Error),

    #[error("the operator ended by itself: {0}")]
    OperatorEnded(String),

    #[error("signals cannot be received: {0}")]
    Signal(io::Error),

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
