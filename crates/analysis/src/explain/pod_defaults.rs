//! `podDefaults` of pools. Only the admission policy `assign-class` applies them.

use kube::ResourceExt;
use winpool_core::api::{ObjectReference, Problem};
use winpool_core::plan::pools::pool::GuardedPool;

use crate::view::{AssignClass, Known};

/// True if the pool has `podDefaults`.
pub fn has_pod_defaults(pool: &GuardedPool) -> bool {
    pool.pool().is_ok_and(|pool| pool.spec.pod_defaults.is_some())
}

/// Returns a problem if the pool has `podDefaults` that nothing applies.
pub fn unused(pool: &GuardedPool, assign_class: &Known<Option<AssignClass>>) -> Option<Problem> {
    let (name, installed) = (pool.name_any(), assign_class.known().filter(|_| has_pod_defaults(pool))?);
    let message = match installed.as_ref().map(|policy| policy.pool.as_ref()) {
        None => {
            "podDefaults has no effect: install the admission policy assign-class, which needs Kubernetes 1.36, or remove \
             podDefaults"
                .to_owned()
        }
        Some(Some(other)) if *other != name => format!(
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

    #[test]
    fn pod_defaults_have_no_effect_without_the_policy_that_reads_the_pool() {
        let policy = |pool: &str| Known::Complete(Some(AssignClass { pool: Some(pool.to_owned()) }));
        let cases = [
            ("no podDefaults", json!({}), Known::Complete(None), None),
            ("not installed", json!({"podDefaults": {}}), Known::Complete(None), Some("install the admission policy")),
            ("not known", json!({"podDefaults": {}}), Known::Forbidden("403".to_owned()), None),
            ("it reads the pool", json!({"podDefaults": {}}), policy("default"), None),
            ("it reads another pool", json!({"podDefaults": {}}), policy("other"), Some("names the pool other")),
        ];
        for (case, spec, assign_class, expected) in cases {
            let pool = json!({"metadata": {"name": "default"}, "spec": spec});
            let pool: GuardedPool = serde_json::from_value(pool).unwrap();
            let problem = unused(&pool, &assign_class);
            assert_eq!(problem.is_some(), expected.is_some(), "{case}");
            assert!(problem.is_none_or(|problem| problem.message.contains(expected.unwrap())), "{case}");
        }
    }
}
