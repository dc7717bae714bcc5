//! Prints a file that is made from the code, or writes man pages into a directory; `make generate` uses it.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use winpool_e2e::generate::{What, generate, man_pages};

#[derive(Parser)]
enum Generate {
    Print { what: What },
    ManPages { directory: PathBuf },
}

fn main() -> ExitCode {
    let result = match Generate::parse() {
        Generate::Print { what } => generate(what).map(|text| print!("{text}")).map_err(|error| error.to_string()),
        Generate::ManPages { directory } => man_pages(&directory).map_err(|error| error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}
