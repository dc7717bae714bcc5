//! What is not known is never answered as if there were none: every command, with each kind of object that the user may not list
//! or that the API server does not deliver.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, WindowsPoolSpec};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::faults::proxy::FaultProxy;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};
use winpool_e2e::servers::lending::{Lent, lend};

use crate::installation::install_healthy;

/// The resources that commands read.
const RESOURCES: [&str; 15] = [
    "nodes",
    "runtimeclasses",
    "windowspools",
    "pods",
    "replicationcontrollers",
    "deployments",
    "statefulsets",
    "daemonsets",
    "replicasets",
    "jobs",
    "cronjobs",
    "services",
    "events",
    "leases",
    "namespaces",
];

/// The resources with pods or workloads.
const WORKLOADS: [&str; 8] =
    ["pods", "replicationcontrollers", "deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"];
/// The resources from which winpool computes what the operator would do, and that rules read.
const DECISIONS: [&str; 3] = ["nodes", "runtimeclasses", "windowspools"];

/// A command, and the resources that its answer needs.
struct Asked {
    arguments: &'static [&'static str],
    needs: Vec<&'static str>,
    /// The exit code if everything is known.
    code: i32,
}

fn commands() -> Vec<Asked> {
    let asked = |arguments, code, needs: &[&[&'static str]]| Asked { arguments, needs: needs.concat(), code };
    vec![
        asked(&["status"], 0, &[&DECISIONS, &WORKLOADS, &["leases"]]),
        asked(&["plan"], 0, &[&DECISIONS, &WORKLOADS]),
        asked(&["why", "node/linux"], 0, &[&DECISIONS, &WORKLOADS]),
        asked(&["why", "pod/web"], 0, &[&["nodes", "runtimeclasses", "windowspools", "pods", "events"]]),
        asked(&["why", "deployment/web"], 0, &[&["nodes", "runtimeclasses", "windowspools", "deployments", "pods"]]),
        asked(&["check", "-A"], 0, &[&DECISIONS, &WORKLOADS, &["services"]]),
        asked(&["check", "-n", "empty"], 0, &[&DECISIONS, &WORKLOADS, &["services", "namespaces"]]),
        asked(&["blockers", "--retire", "2019"], 0, &[&DECISIONS, &WORKLOADS]),
        asked(&["images", "--offline"], 2, &[&DECISIONS, &WORKLOADS]),
        asked(&["report"], 0, &[&DECISIONS, &WORKLOADS, &["services", "leases"]]),
        asked(&["render", "kubelet"], 0, &[&["windowspools"]]),
    ]
}

struct Answer {
    code: i32,
    out: String,
    error: String,
}

impl Answer {
    fn of(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        let output = command.args(arguments).env("KUBECONFIG", kubeconfig).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), error: text(output.stderr) }
    }

    fn names(&self, word: &str) -> bool {
        format!("{}{}", self.out, self.error).to_lowercase().contains(word)
    }
}

async fn ask(kubeconfig: &Path, arguments: &[&str]) -> Answer {
    let (kubeconfig, arguments): (PathBuf, Vec<String>) =
        (kubeconfig.to_owned(), arguments.iter().map(ToString::to_string).collect());
    let run = move || Answer::of(&kubeconfig, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// An installation that works, a pool without nodes, and a Linux node with a Linux workload: there is nothing to find.
async fn quiet_cluster() -> Lent {
    let server = lend().await.unwrap();
    let client = server.client();
    install_crd(&client).await.unwrap();
    install_healthy(&client).await;
    SimulatedNode::linux().name("linux").join(&client).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(client.clone());
    pools.create(&PostParams::default(), &WindowsPool::new("default", WindowsPoolSpec::default())).await.unwrap();
    create(&client, "v1", "Namespace", None, json!({"metadata": {"name": "empty"}})).await;
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "web:1"}]});
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let deployment =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}});
    create(&client, "apps/v1", "Deployment", Some("default"), deployment).await;
    create(&client, "v1", "Pod", Some("default"), json!({"metadata": {"name": "web"}, "spec": spec})).await;
    server
}

async fn create(client: &kube::Client, version: &str, kind: &str, namespace: Option<&str>, object: Value) {
    use kube::api::{ApiResource, DynamicObject};
    use kube::core::GroupVersionKind;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let mut object = object;
    object["apiVersion"] = if group.is_empty() { json!(version) } else { json!(format!("{group}/{version}")) };
    object["kind"] = json!(kind);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A user who may read these resources and no others.
async fn reader(server: &Lent, name: &str, resources: &[&str]) -> PathBuf {
    let client = server.client();
    // An answer without these is not wrong, or says so in a note.
    let optional = ["podtemplates", "nodepools", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
    let resources = [resources, &optional].concat();
    let rules = json!([{"apiGroups": ["*"], "resources": resources, "verbs": ["get", "list"]}]);
    let role: ClusterRole = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}],
    }))
    .unwrap();
    Api::all(client).create(&PostParams::default(), &binding).await.unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(server.kubeconfig()).unwrap()).unwrap();
    let user = kubeconfig["users"][0]["user"].as_object_mut().unwrap();
    user.extend([("as".to_owned(), json!("reader")), ("as-groups".to_owned(), json!([name]))]);
    let file = server.directory().join(format!("kubeconfig-{name}"));
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

/// Prints the wrong answers, and fails if there are any.
fn all_right(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[tokio::test]
async fn no_answer_is_clean_if_the_user_may_not_list_what_it_needs() {
    let server = quiet_cluster().await;
    let complete = reader(&server, "complete", &RESOURCES).await;
    let mut readers = Vec::new();
    for resource in RESOURCES {
        let others: Vec<&str> = RESOURCES.into_iter().filter(|other| *other != resource).collect();
        readers.push((resource, reader(&server, &format!("without-{resource}"), &others).await));
    }
    // The API server caches roles and bindings.
    for kubeconfig in readers.iter().map(|(_, kubeconfig)| kubeconfig).chain([&complete]) {
        wait_for("the permission acts", LIMIT, async || {
            let answer = ask(kubeconfig, &["check", "-A"]).await;
            Ok((answer.error.matches("not allowed").count() <= 1 && answer.code != 1).then_some(()))
        })
        .await
        .unwrap();
    }
    let mut wrong = Vec::new();
    for Asked { arguments, needs, code } in commands() {
        let known = ask(&complete, arguments).await;
        if known.code != code || known.error.contains("not allowed") {
            wrong.push(format!("{arguments:?} with everything: {} {}{}", known.code, known.out, known.error));
        }
        for resource in needs {
            let (_, kubeconfig) = readers.iter().find(|(of, _)| *of == resource).unwrap();
            let answer = ask(kubeconfig, arguments).await;
            if answer.code == 0 || !answer.names(resource) {
                let Answer { code, out, error } = &answer;
                wrong.push(format!("{arguments:?} without {resource}: {code}\n{out}{error}"));
            }
            if answer.code == 2 {
                let json = ask(kubeconfig, &[arguments, &["-o", "json"][..]].concat()).await;
                if !json.out.to_lowercase().contains(resource) {
                    wrong.push(format!("{arguments:?} -o json without {resource}:\n{}", json.out));
                }
            }
        }
    }
    all_right(&wrong);
}

/// A kubeconfig of an administrator behind the proxy, which passes tokens on.
async fn behind(proxy: &FaultProxy, server: &ApiServer) -> PathBuf {
    let client = server.connect().unwrap();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "admin"}})).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": "default"}],
    }))
    .unwrap();
    Api::all(client).create(&PostParams::default(), &binding).await.unwrap();
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let answer = accounts.create_token_request("admin", &PostParams::default(), &request).await.unwrap();
    proxy.kubeconfig(&answer.status.unwrap().token, "default").unwrap()
}

#[tokio::test]
async fn no_answer_is_clean_if_the_api_server_fails_for_what_it_needs() {
    let server = quiet_cluster().await;
    let proxy = FaultProxy::start(&server).await.unwrap();
    let kubeconfig = behind(&proxy, &server).await;
    wait_for("the permission acts", LIMIT, async || {
        Ok((ask(&kubeconfig, &["check", "-A"]).await.code == 0).then_some(()))
    })
    .await
    .unwrap();
    let mut wrong = Vec::new();
    let faults = [Fault::Refuse(InjectedError::Internal), Fault::Refuse(InjectedError::Expired), Fault::Halve];
    let mut next = faults.into_iter().cycle();
    for Asked { arguments, needs, .. } in commands() {
        // The paths of namespaced objects have this word too.
        for resource in needs.into_iter().filter(|resource| *resource != "namespaces") {
            let fault = next.next().unwrap();
            proxy.inject(move |passing| {
                let path = passing.path.split('?').next().unwrap_or_default();
                path.split('/').any(|part| part == resource).then_some(fault)
            });
            let answer = ask(&kubeconfig, arguments).await;
            if answer.code == 0 || !answer.names(resource) {
                let Answer { code, out, error } = answer;
                wrong.push(format!("{arguments:?}, {fault} for {resource}: {code}\n{out}{error}"));
            }
        }
    }
    all_right(&wrong);
}

#[tokio::test]
async fn a_status_that_pools_report_needs_no_workloads() {
    let server = quiet_cluster().await;
    let pools: Api<WindowsPool> = Api::all(server.client());
    let generation = pools.get("default").await.unwrap().metadata.generation;
    let status = json!({"status": {"observedGeneration": generation}});
    pools.patch_status("default", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let needed = ["nodes", "runtimeclasses", "windowspools", "pods", "deployments", "leases"];
    let kubeconfig = reader(&server, "reported", &needed).await;
    wait_for("the status needs no more", LIMIT, async || {
        let answer = ask(&kubeconfig, &["status"]).await;
        Ok((answer.code == 0 && !answer.names("not allowed") && !answer.names("cannot be listed")).then_some(()))
    })
    .await
    .unwrap();
    let plan = ask(&kubeconfig, &["plan"]).await;
    assert!(plan.code == 2 && plan.names("cronjobs"), "{}{}", plan.out, plan.error);
}

#[tokio::test]
async fn a_cluster_without_windows_is_told_from_one_that_is_not_known() {
    let server = quiet_cluster().await;
    let kubeconfig = server.kubeconfig();
    for (arguments, code, words) in [
        (&["status"][..], 0, "There is no Windows node."),
        (&["blockers", "--retire", "2019"], 0, "Windows Server 2019 (10.0.17763): 0 nodes"),
        (&["check", "-n", "emtpy"], 1, "there is no namespace emtpy"),
        (&["why", "deployment/nope"], 1, "there is no Deployment nope in namespace default"),
        (&["why", "class/windows-2202"], 1, "there is no RuntimeClass windows-2202"),
    ] {
        let answer = ask(kubeconfig, arguments).await;
        assert!(
            answer.code == code && (answer.out.clone() + &answer.error).contains(words),
            "{arguments:?}: {}{}",
            answer.out,
            answer.error
        );
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    definitions.delete("windowspools.winpool.dev", &kube::api::DeleteParams::default()).await.unwrap();
    let gone = async || {
        Ok((ask(kubeconfig, &["render", "kubelet"]).await.error.contains("has no WindowsPools")).then_some(()))
    };
    wait_for("the kind is gone", LIMIT, gone).await.unwrap();
    for (arguments, code, words) in [
        (&["status"][..], 2, "the CRD windowspools.winpool.dev is missing"),
        (&["plan"], 1, "winpool crd | kubectl apply -f -"),
        (&["why", "node/linux"], 1, "winpool crd | kubectl apply -f -"),
        (&["render", "kubelet"], 1, "winpool crd | kubectl apply -f -"),
        (&["why", "deployment/web"], 0, "Deployment default/web"),
        (&["check", "-A"], 0, "checked: nothing found"),
        (&["blockers", "--retire", "2019"], 0, "Nothing is pinned to it."),
    ] {
        let answer = ask(kubeconfig, arguments).await;
        let all = answer.out.clone() + &answer.error;
        assert!(answer.code == code && all.contains(words), "{arguments:?}: {} {all}", answer.code);
    }
}
