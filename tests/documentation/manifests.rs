//! Manifests on pages are YAML, and their WindowsPools are valid.

use serde_json::Value;
use winpool_core::api::{WindowsPool, validation::violations};

use crate::page::Page;

#[test]
fn every_manifest_is_valid() {
    let mut pools = 0;
    for page in Page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            let place = format!("{}:{}", page.path.display(), block.line);
            let objects: Vec<Value> =
                serde_yaml::from_multiple(&block.text).unwrap_or_else(|error| panic!("{place}: {error}"));
            for object in objects.into_iter().filter(|object| object["kind"] == "WindowsPool") {
                let pool: WindowsPool =
                    serde_json::from_value(object).unwrap_or_else(|error| panic!("{place}: {error}"));
                let violations = violations(&pool);
                assert!(violations.is_empty(), "{place}: {violations:?}");
                pools += 1;
            }
        }
    }
    assert!(pools > 0, "there are manifests of WindowsPools");
}
