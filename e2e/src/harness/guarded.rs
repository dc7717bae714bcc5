//! If `WINPOOL_E2E_GUARD` is set, all tests run with `config/components/guard` installed.

use k8s_openapi::api::{core::v1::Node, node::v1::RuntimeClass};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;

use crate::{ApiServer, LIMIT, SimulatedNode, audit::USER, manifests, wait_for};

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
    let node = json!(SimulatedNode::linux().name("refused").node());
    let class = json!({"metadata": {"name": "refused"}, "handler": "refused"});
    let pool = json!({"metadata": {"name": "refused"}, "spec": {}});
    // Each policy comes into force separately.
    let in_force = async || {
        let refused = refuses::<Node>(&account, &node).await
            && refuses::<RuntimeClass>(&account, &class).await
            && refuses::<WindowsPool>(&account, &pool).await;
        Ok(refused.then_some(()))
    };
    wait_for("the guard is in force", LIMIT, in_force).await.unwrap();
}

/// Adds these keys to the policy's list.
fn list_taint_keys(objects: &mut [DynamicObject]) {
    let mut variables = objects.iter_mut().map(|object| &mut object.data["spec"]["variables"][0]);
    let variable = variables.find(|first| first["name"] == "taintKeys").unwrap();
    let Value::String(expression) = &mut variable["expression"] else { panic!("{variable}") };
    *expression = expression.replace(']', &format!(", '{}']", TAINT_KEYS.join("', '")));
}

async fn refuses<K>(account: &Client, object: &Value) -> bool
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let object: K = serde_json::from_value(object.clone()).unwrap();
    let result = Api::<K>::all(account.clone()).create(&dry_run, &object).await;
    matches!(result, Err(kube::Error::Api(status)) if status.message.contains("winpool-guard-"))
}
