//! Errors of the demo.

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A component did not start, refused a request, or took too long.
    #[error(transparent)]
    E2e(#[from] winpool_e2e::Error),

    /// A pod runs on a node of the wrong kind.
    #[error("pod {pod} must run on a {wanted} node, but is on {node}, which reports {reports}")]
    WrongNode {
        pod: String,
        /// The kind of node that it needs.
        wanted: String,
        node: String,
        /// The kind of that node, as its kubelet reports.
        reports: String,
    },
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::E2e(error.into())
    }
}
