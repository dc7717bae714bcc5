//! The fields that pin workloads to a Windows version.

use serde_json::{Value, json};
use winpool_analysis::explain::blockers::{
    Blocker, Evidence, Group, RetiredWindows, blockers, departure, pool_blockers, unknown_class,
};
use winpool_analysis::lint::Facts;
use winpool_analysis::view::{Known, View};
use winpool_analysis::workload::WorkloadManifest;
use winpool_core::api::WindowsPool;
use winpool_core::windows::Build;
use winpool_core::windows::builds::by_version;

use super::{cluster, manifests, node, running, view, workload};

fn pins(spec: &Value, facts: &Facts, target: Option<u32>) -> Vec<String> {
    let object = workload("Deployment", spec);
    let found =
        blockers(&WorkloadManifest::read(&object).unwrap().unwrap(), facts, Build::new(17763), target.map(Build::new));
    lines(found)
}

fn lines(found: Option<Blocker>) -> Vec<String> {
    let pins = found.into_iter().flat_map(|blocker| blocker.pins);
    pins.map(|pin| format!("{:?} {}: {} -> {}", pin.by, pin.field, pin.value, pin.remedy.text)).collect()
}

fn pool_pins(spec: &Value, facts: &Facts, target: Option<u32>) -> Vec<String> {
    let object =
        json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "p"}, "spec": spec});
    let pool: WindowsPool = serde_json::from_value(object).unwrap();
    lines(pool_blockers(&pool, facts, Build::new(17763), target.map(Build::new)))
}

fn affinity(values: &[&str]) -> Value {
    let expression = json!({"key": "node.kubernetes.io/windows-build", "operator": "In", "values": values});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
}

#[test]
fn selector_affinity_class_and_image_pin_and_each_says_what_to_write() {
    let facts = cluster(&[], &[json!({})], &[]);
    let all = json!({
        "nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763"}, "runtimeClassName": "windows-2019",
        "affinity": affinity(&["10.0.17763"])["affinity"],
        "containers": [{"image": "mcr.microsoft.com/windows/servercore:ltsc2019"}, {"image": "app:1.0"}],
    });
    insta::assert_snapshot!(pins(&all, &facts, Some(26100)).join("\n"), @"
    Selector spec.template.spec.nodeSelector: node.kubernetes.io/windows-build: 10.0.17763 -> set nodeSelector node.kubernetes.io/windows-build: 10.0.26100
    Affinity spec.template.spec.affinity.nodeAffinity: node.kubernetes.io/windows-build in 10.0.17763 -> allow 10.0.26100 in node.kubernetes.io/windows-build of the node affinity
    Class spec.template.spec.runtimeClassName: windows-2019 -> set runtimeClassName: windows-2025
    Image spec.template.spec.containers[0].image: mcr.microsoft.com/windows/servercore:ltsc2019 -> set containers[0].image: mcr.microsoft.com/windows/servercore:ltsc2025, once it exists
    ");
    insta::assert_snapshot!(pins(&all, &Facts::none(), None).join("\n"), @"
    Selector spec.template.spec.nodeSelector: node.kubernetes.io/windows-build: 10.0.17763 -> remove nodeSelector node.kubernetes.io/windows-build, or name another build
    Affinity spec.template.spec.affinity.nodeAffinity: node.kubernetes.io/windows-build in 10.0.17763 -> allow another build in node.kubernetes.io/windows-build of the node affinity
    Image spec.template.spec.containers[0].image: mcr.microsoft.com/windows/servercore:ltsc2019 -> build the image for another version
    ");
}

#[test]
fn a_workload_that_may_run_elsewhere_is_not_pinned() {
    let facts = cluster(&[], &[json!({})], &[]);
    for spec in [
        json!({}),
        json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}}),
        affinity(&["10.0.17763", "10.0.20348"]),
        json!({"runtimeClassName": "windows-2022"}),
        json!({"containers": [{"image": "app:ltsc2022"}]}),
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}}, "containers": [{"image": "app:ltsc2019"}]}),
    ] {
        assert_eq!(pins(&spec, &facts, None), [""; 0], "{spec}");
    }
}

#[test]
fn a_workload_that_selects_a_build_that_runs_its_image_has_moved() {
    let retire_2022 = |spec: Value, facts: &Facts| {
        let object = workload("Deployment", &spec);
        blockers(&WorkloadManifest::read(&object).unwrap().unwrap(), facts, Build::new(20348), None).is_some()
    };
    let facts = cluster(&[], &[json!({})], &[]);
    let of = |class: &str| json!({"runtimeClassName": class, "containers": [{"image": "app:ltsc2022"}]});
    assert!(!retire_2022(of("windows-2025"), &facts), "2025 runs images of 2022");
    assert!(retire_2022(of("windows-2019"), &facts), "an earlier revision may still run on 2022");
    let hyperv = json!({
        "metadata": {"name": "hyperv"}, "handler": "runhcs-wcow-hypervisor",
        "scheduling": {"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}},
    });
    let by_hyperv = json!({"runtimeClassName": "hyperv", "containers": [{"image": "app:ltsc2019"}]});
    assert_eq!(pins(&by_hyperv, &cluster(&[], &[], &[hyperv]), None), [""; 0]);
}

#[test]
fn labels_that_only_nodes_of_the_version_have_pin_a_workload() {
    let nodes = [("10.0.17763", "old"), ("10.0.17763", "both"), ("10.0.20348", "both"), ("10.0.20348", "new")];
    let facts = Facts::of(&view(nodes.map(|(build, group)| node(build, &[], &[("group", group)]))));
    let of = |group: &str| json!({"nodeSelector": {"kubernetes.io/os": "windows", "group": group}});
    let changes = |target| pins(&of("old"), &facts, Some(target));
    assert_eq!(changes(20348), ["Selector spec.template.spec.nodeSelector: group: old -> set nodeSelector group: new"]);
    let change = "select nodes of 10.0.26100; now only nodes of 10.0.17763 match";
    assert_eq!(changes(26100), [format!("Selector spec.template.spec.nodeSelector: group: old -> {change}")]);
    let expression = json!({"key": "group", "operator": "NotIn", "values": ["both", "new"]});
    let by_affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}});
    let by_affinity = json!({"os": {"name": "windows"}, "affinity": by_affinity["affinity"]});
    assert!(
        pins(&by_affinity, &facts, None)[0].starts_with("Affinity spec.template.spec.affinity.nodeAffinity: allows")
    );
    // Linux nodes may have the label too.
    let unsaid = json!({"nodeSelector": {"group": "old"}});
    for spec in [of("both"), of("new"), of("none"), unsaid, json!({"nodeSelector": {"kubernetes.io/os": "windows"}})] {
        assert_eq!(pins(&spec, &facts, None), [""; 0], "{spec}");
    }
    let mut nodes = [node("10.0.17763", &[], &[]), node("10.0.20348", &[], &[])];
    nodes[0].object.name = "win-1".into();
    let (named, facts) = (|name: &str| json!({"os": {"name": "windows"}, "nodeName": name}), Facts::of(&view(nodes)));
    let change = "remove nodeName, or name one of the nodes of 10.0.20348";
    let pin = format!("NodeName spec.template.spec.nodeName: win-1 -> {change}");
    assert_eq!(pins(&named("win-1"), &facts, Some(20348)), [pin]);
    assert_eq!(pins(&named("win-2"), &facts, Some(20348)), [""; 0]);
    let alone = Facts::of(&view([node("10.0.17763", &[], &[("group", "old")])]));
    assert_eq!(pins(&of("old"), &alone, None).len(), 1, "nodes of another version need the label first");
    let of_cloud = json!({"nodeSelector": {"kubernetes.azure.com/os-sku": "Windows2019"}});
    assert_eq!(pins(&of_cloud, &alone, None).len(), 1, "no node of another version ever has it");
}

#[test]
fn a_pool_is_pinned_by_the_classes_that_it_declares_gives_out_and_names() {
    let spec = json!({
        "runtimeClasses": [
            {"name": "new", "version": "2022"}, {"name": "old", "version": "2019"},
            {"name": "isolated", "build": "10.0.17763", "isolation": "HyperV"},
        ],
        "podDefaults": {"runtimeClassName": "old"},
        "buildNames": [{"build": "10.0.29000", "version": "preview"}, {"build": "10.0.17763", "version": "legacy"}],
    });
    insta::assert_snapshot!(pool_pins(&spec, &Facts::none(), Some(20348)).join("\n"), @"
    Declared spec.runtimeClasses[1].version: 2019 -> declare a class of 10.0.20348, and remove the class old once no pod uses it
    Declared spec.runtimeClasses[2].build: 10.0.17763 -> declare a class of 10.0.20348, and remove the class isolated once no pod uses it
    PodDefault spec.podDefaults.runtimeClassName: old -> set podDefaults.runtimeClassName: new
    NamedBuild spec.buildNames[1]: 10.0.17763: legacy -> remove it with the last node of this build
    ");
    insta::assert_snapshot!(pool_pins(&spec, &Facts::none(), None).join("\n"), @"
    Declared spec.runtimeClasses[1].version: 2019 -> remove the class old once no pod uses it
    Declared spec.runtimeClasses[2].build: 10.0.17763 -> remove the class isolated once no pod uses it
    PodDefault spec.podDefaults.runtimeClassName: old -> name a RuntimeClass of another build
    NamedBuild spec.buildNames[1]: 10.0.17763: legacy -> remove it with the last node of this build
    ");
}

#[test]
fn a_default_class_pins_a_pool_even_if_it_does_not_exist() {
    let spec = json!({"podDefaults": {"runtimeClassName": "windows-2019"}});
    let there = cluster(&[("10.0.17763", &[])], &[json!({})], &[]);
    for facts in [Facts::none(), there] {
        assert_eq!(
            pool_pins(&spec, &facts, Some(26100)),
            [
                "PodDefault spec.podDefaults.runtimeClassName: windows-2019 -> set podDefaults.runtimeClassName: windows-2025"
            ]
        );
    }
    let alone = json!({"podDefaults": {"runtimeClassName": "windows-2019"}, "runtimeClassDiscovery": "Disabled"});
    assert_eq!(pool_pins(&alone, &Facts::none(), Some(26100)), [""; 0]);
    for spec in [
        json!({}),
        json!({"podDefaults": {"runtimeClassName": "windows-2022"}}),
        json!({"runtimeClasses": [{"name": "any", "version": "Any"}], "podDefaults": {"runtimeClassName": "any"}}),
        json!({"runtimeClasses": [{"name": "windows-2019", "version": "2022"}], "podDefaults": {"runtimeClassName": "windows-2019"}}),
    ] {
        assert_eq!(pool_pins(&spec, &Facts::none(), None), [""; 0], "{spec}");
    }
}

#[test]
fn images_of_2022_may_stay_on_2025() {
    let spec = json!({"os": {"name": "windows"}, "containers": [{"image": "app:ltsc2022"}]});
    let object = workload("Deployment", &spec);
    let workload = WorkloadManifest::read(&object).unwrap().unwrap();
    let (retired, target) = (Build::new(20348), Some(Build::new(26100)));
    let cluster = |build: &str, runtime: Option<&str>| Facts::of(&view([running(runtime, node(build, &[], &[]))]));
    let unknown = [Facts::none(), cluster("10.0.26100", None), cluster("10.0.26100", Some("containerd://1.7.18"))];
    for facts in unknown {
        let found = blockers(&workload, &facts, retired, target).unwrap();
        insta::allow_duplicates! {
            insta::assert_snapshot!(found.pins[0].remedy.text, @"set containers[0].image: app:ltsc2025, once it exists; may stay where containerd is 1.7.19 or later");
        }
    }
    // The nodes of today show which containerd the next ones have.
    for build in ["10.0.20348", "10.0.26100"] {
        let facts = cluster(build, Some("containerd://2.0.4"));
        assert_eq!(blockers(&workload, &facts, retired, target), None);
        let started = [retired].into();
        let moves = departure(&workload, &facts, retired, target, &started);
        assert_eq!(moves, Some(Group::CanMove(Evidence::Tag)));
        assert_eq!(departure(&workload, &cluster(build, None), retired, target, &started), Some(Group::Unknown(
            "nodes of Windows Server 2025 run images of Windows Server 2022 if their containerd is 1.7.19 or later, which is not known".to_owned()
        )));
    }
}

#[test]
fn a_version_comes_with_its_dates_and_its_nodes() {
    let facts = cluster(&[("10.0.17763", &[]), ("10.0.17763", &["a=b:NoSchedule"]), ("10.0.20348", &[])], &[], &[]);
    insta::assert_yaml_snapshot!(RetiredWindows::of(by_version("2019").unwrap(), &facts), @r#"
    build: 10.0.17763
    product: Windows Server 2019
    mainstreamEnd: 2024-01-09
    endOfSupport: 2029-01-09
    kubernetes: "1.36"
    kubernetesSupport: Unlisted
    nodeCount: 2
    "#);
}

#[test]
fn a_workload_whose_class_is_not_known_may_be_pinned() {
    let of = |spec: Value, facts: &Facts| {
        let object = workload("Deployment", &spec);
        let workload = WorkloadManifest::read(&object).unwrap().unwrap();
        unknown_class(&workload, facts).map(str::to_owned)
    };
    let by_class = json!({"runtimeClassName": "windows-2019"});
    assert_eq!(of(by_class.clone(), &Facts::none()).as_deref(), Some("windows-2019"));
    assert_eq!(of(by_class, &cluster(&[], &[json!({})], &[])), None, "a pool makes it");
    let mut hidden = manifests(&[], &[json!({})], &[]);
    hidden.classes = Known::Forbidden("runtimeclasses is forbidden".to_owned());
    assert_eq!(of(json!({"runtimeClassName": "legacy"}), &Facts::of(&hidden)).as_deref(), Some("legacy"));
    let linux = json!({"runtimeClassName": "gvisor", "nodeSelector": {"kubernetes.io/os": "linux"}});
    assert_eq!(of(linux, &Facts::none()), None);
    let selects = json!({"runtimeClassName": "w", "nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}});
    assert_eq!(of(selects, &Facts::none()), None, "its own selector says more");
}

#[test]
fn a_workload_without_a_pin_can_move_only_with_evidence() {
    use Evidence::{HostProcess, RunsThere, StartsHere, Tag};
    const OLD: u32 = 20348;
    const NEW: u32 = 26100;
    const NO_VERSION: &str = "image erp:7.3 names no Windows version; --resolve-images asks the registries";
    let nodes = ["10.0.20348", "10.0.26100"].map(|build| running(Some("containerd://2.0.4"), node(build, &[], &[])));
    let facts = Facts::of(&view(nodes));
    let of = |spec: Value, started: &[u32], target: Option<u32>| {
        let object = workload("Deployment", &spec);
        let started = started.iter().copied().map(Build::new).collect();
        let workload = WorkloadManifest::read(&object).unwrap().unwrap();
        departure(&workload, &facts, Build::new(OLD), target.map(Build::new), &started)
    };
    let windows =
        |image: &str| json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"image": image}]});
    let host_process =
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}}, "containers": [{"image": "a"}]});
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "containers": [{"image": "a"}]});
    for (spec, started, target, expected) in [
        (host_process, &[][..], None, Some(Group::CanMove(HostProcess))),
        (windows("erp:7.3"), &[OLD, NEW], Some(NEW), Some(Group::CanMove(RunsThere))),
        (windows("erp:7.3"), &[OLD], Some(NEW), Some(Group::CanMove(StartsHere))),
        (windows("erp:7.3-ltsc2022"), &[], Some(NEW), Some(Group::CanMove(Tag))),
        (windows("erp:7.3-ltsc2025"), &[], Some(NEW), None),
        (windows("erp:7.3"), &[], None, Some(Group::Unknown(NO_VERSION.to_owned()))),
        (windows("erp:7.3"), &[], Some(NEW), Some(Group::Unknown(NO_VERSION.to_owned()))),
        (windows("erp:7.3"), &[NEW], None, None),
        (windows("erp:7.3-ltsc2022"), &[], None, None),
        (linux, &[], Some(NEW), None),
        (json!({"containers": [{"image": "erp"}]}), &[], Some(NEW), None),
        (json!({"containers": [{"image": "erp"}]}), &[OLD], Some(NEW), Some(Group::CanMove(StartsHere))),
    ] {
        assert_eq!(of(spec.clone(), started, target), expected, "{spec} {started:?}");
    }
    let Some(Group::Unknown(why)) = of(windows("erp:7.3"), &[OLD], None) else { panic!("nobody knows") };
    assert_eq!(why, NO_VERSION);
}

#[test]
fn what_a_namespace_selects_pins_its_workloads() {
    let facts = |selector: &str| {
        let nodes = [node("10.0.17763", &[], &[("team", "a")]), node("10.0.20348", &[], &[("team", "b")])];
        let selector = [("openshift.io/node-selector".to_owned(), selector.to_owned())];
        let namespace_labels = [("shop".to_owned(), selector.into())].into();
        Facts::of(&View { namespace_labels, ..view(nodes) })
    };
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"image": "app:1.0"}]});
    let added = "for all pods: change its node selector, or use another namespace";
    for (selector, pinned) in [
        ("node.kubernetes.io/windows-build=10.0.17763", Some("node.kubernetes.io/windows-build=10.0.17763")),
        ("team=a", Some("team=a")),
        ("node.kubernetes.io/windows-build=10.0.20348", None),
        ("kubernetes.io/os=windows", None),
        ("kubernetes.io/os=linux", None),
    ] {
        let pin = |label| format!("Admission metadata.namespace: shop -> namespace shop selects {label} {added}");
        assert_eq!(pins(&spec, &facts(selector), Some(20348)), Vec::from_iter(pinned.map(pin)), "{selector}");
    }
}
