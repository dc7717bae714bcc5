//! Options that several commands have.

use kube::Client;
use winpool_analysis::explain::groups::{By, Groups};
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::view::View;

use crate::commands::values;
use crate::print::output::Output;
use crate::read::origin::Origin;

/// The flag of kubectl, for commands that read all namespaces in any case.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct AllNamespaces {
    /// All namespaces, as without this flag.
    #[arg(long, short = 'A', hide = true)]
    pub all_namespaces: bool,
}

/// The flag of kubectl that names a namespace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Namespace {
    /// Namespace; the one of the current context if not set.
    #[arg(long, short)]
    pub namespace: Option<String>,
}

/// The flags of commands that read a namespace of the cluster or all of them. Manifests are read as a whole.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(mut_arg("namespace", |flag| flag.conflicts_with("files")))]
pub struct Namespaces {
    #[command(flatten)]
    pub one: Namespace,
    /// All namespaces.
    #[arg(long, short = 'A', conflicts_with_all = ["files", "namespace"])]
    pub all_namespaces: bool,
}

impl Namespaces {
    /// Returns the namespace to read, or `None` for all.
    pub fn of<'a>(&'a self, client: &'a Client) -> Option<&'a str> {
        let named = self.one.namespace.as_deref();
        (!self.all_namespaces).then(|| named.unwrap_or(client.default_namespace()))
    }
}

/// The flag of commands whose answer depends on the version of Kubernetes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Version {
    /// Kubernetes version, such as 1.36; the version of the cluster if not set. If that is unknown, all rules apply.
    #[arg(long, value_name = "VERSION", value_parser = values::kubernetes_version)]
    pub kubernetes_version: Option<KubernetesVersion>,
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
