use std::process::ExitCode;

use clap::Parser;
use kube::Config;
use tokio_util::sync::CancellationToken;
use winpool_client::causes::with_causes;
use winpool_client::terminal::{self, Outcome};
use winpool_operator::commands::{Cli, Command, Run};
use winpool_operator::{cleanup, telemetry};

/// musl's own allocator takes twice as much time as glibc's.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(Cli { command }) => command,
        // As any other error it ends with 1, because 2 means that something is left.
        Err(error) => return ExitCode::from(u8::from(error.print().is_err() || error.use_stderr())),
    };
    match execute(command).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("{}", terminal::error(&with_causes(&*error)));
            ExitCode::FAILURE
        }
    }
}

async fn execute(command: Command) -> Result<Outcome, Box<dyn std::error::Error>> {
    match command {
        Command::Run(arguments) => run(arguments).await.map(|()| Outcome::Done),
        Command::Cleanup(arguments) => cleanup::run(arguments).await,
    }
}

async fn run(arguments: Run) -> Result<(), Box<dyn std::error::Error>> {
    telemetry::start(arguments.log_format, telemetry::DIRECTIVES)?;
    let config = Config::infer().await?;
    let stop = CancellationToken::new();
    let ended = stop.clone();
    ctrlc::set_handler(move || ended.cancel())?;
    Ok(winpool_operator::run(config, arguments.options, stop).await?)
}
