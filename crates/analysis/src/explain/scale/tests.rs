use std::collections::BTreeMap;

use serde_json::{Value, json};
use winpool_core::api::Taint;
use winpool_core::pod::tolerations::toleration;

use super::*;

fn class(selector: &Value) -> Class {
    let mut all = json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"});
    all.as_object_mut().unwrap().extend(selector.as_object().unwrap().clone());
    Class {
        handler: "runhcs-wcow-process".to_owned(),
        selector: serde_json::from_value::<BTreeMap<String, String>>(all).unwrap(),
        tolerations: vec![toleration(&Taint::os_windows())],
    }
}

fn class_2022() -> Class {
    class(&json!({"node.kubernetes.io/windows-build": "10.0.20348"}))
}

fn read(yaml: &str) -> Autoscalers {
    Autoscalers::read(&serde_yaml::from_multiple::<Value>(yaml).unwrap(), Vec::new())
}

/// Returns a NodePool of the EC2NodeClass `win`, with these fields in `spec.template.spec` and in `spec`.
fn node_pool(template: &str, spec: &str) -> String {
    let class = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: win}";
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\n\
         spec: {{template: {{spec: {{{class}, {template}}}}}, {spec}}}\n"
    )
}

fn node_class(spec: &str) -> String {
    format!("apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: win}}\nspec: {{{spec}}}\n")
}

fn requirement(key: &str, operator: &str, values: &str) -> String {
    format!("{{key: {key}, operator: {operator}, values: [{values}]}}")
}

const WINDOWS: &str = "{key: kubernetes.io/os, operator: In, values: [windows]}";

#[test]
fn each_field_that_keeps_a_node_pool_from_a_class_is_named() {
    let of_2022 = requirement("node.kubernetes.io/windows-build", "In", "10.0.20348");
    let windows_and = |more: &str| format!("requirements: [{WINDOWS}, {of_2022}, {more}]");
    let build = |operator: &str, values: &str| {
        let build = requirement("node.kubernetes.io/windows-build", operator, values);
        format!("requirements: [{WINDOWS}, {build}]")
    };
    for (template, spec, expected) in [
        (windows_and(""), "", &[][..]),
        (build("In", "10.0.20348, 10.0.26100"), "", &[]),
        (
            build("In", "10.0.17763"),
            "",
            &[
                "spec.template.spec.requirements: node.kubernetes.io/windows-build In (10.0.17763), and the class selects \
               node.kubernetes.io/windows-build=10.0.20348",
            ],
        ),
        (build("NotIn", "10.0.20348"), "", &["windows-build NotIn (10.0.20348), and the class selects"]),
        (build("DoesNotExist", ""), "", &["windows-build DoesNotExist, and the class selects"]),
        (
            windows_and(&requirement("kubernetes.io/arch", "In", "arm64")),
            "",
            &["the class selects kubernetes.io/arch=amd64"],
        ),
        (
            windows_and(&requirement("kubernetes.io/os", "In", "linux")),
            "",
            &["contradictory: kubernetes.io/os", "os=windows"],
        ),
        ("requirements: [{key: beta.kubernetes.io/os, operator: In, values: [linux]}]".to_owned(), "", &["os=windows"]),
        (
            windows_and("") + ", taints: [{key: gpu, value: \"on\", effect: NoSchedule}]",
            "",
            &["spec.template.spec.taints: gpu=on:NoSchedule is not tolerated"],
        ),
        (windows_and("") + ", taints: [{key: gpu, effect: PreferNoSchedule}]", "", &[]),
        (windows_and("") + ", taints: [{key: os, value: windows, effect: NoSchedule}]", "", &[]),
        (windows_and("") + ", startupTaints: [{key: cni, effect: NoSchedule}]", "", &[]),
        (windows_and(""), "limits: {cpu: 0}", &["spec.limits.cpu is 0"]),
        (windows_and(""), "limits: {cpu: \"10\", memory: 0Gi}", &["spec.limits.memory is 0"]),
        (windows_and(""), "replicas: 2", &["spec.replicas: a static NodePool"]),
        ("requirements: 7".to_owned(), "", &["it cannot be read"]),
    ] {
        let explanation = explain(&read(&node_pool(&template, spec)), "windows-2022", &class_2022());
        let missing = &explanation.templates[0].missing;
        assert_eq!(missing.len(), expected.len(), "{template} {spec}: {missing:#?}");
        for part in expected {
            assert!(missing.iter().any(|line| line.contains(part)), "{template} {spec}: {missing:#?} without {part}");
        }
        assert_eq!(explanation.can_scale_from_zero, Some(expected.is_empty()), "{template} {spec}");
    }
}

#[test]
fn the_node_class_tells_system_and_build() {
    for (spec, serves, missing) in [
        ("amiFamily: Windows2022", Some(true), ""),
        ("amiSelectorTerms: [{alias: windows2022@latest}]", Some(true), ""),
        ("amiFamily: Custom", None, ""),
        ("amiFamily: Windows2019", Some(false), "EC2NodeClass win: node.kubernetes.io/windows-build In (10.0.17763)"),
        ("amiSelectorTerms: [{alias: windows2025@latest}]", Some(false), "In (10.0.26100)"),
        ("amiFamily: AL2023", Some(false), "EC2NodeClass win: kubernetes.io/os In (linux)"),
        ("amiSelectorTerms: [{alias: al2023@v20250101}]", Some(false), "EC2NodeClass win: kubernetes.io/os In (linux)"),
    ] {
        let pool = node_pool("requirements: []", "");
        let explanation = explain(&read(&format!("{pool}---\n{}", node_class(spec))), "windows-2022", &class_2022());
        let [template] = explanation.templates.as_slice() else { panic!("{explanation:?}") };
        assert_eq!(template.serves, serves, "{spec}: {template:?}");
        assert!(template.missing.join("\n").contains(missing), "{spec}: {template:?}");
    }
    let other = node_pool("requirements: []", "").replace("name: win", "name: gone");
    let explanation =
        explain(&read(&format!("{other}---\n{}", node_class("amiFamily: Windows2022"))), "a", &class_2022());
    assert_eq!(explanation.templates[0].missing, ["spec.template.spec.nodeClassRef: there is no EC2NodeClass gone"]);
}

#[test]
fn the_image_family_of_an_aks_node_class_tells_system_and_build() {
    let pool = node_pool("requirements: []", "").replace("karpenter.k8s.aws", "karpenter.azure.com");
    let pool = pool.replace("EC2NodeClass", "AKSNodeClass");
    for (spec, serves) in [
        ("imageFamily: Windows2022", Some(true)),
        ("imageFamily: Windows2025", Some(false)),
        ("imageFamily: Ubuntu2404", Some(false)),
        ("", None),
    ] {
        let class = node_class(spec).replace("karpenter.k8s.aws/v1", "karpenter.azure.com/v1beta1");
        let class = class.replace("EC2NodeClass", "AKSNodeClass");
        let explanation = explain(&read(&format!("{pool}---\n{class}")), "windows-2022", &class_2022());
        assert_eq!(explanation.templates[0].serves, serves, "{spec}: {explanation:?}");
    }
}

#[test]
fn a_label_that_no_instance_type_has_must_stand_in_the_template() {
    let class = class(&json!({"runs.winpool.dev/10.0.20348": "true", "topology.kubernetes.io/zone": "a"}));
    let zone = requirement("topology.kubernetes.io/zone", "In", "a, b");
    let without = node_pool(&format!("requirements: [{WINDOWS}, {zone}]"), "");
    let explanation = explain(&read(&without), "apps", &class);
    let expected = "spec.template.metadata.labels: add runs.winpool.dev/10.0.20348: \"true\", which the class selects";
    assert_eq!(explanation.templates[0].missing, [expected]);
    let label = "metadata: {labels: {runs.winpool.dev/10.0.20348: \"true\"}}, spec: {nodeClassRef";
    let with = without.replace("spec: {nodeClassRef", label);
    assert_eq!(explain(&read(&with), "apps", &class).can_scale_from_zero, Some(true), "{with}");
}

#[test]
fn a_condition_on_instance_types_is_no_promise() {
    let warnings = |template: &str, class_spec: &str| {
        let all = format!("{}---\n{}", node_pool(template, ""), node_class(class_spec));
        let explanation = explain(&read(&all), "windows-2022", &class_2022());
        let warnings = explanation.templates[0].warnings.clone();
        assert_eq!(explanation.can_scale_from_zero, warnings.is_empty().then_some(true), "{all}");
        warnings
    };
    let build = requirement("node.kubernetes.io/windows-build", "In", "10.0.20348");
    assert_eq!(warnings(&format!("requirements: [{WINDOWS}, {build}]"), "amiFamily: Custom"), Vec::<String>::new());
    assert_eq!(warnings("requirements: []", "amiFamily: Windows2022"), Vec::<String>::new());
    let [system, build] = &warnings("requirements: []", "amiFamily: Custom")[..] else { panic!() };
    assert!(system.contains("does not name the kubernetes.io/os") && build.contains("does not name the build"));
    for operator in ["NotIn", "Exists"] {
        let build = requirement("node.kubernetes.io/windows-build", operator, "10.0.17763");
        assert_eq!(
            warnings(&format!("requirements: [{WINDOWS}, {build}]"), "amiFamily: Custom").len(),
            1,
            "{operator}"
        );
    }
}

#[test]
fn templates_of_cluster_autoscaler_are_read_from_manifests() {
    let tag = |part: &str, value: &str| format!("k8s.io/cluster-autoscaler/node-template/{part}: {value:?}");
    let os = tag("label/kubernetes.io/os", "windows");
    let build = tag("label/node.kubernetes.io/windows-build", "10.0.20348");
    let (taint, gpu) = (tag("taint/os", "windows:NoSchedule"), tag("taint/gpu", "on:NoSchedule"));
    let group = |body: &str| format!("apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\n{body}\n");
    let labels = "labels: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}";
    let annotations = "capacity.cluster-autoscaler.kubernetes.io/labels: \"kubernetes.io/os=windows,\
                       node.kubernetes.io/windows-build=10.0.20348\"";
    let machines = |more: &str| {
        format!(
            "apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineDeployment\n\
             metadata: {{name: win, annotations: {{{annotations}{more}}}}}\n"
        )
    };
    for (manifest, missing) in [
        (group(&format!("nodeGroups: [{{name: win, tags: {{{os}, {build}, {taint}}}}}]")), None),
        (
            group(&format!("nodeGroups: [{{name: win, tags: {{{os}}}}}]")),
            Some("tags: add node.kubernetes.io/windows-build: \"10.0.20348\""),
        ),
        (group(&format!("nodeGroups: [{{name: win, tags: {{{os}, {build}, {gpu}}}}}]")), Some("gpu=on:NoSchedule")),
        (group(&format!("nodeGroups: [{{name: win, {labels}}}]")), Some("tags: add kubernetes.io/os")),
        (group(&format!("nodeGroups: [{{name: win, propagateASGTags: true, {labels}}}]")), None),
        (group(&format!("managedNodeGroups: [{{name: win, {labels}}}]")), None),
        (machines(""), None),
        (
            machines(", capacity.cluster-autoscaler.kubernetes.io/taints: gpu=on:NoSchedule"),
            Some("metadata.annotations: gpu=on:NoSchedule is not tolerated"),
        ),
    ] {
        let explanation = explain(&read(&manifest), "windows-2022", &class_2022());
        let [template] = explanation.templates.as_slice() else { panic!("{manifest}: {explanation:?}") };
        assert_eq!(template.serves, Some(missing.is_none()), "{manifest}: {template:?}");
        assert!(template.missing.join("\n").contains(missing.unwrap_or_default()), "{manifest}: {template:?}");
    }
}

#[test]
fn without_read_permission_the_answer_is_unknown() {
    let class = class_2022();
    assert_eq!(explain(&read("kind: ConfigMap\napiVersion: v1"), "a", &class).can_scale_from_zero, None);
    let build = requirement("node.kubernetes.io/windows-build", "In", "10.0.20348");
    let pool = node_pool(&format!("requirements: [{WINDOWS}, {build}]"), "");
    let linux = node_pool("requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]", "");
    for (yaml, expected) in [(&pool, Some(true)), (&linux, None)] {
        let objects = serde_yaml::from_multiple::<Value>(yaml).unwrap();
        let partly = Autoscalers::read(&objects, vec!["EC2NodeClasses cannot be listed".to_owned()]);
        assert_eq!(explain(&partly, "a", &class).can_scale_from_zero, expected);
    }
}
