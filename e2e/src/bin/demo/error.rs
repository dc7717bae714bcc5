//! Why the demo fails.

/// The result of a step.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something did not come up, was refused, or took too long.
    #[error(transparent)]
    E2e(#[from] winpool_e2e::Error),

    /// A pod is where it cannot run.
    #[error("pod {pod} must run on a {wanted} node, but is on {node}, which reports {reports}")]
    WrongNode {
        /// Its name.
        pod: String,
        /// What kind of node it needs.
        wanted: String,
        /// Where it is.
        node: String,
        /// What that node is, as its kubelet says.
        reports: String,
    },
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::E2e(error.into())
    }
}
