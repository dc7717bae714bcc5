//! Random nodes and pods.

use serde_json::{Value, json};
use winpool_analysis::remedy::Remedy;
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::nodes::simulated::SimulatedNode;

pub const NODES: usize = 12;
const BUILDS: [&str; 3] = ["10.0.17763", "10.0.20348", "10.0.26100"];
/// Every fourth node runs Linux.
const LINUX: usize = 4;

pub fn node_name(index: usize) -> String {
    format!("node-{index}")
}

pub fn any_node(dice: &mut Dice, index: usize) -> SimulatedNode {
    let kernel = dice.pick(&["10.0.17763.6659", "10.0.20348.2655", "10.0.26100.4061"]);
    let mut node = if index.is_multiple_of(LINUX) { SimulatedNode::linux() } else { SimulatedNode::windows(kernel) };
    node = node.name(&node_name(index)).container_runtime("containerd://2.1.4");
    for (key, value, effect) in [
        ("os", "windows", "NoSchedule"),
        ("team", "a", "NoSchedule"),
        ("gpu", "", "NoExecute"),
        ("soft", "x", "PreferNoSchedule"),
    ] {
        if dice.once_in(3) && !(index.is_multiple_of(LINUX) && key == "os") {
            node = node.taint(key, value, effect);
        }
    }
    for key in ["tier", "zone"] {
        if !dice.once_in(3) {
            node = node.label(key, dice.pick(&["1", "2", "10", "x"]));
        }
    }
    if dice.once_in(2) {
        node = node.resource("example.com/gpu", dice.pick(&["1", "2"]));
    }
    node
}

fn any_requirement(dice: &mut Dice) -> Value {
    let key = dice.pick(&["tier", "zone", "node.kubernetes.io/windows-build", "kubernetes.io/os", "none"]);
    match dice.roll(6) {
        0 => json!({"key": key, "operator": "Exists"}),
        1 => json!({"key": key, "operator": "DoesNotExist"}),
        2 => json!({"key": key, "operator": "Gt", "values": ["1"]}),
        3 => json!({"key": key, "operator": "Lt", "values": ["10"]}),
        4 => json!({"key": key, "operator": "NotIn", "values": ["1", "x", "10.0.20348"]}),
        _ => json!({"key": key, "operator": "In", "values": ["1", "2", "10.0.17763", "10.0.20348", "windows"]}),
    }
}

fn any_affinity(dice: &mut Dice) -> Value {
    let mut terms = Vec::new();
    for _ in 0..=dice.roll(2) {
        let mut term = json!({"matchExpressions": [any_requirement(dice)]});
        if dice.once_in(2) {
            term["matchExpressions"].as_array_mut().unwrap().push(any_requirement(dice));
        }
        if dice.once_in(4) {
            let operator = dice.pick(&["In", "NotIn"]);
            let name = node_name(dice.roll(NODES));
            term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [name]}]);
        }
        terms.push(term);
    }
    if dice.once_in(6) {
        terms.push(json!({}));
    }
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

/// A pod spec for Windows, for Linux, or one that says nothing.
pub fn any_spec(dice: &mut Dice) -> Value {
    let image = match dice.roll(5) {
        0 => "example.com/app:ltsc2019",
        1 => "example.com/app:ltsc2022",
        2 => "example.com/app:ltsc2025",
        _ => "example.com/app:1.0",
    };
    let mut container = json!({"name": "c", "image": image});
    if dice.once_in(5) {
        container["resources"] = json!({"limits": {"example.com/gpu": dice.pick(&["1", "2"])}});
    }
    let mut spec = json!({"containers": [container], "tolerations": [], "automountServiceAccountToken": false});
    match dice.roll(4) {
        0 | 1 => spec["os"] = json!({"name": "windows"}),
        2 => spec["os"] = json!({"name": "linux"}),
        _ => {}
    }
    let tolerations = spec["tolerations"].as_array_mut().unwrap();
    for toleration in [
        json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}),
        json!({"key": "os", "operator": "Equal", "value": "Windows"}),
        json!({"key": "team", "operator": "Exists"}),
        json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"operator": "Exists", "effect": "NoSchedule"}),
    ] {
        if dice.once_in(2) {
            tolerations.push(toleration);
        }
    }
    if dice.once_in(4) {
        tolerations.push(json!({"operator": "Exists"}));
    }
    if dice.once_in(3) {
        spec["nodeSelector"] = match dice.roll(4) {
            0 => json!({"kubernetes.io/os": dice.pick(&["windows", "linux"])}),
            1 => json!({"node.kubernetes.io/windows-build": dice.pick(&BUILDS)}),
            _ => json!({dice.pick(&["tier", "zone"]): dice.pick(&["1", "2"])}),
        };
    }
    if dice.once_in(2) {
        spec["affinity"] = any_affinity(dice);
    }
    if dice.once_in(3) {
        spec["runtimeClassName"] = json!(dice.pick(&["windows-2019", "windows-2022", "any", "gone"]));
    }
    if dice.once_in(8) {
        spec["nodeName"] = json!(node_name(dice.roll(NODES)));
        // The taint manager deletes pods that do not tolerate NoExecute.
        spec["tolerations"].as_array_mut().unwrap().push(json!({"operator": "Exists", "effect": "NoExecute"}));
    }
    spec
}

/// Returns the pod spec with the edits of the remedy, if it is nothing but edits.
pub fn applied(spec: &Value, remedy: Option<&Remedy>) -> Option<Value> {
    let remedy = remedy.filter(|remedy| !remedy.edits.is_empty())?;
    let mut pod = json!({"spec": spec});
    let patch = remedy.json_patch(&pod, "");
    json_patch::patch(&mut pod, &patch).unwrap();
    if remedy.text.contains("request less of") {
        pod["spec"]["containers"][0]["resources"] = Value::Null;
    }
    Some(pod["spec"].take())
}

/// Returns whether the pod starts on this node, by Microsoft's table and the kubelet's check of the operating system. `is_windows`
/// says what the pod is for. `None` where only the image can tell.
pub fn starts(spec: &Value, is_windows: bool, node: &k8s_openapi::api::core::v1::Node) -> Option<bool> {
    let info = node.status.as_ref().unwrap().node_info.as_ref().unwrap();
    let os = if is_windows { "windows" } else { "linux" };
    if info.operating_system != os || spec["os"]["name"].as_str().is_some_and(|name| name != info.operating_system) {
        return Some(false);
    }
    let image = spec["containers"][0]["image"].as_str().unwrap();
    let image: u32 = match image.rsplit(':').next() {
        _ if !is_windows => return Some(true),
        Some("ltsc2019") => 17763,
        Some("ltsc2022") => 20348,
        Some("ltsc2025") => 26100,
        _ => return None,
    };
    let host: u32 = info.kernel_version.split('.').nth(2)?.parse().ok()?;
    Some(if host < 20348 { image == host } else { (20348..=host).contains(&image) })
}
