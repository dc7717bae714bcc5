//! What happens to new pods before the scheduler sees them, on a real API server: the level of `PodSecurity` of their namespace,
//! Kueue, and winpool's admission policies. Each command reads it, from the cluster and from a snapshot.

use std::fs;

use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::merge_status;
use winpool_e2e::harness::objects::windows_class;
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::{install_crd, manifests};
use winpool_e2e::servers::lending::{Lent, lend};
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use crate::access::{as_member, may_list, winpool};
use crate::check::create;
use crate::extensions::install;

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLUSTER: &str = "cluster:winpool-e2e";

/// Creates an object of a resource: `apps/v1/deployments`, in the namespace `shop` if it is `namespaced`.
async fn create_at(server: &Lent, resource: &str, namespaced: bool, mut object: Value) -> Value {
    let (version, plural) = resource.rsplit_once('/').unwrap();
    let prefix = if version == "v1" { "/api" } else { "/apis" };
    let namespace = if namespaced { "/namespaces/shop" } else { "" };
    object["apiVersion"] = json!(version);
    create(&server.client(), &format!("{prefix}/{version}{namespace}/{plural}"), object.clone()).await;
    if namespaced {
        object["metadata"]["namespace"] = json!("shop");
    }
    object
}

/// A workload with this template of a pod.
fn workload(kind: &str, name: &str, labels: &Value, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "example.com/app:1-ltsc2022"}]);
    let mut object = json!({"kind": kind, "metadata": {"name": name, "labels": labels}, "spec": {
        "template": {"metadata": {"labels": {"a": name}}, "spec": spec}}});
    if kind == "Deployment" {
        object["spec"]["selector"] = json!({"matchLabels": {"a": name}});
    } else {
        object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    }
    object
}

/// The rules that workloads break, with their names: `agent pod-security-refused`.
async fn broken(server: &Lent, arguments: &[&str]) -> Vec<String> {
    let (_, text, error) = winpool(server.kubeconfig(), &[arguments, &["-o", "json"]].concat()).await;
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {error}"));
    let rules = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| format!("{} {}", found["object"]["name"].as_str().unwrap(), found["rule"].as_str().unwrap()));
    let about = ["queue-", "pod-security-", "volume-"];
    let mut rules: Vec<String> = rules.filter(|rule| about.iter().any(|about| rule.contains(about))).collect();
    rules.sort();
    rules
}

#[tokio::test]
async fn levels_of_namespaces_queues_and_file_systems_are_read_from_a_cluster_and_from_its_snapshot() {
    let server = lend().await.unwrap();
    SimulatedNode::server_2022("win").join(&server.client()).await.unwrap();
    install_crd(&server.client()).await.unwrap();
    for (scope, kind, plural) in [
        ("Cluster", "ResourceFlavor", "resourceflavors"),
        ("Cluster", "ClusterQueue", "clusterqueues"),
        ("Namespaced", "LocalQueue", "localqueues"),
    ] {
        install(&server, scope, "kueue.x-k8s.io/v1beta2", kind, plural).await;
    }
    let metadata = json!({"name": "shop", "labels": {ENFORCE: "baseline"}});
    create_at(&server, "v1/namespaces", false, json!({"metadata": metadata})).await;
    let taint = json!({"key": "team", "value": "a", "effect": "NoSchedule"});
    let flavor = json!({"nodeLabels": {"kubernetes.io/os": "windows"}, "nodeTaints": [taint]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "closed", "resources": []}]}]);
    for (plural, kind, namespaced, name, spec) in [
        ("resourceflavors", "ResourceFlavor", false, "closed", flavor),
        ("clusterqueues", "ClusterQueue", false, "of-all", json!({"resourceGroups": groups})),
        ("localqueues", "LocalQueue", true, "of-shop", json!({"clusterQueue": "of-all"})),
    ] {
        let object = json!({"kind": kind, "metadata": {"name": name}, "spec": spec});
        create_at(&server, &format!("kueue.x-k8s.io/v1beta2/{plural}"), namespaced, object).await;
    }
    let class = json!({"kind": "StorageClass", "metadata": {"name": "linux-disk"}, "provisioner": "disk.example.com",
        "parameters": {"csi.storage.k8s.io/fstype": "ext4", "secret": "of-alice"}});
    create_at(&server, "storage.k8s.io/v1/storageclasses", false, class).await;
    let claim = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "linux-disk", "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = create_at(&server, "v1/persistentvolumeclaims", true, claim).await;

    let (os, selector) = (json!({"name": "windows"}), json!({"kubernetes.io/os": "windows"}));
    let disk = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let plain = |more: Value| {
        let mut spec = json!({"os": os, "nodeSelector": selector});
        json_patch::merge(&mut spec, &more);
        spec
    };
    let host = json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}});
    let mut objects = vec![claim];
    for (resource, object) in [
        ("apps/v1/deployments", workload("Deployment", "agent", &json!({}), plain(host))),
        ("apps/v1/deployments", workload("Deployment", "db", &json!({}), plain(json!({"volumes": disk})))),
        ("batch/v1/jobs", workload("Job", "batch", &json!({QUEUE: "of-shop"}), plain(json!({})))),
        ("batch/v1/jobs", workload("Job", "lost", &json!({QUEUE: "of-nobody"}), plain(json!({})))),
    ] {
        objects.push(create_at(&server, resource, true, object).await);
    }

    let expected =
        ["agent pod-security-refused", "batch queue-starts-none", "db volume-file-system", "lost queue-unknown"];
    assert_eq!(broken(&server, &["check", "-n", "shop", "--min-severity", "info"]).await, expected);

    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (manifests, cluster) = (file("manifests.json"), file("cluster.yaml"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(&manifests, list.to_string()).unwrap();
    let (_, snapshot, _) = winpool(server.kubeconfig(), &["snapshot", "-n", "shop"]).await;
    for (part, is_in) in [("linux-disk", true), ("of-shop", true), ("name: data", false), ("of-alice", false)] {
        assert_eq!(snapshot.contains(part), is_in, "{part}: {snapshot}");
    }
    fs::write(&cluster, snapshot).unwrap();
    for against in [CLUSTER, &cluster] {
        let check = ["check", "-f", &manifests, "--min-severity", "info", "--against", against];
        assert_eq!(broken(&server, &check).await, expected, "{against}");
    }

    // Other commands say the same.
    for (name, parts) in [
        (
            "deployment/agent",
            ["The API server refuses its pods", "PodSecurity level baseline", "After you correct that"],
        ),
        ("job/batch", ["Kueue never starts the pods", "has the taint team=a:NoSchedule", "1 node: win"]),
    ] {
        let (_, text, error) = winpool(server.kubeconfig(), &["why", name, "-n", "shop"]).await;
        assert!(parts.iter().all(|part| text.contains(part)), "{text}{error}");
    }
    let diff = async || winpool(server.kubeconfig(), &["diff", &cluster, CLUSTER, "-f", &manifests]).await;
    let (code, text, error) = diff().await;
    assert_eq!(code, Some(0), "{text}{error}");
    let label = json!({"metadata": {"labels": {ENFORCE: "privileged"}}});
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(server.client());
    namespaces.patch("shop", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(label)).await.unwrap();
    let (code, text, error) = diff().await;
    assert!(code == Some(2) && text.contains("Deployment shop/agent (0 -> 1 node)"), "{text}{error}");
}

/// A cluster with a node of each system, a pool with a class, and a workload that says Windows by `os.name` alone.
async fn cluster_with_policies(server: &Lent) -> Value {
    let client = server.client();
    let windows = SimulatedNode::server_2022("win").taint("os", "windows", "NoSchedule");
    for node in [windows, SimulatedNode::linux()] {
        node.join(&client).await.unwrap();
    }
    install_crd(&client).await.unwrap();
    let class = windows_class("windows-2022", &json!({"node.kubernetes.io/windows-build": "10.0.20348"}));
    create(&client, "/apis/node.k8s.io/v1/runtimeclasses", class).await;
    let pool = json!({"kind": "WindowsPool", "metadata": {"name": "default"}, "spec": {"podDefaults": {"fromImageTags": true}}});
    create_at(server, "winpool.dev/v1alpha1/windowspools", false, pool).await;
    let status = json!({"runtimeClasses": [{"name": "windows-2022", "build": "10.0.20348", "isolation": "Process",
        "handler": "runhcs-wcow-process", "state": "Applied", "nodes": 1}]});
    let pools: kube::Api<WindowsPool> = kube::Api::all(client);
    merge_status(&pools, "default", json!({"status": status})).await;
    create_at(server, "v1/namespaces", false, json!({"metadata": {"name": "shop"}})).await;
    let web = workload("Deployment", "web", &json!({}), json!({"os": {"name": "windows"}}));
    create_at(server, "apps/v1/deployments", true, web).await
}

#[tokio::test]
async fn what_policies_give_to_new_pods_is_part_of_every_answer() {
    needs!(MUTATING_ADMISSION_POLICY);
    let server = lend().await.unwrap();
    let web = cluster_with_policies(&server).await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let manifest = file("web.json");
    // A new DaemonSet. The DaemonSet controller ignores RuntimeClasses.
    let mut agent = workload("Deployment", "agent", &json!({}), json!({"os": {"name": "windows"}}));
    json_patch::merge(
        &mut agent,
        &json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "shop"}}),
    );
    fs::write(&manifest, json!({"apiVersion": "v1", "kind": "List", "items": [web, agent]}).to_string()).unwrap();
    let snapshot = async |name: &str| {
        let (_, text, error) = winpool(server.kubeconfig(), &["snapshot", "-n", "shop"]).await;
        assert!(!text.contains("web"), "{text}{error}");
        fs::write(file(name), text).unwrap();
        file(name)
    };
    let found = async |against: &str| {
        let from = if against.is_empty() { vec!["-n", "shop"] } else { vec!["-f", &manifest, "--against", against] };
        let (_, text, error) = winpool(server.kubeconfig(), &[&["check", "-o", "json"], &from[..]].concat()).await;
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{error}"));
        let rules =
            report["findings"].as_array().unwrap().iter().map(|found| found["rule"].as_str().unwrap().to_owned());
        rules.filter(|rule| rule == "os-selector-missing").count()
    };
    let before = snapshot("before.yaml").await;
    for (against, expected) in [("", 1), (CLUSTER, 2), (&before, 2)] {
        assert_eq!(found(against).await, expected, "{against}");
    }
    let plan = async |against: &str| {
        let (_, text, _) = winpool(server.kubeconfig(), &["plan", "-f", &manifest, "--against", against]).await;
        let parts = ["get the toleration", "DaemonSetWithoutPods"];
        parts.into_iter().filter(|part| text.contains(part)).collect::<Vec<_>>()
    };
    assert_eq!(plan(&before).await.len(), 2);

    for component in ["tolerate-windows", "assign-class"] {
        manifests::apply(&server.client(), &manifests::component(component).unwrap()).await.unwrap();
    }
    let after = snapshot("after.yaml").await;
    for against in ["", CLUSTER, &after] {
        assert_eq!(found(against).await, 0, "{against}");
        let about = if against.is_empty() {
            vec!["-n", "shop"]
        } else {
            vec!["-n", "shop", "-f", &manifest, "--against", against]
        };
        let (_, text, error) = winpool(server.kubeconfig(), &[&["why", "deployment/web"], &about[..]].concat()).await;
        let parts = ["assign-class gives it RuntimeClass windows-2022", "1 node: win"];
        assert!(parts.iter().all(|part| text.contains(part)), "{against}: {text}{error}");
    }
    let (code, text, error) = winpool(server.kubeconfig(), &["diff", &before, &after, "-f", &manifest]).await;
    assert!(code == Some(2) && text.contains("Deployment shop/web"), "{text}{error}");

    // Without the right to list policies the answers say so.
    let (group, tenant) = ("tenants", as_member(&server, "tenants"));
    may_list(
        &server,
        group,
        &["nodes", "runtimeclasses", "windowspools", "namespaces", "pods", "services", "deployments"],
    )
    .await;
    let (_, text, error) = winpool(&tenant, &["check", "-n", "shop"]).await;
    assert!(text.contains("os-selector-missing"), "{text}{error}");
    assert!(error.contains("what admission policies change is not considered"), "{text}{error}");
}
