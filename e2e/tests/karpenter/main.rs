//! Tests of scaling from zero with the real Karpenter: they compare winpool's prediction with Karpenter's behaviour.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use scene::Scene;
use serde_json::{Value, json};
use winpool_analysis::render::{Provisioner, render};
use winpool_core::api::{WindowsPool, names};
use winpool_core::plan::pools::pool::Pool;
use winpool_core::windows::builds::by_version;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::label;
use winpool_e2e::needs;
use winpool_e2e::scene::manifests;
use winpool_e2e::servers::definitions::define;
use winpool_e2e::servers::karpenter::{Karpenter, TYPES_WITH_BUILDS};
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

/// The label of nodes with Hyper-V.
const HYPERV: &str = "example.com/hyper-v";

fn pool(classes: &Value) -> WindowsPool {
    serde_json::from_value(json!({
        "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"},
        "spec": {"runtimeClasses": classes},
    }))
    .unwrap()
}

fn all_classes() -> Value {
    json!([
        {"name": "windows-2019", "version": "2019"},
        {"name": "windows-2022", "version": "2022"},
        {"name": "windows-2025", "build": "10.0.26100"},
        {"name": "apps", "version": "2022", "hostMatch": "Compatible"},
        {"name": "vms", "version": "2022", "isolation": "HyperV", "nodeSelector": {HYPERV: "true"}},
        {"name": "any", "version": "Any"},
        {"name": "big", "version": "2022", "nodeSelector": {"size": "big"}},
        {"name": "arm", "version": "2022", "architecture": "arm64"},
    ])
}

/// Returns the output of `winpool render karpenter --windows`, changed for simulated nodes.
fn rendered(pool: &WindowsPool, version: &str) -> Value {
    let text = render(Provisioner::Karpenter, &Pool::read(pool).unwrap(), by_version(version));
    let mut node_pool: Value = serde_yaml::from_str(&text).unwrap();
    node_pool["metadata"]["name"] = json!(format!("rendered-{version}"));
    simulated(node_pool)
}

fn simulated(mut node_pool: Value) -> Value {
    node_pool["spec"]["template"]["spec"]["nodeClassRef"] =
        json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    // Simulated nodes do not report their build. If a NodePool allows several builds, Karpenter treats that as drift.
    node_pool["spec"]["disruption"] = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]});
    node_pool
}

/// Returns a NodePool with these requirements, as `(key, operator, values)`, merged with a change.
fn node_pool(name: &str, requirements: &[(&str, &str, &[&str])], change: &Value) -> Value {
    let requirements: Vec<Value> = requirements
        .iter()
        .map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}))
        .collect();
    let mut node_pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {"requirements": requirements}}},
    });
    json_patch::merge(&mut node_pool, change);
    simulated(node_pool)
}

fn with_taint(value: &str, effect: &str) -> Value {
    json!({"spec": {"template": {"spec": {"taints": [{"key": "os", "value": value, "effect": effect}]}}}})
}

#[tokio::test]
async fn every_class_starts_from_zero_or_winpool_says_that_it_cannot() {
    let mut classes = all_classes();
    classes.as_array_mut().unwrap().push(json!({"name": "old", "version": "20h2"}));
    let pool = pool(&classes);
    let labelled = |key: &str, value: &str| json!({"spec": {"template": {"metadata": {"labels": {key: value}}}}});
    let windows: (&str, &str, &[&str]) = (names::OS, "In", &["windows"]);
    let of_2022: (&str, &str, &[&str]) = (names::WINDOWS_BUILD, "In", &["10.0.20348"]);
    let mut node_pools: Vec<Value> = ["2019", "2022", "2025"].iter().map(|version| rendered(&pool, version)).collect();
    node_pools.push(node_pool("vms", &[windows, of_2022], &labelled(HYPERV, "true")));
    node_pools.push(node_pool("big", &[windows, of_2022], &labelled("size", "big")));
    node_pools.push(node_pool("arm", &[windows, of_2022, (names::ARCH, "In", &["arm64"])], &json!({})));
    node_pools.push(node_pool("linux", &[(names::OS, "In", &["linux"])], &json!({})));
    let scene = Scene::start(&pool, &node_pools, None).await;

    let builds = [("windows-2019", "10.0.17763"), ("windows-2022", "10.0.20348"), ("windows-2025", "10.0.26100")];
    for class in pool.spec.runtime_classes.iter().map(|class| class.name.as_str()) {
        assert_eq!(scene.answer(class).await.0, Some(class != "old"), "{class}");
    }
    for class in pool.spec.runtime_classes.iter().map(|class| class.name.as_str()) {
        scene.run(class, class, json!({})).await;
    }
    for class in pool.spec.runtime_classes.iter().map(|class| class.name.as_str()).filter(|class| *class != "old") {
        let node = scene.runs_from_zero(class).await;
        if let Some((_, build)) = builds.iter().find(|(name, _)| *name == class) {
            assert_eq!(label(&node, names::WINDOWS_BUILD), Some(*build), "{class}");
        }
    }
    let refusal = scene.refused("old").await;
    assert!(refusal.contains("incompatible requirements, key node.kubernetes.io/windows-build"), "{refusal}");
    assert_eq!(scene.pods().get("old").await.unwrap().spec.unwrap().node_name, None);
}

#[tokio::test]
async fn winpool_and_karpenter_agree_on_every_node_pool_and_class() {
    let pool = pool(&all_classes());
    let windows: (&str, &str, &[&str]) = (names::OS, "In", &["windows"]);
    let guard = || with_taint("windows", "NoSchedule");
    let build = |operator: &'static str, values: &'static [&'static str]| (names::WINDOWS_BUILD, operator, values);
    let labelled = |key: &str, value: &str| json!({"spec": {"template": {"metadata": {"labels": {key: value}}}}});
    let mut node_pools: Vec<Value> = ["2019", "2022", "2025"].iter().map(|version| rendered(&pool, version)).collect();
    node_pools.extend([
        node_pool("no-build", &[windows], &guard()),
        node_pool("two-builds", &[windows, build("In", &["10.0.20348", "10.0.26100"])], &guard()),
        node_pool("not-2019", &[windows, build("NotIn", &["10.0.17763"])], &guard()),
        node_pool("linux", &[(names::OS, "In", &["linux"])], &json!({})),
        node_pool("not-windows", &[(names::OS, "NotIn", &["windows"])], &json!({})),
        node_pool("catch-all", &[], &json!({})),
        node_pool("other-taint", &[windows], &with_taint("Windows", "NoSchedule")),
        node_pool("soft-taint", &[windows], &with_taint("Windows", "PreferNoSchedule")),
        node_pool("arm", &[windows, (names::ARCH, "In", &["arm64"])], &guard()),
        node_pool("big", &[windows, build("In", &["10.0.20348"])], &labelled("size", "big")),
        node_pool("any-size", &[windows, ("size", "Exists", &[])], &guard()),
        node_pool("vms", &[windows], &labelled(HYPERV, "true")),
        node_pool("full", &[windows], &json!({"spec": {"limits": {"cpu": "0"}}})),
    ]);
    // Each class has its own NodePools, because a node that serves one class gets labels that other classes also
    // select.
    let classes: Vec<&str> = pool.spec.runtime_classes.iter().map(|class| class.name.as_str()).collect();
    let of_class = |class: &str| {
        let class = class.to_owned();
        node_pools.iter().map(move |node_pool| {
            let mut node_pool = node_pool.clone();
            node_pool["metadata"]["name"] =
                json!(format!("{}-{class}", node_pool["metadata"]["name"].as_str().unwrap()));
            node_pool
        })
    };
    let all: Vec<Value> = classes.iter().flat_map(|class| of_class(class)).collect();
    let scene = Scene::start(&pool, &all, None).await;

    let mut expected = Vec::new();
    for class in classes {
        let (_, mut templates) = scene.answer(class).await;
        assert_eq!(templates.len(), all.len());
        for node_pool in of_class(class) {
            let name = node_pool["metadata"]["name"].as_str().unwrap().to_owned();
            let template = templates.remove(&name).unwrap();
            scene.run(&name, class, json!({"karpenter.sh/nodepool": name})).await;
            expected.push((name, template));
        }
    }
    assert!(expected.len() >= 30);
    let mut wrong = Vec::new();
    // The built-in types have every architecture and no build, so classes that depend on these labels get a node.
    let serves = |template: &Value| template["serves"] != false;
    for (name, template) in &expected {
        if serves(template) {
            scene.runs(name).await;
        } else {
            scene.refused(name).await;
            let refusal = scene.logged_refusal(name);
            if !agree(template, &refusal) {
                wrong.push(format!("{name}: winpool says {template}, Karpenter says {refusal}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let with_node: BTreeSet<String> = scene
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
        .filter_map(|pod| pod.metadata.name)
        .collect();
    let scalable = expected.iter().filter(|(_, template)| serves(template)).map(|(name, _)| name.clone());
    assert_eq!(with_node, scalable.collect(), "no other pod gets a node");
}

/// True if both name the same label, taint or limit. Ignores Karpenter's messages about other NodePools.
fn agree(template: &Value, refusal: &str) -> bool {
    let missing = template["missing"].to_string();
    let own: Vec<&str> = refusal.split("; ").filter(|part| !part.contains("key karpenter.sh/nodepool,")).collect();
    [names::WINDOWS_BUILD, names::OS, names::ARCH, "runs.winpool.dev/", HYPERV, "size", "os=Windows", "limits"]
        .iter()
        .any(|word| missing.contains(word) && own.iter().any(|part| part.contains(word)))
}

#[tokio::test]
async fn a_type_that_knows_its_build_is_started_without_a_requirement() {
    let pool = pool(&json!([{"name": "windows-2019", "version": "2019"}, {"name": "windows-2025", "version": "2025"}]));
    let windows: (&str, &str, &[&str]) = (names::OS, "In", &["windows"]);
    let node_pools = [node_pool("windows", &[windows], &with_taint("windows", "NoSchedule"))];
    let scene = Scene::start(&pool, &node_pools, Some(TYPES_WITH_BUILDS)).await;
    scene.run("new", "windows-2025", json!({})).await;
    scene.run("old", "windows-2019", json!({})).await;
    let node = scene.runs_from_zero("old").await;
    assert_eq!(label(&node, "node.kubernetes.io/instance-type"), Some("win2019.xlarge"));
    // No instance type has this build. winpool cannot know that, and does not promise that either class can start.
    let refusal = scene.refused("new").await;
    assert!(refusal.contains("no instance type"), "{refusal}");
    for class in ["windows-2019", "windows-2025"] {
        let (can, templates) = scene.answer(class).await;
        let warnings = templates["windows"]["warnings"].to_string();
        assert!(can.is_none() && warnings.contains("does not name the build"), "{class}: {warnings}");
    }
}

#[tokio::test]
async fn the_affinity_to_the_hosts_of_an_image_scales_from_zero() {
    needs!(MUTATING_ADMISSION_POLICY);
    let pool = pool(&json!([{"name": "any", "version": "Any"}]));
    let scene = Scene::start(&pool, &[rendered(&pool, "2025")], None).await;
    manifests::apply(&scene.cluster.client(), &manifests::component("assign-class").unwrap()).await.unwrap();
    let pod = |name: &str, image: &str| -> Pod {
        let spec = json!({"runtimeClassName": "any", "containers": [{"name": "app", "image": image}]});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let in_force = async || {
        let admitted = scene.pods().create(&dry_run, &pod("probe", "a:ltsc2022")).await?;
        Ok(admitted.spec.and_then(|spec| spec.affinity).map(drop))
    };
    scene.cluster.wait_for("the policy is in force", in_force).await.unwrap();
    for (name, image) in [("new", "a:ltsc2022"), ("old", "a:ltsc2019")] {
        scene.pods().create(&PostParams::default(), &pod(name, image)).await.unwrap();
    }
    let node = scene.runs_from_zero("new").await;
    assert_eq!(label(&node, names::WINDOWS_BUILD), Some("10.0.26100"));
    let refusal = scene.refused("old").await;
    assert!(refusal.contains(names::WINDOWS_BUILD), "{refusal}");
}

/// Returns a CRD for EC2NodeClasses. That of Karpenter's AWS provider is in another module.
fn ec2_node_classes() -> CustomResourceDefinition {
    let names = json!({"kind": "EC2NodeClass", "plural": "ec2nodeclasses", "singular": "ec2nodeclass"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    serde_json::from_value(json!({
        "metadata": {"name": "ec2nodeclasses.karpenter.k8s.aws"},
        "spec": {"group": "karpenter.k8s.aws", "scope": "Cluster", "names": names, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": schema},
        ]},
    }))
    .unwrap()
}

#[tokio::test]
async fn the_node_classes_of_a_cluster_tell_the_build_where_there_are_any() {
    let harness = Harness::new().await;
    Karpenter::install(&harness.client).await.unwrap();
    let pool = pool(&json!([{"name": "windows-2022", "version": "2022"}]));
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "win"});
    let mut node_pool = node_pool("aws", &[], &json!({}));
    node_pool["spec"]["template"]["spec"]["nodeClassRef"] = reference;
    scene::apply(&harness.client, &[json!(pool), node_pool]).await;
    let answer = async || scene::answer(harness.server.kubeconfig(), "windows-2022").await;

    let (can, templates) = answer().await;
    assert!(can.is_none() && templates["aws"]["warnings"].to_string().contains("does not name the build"));

    define(&harness.client, &ec2_node_classes()).await.unwrap();
    for (family, expected) in [("Windows2019", false), ("Windows2022", true)] {
        let spec = json!({"amiFamily": family});
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "win"}, "spec": spec,
        });
        scene::apply(&harness.client, &[class]).await;
        let (can, templates) = answer().await;
        assert_eq!(can, Some(expected), "{family}: {templates:?}");
        let missing = templates["aws"]["missing"].to_string();
        assert_eq!(missing.contains("EC2NodeClass win: node.kubernetes.io/windows-build In (10.0.17763)"), !expected);
    }
}
