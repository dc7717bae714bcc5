//! Writes the files that are made from the code, or man pages into a directory; `make generate` uses it.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use winpool_generate::{man_pages, write};

#[derive(Parser)]
enum Generate {
    /// Writes all files below the current directory.
    Files,
    ManPages {
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Generate::parse() {
        Generate::Files => write(Path::new(".")).map_err(|error| error.to_string()),
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
