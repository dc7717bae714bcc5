//! The Kubernetes version of the tests, and tests that need a newer one.

use crate::error::{Error, Result};
use crate::machine::assets::{Component, newest_kubernetes};
use crate::machine::go::progress;
use tokio::process::Command;
use tokio::sync::OnceCell;

/// A feature that tests need and not every supported Kubernetes has.
#[derive(Clone, Copy, Debug)]
pub struct Feature<'a> {
    pub name: &'a str,
    /// The first version with it, by the minor of 1.
    pub since: u32,
}

/// MutatingAdmissionPolicy in the version of winpool's policies.
pub const MUTATING_ADMISSION_POLICY: Feature<'_> = Feature { name: "MutatingAdmissionPolicy v1", since: 36 };

/// Ends a test with a message if the Kubernetes version lacks this [`Feature`]. On the newest version it never does.
#[macro_export]
macro_rules! needs {
    ($feature:expr) => {
        if $crate::servers::version::Feature::is_missing(&$feature).await.unwrap() {
            return;
        }
    };
}

impl Feature<'_> {
    /// True if the Kubernetes version has it.
    pub async fn is_there(&self) -> Result<bool> {
        let version = newest_kubernetes()?;
        let newest = read(version).ok_or_else(|| unreadable("go.mod", version))?;
        Ok(self.is_in(running_kubernetes().await?, newest))
    }

    /// True if it is missing; then a message says that the test is skipped.
    pub async fn is_missing(&self) -> Result<bool> {
        let missing = !self.is_there().await?;
        if missing {
            let thread = std::thread::current();
            let test = thread.name().unwrap_or_default();
            progress(&format!("skipped: {} needs Kubernetes 1.{} ({test})", self.name, self.since));
        }
        Ok(missing)
    }

    /// The newest version has every feature: a test that can run nowhere is a mistake and fails there.
    fn is_in(&self, running: u32, newest: u32) -> bool {
        running >= newest || running >= self.since
    }
}

/// The minor version of the API server, such as 36 of v1.36.3, from its binary.
pub async fn running_kubernetes() -> Result<u32> {
    static VERSION: OnceCell<u32> = OnceCell::const_new();
    VERSION.get_or_try_init(ask).await.copied()
}

async fn ask() -> Result<u32> {
    let program = Component::KubeApiserver.path().await?;
    let output = Command::new(&program)
        .arg("--version")
        .output()
        .await
        .map_err(|source| Error::NotStarted { program: program.display().to_string(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(text.trim_start_matches("Kubernetes ")).ok_or_else(|| unreadable("kube-apiserver --version", &text))
}

/// The minor version in `v1.36.3`.
fn read(version: &str) -> Option<u32> {
    version.strip_prefix("v1.")?.split('.').next()?.parse().ok()
}

fn unreadable(told_by: &'static str, version: &str) -> Error {
    Error::UnreadableVersion { told_by, version: version.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_versions_lack_what_is_newer_and_the_newest_lacks_nothing() {
        for (since, running, there) in
            [(36, 33, false), (36, 35, false), (34, 34, true), (36, 36, true), (99, 36, true)]
        {
            let feature = Feature { name: "a feature", since };
            assert_eq!(feature.is_in(running, 36), there, "since {since} in {running}");
        }
    }

    #[test]
    fn versions_are_read_as_programs_say_them() {
        assert_eq!(read("v1.33.13\n"), Some(33));
        assert_eq!(read("v1.36.0-alpha.1"), Some(36));
        assert_eq!(read("1.36.3"), None);
    }
}
