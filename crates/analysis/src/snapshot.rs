//! A cluster as a small file, for checks without access to it: its groups of nodes, its pools and its RuntimeClasses. It has no names
//! of nodes, workloads and users, so it may be committed.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use winpool_core::api::{BuildStatus, RuntimeClassStatus, TaintStatus, WindowsPool, WindowsPoolStatus, names};
use winpool_core::labels::Labels;
use winpool_core::plan::nodes::NODE_GROUPS;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::pod::{Class, SYSTEM_LABELS};

use crate::image::linux_only::is_injection_label;
use crate::kubernetes::KubernetesVersion;
use crate::verdict::Asked;
use crate::view::{
    CONFIGURATION, FILE_SYSTEM, IS_DEFAULT, KUEUE, NODE_SELECTORS, Policies, Related, SeenNode, View, policies,
};

/// The version of the format.
pub const VERSION: &str = "snapshot.winpool.dev/v1";
/// The kind of the file.
pub const KIND: &str = "ClusterSnapshot";
/// The annotation of a node in the file that stands for several.
pub const NODES: &str = "winpool.dev/nodes";

/// What manifests are checked against without access to the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSnapshot {
    /// The version of the format: `snapshot.winpool.dev/v1`.
    pub api_version: String,
    /// `ClusterSnapshot`.
    pub kind: String,
    /// The version of Kubernetes, such as `1.36`; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Kubernetes objects: WindowsPools, RuntimeClasses, `StorageClass` objects, winpool's admission policies, Namespaces with their Kueue
    /// queues, and a Node for each group of equal nodes, whose number is in the annotation `winpool.dev/nodes`.
    pub items: Vec<Value>,
}

impl ClusterSnapshot {
    /// Returns the snapshot of this view. Nodes keep the labels that workloads, RuntimeClasses, pools or `keys` ask for, and those
    /// by which clouds name groups and systems. Of namespaces it has those in `namespaces`, with the labels for PodSecurity and those
    /// that ask for sidecar injectors, and their queues of Kueue.
    pub fn of(view: &View, keys: &[String], namespaces: &BTreeSet<String>) -> Self {
        let kept = kept_keys(view, keys);
        let reads_status = Policies::of(&view.related).known().is_some_and(|policies| *policies != Policies::default());
        let pools = view.guarded().into_iter().flatten().map(|guarded| pool(guarded, reads_status));
        let classes = view.classes.known().into_iter().flatten().map(|class| {
            json!({
                "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
                "metadata": {"name": class.name_any(), "labels": class.labels()},
                "handler": class.handler, "scheduling": class.scheduling, "overhead": class.overhead,
            })
        });
        let related = related(&view.related, namespaces);
        let policies = policies(&view.related, namespaces);
        let asked = keys_of_selectors(&policies);
        let named = view.namespace_labels.iter().filter(|(name, _)| namespaces.contains(*name));
        let namespaces = named.map(|(name, labels)| namespace(name, labels, &asked));
        let items = namespaces
            .chain(pools)
            .chain(classes)
            .chain(related)
            .chain(policies)
            .chain(nodes(view, &kept))
            .map(without_nulls);
        Self {
            api_version: VERSION.to_owned(),
            kind: KIND.to_owned(),
            kubernetes: view.kubernetes.map(|version| version.to_string()),
            items: items.collect(),
        }
    }

    /// Returns the version of Kubernetes.
    pub fn version(&self) -> Option<KubernetesVersion> {
        crate::view::kubernetes_version(self.kubernetes.as_deref()?)
    }
}

/// The keys of the labels that nodes keep.
fn kept_keys(view: &View, keys: &[String]) -> BTreeSet<String> {
    let mut specs = Vec::new();
    view.written.each(|_, workload| specs.push(workload.pod.clone()));
    let classes: Vec<Class> = view.class_fields().into_values().collect();
    let mut kept = Asked::by(&specs).with_classes(&classes).with_admission(&view.admission()).into_keys();
    let pools = view.guarded().into_iter().flatten().filter_map(|pool| pool.pool().ok());
    kept.extend(pools.flat_map(|pool| pool.spec.node_selector.keys().cloned()));
    kept.extend(SYSTEM_LABELS.iter().chain(&NODE_GROUPS).chain(&[names::POOL]).map(|key| (*key).to_owned()));
    kept.extend(keys.iter().cloned());
    kept
}

/// Returns a node for each group of nodes that have the same labels, taints, versions and handlers.
fn nodes(view: &View, kept: &BTreeSet<String>) -> Vec<Value> {
    let seen = view.nodes.known().map_or(&[][..], Vec::as_slice);
    let names: BTreeSet<&str> = seen.iter().map(|node| &*node.object.name).collect();
    let is_named = |key: &str, value: &str| ![names::OS, names::ARCH].contains(&key) && names.contains(value);
    let is_kept = |key: &str, value: &str| {
        kept.contains(key) && !is_named(key, value) || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
    };
    let mut groups: BTreeMap<String, (Value, usize)> = BTreeMap::new();
    for node in seen {
        let node = one_node(node, is_kept);
        groups.entry(node.to_string()).or_insert((node, 0)).1 += 1;
    }
    let nodes = groups.into_iter().map(|(text, (mut node, number))| {
        let os = node["metadata"]["labels"][names::OS].as_str().unwrap_or("node");
        node["metadata"]["name"] = format!("{os}-{:08x}", hash(&text)).into();
        node["metadata"]["annotations"][NODES] = number.to_string().into();
        node
    });
    nodes.collect()
}

/// Returns the node without what names it and without what passes by itself.
fn one_node(SeenNode { object, allocatable, handlers, .. }: &SeenNode, is_kept: impl Fn(&str, &str) -> bool) -> Value {
    let node = &object.node;
    let labels: Labels = node.labels.with_prefix("").filter(|(key, value)| is_kept(key, value)).collect();
    let labels: BTreeMap<&str, &str> = labels.with_prefix("").collect();
    let annotations = [(names::APPLIED, node.applied.as_deref()), (names::IGNORE, node.ignore.as_deref())];
    let annotations: BTreeMap<&str, &str> =
        annotations.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let taints: Vec<_> = node.taints.taints().iter().filter(|taint| !taint.has_foreign_key()).collect();
    // CPU and memory differ from node to node, and no command compares them.
    let extended: BTreeMap<_, _> = allocatable.iter().filter(|(name, _)| name.contains('/')).collect();
    let handlers = handlers.as_ref().map(|names| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {"taints": taints},
        "status": {
            "allocatable": extended,
            "nodeInfo": {
                "operatingSystem": node.operating_system.as_deref(),
                "kernelVersion": node.kernel_version.as_ref().filter(|_| node.is_windows()).map(|version| version.to_string()),
                "containerRuntimeVersion": node.container_runtime.as_deref(),
            },
            "runtimeHandlers": handlers,
        },
    })
}

/// Returns the pool with what decides about nodes, and about new pods if policies read it. The rest of its status names workloads.
fn pool(pool: &GuardedPool, reads_status: bool) -> Value {
    let taints = pool.status.iter().flat_map(|status| &status.taints).map(
        |TaintStatus { taint, since, at_registration, .. }| TaintStatus {
            taint: taint.clone(),
            since: since.clone(),
            at_registration: *at_registration,
            ..TaintStatus::default()
        },
    );
    let status = pool.status.iter().filter(|_| reads_status);
    let classes = status.clone().flat_map(|status| &status.runtime_classes);
    let classes = classes.map(|class| RuntimeClassStatus { uid: None, nodes: 0, ..class.clone() });
    let builds = status.flat_map(|status| &status.builds).map(|of| BuildStatus { nodes: 0, ..of.clone() });
    let status = WindowsPoolStatus {
        taints: taints.collect(),
        runtime_classes: classes.collect(),
        builds: builds.collect(),
        ..WindowsPoolStatus::default()
    };
    json!({
        "apiVersion": WindowsPool::api_version(&()), "kind": "WindowsPool",
        "metadata": {"name": pool.name_any()},
        "spec": pool.pool().ok().map(|pool| &pool.spec),
        "status": pool.status.as_ref().map(|_| status),
    })
}

/// Returns the namespace with the labels that decide about new pods, and those that policies ask for.
fn namespace(name: &str, labels: &BTreeMap<String, String>, asked: &BTreeSet<String>) -> Value {
    let part =
        |is_kept: &dyn Fn(&str) -> bool| -> BTreeMap<_, _> { labels.iter().filter(|(key, _)| is_kept(key)).collect() };
    let decides = |key: &str| key.starts_with("pod-security.kubernetes.io/enforce") || is_injection_label(key);
    let labels = part(&|key| decides(key) || key == names::RUNTIME_CLASS || asked.contains(key));
    let annotations = part(&|key| NODE_SELECTORS.contains(&key));
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// Returns winpool's admission policies with their bindings. Of the namespaces that they exclude, `kube-system` and those in `namespaces` are
/// named.
fn policies(related: &Related, namespaces: &BTreeSet<String>) -> Vec<Value> {
    let is_of = |name: &Value| name.as_str().is_some_and(policies::is_known);
    let stripped = |kind: &str, object: &Value, spec: Value| {
        let metadata = json!({"name": object["metadata"]["name"]});
        json!({"apiVersion": policies::ADMISSION[0], "kind": kind, "metadata": metadata, "spec": spec})
    };
    let found = related.all(policies::POLICY).filter(|policy| is_of(&policy["metadata"]["name"])).map(|policy| {
        let mut selector = policy["spec"]["matchConstraints"]["namespaceSelector"].clone();
        if let Some(expressions) = selector["matchExpressions"].as_array_mut() {
            expressions.retain_mut(|expression| {
                let is_by_name = expression["key"] == policies::NAME_OF_NAMESPACE;
                let Some(values) = expression["values"].as_array_mut().filter(|_| is_by_name) else { return true };
                values.retain(|name| {
                    name.as_str().is_some_and(|name| name == "kube-system" || namespaces.contains(name))
                });
                !values.is_empty()
            });
        }
        stripped(policies::POLICY, policy, json!({"matchConstraints": {"namespaceSelector": selector}}))
    });
    let bindings = related.all(policies::BINDING).filter(|binding| is_of(&binding["spec"]["policyName"]));
    let bindings = bindings.map(|binding| {
        let parameters = json!({"name": binding["spec"]["paramRef"]["name"]});
        let spec = json!({"policyName": binding["spec"]["policyName"], "paramRef": parameters});
        stripped(policies::BINDING, binding, spec)
    });
    found.chain(bindings).collect()
}

/// Returns the keys of the labels by which these policies select namespaces.
fn keys_of_selectors(policies: &[Value]) -> BTreeSet<String> {
    let selectors = policies.iter().map(|policy| &policy["spec"]["matchConstraints"]["namespaceSelector"]);
    let keys = selectors.flat_map(|selector| {
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        let labels = selector["matchLabels"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        expressions.filter_map(|expression| expression["key"].as_str()).chain(labels)
    });
    keys.map(str::to_owned).collect()
}

/// Returns the `StorageClass` objects that workloads use, with their file system, and the queues of Kueue in these namespaces.
fn related(related: &Related, namespaces: &BTreeSet<String>) -> Vec<Value> {
    let name = |object: &Value| object["metadata"]["name"].clone();
    let storage = related.all("StorageClass").map(|class| {
        let parameters = class["parameters"].as_object().into_iter().flatten();
        let parameters: BTreeMap<_, _> = parameters.filter(|(key, _)| FILE_SYSTEM.contains(&key.as_str())).collect();
        let is_default = class["metadata"]["annotations"].get(IS_DEFAULT).map(|is| json!({IS_DEFAULT: is}));
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name(class), "annotations": is_default},
            "provisioner": class["provisioner"], "parameters": parameters,
        })
    });
    let of_kueue = |kind: &str, metadata: Value, spec: Value| json!({"apiVersion": KUEUE[0], "kind": kind, "metadata": metadata, "spec": spec});
    let mut of_namespaces = Vec::new();
    let queues = related.all("LocalQueue").filter_map(|queue| {
        let (namespace, of) = (&queue["metadata"]["namespace"], &queue["spec"]["clusterQueue"]);
        namespace.as_str().filter(|namespace| namespaces.contains(*namespace))?;
        of_namespaces.push(of);
        let metadata = json!({"namespace": namespace, "name": name(queue)});
        Some(of_kueue("LocalQueue", metadata, json!({"clusterQueue": of})))
    });
    // Other exemptions name users.
    let defaults = related.all(CONFIGURATION).map(|configuration| {
        let exempt = configuration["exemptions"]["namespaces"].as_array().into_iter().flatten();
        let is_kept = |name: &&Value| name.as_str().is_some_and(|name| namespaces.contains(name));
        json!({
            "apiVersion": configuration["apiVersion"], "kind": CONFIGURATION, "defaults": configuration["defaults"],
            "exemptions": {"namespaces": exempt.filter(is_kept).collect::<Vec<_>>()},
        })
    });
    let mut kept: Vec<Value> = storage.chain(queues).chain(defaults).collect();
    let of_kind = |kind: &'static str, fields: &'static [&str]| {
        related.all(kind).map(move |object| {
            let spec = fields.iter().map(|field| ((*field).to_owned(), object["spec"][field].clone()));
            of_kueue(kind, json!({"name": name(object)}), Value::Object(spec.collect()))
        })
    };
    let queues = of_kind("ClusterQueue", &["resourceGroups"]);
    kept.extend(queues.filter(|queue| of_namespaces.contains(&&queue["metadata"]["name"])));
    if !of_namespaces.is_empty() {
        kept.extend(of_kind("ResourceFlavor", &["nodeLabels", "nodeTaints", "tolerations"]));
    }
    kept
}

/// Removes fields without a value.
fn without_nulls(mut value: Value) -> Value {
    fn is_empty(value: &Value) -> bool {
        value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
    }
    if let Value::Object(fields) = &mut value {
        let cleaned = std::mem::take(fields).into_iter().map(|(key, value)| (key, without_nulls(value)));
        *fields = cleaned.filter(|(_, value)| !is_empty(value)).collect();
    }
    value
}

/// FNV-1a: the same in every release, so that a group keeps its name.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
