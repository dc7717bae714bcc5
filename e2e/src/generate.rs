//! The files that are made from the code, for `make generate`. No program that is shipped knows both halves of the command
//! line.

use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use thiserror::Error;
use winpool::{reference, schema};
use winpool_answers::{lint::advise, reference as pages};

pub mod metrics;
#[cfg(test)]
mod tests;

/// The files that can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// `crds/winpool.dev_windowspools.yaml`.
    Crd,
    /// `config/components/advise/policy.yaml`.
    Advise,
    /// `docs/reference/check-rules.md`.
    CheckRules,
    /// `docs/reference/command-line.md`.
    CommandLine,
    /// `docs/reference/metrics.md`.
    Metrics,
    /// `docs/reference/windowspool.md`.
    #[value(name = "windowspool")]
    WindowsPool,
    /// `docs/reference/conditions.md`.
    Conditions,
    /// `docs/reference/errors.md`.
    Errors,
    /// `docs/reference/output.schema.json`.
    Schema,
}

/// YAML output failed, which does not happen in practice.
#[derive(Debug, Error)]
#[error("cannot write it as YAML: {0}")]
pub struct Error(#[from] serde_yaml::ser::Error);

const HEADER: &str = "\
# Written by `make generate` from the rules of `winpool check`. What they find in a Windows workload is shown as a warning
# when it is applied, and its audit event names the rules in the annotation <policy>/rules. Nothing is refused.
# Kubernetes 1.33 and later.
";

/// Returns the text of a file.
pub fn generate(what: What) -> Result<String, Error> {
    Ok(match what {
        What::Crd => reference::crd()?,
        What::Advise => policies()?,
        What::CheckRules => pages::rules::reference(),
        What::CommandLine => {
            reference::markdown(&mut winpool::commands::Cli::command(), &mut winpool_operator::commands::Cli::command())
        }
        What::Metrics => metrics::page(),
        What::WindowsPool => pages::api::fields(),
        What::Conditions => pages::api::meanings(),
        What::Errors => pages::errors::reference(),
        What::Schema => format!("{:#}\n", schema::schema()),
    })
}

fn policies() -> Result<String, Error> {
    let mut text = HEADER.to_owned();
    for (number, (policy, binding)) in advise::policies().into_iter().enumerate() {
        if number > 0 {
            text.push_str("---\n");
        }
        text.push_str(&serde_yaml::to_string(&policy)?);
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&binding)?);
    }
    Ok(text)
}

/// Writes a man page for each command of both programs into a directory.
pub fn man_pages(directory: &Path) -> std::io::Result<()> {
    reference::man_pages(winpool::commands::Cli::command(), directory)?;
    reference::man_pages(winpool_operator::commands::Cli::command(), directory)
}
