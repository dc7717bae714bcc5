//! The committed files that are made from the table of rules are the ones that the program prints.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn the_committed_policy_and_reference_are_those_that_the_program_prints() {
    for (what, committed) in [
        ("advise", include_str!("../config/components/advise/policy.yaml")),
        ("check-rules", include_str!("../docs/reference/check-rules.md")),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_winpool")).args(["generate", what]).output();
        let printed = String::from_utf8(output.expect("the program starts").stdout).unwrap();
        let differs = printed.lines().zip(committed.lines()).find(|(printed, committed)| printed != committed);
        assert_eq!(differs, None, "{what}: run `make generate`");
        assert_eq!(printed.len(), committed.len(), "{what}: run `make generate`");
    }
}
