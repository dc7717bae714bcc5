//! What the API server admits: generated pods in namespaces that enforce a level of `PodSecurity` and select nodes, some with a
//! RuntimeClass. winpool refuses the same pods for the same reasons, and foresees what the API server makes of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_analysis::finding::{Consequence, Finding};
use winpool_analysis::image::Images;
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::Facts;
use winpool_analysis::placement::obstacles;
use winpool_analysis::pod::{self, PodSpec};
use winpool_analysis::verdict::{self, History, PlacedBy, Refused, Subject, Verdict};
use winpool_analysis::view::{self, Known, SeenNode, View};
use winpool_client::node::ListedNode;
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::servers::lending::lend;
use winpool_e2e::servers::version::running_kubernetes;

use super::generated::{Fields, set};
use super::refused::refused;
use super::{Answer, HANDS, create, findings};

const PODS: usize = 500;

/// The namespaces: level of `PodSecurity`, its version, and node selector. The API server reads the last with `PodNodeSelector`.
const NAMESPACES: [(&str, &str, &str); 12] = [
    ("baseline", "latest", ""),
    ("restricted", "latest", ""),
    ("restricted", "v1.24", "tier=1"),
    ("baseline", "v1.28", ""),
    ("restricted", "v1.31", "kubernetes.io/os=windows"),
    ("restricted", "v1.99", ""),
    ("baseline", "v1.34", "tier=1"),
    ("privileged", "latest", " tier = 1 , zone=b"),
    ("privileged", "", "kubernetes.io/os=windows"),
    ("baseline", "", "zone="),
    ("", "", "tier=2"),
    ("", "v1.25", ""),
];

/// What classes and pods are made of.
#[derive(Deserialize)]
struct Parts {
    /// Their `scheduling`.
    classes: BTreeMap<String, Value>,
    placement: Fields,
    security: Fields,
}

static PARTS: LazyLock<Parts> = LazyLock::new(|| serde_yaml::from_str(include_str!("admission.yaml")).unwrap());

/// The reasons, as the API server writes them before their details.
const REASONS: [&str; 17] = [
    "hostProcess",
    "host namespaces",
    "privileged",
    "hostPort",
    "probe or lifecycle host",
    "forbidden AppArmor profile",
    "seLinuxOptions",
    "procMount",
    "forbidden sysctls",
    "non-default capabilities",
    "hostPath volumes",
    "seccompProfile",
    "restricted volume types",
    "allowPrivilegeEscalation != false",
    "runAsNonRoot != true",
    "runAsUser=0",
    "unrestricted capabilities",
];

/// A pod with some of the fields, often few.
fn any_pod(dice: &mut Dice) -> Value {
    let sides = [3, 8, 30][dice.roll(3)];
    let container = json!({"name": "c", "image": "example.com/app:1.0"});
    let sidecar = json!({"name": "i", "image": "example.com/app:1.0", "restartPolicy": "Always"});
    let mut spec = json!({"containers": [container], "initContainers": [sidecar]});
    for (path, values) in &PARTS.placement {
        if dice.once_in(4) {
            set(&mut spec, path, &values[dice.roll(values.len())]);
        }
    }
    let is_windows = spec["os"]["name"] == "windows";
    for (path, values) in &PARTS.security {
        // The API server refuses most of them for Windows.
        if dice.once_in(if is_windows && !path.contains("windowsOptions") { sides * 3 } else { sides }) {
            let list = dice.pick(&["containers.0", "containers.0", "initContainers.0"]);
            set(&mut spec, &path.replace("CONTAINER", list), &values[dice.roll(values.len())]);
        }
    }
    if spec["initContainers"][0].as_object().unwrap().len() == 3 && dice.once_in(2) {
        spec.as_object_mut().unwrap().remove("initContainers");
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec});
    if dice.once_in(12) {
        let profile = dice.pick(&["unconfined", "runtime/default", "localhost/a"]);
        pod["metadata"]["annotations"] = json!({"container.apparmor.security.beta.kubernetes.io/c": profile});
    }
    pod
}

/// The step of admission that refuses a pod first, with what is said about it. The steps are in the order of the API server.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Namespace,
    NoClass(String),
    /// With the labels that differ, of which the API server names one.
    Class(BTreeSet<String>),
    Fields(BTreeSet<String>),
    PodSecurity(BTreeSet<String>),
    Admitted,
}

/// The step at which the API server ends; `None` if it is none of these.
fn said(answer: &Answer) -> Option<Step> {
    let message = answer.body["message"].as_str().unwrap_or_default();
    if answer.code.is_success() {
        Some(Step::Admitted)
    } else if message.contains("pod node label selector conflicts with its namespace node label selector") {
        Some(Step::Namespace)
    } else if let Some((_, rest)) = message.split_once("pod rejected: RuntimeClass \"") {
        Some(Step::NoClass(rest.split('"').next()?.to_owned()))
    } else if let Some((_, rest)) = message.split_once("conflict: runtimeClass.scheduling.nodeSelector[") {
        Some(Step::Class(BTreeSet::from([rest.split(']').next()?.to_owned()])))
    } else if message.contains("violates PodSecurity") {
        let said = |reason: &&&str| {
            [format!("{reason} ("), format!("{reason}s (")]
                .iter()
                .any(|text| message.contains(&format!(": {text}")) || message.contains(&format!("), {text}")))
        };
        Some(Step::PodSecurity(super::set(REASONS.iter().filter(said).copied())))
    } else {
        Some(Step::Fields(refused(answer))).filter(|step| *step != Step::Fields(BTreeSet::new()))
    }
}

/// The step that winpool foresees, from what `check` rejects.
fn told(rejected: &[Finding]) -> Step {
    let (mut classes, mut fields) = (BTreeSet::new(), BTreeSet::new());
    let mut steps = vec![Step::Admitted];
    for Finding { rule, field, message, .. } in rejected {
        let after = |word: &str| message.split_once(word).unwrap().1;
        match rule.as_str() {
            "namespace-selector-conflict" => steps.push(Step::Namespace),
            "class-not-found" => steps.push(Step::NoClass(after("RuntimeClass ").to_owned())),
            "class-contradicts-selector" => {
                classes.insert(after("nodeSelector wants ").split('=').next().unwrap().to_owned());
            }
            "pod-security-refused" => steps.push(Step::PodSecurity(super::set(after("the pod: ").split(", ")))),
            rule if rule.starts_with("host-process") => drop(fields.insert(rule.to_owned())),
            _ => drop(fields.insert(field.clone())),
        }
    }
    steps.extend((!classes.is_empty()).then_some(Step::Class(classes)));
    steps.extend((!fields.is_empty()).then_some(Step::Fields(fields)));
    steps.into_iter().min().unwrap()
}

/// Nodes that pods can tell apart.
fn nodes() -> Vec<view::Node> {
    let taints = [
        json!([]),
        json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]),
        json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]),
    ];
    let mut nodes = Vec::new();
    for os in ["linux", "windows"] {
        for (tier, zone) in [("1", ""), ("1", "b"), ("2", "b"), ("2", "c")] {
            for taints in &taints {
                let labels = json!({"kubernetes.io/os": os, "tier": tier, "zone": zone});
                let node = json!({"metadata": {"name": format!("node-{}", nodes.len()), "labels": labels}, "spec": {"taints": taints}});
                let listed: ListedNode = serde_json::from_value(node.clone()).unwrap();
                nodes.push(SeenNode::new(listed.object, &node).host());
            }
        }
    }
    nodes
}

/// What winpool knows of the cluster.
async fn cluster(client: &Client) -> View {
    let version = KubernetesVersion { major: 1, minor: running_kubernetes().await.unwrap() };
    let mut view = View { kubernetes: Some(version), ..View::default() };
    let (mut known, existing) = (Vec::new(), Api::<RuntimeClass>::all(client.clone()));
    for (name, scheduling) in &PARTS.classes {
        let class = json!({"metadata": {"name": name}, "handler": "h", "scheduling": scheduling});
        let class = existing.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
        known.push(Arc::new(class));
    }
    view.classes = Known::Complete(known);
    for (number, (level, version, selector)) in NAMESPACES.into_iter().enumerate() {
        let prefix = "pod-security.kubernetes.io/enforce";
        let labels = [(prefix.to_owned(), level.to_owned()), (format!("{prefix}-version"), version.to_owned())];
        let mut labels: BTreeMap<String, String> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let key = view::NODE_SELECTORS[1];
        let annotations: BTreeMap<&str, &str> =
            [(key, selector)].into_iter().filter(|(_, text)| !text.is_empty()).collect();
        let name = format!("namespace-{number}");
        let namespace = json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}});
        let namespace = serde_json::from_value(namespace).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        labels.extend(annotations.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())));
        view.namespace_labels.insert(name, labels);
    }
    view
}

/// Fails if `why` disagrees with the API server about a pod that is not refused because of its fields.
fn why_agrees(pod: &Value, said: &Step, answer: &Answer, cluster: &verdict::Cluster) {
    let own = pod::Pod::of_manifest(pod).unwrap();
    let subject = Subject { pod: &own, placed_by: PlacedBy::Anyone, history: History::default() };
    let verdict = Verdict::of(subject, cluster);
    match (verdict.refused, said) {
        (None | Some(Refused::PodSecurity(_)), Step::Fields(_))
        | (Some(Refused::Namespace { .. }), Step::Namespace)
        | (Some(Refused::Contradiction(_)), Step::Class(_)) => {}
        (Some(Refused::NoClass(name)), Step::NoClass(said)) => assert_eq!(name, *said),
        (Some(Refused::PodSecurity(forbidden)), Step::PodSecurity(said)) => {
            assert_eq!(super::set(forbidden.reasons.iter().copied()), *said, "{pod:#}");
        }
        (None, Step::Admitted) => {
            let admitted: PodSpec = serde_json::from_value(answer.body["spec"].clone()).unwrap();
            for node in &cluster.nodes {
                let foreseen = verdict.pod.obstacles(node);
                assert_eq!(foreseen.is_empty(), obstacles(&admitted, node).is_empty(), "{pod:#} {}", answer.body);
            }
        }
        (_, said) => panic!("why disagrees: {said:?} {pod:#}"),
    }
}

#[tokio::test]
async fn the_api_server_refuses_pods_for_the_reasons_that_winpool_says_and_makes_of_the_others_what_it_foresees() {
    let server = lend().await.unwrap();
    let client = server.client();
    let view = cluster(&client).await;
    let (facts, images) = (Facts::of(&view), Images::default());
    let cluster = verdict::Cluster { nodes: nodes(), ..view.cluster(&images) };
    let mut dice = Dice::new(138);
    // Some are refused for reasons that have to do with no system, such as privileges that contradict.
    let pods = std::iter::from_fn(|| {
        let mut pod = any_pod(&mut dice);
        pod["metadata"]["namespace"] = json!(format!("namespace-{}", dice.roll(NAMESPACES.len())));
        Some(pod)
    });
    let answers = stream::iter(pods).map(async |pod| {
        let answer = create(&client, pod["metadata"]["namespace"].as_str().unwrap(), &pod).await;
        (pod, answer)
    });
    let answers = answers.buffered(HANDS).filter_map(async |(pod, answer)| Some((said(&answer)?, pod, answer)));
    let mut steps = BTreeMap::<String, usize>::new();
    for (said, pod, answer) in answers.take(PODS).collect::<Vec<_>>().await {
        let mut rejected = findings(&pod, &facts);
        rejected.retain(|finding| finding.consequence == Consequence::Rejected);
        let told = told(&rejected);
        let is_same = match (&said, &told) {
            (Step::Class(said), Step::Class(told)) => said.is_subset(told),
            _ => said == told,
        };
        assert!(is_same, "the API server says {said:?}, winpool {told:?}: {}\n{pod:#}", answer.body);
        why_agrees(&pod, &said, &answer, &cluster);
        let step = format!("{said:?}");
        *steps.entry(step.split('(').next().unwrap().to_owned()).or_default() += 1;
    }
    println!("admission of {PODS} pods, the same as the API server: {steps:?}");
    assert!(steps.len() == 6 && steps.values().all(|number| *number > 10), "{steps:?}");
}
