//! The commands of `winpool`, one file or directory each.

mod blockers;
mod builds;
mod check;
mod diff;
mod fix;
mod images;
mod options;
mod plan;
pub mod reference;
mod render;
mod report;
pub mod schema;
mod snapshot;
mod status;
mod values;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use winpool_client::causes::with_causes;
use winpool_client::terminal::{self, Outcome};

use crate::Error;
use crate::print::output;

/// Answers questions about Windows nodes and workloads. It changes nothing in the cluster.
#[derive(Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Status(status::Arguments),
    Plan(plan::Arguments),
    Why(why::Arguments),
    Check(check::Arguments),
    Fix(fix::Arguments),
    Blockers(blockers::Arguments),
    Images(images::Arguments),
    Report(report::Arguments),
    Diff(diff::Arguments),
    Snapshot(snapshot::Arguments),
    Render(render::Arguments),
    Builds(builds::Arguments),
    /// Print the CustomResourceDefinition.
    #[command(after_help = "Examples:\n  winpool crd | kubectl apply -f -")]
    Crd,
    Completions(reference::Completions),
    /// Print the version.
    #[command(after_help = "Examples:\n  winpool version")]
    Version,
}

/// Runs the command that the process was started with.
pub async fn main() -> ExitCode {
    let matches = Cli::command().bin_name(program()).try_get_matches();
    let command = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { command }) => command,
        Err(error) => return output::usage(&error),
    };
    match Box::pin(execute(command)).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("{}", terminal::error(&with_causes(&*error)));
            error.downcast_ref().map_or(ExitCode::FAILURE, |error: &Error| error.exit_code().into())
        }
    }
}

/// The name that shells complete: the file's own.
fn file_name() -> &'static str {
    if program() == "winpool" { "winpool" } else { "kubectl-winpool" }
}

/// The name that the user typed: `winpool`, or `kubectl winpool` if it is installed as a plugin.
fn program() -> &'static str {
    let path = std::env::args_os().next().unwrap_or_default();
    let plugin = Path::new(&path).file_stem().is_some_and(|name| name == "kubectl-winpool");
    if plugin { "kubectl winpool" } else { "winpool" }
}

async fn execute(command: Command) -> Result<Outcome, Box<dyn std::error::Error>> {
    match command {
        Command::Status(arguments) => return Ok(status::run(arguments).await?),
        Command::Plan(arguments) => return Ok(plan::run(arguments).await?),
        Command::Why(arguments) => return Ok(why::run(arguments).await?),
        Command::Check(arguments) => return Ok(check::run(arguments).await?),
        Command::Fix(arguments) => return Ok(Box::pin(fix::run(arguments)).await?),
        Command::Blockers(arguments) => return Ok(blockers::run(arguments).await?),
        Command::Images(arguments) => return Ok(images::run(arguments).await?),
        Command::Report(arguments) => return Ok(report::run(arguments).await?),
        Command::Diff(arguments) => return Ok(diff::run(arguments).await?),
        Command::Snapshot(arguments) => return Ok(snapshot::run(arguments).await?),
        Command::Render(arguments) => return Ok(render::run(arguments).await?),
        Command::Builds(arguments) => return Ok(builds::run(arguments)?),
        Command::Completions(arguments) => {
            output::emit(&reference::completions(Cli::command().bin_name(file_name()), arguments.shell))?;
        }
        Command::Crd => output::emit(&reference::crd()?)?,
        Command::Version => output::emit(concat!("winpool ", env!("CARGO_PKG_VERSION"), "\n"))?,
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_that_it_understands() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        for subcommand in visible {
            let examples = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = examples.lines().skip(1).collect();
            assert!(!lines.is_empty(), "{} has no examples", subcommand.get_name());
            for line in lines {
                let words = line.split(" | ").flat_map(|part| part.split("<(")).find(|part| part.contains("winpool "));
                let words = words.unwrap_or_else(|| panic!("{line}")).trim_matches([' ', ')']);
                let words = words.split(" > ").next().unwrap_or_default().split(' ').filter(|word| !word.is_empty());
                let parsed = Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
