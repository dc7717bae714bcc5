//! What an answer lacks, because a part of the cluster or of the manifests could not be read.

use std::collections::BTreeSet;

use winpool_client::terminal::Outcome;

use super::{
    live::{self, ReadError},
    output::{Text, WARN},
};

/// The gaps of an answer. Standard error names each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// True if a file or an object in manifests could not be read.
    pub in_manifests: bool,
    /// True if the user may not list a kind that the answer needs.
    pub in_cluster: bool,
}

impl Gaps {
    /// The gaps of an answer from manifests.
    pub fn of_manifests(are_complete: bool) -> Self {
        Self { in_manifests: !are_complete, in_cluster: false }
    }

    /// Tells the user what the answer lacks, if the user may not list a kind. Fails with any other error.
    pub fn note_if_forbidden(&mut self, listed: Result<(), ReadError>, lacks: &str) -> Result<(), ReadError> {
        if let Some(error) = live::unless_forbidden(listed)? {
            live::note(&format!("{error}; {lacks}"));
            self.in_cluster = true;
        }
        Ok(())
    }

    pub fn add(&mut self, other: Self) {
        self.in_manifests |= other.in_manifests;
        self.in_cluster |= other.in_cluster;
    }

    /// Returns the outcome of a command whose answer has these gaps. An answer with gaps is never a clean one.
    pub fn outcome(self, outcome: Outcome) -> Outcome {
        match self {
            Self { in_manifests: true, .. } => Outcome::Unread,
            Self { in_cluster: true, .. } => outcome.max(Outcome::Pending),
            Self { .. } => outcome,
        }
    }
}

/// Adds a line that names the resources that an answer lacks.
pub fn show_unlisted(text: &mut Text, unlisted: &BTreeSet<String>) {
    if !unlisted.is_empty() {
        let names: Vec<&str> = unlisted.iter().map(String::as_str).collect();
        let why = format!(", because you may not list these: {}", names.join(", "));
        text.hanging("", "", WARN, "The answer is incomplete", &why);
    }
}
