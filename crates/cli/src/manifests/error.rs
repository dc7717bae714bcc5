//! An input that cannot be read.

use std::io;
use std::sync::Arc;

use thiserror::Error;
use winpool_analysis::view::Position;

/// An input that cannot be read.
#[derive(Debug, Error)]
pub enum InputError {
    #[error("cannot read {path}: {error}")]
    Unreadable {
        path: String,
        #[source]
        error: io::Error,
    },
    #[error("{0} is a URL: download it, and pipe it to winpool with -f -")]
    Url(String),
    #[error("{0} has no file that ends in .yaml, .yml or .json")]
    Empty(String),
    #[error("nothing was read: {0} has no Kubernetes object")]
    Nothing(String),
    #[error("{file}:{line}:{column}: {message}")]
    Syntax { file: Arc<str>, line: u64, column: u64, message: String },
    #[error("{at}: {object}: {message}")]
    Object { at: Position, object: String, message: String },
}
