//! Valid and invalid pools, checked by the CRD's CEL rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::read::refused_by_operator;
use super::{Refusal, SCHEMA, completed, pool, refusals, refused_by_rules};
use crate::api::taint::{FOREIGN_KEYS, FOREIGN_PREFIXES};
use crate::windows::builds;

#[test]
fn valid_pools_pass_the_rules_and_are_read() {
    let valid = [
        "{}",
        "spec: {mode: DryRun, runtimeClassDiscovery: Disabled}",
        "metadata: {name: 'a123456789a123456789a123456789a123456789a123456789a123456789abc'}",
        // Taints.
        "spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}",
        "spec: {taints: [{key: os, effect: PreferNoSchedule}, {key: sku, value: windows, effect: NoSchedule}]}",
        "spec: {taints: [{key: Os, value: WINdows-2019, effect: NoSchedule}, {key: a.b/oS, value: win, effect: NoSchedule}]}",
        "spec: {mode: DryRun, taintPolicy: Never, taints: [{key: dedicated, effect: NoSchedule}]}",
        "spec: {taintPolicy: TaintOnly, taints: [{key: os, effect: NoSchedule}, {key: os, value: '', effect: PreferNoSchedule}]}",
        "spec: {taints: [{key: node.kubernetes.io/os, value: Win_1.0-x, effect: PreferNoSchedule}]}",
        "spec: {taintPolicy: TaintOnly, taints: [{key: OS, effect: NoSchedule}, {key: example.com/A_b.c-d, effect: NoSchedule}]}",
        "spec: {taintPolicy: TaintOnly, taints: [{key: karpenter.sh.example.com/x, effect: NoSchedule}]}",
        "spec: {retiredTaints: []}",
        "spec: {retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}, {key: os, value: Windows, effect: NoSchedule}]}",
        "spec: {retiredTaints: [{key: os, value: windows, effect: PreferNoSchedule}]}",
        "spec: {taints: [{key: os, value: windows, effect: NoSchedule}], retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]}",
        "spec: {taintPolicy: TaintOnly, taints: [{key: a, effect: NoSchedule}], retiredTaints: [{key: os, value: windows, effect: NoSchedule}]}",
        // Selectors.
        "spec: {nodeSelector: {kubernetes.io/os: windows, team: a, empty: '', example.com/Zone_1: b}}",
        "spec: {nodeSelector: {winpool.dev.example.com/a: b}}",
        // Class names.
        "spec: {runtimeClassNameFormat: 'win.{version}-{pool}'}",
        "spec: {runtimeClassNameFormat: '{version}'}",
        "spec: {runtimeClassNameFormat: '{pool}{version}{version}'}",
        // Defaults of pods.
        "spec: {podDefaults: {}}",
        "spec: {podDefaults: {runtimeClassName: windows-2022, fromImageTags: true}}",
        "spec: {podDefaults: {runtimeClassName: a.b}}",
        // Builds.
        "spec: {buildNames: [{build: 10.0.29000, version: preview}, {build: 10.0.1, version: a-b-2}]}",
        "spec: {buildNames: [{build: 10.0.20348, version: azure-hci}]}",
        // As a pool has it that was written before this release knew the name.
        "spec: {buildNames: [{build: 10.0.20348, version: '2022'}]}",
        // Classes.
        "spec: {runtimeClasses: [{name: windows-2019, version: '2019'}, {name: b.c, build: 10.0.17763}]}",
        "spec: {runtimeClasses: [{name: a, version: 20h2}]}",
        "spec: {buildNames: [{build: 10.0.29000, version: preview}], runtimeClasses: [{name: a, version: preview}]}",
        "spec:
          runtimeClasses:
          - name: a
            build: 10.0.26100
            handler: runhcs-wcow-hypervisor
            architecture: arm64
            overhead: {podFixed: {memory: 512Mi, cpu: 1}}
            nodeSelector: {team: a}
            tolerations: [{key: gpu, operator: Exists}]",
    ];
    for text in valid {
        let pool = pool(text);
        assert_eq!(refused_by_rules(&pool), Vec::<String>::new(), "{text}");
        assert_eq!(refused_by_operator(&pool), Vec::<String>::new(), "{text}");
    }
    for product in builds::all() {
        // YAML takes 2022 for a number.
        for version in product.spellings().map(|spelling| format!("'{spelling}'")).chain([product.version.to_owned()]) {
            let pool = pool(&format!("spec: {{runtimeClasses: [{{name: a, version: {version}}}]}}"));
            assert_eq!((refused_by_rules(&pool), refused_by_operator(&pool)), (vec![], vec![]), "{version}");
        }
    }
}

#[test]
fn invalid_pools_are_refused_by_their_rule() {
    for Refusal { rule, pools } in refusals() {
        for pool in pools {
            let refused = refused_by_rules(&completed(&pool));
            assert!(refused.iter().any(|message| message.starts_with(&rule)), "{pool}: {refused:#?}");
        }
    }
}

/// The API server refuses two items of a list with the same keys.
#[test]
fn lists_have_keys() {
    for (list, keys) in [
        ("taints", json!(["key", "effect"])),
        ("retiredTaints", json!(["key", "value", "effect"])),
        ("runtimeClasses", json!(["name"])),
        ("buildNames", json!(["build"])),
    ] {
        let schema = &SCHEMA["properties"]["spec"]["properties"][list];
        assert_eq!((&schema["x-kubernetes-list-type"], &schema["x-kubernetes-list-map-keys"]), (&json!("map"), &keys));
    }
}

#[test]
fn every_rule_refuses_a_pool() {
    let pools = refusals().into_iter().flat_map(|refusal| refusal.pools);
    let refused: BTreeSet<String> = pools.flat_map(|pool| refused_by_rules(&completed(&pool))).collect();
    let all: BTreeSet<String> = rules(&SCHEMA).into_iter().map(|(_, message)| message).collect();
    assert_eq!(all.difference(&refused).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(refused.difference(&all).collect::<Vec<_>>(), Vec::<&String>::new(), "other errors than rules");
}

#[test]
fn the_keys_of_others_in_the_rules_are_those_of_the_code() {
    let mut seen = 0;
    for (rule, _) in rules(&SCHEMA) {
        if rule.contains("not-ready") {
            assert_eq!(quoted_after(&rule, " in ["), FOREIGN_KEYS, "{rule}");
            let prefixes: Vec<_> =
                rule.split("startsWith('").skip(1).filter_map(|rest| rest.split('\'').next()).collect();
            assert_eq!(prefixes, FOREIGN_PREFIXES, "{rule}");
            seen += 1;
        }
    }
    assert_eq!(seen, 2, "in both lists of taints");
}

/// The quoted words of the list that follows `start`.
fn quoted_after<'r>(rule: &'r str, start: &str) -> Vec<&'r str> {
    let list = rule.split_once(start).and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
    list.split('\'').skip(1).step_by(2).collect()
}

/// Rule and message of every CEL rule in a schema.
pub(super) fn rules(schema: &Value) -> Vec<(String, String)> {
    let own = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = own.map(|rule| (text(&rule["rule"]), text(&rule["message"])));
    let parts = match schema {
        Value::Object(map) => map.values().collect::<Vec<_>>(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    own.chain(parts.into_iter().flat_map(rules)).collect()
}
