//! The files that are made from the code, for `make generate`. No program that is shipped knows both halves of the command
//! line.

use std::path::Path;

use clap::CommandFactory;
use thiserror::Error;
use winpool::commands::{reference, schema};
use winpool_analysis::lint::advise;
use winpool_analysis::reference as pages;

pub mod metrics;
#[cfg(test)]
mod tests;
mod values;

#[derive(Debug, Error)]
pub enum Error {
    /// This does not happen in practice.
    #[error("cannot write it as YAML: {0}")]
    Yaml(#[from] serde_yaml::ser::Error),
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{0} has no lines <!-- values --> and <!-- end of values -->")]
    NoTable(&'static str),
    #[error("{0} has no lists in its variables `tags` and `runsOn`")]
    NoLists(&'static str),
}

const HEADER: &str = "\
# Written by `make generate` from the rules of `winpool check`. What they find in a Windows workload is shown as a warning
# when it is applied, and its audit event names the rules in the annotation <policy>/rules. Nothing is refused.
# Kubernetes 1.33 and later.
";

/// Returns each file, with its path below the root of the repository.
pub fn files(root: &Path) -> Result<Vec<(&'static str, String)>, Error> {
    let mut commands = (winpool::commands::Cli::command(), winpool_operator::commands::Cli::command());
    let mut files = vec![
        ("crds/winpool.dev_windowspools.yaml", reference::crd()?),
        ("config/components/advise/policy.yaml", policies()?),
        ("docs/reference/check-rules.md", pages::rules::reference()),
        ("docs/reference/command-line.md", reference::markdown(&mut commands.0, &mut commands.1)),
        ("docs/reference/metrics.md", metrics::page()),
        ("docs/reference/windowspool.md", pages::api::fields()),
        ("docs/reference/conditions.md", pages::api::meanings()),
        ("docs/reference/errors.md", pages::errors::reference()),
        ("docs/reference/output.schema.json", format!("{:#}\n", schema::schema())),
    ];
    let path = "config/components/assign-class/policy.yaml";
    let policy = pages::assign_class::with_builds(&read(root, path)?).ok_or(Error::NoLists(path))?;
    files.push((path, policy));
    let values = read(root, "charts/winpool/values.yaml")?;
    let path = "charts/winpool/README.md";
    let (page, start, end) = (read(root, path)?, "<!-- values -->\n", "<!-- end of values -->");
    let parts = page.split_once(start).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let (head, tail) = parts.ok_or(Error::NoTable(path))?;
    files.push((path, format!("{head}{start}\n{}\n{end}{tail}", values::table(&values))));
    Ok(files)
}

fn read(root: &Path, path: &str) -> Result<String, Error> {
    std::fs::read_to_string(root.join(path)).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Writes each file below this root.
pub fn write(root: &Path) -> Result<(), Error> {
    for (path, text) in files(root)? {
        std::fs::write(root.join(path), text).map_err(|source| Error::File { path: path.to_owned(), source })?;
    }
    Ok(())
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
