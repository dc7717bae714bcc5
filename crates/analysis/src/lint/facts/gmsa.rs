//! Who may use a `GMSACredentialSpec`, and if a webhook fills it in.
//!
//! Source: kubernetes-sigs/windows-gmsa `admission-webhook/webhook.go` and `charts/gmsa/`. The webhook asks if the pod's
//! ServiceAccount may `use` the object, and refuses the pod if not.

use serde_json::Value;

use crate::view::{GMSA_GROUP, Known};
use crate::workload::namespace_of;

const RESOURCE: &str = "gmsacredentialspecs";

/// The roles and bindings that let a ServiceAccount use `GMSACredentialSpec` objects, and the webhooks.
#[derive(Clone, Debug, Default)]
pub(in crate::lint) struct GmsaFacts {
    /// The roles that allow it; `None` if roles are not known.
    roles: Option<Vec<UseRole>>,
    bindings: Vec<Value>,
    /// True if a webhook fills in credential specifications; `None` if that is not known.
    pub has_webhook: Option<bool>,
}

/// A role that allows the use of `GMSACredentialSpec` objects.
#[derive(Clone, Debug)]
struct UseRole {
    kind: String,
    namespace: String,
    name: String,
    /// The names of the objects, if the rule names any.
    objects: Vec<Vec<String>>,
}

impl GmsaFacts {
    /// Reads roles, bindings and webhooks. Those in manifests count only if a role there names the resource: otherwise the
    /// permissions are kept elsewhere.
    pub fn of(permissions: &Known<Vec<Value>>, webhooks: &Known<Vec<Value>>) -> Self {
        let objects = permissions.known().map_or(&[][..], Vec::as_slice);
        let of_kind = |end: &'static str| {
            objects.iter().filter(move |object| object["kind"].as_str().is_some_and(|kind| kind.ends_with(end)))
        };
        let roles: Vec<UseRole> = of_kind("Role").filter_map(UseRole::of).collect();
        let is_named = of_kind("Role").any(|role| role.to_string().contains(RESOURCE));
        let is_gmsa = |webhook: &Value| webhook.to_string().contains("gmsa");
        Self {
            roles: Some(roles).filter(|_| permissions.is_complete() || is_named),
            bindings: of_kind("RoleBinding").cloned().collect(),
            has_webhook: webhooks.known().filter(|_| webhooks.is_complete()).map(|all| all.iter().any(is_gmsa)),
        }
    }

    /// True if this ServiceAccount may use the object; `None` if that is not known.
    pub fn may_use(&self, namespace: &str, account: &str, object: &str) -> Option<bool> {
        let roles: Vec<&UseRole> = self.roles.as_ref()?.iter().filter(|role| role.allows(object)).collect();
        let gives = |binding: &&Value| {
            let of_cluster = binding["kind"] == "ClusterRoleBinding";
            let in_namespace = namespace_of(binding);
            let role = &binding["roleRef"];
            let is_role = |known: &UseRole| {
                role["kind"] == *known.kind
                    && role["name"] == *known.name
                    && (known.kind == "ClusterRole" || known.namespace == in_namespace)
            };
            (of_cluster || in_namespace == namespace) && roles.iter().copied().any(is_role)
        };
        let subjects = self.bindings.iter().filter(gives).flat_map(|binding| {
            let in_namespace = namespace_of(binding);
            binding["subjects"].as_array().into_iter().flatten().map(move |subject| (subject, in_namespace))
        });
        Some(subjects.into_iter().any(|(subject, binding)| is_account(subject, binding, namespace, account)))
    }
}

impl UseRole {
    /// Returns `None` if the role does not allow it.
    fn of(role: &Value) -> Option<Self> {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let has = |rule: &Value, field: &str, wanted: &str| {
            rule[field].as_array().is_some_and(|list| list.iter().any(|item| item == wanted || item == "*"))
        };
        let rules = role["rules"].as_array()?.iter().filter(|rule| {
            has(rule, "apiGroups", GMSA_GROUP) && has(rule, "resources", RESOURCE) && has(rule, "verbs", "use")
        });
        let names = |rule: &Value| rule["resourceNames"].as_array().into_iter().flatten().map(text).collect();
        let objects: Vec<Vec<String>> = rules.map(names).collect();
        let namespace = namespace_of(role).to_owned();
        let role = Self { kind: text(&role["kind"]), namespace, name: text(&role["metadata"]["name"]), objects };
        Some(role).filter(|role| !role.objects.is_empty())
    }

    fn allows(&self, object: &str) -> bool {
        self.objects.iter().any(|names| names.is_empty() || names.iter().any(|name| name == object))
    }
}

/// True if the subject of a binding in this namespace is the ServiceAccount, or a group with it.
fn is_account(subject: &Value, binding: &str, namespace: &str, account: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("ServiceAccount") => name == account && subject["namespace"].as_str().unwrap_or(binding) == namespace,
        Some("Group") => {
            let of_namespace = format!("system:serviceaccounts:{namespace}");
            ["system:authenticated", "system:serviceaccounts", &of_namespace].contains(&name)
        }
        Some("User") => name == format!("system:serviceaccount:{namespace}:{account}"),
        _ => false,
    }
}
