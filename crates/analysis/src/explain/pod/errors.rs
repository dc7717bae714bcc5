//! The errors that pods report, with what winpool knows about them.

use winpool_core::api::Isolation;
use winpool_core::pod::{Cause, KnownError, PodProgress};
use winpool_core::words::plain;

use crate::image::linux_only::injector_of;
use crate::image::pause;
use crate::pod::{Pod, PodError};
use crate::verdict::{AdmittedPod, Cluster};
use crate::view::Node;

use super::result::{ExplainedError, NodeResult, UnexplainedError};

/// The longest message of an error in an answer, in bytes.
const MESSAGE: usize = 300;

/// The errors of the pods of one spec.
#[derive(Default)]
pub(super) struct Errors {
    pub explained: Vec<ExplainedError>,
    pub unexplained: Vec<UnexplainedError>,
    /// The nodes on which a pod fails at present.
    pub failing_on: Vec<String>,
}

impl Errors {
    /// Reads the errors of `pods`, and notes in `results` on which nodes they do not start. Pods that are being deleted do not
    /// count.
    pub fn of(candidate: &AdmittedPod<'_>, pods: &[Pod], cluster: &Cluster, results: &mut [NodeResult]) -> Self {
        let mut errors = Self::default();
        for pod in pods.iter().filter(|pod| !pod.is_terminating) {
            let node = pod.spec.node.as_deref();
            let machine = node.and_then(|name| cluster.node(name));
            let result = results.iter_mut().find(|result| node == Some(result.name.as_str()));
            errors.add(candidate, pod, machine, result);
        }
        errors
    }

    fn add(&mut self, candidate: &AdmittedPod<'_>, pod: &Pod, machine: Option<&Node>, result: Option<&mut NodeResult>) {
        for error in &pod.errors {
            let Some(known) = error.known else { continue };
            let (meaning, remedy) = of_injector(pod, error).unwrap_or_else(|| meaning(known, candidate, machine));
            let explained = ExplainedError { error: known.error, container: error.container.clone(), meaning, remedy };
            if !self.explained.iter().any(|other| other.error == explained.error && other.meaning == explained.meaning)
            {
                self.explained.push(explained);
            }
        }
        let present = || pod.errors.iter().filter(|error| error.is_present);
        let Some(first) = present().next() else { return };
        if let Some(node) = pod.spec.node.as_ref().filter(|node| !self.failing_on.contains(node)) {
            self.failing_on.push(node.clone());
        }
        if result.as_ref().is_some_and(|result| result.starts == Some(false)) {
            return;
        }
        let explains = |known: &PodError, error: &PodError| {
            known.known.is_some() && (known.container.is_none() || known.container == error.container)
        };
        for error in present().filter(|error| error.known.is_none() && !present().any(|known| explains(known, error))) {
            let (reason, message) = (plain(&error.reason, MESSAGE), plain(&error.message, MESSAGE));
            let unexplained = UnexplainedError { container: error.container.clone(), reason, message };
            if !self.unexplained.contains(&unexplained) {
                self.unexplained.push(unexplained);
            }
        }
        if let Some(result) = result.filter(|_| pod.progress == PodProgress::Waiting) {
            result.starts = Some(false);
            let name = first.known.map_or_else(|| plain(&first.reason, MESSAGE), |known| known.error.to_owned());
            result.reasons.push(format!("{} is on this node and has not started: {name}", pod.name));
        }
    }
}

/// Returns what an error of a container means, and what fixes it, if an injector has added the container to a pod for Windows.
fn of_injector(pod: &Pod, error: &PodError) -> Option<(String, String)> {
    let (known, name) = (error.known?, error.container.as_ref()?);
    let about_image = matches!(known.counted, Some(Cause::NoVariant | Cause::OtherBuild | Cause::LinuxImage));
    let container = pod.spec.containers.iter().find(|container| container.name == *name)?;
    let injector = injector_of(container.image.as_deref()?).filter(|_| about_image)?;
    let meaning = format!("{} has added this container to the pod, and its image exists only for Linux", injector.name);
    Some((meaning, injector.remedy()))
}

/// Returns what an error means for this pod on this node, and what fixes it.
fn meaning(known: KnownError, candidate: &AdmittedPod<'_>, machine: Option<&Node>) -> (String, String) {
    let default = || (known.meaning.to_owned(), known.remedy.to_owned());
    let (Some(cause), Some(machine)) = (known.counted, machine) else { return default() };
    let build = machine.version.map(|version| version.build);
    match cause {
        Cause::NoVariant | Cause::OtherBuild if machine.is_windows() && !candidate.is_windows => (
            "nothing shows that the pod is for Windows, and the node runs Windows".to_owned(),
            "send the pod to Linux nodes, with nodeSelector kubernetes.io/os: linux".to_owned(),
        ),
        Cause::OtherBuild if candidate.isolation() == Isolation::HyperV => (
            "the virtual machine of the pod starts from the pause image, which is for another Windows build than the node's"
                .to_owned(),
            pause::remedy(build),
        ),
        Cause::OtherBuild if candidate.images_start(machine).0 == Some(true) => (
            "by their names the pod's images fit the node, so its pause image, which every pod starts with, is probably for \
             another Windows build than the node's"
                .to_owned(),
            pause::remedy(build),
        ),
        Cause::PauseImage => (known.meaning.to_owned(), pause::remedy(build)),
        _ => default(),
    }
}
