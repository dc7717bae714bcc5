//! The committed CustomResourceDefinition is the one that the program prints.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn the_committed_definition_is_the_one_that_the_program_prints() {
    let output = Command::new(env!("CARGO_BIN_EXE_winpool")).arg("crd").output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let committed = include_str!("../crds/winpool.dev_windowspools.yaml");
    let remedy = "run `cargo run -- crd > crds/winpool.dev_windowspools.yaml`";
    let differs = printed.lines().zip(committed.lines()).find(|(printed, committed)| printed != committed);
    assert_eq!(differs, None, "{remedy}");
    assert_eq!(printed.len(), committed.len(), "{remedy}");
}
