//! The part of a pool that the admission policy `assign-class` reads.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{ClassState, Isolation, PodDefaults, RuntimeClassStatus, WindowsPoolStatus},
    windows::Build,
};

/// The fields of a pool that the policy reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSource {
    /// `spec.podDefaults`.
    pub defaults: PodDefaults,
    /// The classes that the policy may give to pods.
    pub ready: BTreeSet<String>,
    /// The class for images of each build.
    pub by_build: BTreeMap<Build, String>,
}

impl ClassSource {
    pub(crate) fn new(defaults: PodDefaults, status: &WindowsPoolStatus, enforces: bool) -> Self {
        let is_ready = |class: &&RuntimeClassStatus| match class.state {
            ClassState::Applied | ClassState::Adopted | ClassState::Satisfied => true,
            // In a dry run, the pool would write it.
            ClassState::Pending => !enforces,
            ClassState::Conflict => false,
        };
        let ready: Vec<_> = status.runtime_classes.iter().filter(is_ready).collect();
        let by_build = classes_by_build(status, &ready);
        Self { defaults, ready: ready.into_iter().map(|class| class.name.clone()).collect(), by_build }
    }
}

/// Returns the class for images of each build: the discovered one, or else the only one.
fn classes_by_build(status: &WindowsPoolStatus, ready: &[&RuntimeClassStatus]) -> BTreeMap<Build, String> {
    let mut by_build: BTreeMap<Build, Vec<&String>> = BTreeMap::new();
    for class in ready {
        if let Some(build) = class.build.parse().ok().filter(|_| class.isolation == Isolation::Process) {
            by_build.entry(build).or_default().push(&class.name);
        }
    }
    let is_discovered = |name: &String| status.builds.iter().any(|build| build.runtime_class.as_ref() == Some(name));
    let chosen = |names: Vec<&String>| {
        let only = names.len() == 1;
        names.into_iter().find(|name| only || is_discovered(name)).cloned()
    };
    by_build.into_iter().filter_map(|(build, names)| Some((build, chosen(names)?))).collect()
}
