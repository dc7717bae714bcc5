//! Manifests on pages are YAML, and their WindowsPools are valid.

use serde_json::Value;
use winpool_analysis::crd::broken_rules;
use winpool_core::api::WindowsPool;

use super::page::Page;

#[test]
fn every_manifest_is_valid() {
    let mut pools = 0;
    for page in Page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            let place = format!("{}:{}", page.path.display(), block.line);
            let objects: Vec<Value> =
                serde_yaml::from_multiple(&block.text).unwrap_or_else(|error| panic!("{place}: {error}"));
            for object in objects.into_iter().filter(|object| object["kind"] == "WindowsPool") {
                assert_eq!(broken_rules(&object), Vec::<String>::new(), "{place}");
                serde_json::from_value::<WindowsPool>(object).unwrap_or_else(|error| panic!("{place}: {error}"));
                pools += 1;
            }
        }
    }
    assert!(pools > 0, "there are manifests of WindowsPools");
}

/// On GitHub and in the book a reader sees neither the language of a block nor its marks.
#[test]
fn a_manifest_that_the_reader_saves_begins_with_its_file_name() {
    for page in Page::of_users() {
        for (block, file) in page.blocks.iter().filter_map(|block| Some((block, block.file()?))) {
            let place = format!("{}:{}", page.path.display(), block.line);
            assert!(block.text.starts_with(&format!("# {file}\n")), "{place}: begin it with `# {file}`");
        }
    }
}
