//! `winpool plan --assume`: what an upgrade does to workloads.

use std::process::Command;

use serde_json::{Value, json};
use winpool_analysis::remedy::Remedy;

use crate::input::with_input;

const BUILD: &str = "node.kubernetes.io/windows-build";
const SKU: &str = "kubernetes.azure.com/os-sku";
const WIN: &str = "kubernetes.azure.com/agentpool=win:2025";

fn node(name: &str, agentpool: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, BUILD: "10.0.20348",
            SKU: "Windows2022", "kubernetes.azure.com/agentpool": agentpool,
            "kubernetes.azure.com/node-image-version": "AKSWindows-2022-containerd-20348.1",
        }},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "kernelVersion": "10.0.20348.1", "containerRuntimeVersion": "containerd://2.0.4",
        }},
    })
}

fn pool(changes: &Value) -> Value {
    json!({
        "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default", "uid": "1"},
        "spec": changes,
    })
}

fn workload(kind: &str, name: &str, image: &str, spec: &Value) -> Value {
    let mut template = json!({"containers": [{"name": "c", "image": image}]});
    json_patch::merge(&mut template, spec);
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"},
        "spec": {"template": {"spec": template}},
    })
}

/// A running pod on this node, which its controller created.
fn pod(name: &str, controller: Option<(&str, &str)>, node: &str, selector: &Value) -> Value {
    let owner = controller.map(
        |(kind, name)| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true}]),
    );
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owner},
        "spec": {"nodeName": node, "nodeSelector": selector, "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running"},
    })
}

fn selector(labels: &[(&str, &str)]) -> Value {
    let labels: Value =
        [("kubernetes.io/os", "windows")].iter().chain(labels).map(|(key, value)| (*key, *value)).collect();
    labels
}

fn affinity(key: &str, values: &[&str]) -> Value {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]);
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn cluster() -> Vec<Value> {
    let windows = || json!({"nodeSelector": selector(&[])});
    let mut objects = vec![
        pool(&json!({})),
        workload("Deployment", "web", "web:ltsc2022", &json!({"runtimeClassName": "windows-2022"})),
        workload("Deployment", "web-2", "web:1", &json!({"runtimeClassName": "windows-2022"})),
        workload("Deployment", "cart", "cart:ltsc2022", &json!({"nodeSelector": {SKU: "Windows2022"}})),
        workload("Deployment", "erp", "erp:7.3", &windows()),
        workload("Deployment", "tagged", "app:ltsc2022", &windows()),
        workload("Deployment", "silent", "app:1", &windows()),
        workload("Deployment", "linux", "nginx:1", &json!({"nodeSelector": {"kubernetes.io/os": "linux"}})),
        workload("Deployment", "waiting", "app:ltsc2025", &json!({"runtimeClassName": "windows-2025"})),
        workload("StatefulSet", "db", "db:ltsc2022", &json!({"affinity": affinity(BUILD, &["10.0.20348"])})),
        workload(
            "StatefulSet",
            "image",
            "db:ltsc2022",
            &json!({"nodeSelector": {"kubernetes.azure.com/node-image-version": "AKSWindows-2022-containerd-20348.1"}}),
        ),
        workload("DaemonSet", "agent", "agent:ltsc2022", &json!({"nodeSelector": selector(&[(BUILD, "10.0.20348")])})),
        workload(
            "DaemonSet",
            "exporter",
            "exporter:1",
            &json!({
                "nodeSelector": selector(&[]),
                "securityContext": {"windowsOptions": {"hostProcess": true}},
            }),
        ),
        pod("erp-1", Some(("StatefulSet", "erp-is-a-deployment")), "win-1", &selector(&[])),
        pod("agent-1", Some(("DaemonSet", "agent")), "win-1", &selector(&[(BUILD, "10.0.20348")])),
        pod("agent-2", Some(("DaemonSet", "agent")), "win-2", &selector(&[(BUILD, "10.0.20348")])),
        pod("rollout-1", Some(("CloneSet", "clones")), "win-2", &selector(&[(SKU, "Windows2022")])),
        pod("debug", None, "win-3", &selector(&[(SKU, "Windows2022")])),
        pod("stays", None, "win-3", &selector(&[])),
        pod(
            "image-0",
            Some(("StatefulSet", "image")),
            "win-3",
            &selector(&[("kubernetes.azure.com/node-image-version", "AKSWindows-2022-containerd-20348.1")]),
        ),
    ];
    let mut erp = pod("erp-abc-1", Some(("ReplicaSet", "erp-abc")), "win-1", &selector(&[]));
    erp["metadata"]["labels"] = json!({"pod-template-hash": "abc"});
    objects.push(erp);
    objects.extend(["win-1", "win-2", "win-3"].map(|name| node(name, "win")));
    objects
}

fn plan(objects: &[Value], arguments: &[&str]) -> (Option<i32>, String, String) {
    run(objects, &[&["plan"], arguments].concat())
}

fn run(objects: &[Value], arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).args(["-f", "-"]).env("KUBECONFIG", "/nonexistent").env("COLUMNS", "160");
    let input: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let output = with_input(&mut command, &input.join("\n---\n"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn answer(objects: &[Value], assumptions: &[&str]) -> Value {
    let assumptions = assumptions.iter().flat_map(|one| ["--assume", *one]);
    let (_, out, told) = plan(objects, &assumptions.chain(["-o", "json"]).collect::<Vec<_>>());
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{told}"))
}

fn named<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let mut workloads = answer["workloads"].as_array().unwrap().iter();
    workloads.find(|workload| workload["object"]["name"] == name).unwrap_or_else(|| panic!("{name}: {answer:#}"))
}

fn remedy(workload: &Value) -> Remedy {
    serde_json::from_value(workload["remedy"].clone()).unwrap()
}

fn moments(workload: &Value) -> [&str; 3] {
    ["now", "rolling", "after"].map(|moment| workload[moment].as_str().unwrap())
}

#[test]
fn an_upgrade_is_shown_for_every_workload_with_the_least_change() {
    let (code, out, told) = plan(&cluster(), &["--assume", WIN]);
    assert_eq!(code, Some(2), "{told}");
    insta::assert_snapshot!(out);
}

#[test]
fn programs_read_the_same_answer() {
    insta::assert_snapshot!(format!("{:#}", answer(&cluster(), &[WIN])));
}

#[test]
fn the_change_of_the_pool_helps_when_it_is_made() {
    let changed = |spec: &Value| {
        let mut objects = cluster();
        objects[0] = pool(spec);
        answer(&objects, &[WIN])
    };
    let patch = remedy(named(&answer(&cluster(), &[WIN]), "web")).merge_patch("").unwrap();
    assert_eq!(patch, json!({"spec": {"runtimeClassHostMatch": "Compatible"}}));
    let after = changed(&patch["spec"]);
    assert_eq!(moments(named(&after, "web")), ["Runs"; 3], "{after:#}");

    let declared = |more: &Value| {
        let mut class = json!({"name": "windows-2022", "version": "2022"});
        json_patch::merge(&mut class, more);
        json!({"runtimeClasses": [class]})
    };
    let before = changed(&declared(&json!({})));
    let remedy = remedy(named(&before, "web"));
    assert_eq!(remedy.text, "set hostMatch: Compatible for RuntimeClass windows-2022");
    let mut pool = pool(&declared(&json!({})));
    let patch = remedy.json_patch(&pool, "");
    json_patch::patch(&mut pool, &patch).unwrap();
    let after = changed(&pool["spec"]);
    assert_eq!(moments(named(&after, "web")), ["Runs"; 3], "{after:#}");
}

#[test]
fn why_and_the_rehearsal_suggest_the_same_change() {
    let mut objects = cluster();
    objects.push(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runhcs-wcow-process",
        "metadata": {"name": "windows-2022", "labels": {"winpool.dev/pool": "default"}},
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", BUILD: "10.0.20348"}},
    }));
    let expected = remedy(named(&answer(&objects, &[WIN]), "web"));
    let (_, out, told) = run(&objects, &["why", "deployment", "web", "-n", "shop", "--assume", WIN, "-o", "json"]);
    let out: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{told}"));
    let remedy = remedy(&out);
    assert_eq!((&remedy.object, &remedy.edits), (&expected.object, &expected.edits), "{out:#}");
    assert_eq!(remedy.text, "in WindowsPool default: set runtimeClassHostMatch: Compatible");
}

#[test]
fn a_workload_without_a_selector_gets_the_class_of_its_images() {
    let mut objects = cluster();
    let mut old = node("old", "old");
    old["metadata"]["labels"][BUILD] = json!("10.0.17763");
    old["status"]["nodeInfo"]["kernelVersion"] = json!("10.0.17763.1");
    objects.push(old);
    objects.push(workload("Deployment", "billing", "billing:ltsc2019", &json!({})));
    let rehearsed = remedy(named(&answer(&objects, &[WIN]), "billing"));
    assert_eq!(rehearsed.text, "set runtimeClassName: windows-2019");
    let (_, out, _) = run(&objects, &["why", "deployment", "billing", "-n", "shop", "-o", "json"]);
    assert_eq!(remedy(&serde_json::from_str(&out).unwrap()).edits, rehearsed.edits, "{out}");
}

#[test]
fn the_change_of_a_workload_helps_when_it_is_made() {
    let before = answer(&cluster(), &[WIN]);
    for name in ["cart", "agent"] {
        let remedy = remedy(named(&before, name));
        let mut objects = cluster();
        let own = objects.iter_mut().find(|object| object["metadata"]["name"] == name).unwrap();
        json_patch::merge(own, &remedy.merge_patch("/spec/template").unwrap());
        assert_eq!(own["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/os"], "windows", "{own:#}");
        let after = answer(&objects, &[WIN]);
        assert_eq!(moments(named(&after, name)), ["Runs"; 3], "{after:#}");
    }
}

#[test]
fn nodes_of_another_group_keep_the_old_version() {
    let mut objects = cluster();
    objects.push(node("old-1", "old"));
    let answer = answer(&objects, &[WIN]);
    assert_eq!(moments(named(&answer, "web")), ["Runs", "OldNodesOnly", "OldNodesOnly"], "{answer:#}");
    assert_eq!(moments(named(&answer, "tagged")), ["Runs"; 3]);
}

#[test]
fn a_workload_whose_images_the_new_version_does_not_run_may_not_start() {
    let mut objects = cluster();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Node") {
        object["metadata"]["labels"][BUILD] = json!("10.0.17763");
        object["metadata"]["labels"][SKU] = json!("Windows2019");
        object["status"]["nodeInfo"]["kernelVersion"] = json!("10.0.17763.1");
    }
    objects.push(workload("Deployment", "old", "app:ltsc2019", &json!({"nodeSelector": selector(&[])})));
    let answer = answer(&objects, &[WIN]);
    assert_eq!(moments(named(&answer, "old")), ["Runs", "MayNotStart", "MayNotStart"], "{answer:#}");
    assert_eq!(named(&answer, "old")["remedy"]["text"], "set containers[0].image: app:ltsc2025, once it exists");
    // It runs on 2019 today, and 2025 does not run images of 2019.
    assert_eq!(moments(named(&answer, "erp")), ["Runs", "Unknown", "Unknown"], "{answer:#}");
    assert!(named(&answer, "erp")["reason"].as_str().unwrap().contains("erp:7.3"), "{answer:#}");
}

#[test]
fn a_workload_stays_off_nodes_on_which_it_does_not_start() {
    let mut objects = cluster();
    let mut old = node("old", "old");
    old["metadata"]["labels"][BUILD] = json!("10.0.17763");
    old["metadata"]["labels"][SKU] = json!("Windows2019");
    old["status"]["nodeInfo"]["kernelVersion"] = json!("10.0.17763.1");
    objects.push(old);
    let before = answer(&objects, &[WIN]);
    let remedy = remedy(named(&before, "agent"));
    let affinity =
        format!("add the required node affinity {{key: {BUILD}, operator: In, values: [10.0.20348, 10.0.26100]}}");
    assert!(remedy.text.ends_with(&affinity), "{remedy:?}");
    let own = objects.iter_mut().find(|object| object["metadata"]["name"] == "agent").unwrap();
    json_patch::merge(own, &remedy.merge_patch("/spec/template").unwrap());
    let after = answer(&objects, &[WIN]);
    assert_eq!(moments(named(&after, "agent")), ["Runs"; 3], "{after:#}");
    // `tagged` has no such selector, and can land on the node of 2019.
    let tagged = named(&before, "tagged");
    assert_eq!(moments(tagged), ["MayNotStart"; 3]);
    assert!(
        tagged["reason"].as_str().unwrap().contains("today it can be scheduled on a node on which it does not start"),
        "{tagged:#}"
    );
}

#[test]
fn an_old_containerd_is_named() {
    let mut objects = cluster();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Node") {
        object["status"]["nodeInfo"]["containerRuntimeVersion"] = json!("containerd://1.7.17+azure");
    }
    let answer = answer(&objects, &[WIN]);
    let web = named(&answer, "web");
    assert_eq!(moments(web), ["Runs", "OldNodesOnly", "NoNode"], "{answer:#}");
    assert!(web["reason"].as_str().unwrap().contains("1.7.19 or later, and win-1 has an older one"), "{answer:#}");
}

#[test]
fn without_a_version_of_containerd_it_is_unknown_if_images_of_today_start() {
    let mut objects = cluster();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Node") {
        object["status"]["nodeInfo"]["containerRuntimeVersion"] = json!("containerd://Unknown");
    }
    let answer = answer(&objects, &[WIN]);
    let web = named(&answer, "tagged");
    assert_eq!(moments(web), ["Runs", "Unknown", "Unknown"], "{answer:#}");
    let reason = web["reason"].as_str().unwrap();
    assert!(reason.ends_with("with containerd 1.7.19 or later, and win-1 does not report its version"), "{reason}");
}

#[test]
fn without_pods_it_is_not_known_what_ends() {
    let objects: Vec<Value> = cluster().into_iter().filter(|object| object["kind"] != "Pod").collect();
    let answer = answer(&objects, &[WIN]);
    assert!(answer.get("endedPods").is_none(), "{answer:#}");
    assert!(answer["notes"][0].as_str().unwrap().contains("The manifests have no pods"), "{answer:#}");
}

#[test]
fn an_upgrade_that_changes_nothing_is_harmless() {
    let workload = workload("Deployment", "web", "web:ltsc2022", &json!({"nodeSelector": selector(&[])}));
    let pod = pod("stays", None, "win-1", &selector(&[]));
    let (code, out, _) = plan(&[pool(&json!({})), node("win-1", "win"), workload, pod], &["--assume", WIN]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("The kubelet ends no pods when a node starts as 2025."), "{out}");
}

#[test]
fn a_workload_to_which_winpool_adds_the_toleration_is_no_different() {
    let intolerant = workload("Deployment", "intolerant", "web:ltsc2022", &json!({"nodeSelector": selector(&[])}));
    let answer = answer(&[pool(&json!({})), node("win-1", "win"), intolerant], &[WIN]);
    assert_eq!(
        (&named(&answer, "intolerant")["now"], &answer["leftOut"]),
        (&json!("Runs"), &Value::Null),
        "{answer:#}"
    );
}

#[test]
fn what_the_answer_leaves_out_is_counted_by_kind_and_reason() {
    let next_image = json!({
        "nodeSelector": selector(&[("kubernetes.azure.com/node-image-version", "AKSWindows-2025-containerd-26100.1")]),
        "tolerations": [{"key": "os", "value": "windows", "effect": "NoSchedule"}],
    });
    let rollout = |name: &str| {
        let mut rollout = workload("Rollout", name, "app:ltsc2022", &json!({"nodeSelector": selector(&[])}));
        rollout["apiVersion"] = json!("argoproj.io/v1alpha1");
        rollout
    };
    let mut of_rollout =
        workload("ReplicaSet", "known-abc", "app:ltsc2022", &json!({"runtimeClassName": "windows-2022"}));
    of_rollout["metadata"]["ownerReferences"] = json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "known", "uid": "1", "controller": true}]);
    let objects = [
        pool(&json!({"taintPolicy": "TaintOnly"})),
        node("win-1", "win"),
        workload("Deployment", "web", "web:ltsc2022", &json!({"runtimeClassName": "windows-2022"})),
        workload("Deployment", "intolerant", "web:ltsc2022", &json!({"nodeSelector": selector(&[])})),
        workload("Deployment", "elsewhere", "web:ltsc2022", &json!({"nodeSelector": selector(&[("zone", "dmz")])})),
        workload("StatefulSet", "elsewhere", "web:ltsc2022", &json!({"nodeSelector": selector(&[("zone", "dmz")])})),
        workload("Deployment", "linux", "nginx:1", &json!({"nodeSelector": {"kubernetes.io/os": "linux"}})),
        workload("Deployment", "next", "app:ltsc2025", &next_image),
        rollout("unread"),
        rollout("known"),
        of_rollout,
        pod("debug", None, "other-node", &selector(&[])),
        pod("stays", None, "win-1", &selector(&[])),
    ];
    let left_out = &answer(&objects, &[WIN])["leftOut"];
    let expected = json!([
        {"reason": "KindNotRead", "count": 1, "kinds": {"Rollout": 1}},
        {"reason": "UnknownLabel", "count": 1, "kinds": {"Deployment": 1}},
        {"reason": "NoToleration", "count": 1, "kinds": {"Deployment": 1}},
        {"reason": "OtherNodes", "count": 2, "kinds": {"Deployment": 1, "StatefulSet": 1}},
        {"reason": "NotForWindows", "count": 1, "kinds": {"Deployment": 1}},
        {"reason": "NoController", "count": 1, "kinds": {"Pod": 1}},
    ]);
    assert_eq!(*left_out, expected, "{left_out:#}");
    let (code, out, _) = plan(&objects, &["--assume", WIN]);
    assert_eq!(code, Some(2), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "Left out: 1 workload of a kind that this command does not read (1 Rollout); 1 workload with a selector for a label \
                whose value is unknown (1 Deployment); 1 workload without a toleration for the taints of these nodes \
                (1 Deployment); 2 workloads that cannot be scheduled on these nodes (1 Deployment, \
                1 StatefulSet); 1 workload not known to be for Windows (1 Deployment); 1 pod without a controller.";
    assert!(words.contains(line), "{out}");
}

#[test]
fn status_counts_the_pods_that_the_upgrade_ends() {
    let ends = |arguments: &[&str]| {
        let (_, out, told) = run(&cluster(), &[&["status"], arguments, &["-o", "json"]].concat());
        let status: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{told}"));
        status["podsThatEnd"].as_u64()
    };
    assert_eq!(ends(&[]), None);
    // Those that select the build or the SKU, and the one that selects the version of the node's image.
    assert_eq!(ends(&["--assume", WIN]), Some(5));
    let (_, out, _) = run(&cluster(), &["status", "--assume", WIN]);
    assert!(out.contains("5 pods select labels that their node does not have: the kubelet ends them"), "{out}");
}

#[test]
fn why_says_that_an_upgrade_in_place_ends_a_pod_that_selects_the_build() {
    let ends = |pod: &str| {
        let (_, out, told) = run(&cluster(), &["why", "pod", pod, "-n", "shop", "-o", "json"]);
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{told}"));
        answer["endsWithUpgrade"].as_str().map(str::to_owned)
    };
    assert_eq!(ends("agent-1").as_deref(), Some("node.kubernetes.io/windows-build: 10.0.20348"));
    assert_eq!(ends("debug").as_deref(), Some("kubernetes.azure.com/os-sku: Windows2022"));
    assert_eq!(ends("stays"), None);
    let (_, out, _) = run(&cluster(), &["why", "pod", "agent-1", "-n", "shop"]);
    assert!(out.contains("If Windows is upgraded in place on win-1, the kubelet ends the pod"), "{out}");
}

#[test]
fn a_class_that_only_a_pool_in_dry_run_would_create_needs_another_mode() {
    let mut objects = cluster();
    objects.retain(|object| object["kind"] != "WindowsPool" && object["kind"] != "RuntimeClass");
    objects.push(pool(&json!({"mode": "DryRun"})));
    objects.push(workload("Deployment", "soon", "app:ltsc2022", &json!({"runtimeClassName": "windows-2022"})));
    let answer = answer(&objects, &[WIN]);
    let change = "set mode: Enforce in the WindowsPool, which then creates RuntimeClass windows-2022";
    assert_eq!(named(&answer, "soon")["reason"], change, "{answer:#}");
}
