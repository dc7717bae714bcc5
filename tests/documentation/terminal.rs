//! The terminal of a reader who follows a page.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;
use winpool_e2e::machine::assets::Component;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::scene::program::program;

use super::page::{Page, ROOT};
use super::scene::Scene;
use super::transcript::{Step, agrees};

/// The longest time that a command may take: without it, one that waits for ever would stop all tests.
const PATIENCE: Duration = Duration::from_mins(5);

/// A directory that looks like a checkout, with kubectl, Helm and winpool on the PATH.
pub struct Terminal {
    /// Not the repository itself, so that files which are saved here do not end up in it.
    directory: TempDir,
    programs: TempDir,
    kubeconfig: String,
}

struct Outcome {
    code: Option<i32>,
    text: String,
}

impl Terminal {
    pub async fn open(scene: &Scene, page: &Page) -> Self {
        let (directory, programs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to).unwrap();
        for entry in ["charts", "config", "crds", "docs", "examples"] {
            link(&Path::new(ROOT).join(entry), &directory.path().join(entry));
        }
        let winpool = program("winpool").await.unwrap();
        for name in ["winpool", "kubectl-winpool"] {
            link(&winpool, &programs.path().join(name));
        }
        link(Path::new(env!("CARGO_BIN_EXE_winpool-operator")), &programs.path().join("winpool-operator"));
        let uses_helm = page.blocks.iter().any(|block| block.text.contains("$ helm "));
        for component in [Component::Kubectl].into_iter().chain(uses_helm.then_some(Component::Helm)) {
            link(&component.path().await.unwrap(), &programs.path().join(component.name()));
        }
        Self { directory, programs, kubeconfig: scene.kubeconfig() }
    }

    pub fn save(&self, file: &str, text: &str) {
        std::fs::write(self.directory.path().join(file), text).unwrap();
    }

    /// Executes the page; the difference, if the output is not the shown one.
    pub async fn follow(&self, step: &Step, fails: bool) -> Result<(), String> {
        let shown = step.shown.join("\n");
        let shown: Vec<String> = shown.trim_end().lines().map(str::to_owned).collect();
        let is_right = |outcome: &Outcome| {
            let succeeded = outcome.code == Some(0) || (outcome.code == Some(2) && of_winpool(&step.command));
            let printed: Vec<&str> = outcome.text.trim_end().lines().collect();
            succeeded != fails && (shown.is_empty() || agrees(&shown, &printed))
        };
        let started = Instant::now();
        let mut outcome = self.run(&step.command).await;
        if !is_right(&outcome) && only_looks(&step.command) {
            // Repeats read commands until the change that was begun is complete, as a reader does.
            let again = wait_for("it is as shown", LIMIT, async || {
                outcome = self.run(&step.command).await;
                Ok(is_right(&outcome).then_some(()))
            });
            let _ = again.await;
        }
        let right = is_right(&outcome);
        let Outcome { code, text } = outcome;
        println!("$ {}\n{text}({:.1} s)\n", step.command, started.elapsed().as_secs_f32());
        if right {
            return Ok(());
        }
        Err(format!("`{}` is to show\n{}\nand shows, exit code {code:?}:\n{text}", step.command, shown.join("\n")))
    }

    async fn run(&self, command: &str) -> Outcome {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.programs.path().display());
        let run = Command::new("bash")
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.programs.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("COLUMNS", "80")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let Ok(output) = tokio::time::timeout(PATIENCE, run).await else {
            return Outcome { code: None, text: format!("it did not end within {PATIENCE:?}") };
        };
        let output = output.unwrap();
        Outcome { code: output.status.code(), text: String::from_utf8_lossy(&output.stdout).into_owned() }
    }
}

/// Exit code 2 means that there is something to do, or that something was found.
fn of_winpool(command: &str) -> bool {
    ["winpool ", "winpool-operator "].iter().any(|program| command.starts_with(program))
        || command.starts_with("kubectl winpool ")
}

/// True if it may be repeated.
fn only_looks(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    if words.contains(&"--dry-run=server") {
        return true;
    }
    match &words[..] {
        ["kubectl", "-n", _, rest @ ..] | ["kubectl", "winpool", rest @ ..] | ["kubectl" | "winpool", rest @ ..] => {
            matches!(rest, ["get" | "describe" | "explain" | "auth" | "wait", ..] | ["rollout", "status", ..])
                || matches!(rest, ["plan" | "why" | "check" | "blockers" | "render" | "builds", ..])
        }
        _ => false,
    }
}
