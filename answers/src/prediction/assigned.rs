//! The RuntimeClass that the admission policy `assign-class` gives to the pods of a template.

use std::collections::BTreeSet;

use winpool_core::{
    api::names,
    plan::ClassSource,
    pod::Workload,
    windows::{Build, image},
};

use super::state::WorkloadCheck;

impl WorkloadCheck {
    /// True if the policy `tolerate-windows` adds the tolerations of all pools to the pods of a template.
    pub(super) fn is_told_to_tolerate(&self, workload: &Workload) -> bool {
        let excluded = self.scope.admission.policy("tolerate-windows").and_then(|policy| policy.excluded.as_ref());
        excluded.is_some_and(|excluded| !excluded.contains(&workload.namespace))
            && workload.template.says_windows_to_policies()
    }

    /// Returns the class of the template's pods, if the policy gives them one. The policy also gives classes to some pods
    /// that select nodes in another way; these are left out.
    pub(super) fn assigned_class(&self, workload: &Workload) -> Option<&String> {
        let admission = &self.scope.admission;
        let policy = admission.policy("assign-class")?;
        let (excluded, by_namespace) = (policy.excluded.as_ref()?, admission.namespace_classes.as_ref()?);
        let source = self.scope.class_sources.get(policy.pool.as_ref()?)?;
        let (namespace, spec) = (&workload.namespace, &workload.template);
        let is_judged = !excluded.contains(namespace)
            && spec.os.as_deref() == Some(names::WINDOWS)
            && !spec.has_host_network
            && spec.selects_no_more_than_a_system();
        let class = if is_judged { by_namespace.get(namespace).or_else(|| class_for(source, workload)) } else { None };
        class.filter(|name| self.class(name).is_some())
    }
}

/// Returns the class that the policy takes from the pool for the images of the template, or else the default one.
fn class_for<'a>(source: &'a ClassSource, workload: &Workload) -> Option<&'a String> {
    let default = source.defaults.runtime_class_name.as_ref().filter(|name| source.ready.contains(*name));
    let mut annotated = workload.images_run_on.iter().filter_map(|build| source.by_build.get(build));
    if !workload.images_run_on.is_empty() {
        return default.filter(|class| annotated.clone().any(|other| other == *class)).or_else(|| annotated.next());
    }
    let tags: BTreeSet<Option<Build>> = workload.template.images().map(|(_, name)| image::build_of(name)).collect();
    if source.defaults.from_image_tags && tags.iter().any(Option::is_some) {
        let build = tags.first().filter(|_| tags.len() == 1)?;
        return source.by_build.get(&(*build)?);
    }
    default
}
