//! Rules about objects that workloads refer to: `StorageClasses`, and the queues and flavors of Kueue.

use std::sync::Arc;

use serde_json::{Value, json};
use winpool_analysis::lint::Facts;
use winpool_analysis::view::{Related, View};

use super::examples::windows;
use super::{broken, cluster, example, findings, manifests, workload};

const OS: &str = "kubernetes.io/os";

/// Objects of these kinds, names and other fields.
fn related(objects: &[(&str, &str, Value)]) -> Arc<Related> {
    let mut related = Related::default();
    for (kind, name, rest) in objects {
        let mut object = json!({"metadata": {"name": name}});
        json_patch::merge(&mut object, rest);
        related.add(kind, "shop", object);
    }
    Arc::new(related)
}

#[test]
fn a_volume_has_a_file_system_that_nodes_of_the_pods_system_can_format() {
    let class = |key: &str, value: &str| json!({"parameters": {key: value}});
    let default = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "parameters": {"csi.storage.k8s.io/fstype": "xfs"}});
    let related = related(&[
        ("StorageClass", "ext4", class("csi.storage.k8s.io/fstype", "ext4")),
        ("StorageClass", "xfs", default),
        ("StorageClass", "ntfs", class("fsType", "NTFS")),
        ("StorageClass", "any", json!({"provisioner": "p"})),
        ("PersistentVolumeClaim", "own", json!({"spec": {"storageClassName": "ext4"}})),
        ("PersistentVolumeClaim", "default", json!({"spec": {}})),
        ("PersistentVolumeClaim", "ntfs", json!({"spec": {"storageClassName": "ntfs"}})),
        ("PersistentVolumeClaim", "any", json!({"spec": {"storageClassName": "any"}})),
        ("PersistentVolumeClaim", "static", json!({"spec": {"storageClassName": ""}})),
    ]);
    let facts = Facts::of(&View { related, ..View::default() });
    let linux = json!({"nodeSelector": {OS: "linux"}});
    let rule = "volume-file-system".to_owned();
    for (claim, of_windows, of_linux) in [
        ("own", true, false),
        ("default", true, false),
        ("ntfs", false, true),
        ("any", false, false),
        ("static", false, false),
        ("gone", false, false),
    ] {
        for (pod, is_broken) in [(windows(&json!({})), of_windows), (linux.clone(), of_linux)] {
            let mut pod = pod;
            pod["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
            assert_eq!(broken("Deployment", &pod, &facts).contains(&rule), is_broken, "{claim}: {pod}");
        }
    }
    // Claims of other forms, and a pod of which nothing shows the system.
    let mut pod = windows(&example("volume-file-system"));
    let claim = pod["volumes"][0]["ephemeral"]["volumeClaimTemplate"].clone();
    assert!(broken("Deployment", &pod, &facts).contains(&rule));
    pod["volumes"] = Value::Null;
    let mut set = workload("StatefulSet", &pod);
    set["spec"]["volumeClaimTemplates"] = json!([claim]);
    let found = findings(&set, &facts).into_iter().find(|finding| finding.rule == rule).unwrap();
    assert_eq!(found.message, "StorageClass ext4 asks for the file system ext4, which Windows nodes cannot format");
    set["spec"]["template"]["spec"] = json!({"containers": [{"name": "c", "image": "app:1"}]});
    assert!(!findings(&set, &facts).iter().any(|finding| finding.rule == rule));
}

/// The facts about a tainted Windows node, and a queue with these flavors.
fn with_flavors(flavors: &[(&str, Value)]) -> Facts {
    let mut view = manifests(&[("10.0.20348", &["os=windows:NoSchedule"])], &[], &[]);
    let names: Vec<Value> = flavors.iter().map(|(name, _)| json!({"name": name})).collect();
    let mut objects = vec![
        ("LocalQueue", "jobs", json!({"spec": {"clusterQueue": "all"}})),
        ("ClusterQueue", "all", json!({"spec": {"resourceGroups": [{"flavors": names}]}})),
    ];
    objects.extend(flavors.iter().map(|(name, spec)| ("ResourceFlavor", *name, json!({"spec": spec}))));
    view.related = related(&objects);
    Facts::of(&view)
}

fn queued(pod: &Value) -> Value {
    let mut job = workload("Job", pod);
    job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "jobs"});
    job
}

fn rules(object: &Value, facts: &Facts) -> Vec<String> {
    findings(object, facts).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_flavor_of_kueue_places_the_pods_of_its_queue() {
    let os = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
    let windows = |rest: Value| {
        let mut flavor = json!({"nodeLabels": {OS: "windows"}, "nodeTaints": [os]});
        json_patch::merge(&mut flavor, &rest);
        flavor
    };
    let tolerating = windows(json!({"tolerations": [os]}));
    let linux = json!({"nodeLabels": {OS: "linux"}});
    let (plain, says) = (json!({}), super::examples::windows(&example("queue-starts-none")));
    let about_nodes = ["linux-may-land-on-windows", "toleration-missing", "os-selector-missing", "toleration-unknown"];
    let found = |pod: &Value, facts: &Facts| {
        let mut found = rules(&queued(pod), facts);
        found.retain(|rule| about_nodes.contains(&rule.as_str()) || rule.starts_with("queue-"));
        found
    };
    let none: Vec<String> = Vec::new();
    for (flavors, of_plain, of_windows) in [
        (vec![("w", tolerating.clone())], none.clone(), none.clone()),
        (vec![("l", linux.clone())], none.clone(), vec!["queue-starts-none".to_owned()]),
        // It keeps to the flavor that fits.
        (vec![("l", linux.clone()), ("w", tolerating.clone())], vec!["queue-unknown".to_owned()], none.clone()),
        (vec![("w", windows(json!({})))], vec!["queue-starts-none".to_owned()], vec!["queue-starts-none".to_owned()]),
    ] {
        let facts = with_flavors(&flavors);
        assert_eq!(found(&plain, &facts), of_plain, "{flavors:?}");
        let mut of_says = found(&says, &facts);
        of_says.retain(|rule| rule != "toleration-missing");
        assert_eq!(of_says, of_windows, "{flavors:?}");
    }
    // Without its objects nothing is known of the nodes, and outside of the queue everything as before.
    let facts = cluster(&[("10.0.20348", &["os=windows:NoSchedule"])], &[], &[]);
    assert_eq!(found(&says, &facts), ["queue-unknown"]);
    assert!(rules(&workload("Job", &says), &facts).contains(&"toleration-missing".to_owned()));
}

#[test]
fn kueue_ignores_the_tolerations_of_a_class() {
    let os = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
    let facts = with_flavors(&[("w", json!({"nodeLabels": {OS: "windows"}, "nodeTaints": [os]}))]);
    let pod = windows(&json!({"tolerations": [], "runtimeClassName": "windows-2022"}));
    let found = findings(&queued(&pod), &facts);
    let found = found.iter().find(|finding| finding.rule == "queue-starts-none").unwrap();
    assert_eq!(
        found.message,
        "Kueue never starts the pods: ResourceFlavor w has the taint os=windows:NoSchedule, which the template does not tolerate; \
         Kueue ignores the tolerations of a RuntimeClass"
    );
    assert!(!rules(&queued(&windows(&json!({}))), &facts).contains(&"queue-starts-none".to_owned()));
}
