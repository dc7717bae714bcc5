//! Rules that need to know nodes, pools or RuntimeClasses.

use std::collections::BTreeMap;
use std::slice::from_ref;

use serde_json::{Value, json};
use winpool_analysis::finding::Consequence::{self, Note, Pending};
use winpool_analysis::finding::Finding;
use winpool_analysis::finding::Severity::{self, Error, Warning};
use winpool_analysis::lint::Facts;
use winpool_analysis::remedy::Rank;
use winpool_analysis::view::{Known, Reduced, View};
use winpool_core::api::{WindowsPool, WindowsPoolSpec, WindowsPoolStatus};
use winpool_core::node::NodeFields;

use super::{broken, cluster, findings, manifests, node, running, seen, view, workload};
use crate::common::now;

pub const CLUSTER_TAINT: &[&str] = &["os=windows:NoSchedule"];
const TAINT: &[&str] = CLUSTER_TAINT;

pub fn class(name: &str, build: &str) -> Value {
    let selector = json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": build});
    let tolerations = json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    json!({"metadata": {"name": name}, "handler": "runhcs-wcow-process", "scheduling": {"nodeSelector": selector, "tolerations": tolerations}})
}

/// Two builds, a pool, and its classes.
fn two_builds() -> Facts {
    let nodes = [("10.0.17763", TAINT), ("10.0.20348", TAINT)];
    cluster(&nodes, &[json!({})], &[class("windows-2019", "10.0.17763"), class("windows-2022", "10.0.20348")])
}

fn selecting(build: &str) -> Value {
    json!({
        "os": {"name": "windows"}, "tolerations": [{"key": "os", "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build},
    })
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

#[test]
fn correct_workloads_have_no_findings() {
    let by_class =
        json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2022", "containers": [{"image": "a:ltsc2022"}]});
    for facts in [two_builds(), cluster(&[], &[json!({})], &[]), Facts::none()] {
        assert_eq!(broken("Deployment", &by_class, &facts), [""; 0]);
        for kind in ["Deployment", "DaemonSet", "Pod", "Job"] {
            assert_eq!(broken(kind, &selecting("10.0.20348"), &facts), [""; 0], "{kind}");
        }
        assert_eq!(broken("Deployment", &json!({}), &facts), [""; 0], "tainted nodes keep Linux pods off");
    }
}

#[test]
fn a_toleration_is_missing_if_no_node_is_left() {
    let intolerant = with(selecting("10.0.20348"), "tolerations", json!([]));
    assert_eq!(broken("Deployment", &intolerant, &two_builds()), ["toleration-missing"]);
    let foreign =
        cluster(&[("10.0.20348", &["os=Windows:NoSchedule", "node.kubernetes.io/not-ready:NoSchedule"])], &[], &[]);
    let found = findings(&workload("Deployment", &intolerant), &foreign);
    assert_eq!(found.len(), 1);
    insta::assert_snapshot!(found[0].message, @"the pod does not tolerate the taints of any Windows node that it selects: os=Windows:NoSchedule");
    insta::assert_snapshot!(found[0].remedy.text, @"add the toleration {key: os, operator: Equal, value: Windows, effect: NoSchedule}");
    // One node without taints is enough, unless it is of another build.
    let open = cluster(&[("10.0.20348", &[]), ("10.0.20348", TAINT)], &[], &[]);
    assert_eq!(broken("Deployment", &intolerant, &open), [""; 0]);
    let elsewhere = cluster(&[("10.0.17763", &[]), ("10.0.20348", TAINT)], &[], &[]);
    assert_eq!(broken("Deployment", &intolerant, &elsewhere), ["toleration-missing"]);
    // Without nodes it is the pools that tell.
    assert_eq!(broken("Deployment", &intolerant, &cluster(&[], &[json!({})], &[])), ["toleration-missing"]);
    assert_eq!(broken("Deployment", &intolerant, &cluster(&[], &[json!({"taintPolicy": "Never"})], &[])), [""; 0]);
    assert_eq!(broken("Deployment", &intolerant, &Facts::none()), ["toleration-unknown"]);
    assert_eq!(broken("Pod", &with(intolerant, "nodeName", json!("win-1")), &two_builds()), [""; 0]);
}

#[test]
fn a_toleration_with_an_unknown_operator_is_reported_as_unknown() {
    let unclear = with(selecting("10.0.20348"), "tolerations", json!([{"key": "os", "operator": "Gt", "value": "1"}]));
    for kind in ["Deployment", "DaemonSet"] {
        for facts in [two_builds(), Facts::none()] {
            assert_eq!(broken(kind, &unclear, &facts), ["toleration-operator-unknown"], "{kind}");
        }
    }
    let unsaid = json!({"tolerations": unclear["tolerations"]});
    assert_eq!(broken("Deployment", &unsaid, &two_builds()), [""; 0], "the taint may keep it off");
}

#[test]
fn what_a_pool_wants_has_to_be_tolerated_before_it_is_on_the_nodes() {
    let intolerant = with(selecting("10.0.20348"), "tolerations", json!([]));
    for pool in [json!({}), json!({"mode": "DryRun"}), json!({"taintPolicy": "TaintOnly"})] {
        let facts = cluster(&[("10.0.20348", &[])], from_ref(&pool), &[]);
        assert_eq!(broken("Deployment", &intolerant, &facts), ["toleration-missing"], "{pool}");
        assert_eq!(broken("DaemonSet", &intolerant, &facts), ["daemon-set-toleration-missing"], "{pool}");
    }
    for pool in [json!({"taintPolicy": "Never"}), json!({"nodeSelector": {"team": "b"}})] {
        let facts = cluster(&[("10.0.20348", &[])], from_ref(&pool), &[]);
        assert_eq!(broken("Deployment", &intolerant, &facts), [""; 0], "{pool}");
    }
    // A toleration with an operator that winpool does not know may tolerate it.
    let unclear = with(intolerant.clone(), "tolerations", json!([{"key": "os", "operator": "Gt", "value": "1"}]));
    assert_eq!(
        broken("Deployment", &unclear, &cluster(&[("10.0.20348", TAINT)], &[], &[])),
        ["toleration-operator-unknown"]
    );
    // The pool takes the old spelling off, so only the wanted taint is named.
    let taints = json!([{"key": "example.com/os", "value": "win", "effect": "NoSchedule"}]);
    let retired = json!([{"key": "os", "value": "Win1809", "effect": "NoSchedule"}]);
    let moving = cluster(
        &[("10.0.20348", &["os=Win1809:NoSchedule"])],
        &[json!({"taints": taints, "retiredTaints": retired})],
        &[],
    );
    let found = findings(&workload("Deployment", &intolerant), &moving);
    insta::assert_snapshot!(found[0].remedy.text, @"set runtimeClassName: windows-2022");
}

#[test]
fn the_taints_of_a_node_are_those_that_the_operator_leaves_there() {
    let intolerant = with(selecting("10.0.20348"), "tolerations", json!([]));
    let recorded = r#"{"pool": "default", "taints": ["os=windows:NoSchedule"]}"#;
    let found = |pool: Value, taint: &str, record: Option<&str>, ignore: Option<&str>| {
        let mut view = manifests(&[("10.0.20348", &[taint])], &[pool], &[]);
        for seen in view.nodes.known_mut().into_iter().flatten() {
            let node = &mut seen.object.node;
            (node.applied, node.ignore) = (record.map(Into::into), ignore.map(Into::into));
        }
        broken("Deployment", &intolerant, &Facts::of(&view)).join(" ")
    };
    let never = || json!({"taintPolicy": "Never"});
    let other = || json!({"taints": [{"key": "example.com/other", "effect": "PreferNoSchedule"}]});
    let os_windows = "os=windows:NoSchedule";
    for (case, pool, taint, record, ignore, expected) in [
        ("winpool removes what it added", never(), os_windows, Some(recorded), None, ""),
        ("no pool and no status records the taint", other(), os_windows, Some(recorded), None, "toleration-missing"),
        ("the taint is another writer's", never(), os_windows, None, None, "toleration-missing"),
        ("the node is ignored", never(), os_windows, Some(recorded), Some("true"), "toleration-missing"),
        ("an ignored node gets no taint", json!({}), "example.com/soft:PreferNoSchedule", None, Some("true"), ""),
        ("a soft taint guards nothing", json!({}), "os=windows:PreferNoSchedule", None, None, "toleration-missing"),
    ] {
        assert_eq!(found(pool, taint, record, ignore), expected, "{case}");
    }
}

/// The severity and consequence of the finding about a toleration that is missing.
fn verdict(object: &Value, mut view: View) -> (Severity, Consequence) {
    view.written.add(None, Reduced::from(object.clone()));
    let mut facts = Facts::of(&view);
    facts.read_workloads(&view, now());
    let found = findings(object, &facts);
    let of_toleration = |found: &&Finding| found.rule.ends_with("toleration-missing");
    let found = found.iter().find(of_toleration).unwrap_or_else(|| panic!("{object:#}: {found:?}"));
    assert_eq!(found.message.ends_with(" adds the toleration to each new pod"), found.severity == Warning);
    (found.severity, found.consequence)
}

#[test]
fn a_toleration_that_winpool_adds_is_no_error() {
    let (error, warning) = ((Error, Pending), (Warning, Note));
    let intolerant = with(selecting("10.0.20348"), "tolerations", json!([]));
    let on = |taints: &[&str], pool: &Value| manifests(&[("10.0.20348", taints)], from_ref(pool), &[]);
    let without_nodes = |pool: &Value| manifests(&[], from_ref(pool), &[]);
    let (default, only) = (json!({}), json!({"taintPolicy": "TaintOnly"}));
    let dry = json!({"mode": "DryRun"});
    let views: [(&dyn Fn() -> View, _); 13] = [
        (&|| on(&[], &default), warning),
        (&|| on(TAINT, &default), warning),
        (&|| on(&[], &dry), warning),
        (&|| without_nodes(&default), warning),
        // A pool in dry run adds no toleration for a taint that is there.
        (&|| on(TAINT, &dry), error),
        (&|| on(&[], &only), error),
        (&|| on(TAINT, &only), error),
        (&|| without_nodes(&only), error),
        (&|| manifests(&[], &[default.clone(), only.clone()], &[]), error),
        (&|| manifests(&[("10.0.20348", TAINT)], &[], &[]), error),
        // A node of no pool, and a taint that does not mark Windows nodes.
        (&|| on(TAINT, &json!({"nodeSelector": {"team": "b"}})), error),
        (&|| on(&["team=a:NoSchedule"], &default), error),
        (&|| on(&["os=windows:NoExecute"], &default), error),
    ];
    for (index, (view, expected)) in views.into_iter().enumerate() {
        let of = |kind: &str| verdict(&workload(kind, &intolerant), view());
        assert_eq!(of("Deployment"), expected, "{index}");
        if expected == warning {
            assert_eq!(of("DaemonSet"), error, "{index}");
        }
    }
    // Only its image says that the pod is for Windows, which winpool does not read.
    let by_image = json!({"containers": [{"image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]});
    assert_eq!(verdict(&workload("Deployment", &by_image), on(TAINT, &default)), error);
    // Only Windows nodes are of this group.
    let of_group = |group: &str| {
        let mut view = on(&[], &default);
        view.nodes.add(node("10.0.17763", &[], &[("agentpool", "win")]));
        let pod = json!({"nodeSelector": {"agentpool": group}, "containers": [{"image": "app:ltsc2019"}]});
        verdict(&workload("Deployment", &pod), view)
    };
    assert_eq!((of_group("win"), of_group("none")), (warning, error));
    let mut ignored = workload("Deployment", &intolerant);
    ignored["spec"]["template"]["metadata"]["annotations"]["winpool.dev/ignore"] = json!("true");
    assert_eq!(verdict(&ignored, on(TAINT, &default)), error);
}

/// The remedy for a class that does not exist.
fn of_class(spec: &Value) -> String {
    let found = findings(&workload("Deployment", spec), &two_builds());
    found.into_iter().find(|found| found.rule == "class-not-found").unwrap().remedy.text
}

#[test]
fn remedies_name_the_class_that_is_meant() {
    let spec = |name: &str| json!({"os": {"name": "windows"}, "runtimeClassName": name});
    let remedy = |spec: &Value| findings(&workload("Deployment", spec), &two_builds())[0].remedy.text.clone();
    assert_eq!(of_class(&spec("windows-2202")), "set runtimeClassName: windows-2022");
    let image = json!([{"image": "mcr.microsoft.com/windows/servercore:ltsc2022"}]);
    assert_eq!(remedy(&json!({"containers": image})), "set os.name: windows; set runtimeClassName: windows-2022");
    let any = with(with(selecting(""), "nodeSelector", json!({"kubernetes.io/os": "windows"})), "containers", image);
    assert_eq!(remedy(&any), "set runtimeClassName: windows-2022");
    let host_process = json!({
        "os": {"name": "windows"}, "hostPID": true, "hostNetwork": true,
        "securityContext": {"windowsOptions": {"hostProcess": true}}, "nodeSelector": {"kubernetes.io/os": "windows"},
    });
    let found = findings(&workload("Deployment", &host_process), &Facts::none());
    let found = found.iter().find(|found| found.rule == "host-pid").unwrap();
    assert_eq!(found.remedy.text, "remove it: host-process containers have access to the host without it");
}

#[test]
fn a_discovered_class_is_suggested_before_a_declared_one() {
    let nodes: &[(&str, &[&str])] = &[("10.0.17763", TAINT), ("10.0.20348", TAINT)];
    let batch = json!({"runtimeClasses": [{"name": "batch", "version": "2022"}]});
    let facts = cluster(nodes, &[batch], &[]);
    assert!(facts.classes().contains_key("batch"), "it comes first by name");
    let image = json!([{"image": "app:ltsc2022"}]);
    let spec = json!({"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": image});
    for rule in ["toleration-missing", "build-not-selected"] {
        let found = findings(&workload("Deployment", &spec), &facts);
        let found = found.iter().find(|found| found.rule == rule).unwrap();
        assert_eq!(
            (found.remedy.text.as_str(), found.remedy.rank),
            ("set runtimeClassName: windows-2022", Rank::Certain)
        );
    }
    // A pod that asks for no build stays where it runs, and the DaemonSet controller ignores classes.
    let toleration = "add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}";
    let any = with(spec.clone(), "containers", json!([{"image": "app:1"}]));
    for (kind, spec) in [("Deployment", &any), ("DaemonSet", &spec)] {
        let found = findings(&workload(kind, spec), &facts);
        assert_eq!(
            found.iter().find(|found| found.rule.ends_with("toleration-missing")).unwrap().remedy.text,
            toleration
        );
    }
}

#[test]
fn a_pool_helps_the_pods_of_a_class_whose_nodes_were_upgraded() {
    let remedy = |build: &str, class_build: &str, pool: &str, image: &str| {
        let mut class = class("windows-2022", class_build);
        class["metadata"]["labels"] = json!({"winpool.dev/pool": pool});
        let mut view = manifests(&[(build, TAINT)], &[json!({})], &[class]);
        for node in view.nodes.known_mut().unwrap() {
            *node = running(Some("containerd://2.0.4"), node.clone());
        }
        let facts = Facts::of(&view);
        let spec =
            json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2022", "containers": [{"image": image}]});
        let found = findings(&workload("Deployment", &spec), &facts);
        found.into_iter().find(|found| found.rule == "build-without-node").unwrap().remedy.text
    };
    let (helps, other) = (
        "in WindowsPool default: set runtimeClassHostMatch: Compatible",
        "add such nodes, or move the pod to another build",
    );
    assert_eq!(remedy("10.0.26100", "10.0.20348", "default", "app:ltsc2022"), helps);
    assert_eq!(remedy("10.0.26100", "10.0.20348", "default", "app"), helps);
    assert_eq!(remedy("10.0.17763", "10.0.20348", "default", "app"), other);
    // No node runs the image, and the class is not winpool's.
    assert_eq!(remedy("10.0.26100", "10.0.20348", "default", "app:ltsc2019"), other);
    assert_eq!(remedy("10.0.26100", "10.0.20348", "", "app"), other);
}

#[test]
fn remedies_name_no_class_that_does_not_help() {
    let image = json!([{"image": "mcr.microsoft.com/windows/servercore:ltsc2025"}]);
    let newer = json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2025", "containers": image});
    assert_eq!(
        of_class(&newer),
        "add nodes that run the images, or declare the class in a WindowsPool's runtimeClasses"
    );

    let remedies = |spec: &Value| findings(&workload("DaemonSet", spec), &two_builds());
    for spec in [json!({"os": {"name": "windows"}}), json!({"containers": image})] {
        let found = remedies(&spec);
        assert!(
            !found.is_empty() && found.iter().all(|finding| !finding.remedy.text.contains("runtimeClassName")),
            "{found:?}"
        );
    }
}

#[test]
fn a_daemon_set_has_to_tolerate_every_taint_and_to_select_by_itself() {
    let foreign = cluster(&[("10.0.20348", TAINT), ("10.0.20348", &["windows=true:NoSchedule"])], &[], &[]);
    let found = findings(&workload("DaemonSet", &selecting("10.0.20348")), &foreign);
    assert_eq!(
        found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(),
        ["daemon-set-toleration-missing"]
    );
    insta::assert_snapshot!(found[0].message, @"the DaemonSet controller creates no pods for nodes with windows=true:NoSchedule, which the template does not tolerate, and reports no error; it ignores the tolerations of a RuntimeClass (kubernetes/kubernetes#111590); the pod tolerates os=windows, another spelling");
    assert_eq!(broken("Deployment", &selecting("10.0.20348"), &foreign), [""; 0]);

    let gpu = cluster(&[("10.0.20348", TAINT), ("10.0.20348", &["example.com/gpu=true:NoSchedule"])], &[], &[]);
    assert_eq!(broken("DaemonSet", &selecting("10.0.20348"), &gpu), [""; 0], "other taints may be for others");

    let by_class = json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2022"});
    let expected = ["daemon-set-toleration-missing", "daemon-set-relies-on-class"];
    assert_eq!(broken("DaemonSet", &by_class, &two_builds()), expected);
    let found = findings(&workload("DaemonSet", &by_class), &two_builds());
    insta::assert_snapshot!(found[1].remedy.text, @"set nodeSelector kubernetes.io/arch: amd64, kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348");
    let complete = with(
        with(selecting("10.0.20348"), "runtimeClassName", json!("windows-2022")),
        "nodeSelector",
        json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": "10.0.20348"}),
    );
    assert_eq!(broken("DaemonSet", &complete, &two_builds()), [""; 0]);
    // If the class is unknown, only the missing selector for Windows is reported.
    assert_eq!(broken("DaemonSet", &by_class, &Facts::none()), ["os-selector-missing", "toleration-unknown"]);
}

#[test]
fn a_class_has_to_be_there_and_to_go_with_the_pod() {
    let spec = |more: Value| {
        let mut spec = json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2022"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let facts = two_builds();
    // Another class may bring selector and toleration, or not.
    let missing = ["os-selector-missing", "toleration-missing", "class-not-found"];
    let found = findings(&workload("Deployment", &spec(json!({"runtimeClassName": "windows-2025"}))), &facts);
    assert_eq!(found.iter().map(|found| found.rule.as_str()).collect::<Vec<_>>(), missing);
    assert_eq!(found[2].remedy.text, "name one that exists (windows-2019, windows-2022), or declare it");
    // Without nodes a pool may make a class of every Windows version.
    let planned = cluster(&[], &[json!({})], &[]);
    assert_eq!(broken("Deployment", &spec(json!({"runtimeClassName": "windows-2025"})), &planned), [""; 0]);
    assert_eq!(broken("Deployment", &spec(json!({"runtimeClassName": "windows-3000"})), &planned), missing);
    let gvisor = json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "runtimeClassName": "gvisor"});
    assert_eq!(broken("Deployment", &gvisor, &planned), [""; 0], "who knows which other classes there are");
    let unrelated = json!({"metadata": {"name": "kata"}, "handler": "kata"});
    let windows = spec(json!({"nodeSelector": {"kubernetes.io/os": "windows"}}));
    assert_eq!(
        broken("Deployment", &windows, &cluster(&[], &[], &[unrelated])),
        [""; 0],
        "the cluster may have others"
    );
    let all = Facts::of(&View { classes: Known::Complete(Vec::new()), ..View::default() });
    assert_eq!(broken("Deployment", &gvisor, &all), ["class-not-found"]);

    let selector = json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.17763"}});
    assert_eq!(broken("Deployment", &spec(selector), &facts), ["class-contradicts-selector"]);
    let expression = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]});
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}});
    assert_eq!(broken("Deployment", &spec(affinity), &facts), ["class-contradicts-affinity"]);
    assert_eq!(broken("Deployment", &spec(json!({"os": {"name": "linux"}})), &facts), ["class-of-another-os"]);
}

#[test]
fn a_spread_counts_nodes_whose_taints_are_not_tolerated() {
    let tainted = || cluster(&[("10.0.20348", TAINT)], &[], &[]);
    let by = |change: Value| {
        let mut constraint =
            json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"});
        json_patch::merge(&mut constraint, &change);
        json!({"topologySpreadConstraints": [constraint]})
    };
    let spread = ["spread-over-windows-nodes"];
    for (change, expected) in [
        (json!({}), &spread[..]),
        (json!({"whenUnsatisfiable": "ScheduleAnyway"}), &[]),
        (json!({"nodeTaintsPolicy": "Honor"}), &[]),
        (json!({"nodeAffinityPolicy": "Ignore"}), &[]),
        (json!({"topologyKey": "topology.kubernetes.io/zone"}), &[]),
    ] {
        assert_eq!(broken("Deployment", &by(change.clone()), &tainted()), expected, "{change}");
    }
    let linux = with(by(json!({})), "nodeSelector", json!({"kubernetes.io/os": "linux"}));
    assert_eq!(broken("Deployment", &linux, &tainted()), [""; 0]);
    // A pool is about to add the taint.
    let to_come = cluster(&[("10.0.20348", &[])], &[json!({})], &[]);
    assert_eq!(broken("Deployment", &by(json!({})), &to_come), spread);
    assert_eq!(broken("Deployment", &by(json!({})), &Facts::none()), [""; 0], "there may be no Windows node");
}

#[test]
fn the_handler_of_a_class_has_to_be_on_a_node() {
    let of = |handler: &str, runtime: &str, listed: Option<&[&str]>| {
        let mut class = class("w", "10.0.20348");
        class["handler"] = handler.into();
        class["scheduling"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
        let mut view = manifests(&[("10.0.20348", TAINT)], &[], &[class]);
        for node in view.nodes.known_mut().unwrap() {
            node.object.node.container_runtime = Some(runtime.into());
            node.handlers = listed.map(|names| names.iter().map(ToString::to_string).collect());
        }
        broken("Deployment", &json!({"os": {"name": "windows"}, "runtimeClassName": "w"}), &Facts::of(&view))
    };
    let own = "runhcs-wcow-process";
    for (handler, runtime, listed, is_there) in [
        (own, "containerd://1.7.28", None, true),
        ("docker", "containerd://1.7.28", None, false),
        ("docker", "docker://20.10.9", None, true),
        ("docker", "containerd://1.7.28", Some(&["", "docker"][..]), true),
        (own, "containerd://1.7.28", Some(&["", own]), true),
        (own, "containerd://1.7.28", Some(&[""]), false),
        ("kata", "containerd://1.7.28", None, true),
    ] {
        let expected: &[&str] = if is_there { &[] } else { &["runtime-handler-missing"] };
        assert_eq!(of(handler, runtime, listed), expected, "{handler} {runtime} {listed:?}");
    }
}

#[test]
fn builds_have_to_be_named_and_to_be_there() {
    let facts = two_builds();
    let any = with(selecting(""), "nodeSelector", json!({"kubernetes.io/os": "windows"}));
    assert_eq!(broken("Deployment", &any, &facts), [""; 0], "nobody knows the build of its images");
    let any = with(any, "containers", json!([{"name": "c", "image": "app:ltsc2022"}]));
    assert_eq!(broken("Deployment", &any, &facts), ["build-not-selected"]);
    let stamped = with(
        any.clone(),
        "nodeSelector",
        json!({"kubernetes.io/os": "windows", "runs.winpool.dev/10.0.20348": "true"}),
    );
    assert_eq!(broken("Deployment", &stamped, &facts), [""; 0]);
    let host_process = with(any.clone(), "securityContext", json!({"windowsOptions": {"hostProcess": true}}));
    assert_eq!(broken("DaemonSet", &with(host_process, "hostNetwork", json!(true)), &facts), [""; 0]);
    assert_eq!(broken("Deployment", &any, &cluster(&[("10.0.20348", TAINT)], &[], &[])), [""; 0], "there is but one");

    assert_eq!(broken("Deployment", &selecting("10.0.26100"), &facts), ["build-without-node"]);
    let image = json!([{"image": "a:ltsc2019"}]);
    let by_class = json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2022", "containers": image});
    assert_eq!(broken("Deployment", &by_class, &facts), ["image-build-mismatch"]);
    // The class narrows what the affinity allows.
    let either =
        json!({"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.17763", "10.0.20348"]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [either]}]}}});
    let narrowed = with(by_class, "affinity", affinity);
    assert_eq!(broken("Deployment", &narrowed, &facts), ["image-build-mismatch"]);
    let old = cluster(&[("10.0.17763", TAINT)], &[], &[class("windows-2022", "10.0.20348")]);
    assert_eq!(broken("Deployment", &narrowed, &old), ["build-without-node", "image-build-mismatch"]);
}

#[test]
fn a_class_whose_name_and_build_differ_is_found_by_its_images() {
    let facts = cluster(&[("10.0.20348", TAINT)], &[], &[class("windows-2019", "10.0.20348")]);
    let spec =
        json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2019", "containers": [{"image": "a:ltsc2019"}]});
    assert_eq!(broken("Deployment", &spec, &facts), ["image-build-mismatch"]);
}

#[test]
fn only_the_nodes_whose_labels_a_workload_selects_count() {
    let nodes = [
        ("10.0.17763", Some("os=windows:NoSchedule"), "a"),
        ("10.0.20348", Some("windows=true:NoSchedule"), "b"),
        ("10.0.20348", None, "c"),
    ];
    let facts = Facts::of(&view(nodes.map(|(build, taint, team)| node(build, taint.as_slice(), &[("team", team)]))));
    let of = |team: &str| with(selecting(""), "nodeSelector", json!({"kubernetes.io/os": "windows", "team": team}));
    let not_in = json!({"key": "team", "operator": "NotIn", "values": ["b", "c"]});
    let required = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [not_in]}]}}});
    let by_affinity =
        with(with(selecting(""), "nodeSelector", json!({"kubernetes.io/os": "windows"})), "affinity", required);
    let of_zone = json!({"key": "zone", "operator": "In", "values": ["b"]});
    let mut elsewhere = by_affinity.clone();
    elsewhere["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"] =
        json!([of_zone]);
    for (kind, spec, expected) in [
        ("Deployment", of("a"), &[][..]),
        ("DaemonSet", of("a"), &[]),
        ("DaemonSet", by_affinity, &[]),
        // No node has this label.
        ("Deployment", elsewhere, &["selector-without-node"]),
        ("Deployment", of("b"), &["toleration-missing"]),
        ("DaemonSet", of("b"), &["daemon-set-toleration-missing"]),
        ("Deployment", with(of("c"), "tolerations", json!([])), &[]),
        // Nodes with this label may follow, and nobody knows their taints.
        ("Deployment", with(of("d"), "tolerations", json!([])), &["selector-without-node"]),
        ("Deployment", json!({"nodeSelector": {"team": "a"}}), &[]),
        ("Deployment", json!({"nodeSelector": {"team": "c"}}), &["linux-may-land-on-windows"]),
    ] {
        assert_eq!(broken(kind, &spec, &facts), expected, "{kind} {spec}");
    }
}

#[test]
fn nodes_that_a_workload_waits_for_get_the_taints_of_the_pools() {
    for selector in [json!({"team": "a"}), json!({"node.kubernetes.io/windows-build": "10.0.26100"})] {
        let mut selector = selector;
        selector["kubernetes.io/os"] = json!("windows");
        let spec = json!({"os": {"name": "windows"}, "nodeSelector": selector});
        let known = cluster(&[("10.0.20348", TAINT)], &[json!({})], &[]);
        let waits = if selector["team"].is_null() { "build-without-node" } else { "selector-without-node" };
        let found = broken("Deployment", &spec, &known);
        assert!(found.contains(&"toleration-missing".to_owned()) && found.contains(&waits.to_owned()), "{found:?}");
        assert!(broken("DaemonSet", &spec, &known).contains(&"daemon-set-toleration-missing".to_owned()));
        // Without a pool nobody knows their taints.
        assert_eq!(broken("Deployment", &spec, &cluster(&[("10.0.20348", TAINT)], &[], &[])), [waits]);
    }
}

#[test]
fn a_class_without_scheduling_keeps_no_pod_off_linux_nodes() {
    let bare = json!({"metadata": {"name": "hyperv"}, "handler": "runhcs-wcow-hypervisor"});
    let facts = cluster(&[("10.0.20348", &[])], &[], &[bare]);
    let spec = json!({"os": {"name": "windows"}, "runtimeClassName": "hyperv"});
    for kind in ["Deployment", "DaemonSet"] {
        assert_eq!(broken(kind, &spec, &facts), ["os-selector-missing"], "{kind}");
    }
}

#[test]
fn images_of_different_builds_run_together_where_the_newest_host_runs_all() {
    let of = |tags: &[&str], class: &str, build: &str| {
        let containers: Vec<Value> = tags.iter().map(|tag| json!({"image": format!("a:{tag}")})).collect();
        let mut class = self::class(class, build);
        class["handler"] = json!(if build == "10.0.20348" { "runhcs-wcow-hypervisor" } else { "runhcs-wcow-process" });
        let facts = cluster(&[(build, TAINT)], &[], &[class]);
        let spec = json!({"os": {"name": "windows"}, "runtimeClassName": "w", "containers": containers});
        broken("Deployment", &spec, &facts)
    };
    assert_eq!(of(&["ltsc2022", "ltsc2025"], "w", "10.0.26100"), ["image-older-than-host"]);
    assert_eq!(of(&["ltsc2019", "ltsc2022"], "w", "10.0.20348"), [""; 0], "by Hyper-V");
    assert_eq!(of(&["ltsc2019", "ltsc2025"], "w", "10.0.26100"), ["image-builds-differ", "image-build-mismatch"]);
}

#[test]
fn images_of_2022_need_no_build_beside_nodes_of_2025_unless_their_containerd_is_too_old() {
    let image = json!([{"name": "c", "image": "app:ltsc2022"}]);
    let open =
        with(with(selecting(""), "nodeSelector", json!({"kubernetes.io/os": "windows"})), "containers", image.clone());
    let on_2025 = with(selecting("10.0.26100"), "containers", image);
    for (runtime, of_open, of_2025) in [
        (Some("containerd://2.0.4"), vec![], vec![]),
        (None, vec![], vec!["image-older-than-host"]),
        (Some("containerd://1.7.18"), vec!["build-not-selected"], vec!["image-older-than-host"]),
    ] {
        let nodes = ["10.0.20348", "10.0.26100"].map(|build| running(runtime, node(build, TAINT, &[])));
        let facts = Facts::of(&view(nodes));
        assert_eq!(broken("Deployment", &open, &facts), of_open, "{runtime:?}");
        assert_eq!(broken("Deployment", &on_2025, &facts), of_2025, "{runtime:?}");
    }
}

#[test]
fn a_class_that_the_user_may_not_see_may_exist() {
    let spec = json!({"os": {"name": "windows"}, "runtimeClassName": "legacy"});
    let view = manifests(&[("10.0.20348", TAINT)], &[json!({})], &[]);
    let missing = ["os-selector-missing", "toleration-missing", "class-not-found"];
    assert_eq!(broken("Deployment", &spec, &Facts::of(&view)), missing);
    let hidden = View { classes: Known::Forbidden("runtimeclasses is forbidden".to_owned()), ..view };
    assert_eq!(broken("Deployment", &spec, &Facts::of(&hidden)), [""; 0]);
}

#[test]
fn linux_pods_land_on_windows_where_nothing_keeps_them_off() {
    let open = cluster(&[("10.0.20348", &[])], &[], &[]);
    assert_eq!(broken("Deployment", &json!({}), &open), ["linux-may-land-on-windows"]);
    assert_eq!(
        broken("Deployment", &json!({"nodeSelector": {"disk": "ssd"}}), &open),
        [""; 0],
        "no Windows node has it"
    );
    assert_eq!(broken("Deployment", &json!({"nodeSelector": {"kubernetes.io/os": "linux"}}), &open), [""; 0]);
    let planned = cluster(&[("10.0.20348", &[])], &[json!({})], &[]);
    assert_eq!(broken("Deployment", &json!({}), &planned), [""; 0], "the pool of these manifests will keep it off");
    let mut held = view([node("10.0.20348", &[], &[])]);
    let mut pool = WindowsPool::new("default", WindowsPoolSpec::default());
    pool.status = Some(WindowsPoolStatus::default());
    held.pools.add((None, pool.into()));
    let broken_now = broken("Deployment", &json!({}), &Facts::of(&held));
    assert_eq!(broken_now, ["linux-may-land-on-windows"], "the pool has a status, and has not added its taint");
    let previewed = cluster(&[("10.0.20348", &[])], &[json!({"mode": "DryRun"})], &[]);
    assert_eq!(broken("Deployment", &json!({}), &previewed), ["linux-may-land-on-windows"], "nothing keeps it off");
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    for facts in [two_builds(), cluster(&[], &[json!({})], &[]), Facts::none()] {
        assert_eq!(broken("DaemonSet", &tolerant, &facts), ["linux-may-land-on-windows"]);
    }
}

#[test]
fn a_class_that_a_pool_will_create_is_named_with_what_the_pool_needs() {
    let object = workload("Deployment", &json!({"os": {"name": "windows"}, "runtimeClassName": "windows-2022"}));
    let of = |mode: &str| {
        let mut view = manifests(&[("10.0.20348", &[])], &[json!({"mode": mode})], &[]);
        let nodes = view.nodes.known().cloned().unwrap();
        (view.nodes, view.classes) = (Known::Complete(nodes), Known::Complete(Vec::new()));
        let found =
            findings(&object, &Facts::of(&view)).into_iter().filter(|finding| finding.severity == Severity::Error);
        found.map(|finding| (finding.rule, finding.message, finding.remedy.text)).collect::<Vec<_>>()
    };
    let missing = |remedy: &str| {
        vec![("class-not-found".to_owned(), "there is no RuntimeClass windows-2022 yet".to_owned(), remedy.to_owned())]
    };
    let in_dry_run = "set mode: Enforce in WindowsPool default, which then creates RuntimeClass windows-2022";
    assert_eq!(of("DryRun"), missing(in_dry_run));
    let enforced = "wait until winpool has created RuntimeClass windows-2022 for WindowsPool default; winpool status shows if it works";
    assert_eq!(of("Enforce"), missing(enforced));
}

/// Its pods would be refused until somebody sets `mode: Enforce`.
#[test]
fn no_remedy_names_a_class_that_only_a_pool_in_dry_run_would_create() {
    let spec = json!({"containers": [{"name": "c", "image": "app:ltsc2019"}]});
    let existing = class("windows-2019", "10.0.17763");
    for (mode, classes, is_named) in
        [("Enforce", &[][..], true), ("DryRun", &[], false), ("DryRun", from_ref(&existing), true)]
    {
        let facts = cluster(&[("10.0.17763", TAINT)], &[json!({"mode": mode})], classes);
        let found = findings(&workload("Deployment", &spec), &facts);
        let named = found.iter().filter(|finding| finding.remedy.class().is_some()).count();
        assert_eq!(named > 0, is_named, "{mode} {classes:?}: {found:#?}");
    }
}

#[test]
fn a_selector_that_no_linux_node_matches_keeps_pods_off_linux_nodes() {
    let linux = |labels: Value| {
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap();
        seen(NodeFields { labels: labels.into_iter().collect(), ..NodeFields::default() })
    };
    let spec = json!({"os": {"name": "windows"}, "nodeSelector": {"team": "a"}});
    for (labels, lands) in [
        (None, true),
        (Some(json!({"kubernetes.io/os": "linux"})), false),
        (Some(json!({"kubernetes.io/os": "linux", "team": "a"})), true),
    ] {
        let facts = Facts::of(&view([node("10.0.20348", &[], &[])].into_iter().chain(labels.clone().map(linux))));
        let found = broken("Deployment", &spec, &facts);
        assert!(found.contains(&"selector-without-node".to_owned()), "{found:?}");
        assert_eq!(found.contains(&"os-selector-missing".to_owned()), lands, "{labels:?}: {found:?}");
    }
}
