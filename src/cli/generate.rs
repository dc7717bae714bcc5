//! `winpool generate`: the files that are made from the code, for `make generate`.

use clap::{Command, ValueEnum};
use thiserror::Error;
use winpool_core::{
    api,
    lint::{self, advise},
    pod::errors,
};

use crate::metrics;

use super::{reference, schema};

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

/// Returns the text of a file; `command` is the complete command line.
pub fn generate(what: What, command: &mut Command) -> Result<String, Error> {
    Ok(match what {
        What::Crd => crate::crd_yaml()?,
        What::Advise => policies()?,
        What::CheckRules => lint::reference::reference(),
        What::CommandLine => reference::markdown(command),
        What::Metrics => metrics::reference::markdown(),
        What::WindowsPool => api::reference::fields(),
        What::Conditions => api::reference::meanings(),
        What::Errors => errors::reference(),
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
