//! Which manifest of an index the releases of containerd pull on Windows: their own code says it, in a program for Windows.

use super::prefix;
use super::windows::WINDOWS_2022;
use crate::error::{Error, FileContext, Result, text};
use crate::machine::assets::{cache_folder, fingerprint, make_once, off_the_runtime};
use crate::machine::go::{self, BuildOptions, Module};
use crate::machine::guard::Guard;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const MODULE: Module = Module {
    directory: concat!(env!("CARGO_MANIFEST_DIR"), "/platforms"),
    go_mod: include_str!("../../platforms/go.mod"),
    go_sum: include_str!("../../platforms/go.sum"),
    tags: "",
    duration: "a few seconds",
};
const SOURCE: &str = include_str!("../../platforms/main.go");

/// Answers questions as `e2e/platforms/main.go` reads them, each with the index of the manifest that is pulled, if any.
pub async fn selected_by_containerd(questions: &[serde_json::Value]) -> Result<Vec<Option<usize>>> {
    let input = questions.iter().fold(String::new(), |mut text, question| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{question}");
        text
    });
    let output = off_the_runtime(move || run(&input)).await?;
    Ok(output.lines().map(|line| line.trim().parse().ok()).collect())
}

fn run(input: &str) -> Result<String> {
    if let Some(missing) = prefix::missing() {
        return Err(Error::WineMissing(missing));
    }
    let program = program()?;
    let directory = Guard::get()?.directory("judge")?;
    let prefix = directory.path().join("wine");
    prefix::install(&prefix)?;
    prefix::write_registry(&prefix, "judge", WINDOWS_2022)?;
    prefix::forget_server(&prefix)?;
    let copy = prefix.join("drive_c/judge.exe");
    fs::copy(&program, &copy).when("write", &copy)?;
    let file = directory.path().join("questions");
    fs::write(&file, input).when("write", &file)?;
    let input = fs::File::open(&file).when("read", &file)?;
    let prefix = text(&prefix)?;
    let output = prefix::run_program(prefix, r"C:\judge.exe", input);
    prefix::end(prefix);
    output
}

fn program() -> Result<PathBuf> {
    let fingerprint = fingerprint(&[MODULE.go_mod, MODULE.go_sum, SOURCE]);
    let target = cache_folder()?.join(format!("platforms-{fingerprint}.exe"));
    let options = BuildOptions { linker_flags: "-s -w", os: Some("windows"), ..BuildOptions::default() };
    make_once(&target, "platforms.exe", |path| go::build(&MODULE, &["."], &options, "platforms.exe", path))?;
    Ok(target)
}
