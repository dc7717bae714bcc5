//! Workloads of other projects, in manifests and on a real API server: each row of the table of kinds has an example.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use winpool_analysis::kinds::{KINDS, WorkloadKind};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::lend;

use crate::access;
use crate::assembled::{NODES, pins, winpool};
use crate::check::{create, live};
use crate::extensions::install;

/// A kind with the path of a pod template in it, which is pinned to Windows Server 2019.
const EXAMPLES: [(&str, &str); 10] = [
    RAY_CLUSTER,
    ("RayJob", "spec.rayClusterSpec.workerGroupSpecs[0].template"),
    ("RayService", "spec.rayClusterConfig.workerGroupSpecs[0].template"),
    ("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate"),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template"),
    ("TFJob", "spec.tfReplicaSpecs.Worker.template"),
    ("XGBoostJob", "spec.xgbReplicaSpecs.Worker.template"),
    ("PaddleJob", "spec.paddleReplicaSpecs.Worker.template"),
    ("JAXJob", "spec.jaxReplicaSpecs.Worker.template"),
    ("MPIJob", "spec.mpiReplicaSpecs.Worker.template"),
];

const RAY_CLUSTER: (&str, &str) = ("RayCluster", "spec.workerGroupSpecs[0].template");

/// The kinds whose examples are in `assembled.rs`.
const ASSEMBLED: [&str; 7] =
    ["Workflow", "CronWorkflow", "WorkflowTemplate", "TaskRun", "PipelineRun", "Task", "Pipeline"];

fn row(kind: &str) -> &'static WorkloadKind {
    KINDS.iter().find(|row| row.name == kind && !row.is_own()).unwrap()
}

/// Puts the value at a path such as `spec.groups[0].template`.
fn put(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, part| match part.split_once('[') {
        Some((list, _)) => json!({list: [inner]}),
        None => json!({part: inner}),
    })
}

/// The example of a kind, in its oldest version.
fn example((kind, path): (&str, &str)) -> Value {
    let pinned = json!({"node.kubernetes.io/windows-build": "10.0.17763"});
    let containers = json!([{"name": "c", "image": "app:1"}]);
    let mut object = put(path, json!({"spec": {"nodeSelector": pinned, "containers": containers}}));
    if kind == "RayCluster" {
        let linux = json!({"kubernetes.io/os": "linux"});
        object["spec"]["headGroupSpec"] =
            json!({"template": {"spec": {"nodeSelector": linux, "containers": containers}}});
    }
    object["apiVersion"] = json!(row(kind).api_versions.last().unwrap());
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": "example", "namespace": "default"});
    object
}

#[test]
fn each_row_has_an_example() {
    let examples = EXAMPLES.iter().map(|(kind, _)| *kind).chain(ASSEMBLED).chain(["SparkApplication"]);
    let rows: BTreeSet<&str> = KINDS.iter().filter(|row| !row.is_own()).map(|row| row.name).collect();
    assert_eq!(examples.collect::<BTreeSet<_>>(), rows);
}

#[test]
fn the_template_of_each_kind_is_read_in_manifests() {
    for (kind, path) in EXAMPLES {
        assert_eq!(pins(&example((kind, path)).to_string()), [format!("{path}.spec.nodeSelector")], "{kind}");
    }
}

#[test]
fn the_fields_of_a_spark_application_are_those_of_its_pods() {
    let input = json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
        "metadata": {"name": "pi", "namespace": "default"},
        "spec": {
            "image": "spark:4", "nodeSelector": {"kubernetes.io/os": "linux"},
            "driver": {"cores": 1},
            "executor": {
                "image": "mcr.microsoft.com/windows/servercore:ltsc2019",
                "template": {"spec": {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763"}}},
            },
        },
    });
    assert_eq!(pins(&input.to_string()), ["spec.executor.template.spec.nodeSelector", "spec.executor.image"],);
}

#[test]
fn what_has_ended_is_left_out() {
    let ends = [
        ("RayJob", json!({"jobDeploymentStatus": "Complete"})),
        ("PyTorchJob", json!({"conditions": [{"type": "Succeeded", "status": "True"}]})),
    ];
    for (kind, status) in ends {
        let mut object = example(*EXAMPLES.iter().find(|(known, _)| *known == kind).unwrap());
        object["status"] = status;
        assert_eq!(pins(&object.to_string()), [""; 0], "{kind}");
        object["status"] =
            json!({"jobDeploymentStatus": "Running", "conditions": [{"type": "Running", "status": "True"}]});
        assert_eq!(pins(&object.to_string()).len(), 1, "{kind}");
    }
}

#[test]
fn fix_changes_the_template_of_a_known_kind_only() {
    let (object, name) = (example(RAY_CLUSTER), ["ray.io/v1alpha1", "example.com/v1"]);
    for (api_version, changed) in [(name[0], "1 changed"), (name[1], "0 changed")] {
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        let input = format!("{NODES}{}\n", serde_yaml::to_string(&object).unwrap());
        let (code, out, notes) = winpool(&["fix"], &input);
        assert!(code == Some(0) && notes.contains(changed), "{api_version}: {notes}");
        let lines: Vec<&str> = out.lines().map(str::trim).collect();
        assert_eq!(lines.contains(&"name: windows"), changed == "1 changed", "{api_version}: {out}");
    }
}

#[test]
fn why_asks_for_the_template_if_there_are_several() {
    let input = format!("{NODES}{}", example(RAY_CLUSTER));
    let (code, _, error) = winpool(&["why", "raycluster/example"], &input);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("--template: spec.headGroupSpec.template, spec.workerGroupSpecs[0].template"), "{error}");
    for (template, node) in [("spec.headGroupSpec.template", "linux"), ("spec.workerGroupSpecs[0].template", "old")] {
        let (_, out, error) = winpool(&["why", "RayCluster/example", "--template", template, "-o", "json"], &input);
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
        let others: Vec<&str> = answer["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|on| on["reasons"].to_string().contains("selector") || on["reasons"].to_string().contains("label"))
            .filter_map(|on| on["node"].as_str())
            .collect();
        assert!(!others.contains(&node), "{template}: {answer:#}");
    }
}

#[tokio::test]
async fn workloads_of_other_projects_are_read_from_a_cluster() {
    let server = lend().await.unwrap();
    let client = server.client();
    SimulatedNode::server_2019("old").join(&client).await.unwrap();
    let mut expected = BTreeSet::new();
    // The group of PaddleJob is there, but not the kind; and nothing at all of LeaderWorkerSet.
    let installed = EXAMPLES.into_iter().filter(|(kind, _)| !["PaddleJob", "LeaderWorkerSet"].contains(kind));
    for (kind, path) in installed {
        let (row, object) = (row(kind), example((kind, path)));
        let api_version = object["apiVersion"].as_str().unwrap().to_owned();
        install(&server, "Namespaced", &api_version, kind, row.plural).await;
        create(&client, &format!("/apis/{api_version}/namespaces/default/{}", row.plural), object).await;
        expected.insert(format!("{kind} {path}.spec.nodeSelector"));
    }
    let report = live(&server, &["blockers", "--retire", "2019"]);
    let blockers = report["blockers"].as_array().unwrap().iter();
    let found = blockers.flat_map(|blocker| {
        let kind = blocker["object"]["kind"].as_str().unwrap();
        blocker["pins"].as_array().unwrap().iter().map(move |pin| format!("{kind} {}", pin["field"].as_str().unwrap()))
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
    let checked = live(&server, &["check"]);
    assert_eq!(checked["unlisted"], Value::Null, "{checked:#}");
    let answer = live(&server, &["why", "raycluster/example", "--template", "spec.workerGroupSpecs[0].template"]);
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 1, "{answer:#}");

    // Kubernetes' own roles do not know these kinds.
    let own = ["nodes", "runtimeclasses", "windowspools", "services", "podtemplates"];
    access::may_list(&server, "viewer", &[&access::WORKLOADS[..], &own].concat()).await;
    let (viewer, mut last) = (access::as_member(&server, "viewer"), (None, String::new(), String::new()));
    let is_noted = wait_for("the note about Ray", LIMIT, async || {
        last = access::winpool(&viewer, &["check", "-A"]).await;
        Ok((last.0 == Some(0) && last.2.contains("; RayClusters are not checked\n")).then_some(()))
    });
    assert!(is_noted.await.is_ok(), "{last:?}");
}
