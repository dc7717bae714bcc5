//! The operator's ServiceAccount with the permissions of `config/rbac/`.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::machine::wait::{LIMIT, wait_for};
use crate::scene::manifests;
use crate::servers::api_server::ApiServer;

pub const NAMESPACE: &str = "winpool-system";

/// The name of the account and of the objects that give it permissions and wait for the operator.
const NAME: &str = "winpool";

/// The name of the role with the permission to patch pods, and of its binding. They do not wait for the operator.
const HELP: &str = "winpool-help-pods";

/// The kinds of the objects that wait for the operator, in the order in which `kubectl delete -k` deletes them.
pub const INSTALLATION: [&str; 5] = ["ClusterRoleBinding", "ClusterRole", "ServiceAccount", "RoleBinding", "Role"];

/// The ends of the names of the policies that every installation has.
pub const CONFINED: [&str; 6] = ["events", "nodes", "permissions", "pods", "pools", "runtimeclasses"];

/// A verb on a resource, with its subresource, of an API group.
pub type Right<'a> = (&'a str, &'a str, &'a str);

/// The operator's account on one API server.
pub struct Account {
    /// The operator's configuration: it has the account's token and nothing more.
    pub config: Config,
    /// A client with the account's token.
    client: Client,
    admin: Client,
    /// The roles in `config/`.
    roles: [ClusterRole; 2],
    local_role: Role,
}

impl Account {
    /// Creates the namespace, and the account with the permissions of an installation.
    pub async fn create(server: &ApiServer, admin: &Client) -> Self {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        Api::all(admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        Self::install(server, admin).await
    }

    /// Creates the account in its namespace, for the first time or after it was uninstalled.
    pub async fn install(server: &ApiServer, admin: &Client) -> Self {
        for confined in CONFINED {
            manifests::apply(admin, &manifests::rbac(&format!("confine_{confined}.yaml")).unwrap()).await.unwrap();
        }
        create::<ClusterRole>(everywhere(admin), read("help_role.yaml")).await;
        create::<ClusterRoleBinding>(everywhere(admin), read("help_role_binding.yaml")).await;
        create::<ClusterRole>(everywhere(admin), held("cluster_role.yaml")).await;
        create::<ClusterRoleBinding>(everywhere(admin), held("cluster_role_binding.yaml")).await;
        create::<Role>(in_its_namespace(admin), held("role.yaml")).await;
        create::<RoleBinding>(in_its_namespace(admin), held("role_binding.yaml")).await;
        create::<ServiceAccount>(in_its_namespace(admin), held("service_account.yaml")).await;

        let accounts = in_its_namespace::<ServiceAccount>(admin);
        // Longer than any test, the soak included.
        let spec = TokenRequestSpec { expiration_seconds: Some(7 * 24 * 3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(NAME, &PostParams::default(), &request).await.unwrap();
        let account = Self::with_token(server, admin, &answer.status.unwrap().token);
        // The API server caches roles and bindings.
        for right in [("patch", "", "pods"), ("list", "", "nodes"), ("create", "coordination.k8s.io", "leases")] {
            account.until(right, true).await;
        }
        account.is_confined().await;
        account
    }

    /// Waits until the policies are in force. The API server reads all of them together, once a second.
    async fn is_confined(&self) {
        let class = json!({"metadata": {"name": "not-of-winpool"}, "handler": "refused"});
        let class: RuntimeClass = serde_json::from_value(class).unwrap();
        let once = PostParams { dry_run: true, ..PostParams::default() };
        let refused = async || {
            let answer = everywhere::<RuntimeClass>(&self.client).create(&once, &class).await;
            let is_refused = answer.is_err_and(|error| error.to_string().contains("winpool-confine-runtimeclasses"));
            Ok(is_refused.then_some(()))
        };
        wait_for("the policies of the installation are in force", LIMIT, refused).await.unwrap();
    }

    /// The account that is installed, with a token of it.
    pub fn with_token(server: &ApiServer, admin: &Client, token: &str) -> Self {
        let mut config = server.config().unwrap();
        config.auth_info = serde_json::from_value(json!({"token": token})).unwrap();
        NAMESPACE.clone_into(&mut config.default_namespace);
        let client = Client::try_from(config.clone()).unwrap();
        let roles = [held("cluster_role.yaml"), read("help_role.yaml")];
        Self { config, client, admin: admin.clone(), roles, local_role: held("role.yaml") }
    }

    /// Deletes the installation as `kubectl delete -k` does. Each object of [`INSTALLATION`] waits for the operator.
    pub async fn uninstall(&self) {
        let at_once = DeleteParams::default();
        everywhere::<ClusterRoleBinding>(&self.admin).delete(HELP, &at_once).await.unwrap();
        everywhere::<ClusterRole>(&self.admin).delete(HELP, &at_once).await.unwrap();
        for kind in INSTALLATION {
            self.delete(kind).await;
        }
    }

    /// Deletes the object of this kind, one of [`INSTALLATION`] or the namespace. It waits for the operator.
    pub async fn delete(&self, kind: &str) {
        let (api, name) = self.part(kind);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn is_uninstalled(&self) {
        for kind in INSTALLATION {
            self.is_gone(kind, LIMIT).await;
        }
    }

    pub async fn is_gone(&self, kind: &str, limit: Duration) {
        let (api, name) = self.part(kind);
        let is_gone = async || Ok(api.get_metadata_opt(name).await?.is_none().then_some(()));
        wait_for(&format!("{kind} {name} is gone"), limit, is_gone).await.unwrap();
    }

    /// Returns the kinds of the objects whose deletion waits for the operator.
    pub async fn held(&self) -> Vec<&'static str> {
        let mut held = Vec::new();
        for kind in INSTALLATION {
            let (api, name) = self.part(kind);
            let object = api.get_metadata_opt(name).await.unwrap();
            if object.is_some_and(|object| !object.finalizers().is_empty()) {
                held.push(kind);
            }
        }
        held
    }

    fn part(&self, kind: &str) -> (Api<DynamicObject>, &'static str) {
        let admin = self.admin.clone();
        let inside = |resource| (Api::namespaced_with(admin.clone(), NAMESPACE, &resource), NAME);
        match kind {
            "ClusterRoleBinding" => (Api::all_with(admin, &ApiResource::erase::<ClusterRoleBinding>(&())), NAME),
            "ClusterRole" => (Api::all_with(admin, &ApiResource::erase::<ClusterRole>(&())), NAME),
            "Namespace" => (Api::all_with(admin, &ApiResource::erase::<Namespace>(&())), NAMESPACE),
            "ServiceAccount" => inside(ApiResource::erase::<ServiceAccount>(&())),
            "Role" => inside(ApiResource::erase::<Role>(&())),
            "RoleBinding" => inside(ApiResource::erase::<RoleBinding>(&())),
            other => panic!("{other} is not installed"),
        }
    }

    /// The account's token, for a kubeconfig.
    pub fn token(&self) -> String {
        json!(self.config.auth_info)["token"].as_str().unwrap().to_owned()
    }

    /// Returns everything that the roles allow.
    pub fn rights(&self) -> BTreeSet<[String; 3]> {
        let rules = self.roles.iter().flat_map(|role| &role.rules).chain(&self.local_role.rules).flatten();
        let mut rights = BTreeSet::new();
        for rule in rules {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    rights.extend(rule.verbs.iter().map(|verb| [verb.clone(), group.clone(), resource.clone()]));
                }
            }
        }
        rights
    }

    /// Removes a permission from the ClusterRole that has it, and waits until the API server applies the change.
    pub async fn take(&self, right: Right<'_>) {
        self.take_all(&[right]).await;
    }

    /// Does the same for several permissions.
    pub async fn take_all(&self, rights: &[Right<'_>]) {
        for mut role in self.roles.clone() {
            for (verb, group, resource) in rights {
                for rule in role.rules.iter_mut().flatten().filter(|rule| has(rule.api_groups.as_ref(), group)) {
                    if has(rule.resources.as_ref(), resource) {
                        rule.verbs.retain(|other| other != verb);
                    }
                }
            }
            role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !rule.verbs.is_empty()));
            self.set(role).await;
        }
        for right in rights {
            self.until(*right, false).await;
        }
    }

    /// Restores all permissions, and waits until the API server applies the change.
    pub async fn give_back(&self, right: Right<'_>) {
        for role in self.roles.clone() {
            self.set(role).await;
        }
        self.until(right, true).await;
    }

    async fn set(&self, mut role: ClusterRole) {
        role.metadata.resource_version = None;
        let name = role.name_any();
        everywhere::<ClusterRole>(&self.admin).replace(&name, &PostParams::default(), &role).await.unwrap();
    }

    async fn until(&self, right: Right<'_>, allowed: bool) {
        let what = format!("{right:?} is {}", if allowed { "allowed" } else { "not allowed" });
        let asked = async || Ok((self.may(right).await == Some(allowed)).then_some(()));
        wait_for(&what, LIMIT, asked).await.unwrap();
    }

    /// Returns `None` while the API server does not know the account yet.
    async fn may(&self, (verb, group, resource): Right<'_>) -> Option<bool> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let question: SelfSubjectAccessReview = serde_json::from_value(json!({"spec": {"resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": NAMESPACE, "name": NAME,
        }}}))
        .unwrap();
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &question).await.ok()?;
        answer.status.map(|status| status.allowed)
    }
}

fn has(list: Option<&Vec<String>>, item: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|other| other == item))
}

fn everywhere<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>(admin: &Client) -> Api<K> {
    Api::all(admin.clone())
}

fn in_its_namespace<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(admin: &Client) -> Api<K> {
    Api::namespaced(admin.clone(), NAMESPACE)
}

async fn create<K>(api: Api<K>, object: K)
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Reads an object of `config/rbac/`.
fn read<K: DeserializeOwned>(file: &str) -> K {
    let path = format!("{}/../config/rbac/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Reads an object of `config/rbac/` that waits for the operator: it has the finalizer of `config/rbac/finalizers.yaml`.
fn held<K: DeserializeOwned>(file: &str) -> K {
    let mut object: Value = read(file);
    object["metadata"]["finalizers"] = json!(["winpool.dev/cleanup"]);
    serde_json::from_value(object).unwrap()
}
