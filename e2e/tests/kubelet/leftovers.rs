//! Nothing outlives a test: Wine starts processes of its own, in sessions of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;
use winpool_e2e::{LIMIT, wait_for};

/// How many processes have a Windows of Wine below this folder. Each thread is asked: the first one may have ended.
fn processes(folder: &Path) -> usize {
    let mark = format!("WINEPREFIX={}/", folder.display());
    let threads = entries(Path::new("/proc")).flat_map(|process| entries(&process.join("task")));
    let of_wine = threads.filter(|thread| {
        let environment = fs::read(thread.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    });
    of_wine.count()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Catches a process or a file that stays when a test, or the demo, is killed while real kubelets run.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn nothing_is_left_of_a_process_that_is_killed_while_its_kubelets_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.arg("real").env("TMPDIR", folder.path()).stdout(Stdio::null()).kill_on_drop(true);
    let mut demo = demo.spawn().unwrap();
    let start = wait_for("the kubelets run", LIMIT * 4, async || Ok((processes(folder.path()) > 30).then_some(())));
    start.await.unwrap();
    demo.kill().await.unwrap();
    let end = wait_for("all of it is gone", LIMIT, async || {
        let is_empty = fs::read_dir(folder.path()).is_ok_and(|mut entries| entries.next().is_none());
        Ok((is_empty && processes(folder.path()) == 0).then_some(()))
    });
    end.await.unwrap();
}
