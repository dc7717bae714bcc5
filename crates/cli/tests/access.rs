//! The answers of the read commands if a permission is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use winpool_analysis::crd::crd;
use winpool_e2e::machine::process::free_port;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::program::program;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::lending::lend;

const PLAN: &[&str] = &["plan"];
const CHECK: &[&str] = &["check", "-A"];
const BLOCKERS: &[&str] = &["blockers", "--retire", "2019"];
const WHY_NODE: &[&str] = &["why", "node", "win"];
const WHY_POD: &[&str] = &["why", "pod", "app"];
const RENDER: &[&str] = &["render", "kubelet"];
const CLEANUP: &[&str] = &["cleanup", "--dry-run"];

/// Pods, and the resources whose objects create them.
pub const WORKLOADS: [&str; 8] =
    ["pods", "replicationcontrollers", "deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"];

/// Exit code, output, errors.
pub async fn winpool(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let is_cleanup = arguments.first() == CLEANUP.first();
    let mut command = Command::new(program(if is_cleanup { "winpool-operator" } else { "winpool" }).await.unwrap());
    let output = command.args(arguments).env("KUBECONFIG", kubeconfig).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The administrator's kubeconfig, changed.
fn kubeconfig(server: &ApiServer, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(server.kubeconfig()).unwrap()).unwrap();
    change(&mut kubeconfig);
    let file = server.directory().join(format!("kubeconfig-{name}"));
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

/// A user in this group alone.
pub fn as_member(server: &ApiServer, group: &str) -> PathBuf {
    kubeconfig(server, group, |kubeconfig| {
        let user = kubeconfig["users"][0]["user"].as_object_mut().unwrap();
        user.extend([("as".to_owned(), json!("member")), ("as-groups".to_owned(), json!([group]))]);
    })
}

async fn create<K>(server: &ApiServer, object: Value)
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize + Resource<DynamicType = ()>,
{
    let api: Api<K> = Api::all(server.connect().unwrap());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Lets a group read these resources and nothing else.
pub async fn may_list(server: &ApiServer, group: &str, resources: &[&str]) {
    let rules = json!([{"apiGroups": ["*"], "resources": resources, "verbs": ["get", "list"]}]);
    create::<ClusterRole>(server, json!({"metadata": {"name": group}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group});
    create::<ClusterRoleBinding>(server, json!({"metadata": {"name": group}, "roleRef": role, "subjects": [subject]}))
        .await;
}

/// Creates the Deployment `web` with pods of this spec.
async fn deploy_web(server: &ApiServer, spec: Value) {
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}});
    let deployments: Api<Deployment> = Api::namespaced(server.connect().unwrap(), "default");
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
}

async fn install_definition(server: &ApiServer) {
    create::<CustomResourceDefinition>(server, serde_json::to_value(crd()).unwrap()).await;
    let known =
        async || Ok((winpool(server.kubeconfig(), RENDER).await.2.contains("there is no WindowsPool")).then_some(()));
    wait_for("pools are known", LIMIT, known).await.unwrap();
}

#[tokio::test]
async fn the_missing_permission_is_named() {
    let server = lend().await.unwrap();
    install_definition(&server).await;
    SimulatedNode::server_2022("win").join(&server.client()).await.unwrap();
    let steps: [(&[&str], &str, &str); 4] = [
        (&[], "windowspools", "windowspools.winpool.dev is forbidden"),
        (&["windowspools"], "nodes", "nodes is forbidden"),
        (&["windowspools", "nodes"], "runtimeclasses", "runtimeclasses.node.k8s.io is forbidden"),
        (&["windowspools", "nodes", "runtimeclasses"], "", ""),
    ];
    for (number, (resources, missing, words)) in steps.into_iter().enumerate() {
        let group = format!("group-{number}");
        if !resources.is_empty() {
            may_list(&server, &group, resources).await;
        }
        let file = as_member(&server, &group);
        let mut last = (None, String::new(), String::new());
        let what = format!("{missing} are missed");
        let expected = wait_for(&what, LIMIT, async || {
            last = winpool(&file, PLAN).await;
            let (code, out, error) = &last;
            let right = format!("winpool: not allowed to list {missing}: {words}");
            let remedy = format!("; you need the permission to list {missing}\n");
            Ok(if missing.is_empty() {
                // Without the permission to list pods, the command reports everything else.
                (*code == Some(2) && out.contains("Note: Pods cannot be listed: pods is forbidden")).then_some(())
            } else {
                (*code == Some(1) && error.starts_with(&right) && error.ends_with(&remedy) && out.is_empty())
                    .then_some(())
            })
        });
        assert!(expected.await.is_ok(), "{last:?}");
    }
    let powerless = as_member(&server, "group-0");
    for (arguments, right) in [
        (CHECK, "you need the permission to list pods"),
        (BLOCKERS, "you need the permission to list pods"),
        (WHY_NODE, "you need the permission to list windowspools"),
        (WHY_POD, "you need the permission to list nodes"),
        (RENDER, "you need the permission to list windowspools"),
        (CLEANUP, r#"cannot list resource "windowspools" in API group "winpool.dev""#),
    ] {
        let (code, _, error) = winpool(&powerless, arguments).await;
        assert!(code == Some(1) && error.contains(right), "{arguments:?}: {code:?} {error}");
    }
    may_list(&server, "workloads", &WORKLOADS).await;
    let workloads_only = as_member(&server, "workloads");
    let mut last = (None, String::new(), String::new());
    let checked = wait_for("workloads are checked without what may not be seen", LIMIT, async || {
        last = winpool(&workloads_only, CHECK).await;
        Ok((last.0 == Some(2)).then_some(()))
    });
    assert!(checked.await.is_ok(), "{last:?}");
    // The role `view` does not permit that.
    assert!(last.2.contains("list podtemplates; PodTemplates are not checked"), "{last:?}");
    for what in ["nodes", "runtimeclasses", "windowspools"] {
        let note = format!("winpool: not allowed to list {what}: ");
        let line = last.2.lines().find(|line| line.starts_with(&note)).unwrap_or_else(|| panic!("{what}: {last:?}"));
        assert!(line.ends_with("; what depends on it is not checked"), "{line}");
    }
}

#[tokio::test]
async fn what_may_not_be_read_is_noted() {
    let server = lend().await.unwrap();
    install_definition(&server).await;
    SimulatedNode::server_2022("win").join(&server.client()).await.unwrap();
    deploy_web(&server, json!({"containers": [{"name": "c", "image": "web:1"}]})).await;
    let readable = ["windowspools", "nodes", "runtimeclasses", "deployments"];
    may_list(&server, "without-pods", &readable).await;
    may_list(&server, "with-pods", &[&readable[..], &["pods"]].concat()).await;
    let unlisted = "because these cannot be listed: cronjobs, daemonsets, jobs, replicasets, replicationcontrollers, statefulsets (";
    let (why_web, why_node): (&[&str], &[&str]) = (&["why", "deployment/web"], &["why", "node/win"]);
    for (group, arguments, right) in [
        ("without-pods", why_web, "permission to list pods; the errors of its pods, and the nodes that they ran on, "),
        ("without-pods", why_node, "Note: Pods cannot be listed: pods is forbidden"),
        ("without-pods", why_node, unlisted),
        ("without-pods", &["plan", "-o", "json"], unlisted),
        ("without-pods", &["report"], "<strong>pods</strong>: not allowed to list pods"),
        ("without-pods", &["report"], "<dt>Failing pods</dt><dd>not known</dd>"),
        ("with-pods", &["report"], "<strong>cronjobs</strong>: not allowed to list cronjobs"),
    ] {
        let file = as_member(&server, group);
        let mut last = (None, String::new(), String::new());
        let read = wait_for("the rest is shown", LIMIT, async || {
            last = winpool(&file, arguments).await;
            Ok((last.0 == Some(2)).then_some(()))
        });
        assert!(read.await.is_ok(), "{last:?}");
        assert!(format!("{}{}", last.1, last.2).contains(right), "{last:?}");
    }
}

#[tokio::test]
async fn workloads_that_may_not_be_listed_are_named_and_change_the_exit_code() {
    let server = lend().await.unwrap();
    install_definition(&server).await;
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "web:1"}]});
    deploy_web(&server, spec).await;
    let facts = ["windowspools", "nodes", "runtimeclasses", "services", "podtemplates", "namespaces"];
    may_list(&server, "complete", &[&facts[..], &WORKLOADS].concat()).await;
    may_list(&server, "without-jobs", &[&facts[..], &WORKLOADS[..6]].concat()).await;
    may_list(&server, "without-nodes", &[&["windowspools"], &facts[2..], &WORKLOADS].concat()).await;
    let incomplete = "The answer is incomplete, because you may not list these: cronjobs, jobs";
    let not_known = "Nothing is known to be pinned to it.";
    for (group, arguments, code, text, unlisted) in [
        ("complete", CHECK, 0, "1 workload checked: nothing found", json!(null)),
        ("complete", BLOCKERS, 0, "Nothing is pinned to it.", json!(null)),
        ("without-jobs", CHECK, 2, incomplete, json!(["cronjobs", "jobs"])),
        ("without-jobs", BLOCKERS, 2, not_known, json!(["cronjobs", "jobs"])),
        ("without-nodes", CHECK, 2, "because you may not list these: nodes", json!(["nodes"])),
    ] {
        let file = as_member(&server, group);
        let mut last = (None, String::new(), String::new());
        let read = wait_for("it answers", LIMIT, async || {
            last = winpool(&file, arguments).await;
            Ok((last.0 == Some(code) && last.1.contains(text)).then_some(()))
        });
        assert!(read.await.is_ok(), "{group} {arguments:?}: {last:?}");
        let noted = last.2.lines().filter(|line| line.contains("not allowed to list ")).count();
        assert_eq!(noted, unlisted.as_array().map_or(0, Vec::len), "{last:?}");
        let (_, json, _) = winpool(&file, &[arguments, &["-o", "json"]].concat()).await;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["unlisted"], unlisted, "{group} {arguments:?}: {json}");
    }
}

#[tokio::test]
async fn unknown_credentials_are_distinguished_from_missing_permissions() {
    let server = lend().await.unwrap();
    install_definition(&server).await;
    let file = kubeconfig(&server, "token", |kubeconfig| {
        kubeconfig["users"][0]["user"] = json!({"token": "not-a-token"});
    });
    for arguments in [PLAN, CHECK, BLOCKERS, WHY_NODE, WHY_POD, RENDER] {
        let (code, out, error) = winpool(&file, arguments).await;
        let expected = "winpool: the cluster does not accept these credentials\n";
        assert_eq!((code, out.as_str(), error.as_str()), (Some(1), "", expected), "{arguments:?}");
    }
    let (code, _, error) = winpool(&file, CLEANUP).await;
    assert!(code == Some(1) && error.contains("Unauthorized"), "{error}");
}

#[tokio::test]
async fn a_proposed_pool_is_planned_against_the_live_cluster() {
    let server = lend().await.unwrap();
    install_definition(&server).await;
    SimulatedNode::server_2022("win").join(&server.client()).await.unwrap();
    let pool = tempfile::NamedTempFile::new().unwrap();
    let manifest = "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: new}\nspec: {}\n";
    std::fs::write(pool.path(), manifest).unwrap();
    let (code, out, error) =
        winpool(server.kubeconfig(), &["plan", "-f", pool.path().to_str().unwrap(), "--against", "cluster"]).await;
    assert_eq!((code, error.as_str()), (Some(2), ""));
    assert!(out.contains("WindowsPool new") && out.contains("~ win"), "{out}");
}

#[tokio::test]
async fn the_error_for_an_unreachable_cluster_names_it_and_the_reason() {
    let server = lend().await.unwrap();
    let url = format!("https://127.0.0.1:{}", free_port().unwrap());
    let file = kubeconfig(&server, "unreachable", |kubeconfig| {
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(url);
    });
    let stranger = kubeconfig(&server, "stranger", |kubeconfig| {
        let cluster = kubeconfig["clusters"][0]["cluster"].as_object_mut().unwrap();
        cluster.remove("certificate-authority");
    });
    for arguments in [PLAN, CHECK, BLOCKERS, WHY_NODE, WHY_POD, RENDER, CLEANUP] {
        let (code, out, error) = winpool(&file, arguments).await;
        assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(error.contains("Connection refused") && error.contains(&url), "{arguments:?}: {error}");
        let (code, _, error) = winpool(&stranger, arguments).await;
        assert!(code == Some(1) && error.contains("certificate"), "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn missing_files_in_a_list_of_kubeconfigs_are_ignored_as_kubectl_ignores_them() {
    let server = lend().await.unwrap();
    let present = server.kubeconfig();
    for (files, works) in [
        (&[Path::new("/missing"), present][..], true),
        (&[present, Path::new("/missing")], true),
        (&[Path::new("/missing"), Path::new("/gone")], false),
        (&[Path::new("/missing")], false),
    ] {
        for arguments in [CHECK, &[CHECK, &["--context", "winpool-e2e"]].concat()] {
            let list = std::env::join_paths(files).unwrap();
            let (code, _, error) = winpool(Path::new(&list), arguments).await;
            assert_eq!(code == Some(0), works, "{files:?} {arguments:?}: {error}");
            assert_eq!(error.contains("/missing"), !works, "{error}");
        }
    }
}

#[tokio::test]
async fn a_context_that_does_not_exist_is_named() {
    let server = lend().await.unwrap();
    for arguments in [PLAN, CHECK, BLOCKERS, WHY_NODE, WHY_POD, RENDER, CLEANUP] {
        let elsewhere = [arguments, &["--context", "elsewhere"]].concat();
        let (code, _, error) = winpool(server.kubeconfig(), &elsewhere).await;
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(error.starts_with("winpool: cannot use context elsewhere of the kubeconfig: "), "{error}");
        let there = server.kubeconfig().to_str().unwrap();
        let (code, _, error) =
            winpool(Path::new("/nonexistent"), &[&elsewhere[..], &["--kubeconfig", there]].concat()).await;
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(error.contains(there) && error.contains("elsewhere"), "{error}");
    }
}
