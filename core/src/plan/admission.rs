//! winpool's admission policies: which of them are installed, and the effect on a pool.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use crate::{
    api::{
        AdmissionPolicyState, AdmissionPolicyStatus, ObjectReference, Problem, TaintPolicy, WindowsPool, names::reason,
    },
    windows::KubernetesVersion,
};

use super::{Pool, problem};

/// A component in `config/components/` that consists of admission policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    pub name: &'static str,
    /// The policy that shows that the component is installed.
    pub policy: &'static str,
    /// True for a MutatingAdmissionPolicy, a kind that Kubernetes has since 1.36; false for a
    /// ValidatingAdmissionPolicy.
    pub mutating: bool,
}

const fn mutating(name: &'static str, policy: &'static str) -> Component {
    Component { name, policy, mutating: true }
}

const fn validating(name: &'static str, policy: &'static str) -> Component {
    Component { name, policy, mutating: false }
}

/// All components, by name.
pub const COMPONENTS: [Component; 6] = [
    validating("advise", "winpool-advise-pods"),
    mutating("assign-class", "winpool-assign-class"),
    mutating("born-tainted", "winpool-born-tainted"),
    validating("guard", "winpool-guard-nodes"),
    mutating("linux-by-default", "winpool-linux-by-default-pods"),
    mutating("tolerate-windows", "winpool-tolerate-windows-pods"),
];

impl Component {
    /// True if this version of Kubernetes has the kind of its policies. An unknown version is assumed to have it.
    pub fn is_supported(&self, kubernetes: Option<KubernetesVersion>) -> bool {
        !self.mutating || kubernetes.is_none_or(|version| (version.major, version.minor) >= (1, 36))
    }
}

/// The admission policies in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The components by name, true if installed. A component that could not be read is absent.
    pub installed: BTreeMap<&'static str, bool>,
    /// The keys of the taints that `guard` allows winpool to change; `None` if it is not installed or cannot be read.
    pub taint_keys: Option<BTreeSet<String>>,
}

impl Admission {
    /// Returns `status.admissionPolicies`.
    pub fn report(&self, kubernetes: Option<KubernetesVersion>) -> Vec<AdmissionPolicyStatus> {
        let state = |component: &Component| match self.installed.get(component.name) {
            _ if !component.is_supported(kubernetes) => Some(AdmissionPolicyState::Unsupported),
            Some(true) => Some(AdmissionPolicyState::Installed),
            Some(false) => Some(AdmissionPolicyState::NotInstalled),
            None => None,
        };
        let entry = |component: &Component| {
            Some(AdmissionPolicyStatus { name: component.name.to_owned(), state: state(component)? })
        };
        COMPONENTS.iter().filter_map(entry).collect()
    }

    /// A problem for each taint of the pool that `guard` does not allow.
    pub fn unlisted_taints(&self, pool: &Pool) -> Option<Problem> {
        let listed = self.taint_keys.as_ref()?;
        if pool.taint_policy == TaintPolicy::Never {
            return None;
        }
        let wanted = pool.wanted_taints();
        let keys = wanted.iter().chain(&pool.retired_taints).map(|taint| taint.key.as_str());
        let unlisted: BTreeSet<&str> = keys.filter(|key| !listed.contains(*key)).collect();
        if unlisted.is_empty() {
            return None;
        }
        let unlisted = unlisted.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!(
            "the admission policy winpool-guard-nodes lets winpool change no taints with these keys: {unlisted}; add them \
             to its variable taintKeys where the guard is installed"
        );
        Some(problem(reason::TAINT_KEY_NOT_LISTED, ObjectReference::windows_pool(&pool.name), message))
    }

    /// A problem if no policy applies the pool's `podDefaults`.
    pub fn unused_pod_defaults(&self, pool: &WindowsPool, kubernetes: Option<KubernetesVersion>) -> Option<Problem> {
        let mut components = COMPONENTS.iter().filter(|component| component.name == "assign-class");
        let is_impossible = components.any(|component| !component.is_supported(kubernetes));
        let is_missing = is_impossible || self.installed.get("assign-class") == Some(&false);
        let is_missing = is_missing && pool.spec.pod_defaults.is_some();
        let message = "podDefaults has no effect: install the admission policy assign-class, which needs Kubernetes 1.36, or \
                       remove podDefaults";
        let object = || ObjectReference::windows_pool(&pool.name_any());
        is_missing.then(|| problem(reason::ADMISSION_POLICY_NOT_INSTALLED, object(), message))
    }
}

/// The texts in a CEL list of texts, such as `taintKeys` of `guard`; `None` if it is another expression.
pub fn texts_of(expression: &str) -> Option<BTreeSet<String>> {
    serde_json::from_str(&expression.replace('\'', "\"")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(spec: &str) -> Pool {
        let pool: WindowsPool = serde_yaml::from_str(&format!("{{metadata: {{name: a}}, spec: {spec}}}")).unwrap();
        Pool::read(&pool).unwrap()
    }

    #[test]
    fn rules_report_nothing_about_unknown_facts() {
        let admission = Admission { installed: [("guard", true), ("born-tainted", false)].into(), taint_keys: None };
        let states = |minor| {
            let report = admission.report(Some(KubernetesVersion { major: 1, minor }));
            report.into_iter().map(|entry| format!("{} {:?}", entry.name, entry.state)).collect::<Vec<_>>()
        };
        assert_eq!(states(36), ["born-tainted NotInstalled", "guard Installed"]);
        let mutating = ["assign-class", "born-tainted", "linux-by-default", "tolerate-windows"];
        let mut old = mutating.map(|name| format!("{name} Unsupported")).to_vec();
        old.insert(2, "guard Installed".to_owned());
        assert_eq!(states(35), old);
    }

    #[test]
    fn pod_defaults_without_their_policy_are_a_problem() {
        let with = |installed: &[(&'static str, bool)]| Admission {
            installed: installed.iter().copied().collect(),
            ..Admission::default()
        };
        let defaults = "{podDefaults: {fromImageTags: true}}";
        for (installed, minor, spec, is_problem) in [
            (&[("assign-class", false)][..], 36, defaults, true),
            (&[("assign-class", false)], 36, "{}", false),
            (&[("assign-class", true)], 36, defaults, false),
            (&[], 36, defaults, false),
            // The API server does not have this kind of policy.
            (&[], 35, defaults, true),
            (&[], 35, "{}", false),
        ] {
            let pool: WindowsPool = serde_yaml::from_str(&format!("{{metadata: {{name: a}}, spec: {spec}}}")).unwrap();
            let problem = with(installed).unused_pod_defaults(&pool, Some(KubernetesVersion { major: 1, minor }));
            assert_eq!(problem.is_some(), is_problem, "{installed:?} {minor} {spec}");
        }
    }

    #[test]
    fn a_taint_that_the_guard_does_not_list_is_a_problem() {
        let listing = |keys: &str| Admission { taint_keys: texts_of(keys), ..Admission::default() };
        for (keys, spec, unlisted) in [
            ("['os', \"windows\"]", "{}", false),
            ("['windows']", "{}", true),
            ("['windows']", "{taintPolicy: Never}", false),
            ("['os']", "{retiredTaints: [{key: windows, value: 'true', effect: NoSchedule}]}", true),
            ("['os']", "{taints: [{key: dedicated, effect: NoSchedule}]}", true),
            ("variables.somethingElse", "{taints: [{key: dedicated, effect: NoSchedule}]}", false),
        ] {
            assert_eq!(listing(keys).unlisted_taints(&pool(spec)).is_some(), unlisted, "{keys} {spec}");
        }
        assert_eq!(Admission::default().unlisted_taints(&pool("{}")), None);
    }
}
