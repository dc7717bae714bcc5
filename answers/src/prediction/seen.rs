//! The results for the workloads that a check has seen.

use k8s_openapi::jiff::Timestamp;

use super::Mask;

/// The results for one workload.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenWorkload {
    pub(super) is_ignored: bool,
    /// Boxed, because most pods of other controllers have none, and there may be many.
    pub(super) template: Option<Box<SeenTemplate>>,
    /// The taints that at least one of its pods does not tolerate; `None` without a pod.
    pub(super) of_pods: Option<Mask>,
    /// True if one of its pods has started on Windows.
    pub(super) started: bool,
    /// Pods on candidates, and the number of pods that count.
    pub(super) bound: Confirmed,
    pub(super) count: u32,
    pub(super) others: Option<Box<SeenOthers>>,
}

/// The results for pods that most workloads do not have.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenOthers {
    /// Pods without a node, or that could not come back to their node.
    pub(super) moving: Confirmed,
    /// Pods on candidates that count if one of the workload's pods has started on Windows.
    pub(super) strays: Mask,
    pub(super) stray_count: u32,
}

impl SeenWorkload {
    pub(super) fn others(&mut self) -> &mut SeenOthers {
        self.others.get_or_insert_default()
    }
}

/// The newest `ReplicaSets` of one controller.
#[derive(Clone, Debug, Default)]
pub(super) struct NewestSets {
    pub(super) created: Option<Timestamp>,
    /// Those without replicas.
    pub(super) empty: Vec<(String, SeenTemplate)>,
}

/// The results for a template.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenTemplate {
    /// The taints that its pods do not tolerate.
    pub(super) untolerated: Mask,
    /// True if the next pod may be made from another template, so that each pod counts by itself.
    pub(super) is_rolling_out: bool,
    /// True if the workload's pods show what an admission webhook adds to the template.
    pub(super) is_shown_by_pods: bool,
    pub(super) is_daemon_set: bool,
    /// The questions that it counts against.
    pub(super) found: Confirmed,
}

/// Questions that are answered with yes. Some only count if a choice of nodes matches no node of another system.
#[derive(Clone, Debug, Default)]
pub(super) struct Confirmed {
    pub(super) sure: Mask,
    /// The index of the choice, and the questions.
    pub(super) unsure: Vec<(usize, Mask)>,
}

impl Confirmed {
    pub(super) fn add(&mut self, mask: Mask, only_if: Option<usize>) {
        match only_if {
            _ if mask == 0 => {}
            None => self.sure |= mask,
            Some(choice) if self.unsure.iter().any(|(known, found)| *known == choice && found & mask == mask) => {}
            Some(choice) => self.unsure.push((choice, mask)),
        }
    }
}
