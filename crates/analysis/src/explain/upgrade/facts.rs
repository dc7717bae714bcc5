//! The facts for an answer about an upgrade: the assumption, and the images.

use std::collections::{BTreeMap, BTreeSet};

use winpool_core::pod::Class;
use winpool_core::windows::Build;

use crate::explain::blockers::{Evidence, evidence};
use crate::explain::subject::WorkloadSubject;
use crate::lint::Facts;
use crate::placement::Obstacle;
use crate::pod::isolation_with;
use crate::view::assume::Assumed;

pub(super) struct UpgradeFacts<'a> {
    pub assumed: &'a Assumed,
    pub cluster: &'a Facts,
    /// The RuntimeClasses that exist or that pools would create, those in dry run too, for the nodes of today.
    pub planned: BTreeSet<String>,
}

impl UpgradeFacts<'_> {
    /// The builds that the nodes are assumed to run.
    pub fn targets(&self) -> BTreeSet<Build> {
        self.assumed.nodes.values().copied().collect()
    }

    /// The builds that these nodes run now.
    pub fn builds_now(&self) -> BTreeSet<Build> {
        let builds = self.assumed.parts.iter().flat_map(|part| &part.now);
        builds.filter_map(|build| build.parse().ok()).collect()
    }

    /// Returns how it is known that nodes of this build run the images of the workload.
    pub fn evidence(
        &self,
        subject: &WorkloadSubject,
        classes: &BTreeMap<String, Class>,
        target: Build,
    ) -> Option<Evidence> {
        let (spec, on) = (&subject.template.spec, &subject.started_on);
        let class = spec.runtime_class.as_ref().and_then(|name| classes.get(name));
        let mut retired = on.iter().copied().chain(self.builds_now());
        retired.find_map(|retired| evidence(spec, isolation_with(class), self.cluster, retired, target, on))
    }
}

/// True if the obstacle is a label whose value is not known.
pub(super) fn is_unknown(obstacle: &Obstacle, assumed: &Assumed) -> bool {
    let unknown = assumed.unknown_labels();
    match obstacle {
        Obstacle::Selector { key, .. } => unknown.contains(key.as_str()),
        Obstacle::Affinity(expressions) => {
            expressions.iter().all(|expression| unknown.iter().any(|label| expression.starts_with(label)))
        }
        _ => false,
    }
}
