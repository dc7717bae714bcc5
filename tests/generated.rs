//! The committed files that are generated from the code are up to date.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn the_committed_files_are_those_that_winpool_prints() {
    let definition = include_str!("../crds/winpool.dev_windowspools.yaml");
    for (arguments, committed) in [
        (&["crd"][..], definition),
        (&["generate", "crd"], definition),
        (&["generate", "advise"], include_str!("../config/components/advise/policy.yaml")),
        (&["generate", "check-rules"], include_str!("../docs/reference/check-rules.md")),
        (&["generate", "command-line"], include_str!("../docs/reference/command-line.md")),
        (&["generate", "metrics"], include_str!("../docs/reference/metrics.md")),
        (&["generate", "windowspool"], include_str!("../docs/reference/windowspool.md")),
        (&["generate", "errors"], include_str!("../docs/reference/errors.md")),
        (&["generate", "schema"], include_str!("../docs/reference/output.schema.json")),
        (&["generate", "conditions"], include_str!("../docs/reference/conditions.md")),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_winpool")).args(arguments).output().expect("the program starts");
        let printed = String::from_utf8(output.stdout).unwrap();
        let differs = printed.lines().zip(committed.lines()).find(|(printed, committed)| printed != committed);
        assert_eq!(differs, None, "{arguments:?}: run `make generate`");
        assert_eq!(printed.len(), committed.len(), "{arguments:?}: run `make generate`");
    }
}
