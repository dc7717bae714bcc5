//! The images that the Windows nodes run, by their builds and container runtimes.

use std::collections::BTreeSet;

use winpool_core::api::Isolation;
use winpool_core::windows::Build;
use winpool_core::windows::compatibility::{Runs, WindowsHost};

use crate::image::{Host, runs};
use crate::verdict::AdmittedPod;

use super::Facts;

impl Facts {
    /// Returns what decides which images the Windows nodes run that these pods select.
    pub(in crate::lint) fn windows_hosts(&self, pods: &AdmittedPod<'_>) -> BTreeSet<WindowsHost> {
        self.selected(pods).filter_map(|(_, standing)| Some(standing.host.as_ref()?.windows())).collect()
    }

    /// Returns whether all nodes of build `host` run images of a build. If there is no such node, it is supposed to get the
    /// containerd of one that is there, because clouds do not go back.
    pub fn runs(&self, isolation: Isolation, image: Build, host: Build) -> Runs {
        let present: BTreeSet<WindowsHost> = self.hosts().map(Host::windows).collect();
        let mut of_build = present.iter().filter(|present| present.build == host).peekable();
        let runtimes: BTreeSet<_> = match of_build.peek() {
            Some(_) => of_build.map(|present| present.runtime).collect(),
            None if present.is_empty() => BTreeSet::from([None]),
            None => present.iter().map(|present| present.runtime).collect(),
        };
        let answers = runtimes.into_iter().map(|runtime| runs(isolation, image, WindowsHost { build: host, runtime }));
        answers.max().unwrap_or(Runs::Unknown)
    }
}
