//! winpool's admission policies: which of them are installed, and the effect on a pool.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde_json::{Value, json};

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
    /// The namespaces that it excludes; `None` if policy or binding differ from what winpool ships, so that their
    /// effect is unknown.
    pub excluded: Option<BTreeSet<String>>,
    /// The pool that its binding names.
    pub pool: Option<String>,
    /// The keys of the taints that `guard` allows winpool to change.
    pub taint_keys: Option<BTreeSet<String>>,
}

/// Digests of the policies on which workload checks rely, with their bindings, as this release and the last one ship
/// them. There has been no release.
const SHIPPED: [(&str, u64); 2] =
    [("winpool-assign-class", 0x2a8f_edea_82e0_1af7), ("winpool-tolerate-windows-pods", 0x6744_bd59_a77b_b3d9)];

impl InstalledPolicy {
    /// Reads the specs of a policy and its binding; `None` if the binding only audits, or is for another policy.
    pub fn read(name: &str, policy: &Value, binding: &Value) -> Option<Self> {
        let is_audit = |actions: &Vec<Value>| actions.iter().all(|action| action == "Audit");
        if binding["policyName"] != name || binding["validationActions"].as_array().is_some_and(is_audit) {
            return None;
        }
        let (shipped, excluded, pool) = without_settings(policy, binding);
        let variables = policy["variables"].as_array();
        let keys = variables.into_iter().flatten().find(|variable| variable["name"] == "taintKeys");
        Some(Self {
            excluded: SHIPPED.contains(&(name, digest(&shipped))).then_some(excluded),
            pool,
            taint_keys: keys.and_then(|keys| texts_of(keys["expression"].as_str()?)),
        })
    }
}

/// The specs of a policy and its binding with the API server's defaults and without what an installation sets: the
/// excluded namespaces and the pool.
fn without_settings(policy: &Value, binding: &Value) -> (Value, BTreeSet<String>, Option<String>) {
    let (mut specs, mut excluded) = (json!([policy, binding]), BTreeSet::new());
    let rows = specs.pointer_mut("/0/matchConstraints/namespaceSelector/matchExpressions");
    let by_name = |row: &&mut Value| row["key"] == "kubernetes.io/metadata.name" && row["operator"] == "NotIn";
    for row in rows.and_then(Value::as_array_mut).into_iter().flatten().filter(by_name) {
        let values = row["values"].take();
        excluded.extend(values.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())));
    }
    let reference = specs.pointer_mut("/1/paramRef").and_then(Value::as_object_mut);
    let pool = reference.and_then(|reference| reference.remove("name"));
    add_defaults(&mut specs);
    (specs, excluded, pool.as_ref().and_then(Value::as_str).map(str::to_owned))
}

/// Adds what the API server adds to the first of these specs, that of the policy.
fn add_defaults(specs: &mut Value) {
    let constraints = specs.pointer_mut("/0/matchConstraints");
    let Some(constraints) = constraints.and_then(Value::as_object_mut) else { return };
    constraints.entry("matchPolicy").or_insert_with(|| json!("Equivalent"));
    constraints.entry("objectSelector").or_insert_with(|| json!({}));
    for rule in constraints.get_mut("resourceRules").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(rule) = rule.as_object_mut() {
            rule.entry("scope").or_insert_with(|| json!("*"));
        }
    }
}

/// A digest (FNV-1a) of a value that does not depend on the order of its keys.
fn digest(value: &Value) -> u64 {
    fn add(hash: u64, text: &str) -> u64 {
        let next = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        text.bytes().chain([0]).fold(hash, next)
    }
    fn walk(hash: u64, value: &Value) -> u64 {
        match value {
            Value::Object(map) => {
                let map: BTreeMap<&String, &Value> = map.iter().collect();
                add(map.iter().fold(add(hash, "{"), |hash, (key, value)| walk(add(hash, key), value)), "}")
            }
            Value::Array(list) => add(list.iter().fold(add(hash, "["), walk), "]"),
            other => add(hash, &other.to_string()),
        }
    }
    walk(0xcbf2_9ce4_8422_2325, value)
}

/// The admission policies in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The components by name; `None` if not installed. A component that could not be read is absent.
    pub installed: BTreeMap<&'static str, Option<InstalledPolicy>>,
    /// The components that could not be read.
    pub unreadable: BTreeSet<&'static str>,
    /// The class in the label `winpool.dev/runtime-class` of each namespace that has it; `None` if unknown.
    pub namespace_classes: Option<BTreeMap<String, String>>,
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

    /// The specs of the policy and its binding, as `config/components/` has them.
    fn shipped(name: &str) -> [Value; 2] {
        let component = COMPONENTS.iter().find(|component| component.policy == name).unwrap();
        let path = format!("{}/../config/components/{}/policy.yaml", env!("CARGO_MANIFEST_DIR"), component.name);
        let text = std::fs::read_to_string(path).unwrap();
        let objects: Vec<Value> = text.split("\n---\n").map(|object| serde_yaml::from_str(object).unwrap()).collect();
        let mut named = objects.into_iter().filter(|object| object["metadata"]["name"] == name);
        [(); 2].map(|()| named.next().unwrap()["spec"].take())
    }

    #[test]
    fn the_digests_are_those_of_the_policies_that_are_shipped() {
        for (name, known) in SHIPPED {
            let [policy, binding] = shipped(name);
            let found = digest(&without_settings(&policy, &binding).0);
            assert_eq!(found, known, "{name}: the digest is {found:#x} now");
        }
    }

    #[test]
    fn a_policy_counts_only_as_it_is_shipped() {
        let excluded = "/matchConstraints/namespaceSelector/matchExpressions/0/values";
        let with = |place: usize, path: &str, key: &str, value: Value| {
            let mut specs = shipped("winpool-assign-class");
            specs[place].pointer_mut(path).unwrap()[key] = value;
            InstalledPolicy::read("winpool-assign-class", &specs[0], &specs[1]).unwrap().excluded
        };
        for (fact, place, path, key, value, expected) in [
            ("the API server's default", 0, "/matchConstraints", "matchPolicy", json!("Equivalent"), true),
            ("the API server's default", 0, "/matchConstraints", "objectSelector", json!({}), true),
            ("the API server's default", 0, "/matchConstraints/resourceRules/0", "scope", json!("*"), true),
            ("another pool", 1, "/paramRef", "name", json!("other"), true),
            (
                "objects are selected",
                0,
                "/matchConstraints",
                "objectSelector",
                json!({"matchLabels": {"a": "b"}}),
                false,
            ),
            ("one more condition", 0, "", "matchConditions", json!([{"name": "x", "expression": "false"}]), false),
            ("some pools", 1, "/paramRef", "selector", json!({"matchLabels": {"a": "b"}}), false),
            ("the binding selects", 1, "", "matchResources", json!({"namespaceSelector": {}}), false),
        ] {
            assert_eq!(with(place, path, key, value.clone()).is_some(), expected, "{fact}: {key} {value}");
        }
        let mut specs = shipped("winpool-assign-class");
        *specs[0].pointer_mut(excluded).unwrap() = json!(["ci"]);
        let read = InstalledPolicy::read("winpool-assign-class", &specs[0], &specs[1]).unwrap();
        assert_eq!(read.excluded, Some(["ci".to_owned()].into()), "other namespaces");
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
            ("['os']", "{taints: [{key: dedicated, effect: NoSchedule}]}", true),
            ("variables.somethingElse", "{taints: [{key: dedicated, effect: NoSchedule}]}", false),
        ] {
            assert_eq!(listing(keys).unlisted_taints(&pool(spec)).is_some(), unlisted, "{keys} {spec}");
        }
        assert_eq!(Admission::default().unlisted_taints(&pool("{}")), None);
    }
}
