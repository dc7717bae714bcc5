//! Properties that hold for any input. The fuzz targets call these functions on generated input, and `tests/fuzz.rs`
//! on the seeds, with stable Rust.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ObjectList;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use winpool::manifests::{Keep, Manifest, Objects, read_stream};
use winpool_client::managed_fields::Filter;
use winpool_client::node::{self, ListedNode};
use winpool_client::pods::{ListedDaemonSet, ListedEvent, ListedPod};
use winpool_core::api::{Taint, names};
use winpool_core::node::{Applied, NodeObject, NodePlan};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::patch::node_patch;
use winpool_core::plan::pools::pool::{GuardedPool, Policy, Pool, PoolEntry};
use winpool_core::plan::taints::Consent;
use winpool_simulation::request::apply;

/// The annotation `winpool.dev/applied`, into which a kubelet can write anything.
pub fn annotation(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(applied) = Applied::parse(&text) {
        assert_eq!(Applied::parse(&applied.to_annotation()).as_ref(), Some(&applied));
    }
    let mut object = json!({
        "metadata": {
            "name": "liar", "uid": "u",
            "labels": {names::OS: names::WINDOWS, names::POOL: "default"},
            "annotations": {names::APPLIED: text},
        },
        "spec": {"taints": TAINTS.map(|text| text.parse::<Taint>().unwrap())},
        "status": {"nodeInfo": {"kernelVersion": "10.0.20348.2655"}},
    });
    judge(&object);
    object["spec"] = json!({});
    judge(&object);
}

/// A node with all taints that winpool manages, and some that it must never remove.
const TAINTS: [&str; 7] = [
    "node.kubernetes.io/not-ready:NoExecute",
    "karpenter.sh/disrupted:NoSchedule",
    "dedicated=batch:NoSchedule",
    "os=windows:NoSchedule",
    "example.com/mine:NoSchedule",
    "os=Win1809:NoExecute",
    "ToBeDeletedByClusterAutoscaler=1:NoSchedule",
];

/// A Node as JSON under several policies: its plan, and the patch for it.
pub fn node(data: &[u8]) {
    if let Ok(object) = serde_json::from_slice::<Value>(data) {
        judge(&object);
    }
}

/// Two versions of a node: the patch for the first is accepted on the second if, and only if, nothing has changed that
/// it was computed from.
pub fn patch(data: &[u8]) {
    let Ok(Value::Array(versions)) = serde_json::from_slice::<Value>(data) else { return };
    let [before, now] = versions.as_slice() else { return };
    let (Some(seen), Some(_)) = (decode(before), decode(now)) else { return };
    if is_cut(before) || is_cut(now) {
        return;
    }
    for policy in policies() {
        let plan = assess(&seen.node, policy, Consent::Given).plan;
        if plan.is_empty() {
            continue;
        }
        let patch = node_patch(&seen.uid, &seen.node, &plan, policy);
        let same = facts(before, &seen, policy, &plan) == facts(now, &seen, policy, &plan);
        match apply(now, &patch) {
            Ok(after) => {
                assert!(same, "accepted though it is another node by now\n{before}\n{now}\n{patch}");
                assert_eq!(after, planned(now, &plan));
            }
            Err(error) => assert!(!same, "{error}\n{before}\n{now}\n{patch}"),
        }
    }
}

/// Manifests, as the commands read them.
pub fn manifests(data: &[u8]) {
    let mut kept = Objects::<Any>::default();
    let unread = read_stream("file", data, true, &mut kept);
    let lines = u64::try_from(data.len()).unwrap_or(u64::MAX) + 2;
    for (source, Any(manifest)) in &kept.found {
        assert!(source.line <= lines, "{source}");
        assert!(!manifest.kind.is_empty() && !manifest.api_version.is_empty());
        assert!(manifest.value.is_object());
    }
    for error in unread {
        assert!(error.to_string().chars().count() < 4000, "{error}");
    }
}

struct Any(Manifest);

impl Keep for Any {
    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(Self(manifest)))
    }
}

/// A list of each kind in which one item is anything that the API server may store, with any managed fields: all are decoded.
pub fn list(data: &[u8]) {
    let Ok(item) = std::str::from_utf8(data) else { return };
    are_decoded::<Node, ListedNode>(item);
    are_decoded::<Pod, ListedPod>(item);
    are_decoded::<DaemonSet, ListedDaemonSet>(item);
    are_decoded::<Event, ListedEvent>(item);
    are_decoded::<RuntimeClass, RuntimeClass>(item);
    are_decoded::<AnyPool, GuardedPool>(item);
}

/// A pool that another release may have written.
#[derive(serde::Deserialize, serde::Serialize)]
struct AnyPool {
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
}

fn are_decoded<Stored, Listed>(item: &str)
where
    Stored: DeserializeOwned + Serialize,
    Listed: DeserializeOwned + Clone + Resource<DynamicType = ()>,
{
    let Ok(stored) = serde_json::from_str::<Stored>(item) else { return };
    let (mut stored, depth) = (json!(stored), item.len() % 400);
    // The API server stores no DaemonSet without it.
    stored.as_object_mut().unwrap().entry("spec").or_insert_with(|| json!({"template": {}}));
    stored["metadata"]["managedFields"] =
        json!([{"manager": item, "time": "9999-12-31T23:59:59Z", "fieldsV1": "deep"}]);
    let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(depth), "}".repeat(depth));
    let stored = stored.to_string().replace(r#""fieldsV1":"deep""#, &format!(r#""fieldsV1":{deep}"#));
    let plain =
        |name| json!({"metadata": {"name": name, "managedFields": []}, "handler": "a", "spec": {"template": {}}});
    let list = format!(
        r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{},{stored},{}]}}"#,
        plain("first"),
        plain("last")
    );
    let mut filter = Filter::default();
    let pieces: Vec<u8> = list.as_bytes().chunks(depth + 1).flat_map(|piece| filter.pass(piece)).collect();
    let found: ObjectList<Listed> =
        serde_json::from_slice(&pieces).unwrap_or_else(|error| panic!("{}: {error}\n{list}", Listed::kind(&())));
    let names: Vec<_> = found.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!((names.len(), &*names[0], &*names[2]), (3, "first", "last"));
}

/// Only complete nodes: the API server never sends others.
fn decode(object: &Value) -> Option<NodeObject> {
    let is = |path, what: fn(&Value) -> bool| object.pointer(path).is_some_and(what);
    let is_or_absent = |path, what: fn(&Value) -> bool| object.pointer(path).is_none_or(what);
    let whole = is("/metadata/labels", Value::is_object)
        && is("/metadata/uid", Value::is_string)
        && is("/spec", Value::is_object)
        && is_or_absent("/spec/taints", Value::is_array)
        && is_or_absent("/metadata/annotations", Value::is_object)
        && is_or_absent("/status/nodeInfo/kernelVersion", Value::is_string);
    let ListedNode { object, .. } = serde_json::from_value(object.clone()).ok()?;
    whole.then_some(object)
}

/// True if the node is too large to be cached whole.
fn is_cut(object: &Value) -> bool {
    let more_than = |path: &str, most| {
        object.pointer(path).is_some_and(|value| match value {
            Value::Array(list) => list.len() > most,
            Value::Object(map) => map.len() > most,
            Value::String(text) => text.len() > most,
            _ => false,
        })
    };
    let annotation = |name: &str| format!("/metadata/annotations/{}", name.replace('/', "~1"));
    more_than("/spec/taints", node::TAINTS)
        || more_than("/metadata/labels", node::LABELS)
        || more_than("/status/nodeInfo/kernelVersion", node::TEXT)
        || more_than(&annotation(names::APPLIED), node::TEXT)
        || more_than(&annotation(names::IGNORE), node::TEXT)
}

fn judge(object: &Value) {
    let Some(cached) = decode(object) else { return };
    for policy in policies() {
        let assessment = assess(&cached.node, policy, Consent::Given);
        let plan = &assessment.plan;
        if plan.is_empty() {
            continue;
        }
        let after = match apply(object, &node_patch(&cached.uid, &cached.node, plan, policy)) {
            Ok(after) => after,
            Err(_) if is_cut(object) => continue,
            Err(error) => panic!("{error}\n{object}"),
        };
        assert_modest(object, &cached, plan, policy);
        assert_eq!(after, planned(object, plan), "the patch does what the plan says, and no more");
        let cached = decode(&after).unwrap();
        let again = assess(&cached.node, policy, Consent::Given).plan;
        let refused = || apply(&after, &node_patch(&cached.uid, &cached.node, &again, policy)).is_err();
        assert!(again.is_empty() || (is_cut(&after) && refused()), "written twice: {again:#?}\n{object}");
    }
}

/// A plan changes only winpool's own labels, and removes no taint without evidence, and none whose key belongs to
/// others.
fn assert_modest(object: &Value, cached: &NodeObject, plan: &NodePlan, policy: &Policy) {
    for change in plan.windows_build.iter().chain(&plan.capability_labels).chain(&plan.pool) {
        let own = [names::WINDOWS_BUILD, names::POOL].contains(&change.key.as_str());
        assert!(own || change.key.starts_with(names::CAPABILITY_LABEL_PREFIX), "{change:?}");
        assert!(change.to.as_ref().is_none_or(|value| value.len() <= 63), "{change:?}");
    }
    if let Some(text) = plan.applied.as_ref().and_then(|change| change.to.as_ref()) {
        assert!(text.len() < 8192, "{text}");
    }
    let Some(change) = &plan.taints else { return };
    let before = object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let kept: Vec<_> = before.iter().filter(|taint| change.to.contains(taint)).collect();
    let still: Vec<_> = change.to.iter().filter(|taint| before.contains(taint)).collect();
    assert_eq!(kept, still, "the others keep their order and every field");
    for (raw, taint) in before.iter().zip(cached.node.taints.taints()) {
        let retired = policy.entries().iter().any(|entry| entry.pool.spec.retired_taints.contains(taint));
        let claimed = || cached.node.applied.as_deref().and_then(Applied::parse).unwrap_or_default().taints;
        let may_go = retired || (policy.may_remove(taint) && claimed().contains(&taint.to_string()));
        assert!(change.to.contains(raw) || (may_go && !taint.has_foreign_key()), "{taint} was taken off\n{object}");
    }
    assert!(change.to.len() <= before.len() + 16);
}

/// The node after the plan.
fn planned(object: &Value, plan: &NodePlan) -> Value {
    let mut object = object.clone();
    for change in plan.windows_build.iter().chain(&plan.capability_labels).chain(&plan.pool) {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        match &change.to {
            Some(value) => drop(labels.insert(change.key.clone(), json!(value))),
            None => drop(labels.remove(&change.key)),
        }
    }
    if let Some(change) = &plan.taints {
        object["spec"]["taints"] = json!(change.to);
    }
    match plan.applied.as_ref().map(|change| &change.to) {
        Some(Some(text)) => object["metadata"]["annotations"][names::APPLIED] = json!(text),
        Some(None) => drop(object["metadata"]["annotations"].as_object_mut().unwrap().remove(names::APPLIED)),
        None => {}
    }
    object
}

/// All fields that a plan is computed from and a patch tests. The version is one only if a label follows from it, or if
/// no label tells its build. API servers always send a kernelVersion; without one, none is tested.
fn facts(object: &Value, seen: &NodeObject, policy: &Policy, plan: &NodePlan) -> Value {
    let member = |path: &str, key: &str| object.pointer(path).and_then(|map| map.get(key)).cloned();
    let stamps = plan.capability_labels.iter().map(|stamp| stamp.key.as_str());
    let keys: BTreeSet<&str> = [names::OS, names::WINDOWS_BUILD, names::POOL]
        .into_iter()
        .chain(policy.selector_keys())
        .chain(stamps)
        .collect();
    let labels: Map<_, _> =
        keys.iter().map(|key| ((*key).to_owned(), json!(member("/metadata/labels", key)))).collect();
    let build = seen.node.windows_build().map(|build| build.to_string());
    let is_told = seen.node.labels.get(names::WINDOWS_BUILD) == build.as_deref();
    let writes_none = plan.windows_build.is_none() && plan.capability_labels.is_empty();
    let version = seen.node.kernel_version.as_ref().filter(|_| !(is_told && writes_none));
    json!({
        "uid": member("/metadata", "uid"),
        "taints": member("/spec", "taints"),
        "kernelVersion": version.and_then(|_| member("/status/nodeInfo", "kernelVersion")),
        "labels": labels,
        "annotated": member("/metadata", "annotations").is_some(),
        "applied": member("/metadata/annotations", names::APPLIED),
        "ignore": member("/metadata/annotations", names::IGNORE),
    })
}

/// Pools of every kind: with defaults; with exact and retired taints; with capability labels; one that is deleted and
/// one that takes over; one that selects nothing; one whose status claims taints of others; one in dry run.
fn policies() -> &'static [Policy] {
    static POLICIES: std::sync::OnceLock<Vec<Policy>> = std::sync::OnceLock::new();
    POLICIES.get_or_init(|| {
        let exact = json!([{"key": "example.com/mine", "effect": "NoSchedule"}]);
        let retired = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
        let claimed = json!([
            {"taint": "karpenter.sh/disrupted:NoSchedule"},
            {"taint": "os=windows:NoSchedule"},
            {"taint": "dedicated=batch:NoSchedule"},
        ]);
        let classes = json!([
            {"name": "compatible", "version": "2022", "hostMatch": "Compatible"},
            {"name": "isolated", "version": "2019", "isolation": "HyperV"},
            {"name": "windows-any", "version": "Any", "tolerations": [{"key": "os", "operator": "Exists"}]},
        ]);
        let pool = |name: &str, spec: Value, status: Value, going: bool| {
            let mut object = json!({
                "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool",
                "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": spec, "status": status,
            });
            if going {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
            }
            Pool::read(&serde_json::from_value(object).unwrap()).unwrap()
        };
        let plain = |name: &str| pool(name, json!({}), json!({}), false);
        let policies = [
            vec![plain("default")],
            vec![pool(
                "default",
                json!({"taints": exact, "retiredTaints": retired, "taintPolicy": "TaintOnly"}),
                json!({}),
                false,
            )],
            vec![pool("default", json!({"runtimeClasses": classes}), json!({}), false)],
            vec![
                pool("going", json!({"taints": exact, "taintPolicy": "TaintOnly"}), json!({}), true),
                plain("default"),
            ],
            vec![pool("default", json!({"nodeSelector": {"team": "nobody"}}), json!({"taints": claimed}), false)],
            vec![pool("default", json!({"nodeSelector": {"team": "a"}, "mode": "DryRun"}), json!({}), false)],
        ];
        let policy = |pools: Vec<Pool>| {
            Policy::new(pools.into_iter().map(|pool| PoolEntry { pool: Arc::new(pool), ready: true }), BTreeSet::new())
        };
        policies.into_iter().map(policy).collect()
    })
}
