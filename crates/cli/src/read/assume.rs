//! `--assume`: questions about a cluster whose nodes run another Windows version.

use clap::ValueHint;
use winpool_analysis::view::View;
use winpool_analysis::view::assume::{AssumeError, Assumed, Assumption, assume};

/// The flag of commands that can assume another Windows version.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Assume {
    /// Answer as if the Windows nodes with these labels ran this version, such as kubernetes.azure.com/agentpool=win:2025.
    /// Repeat the flag for other nodes. The version is a release or a build. Nothing is changed.
    #[arg(long, value_name = "SELECTOR:VERSION", value_parser = assumption, value_hint = ValueHint::Other)]
    pub assume: Vec<Assumption>,
}

fn assumption(text: &str) -> Result<Assumption, AssumeError> {
    text.parse()
}

impl Assume {
    pub fn is_wanted(&self) -> bool {
        !self.assume.is_empty()
    }

    /// Rewrites the nodes of the view, and returns what the answer assumes.
    pub fn apply(&self, view: &mut View) -> Result<Option<Assumed>, AssumeError> {
        self.is_wanted().then(|| assume(view, &self.assume)).transpose()
    }

    /// Rewrites the nodes of the view, and returns the note by which the answer says what it assumes.
    pub fn note(&self, view: &mut View) -> Result<Option<String>, AssumeError> {
        Ok(self.apply(view)?.map(|assumed| assumed.note()))
    }
}
