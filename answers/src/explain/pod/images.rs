//! Decides if a node runs the images of a pod: by the answers of registries or else by names and tags.

use winpool_core::{
    api::{Isolation, names},
    windows::{
        Build, KernelVersion,
        compatibility::{runs_by_hyperv_isolation, runs_by_process_isolation},
        image::{build_of, is_for_windows},
        product::name_of,
    },
};

use crate::{
    explain::images::reason,
    image::{PlatformMatch, Source, isolation_with, matching::may_run_on_linux},
    lint::image_verdict,
    pod::PodSpecExt,
    view::Node,
};

use super::admitted::AdmittedPod;

impl AdmittedPod<'_> {
    /// True if the images start on a Windows node; `None` if neither a registry nor a tag provides the answer.
    pub(super) fn images_start(&self, machine: &Node) -> (Option<bool>, Vec<String>) {
        let has_started = self.pod.ran_on.as_ref() == Some(&machine.name);
        let (Some(version), Some(host)) = (machine.version, machine.host()) else {
            let is_asked = self.spec.image_builds().next().is_some() || !self.images.is_empty();
            let reasons = if is_asked { vec!["the node's build is not known".to_owned()] } else { Vec::new() };
            return (has_started.then_some(true).filter(|_| !is_asked), reasons);
        };
        let (mut is_told, mut reasons) = (false, Vec::new());
        for (container, name) in self.spec.images() {
            match self.images.get(name) {
                Some(Ok(image)) => {
                    let verdict = image_verdict(container, image, &host, self.isolation());
                    let is_shown = !(container.is_host_process && matches!(verdict, PlatformMatch::NoVersion(_)));
                    reasons.extend(reason(&verdict, &host).filter(|_| is_shown).map(|why| format!("{name}: {why}")));
                    match verdict {
                        PlatformMatch::Fails(_) => return (Some(false), reasons),
                        PlatformMatch::NoVersion(_) => is_told |= container.is_host_process,
                        PlatformMatch::Runs(_) | PlatformMatch::NewerRevision(_) => is_told = true,
                    }
                    continue;
                }
                Some(Err(unresolved)) => {
                    reasons.push(format!("the platforms of {name} are unknown: {}", unresolved.reason));
                }
                None => {}
            }
            match build_of(name) {
                _ if self.spec.is_host_process() => is_told = true,
                Some(build) if self.runs(machine, version, build) => is_told = true,
                Some(build) => {
                    reasons.push(format!(
                        "an image of {} on a node of {}: \"no match for platform in manifest\" when it is pulled, or \
                         0xc0370101 when it starts",
                        name_of(build),
                        name_of(version.build)
                    ));
                    return (Some(false), reasons);
                }
                None => {}
            }
        }
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

    fn isolation(&self) -> Isolation {
        isolation_with(self.class.map(|(_, class)| class))
    }

    fn runs(&self, machine: &Node, host: KernelVersion, image: Build) -> bool {
        if self.isolation() == Isolation::HyperV {
            return runs_by_hyperv_isolation(host.build, image);
        }
        runs_by_process_isolation(host.build, machine.runtime, image)
    }
}
