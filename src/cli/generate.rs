//! `winpool generate`: files that are made from the table of rules, for `make generate`.

use clap::ValueEnum;
use thiserror::Error;
use winpool_core::check::{advise, reference::reference};

/// What can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// `config/components/advise/policy.yaml`.
    Advise,
    /// `docs/reference/check-rules.md`.
    CheckRules,
}

/// Never in practice: all of it can be written as YAML.
#[derive(Debug, Error)]
#[error("cannot write the policies as YAML: {0}")]
pub struct Error(#[from] serde_yaml::ser::Error);

const HEADER: &str = "\
# Written by `make generate` from the rules of `winpool check`. What they find in a Windows workload is shown as a warning
# when it is applied, and its audit event names the rules in the annotation <policy>/rules. Nothing is refused.
# Kubernetes 1.33 and later.
";

/// The text of a file.
///
/// # Errors
/// Never in practice.
pub fn generate(what: What) -> Result<String, Error> {
    match what {
        What::CheckRules => Ok(reference()),
        What::Advise => {
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
    }
}
