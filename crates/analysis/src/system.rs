//! The operating system that a pod is for, as far as the nodes of the cluster tell, and how certain that is.

use winpool_core::labels::Labels;
use winpool_core::pod::{Class, System};

use crate::placement::selects;
use crate::pod::{Guess, PodSpec, SystemEvidence};

/// Returns the system that a pod is for, by itself or by labels that only nodes of one system have. `nodes` are the labels of each
/// node, and true for a Windows node.
pub fn guess<'a>(
    pod: &PodSpec,
    class: Option<&Class>,
    nodes: impl IntoIterator<Item = (bool, &'a Labels)>,
) -> Option<Guess> {
    pod.guess(class, || system_of_nodes(pod, class, nodes))
}

/// Returns the guess, or Windows if containers of the workload have started on Windows nodes only and nothing more certain speaks.
pub fn or_by_history(guess: Option<Guess>, has_run_on_windows: bool) -> Option<Guess> {
    let by_history = Guess { system: System::Windows, evidence: SystemEvidence::Started };
    if has_run_on_windows && guess.is_none_or(|guess| guess.evidence > by_history.evidence) {
        Some(by_history)
    } else {
        guess
    }
}

/// Returns the system of the nodes that the pod selects, if nodes of the other system are known and it selects none of them.
/// `nodes` are the labels of each node, and true for a Windows node.
pub fn system_of_nodes<'a>(
    pod: &PodSpec,
    class: Option<&Class>,
    nodes: impl IntoIterator<Item = (bool, &'a Labels)>,
) -> Option<System> {
    if pod.node_selector.is_empty() && pod.terms.is_empty() {
        return None;
    }
    let (mut present, mut selected) = ([false; 2], [false; 2]);
    for (is_windows, labels) in nodes {
        let of_system = usize::from(is_windows);
        present[of_system] = true;
        selected[of_system] = selected[of_system] || selects(pod, class, labels);
        if selected == [true; 2] {
            return None;
        }
    }
    match (present, selected) {
        ([true, true], [true, false]) => Some(System::Linux),
        ([true, true], [false, true]) => Some(System::Windows),
        _ => None,
    }
}

/// Returns the only sign that a pod is for Windows; `None` if the guess is certain or says Linux.
pub fn doubt(guess: Guess) -> Option<&'static str> {
    match (guess.system, guess.evidence) {
        (System::Windows, SystemEvidence::ImageName) => Some("the name of an image has a word for Windows"),
        (System::Windows, SystemEvidence::Program) => Some("a program or a path is like those of Windows"),
        (System::Windows, SystemEvidence::Toleration) => Some("the pod tolerates a taint of Windows nodes"),
        _ => None,
    }
}
