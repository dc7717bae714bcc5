//! What an answer lacks, because a part of the cluster or of the manifests could not be read.

use winpool_analysis::view::Known;
use winpool_client::terminal::Outcome;

use crate::read::live::{self, ReadError};

/// The gaps of an answer. Standard error names each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// True if a file or an object in manifests could not be read.
    pub in_manifests: bool,
    /// True if the user may not list a kind that the answer needs.
    pub in_cluster: bool,
    /// True if a registry did not answer for an image that the user asked about.
    pub in_registries: bool,
}

impl Gaps {
    /// The gaps of an answer from manifests.
    pub fn of_manifests(are_complete: bool) -> Self {
        Self { in_manifests: !are_complete, ..Self::default() }
    }

    pub fn add(&mut self, other: Self) {
        self.in_manifests |= other.in_manifests;
        self.in_cluster |= other.in_cluster;
        self.in_registries |= other.in_registries;
    }

    /// Returns the outcome of a command whose answer has these gaps. An answer with gaps is never a clean one.
    pub fn outcome(self, outcome: Outcome) -> Outcome {
        match self {
            Self { in_manifests: true, .. } => Outcome::Unread,
            Self { in_cluster: true, .. } | Self { in_registries: true, .. } => outcome.max(Outcome::Pending),
            Self { .. } => outcome,
        }
    }
}

/// The gaps of an answer that names them itself.
#[derive(Clone, Debug, Default)]
pub struct Lacks {
    pub gaps: Gaps,
    /// What the answer lacks, with the reasons.
    pub notes: Vec<String>,
}

impl Lacks {
    /// Notes what the answer lacks, if the user may not list a kind. Fails with any other error.
    pub fn note_if_forbidden(&mut self, listed: Result<(), ReadError>, lacks: &str) -> Result<(), ReadError> {
        self.known(listed, lacks).map(drop)
    }

    /// Returns what was listed, and notes what the answer lacks if the user may not list it. Fails with any other error.
    pub fn known<T>(&mut self, listed: Result<T, ReadError>, lacks: &str) -> Result<Known<T>, ReadError> {
        if let Err(error @ ReadError::Forbidden { .. }) = &listed {
            self.notes.push(format!("{error}; {lacks}"));
            self.gaps.in_cluster = true;
        }
        live::known(listed)
    }
}
