//! Decides if a node runs the images of a pod: by the answers of registries or else by names and tags.

use winpool_core::api::{Isolation, names};
use winpool_core::windows::compatibility::Runs;

use crate::image::linux_only::{injector_of, is_only_for_linux};
use crate::image::matching::may_run_on_linux;
use crate::image::name::is_for_windows;
use crate::image::{Source, Verdict, verdict};
use crate::pod::{isolation_with, path_of};
use crate::view::Node;

use super::AdmittedPod;

impl AdmittedPod<'_> {
    /// True if the images start on a Windows node; `None` if neither a registry nor a tag provides the answer.
    pub fn images_start(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
        let has_started = self.pod.ran_on.as_ref() == Some(&machine.name);
        let Some(host) = machine.host() else {
            let is_asked = self.spec.image_builds().next().is_some() || !self.images.is_empty();
            let reasons = if is_asked { vec!["the node's build is not known".to_owned()] } else { Vec::new() };
            return (has_started.then_some(true).filter(|_| !is_asked), reasons);
        };
        let (mut worst, mut reasons) = (None, Vec::new());
        for (container, name) in self.spec.images() {
            if let Some(Err(unresolved)) = self.images.get(name) {
                reasons.push(format!("the platforms of {name} are unknown: {}", unresolved.reason));
            }
            if self.images.platforms(name).is_none() && is_only_for_linux(name) {
                return (Some(false), vec![format!("{name}: the image exists only for Linux")]);
            }
            let Verdict { runs, reason } =
                verdict(name, container.is_host_process, &host, self.isolation(), self.images);
            if has_started && matches!(runs, Some(Runs::IfContainerd(_) | Runs::Unknown)) {
                continue;
            }
            reasons.extend(reason);
            if runs == Some(Runs::No) {
                return (Some(false), reasons);
            }
            worst = worst.max(runs);
        }
        let is_told = worst.map_or_else(|| self.spec.is_host_process(), |worst| worst == Runs::Yes);
        ((is_told || has_started).then_some(true), reasons)
    }

    /// Returns the same for a Linux pod on a Linux node. containerd compares the platforms of an index only.
    pub(super) fn images_start_on_linux(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
        let architecture = machine.labels.get(names::ARCH);
        let mut unknown = Vec::new();
        for (_, name) in self.spec.images() {
            let Some(image) = self.images.platforms(name) else {
                if is_for_windows(name) && self.pod.ran_on.as_ref() != Some(&machine.name) {
                    return (Some(false), vec![format!("{name}: by its name the image is for Windows")]);
                }
                continue;
            };
            let mut variants = image.platforms.iter().filter(|platform| !platform.is_windows()).peekable();
            if variants.peek().is_none() {
                return (Some(false), vec![format!("{name}: no variant is for Linux")]);
            }
            let Some(architecture) = architecture else { continue };
            match (variants.any(|variant| may_run_on_linux(variant, architecture)), image.source) {
                (true, _) => {}
                (false, Source::Index) => {
                    return (Some(false), vec![format!("{name}: no variant is for Linux on {architecture}")]);
                }
                (false, Source::Manifest) => unknown.push(format!(
                    "{name}: its only variant is not for {architecture}, so it starts only if the node emulates another processor"
                )),
            }
        }
        (unknown.is_empty().then_some(true), unknown)
    }

    /// Describes how a pod for Windows gets rid of containers whose images exist only for Linux.
    pub(super) fn without_linux_images(&self) -> Option<String> {
        let images = self.spec.images().filter(|(_, name)| self.images.platforms(name).is_none());
        let mut of_linux = images.filter(|(_, name)| is_only_for_linux(name));
        let (container, image) = of_linux.next().filter(|_| self.is_windows)?;
        Some(match injector_of(image) {
            Some(injector) => format!("{}. Then recreate the pods", injector.remedy()),
            None => format!("remove {}, whose image {image} exists only for Linux", path_of(container)),
        })
    }

    pub fn isolation(&self) -> Isolation {
        isolation_with(self.class.map(|(_, class)| class))
    }
}
