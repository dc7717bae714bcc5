//! The console blocks of the guide to `winpool check` show what the program prints.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::Path,
    process::{Command, Stdio},
};

const GUIDE: &str = include_str!("../docs/guides/check.md");

#[test]
fn the_commands_of_the_guide_print_what_it_shows() {
    let folder = Path::new(env!("CARGO_BIN_EXE_winpool")).parent().unwrap().to_str().unwrap();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let blocks = GUIDE.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands = 0;
    for step in blocks.flat_map(|block| block.split("$ ").skip(1)) {
        let (command, shown) = step.split_once('\n').unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        let output = shell.env("PATH", &path).env("KUBECONFIG", "/nonexistent").output().expect("there is a shell");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{command}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{command}");
        commands += 1;
    }
    assert!(commands > 0);
}
