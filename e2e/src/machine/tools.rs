//! kubectl and Helm, as an administrator uses them.

use crate::error::{Error, Result, text};
use crate::machine::assets::Component;
use crate::machine::guard::Guard;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

impl Component {
    /// Runs the program as the user of `kubeconfig`, and returns its standard output.
    ///
    /// The user's own environment and configuration have no influence. Caches are in the kubeconfig's directory.
    pub async fn run(self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        let program = self.path().await?;
        let home = kubeconfig.parent().unwrap_or(Path::new("/"));
        let output = Command::new(&program)
            .args(arguments)
            .env_clear()
            .env("HOME", home)
            .env("KUBECONFIG", text(kubeconfig)?)
            .stdin(Stdio::null())
            .process_group(Guard::get()?.process_group())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| Error::NotStarted { program: program.display().to_string(), source })?;
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() {
            return Ok(stdout);
        }
        Err(Error::ToolFailed {
            command: format!("{} {}", self.name(), arguments.join(" ")),
            status: output.status.to_string(),
            output: stdout + &stderr,
        })
    }
}
