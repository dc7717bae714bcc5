//! The seeds of the fuzz targets, including past findings, on stable Rust. `make fuzz` starts from them.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/properties.rs"]
mod properties;

fn replay(target: &str, property: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 5, "{} has {} seeds", directory.display(), seeds.len());
    for seed in seeds {
        let data = fs::read(&seed).unwrap();
        let held = std::panic::catch_unwind(|| property(&data));
        assert!(held.is_ok(), "{}", seed.display());
    }
}

macro_rules! seeds {
    ($($test:ident: $target:ident;)+) => {
        $(#[test]
        fn $test() {
            replay(stringify!($target), properties::$target);
        })+
    };
}

seeds! {
    no_annotation_removes_taints_that_winpool_never_added: annotation;
    a_patch_changes_exactly_what_the_plan_says: node;
    a_patch_is_accepted_only_on_the_node_that_it_was_computed_from: patch;
    one_item_of_a_list_keeps_no_other_from_being_decoded: list;
    any_manifests_are_read_or_refused_in_few_words: manifests;
}
