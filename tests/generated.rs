//! The committed files that are generated from the code are up to date.

use std::process::Command;

#[test]
fn the_troubleshooting_guide_has_the_table_of_errors() {
    let guide = include_str!("../docs/guides/troubleshooting.md");
    let (_, table) = guide.split_once("<!-- errors -->\n\n").unwrap();
    let rows: Vec<&str> = table.split_once("\n\n<!-- end of errors -->").unwrap().0.lines().collect();
    let of_reference = include_str!("../docs/reference/errors.md").lines().filter(|line| line.starts_with('|'));
    let expected: Vec<String> = of_reference.map(|row| row.rsplitn(3, '|').nth(2).unwrap().to_owned() + "|").collect();
    assert_eq!(rows, expected, "run `make generate`");
    assert!(rows.len() > 8, "{rows:?}");
}

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
