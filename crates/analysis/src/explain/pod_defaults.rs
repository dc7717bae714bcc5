//! `podDefaults` of pools. Only the admission policy `assign-class` applies them.

use kube::ResourceExt;
use winpool_core::api::{ObjectReference, Problem};
use winpool_core::plan::pools::pool::GuardedPool;

use crate::view::{Known, Policies};

/// True if the pool has `podDefaults`.
pub fn has_pod_defaults(pool: &GuardedPool) -> bool {
    pool.pool().is_ok_and(|pool| pool.spec.pod_defaults.is_some())
}

/// Returns a problem if the pool has `podDefaults` that nothing applies.
pub fn unused(pool: &GuardedPool, policies: &Known<Policies>) -> Option<Problem> {
    let (name, policies) = (pool.name_any(), policies.known().filter(|_| has_pod_defaults(pool))?);
    let message = match policies.pool_of_assign_class() {
        None => {
            "podDefaults has no effect: install the admission policy assign-class, which needs Kubernetes 1.36, or remove \
             podDefaults"
                .to_owned()
        }
        Some(Some(other)) if other != name => format!(
            "podDefaults has no effect: the binding of the admission policy assign-class names the pool {other}; change the \
             binding, or remove podDefaults"
        ),
        Some(_) => return None,
    };
    Some(Problem::new("AdmissionPolicyNotInstalled", ObjectReference::windows_pool(&name), message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::Related;
    use crate::view::policies::{ASSIGN_CLASS, BINDING, POLICY};

    #[test]
    fn pod_defaults_have_no_effect_without_the_policy_that_reads_the_pool() {
        let related = |pool: &str| {
            let mut related = Related::default();
            let name = json!({"name": ASSIGN_CLASS});
            related.add(POLICY, "", json!({"metadata": name}));
            let spec = json!({"policyName": ASSIGN_CLASS, "paramRef": {"name": pool}});
            related.add(BINDING, "", json!({"metadata": name, "spec": spec}));
            Policies::of(&related)
        };
        let none = || Known::Complete(Policies::default());
        let cases = [
            ("no podDefaults", json!({}), none(), None),
            ("not installed", json!({"podDefaults": {}}), none(), Some("install the admission policy")),
            ("not known", json!({"podDefaults": {}}), Known::Forbidden("403".to_owned()), None),
            ("it reads the pool", json!({"podDefaults": {}}), related("default"), None),
            ("it reads another pool", json!({"podDefaults": {}}), related("other"), Some("names the pool other")),
        ];
        for (case, spec, policies, expected) in cases {
            let pool = json!({"metadata": {"name": "default"}, "spec": spec});
            let pool: GuardedPool = serde_json::from_value(pool).unwrap();
            let problem = unused(&pool, &policies);
            assert_eq!(problem.is_some(), expected.is_some(), "{case}");
            assert!(problem.is_none_or(|problem| problem.message.contains(expected.unwrap())), "{case}");
        }
    }
}
