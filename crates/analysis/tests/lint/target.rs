//! The operating system that a workload is for.

use serde_json::{Value, json};
use winpool_analysis::lint::Facts;
use winpool_analysis::pod::Target;
use winpool_analysis::workload::WorkloadManifest;

use super::{cluster, workload};

fn of(spec: &Value, facts: &Facts) -> Target {
    let pod = WorkloadManifest::read(&workload("Pod", spec)).unwrap().unwrap().workload.pod;
    pod.target(facts.known_class(&pod))
}

#[test]
fn what_a_pod_says_counts_before_its_image() {
    use Target::{Linux, Unknown, Windows, WindowsImage};
    let image = "mcr.microsoft.com/windows/nanoserver:ltsc2022";
    for (spec, expected) in [
        (json!({}), Unknown),
        (json!({"os": {"name": "windows"}}), Windows),
        (json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), Windows),
        (json!({"containers": [{"image": image}]}), WindowsImage),
        (json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"image": image}]}), Linux),
    ] {
        assert_eq!(of(&spec, &Facts::none()), expected, "{spec}");
    }
}

#[test]
fn a_class_tells_as_far_as_it_is_known() {
    let spec = json!({"runtimeClassName": "windows-2022"});
    assert_eq!(of(&spec, &Facts::none()), Target::Unknown);
    assert_eq!(of(&spec, &cluster(&[], &[json!({})], &[])), Target::Windows, "a pool makes it");
    let class = json!({"metadata": {"name": "windows-2022"}, "handler": "h", "scheduling": {"nodeSelector": {"kubernetes.io/os": "linux"}}});
    assert_eq!(of(&spec, &cluster(&[], &[], &[class])), Target::Linux);
}

#[test]
fn workloads_are_read_of_every_kind_that_makes_pods() {
    let template = json!({"spec": {"containers": []}});
    for (version, kind, spec, path) in [
        ("v1", "Pod", json!({"spec": template["spec"]}), "spec"),
        ("v1", "ReplicationController", json!({"spec": {"template": template}}), "spec.template.spec"),
        ("apps/v1", "Deployment", json!({"spec": {"template": template}}), "spec.template.spec"),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": {"template": template}}}}),
            "spec.jobTemplate.spec.template.spec",
        ),
        ("v1", "PodTemplate", json!({"template": template}), "template.spec"),
    ] {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "n"}});
        object.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let read = WorkloadManifest::read(&object).unwrap().unwrap();
        assert_eq!((read.object().to_string(), &*read.path), (format!("{kind} default/n"), path));
    }
    for other in [
        json!({}),
        json!({"apiVersion": "v1", "kind": "Node"}),
        json!({"apiVersion": "example.com/v1", "kind": "Machine", "spec": {"template": {"spec": {"containers": ["c"]}}}}),
        // Patches of kustomize.
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n", "labels": {"team": "a"}}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "n"}, "spec": {"replicas": 3}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "n"}, "spec": {"template": {"metadata": {}}}}),
        json!({"apiVersion": "example.com/v1", "kind": "Machine", "spec": {"template": {"spec": {"disk": "ssd"}}}}),
    ] {
        assert_eq!(WorkloadManifest::read(&other).unwrap().map(|read| read.workload.path), None, "{other}");
    }
    let rollout = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "n"}, "spec": {"template": template}});
    let read = WorkloadManifest::read(&rollout).unwrap().unwrap();
    assert_eq!((read.object().to_string(), &*read.path), ("Rollout default/n".to_owned(), "spec.template.spec"));
    for (version, kind, spec, path) in [
        (
            "keda.sh/v1alpha1",
            "ScaledJob",
            json!({"jobTargetRef": {"template": template}}),
            "spec.jobTargetRef.template.spec",
        ),
        (
            "agones.dev/v1",
            "Fleet",
            json!({"template": {"spec": {"template": template}}}),
            "spec.template.spec.template.spec",
        ),
    ] {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "n"}, "spec": spec});
        assert_eq!(
            WorkloadManifest::read(&object).unwrap().map(|read| read.workload.path),
            Some(path.into()),
            "{kind}"
        );
    }
}

#[test]
fn each_pod_template_of_an_unknown_kind_is_a_workload() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "app:1"}]}});
    for (version, kind, spec, paths) in [
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            json!({"tasks": [{"name": "a", "template": template}, {"name": "b", "template": template}]}),
            &["spec.tasks[0].template.spec", "spec.tasks[1].template.spec"][..],
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            json!({"replicatedJobs": [{"template": {"spec": {"template": template}}}]}),
            &["spec.replicatedJobs[0].template.spec.template.spec"],
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            json!({"leaderWorkerTemplate": {"leaderTemplate": template, "workerTemplate": template}}),
            &["spec.leaderWorkerTemplate.leaderTemplate.spec", "spec.leaderWorkerTemplate.workerTemplate.spec"],
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}),
            &["spec.pytorchReplicaSpecs.Worker.template.spec"],
        ),
        (
            "actions.github.com/v1alpha1",
            "AutoscalingRunnerSet",
            json!({"listenerTemplate": template, "template": template}),
            &["spec.listenerTemplate.spec", "spec.template.spec"],
        ),
        (
            "actions.summerwind.dev/v1alpha1",
            "RunnerDeployment",
            json!({"template": {"spec": {"repository": "a/b", "nodeSelector": {"kubernetes.io/os": "windows"}}}}),
            &["spec.template.spec"],
        ),
        ("apps.kruise.io/v1alpha1", "DaemonSet", json!({"template": template}), &["spec.template.spec"]),
        (
            "example.com/v1",
            "Machine",
            json!({"template": {"spec": {"containers": [{"name": "c"}]}}}),
            &["spec.template.spec"],
        ),
        ("example.com/v1", "Disk", json!({"template": {"spec": {"disk": "ssd"}}}), &[]),
    ] {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "n"}, "spec": spec});
        let read = WorkloadManifest::read_all(&object).unwrap();
        let found: Vec<&str> = read.iter().map(|workload| &*workload.path).collect();
        assert_eq!(found, paths, "{kind}");
    }
}

#[test]
fn a_workload_that_the_api_server_refuses_is_an_error() {
    let deployment =
        |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "n"}, "spec": spec});
    for (object, message) in [
        (deployment(json!({"template": {"spec": []}})), "spec.template.spec is not an object"),
        (
            deployment(json!({"template": {"spec": {"nodeSelector": ["a"], "containers": []}}})),
            "spec.template.spec: invalid type: sequence, expected a map",
        ),
    ] {
        assert_eq!(WorkloadManifest::read(&object).unwrap_err().to_string(), message, "{object}");
    }
}
