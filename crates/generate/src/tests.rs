use super::*;

#[test]
fn the_committed_files_are_those_that_the_code_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, text) in files(&root).unwrap() {
        let committed = read(&root, path).unwrap();
        let differs = text.lines().zip(committed.lines()).find(|(text, committed)| text != committed);
        assert_eq!(differs, None, "{path}: run `make generate`");
        assert_eq!(text.len(), committed.len(), "{path}: run `make generate`");
        assert!(text.lines().count() > 20, "{path}: {text}");
    }
}

#[test]
fn the_table_of_values_has_their_paths_defaults_and_comments() {
    let values =
        "# First,\n# or | second.\na: 1\n\n# Of a tree.\nb:\n  # Below.\n  c: {}\n  d: x\n  e:\n# Lost.\n\nf: []\n";
    let rows: Vec<String> = values::table(values).lines().skip(2).map(str::to_owned).collect();
    let expected = [
        r"| `a` | `1` | First, or \| second. |",
        "| `b` |  | Of a tree. |",
        "| `b.c` | `{}` | Below. |",
        "| `b.d` | `x` |  |",
        "| `f` | `[]` |  |",
    ];
    assert_eq!(rows, expected);
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
