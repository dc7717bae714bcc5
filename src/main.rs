use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use kube::Config;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use winpool::{
    Options,
    api_server::causes::with_causes,
    cli::{Outcome, blockers, builds, check, cleanup, generate, images, output, plan, reference, render, status, why},
    telemetry::{self, LogFormat},
};

/// musl's own allocator takes twice as much time as glibc's.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes Windows nodes safe to run beside Linux ones.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator.
    Run(Run),
    Status(status::Arguments),
    Plan(plan::Arguments),
    Why(why::Arguments),
    Check(check::Arguments),
    Blockers(blockers::Arguments),
    Images(images::Arguments),
    Cleanup(cleanup::Arguments),
    Render(render::Arguments),
    Builds(builds::Arguments),
    /// Print the CustomResourceDefinition.
    #[command(after_help = "Examples:\n  winpool crd | kubectl apply -f -")]
    Crd,
    Completions(reference::Completions),
    /// Write man pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        directory: PathBuf,
    },
    /// Print a file that is made from the code.
    #[command(hide = true)]
    Generate {
        #[arg(value_enum)]
        what: generate::What,
    },
    /// Print the version.
    #[command(after_help = "Examples:\n  winpool version")]
    Version,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  winpool run
  winpool run --listen 127.0.0.1:8080 --leader-election false")]
struct Run {
    #[command(flatten)]
    options: Options,
    /// Format of log lines; `RUST_LOG` sets the level.
    #[arg(long, env = "WINPOOL_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let matches = Cli::command().bin_name(program()).try_get_matches();
    let command = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { command }) => command,
        Err(error) => {
            // Help and version go to standard output. A usage error ends with 1 like any other error, because 2 means
            // findings.
            let asked = !error.use_stderr();
            let shown =
                if asked { output::emit(&error.render().ansi().to_string()).is_ok() } else { error.print().is_ok() };
            return if asked && shown { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    match execute(command).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("{}", output::error(&with_causes(&*error)));
            ExitCode::FAILURE
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
        Command::Run(arguments) => run(arguments).await?,
        Command::Status(arguments) => return Ok(status::run(arguments).await?),
        Command::Plan(arguments) => return Ok(plan::run(arguments).await?),
        Command::Why(arguments) => return Ok(why::run(arguments).await?),
        Command::Check(arguments) => return Ok(check::run(arguments).await?),
        Command::Blockers(arguments) => return Ok(blockers::run(arguments).await?),
        Command::Images(arguments) => return Ok(images::run(arguments).await?),
        Command::Cleanup(arguments) => return Ok(cleanup::run(arguments).await?),
        Command::Render(arguments) => return Ok(render::run(arguments).await?),
        Command::Builds(arguments) => return Ok(builds::run(arguments)?),
        Command::Completions(arguments) => {
            output::emit(&reference::completions(Cli::command().bin_name(file_name()), arguments.shell))?;
        }
        Command::Man { directory } => reference::man_pages(Cli::command(), &directory)?,
        Command::Generate { what } => output::emit(&generate::generate(what, &mut Cli::command())?)?,
        Command::Crd => output::emit(&winpool::crd_yaml()?)?,
        Command::Version => output::emit(concat!("winpool ", env!("CARGO_PKG_VERSION"), "\n"))?,
    }
    Ok(Outcome::Done)
}

async fn run(arguments: Run) -> Result<(), Box<dyn std::error::Error>> {
    telemetry::start(arguments.log_format)?;
    let config = Config::infer().await?;
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn({
        let stop = stop.clone();
        async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.cancel();
        }
    });
    Ok(winpool::run(config, arguments.options, stop).await?)
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
