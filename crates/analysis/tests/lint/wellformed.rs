//! Rules about objects that the API server refuses whatever their system.

use serde_json::{Value, json};
use winpool_analysis::lint::wellformed::{check_malformed, check_without_template};
use winpool_analysis::lint::{Facts, check_errors};
use winpool_analysis::workload::WorkloadManifest;

use super::{findings, workload};

/// The fields that have the wrong type.
fn wrong(spec: &Value) -> Vec<String> {
    let found = findings(&workload("Deployment", spec), &Facts::none()).into_iter();
    found.filter(|found| found.rule == "field-type").map(|found| found.field).collect()
}

#[test]
fn each_field_with_a_wrong_type_is_named() {
    let of = |container: Value| wrong(&json!({"containers": [{"name": "ok", "image": "a"}, container]}));
    let at = |field: &str| vec![format!("spec.template.spec.containers[1].{field}")];
    assert_eq!(of(json!({"name": "c", "command": "app.exe"})), at("command"));
    assert_eq!(of(json!({"name": "c", "command": ["a", 1]})), at("command[1]"));
    assert_eq!(of(json!({"name": "c", "env": [{"name": "A", "value": 1}]})), at("env[0].value"));
    assert_eq!(of(json!({"name": "c", "ports": [{"containerPort": "80"}]})), at("ports[0].containerPort"));
    assert_eq!(of(json!({"name": "c", "stdin": "true", "tty": 1})).len(), 2);
    for valid in [
        json!({"name": "c", "resources": {"limits": {"cpu": 1, "memory": 1.5}, "requests": {"cpu": "1"}}}),
        json!({"name": "c", "livenessProbe": {"httpGet": {"port": 80}}, "unknown": 1}),
        json!({"name": "c", "livenessProbe": {"httpGet": {"port": "http"}}}),
    ] {
        assert_eq!(of(valid.clone()), [""; 0], "{valid}");
    }
    assert_eq!(wrong(&json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": 1}}]})), [""; 0]);
    assert_eq!(wrong(&json!({"hostUsers": "yes"})), ["spec.template.spec.hostUsers"]);
}

#[test]
fn a_spec_that_cannot_be_read_names_its_field() {
    for (spec, field) in [
        (json!({"os": "windows"}), "spec.os"),
        (json!({"containers": {}}), "spec.containers"),
        (json!({"nodeSelector": {"a": true}}), "spec.nodeSelector.a"),
        (json!([]), "spec"),
    ] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        assert!(WorkloadManifest::read(&pod).is_err(), "{pod}");
        let (found, _) = check_malformed(&pod);
        assert_eq!((found[0].field.as_str(), found[0].object.to_string().as_str()), (field, "Pod default/p"));
    }
}

#[test]
fn the_rest_of_a_spec_that_cannot_be_read_is_checked() {
    for (spec, rest) in [
        (json!({"os": "windows", "hostPID": true}), json!({"hostPID": true})),
        (json!({"nodeSelector": {"a/b~c": true, "d": "e"}}), json!({"nodeSelector": {"d": "e"}})),
        (json!({"containers": [{"name": 1, "image": "a"}, {"image": 2}]}), json!({"containers": [{"image": "a"}, {}]})),
        (json!({"tolerations": ["a", "b", {"key": "c"}]}), json!({"tolerations": [{"key": "c"}]})),
    ] {
        let cron_job = |spec: &Value| {
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
                "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})
        };
        let (_, found) = check_malformed(&cron_job(&spec));
        assert_eq!(found, Some(cron_job(&rest)));
        assert!(WorkloadManifest::read(&found.unwrap()).unwrap().is_some());
    }
    assert_eq!(check_malformed(&json!({"apiVersion": "v1", "kind": "Pod", "spec": []})).1, None);
}

#[test]
fn the_version_that_is_served_is_named() {
    for (version, kind, remedy) in [
        ("extensions/v1beta1", "Deployment", Some("write apps/v1, which requires spec.selector")),
        ("apps/v1beta1", "StatefulSet", Some("write apps/v1, which requires spec.selector")),
        ("batch/v1beta1", "Job", Some("write batch/v1")),
        ("apps/v1", "DaemonSet", None),
        ("example.com/v1beta1", "Rollout", None),
        ("apps.kruise.io/v1alpha1", "DaemonSet", None),
        ("batch.volcano.sh/v1alpha1", "Job", None),
    ] {
        let mut object = workload(kind, &json!({"nodeSelector": {"kubernetes.io/os": "linux"}}));
        object["apiVersion"] = json!(version);
        let workload = WorkloadManifest::read(&object).unwrap().unwrap();
        let found = check_errors(&workload, &Facts::none());
        assert_eq!(found.first().map(|found| found.remedy.text.as_str()), remedy, "{version} {kind}");
        assert!(found.iter().all(|found| found.field == "apiVersion"));
    }
}

#[test]
fn an_object_without_a_template_is_named() {
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "shop"}, "spec": {}});
    let found = check_without_template(&job);
    assert_eq!(found[0].object.to_string(), "CronJob shop/c");
    assert_eq!(found[0].field, "spec.jobTemplate.spec.template.spec");
}
