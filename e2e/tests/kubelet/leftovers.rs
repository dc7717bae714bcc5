//! Processes of a test end with it: Wine starts its own in separate sessions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use winpool_e2e::machine::wait::{LIMIT, wait_for};

/// The number of processes with a Windows of Wine below this directory. Each thread is checked: the first one may have
/// ended.
fn processes(directory: &Path) -> usize {
    let mark = format!("WINEPREFIX={}/", directory.display());
    let threads = entries(Path::new("/proc")).flat_map(|process| entries(&process.join("task")));
    let of_wine = threads.filter(|thread| {
        let environment = fs::read(thread.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    });
    of_wine.count()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Catches a process or a file that stays when a test, or the demo, is killed while real kubelets run.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn nothing_is_left_of_a_process_that_is_killed_while_its_kubelets_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.arg("real").env("TMPDIR", directory.path()).stdout(Stdio::null()).kill_on_drop(true);
    let mut demo = demo.spawn().unwrap();
    let start = wait_for("the kubelets run", LIMIT * 4, async || Ok((processes(directory.path()) > 30).then_some(())));
    start.await.unwrap();
    demo.kill().await.unwrap();
    let end = wait_for("all of it is gone", LIMIT, async || {
        let is_empty = fs::read_dir(directory.path()).is_ok_and(|mut entries| entries.next().is_none());
        Ok((is_empty && processes(directory.path()) == 0).then_some(()))
    });
    end.await.unwrap();
}
