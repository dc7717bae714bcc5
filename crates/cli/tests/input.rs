//! Programs that read from a pipe.

use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

/// Runs a command with this standard input.
pub fn with_input(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the program starts");
    match process.stdin.take().unwrap().write_all(input.as_bytes()) {
        // A command whose arguments are wrong ends before it reads.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    process.wait_with_output().unwrap()
}
