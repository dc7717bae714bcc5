//! Rules about the pod spec alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use winpool_core::{
    lint::{Consequence, Facts, Severity, rule, rules},
    windows::KubernetesVersion,
};

use super::{broken, findings, recommended, workload};

/// A pod of `os.name: windows` that breaks no other rule.
fn windows(spec: &Value) -> Value {
    let mut pod = json!({
        "os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"key": "os", "operator": "Exists"}],
    });
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

pub(super) fn container(fields: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "example.com/app:1.0"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"containers": [container]})
}

fn security(fields: &Value) -> Value {
    container(&json!({"securityContext": fields}))
}

/// A rule, pod specs that break exactly this one, and others that are close and break none.
pub(super) type Row = (&'static str, Vec<Value>, Vec<Value>);

fn table() -> Vec<Row> {
    [refused(), lint(), recommended::table(), placement()].concat()
}

pub(super) fn pod(fields: &Value) -> Value {
    json!({"securityContext": fields})
}

pub(super) fn volume(fields: &Value) -> Value {
    json!({"volumes": [fields]})
}

pub(super) fn mount(fields: &Value) -> Value {
    container(&json!({"volumeMounts": [fields]}))
}

fn host_process(value: bool) -> Value {
    json!({"windowsOptions": {"hostProcess": value}})
}

fn refused() -> Vec<Row> {
    vec![
        ("host-pid", vec![json!({"hostPID": true})], vec![json!({"hostPID": false}), json!({"hostPID": null})]),
        ("host-ipc", vec![json!({"hostIPC": true})], vec![json!({"hostIPC": false})]),
        ("host-users", vec![json!({"hostUsers": true}), json!({"hostUsers": false})], vec![json!({"hostUsers": null})]),
        ("pod-resources", vec![json!({"resources": {}})], vec![json!({"resources": null})]),
        ("share-process-namespace", vec![json!({"shareProcessNamespace": false})], vec![]),
        (
            "app-armor-profile",
            vec![pod(&json!({"appArmorProfile": {"type": "RuntimeDefault"}}))],
            vec![pod(&json!({}))],
        ),
        ("se-linux-options", vec![pod(&json!({"seLinuxOptions": {}}))], vec![pod(&json!({"seLinuxOptions": null}))]),
        ("se-linux-change-policy", vec![pod(&json!({"seLinuxChangePolicy": "Recursive"}))], vec![]),
        ("seccomp-profile", vec![pod(&json!({"seccompProfile": {"type": "RuntimeDefault"}}))], vec![]),
        ("fs-group", vec![pod(&json!({"fsGroup": 0}))], vec![]),
        ("fs-group-change-policy", vec![pod(&json!({"fsGroupChangePolicy": "Always"}))], vec![]),
        ("sysctls", vec![pod(&json!({"sysctls": [{"name": "a", "value": "1"}]}))], vec![pod(&json!({"sysctls": []}))]),
        ("run-as-user", vec![pod(&json!({"runAsUser": 0}))], vec![pod(&json!({"runAsNonRoot": false}))]),
        ("run-as-group", vec![pod(&json!({"runAsGroup": 0}))], vec![]),
        ("supplemental-groups", vec![pod(&json!({"supplementalGroups": []}))], vec![]),
        ("supplemental-groups-policy", vec![pod(&json!({"supplementalGroupsPolicy": "Merge"}))], vec![]),
        ("container-app-armor-profile", vec![security(&json!({"appArmorProfile": {"type": "Unconfined"}}))], vec![]),
        ("container-se-linux-options", vec![security(&json!({"seLinuxOptions": {}}))], vec![security(&json!({}))]),
        ("container-seccomp-profile", vec![security(&json!({"seccompProfile": {"type": "Unconfined"}}))], vec![]),
        ("container-capabilities", vec![security(&json!({"capabilities": {}}))], vec![]),
        ("container-read-only-root-filesystem", vec![security(&json!({"readOnlyRootFilesystem": false}))], vec![]),
        (
            "container-privileged",
            vec![security(&json!({"privileged": false}))],
            vec![security(&json!({"privileged": null}))],
        ),
        ("container-allow-privilege-escalation", vec![security(&json!({"allowPrivilegeEscalation": false}))], vec![]),
        ("container-proc-mount", vec![security(&json!({"procMount": "Default"}))], vec![]),
        ("container-run-as-user", vec![security(&json!({"runAsUser": 1000}))], vec![]),
        ("container-run-as-group", vec![security(&json!({"runAsGroup": 1000}))], vec![]),
        (
            "linux-with-windows-options",
            vec![json!({"os": {"name": "linux"}, "nodeSelector": {}, "securityContext": {"windowsOptions": {}}})],
            vec![json!({"os": {"name": "linux"}, "nodeSelector": {}})],
        ),
        (
            "host-process-mixed",
            vec![json!({"hostNetwork": true, "containers": [
                {"name": "a", "securityContext": host_process(true)}, {"name": "b"},
            ]})],
            vec![json!({"hostNetwork": true, "securityContext": host_process(true)})],
        ),
        (
            "host-process-contradicts-pod",
            vec![json!({"containers": [{"name": "a", "securityContext": host_process(false)}],
                "hostNetwork": false, "securityContext": host_process(true)})],
            vec![],
        ),
        (
            "host-process-without-host-network",
            vec![json!({"securityContext": host_process(true)})],
            vec![json!({"securityContext": host_process(false)})],
        ),
    ]
}

fn lint() -> Vec<Row> {
    vec![
        (
            "dns-policy-with-host-net",
            vec![json!({"dnsPolicy": "ClusterFirstWithHostNet"})],
            vec![json!({"dnsPolicy": "Default"})],
        ),
        ("host-network", vec![json!({"hostNetwork": true})], vec![json!({"hostNetwork": false})]),
        ("run-as-non-root", vec![pod(&json!({"runAsNonRoot": true}))], vec![]),
        ("container-run-as-non-root", vec![security(&json!({"runAsNonRoot": true}))], vec![]),
        (
            "huge-pages",
            vec![
                container(&json!({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}})),
                container(&json!({"resources": {"requests": {"hugepages-1Gi": "1Gi"}}})),
            ],
            vec![container(&json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}))],
        ),
        (
            "memory-limit-missing",
            vec![container(&json!({"resources": {"requests": {"memory": "1Gi"}}}))],
            vec![container(
                &json!({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}),
            )],
        ),
        (
            "empty-dir-memory",
            vec![volume(&json!({"name": "v", "emptyDir": {"medium": "Memory"}}))],
            vec![
                volume(&json!({"name": "v", "emptyDir": {"medium": ""}})),
                volume(&json!({"name": "v", "emptyDir": {}})),
            ],
        ),
        (
            "secret-volume",
            vec![volume(&json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}))],
            vec![],
        ),
        ("secret-volume-mode", vec![volume(&json!({"name": "v", "secret": {"defaultMode": 256}}))], vec![]),
        (
            "config-map-volume-mode",
            vec![volume(&json!({"name": "v", "configMap": {"defaultMode": 256}}))],
            vec![volume(&json!({"name": "v", "configMap": {"defaultMode": 420}}))],
        ),
        ("projected-volume-mode", vec![volume(&json!({"name": "v", "projected": {"defaultMode": 256}}))], vec![]),
        (
            "volume-item-mode",
            vec![volume(&json!({"name": "v", "configMap": {"items": [{"key": "k", "path": "p", "mode": 256}]}}))],
            vec![volume(&json!({"name": "v", "configMap": {"items": [{"key": "k", "path": "p"}]}}))],
        ),
        (
            "sub-path",
            vec![mount(&json!({"name": "v", "subPath": "a"}))],
            vec![mount(&json!({"name": "v", "subPath": ""}))],
        ),
        ("sub-path-expr", vec![mount(&json!({"name": "v", "subPathExpr": "$(A)"}))], vec![]),
        (
            "mount-propagation",
            vec![mount(&json!({"name": "v", "mountPropagation": "Bidirectional"}))],
            vec![mount(&json!({"name": "v", "mountPropagation": "None"}))],
        ),
        (
            "volume-devices",
            vec![container(&json!({"volumeDevices": [{"name": "v", "devicePath": "/d"}]}))],
            vec![container(&json!({"volumeDevices": []}))],
        ),
        ("nfs-volume", vec![volume(&json!({"name": "v", "nfs": {"server": "s", "path": "/"}}))], vec![]),
        (
            "termination-message-path",
            vec![container(&json!({"terminationMessagePath": "C:/log"}))],
            vec![container(&json!({"terminationMessagePath": "/dev/termination-log"}))],
        ),
    ]
}

fn placement() -> Vec<Row> {
    vec![
        ("os-name-missing", vec![json!({"os": null})], vec![]),
        (
            "os-contradicts-selector",
            vec![
                json!({"nodeSelector": {"kubernetes.io/os": "linux", "node.kubernetes.io/windows-build": "10.0.20348"}}),
            ],
            vec![json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "linux"}})],
        ),
        (
            "os-selector-missing",
            vec![json!({"nodeSelector": null}), json!({"nodeSelector": {"disk": "ssd"}})],
            vec![
                json!({"nodeSelector": null, "runtimeClassName": "any"}),
                json!({"nodeSelector": null, "nodeName": "win-1"}),
            ],
        ),
        ("os-selector-beta", vec![json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}})], vec![]),
        (
            "windows-image-without-os",
            vec![
                json!({"os": null, "nodeSelector": null, "containers": [{"image": "mcr.microsoft.com/windows/servercore"}]}),
            ],
            vec![json!({"containers": [{"image": "mcr.microsoft.com/windows/servercore"}]})],
        ),
        (
            "toleration-unknown",
            vec![json!({"tolerations": null}), json!({"tolerations": [{"key": "os", "value": "linux"}]})],
            vec![
                json!({"tolerations": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]}),
                json!({"tolerations": [{"operator": "Exists"}]}),
                json!({"tolerations": null, "runtimeClassName": "any"}),
            ],
        ),
        (
            "toleration-operator-unknown",
            vec![
                json!({"tolerations": [{"key": "os", "operator": "Gt", "value": "1"}]}),
                json!({"tolerations": [{"operator": "Exists"}, {"key": "tier", "operator": "Maybe"}]}),
            ],
            vec![json!({"tolerations": [{"key": "os", "operator": "", "value": "windows"}]})],
        ),
        (
            "build-malformed",
            vec![json!({"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "2019"}})],
            vec![
                json!({"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"}}),
            ],
        ),
        (
            "image-builds-differ",
            vec![json!({"containers": [{"image": "a:ltsc2019"}], "initContainers": [{"image": "b:ltsc2022"}]})],
            vec![json!({"containers": [{"image": "a:ltsc2022"}], "initContainers": [{"image": "b:ltsc2022"}]})],
        ),
        (
            "image-build-mismatch",
            vec![
                json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}, "containers": [{"image": "a:ltsc2019"}]}),
            ],
            vec![
                json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763"}, "containers": [{"image": "a:ltsc2019"}]}),
            ],
        ),
        (
            "image-older-than-host",
            vec![
                json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.26100"}, "containers": [{"image": "a:ltsc2022"}]}),
            ],
            vec![],
        ),
    ]
}

/// Rules that are always broken together.
const TOGETHER: [(&str, &[&str]); 3] = [
    ("secret-volume-mode", &["secret-volume"]),
    ("huge-pages", &["resources-missing"]),
    ("memory-limit-missing", &["resources-missing"]),
];

#[test]
fn each_rule_finds_its_examples_and_nothing_similar() {
    let facts = Facts::none();
    for (id, bad, good) in table() {
        let beside = TOGETHER.iter().find(|(rule, _)| *rule == id).map_or(&[][..], |(_, beside)| *beside);
        for spec in bad {
            let mut found: BTreeSet<String> = broken("Pod", &windows(&spec), &facts).into_iter().collect();
            assert!(found.remove(id), "{id}: {spec} breaks {found:?}");
            found.retain(|other| !beside.contains(&other.as_str()));
            assert_eq!(found, BTreeSet::new(), "{id}: {spec}");
        }
        for spec in good {
            let found = broken("Pod", &windows(&spec), &facts);
            assert!(found.is_empty(), "{id}: {spec} breaks {found:?}");
        }
    }
}

#[test]
fn every_rule_has_an_example() {
    let here = table().into_iter().map(|(id, ..)| id);
    let tested: BTreeSet<&str> =
        here.chain(super::placement::TESTED).chain(super::images::TESTED).chain(super::objects::TESTED).collect();
    let all: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(all.difference(&tested).collect::<Vec<_>>(), [&""; 0], "add them to the table in this file");
    assert_eq!(tested.difference(&all).collect::<Vec<_>>(), [&""; 0], "there are no such rules");
}

#[test]
fn names_are_unique_and_in_kebab_case() {
    let names: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for rule in rules() {
        assert!(rule.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", rule.id);
        for text in [rule.reason, rule.remedy] {
            assert!(!text.ends_with('.') && !text.contains("  ") && !text.contains('|'), "{}: {text}", rule.id);
        }
    }
    assert_eq!(rule("host-pid").map(|rule| rule.id), Some("host-pid"));
    assert!(rule("").is_none());
}

#[test]
fn without_os_name_nothing_is_refused_and_the_fields_do_nothing() {
    for (id, bad, _) in table() {
        let Some(rule) = rule(id).filter(|rule| rule.without_os.is_some()) else { continue };
        for spec in bad {
            let named = windows(&spec);
            let mut unnamed = named.clone();
            unnamed["os"] = Value::Null;
            for (spec, verdict) in [(named, rule.verdict), (unnamed, rule.verdict_without_os())] {
                let found = findings(&workload("Deployment", &spec), &Facts::none());
                let finding = found.iter().find(|finding| finding.rule == id).unwrap();
                assert_eq!((finding.severity, finding.consequence), (verdict.0, verdict.1), "{id}");
            }
            assert_eq!((rule.verdict.0, rule.verdict.1), (Severity::Error, Consequence::Rejected), "{id}");
        }
    }
}

#[test]
fn a_rule_holds_for_its_kubernetes_versions() {
    let spec = windows(&json!({"resources": {}, "hostPID": true}));
    let of = |minor| broken("Pod", &spec, &Facts::of_version(Some(KubernetesVersion { major: 1, minor })));
    assert_eq!(of(33), ["host-pid"]);
    assert_eq!(of(34), ["host-pid", "pod-resources"]);
}

#[test]
fn a_finding_names_object_field_and_remedy() {
    let spec = windows(&json!({"initContainers": [{"name": "i", "securityContext": {"runAsUser": 0}}]}));
    insta::assert_yaml_snapshot!(findings(&workload("Deployment", &spec), &Facts::none()), @r#"
    - rule: container-run-as-user
      severity: error
      consequence: Rejected
      object: Deployment shop/web
      field: "spec.template.spec.initContainers[0].securityContext.runAsUser"
      message: "runAsUser cannot be set for a Windows pod, not even to its default value"
      remedy: "remove it: Windows has user names: use securityContext.windowsOptions.runAsUserName"
    "#);
}

#[test]
fn pods_for_linux_are_left_alone() {
    let spec = json!({
        "os": {"name": "linux"}, "hostPID": true, "securityContext": {"runAsUser": 0, "seLinuxOptions": {}},
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    });
    assert_eq!(broken("DaemonSet", &spec, &Facts::none()), [""; 0]);
}
