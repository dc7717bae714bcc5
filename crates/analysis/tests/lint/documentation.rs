//! The page that maps the statements of the Windows documentation to rules, facts, or a reason why neither is needed.

use std::collections::BTreeSet;
use std::path::Path;

use winpool_analysis::lint::{rule, rules};

const PAGE: &str = include_str!("../../../../docs/reference/windows-documentation.md");

/// The rows of its tables, cell by cell: those of the pages, and those of the statements.
fn rows() -> (Vec<Vec<&'static str>>, Vec<Vec<&'static str>>) {
    let lines = PAGE.lines().filter(|line| line.starts_with("| ") && !line.contains("| Page |"));
    let cells = lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    cells.filter(|cells| cells[0] != "Page").partition(|cells| cells.len() == 2)
}

#[test]
fn every_statement_names_its_page_and_what_covers_it() {
    let (pages, statements) = rows();
    let pages: BTreeSet<&str> = pages.iter().map(|cells| cells[0]).collect();
    let mut cited = BTreeSet::new();
    assert!(statements.len() > 90, "{}", statements.len());
    for cells in &statements {
        let [statement, from, covered] = cells.as_slice() else { panic!("{cells:?}") };
        for page in from.split(", ") {
            assert!(pages.contains(page), "{statement}: there is no page {page}");
            cited.insert(page);
        }
        let is_covered = ["rule `", "fact: [", "the rules above"].iter().any(|start| covered.starts_with(start));
        assert!(is_covered || covered.starts_with("out of scope, because "), "{statement}: {covered}");
    }
    assert_eq!(cited, pages, "a page without statements");
}

#[test]
fn the_rules_and_facts_that_it_names_exist() {
    let (_, statements) = rows();
    let mut named = BTreeSet::new();
    for (statement, covered) in statements.iter().map(|cells| (cells[0], cells[2])) {
        for id in covered.split("rule `").skip(1).filter_map(|rest| rest.split('`').next()) {
            assert!(rule(id).is_some(), "{statement}: there is no rule {id}");
            named.insert(id);
        }
        for link in covered.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(link);
            assert!(path.is_file(), "{statement}: there is no page {link}");
        }
    }
    assert!(named.len() > 60 && named.len() <= rules().count(), "{named:?}");
}
