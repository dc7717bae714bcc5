//! Pools that winpool refuses to read, whatever the CRD allowed when they were stored. The rules refuse them too.

use serde_json::{Value, json};

use super::{Refusal, completed, pool, refusals, refused_by_rules};
use crate::api::WindowsPool;
use crate::api::taint::{FOREIGN_KEYS, FOREIGN_PREFIXES};
use crate::plan::pools::pool::PoolSpec;

/// The rules by the beginnings of their messages, and what the operator says itself about pools that break them.
const READ: [(&str, &str); 10] = [
    ("effect must be NoSchedule", ".effect: must be NoSchedule or PreferNoSchedule"),
    ("key belongs to Kubernetes or to an autoscaler", ".key: belongs to Kubernetes or to an autoscaler"),
    ("taintPolicy TaintAndTolerate allows only taints", ": taintPolicy TaintAndTolerate allows only taints"),
    ("a taint is both in taints and in retiredTaints", "spec.retiredTaints[0]: is wanted too"),
    ("retiredTaints has os=windows:NoSchedule", "spec.retiredTaints[0]: is wanted too"),
    ("nodeSelector: kubernetes.io/os can only be", "spec.nodeSelector[kubernetes.io/os]: can only be windows"),
    ("nodeSelector: labels under winpool.dev", ": winpool writes this label itself"),
    ("build must be 10.0.<number>", ".build: must be 10.0.<number>"),
    ("write exactly one of version", "spec.runtimeClasses[0].version: write exactly one of version"),
    ("runtimeClasses: version is not known", "spec.runtimeClasses[0].version: is not known"),
];

/// Why the operator refuses `pool`.
pub(super) fn refused_by_operator(pool: &Value) -> Vec<String> {
    let pool: WindowsPool = serde_json::from_value(pool.clone()).unwrap();
    PoolSpec::read(&pool).err().map(|invalid| invalid.errors).unwrap_or_default()
}

#[test]
fn only_pools_that_break_these_rules_are_not_read() {
    for Refusal { rule, pools } in refusals() {
        let own = READ.iter().find(|(begin, _)| rule.starts_with(begin)).map(|(_, own)| *own);
        for pool in pools {
            let refused = refused_by_operator(&completed(&pool));
            let is_told = own.map_or(refused.is_empty(), |own| refused.iter().any(|error| error.contains(own)));
            assert!(is_told, "{rule}, {pool}: {refused:#?}");
        }
    }
}

#[test]
fn keys_of_others_are_refused_by_both() {
    let keys = FOREIGN_KEYS.iter().map(|key| (*key).to_owned());
    for key in keys.chain(FOREIGN_PREFIXES.iter().map(|prefix| format!("{prefix}anything"))) {
        for field in ["taints", "retiredTaints"] {
            let pool =
                pool(&format!("spec: {{taintPolicy: TaintOnly, {field}: [{{key: '{key}', effect: NoSchedule}}]}}"));
            assert!(refused_by_rules(&pool)[0].starts_with("key belongs to"), "{key}");
            assert!(refused_by_operator(&pool)[0].contains("belongs to"), "{key}");
        }
    }
}

#[test]
fn every_error_is_told_with_its_field_unless_the_pool_is_being_deleted() {
    let mut pool = pool(
        "spec:
          nodeSelector: {runs.winpool.dev/10.0.1: 'true'}
          taints: [{key: os, value: windows, effect: NoSchedule}, {key: a, effect: NoSchedule}]
          retiredTaints: [{key: karpenter.sh/a, effect: NoExecute}, {key: a, effect: NoSchedule}]
          buildNames: [{build: '29000', version: preview}, {build: 10.0.29001, version: next}]
          runtimeClasses: [{name: a, version: preview}, {name: b, version: next}, {name: c}]",
    );
    insta::assert_snapshot!(refused_by_operator(&pool).join("\n"), @r"
    spec.nodeSelector[runs.winpool.dev/10.0.1]: winpool writes this label itself; use a label of your own
    spec.taints[1]: taintPolicy TaintAndTolerate allows only taints that mark Windows nodes, such as os=windows:NoSchedule, because winpool adds no toleration of any other taint to pods; write taintPolicy: TaintOnly for others
    spec.retiredTaints[0].key: belongs to Kubernetes or to an autoscaler; choose another
    spec.retiredTaints[0].effect: must be NoSchedule or PreferNoSchedule; NoExecute would evict pods
    spec.retiredTaints[1]: is wanted too; remove it here or list other taints
    spec.buildNames[0].build: must be 10.0.<number>, such as 10.0.20348
    spec.runtimeClasses[0].version: is not known; write one such as 2022, name it in spec.buildNames, or write build
    spec.runtimeClasses[2].version: write exactly one of version (such as 2019) and build (such as 10.0.17763)
    ");
    pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let read = PoolSpec::read(&serde_json::from_value(pool).unwrap()).unwrap();
    assert_eq!((read.named_builds.len(), read.declared.len()), (1, 1), "as far as possible");
}
