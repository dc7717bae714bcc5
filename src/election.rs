//! Leader election: of several processes, only the leader writes to the cluster.
//!
//! [`Elector`] acquires and renews a Lease, as [`winpool_core::election`] decides. It shares [`Leadership`] with the
//! rest of the process: the term in which this process leads, and its end. A term ends by itself when no renewal is
//! accepted, and at once when another process holds the Lease.

mod elector;
mod leadership;
mod seized;

pub use elector::Elector;
pub use leadership::Leadership;
pub use seized::Seized;
