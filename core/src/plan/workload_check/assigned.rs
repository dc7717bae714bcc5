//! The RuntimeClass that the admission policy `assign-class` gives to the pods of a template.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{ClassState, Isolation, PodDefaults, WindowsPoolStatus, names},
    pod::Workload,
    windows::{Build, image},
};

/// The input of the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssignClass {
    /// The namespaces that the policy excludes.
    pub excluded: BTreeSet<String>,
    /// The class in the label `winpool.dev/runtime-class` of each namespace that has it.
    pub by_namespace: BTreeMap<String, String>,
    /// The class for images of each build.
    pub by_build: BTreeMap<Build, String>,
    /// `podDefaults` of the pool that the policy reads.
    pub defaults: PodDefaults,
}

impl AssignClass {
    /// Returns the class of the template's pods, if the policy gives them one. The policy also gives classes to some pods
    /// that select nodes in another way; these are left out.
    pub(super) fn class(&self, workload: &Workload) -> Option<&String> {
        let (namespace, spec) = (&workload.namespace, &workload.template);
        let is_judged = !self.excluded.contains(namespace)
            && spec.os.as_deref() == Some(names::WINDOWS)
            && !spec.has_host_network
            && spec.selects_no_more_than_a_system();
        if !is_judged {
            return None;
        }
        if let Some(class) = self.by_namespace.get(namespace) {
            return Some(class);
        }
        let default = self.defaults.runtime_class_name.as_ref();
        let mut annotated = workload.images_run_on.iter().filter_map(|build| self.by_build.get(build));
        if !workload.images_run_on.is_empty() {
            return default.filter(|class| annotated.clone().any(|other| other == *class)).or_else(|| annotated.next());
        }
        let tags: BTreeSet<Option<Build>> = spec.images().map(|(_, name)| image::build_of(name)).collect();
        if self.defaults.from_image_tags && tags.iter().any(Option::is_some) {
            let build = tags.first().filter(|_| tags.len() == 1)?;
            return self.by_build.get(&(*build)?);
        }
        default
    }
}

/// Returns the class for images of each build, by the status of the pool: the discovered one, or else the only one. In a
/// dry run, classes that the pool would write count too.
pub(crate) fn classes_by_build(status: &WindowsPoolStatus, enforces: bool) -> BTreeMap<Build, String> {
    let is_ready = |state| match state {
        ClassState::Applied | ClassState::Adopted => true,
        ClassState::Pending => !enforces,
        ClassState::Satisfied | ClassState::Conflict => false,
    };
    let mut by_build: BTreeMap<Build, Vec<&String>> = BTreeMap::new();
    for class in status.runtime_classes.iter().filter(|class| is_ready(class.state)) {
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
