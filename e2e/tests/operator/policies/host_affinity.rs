//! Pods of a class without a build that get a required node affinity to the hosts that run their images.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use winpool_core::api::{ClassState, WindowsPool};
use winpool_core::windows::builds;
use winpool_core::windows::compatibility::can_run;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{BUILD, node_of, unschedulable, windows_class};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::needs;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{admitted, admitted_until, assert_no_panic, class_status, install, pod, pods, pool, required};

const ON_2022: &str = "mcr.microsoft.com/windows/servercore:ltsc2022";

/// A pod of class `any` with this merged into its spec.
fn of_class_any(spec: &Value) -> Value {
    let mut pod = pod(spec);
    pod["spec"]["runtimeClassName"] = json!("any");
    pod
}

fn with_images(images: &[&str]) -> Value {
    of_class_any(&super::with_images(images))
}

fn affinity(pod: &Pod) -> Value {
    json!(pod.spec.as_ref().and_then(|spec| spec.affinity.clone()))
}

/// The builds in the only expression of the only term.
fn hosts(pod: &Pod) -> Vec<String> {
    let expression = &affinity(pod)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0]["matchExpressions"][0];
    assert!(expression.is_null() || expression["key"] == BUILD, "{expression}");
    serde_json::from_value(expression["values"].clone()).unwrap_or_default()
}

/// A pool `default` with classes without a build and with one, and the policies in force.
async fn scene() -> Harness {
    let harness = Harness::new().await;
    let mut classes = Vec::new();
    for (name, build, state) in [
        ("any", "Any", "Applied"),
        ("windows-2022", "10.0.20348", "Applied"),
        ("any-hyperv", "Any", "Applied"),
        ("foreign", "Any", "Conflict"),
    ] {
        let _: RuntimeClass = harness.create(windows_class(name, &json!({}))).await;
        classes.push(class_status(name, build, state));
    }
    pool(&harness, "default", json!({}), json!({"runtimeClasses": classes})).await;
    install(&harness.client, "assign-class").await;
    let default = pods(&harness.client, "default");
    admitted_until(&default, &with_images(&[ON_2022]), "pods get an affinity", |pod| !hosts(pod).is_empty()).await;
    harness
}

#[tokio::test]
async fn a_pod_without_a_build_gets_an_affinity_to_the_hosts_of_its_images() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = scene().await;
    let default = pods(&harness.client, "default");
    the_hosts_of_an_image_are_those_that_run_it_by_process_isolation(&default).await;
    an_affinity_that_a_pod_has_keeps_its_meaning(&default).await;
    assert_no_panic(&harness.server);
}

async fn the_hosts_of_an_image_are_those_that_run_it_by_process_isolation(default: &Api<Pod>) {
    for product in builds::all().iter().filter(|product| product.is_ltsc) {
        let able = builds::all().iter().filter(|host| can_run(product.build, host.build));
        let able: Vec<String> = able.map(|host| host.build.to_string()).collect();
        for tag in product.base_tags.iter().filter(|tag| tag.len() > 4) {
            let image = format!("mcr.microsoft.com/windows/servercore:{tag}");
            let pod: Pod = admitted(default, &with_images(&[&image])).await.unwrap();
            assert_eq!(hosts(&pod), able, "{tag}");
        }
    }
    for (images, expected) in [
        (&[ON_2022, "a:ltsc2025"][..], &["10.0.26100"][..]),
        (&["a:ltsc2019", "a:ltsc2022"], &[]),
        (&["a:ltsc2022", "a:1.0"], &[]),
        (&["a:2022"], &[]),
        (&["a:ltsc2019-ltsc2022"], &[]),
    ] {
        let pod: Pod = admitted(default, &with_images(images)).await.unwrap();
        assert_eq!(hosts(&pod), expected, "{images:?}");
    }
}

async fn an_affinity_that_a_pod_has_keeps_its_meaning(default: &Api<Pod>) {
    let one = json!({"key": BUILD, "operator": "In", "values": ["10.0.20348", "10.0.25398", "10.0.26100"]});
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let by_field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["win-a"]}]});
    let by_hostname =
        json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["w"]}]});
    let by_name_too = json!({
        "matchExpressions": [exists("a")], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w"]}],
    });
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [exists("a")]}}]);
    let spread = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}});
    let only = required(&json!([{"matchExpressions": [one]}]));
    let with = |mut affinity: Value, also: &Value| {
        json_patch::merge(&mut affinity, also);
        affinity
    };
    for (given, expected) in [
        (json!(null), only.clone()),
        (json!({}), only.clone()),
        (json!({"nodeAffinity": {}}), only.clone()),
        (
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}}),
            with(
                only.clone(),
                &json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}}),
            ),
        ),
        (
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}),
            with(
                only.clone(),
                &json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}),
            ),
        ),
        (
            required(&json!([{"matchExpressions": [exists("a")]}])),
            required(&json!([{"matchExpressions": [exists("a"), one]}])),
        ),
        (
            required(&json!([{"matchExpressions": [exists("a")]}, {"matchExpressions": [exists(BUILD)]}, {}])),
            required(&json!([{"matchExpressions": [exists("a"), one]}, {"matchExpressions": [exists(BUILD)]}, {}])),
        ),
        (required(&json!([{}])), required(&json!([{}]))),
        (required(&json!([by_field])), required(&json!([by_field]))),
        (required(&json!([by_hostname])), required(&json!([by_hostname]))),
        (required(&json!([by_name_too])), required(&json!([by_name_too]))),
    ] {
        let mut probe = with_images(&[ON_2022]);
        probe["spec"]["affinity"] = given.clone();
        let pod: Pod = admitted(default, &probe).await.unwrap();
        assert_eq!(affinity(&pod), expected, "{given}");
    }
    for change in [
        json!({"runtimeClassName": "windows-2022"}),
        json!({"runtimeClassName": "any-hyperv"}),
        json!({"runtimeClassName": "foreign"}),
        json!({"nodeSelector": {BUILD: "10.0.26100"}}),
        json!({"nodeSelector": {"kubernetes.io/hostname": "win-a"}}),
        json!({"nodeName": "win-a"}),
        json!({"hostNetwork": true, "os": {"name": "windows"}, "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "a"}}}),
    ] {
        let mut probe = with_images(&[ON_2022]);
        json_patch::merge(&mut probe["spec"], &change);
        let pod: Pod = admitted(default, &probe).await.unwrap();
        assert_eq!(affinity(&pod), json!(null), "{change}");
    }
}

pub(super) async fn the_scheduler_uses_all_hosts_that_run_the_image_and_no_other(harness: &Harness) {
    let client = harness.client.clone();
    harness.apply_pool(json!({"runtimeClasses": [{"name": "any", "version": "Any"}]})).await;
    let has_class = |pool: &WindowsPool| {
        let mut classes = pool.status.iter().flat_map(|status| &status.runtime_classes);
        classes.any(|class| class.name == "any" && class.state == ClassState::Applied)
    };
    harness.pool_until("default", "has its class", has_class).await;
    let default = pods(&client, "default");
    admitted_until(&default, &with_images(&[ON_2022]), "pods get an affinity", |pod| !hosts(pod).is_empty()).await;
    // Each wants a node of its own.
    for number in 0..4 {
        let mut pod = with_images(&[ON_2022]);
        pod["metadata"] = json!({"name": format!("app-{number}"), "labels": {"app": "apart"}});
        pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"},
        ]}});
        default.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let placed = async || {
        let pods = default.list(&ListParams::default().labels("app=apart")).await?.items;
        let mut nodes: Vec<String> = pods.iter().filter_map(node_of).map(str::to_owned).collect();
        nodes.sort();
        let refused = pods.iter().filter(|pod| node_of(pod).is_none() && unschedulable(pod).is_some()).count();
        Ok((nodes.len() == 3 && refused == 1).then_some(nodes))
    };
    let nodes = wait_for("three pods have a node and one has none", LIMIT, placed).await.unwrap();
    assert_eq!(nodes, ["win-2022-a", "win-2025-a", "win-spelled"]);
}
