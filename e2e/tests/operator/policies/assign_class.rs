//! Windows pods that get a RuntimeClass assigned.

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::names::CLASS_FROM;
use winpool_core::windows::builds;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{BUILD, node_of, windows_class};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::needs;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{
    admitted, admitted_until, assert_no_panic, class_status, comparable, install, namespace, phase, pod, pods, pool,
    required,
};

/// The class that a pod got, and the source of the decision.
fn given(pod: &Pod) -> Option<(&str, &str)> {
    let from = pod.annotations().get(CLASS_FROM)?;
    Some((pod.spec.as_ref()?.runtime_class_name.as_deref()?, from))
}

/// A pod that says Windows, with this merged into its spec.
fn windows(spec: &Value) -> Value {
    let mut pod = pod(spec);
    pod["spec"]["os"] = json!({"name": "windows"});
    pod
}

fn with_images(images: &[&str]) -> Value {
    windows(&super::with_images(images))
}

/// A class as winpool creates it, and its entry in the status of its pool.
async fn class(harness: &Harness, name: &str, build: &str, state: &str) -> Value {
    let _: RuntimeClass = harness.create(windows_class(name, &json!({BUILD: build, "pool": "a"}))).await;
    class_status(name, build, state)
}

/// A pool `default` with classes in every state.
async fn scene(harness: &Harness) {
    let mut classes = Vec::new();
    for (name, build, state) in [
        ("windows-2016", "10.0.14393", "Pending"),
        ("windows-2019", "10.0.17763", "Applied"),
        ("windows-2022", "10.0.20348", "Applied"),
        ("windows-2022-big", "10.0.20348", "Applied"),
        ("windows-2022-hyperv", "10.0.20348", "Applied"),
        ("windows-2025", "10.0.26100", "Adopted"),
        ("windows-2025-hyperv", "10.0.26100", "Applied"),
        ("conflicting", "10.0.20348", "Conflict"),
        ("satisfied", "10.0.20348", "Satisfied"),
    ] {
        classes.push(class(harness, name, build, state).await);
    }
    let builds = json!([{"build": "10.0.20348", "nodes": 1, "runtimeClass": "windows-2022"}]);
    let declared = json!([{"name": "windows-2022-big", "version": "2022", "nodeSelector": {"size": "big"}}]);
    let defaults = json!({"runtimeClassName": "windows-2022-big", "fromImageTags": true});
    let spec = json!({"nodeSelector": {"pool": "a"}, "runtimeClasses": declared, "podDefaults": defaults});
    pool(harness, "default", spec, json!({"runtimeClasses": classes, "builds": builds})).await;
    install(&harness.client, "assign-class").await;
    namespace(&harness.client, "labelled", json!({"winpool.dev/runtime-class": "windows-2019"})).await;
    let labelled = |pod: &Pod| given(pod) == Some(("windows-2019", "namespace"));
    admitted_until(&pods(&harness.client, "labelled"), &windows(&json!({})), "classes are given", labelled).await;
}

/// A pod spec with this as one of two terms.
fn term(term: &Value) -> Value {
    json!({"affinity": required(&json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, term]))})
}

fn expression(key: &str, operator: &str, values: &Value) -> Value {
    term(&json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
}

#[tokio::test]
async fn a_pod_gets_a_class_that_is_ready_if_nothing_contradicts_it() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    scene(&harness).await;
    a_pod_that_selects_a_version_is_not_changed(&harness).await;
    image_tags_choose_a_class_only_if_they_are_unambiguous(&harness).await;
    a_default_class_is_given_only_while_it_is_ready(&harness).await;
    assert_no_panic(&harness.server);
}

async fn a_pod_that_selects_a_version_is_not_changed(harness: &Harness) {
    let labelled = pods(&harness.client, "labelled");
    // The policies exclude this namespace.
    let excluded = pods(&harness.client, "kube-system");
    let by_field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["win-a"]}]});
    let cases = [
        json!({"runtimeClassName": "windows-2025"}),
        json!({"nodeName": "win-a"}),
        json!({"hostNetwork": true, "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "a"}}}),
        json!({"nodeSelector": {BUILD: "10.0.20348"}}),
        json!({"nodeSelector": {"kubernetes.io/hostname": "win-a"}}),
        json!({"nodeSelector": {"runs.winpool.dev/10.0.20348": "true"}}),
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
        json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}),
        json!({"nodeSelector": {"pool": "b"}}),
        expression(BUILD, "In", &json!(["10.0.20348", "10.0.26100"])),
        expression("kubernetes.io/hostname", "In", &json!(["win-a"])),
        expression("runs.winpool.dev/10.0.20348", "Exists", &json!([])),
        expression("kubernetes.io/os", "In", &json!(["linux"])),
        expression("kubernetes.io/os", "NotIn", &json!(["windows"])),
        expression("kubernetes.io/arch", "In", &json!(["arm64"])),
        expression("pool", "DoesNotExist", &json!([])),
        term(&by_field),
    ];
    for spec in cases {
        let chosen = windows(&spec);
        let untouched: Pod = admitted(&excluded, &chosen).await.unwrap();
        let pod: Pod = admitted(&labelled, &chosen).await.unwrap();
        assert_eq!(comparable(&pod), comparable(&untouched), "{spec}");
    }
    for other in [pod(&json!({})), pod(&json!({"os": {"name": "linux"}}))] {
        let untouched: Pod = admitted(&excluded, &other).await.unwrap();
        let pod: Pod = admitted(&labelled, &other).await.unwrap();
        assert_eq!(comparable(&pod), comparable(&untouched), "{other}");
    }
    // If the value agrees, the pod gets the class of the namespace.
    for spec in [
        json!({"nodeSelector": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "pool": "a", "own": "x"}}),
        expression("kubernetes.io/os", "In", &json!(["windows"])),
        expression("pool", "NotIn", &json!(["b"])),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1, "preference": {"matchExpressions": [{"key": BUILD, "operator": "Exists"}]},
        }]}}}),
    ] {
        let pod: Pod = admitted(&labelled, &windows(&spec)).await.unwrap();
        assert_eq!(given(&pod), Some(("windows-2019", "namespace")), "{spec}");
        assert_eq!(pod.spec.unwrap().node_selector.unwrap()[BUILD], "10.0.17763");
    }
}

async fn image_tags_choose_a_class_only_if_they_are_unambiguous(harness: &Harness) {
    let default = pods(&harness.client, "default");
    let (by_tags, by_pool) = (Some("image-tags"), Some("pool"));
    let cases: &[(&[&str], Option<&str>, Option<&str>)] = &[
        (&["mcr.microsoft.com/windows/servercore:ltsc2022"], Some("windows-2022"), by_tags),
        (&["mcr.microsoft.com/windows/servercore:ltsc2019"], Some("windows-2019"), by_tags),
        (&["mcr.microsoft.com/windows/nanoserver:1809"], Some("windows-2019"), by_tags),
        (&["mcr.microsoft.com/windows/nanoserver:1809-KB4493509"], Some("windows-2019"), by_tags),
        (&["mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2022"], Some("windows-2022"), by_tags),
        (&["localhost:5000/app:1.4-nanoserver-1809"], Some("windows-2019"), by_tags),
        (&["app:10.0.17763.437"], Some("windows-2019"), by_tags),
        (
            &["app:LTSC2022@sha256:0123456789012345678901234567890123456789012345678901234567890123"],
            Some("windows-2022"),
            by_tags,
        ),
        (&["a:ltsc2022", "b:2.0-ltsc2022-amd64"], Some("windows-2022"), by_tags),
        // The only class of its build that isolates by process.
        (&["a:ltsc2025"], Some("windows-2025"), by_tags),
        // It names a build, and the default class has another one.
        (&["a:ltsc2016"], None, None),
        (&["a:ltsc2022", "b:ltsc2019"], None, None),
        (&["a:ltsc2022", "b:1.0"], None, None),
        (&["a:ltsc2019-ltsc2022"], None, None),
        // A custom version.
        (&["app:1809"], Some("windows-2022-big"), by_pool),
        (&["app:2022"], Some("windows-2022-big"), by_pool),
        (&["app:myltsc2022"], Some("windows-2022-big"), by_pool),
        (&["app:10.0.177630"], Some("windows-2022-big"), by_pool),
        (&["ltsc2022:5000/app"], Some("windows-2022-big"), by_pool),
        (&["localhost:5000/my-ltsc2022-base/app:1.0"], Some("windows-2022-big"), by_pool),
        (&["ltsc2022/app:1.0"], Some("windows-2022-big"), by_pool),
    ];
    for (images, class, from) in cases {
        let pod: Pod = admitted(&default, &with_images(images)).await.unwrap();
        assert_eq!(given(&pod), class.zip(*from), "{images:?}");
    }
    let init = windows(&json!({"initContainers": [{"name": "i", "image": "a:ltsc2019"}]}));
    assert_eq!(given(&admitted(&default, &init).await.unwrap()), None, "init containers count");
    // With its own selectors: by image tag if they do not contradict, and never the default class.
    for (spec, images, class) in [
        (json!({"pool": "a", "own": "x"}), "a:ltsc2022", Some(("windows-2022", "image-tags"))),
        (json!({"pool": "b"}), "a:ltsc2022", None),
        (json!({"own": "x"}), "app:1.0", None),
        // That class is foreign: it may select more than winpool knows.
        (json!({"own": "x"}), "a:ltsc2025", None),
        (json!({"kubernetes.io/os": "windows"}), "app:1.0", Some(("windows-2022-big", "pool"))),
    ] {
        let mut pod = with_images(&[images]);
        pod["spec"]["nodeSelector"] = spec.clone();
        let pod: Pod = admitted(&default, &pod).await.unwrap();
        assert_eq!(given(&pod), class, "{spec} {images}");
    }
}

async fn a_default_class_is_given_only_while_it_is_ready(harness: &Harness) {
    let default = pods(&harness.client, "default");
    let ltsc2022 = with_images(&["a:ltsc2022"]);
    for (class, state) in [
        ("windows-2016", "Pending"),
        ("conflicting", "Conflict"),
        ("satisfied", "Satisfied"),
        ("absent", "none"),
        ("windows-2025", "Adopted"),
        ("windows-2022", "Applied"),
    ] {
        // The label of a namespace is taken at its word, so it shows that this version of the pool is known.
        let marker = class;
        let mut spec = json!({"nodeSelector": {"pool": "a"}, "podDefaults": {"runtimeClassName": class}});
        spec["runtimeClasses"] =
            json!([{"name": "windows-2019", "version": "2019", "nodeSelector": {"marker": marker}}]);
        harness.apply_pool(spec).await;
        let mut contradicting = windows(&json!({}));
        contradicting["spec"]["nodeSelector"] = json!({"marker": marker});
        let agrees = |pod: &Pod| given(pod).is_some();
        admitted_until(&pods(&harness.client, "labelled"), &contradicting, "the pool is known", agrees).await;
        contradicting["spec"]["nodeSelector"] = json!({"marker": "none"});
        let contradicts = |pod: &Pod| given(pod).is_none();
        admitted_until(&pods(&harness.client, "labelled"), &contradicting, "the pool is known", contradicts).await;

        let pod: Pod = admitted(&default, &ltsc2022).await.unwrap();
        let expected = matches!(state, "Applied" | "Adopted" | "Satisfied").then_some((class, "pool"));
        assert_eq!(given(&pod), expected, "{class}: {state}; tags do not count without fromImageTags");
    }
    harness.apply_pool(json!({"mode": "DryRun", "podDefaults": {"runtimeClassName": "windows-2022"}})).await;
    let untouched = |pod: &Pod| given(pod).is_none();
    admitted_until(&default, &ltsc2022, "a pool in dry run gives nothing", untouched).await;
}

#[tokio::test]
async fn a_pod_that_selects_the_architecture_of_the_pool_gets_its_class() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let _: RuntimeClass = harness.create(windows_class("windows-2022", &json!({"kubernetes.io/arch": "arm64"}))).await;
    let defaults = json!({"runtimeClassName": "windows-2022"});
    let spec = json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}, "podDefaults": defaults});
    let classes = [class_status("windows-2022", "10.0.20348", "Applied")];
    pool(&harness, "default", spec, json!({"runtimeClasses": classes})).await;
    install(&harness.client, "assign-class").await;
    let default = pods(&harness.client, "default");
    let has_class = |pod: &Pod| given(pod).is_some();
    admitted_until(&default, &windows(&json!({})), "classes are given", has_class).await;
    for (architecture, expected) in [("arm64", true), ("amd64", false)] {
        let probe = windows(&json!({"nodeSelector": {"kubernetes.io/arch": architecture}}));
        assert_eq!(has_class(&admitted(&default, &probe).await.unwrap()), expected, "{architecture}");
    }
}

pub(super) async fn a_template_that_only_says_windows_runs_on_the_chosen_build(harness: &Harness) {
    let client = &harness.client;
    harness
        .apply_until_ready(json!({"podDefaults": {"runtimeClassName": "windows-2025", "fromImageTags": true}}))
        .await;
    install(client, "assign-class").await;
    // Restricted: what the policy adds is accepted there too.
    let labels = json!({"winpool.dev/runtime-class": "windows-2019", "pod-security.kubernetes.io/warn": "restricted"});
    namespace(client, "legacy", labels).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "legacy");
    let account = async || Ok(accounts.get_opt("default").await?);
    wait_for("namespace legacy has its service account", LIMIT, account).await.unwrap();
    let given_by_pool = |pod: &Pod| given(pod) == Some(("windows-2025", "pool"));
    admitted_until(&harness.pods(), &windows(&json!({})), "classes are given", given_by_pool).await;

    let ways = [
        ("legacy", "example.com/app:1.0", "10.0.17763.", "namespace"),
        ("default", "mcr.microsoft.com/windows/servercore:ltsc2022", "10.0.20348.", "image-tags"),
        ("default", "example.com/app:1.0", "10.0.26100.", "pool"),
    ];
    let mut expected = Vec::new();
    for (namespace, image, kernel, from) in ways {
        for kind in ["Deployment", "StatefulSet", "Job"] {
            let name = format!("{}-{from}", kind.to_lowercase());
            let containers = json!([{"name": "app", "image": image}]);
            let mut object = workload(kind, &name, json!({"os": {"name": "windows"}, "containers": containers}));
            object["metadata"]["namespace"] = json!(namespace);
            if kind == "Deployment" {
                object["spec"]["replicas"] = json!(1);
            }
            harness.apply(object).await;
            expected.push((namespace, name, kernel, from));
        }
    }
    for (namespace, name, kernel, from) in expected {
        let of_workload = ListParams::default().labels(&format!("app={name}"));
        let running = async || {
            let pods = pods(client, namespace).list(&of_workload).await?.items;
            Ok(pods.into_iter().find(|pod| matches!(phase(pod), Some("Running" | "Succeeded"))))
        };
        let pod = wait_for(&format!("a pod of {name} runs"), LIMIT, running).await.unwrap();
        let node = harness.node(node_of(&pod).unwrap()).await;
        let runs_on = node.status.unwrap().node_info.unwrap().kernel_version;
        assert!(runs_on.starts_with(kernel), "{name} runs on {runs_on}");
        assert_eq!(pod.annotations()[CLASS_FROM], from, "{name}");
    }
}

#[tokio::test]
async fn every_base_image_of_a_long_term_release_is_recognised() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let mut classes = Vec::new();
    let mut builds = Vec::new();
    let releases = || builds::all().iter().filter(|product| product.is_ltsc);
    for product in releases() {
        let name = format!("windows-{}", product.version);
        let build = product.build.to_string();
        classes.push(class(&harness, &name, &build, "Applied").await);
        builds.push(json!({"build": build, "nodes": 1, "runtimeClass": name}));
    }
    let status = json!({"runtimeClasses": classes, "builds": builds});
    pool(&harness, "default", json!({"podDefaults": {"fromImageTags": true}}), status).await;
    install(&harness.client, "assign-class").await;
    let default = pods(&harness.client, "default");
    for product in releases() {
        for tag in product.base_tags.iter().filter(|tag| tag.len() > 4) {
            let probe = with_images(&[&format!("mcr.microsoft.com/windows/servercore:{tag}")]);
            let class = format!("windows-{}", product.version);
            let recognised = |pod: &Pod| given(pod) == Some((class.as_str(), "image-tags"));
            admitted_until(&default, &probe, &format!("{tag} is recognised"), recognised).await;
        }
    }
    let created: Pod = serde_json::from_value(with_images(&["a:ltsc2022"])).unwrap();
    let created = default.create(&PostParams::default(), &created).await.unwrap();
    assert_eq!(created.spec.unwrap().node_selector.unwrap()[BUILD], "10.0.20348", "the API server adds its selector");
}
