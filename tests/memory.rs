//! The functions of `native/memory.c`, which only the static program uses: a test in C tries them on every target.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn memory_is_moved_set_and_compared_as_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("test");
    let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-o"];
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/native/test.c");
    let built = Command::new("cc").args(flags).arg(&program).arg(source).status().unwrap();
    assert!(built.success());
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
