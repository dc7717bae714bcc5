//! Options that several commands have.

use winpool_analysis::explain::groups::{By, Groups};
use winpool_analysis::view::View;

use crate::print::output::Output;
use crate::read::origin::Origin;

/// The flag of kubectl, for commands that read all namespaces in any case.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct AllNamespaces {
    /// All namespaces, as without this flag.
    #[arg(long, short = 'A', hide = true)]
    pub all_namespaces: bool,
}

/// The options that select input and output format.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub origin: Origin,
    #[command(flatten)]
    pub output: Output,
}

/// `--by`: groups an answer, for lists by team.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Grouping {
    /// Group the answer: namespace, or label:KEY such as label:team. The label is that of the workload, or of its pods, or of its
    /// namespace: for the last, winpool also reads the namespaces.
    #[arg(long, value_name = "namespace|label:KEY")]
    pub by: Option<By>,
}

impl Grouping {
    /// Returns the groups of the objects in the view.
    pub fn groups(&self, view: &View) -> Option<Groups> {
        self.by.as_ref().map(|by| Groups::of(view, by))
    }

    /// Returns what to group by, as it was written.
    pub fn text(&self) -> Option<String> {
        self.by.as_ref().map(ToString::to_string)
    }

    /// True if the answer needs the labels of namespaces.
    pub fn needs_namespaces(&self) -> bool {
        self.by.as_ref().is_some_and(|by| by.label().is_some())
    }
}
