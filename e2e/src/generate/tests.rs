use super::*;

#[test]
fn the_committed_files_are_those_that_the_code_makes() {
    for (what, committed) in [
        (What::Crd, include_str!("../../../crds/winpool.dev_windowspools.yaml")),
        (What::Advise, include_str!("../../../config/components/advise/policy.yaml")),
        (What::CheckRules, include_str!("../../../docs/reference/check-rules.md")),
        (What::CommandLine, include_str!("../../../docs/reference/command-line.md")),
        (What::Metrics, include_str!("../../../docs/reference/metrics.md")),
        (What::WindowsPool, include_str!("../../../docs/reference/windowspool.md")),
        (What::Errors, include_str!("../../../docs/reference/errors.md")),
        (What::Schema, include_str!("../../../docs/reference/output.schema.json")),
        (What::Conditions, include_str!("../../../docs/reference/conditions.md")),
    ] {
        let printed = generate(what).unwrap();
        let differs = printed.lines().zip(committed.lines()).find(|(printed, committed)| printed != committed);
        assert_eq!(differs, None, "{what:?}: run `make generate`");
        assert_eq!(printed.len(), committed.len(), "{what:?}: run `make generate`");
    }
}

#[test]
fn man_pages_are_written_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    man_pages(directory.path()).unwrap();
    for page in ["winpool.1", "winpool-plan.1", "winpool-why.1", "winpool-operator.1", "winpool-operator-run.1"] {
        let text = std::fs::read_to_string(directory.path().join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
}
