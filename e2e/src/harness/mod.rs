//! A running operator, and helpers for tests.
//!
//! Unlike the rest of this crate it panics on errors, because only tests use it.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

pub mod account;
mod guarded;
pub mod host;
pub mod objects;
pub mod operator;
pub mod schema;
pub mod versions;
pub mod workloads;

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::{NodeCounts, WindowsPool};
use winpool_operator::Options;

use crate::machine::wait::{LIMIT, wait_for};
use crate::nodes::kubelet::Kubelet;
use crate::nodes::simulated::SimulatedNode;
use crate::scene::manifests::crd;
use crate::scene::{self, install_crd};
use crate::servers::api_server::ApiServer;
use crate::servers::audit::AuditLog;
use crate::servers::cluster::Cluster;
use crate::servers::lending::{Lent, lend_cluster, lend_installed};

use account::Account;
use guarded::guard;
use objects::{condition, has_taint, label};
use operator::{Operator, options};

/// The label with the name of the pool that owns a node.
pub const POOL: &str = "winpool.dev/pool";
/// The annotation with what winpool put on a node.
pub const APPLIED: &str = "winpool.dev/applied";
/// The taint of a pool with all defaults.
pub const OS_WINDOWS: &str = "os=windows:NoSchedule";

pub enum Server {
    /// Returned at the end of the test.
    Lent(Lent),
    /// Started for this test, and stopped at its end.
    Started(Box<ApiServer>),
    /// The one of a whole cluster, which ends with the test.
    Cluster(Box<Cluster>),
}

impl std::ops::Deref for Server {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        match self {
            Self::Lent(server) => server,
            Self::Started(server) => server,
            Self::Cluster(cluster) => cluster.api_server(),
        }
    }
}

/// An API server with the CustomResourceDefinition and the operator's account, for one test.
pub struct Harness {
    /// The API server. It stops, or is returned, when this is dropped.
    pub server: Server,
    /// The client of an administrator.
    pub client: Client,
    pub account: Account,
}

impl Harness {
    /// Borrows an API server.
    pub async fn new() -> Self {
        let harness = Self::unguarded().await;
        guard(&harness.server, &harness.client).await;
        harness
    }

    /// Borrows an API server without the guard, for tests that install it or that need requests which it refuses.
    pub async fn unguarded() -> Self {
        let install = async |server: &ApiServer, client: &Client| {
            install_crd(client).await?;
            Ok(Account::create(server, client).await.token())
        };
        let (server, token) = lend_installed(install).await.unwrap();
        let client = server.client();
        let account = Account::with_token(&server, &client, &token);
        Self { server: Server::Lent(server), client, account }
    }

    /// Borrows an API server, and returns the requests of operators to it.
    pub async fn audited() -> (Self, AuditLog) {
        let harness = Self::new().await;
        let Server::Lent(server) = &harness.server else { unreachable!("it is borrowed") };
        let audit = server.audit();
        (harness, audit)
    }

    /// Uses this API server, without the guard.
    pub async fn on(server: ApiServer) -> Self {
        let client = server.connect().unwrap();
        install_crd(&client).await.unwrap();
        let account = Account::create(&server, &client).await;
        Self { server: Server::Started(Box::new(server)), client, account }
    }

    /// Uses a whole cluster of its own.
    pub async fn with(cluster: Cluster) -> Self {
        let client = cluster.client();
        install_crd(&client).await.unwrap();
        let account = Account::create(cluster.api_server(), &client).await;
        guard(cluster.api_server(), &client).await;
        Self { server: Server::Cluster(Box::new(cluster)), client, account }
    }

    /// Uses a whole cluster of its own with these nodes, which are Ready.
    pub async fn with_nodes(nodes: impl IntoIterator<Item = SimulatedNode>) -> Self {
        let cluster = Box::pin(lend_cluster()).await.unwrap();
        scene::join(&cluster, nodes).await.unwrap();
        Box::pin(Self::with(cluster)).await
    }

    /// The whole cluster that it uses.
    pub fn cluster(&self) -> &Cluster {
        let Server::Cluster(cluster) = &self.server else { panic!("it uses an API server alone") };
        cluster
    }

    /// Starts the operator without leader election, with its own account.
    #[expect(clippy::unused_async, reason = "whatever is done to a cluster is awaited")]
    pub async fn operator(&self) -> Operator {
        Operator::start(self.account.config.clone())
    }

    /// Starts an operator with leader election and with its endpoints at this address.
    pub fn operator_at(&self, listen: SocketAddr) -> Operator {
        let options = Options { listen: Some(listen), ..options() };
        Operator::start_with(self.server.config().unwrap(), options)
    }

    /// Registers a node of Windows Server 2022.
    pub async fn join(&self, name: &str) -> Kubelet {
        self.join_node(SimulatedNode::server_2022(name)).await
    }

    pub async fn join_node(&self, node: SimulatedNode) -> Kubelet {
        node.join(&self.client).await.unwrap()
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub fn classes(&self) -> Api<RuntimeClass> {
        Api::all(self.client.clone())
    }

    pub fn pools(&self) -> Api<WindowsPool> {
        Api::all(self.client.clone())
    }

    /// The pods of the namespace `default`.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a pod with this spec and a container.
    pub async fn run_pod(&self, name: &str, mut spec: Value) -> Pod {
        spec["containers"] = json!([{"name": "c", "image": "servercore"}]);
        self.create_pod(json!({"metadata": {"name": name}, "spec": spec})).await
    }

    /// Creates this pod in the namespace `default`.
    pub async fn create_pod(&self, pod: Value) -> Pod {
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Applies a pool named `default` with this spec.
    pub async fn apply_pool(&self, spec: Value) {
        self.apply_pool_named("default", spec).await;
    }

    /// Applies a pool named `default` with this spec, and waits until it is Ready.
    pub async fn apply_until_ready(&self, spec: Value) -> WindowsPool {
        self.apply_pool(spec).await;
        self.ready("default").await
    }

    pub async fn apply_pool_named(&self, name: &str, spec: Value) {
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": spec,
        });
        let parameters = PatchParams {
            field_validation: Some(kube::api::ValidationDirective::Strict),
            ..PatchParams::apply("test")
        };
        self.pools().patch(name, &parameters, &Patch::Apply(pool)).await.unwrap();
    }

    /// Deletes a pool. It stays until the operator has cleaned up.
    pub async fn delete_pool(&self, name: &str) {
        self.pools().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn pool_is_gone(&self, name: &str) {
        let pools = self.pools();
        let gone = async || Ok(pools.get_opt(name).await?.is_none().then_some(()));
        wait_for(&format!("pool {name} is gone"), LIMIT, gone).await.unwrap();
    }

    /// Deletes the CRD, and with it all pools.
    pub async fn delete_definition(&self) {
        self.definitions().delete(&crd().unwrap().name_any(), &DeleteParams::default()).await.unwrap();
    }

    pub async fn definition_is_gone(&self) {
        let (definitions, name) = (self.definitions(), crd().unwrap().name_any());
        let gone = async || Ok(definitions.get_opt(&name).await?.is_none().then_some(()));
        wait_for("the definition of pools is gone", LIMIT, gone).await.unwrap();
    }

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// Waits until the pool is Ready by its newest spec.
    pub async fn ready(&self, pool: &str) -> WindowsPool {
        self.pool_until(pool, "is Ready", |pool| condition(pool, "Ready") == Some("True")).await
    }

    /// Waits until the pool's status is current and this holds for it.
    pub async fn pool_until(&self, name: &str, what: &str, holds: impl Fn(&WindowsPool) -> bool) -> WindowsPool {
        let is_current =
            |pool: &WindowsPool| pool.status.as_ref().and_then(|s| s.observed_generation) == pool.metadata.generation;
        until(self.pools(), name, what, |pool| is_current(pool) && holds(pool)).await
    }

    /// Waits until this holds for the numbers of nodes in the pool's status.
    pub async fn nodes_until(&self, pool: &str, what: &str, holds: impl Fn(&NodeCounts) -> bool) -> WindowsPool {
        self.pool_until(pool, what, |pool| pool.status.as_ref().is_some_and(|status| holds(&status.nodes))).await
    }

    pub async fn node(&self, name: &str) -> Node {
        self.nodes().get(name).await.unwrap()
    }

    /// Waits until this holds for the node.
    pub async fn node_until(&self, name: &str, what: &str, holds: impl Fn(&Node) -> bool) -> Node {
        until(self.nodes(), name, what, holds).await
    }

    /// Waits until the node has the taint of a pool with all defaults.
    pub async fn is_tainted(&self, name: &str) -> Node {
        self.node_until(name, "is tainted", |node| has_taint(node, OS_WINDOWS)).await
    }

    /// Waits until the node belongs to a pool.
    pub async fn is_marked(&self, name: &str) -> Node {
        self.node_until(name, "is marked", |node| label(node, POOL).is_some()).await
    }

    /// Waits until the RuntimeClass exists and this holds for it.
    pub async fn class_until(&self, name: &str, what: &str, holds: impl Fn(&RuntimeClass) -> bool) -> RuntimeClass {
        until(self.classes(), name, what, holds).await
    }

    /// Patches a node as an administrator.
    pub async fn edit_node(&self, name: &str, patch: Value) -> Node {
        merge(&self.nodes(), name, patch).await
    }

    /// Waits until the operator has seen all events of nodes until now: it has counted, for the pool `default`,
    /// a node that joined later and that left again. Nothing is written to that node.
    pub async fn node_events_are_seen(&self) {
        let witness = SimulatedNode::server_2022("witness").annotation("winpool.dev/ignore", "true");
        let witness = self.join_node(witness).await;
        self.nodes_until("default", "counts the witness", |nodes| nodes.ignored == 1).await;
        witness.leave().await.unwrap();
        self.nodes_until("default", "no longer counts the witness", |nodes| nodes.ignored == 0).await;
    }

    /// Creates a cluster-scoped object.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        Api::<K>::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap()
    }
}

/// Merges this into the object.
pub async fn merge<K>(api: &Api<K>, name: &str, patch: impl serde::Serialize + std::fmt::Debug) -> K
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Merges this, which has the member `status`, into the object's status.
pub async fn merge_status<K: serde::de::DeserializeOwned>(api: &Api<K>, name: &str, patch: Value) -> K {
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Waits until the object exists and this holds for it. The error shows how it was last seen.
async fn until<K>(api: Api<K>, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let (mut seen, what) = (None, format!("{} {name} {what}", K::kind(&())));
    let result = wait_for(&what, LIMIT, async || {
        seen = api.get_opt(name).await?;
        Ok(seen.clone().filter(&holds))
    });
    result.await.unwrap_or_else(|error| panic!("{error}; last seen: {:#}", json!(seen)))
}

/// Changes the taints of a node safely: by PUT with the resourceVersion that was read, until no other writer writes in
/// between.
pub async fn change_taints(nodes: &Api<Node>, name: &str, mut change: impl FnMut(&mut Vec<Taint>)) {
    loop {
        let mut node = nodes.get(name).await.unwrap();
        change(node.spec.get_or_insert_default().taints.get_or_insert_default());
        match nodes.replace(name, &PostParams::default(), &node).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => panic!("{error}"),
        }
    }
}
