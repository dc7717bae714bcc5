//! Pods that use a RuntimeClass.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::{ObjectReference, Problem, names::reason},
    words::count,
};

/// The number of pods or workloads that are named as examples.
const NAMED: usize = 5;

/// The unfinished pods of one RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUsers {
    /// Their number. A terminating pod still needs its handler.
    pub count: usize,
    /// A few of them, as `namespace/name`.
    pub examples: Vec<Arc<str>>,
}

impl ClassUsers {
    /// The users with these names.
    pub(super) fn of(names: &BTreeSet<Arc<str>>) -> Self {
        Self { count: names.len(), examples: names.iter().take(NAMED).cloned().collect() }
    }

    /// Describes the users: their number and a few names.
    pub fn describe(&self) -> String {
        format!("used by {}, such as {}", count(self.count, "pod"), self.examples.join(", "))
    }
}

/// Describes the users of a class, or says that pods cannot be listed.
pub(in crate::plan) fn describe_users(users: Result<&ClassUsers, &str>) -> String {
    users.map_or_else(|message| format!("pods cannot be listed: {message}"), ClassUsers::describe)
}

/// What is counted of the pods of one RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassPods {
    pub users: ClassUsers,
    /// Workloads whose unbound pods lack a toleration or a label of the selector that the class has now, with the number
    /// of those pods. A pod keeps what it got at its creation, so these have to be recreated.
    pub created_too_early: BTreeMap<Arc<str>, usize>,
    /// True if the class selects no node.
    pub is_unserved: bool,
}

impl ClassPods {
    /// A problem that names the pods which were created before the class got its selector and tolerations.
    pub(in crate::plan) fn too_early(&self, class: &str) -> Option<Problem> {
        let found = &self.created_too_early;
        let named: Vec<String> = found.iter().take(NAMED).map(|(name, count)| format!("{name} ({count})")).collect();
        let message = format!(
            "{} without a node, created before the class got its present selector and tolerations: pods keep those that \
             they were created with. Delete these pods; their controllers recreate them: {}",
            count(found.values().sum::<usize>(), "pod"),
            named.join(", ")
        );
        let problem = Problem::new(reason::PODS_CREATED_TOO_EARLY, ObjectReference::runtime_class(class), message);
        (!found.is_empty()).then_some(problem)
    }
}
