//! If `WINPOOL_E2E_GUARD` is set, all tests run with `config/components/guard` installed.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::machine::wait::{LIMIT, wait_for};
use crate::nodes::simulated::SimulatedNode;
use crate::scene::manifests;
use crate::servers::api_server::ApiServer;
use crate::servers::audit::USER;

/// Keys of taints that the pools of tests want, in addition to the guard's list.
const TAINT_KEYS: [&str; 4] = ["example.com/os", "odd", "older", "younger"];

/// Installs the guard if tests run with it, and waits until it is in force.
pub async fn guard(server: &ApiServer, admin: &Client) {
    if std::env::var_os("WINPOOL_E2E_GUARD").is_none() {
        return;
    }
    let mut objects = manifests::component("guard").unwrap();
    list_taint_keys(&mut objects);
    manifests::apply(admin, &objects).await.unwrap();

    let account = server.client_as(USER, &["system:masters"]).unwrap();
    let (classes, nodes) = (Api::<RuntimeClass>::all(account.clone()), Api::<Node>::all(account));
    let labels = json!({"app.kubernetes.io/managed-by": "winpool"});
    let class = json!({"metadata": {"name": "refused", "labels": labels}, "handler": "refused"});
    let class: RuntimeClass = serde_json::from_value(class).unwrap();
    let node = SimulatedNode::server_2022("refused");
    node.join(admin).await.unwrap();
    let tainted = json!([{"op": "add", "path": "/spec/taints/-", "value": {"key": "refused", "effect": "NoSchedule"}}]);
    let tainted = Patch::<()>::Json(serde_json::from_value(tainted).unwrap());
    // Each policy comes into force separately.
    let in_force = async || {
        let class = classes.create(&PostParams { dry_run: true, ..PostParams::default() }, &class).await;
        let once = PatchParams { dry_run: true, ..PatchParams::default() };
        Ok((is_refused(&class) && is_refused(&nodes.patch("refused", &once, &tainted).await)).then_some(()))
    };
    wait_for("the guard is in force", LIMIT, in_force).await.unwrap();
    Api::<Node>::all(admin.clone()).delete("refused", &DeleteParams::default()).await.unwrap();
}

/// Adds these keys to the policy's list.
fn list_taint_keys(objects: &mut [DynamicObject]) {
    let mut variables = objects.iter_mut().map(|object| &mut object.data["spec"]["variables"][0]);
    let variable = variables.find(|first| first["name"] == "taintKeys").unwrap();
    let Value::String(expression) = &mut variable["expression"] else { panic!("{variable}") };
    *expression = expression.replace(']', &format!(", '{}']", TAINT_KEYS.join("', '")));
}

fn is_refused<K>(result: &kube::Result<K>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.message.contains("winpool-guard-"))
}
