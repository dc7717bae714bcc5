//! Links within the repository have a target, on GitHub and in the book.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::page::{Page, ROOT};

/// The address under which pages of the book and other texts name a file of the repository.
const REPOSITORY: [&str; 2] =
    ["https://github.com/winpool/winpool/blob/main/", "https://github.com/winpool/winpool/tree/main/"];

#[test]
fn every_link_leads_somewhere() {
    let pages = Page::all();
    let anchors: BTreeMap<&Path, &[String]> =
        pages.iter().map(|page| (page.path.as_path(), page.anchors.as_slice())).collect();
    let mut broken = Vec::new();
    for page in &pages {
        for (link, line) in &page.links {
            if let Err(why) = check(page, link, &anchors) {
                broken.push(format!("{}:{line}: {link}: {why}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The summary lists all pages but the internal ones. The start page lists the guides and references; others list runbooks.
#[test]
fn every_page_is_in_the_book_and_on_its_start_page() {
    let listed = |index: &str| -> BTreeSet<PathBuf> {
        let links = Page::read(index).links;
        links.iter().map(|(link, _)| Path::new("docs").join(link)).collect()
    };
    let (summary, start) = (listed("docs/SUMMARY.md"), listed("docs/README.md"));
    let pages = Page::all().into_iter().map(|page| page.path);
    let found: BTreeSet<PathBuf> =
        pages.filter(|path| path.starts_with("docs") && !path.ends_with("SUMMARY.md") && !is_internal(path)).collect();
    assert_eq!(found.difference(&summary).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "pages, and not listed");
    assert_eq!(summary.difference(&found).collect::<Vec<_>>(), Vec::<&PathBuf>::new(), "listed, and no pages");
    let by_task = |path: &&PathBuf| path.starts_with("docs/guides") || path.starts_with("docs/reference");
    let missing: Vec<_> = found.difference(&start).filter(by_task).collect();
    assert!(missing.is_empty(), "docs/README.md does not list {missing:?}");
}

/// Users do not need these, so they are not in the book.
fn is_internal(path: &Path) -> bool {
    path.starts_with("docs/decisions") || path.ends_with("windows-documentation.md")
}

/// The whole address, or its end if the text has its beginning.
#[test]
fn every_file_that_contributing_names_is_there() {
    let mut there = BTreeSet::new();
    tree(Path::new(""), &mut there);
    let text = std::fs::read_to_string(Path::new(ROOT).join("CONTRIBUTING.md")).unwrap();
    let is_path = |word: &&str| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        let file = [".rs", ".yaml", ".md", ".svg"].iter().any(|end| word.ends_with(end));
        plain && (file || word.contains('/')) && !word.starts_with("target/")
    };
    let named: BTreeSet<&str> = text.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(named.len() > 40, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !there.iter().any(|path| path.ends_with(name))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// On all pages, by the whole path.
#[test]
fn every_file_that_a_page_names_is_there() {
    const DIRECTORIES: [&str; 7] = ["charts/", "config/", "crates/", "e2e/", "fuzz/", "src/", "tests/"];
    let is_plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let mut missing = Vec::new();
    for page in Page::all() {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&page.path)).unwrap();
        let named = text.split('`').skip(1).step_by(2).filter(is_plain);
        let of_ours = named.filter(|word| DIRECTORIES.iter().any(|directory| word.starts_with(directory)));
        let gone = of_ours.filter(|name| !Path::new(ROOT).join(name).exists());
        missing.extend(gone.map(|name| format!("{}: {name}", page.path.display())));
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

fn tree(directory: &Path, there: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(Path::new(ROOT).join(directory)).unwrap() {
        let entry = entry.unwrap();
        let path = directory.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() && !["target", ".git"].contains(&path.to_str().unwrap()) {
            tree(&path, there);
        }
        there.insert(path);
    }
}

fn check(page: &Page, link: &str, anchors: &BTreeMap<&Path, &[String]>) -> Result<(), &'static str> {
    let in_repository = REPOSITORY.iter().find_map(|prefix| link.strip_prefix(prefix));
    if link.contains("://") && in_repository.is_none() {
        return Ok(());
    }
    let (path, fragment) = match in_repository.unwrap_or(link).split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (in_repository.unwrap_or(link), None),
    };
    let directory = page.path.parent().unwrap_or(Path::new(""));
    let target = match in_repository {
        Some(_) => PathBuf::from(path),
        None if path.is_empty() => page.path.clone(),
        None => tidy(&directory.join(path)).ok_or("leads out of the repository")?,
    };
    let file = Path::new(ROOT).join(&target);
    if !file.exists() {
        return Err("there is no such file");
    }
    if in_repository.is_none() && page.path.starts_with("docs") {
        if !target.starts_with("docs") {
            return Err("leads out of the book: write https://github.com/winpool/winpool/blob/main/…");
        }
        if file.is_dir() {
            return Err("is a directory, which the book does not show: name a page of it");
        }
    }
    match (fragment, anchors.get(target.as_path())) {
        (Some(fragment), Some(anchors)) if !anchors.iter().any(|anchor| anchor == fragment) => {
            Err("has no such heading")
        }
        _ => Ok(()),
    }
}

/// Without `..`.
fn tidy(path: &Path) -> Option<PathBuf> {
    path.components().try_fold(PathBuf::new(), |mut tidy, part| match part {
        Component::ParentDir => tidy.pop().then_some(tidy),
        Component::CurDir => Some(tidy),
        _ => {
            tidy.push(part);
            Some(tidy)
        }
    })
}
