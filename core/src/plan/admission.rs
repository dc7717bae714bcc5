//! winpool's admission policies: which of them are installed, and the effect on a pool.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde_json::Value;

use crate::{
    api::{
        AdmissionPolicyState, AdmissionPolicyStatus, ObjectReference, Problem, TaintPolicy, WindowsPool, names::reason,
    },
    windows::KubernetesVersion,
    words::joined,
};

use super::pools::Pool;

/// A component in `config/components/` that consists of admission policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionComponent {
    pub name: &'static str,
    /// The policy that shows that the component is installed. Its binding has the same name.
    pub policy: &'static str,
    /// True for a MutatingAdmissionPolicy, a kind that Kubernetes has since 1.36; false for a
    /// ValidatingAdmissionPolicy.
    pub mutating: bool,
}

const fn mutating(name: &'static str, policy: &'static str) -> AdmissionComponent {
    AdmissionComponent { name, policy, mutating: true }
}

const fn validating(name: &'static str, policy: &'static str) -> AdmissionComponent {
    AdmissionComponent { name, policy, mutating: false }
}

/// All components, by name.
pub const COMPONENTS: [AdmissionComponent; 6] = [
    validating("advise", "winpool-advise-pods"),
    mutating("assign-class", "winpool-assign-class"),
    mutating("born-tainted", "winpool-born-tainted"),
    validating("guard", "winpool-guard-nodes"),
    mutating("linux-by-default", "winpool-linux-by-default-pods"),
    mutating("tolerate-windows", "winpool-tolerate-windows-pods"),
];

impl AdmissionComponent {
    /// The kind of its policies.
    pub fn kind(&self) -> &'static str {
        if self.mutating { "MutatingAdmissionPolicy" } else { "ValidatingAdmissionPolicy" }
    }

    /// True if this version of Kubernetes has the kind of its policies. An unknown version is assumed to have it.
    pub fn is_supported(&self, kubernetes: Option<KubernetesVersion>) -> bool {
        !self.mutating || kubernetes.is_none_or(|version| (version.major, version.minor) >= (1, 36))
    }
}

/// An installed policy, as far as winpool reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledPolicy {
    /// The pool that its binding names.
    pub pool: Option<String>,
    /// The keys of the taints that `guard` allows winpool to change.
    pub taint_keys: Option<BTreeSet<String>>,
}

impl InstalledPolicy {
    /// Reads the specs of a policy and its binding; `None` if the binding only audits, or is for another policy.
    pub fn read(name: &str, policy: &Value, binding: &Value) -> Option<Self> {
        let is_audit = |actions: &Vec<Value>| actions.iter().all(|action| action == "Audit");
        if binding["policyName"] != name || binding["validationActions"].as_array().is_some_and(is_audit) {
            return None;
        }
        let variables = policy["variables"].as_array();
        let keys = variables.into_iter().flatten().find(|variable| variable["name"] == "taintKeys");
        Some(Self {
            pool: binding["paramRef"]["name"].as_str().map(str::to_owned),
            taint_keys: keys.and_then(|keys| texts_of(keys["expression"].as_str()?)),
        })
    }
}

/// The admission policies in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The components by name; `None` if not installed. A component that could not be read is absent.
    pub installed: BTreeMap<&'static str, Option<InstalledPolicy>>,
    /// The components that could not be read.
    pub unreadable: BTreeSet<&'static str>,
}

impl Admission {
    /// Returns the policy of a component, if it is installed.
    pub fn policy(&self, component: &str) -> Option<&InstalledPolicy> {
        self.installed.get(component)?.as_ref()
    }

    /// The value as long as nothing could be read.
    pub fn unknown() -> Self {
        Self { unreadable: COMPONENTS.iter().map(|component| component.name).collect(), ..Self::default() }
    }

    /// Returns `status.admissionPolicies`.
    pub fn report(&self, kubernetes: Option<KubernetesVersion>) -> Vec<AdmissionPolicyStatus> {
        let entry = |component: &AdmissionComponent| {
            let state = match self.installed.get(component.name) {
                _ if !component.is_supported(kubernetes) => AdmissionPolicyState::Unsupported,
                Some(Some(_)) => AdmissionPolicyState::Installed,
                Some(None) => AdmissionPolicyState::NotInstalled,
                None => return None,
            };
            Some(AdmissionPolicyStatus { name: component.name.to_owned(), state })
        };
        COMPONENTS.iter().filter_map(entry).collect()
    }

    /// A problem for each taint of the pool that `guard` does not allow.
    pub fn unlisted_taints(&self, pool: &Pool) -> Option<Problem> {
        let listed = self.policy("guard")?.taint_keys.as_ref()?;
        if pool.spec.taint_policy == TaintPolicy::Never {
            return None;
        }
        let wanted = pool.spec.wanted_taints();
        let keys = wanted.iter().chain(&pool.spec.retired_taints).map(|taint| taint.key.as_str());
        let unlisted: BTreeSet<&str> = keys.filter(|key| !listed.contains(*key)).collect();
        if unlisted.is_empty() {
            return None;
        }
        let unlisted = joined(unlisted);
        let message = format!(
            "the admission policy winpool-guard-nodes lets winpool change no taints with these keys: {unlisted}; add them \
             to its variable taintKeys where the guard is installed"
        );
        Some(Problem::new(reason::TAINT_KEY_NOT_LISTED, ObjectReference::windows_pool(&pool.spec.name), message))
    }

    /// A problem if no policy applies the pool's `podDefaults`.
    pub fn unused_pod_defaults(&self, pool: &WindowsPool, kubernetes: Option<KubernetesVersion>) -> Option<Problem> {
        pool.spec.pod_defaults.as_ref()?;
        let is_impossible = COMPONENTS.iter().any(|it| it.name == "assign-class" && !it.is_supported(kubernetes));
        let name = pool.name_any();
        let message = match self.installed.get("assign-class") {
            Some(Some(policy)) if !is_impossible => {
                let other = policy.pool.as_ref().filter(|other| **other != name)?;
                format!(
                    "podDefaults has no effect: the binding of the admission policy assign-class names the pool {other}; \
                     change the binding, or remove podDefaults"
                )
            }
            None if !is_impossible => return None,
            _ => {
                "podDefaults has no effect: install the admission policy assign-class, which needs Kubernetes 1.36, or \
                  remove podDefaults"
                    .to_owned()
            }
        };
        Some(Problem::new(reason::ADMISSION_POLICY_NOT_INSTALLED, ObjectReference::windows_pool(&name), message))
    }
}

/// The texts in a CEL list of texts, such as `taintKeys` of `guard`; `None` if it is another expression.
fn texts_of(expression: &str) -> Option<BTreeSet<String>> {
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
        let installed = [("guard", Some(InstalledPolicy::default())), ("born-tainted", None)].into();
        let admission = Admission { installed, ..Admission::default() };
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
        let of = |pool: &str| InstalledPolicy { pool: Some(pool.to_owned()), ..InstalledPolicy::default() };
        let with = |installed: &[(&'static str, Option<&str>)]| Admission {
            installed: installed.iter().map(|(name, pool)| (*name, pool.map(of))).collect(),
            ..Admission::default()
        };
        let defaults = "{podDefaults: {fromImageTags: true}}";
        for (installed, minor, spec, is_problem) in [
            (&[("assign-class", None)][..], 36, defaults, true),
            (&[("assign-class", None)], 36, "{}", false),
            (&[("assign-class", Some("a"))], 36, defaults, false),
            (&[("assign-class", Some("b"))], 36, defaults, true),
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
        let listing = |keys: &str| {
            let guard = InstalledPolicy { taint_keys: texts_of(keys), ..InstalledPolicy::default() };
            Admission { installed: [("guard", Some(guard))].into(), ..Admission::default() }
        };
        for (keys, spec, unlisted) in [
            ("['os', \"windows\"]", "{}", false),
            ("['windows']", "{}", true),
            ("['windows']", "{taintPolicy: Never}", false),
            ("['os']", "{retiredTaints: [{key: windows, value: 'true', effect: NoSchedule}]}", true),
            ("['os']", "{taintPolicy: TaintOnly, taints: [{key: dedicated, effect: NoSchedule}]}", true),
            (
                "variables.somethingElse",
                "{taintPolicy: TaintOnly, taints: [{key: dedicated, effect: NoSchedule}]}",
                false,
            ),
        ] {
            assert_eq!(listing(keys).unlisted_taints(&pool(spec)).is_some(), unlisted, "{keys} {spec}");
        }
        assert_eq!(Admission::default().unlisted_taints(&pool("{}")), None);
    }
}
