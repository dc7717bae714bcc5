//! Pods and their templates are read in one place: every consumer gets the same answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec as KubernetesSpec;
use k8s_openapi::api::node::v1::RuntimeClass;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use winpool_analysis::explain::forecast::forecast;
use winpool_analysis::explain::pod::answer;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::lint::{Facts, check, check_tolerations};
use winpool_analysis::placement::selects;
use winpool_analysis::pod::{ClassExt, Pod, PodSpec, Target};
use winpool_analysis::view::{Known, Node, View};
use winpool_analysis::workload::WorkloadManifest;
use winpool_core::api::WindowsPool;
use winpool_core::pod::{Class, System};

use crate::cluster;
use crate::common::{node, pool_object};
use crate::snapshot;

const BUILD: &str = "10.0.20348";
const CLASS: &str = "own";

fn requirement() -> impl Strategy<Value = Value> {
    let key = select(vec!["kubernetes.io/os", "beta.kubernetes.io/os", "node.kubernetes.io/windows-build", "team"]);
    let values = vec(select(vec!["windows", "linux", BUILD]), 1..3);
    let key = prop_oneof![key, Just("runs.winpool.dev/10.0.20348")];
    (key, select(vec!["In", "NotIn", "Exists", "DoesNotExist"]), values).prop_map(|(key, operator, values)| {
        let values = if operator.ends_with("In") { json!(values) } else { json!(null) };
        json!({"key": key, "operator": operator, "values": values})
    })
}

fn security() -> impl Strategy<Value = Value> {
    select(vec![
        json!(null),
        json!({}),
        json!({"runAsUser": 1}),
        json!({"windowsOptions": {}}),
        json!({"windowsOptions": {"hostProcess": true}}),
        json!({"windowsOptions": {"hostProcess": false}}),
    ])
}

fn containers(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Value>> {
    let image = select(vec!["example.com/app", "a:ltsc2019", "a:ltsc2022", "mcr.microsoft.com/windows/nanoserver"]);
    let one = (image, security()).prop_map(|(image, security)| {
        json!({"name": "c", "image": image, "securityContext": security, "resources": {"limits": {"example.com/gpu": "1", "cpu": 1}}})
    });
    vec(one, range)
}

fn selector() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({}),
        json!({"kubernetes.io/os": "windows"}),
        json!({"kubernetes.io/os": "linux"}),
        json!({"beta.kubernetes.io/os": "windows"}),
        json!({"node.kubernetes.io/windows-build": BUILD}),
        json!({"runs.winpool.dev/10.0.20348": "true"}),
        json!({"team": "a"}),
    ])
}

prop_compose! {
    fn any_spec()(
        os in option::of(select(vec!["windows", "linux"])),
        selector in selector(),
        terms in vec(vec(requirement(), 0..3), 0..3),
        tolerations in vec(select(vec![json!({"operator": "Exists"}), json!({"key": "os", "value": "windows", "operator": ""}), json!({"key": "os", "operator": "Gt", "value": "1"})]), 0..2),
        security in security(), host_network in any::<bool>(),
        containers in containers(1..3), init in containers(0..2), debug in containers(0..2),
        class in any::<bool>(),
    ) -> Value {
        let mut spec = json!({
            "nodeSelector": selector, "tolerations": tolerations, "securityContext": security, "hostNetwork": host_network,
            "containers": containers, "initContainers": init, "ephemeralContainers": debug,
        });
        if let Some(os) = os {
            spec["os"] = json!({"name": os});
        }
        if !terms.is_empty() {
            let terms: Vec<Value> = terms.iter().map(|term| json!({"matchExpressions": term})).collect();
            spec["affinity"] =
                json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        }
        if class {
            spec["runtimeClassName"] = json!(CLASS);
        }
        spec
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn objects(spec: &Value) -> [Value; 3] {
    let metadata = json!({"name": "web", "namespace": "shop"});
    let template = json!({"spec": spec});
    let cron_job = json!({"jobTemplate": {"spec": {"template": template}}});
    [
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": cron_job}),
    ]
}

/// The labels of the only node: every label that a Windows node can have here.
const LABELS: [(&str, &str); 5] = [
    ("kubernetes.io/os", "windows"),
    ("beta.kubernetes.io/os", "windows"),
    ("node.kubernetes.io/windows-build", BUILD),
    ("runs.winpool.dev/10.0.20348", "true"),
    ("team", "a"),
];

/// The same spec without tolerations.
fn intolerant(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["tolerations"] = json!([]);
    spec
}

/// True if the operator holds the taint of a pool because of a template of this kind without tolerations, or adds tolerations to
/// its pods.
fn is_counted(kind: &'static WorkloadKind, spec: &Value, class: &Arc<RuntimeClass>) -> bool {
    let pool = pool_object("{spec: {runtimeClassDiscovery: Disabled}}");
    let labels = Value::from_iter(LABELS);
    let node = node(&json!({"metadata": {"labels": labels}}).to_string());
    let mut cluster = snapshot([pool], [("win", node)]);
    cluster.classes.push(Arc::clone(class));
    let object = objects(&intolerant(spec))[1].clone();
    cluster.workloads.of_kind(kind).add(crate::workload_of(kind, object));
    let pool = &forecast(&cluster).unwrap().forecast.summary.pools[0];
    !pool.without_pods.is_empty() || !pool.helped.is_empty()
}

/// A view of this class.
fn view(class: RuntimeClass) -> View {
    View { classes: Known::Partial(vec![class.into()]), ..View::default() }
}

fn machine() -> Node {
    crate::machine(&json!({
        "metadata": {"name": "win", "labels": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": BUILD}},
    }))
}

#[test]
fn only_the_template_says_that_winpool_ignores_new_pods() {
    let (ignored, none) = (json!({"winpool.dev/ignore": "true"}), json!({}));
    for kind in ["Deployment", "DaemonSet"].map(|kind| WorkloadKind::own(kind).unwrap()) {
        for (own, of_pods, are_new_ignored) in [(&none, &ignored, true), (&ignored, &none, false)] {
            let template = json!({"metadata": {"annotations": of_pods}, "spec": {"containers": []}});
            let object = json!({"metadata": {"name": "web", "annotations": own}, "spec": {"template": template}});
            let workload = crate::workload_of(kind, object);
            assert_eq!(workload.new_pod().is_ignored, are_new_ignored, "{workload:?}");
            // Policies read the DaemonSet itself.
            assert_eq!(workload.creation().is_ignored, are_new_ignored || kind.is_daemon_set(), "{workload:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn pods_and_templates_are_read_alike_by_every_consumer(
        spec in any_spec(), class_selector in selector(), hyperv in select(vec!["runhcs-wcow-process", "runhcs-wcow-hyperv", "runhcs-wcow-hypervisor"]),
    ) {
        let pod: PodSpec = read(spec.clone());
        let stored = serde_json::to_value(read::<KubernetesSpec>(spec.clone())).unwrap();
        prop_assert_eq!(&pod, &read::<PodSpec>(stored), "as the API server stores it");
        let [as_pod, deployment, cron_job] = objects(&spec);
        prop_assert_eq!(&pod, &read::<Pod>(as_pod.clone()).spec);
        for object in [&as_pod, &deployment, &cron_job] {
            prop_assert_eq!(&pod, &WorkloadManifest::read(object).unwrap().unwrap().pod);
        }

        let class: RuntimeClass = read(json!({
            "metadata": {"name": CLASS}, "handler": hyperv, "scheduling": {"nodeSelector": class_selector},
        }));
        let facts = Facts::of(&view(class.clone()));
        let (object_of_class, class) = (Arc::new(class.clone()), Class::from(&class));
        let known = pod.runtime_class.as_ref().map(|_| &class);
        let target = pod.target(known);
        let is_missing = |id: &str| check(&WorkloadManifest::read(&deployment).unwrap().unwrap(), &facts).iter().any(|found| found.rule == id);
        for kind in [WorkloadKind::own("Deployment").unwrap(), WorkloadKind::own("DaemonSet").unwrap()] {
            if is_counted(kind, &spec, &object_of_class) {
                // The class of a DaemonSet may contradict it.
                let is_contradiction = kind == WorkloadKind::own("DaemonSet").unwrap() && target == Target::Linux;
                prop_assert!(target == Target::Windows || is_contradiction, "the operator: {:?} {:?}", kind, target);
            }
        }
        let classes = known.iter().map(|class| (CLASS.to_owned(), (*class).clone())).collect();
        let is_windows = answer(&read::<Pod>(as_pod), &cluster(&[], &classes)).system == "windows";
        // A selector and a class that contradict fit no node.
        if known.is_none() || pod.placed_system().is_none() {
            prop_assert_eq!(is_missing("os-name-missing"), target == Target::Windows && pod.os.is_none(), "check");
            prop_assert_eq!(is_windows, pod.guess(known, || None).is_some_and(|guess| guess.system == System::Windows), "why");
        }
    }

    /// `check` misses a toleration exactly where the operator holds the taint or adds the toleration, for pods that the node
    /// serves.
    #[test]
    fn check_misses_the_tolerations_that_the_operator_misses(spec in any_spec(), class_selector in selector()) {
        let spec = intolerant(&spec);
        let class: RuntimeClass = read(json!({
            "metadata": {"name": CLASS}, "handler": "h", "scheduling": {"nodeSelector": class_selector},
        }));
        let mut view = view(class.clone());
        view.nodes.add(crate::seen(&json!({"metadata": {"name": "win", "labels": Value::from_iter(LABELS)}})));
        view.pools.add((None, read::<WindowsPool>(json!({"metadata": {"name": "default"}, "spec": {}})).into()));
        let (facts, object_of_class, class) = (Facts::of(&view), Arc::new(class.clone()), Class::from(&class));
        let pod: PodSpec = read(spec.clone());
        let known = pod.runtime_class.as_ref().map(|_| &class);
        for kind in [WorkloadKind::own("Deployment").unwrap(), WorkloadKind::own("DaemonSet").unwrap()] {
            let mut object = objects(&spec)[1].clone();
            object["kind"] = json!(kind.name);
            let workload = WorkloadManifest::read(&object).unwrap().unwrap();
            let placed_by = known.filter(|_| kind != WorkloadKind::own("DaemonSet").unwrap());
            let is_served = selects(&pod, placed_by, &LABELS.into_iter().collect()) && placed_by.is_none_or(|class| class.conflict(&pod).is_none());
            if !is_served || facts.target(&pod) != Target::Windows {
                continue;
            }
            let told = check_tolerations(&workload, &facts);
            prop_assert_eq!(told.is_some(), is_counted(kind, &spec, &object_of_class), "{:?} {}", kind, object);
        }
    }

    /// The rules and `why` agree on which images start where.
    #[test]
    fn rules_and_explanations_agree_on_which_images_start(
        spec in any_spec(), handler in select(vec!["runhcs-wcow-process", "runhcs-wcow-hyperv", "containerd-hyperv-17763"]),
    ) {
        let mut spec = spec;
        spec["os"] = json!({"name": "windows"});
        spec["runtimeClassName"] = json!(CLASS);
        spec["nodeSelector"] = json!({});
        spec["affinity"] = json!(null);
        let class: RuntimeClass = read(json!({
            "metadata": {"name": CLASS}, "handler": handler,
            "scheduling": {"nodeSelector": {"node.kubernetes.io/windows-build": BUILD}},
        }));
        let facts = Facts::of(&view(class.clone()));
        let [as_pod, ..] = objects(&spec);
        let found = check(&WorkloadManifest::read(&as_pod).unwrap().unwrap(), &facts);
        let fails = found.iter().any(|found| ["image-build-mismatch", "image-older-than-host"].contains(&found.rule.as_str()));
        let classes = BTreeMap::from([(CLASS.to_owned(), Class::from(&class))]);
        let answer = answer(&read::<Pod>(as_pod), &cluster(&[machine()], &classes));
        prop_assert_eq!(fails, answer.nodes[0].starts == Some(false), "{:?} {:?}", found, answer);
    }
}
