//! Why a pod does or does not land and start.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use winpool_analysis::explain::pod::{PodExplanation, answer, answer_template};
use winpool_analysis::image::{ImagePlatforms, Images, Platform, Source};
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::pod::Pod;
use winpool_analysis::remedy::Remedy;
use winpool_analysis::verdict::Cluster;
use winpool_analysis::view;
use winpool_core::pod::Class;

use crate::cluster;
use crate::common::{class, node, yaml};

fn machine(name: &str, build: &str, rest: &str) -> view::Node {
    let mut object = node(&format!(
        "{{metadata: {{name: {name}, labels: {{node.kubernetes.io/windows-build: {build}}}}}, \
          status: {{nodeInfo: {{kernelVersion: {build}.1, containerRuntimeVersion: 'containerd://2.0.4', bootID: a, \
          kubeProxyVersion: v1, kubeletVersion: v1, machineID: a, systemUUID: a}}}}}}"
    ));
    json_patch::merge(&mut object, &yaml(rest));
    crate::machine(&object)
}

fn windows_class(name: &str, build: &str, handler: &str) -> (String, Class) {
    let class = class(&format!(
        "{{metadata: {{name: {name}}}, handler: {handler}, scheduling: {{nodeSelector: {{kubernetes.io/os: windows, \
          node.kubernetes.io/windows-build: {build}}}, tolerations: [{{key: os, operator: Equal, value: windows, effect: NoSchedule}}]}}}}"
    ));
    (name.to_owned(), Class::from(&*class))
}

/// On a tainted node of 2019 and one of 2022, each with its class.
fn of(pod: &str) -> PodExplanation {
    let tainted = "spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}";
    let linux =
        crate::machine(&serde_json::json!({"metadata": {"name": "linux", "labels": {"kubernetes.io/os": "linux"}}}));
    let machines = [machine("win-2019", "10.0.17763", tainted), machine("win-2022", "10.0.20348", tainted), linux];
    let classes = [
        windows_class("windows-2019", "10.0.17763", "runhcs-wcow-process"),
        windows_class("windows-2022", "10.0.20348", "runhcs-wcow-process"),
        windows_class("hyperv-2019", "10.0.20348", "runhcs-wcow-hypervisor"),
    ];
    answer(&yaml::<Pod>(pod), &cluster(&machines, &BTreeMap::from(classes)))
}

fn told(pod: &str) -> String {
    serde_yaml::to_string(&of(pod)).unwrap()
}

#[test]
fn the_remedy_of_a_pod_without_a_toleration_is_its_class() {
    insta::assert_snapshot!(told(
        "{metadata: {name: web, namespace: shop}, spec: {os: {name: windows}, containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}}"
    ));
}

#[test]
fn a_pod_of_the_wrong_class_lands_and_does_not_start() {
    insta::assert_snapshot!(told(
        "{metadata: {name: web}, spec: {runtimeClassName: windows-2022, containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}"
    ));
}

#[test]
fn it_is_not_known_if_a_class_with_hyperv_isolation_runs_older_images() {
    let answer = of(
        "{metadata: {name: web}, spec: {runtimeClassName: hyperv-2019, containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
    );
    assert_eq!((answer.nodes[1].possible, answer.nodes[1].starts, answer.remedy), (true, None, None));
    assert!(answer.nodes[1].reasons[0].contains("containerd/containerd#8348"), "{:?}", answer.nodes[1]);
}

/// Three nodes of 2019, of 2022 and of 2025, all open, and three Linux nodes, with a class for each build.
fn open_cluster() -> (Vec<view::Node>, BTreeMap<String, Class>) {
    let builds = [("2019", "10.0.17763"), ("2022", "10.0.20348"), ("2025", "10.0.26100")];
    let mut machines = Vec::new();
    for index in 0..3 {
        for (version, build) in builds {
            let name = format!("win-{version}-{index}");
            machines.push(machine(&name, build, &format!("metadata: {{labels: {{kubernetes.io/hostname: {name}}}}}")));
        }
        let name = format!("linux-{index}");
        let linux = yaml::<Value>(&format!(
            "{{metadata: {{name: {name}, labels: {{kubernetes.io/os: linux, kubernetes.io/hostname: {name}}}}}}}"
        ));
        machines.push(crate::machine(&linux));
    }
    let classes = builds.map(|(v, build)| windows_class(&format!("windows-{v}"), build, "runhcs-wcow-process"));
    (machines, BTreeMap::from(classes))
}

/// The system that the pod is taken to be for, and the remedy, which is checked: with it, the pod lands, and only where it
/// starts.
#[track_caller]
fn remedy_of(pod: &str) -> (&'static str, Option<String>) {
    let (machines, classes) = open_cluster();
    remedy_with(pod, &machines, &classes)
}

#[track_caller]
fn remedy_with(
    pod: &str,
    machines: &[view::Node],
    classes: &BTreeMap<String, Class>,
) -> (&'static str, Option<String>) {
    let mut object = yaml::<Value>(pod);
    let pod = Pod::deserialize(&object).unwrap();
    let told = answer(&pod, &cluster(machines, classes));
    let of_pod = |remedy: &&Remedy| remedy.object.is_none() && !remedy.edits.is_empty();
    if let Some(remedy) = told.remedy.as_ref().filter(of_pod) {
        if pod.is_bound {
            object["spec"]["nodeName"] = Value::Null;
        }
        let patch = remedy.json_patch(&object, "");
        json_patch::patch(&mut object, &patch).unwrap();
        let remedied = Pod { spec: Pod::deserialize(&object).unwrap().spec, ..Pod::default() };
        let after = answer(&remedied, &cluster(machines, classes));
        let lands: Vec<_> = after.nodes.iter().filter(|node| node.possible).collect();
        assert!(!lands.is_empty() && lands.iter().all(|node| node.starts != Some(false)), "{told:#?} {after:#?}");
    }
    (if told.system == "windows" { "windows" } else { "linux" }, told.remedy.map(|remedy| remedy.text))
}

#[test]
fn a_discovered_class_is_suggested_before_a_declared_one() {
    let (machines, mut classes) = open_cluster();
    classes.insert("batch".to_owned(), classes["windows-2022"].clone());
    let (_, remedy) = remedy_with(
        "{metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}, \
          runtimeClassName: gone, containers: [{name: c, image: i}]}}",
        &machines,
        &classes,
    );
    insta::assert_snapshot!(remedy.unwrap(), @"RuntimeClass gone does not exist, so the API server refuses new pods of it: set runtimeClassName: windows-2022; then it runs on win-2022-0, win-2022-1, win-2022-2");
}

#[test]
fn a_linux_pod_is_recognised() {
    let scheduled = "status: {phase: Running, conditions: [{type: PodScheduled, status: 'True'}]}";
    let nginx = "containers: [{name: c, image: nginx}]";
    let linux = "nodeSelector: {kubernetes.io/os: linux}";
    // A healthy one that only selects Linux, and one that a DaemonSet made for a Linux node.
    let healthy = format!("{{metadata: {{name: web}}, spec: {{nodeName: linux-1, {linux}, {nginx}}}, {scheduled}}}");
    assert_eq!(remedy_of(&healthy), ("linux", None));
    let agent = |node: &str| {
        format!(
            "{{metadata: {{name: agent, ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: u, controller: true}}]}}, \
              spec: {{nodeName: {node}, {nginx}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
              {{nodeSelectorTerms: [{{matchFields: [{{key: metadata.name, operator: In, values: [{node}]}}]}}]}}}}}}}}}}"
        )
    };
    assert_eq!(remedy_of(&agent("linux-1")), ("linux", None));
    let (system, remedy) = remedy_of(&agent("win-2022-0"));
    assert_eq!(system, "linux");
    insta::assert_snapshot!(remedy.unwrap());
    // One that may land on Windows too.
    let (system, remedy) =
        remedy_of(&format!("{{metadata: {{name: web}}, spec: {{nodeName: linux-1, {nginx}}}, {scheduled}}}"));
    assert_eq!(system, "linux");
    insta::assert_snapshot!(remedy.unwrap());
    let (_, remedy) = remedy_of(&format!(
        "{{metadata: {{name: web}}, spec: {{os: {{name: linux}}, nodeSelector: {{kubernetes.io/os: windows}}, {nginx}}}}}"
    ));
    insta::assert_snapshot!(remedy.unwrap());
    // One that says nothing, and runs on Windows, is for Windows.
    let runs = format!("{{metadata: {{name: web}}, spec: {{nodeName: win-2022-0, {nginx}}}, {scheduled}}}");
    assert_eq!(remedy_of(&runs).0, "windows");
}

#[test]
fn a_pod_that_has_run_on_windows_is_for_windows() {
    for (status, system) in [
        ("{phase: Succeeded}", "windows"),
        (
            "{phase: Failed, containerStatuses: [{name: c, image: i, imageID: '', ready: false, restartCount: 0, state: {terminated: {exitCode: 1}}}]}",
            "windows",
        ),
        // The kubelet refused it, so it has not run.
        ("{phase: Failed, reason: PodOSNotSupported}", "linux"),
        ("{phase: Pending}", "linux"),
    ] {
        let pod = format!(
            "{{metadata: {{name: web}}, spec: {{nodeName: win-2022-0, containers: [{{name: c, image: i}}]}}, status: {status}}}"
        );
        assert_eq!(remedy_of(&pod).0, system, "{status}");
    }
}

#[test]
fn a_mirror_pod_stays_on_its_node() {
    // The kubelet of linux-1 runs it from a file. The scheduler never sees it.
    let mirror = "{metadata: {name: proxy-linux-1, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: linux-1, \
                  tolerations: [{operator: Exists, effect: NoExecute}], containers: [{name: c, image: proxy}]}, status: {phase: Running}}";
    assert_eq!(remedy_of(mirror), ("linux", None));
}

#[test]
fn a_class_that_has_changed_does_not_contradict_the_pods_that_it_placed() {
    let of = |status: &str| {
        remedy_of(&format!(
            "{{metadata: {{name: web}}, spec: {{runtimeClassName: windows-2022, nodeSelector: {{kubernetes.io/os: windows, \
              node.kubernetes.io/windows-build: 10.0.17763}}, containers: [{{name: c, image: i}}]}}, status: {status}}}"
        ))
    };
    assert_eq!(of("{phase: Running}"), ("windows", None));
    assert!(of("{}").1.unwrap().contains("the API server refuses"));
}

#[test]
fn a_label_that_the_pod_itself_selects_is_not_put_down_to_its_class() {
    let told = of(
        "{metadata: {name: web}, spec: {runtimeClassName: windows-2022, nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}, containers: [{name: c}]}, status: {phase: Pending}}",
    );
    let reason = told.nodes[1].reasons.first().unwrap();
    insta::assert_snapshot!(reason, @"nodeSelector wants node.kubernetes.io/windows-build=10.0.17763, the node has 10.0.20348");
}

#[test]
fn a_pod_with_scheduling_gates_waits_for_them() {
    let gated = |more: &str| {
        let (_, remedy) = remedy_of(&format!(
            "{{metadata: {{name: web}}, spec: {{schedulingGates: [{{name: example.com/queue}}], {more} containers: [{{name: c, image: i}}]}}}}"
        ));
        remedy.unwrap()
    };
    insta::assert_snapshot!(gated("nodeSelector: {kubernetes.io/os: linux},"), @"wait until its schedulingGates (example.com/queue) are removed: the scheduler ignores it until then");
    insta::assert_snapshot!(gated(""), @"wait until its schedulingGates (example.com/queue) are removed: the scheduler ignores it until then. Then to land only where it starts: set nodeSelector kubernetes.io/os: linux");
}

#[test]
fn a_workload_is_explained_with_its_pods_and_the_labels_of_its_template() {
    let (machines, classes) = open_cluster();
    let of = |labels: &str, spec: &str, nodes: &[&str]| {
        let object =
            yaml(&format!("{{metadata: {{name: web}}, spec: {{template: {{metadata: {labels}, spec: {spec}}}}}}}"));
        let kind = WorkloadKind::own("Deployment").unwrap();
        let pod = |node: &&str| {
            yaml::<Pod>(&format!(
                "{{metadata: {{name: web-1}}, spec: {{nodeName: {node}}}, status: {{phase: Running}}}}"
            ))
        };
        let pods: Vec<Pod> = nodes.iter().map(pod).collect();
        answer_template(kind, &crate::workload_of(kind, object), &pods, &cluster(&machines, &classes))
    };
    let silent = "{containers: [{name: c, image: i}]}";
    for (nodes, system) in [
        (&[][..], "linux"),
        (&["linux-0"], "linux"),
        (&["win-2022-0", "win-2022-1"], "windows"),
        (&["win-2022-0", "linux-0"], "linux"),
    ] {
        assert_eq!(of("null", silent, nodes).system, system, "{nodes:?}");
    }
    // An image for both systems starts on both.
    let on_both = of("null", silent, &["win-2022-0", "linux-0"]);
    assert!(on_both.nodes.iter().all(|node| node.starts != Some(false)), "{on_both:?}");
    let windows = "{os: {name: windows}, nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: i}]}";
    assert_eq!(of("null", windows, &[]).remedy, None);
    let labelled = of("{labels: {kubernetes.io/os: linux}}", windows, &[]);
    assert!(labelled.nodes.iter().all(|node| node.starts == Some(false)), "{labelled:?}");
    assert!(labelled.remedy.unwrap().text.contains("remove the pod's label kubernetes.io/os"));
}

#[test]
fn a_remedy_leaves_no_node_on_which_the_pod_does_not_start() {
    let image = |tag: &str| format!("containers: [{{name: c, image: 'mcr.microsoft.com/windows/servercore:{tag}'}}]");
    let host_process = "hostNetwork: true, nodeSelector: {kubernetes.io/os: windows}, securityContext: {windowsOptions: {hostProcess: \
                        true}}, containers: [{name: c, image: 'a:ltsc2019'}]";
    let remedies: BTreeMap<String, Option<String>> = [
        format!("os: {{name: windows}}, {}", image("ltsc2022")),
        format!("nodeSelector: {{kubernetes.io/os: windows}}, {}", image("ltsc2019")),
        format!("runtimeClassName: windows-2022, {}", image("ltsc2022")),
        format!("nodeName: linux-0, {}", image("ltsc2022")),
        format!("nodeName: win-2019-0, {}", image("ltsc2022")),
        format!("nodeName: win-2022-0, {}", image("ltsc2022")),
        format!("nodeSelector: {{disk: fast}}, {}", image("ltsc2022")),
        image("ltsc2016"),
        "runtimeClassName: gone, containers: [{name: c, image: i}]".to_owned(),
        host_process.to_owned(),
    ]
    .into_iter()
    .map(|spec| {
        let (_, remedy) = remedy_of(&format!("{{metadata: {{name: web}}, spec: {{{spec}}}}}"));
        (spec, remedy)
    })
    .collect();
    insta::assert_yaml_snapshot!(remedies);
    let nowhere = answer(
        &yaml::<Pod>("{metadata: {name: web}, spec: {os: {name: windows}, containers: [{name: c}]}}"),
        &cluster(&[], &BTreeMap::new()),
    );
    assert_eq!(nowhere.remedy.unwrap().text, "there is no Windows node");
}

#[test]
fn a_pod_without_a_class_gets_an_affinity_to_all_builds_that_run_it() {
    let (machines, _) = open_cluster();
    let of_class = |selector: &str| {
        let class = class(&format!(
            "{{metadata: {{name: any}}, handler: runhcs-wcow-process, scheduling: {{nodeSelector: {{{selector}}}}}}}"
        ));
        let classes = BTreeMap::from([("any".to_owned(), Class::from(&*class))]);
        let pod =
            "{metadata: {name: web}, spec: {runtimeClassName: any, containers: [{name: c, image: 'a:ltsc2022'}]}}";
        remedy_with(pod, &machines, &classes).1.unwrap()
    };
    // hostMatch: Compatible, and no node has the label yet. The second class is one with version: Any.
    insta::assert_snapshot!(of_class("runs.winpool.dev/10.0.20348: 'true'"), @"to land on win-2022-0, win-2025-0, win-2022-1 and 3 more: remove runtimeClassName; set nodeSelector kubernetes.io/os: windows; add the required node affinity {key: node.kubernetes.io/windows-build, operator: In, values: [10.0.20348, 10.0.26100]}");
    insta::assert_snapshot!(of_class("kubernetes.io/os: windows"), @"to land only where it starts: add the required node affinity {key: node.kubernetes.io/windows-build, operator: In, values: [10.0.20348, 10.0.26100]}");
}

#[test]
fn an_older_image_starts_on_a_node_that_does_not_report_its_containerd_if_that_is_new_enough() {
    let starts = |runtime: &str, ran_on: &str| {
        let status = format!("status: {{nodeInfo: {{containerRuntimeVersion: '{runtime}'}}}}");
        let machines = [machine("win-2025", "10.0.26100", &status)];
        let pod = format!(
            "{{metadata: {{name: web}}, spec: {{os: {{name: windows}}, nodeName: win-2025, containers: [{{name: c, image: 'a:ltsc2022'}}]}}, \
              status: {{containerStatuses: [{{name: c, state: {{{ran_on}}}}}]}}}}"
        );
        let answer = answer(&yaml::<Pod>(&pod), &cluster(&machines, &BTreeMap::new()));
        (answer.nodes[0].starts, answer.nodes[0].reasons.clone())
    };
    assert_eq!(starts("containerd://2.0.4", ""), (Some(true), vec![]));
    let (unknown, reasons) = starts("containerd://Unknown", "");
    assert_eq!(unknown, None);
    insta::assert_snapshot!(reasons.join(" "), @"an image of Windows Server 2022 on a node of Windows Server 2025: it starts with containerd 1.7.19 or later, and the node does not report its version");
    assert_eq!(starts("containerd://1.7.18", "").0, Some(false));
    assert_eq!(starts("containerd://Unknown", "running: {startedAt: '2026-03-01T12:00:00Z'}"), (Some(true), vec![]));
}

#[test]
fn a_host_process_container_does_not_show_that_the_others_start() {
    let starts = |container: &str| {
        let first = "{name: first, image: first, securityContext: {windowsOptions: {hostProcess: true}}}";
        let pod = format!(
            "{{metadata: {{name: web}}, spec: {{os: {{name: windows}}, initContainers: [{first}], containers: [{{name: c, {container}}}]}}}}"
        );
        of(&pod).nodes[1].starts
    };
    assert_eq!(starts("image: app"), None);
    assert_eq!(starts("image: 'app:ltsc2022'"), Some(true));
    assert_eq!(starts("image: app, securityContext: {windowsOptions: {hostProcess: true}}"), Some(true));
}

#[test]
fn a_linux_pod_starts_where_its_images_have_a_variant_for_the_architecture() {
    let node = |architecture: &str| {
        crate::machine(&yaml::<Value>(&format!(
            "{{metadata: {{name: linux-{architecture}, labels: {{kubernetes.io/os: linux, kubernetes.io/arch: {architecture}}}}}}}"
        )))
    };
    let machines = [node("amd64"), node("arm64")];
    let pod = yaml::<Pod>("{metadata: {name: web}, spec: {containers: [{name: c, image: 'a:1'}]}}");
    let of = |source: Source, architectures: &[&str]| {
        let platform = |architecture: &&str| Platform {
            os: "linux".to_owned(),
            architecture: (*architecture).to_owned(),
            ..Platform::default()
        };
        let platforms = architectures.iter().map(platform).collect();
        let mut images = Images::default();
        images.add("a:1", Ok(ImagePlatforms { digest: String::new(), source, platforms }));
        let told = answer(&pod, &Cluster { nodes: machines.to_vec(), images, ..Cluster::default() });
        (told.nodes.iter().map(|node| node.starts).collect::<Vec<_>>(), told.remedy.map(|remedy| remedy.text))
    };
    assert_eq!(of(Source::Index, &["x86_64", "aarch64"]), (vec![Some(true); 2], None));
    assert_eq!(of(Source::Index, &["386", "arm"]).0, [Some(true); 2]);
    let (starts, remedy) = of(Source::Index, &["amd64"]);
    assert_eq!(starts, [Some(true), Some(false)]);
    insta::assert_snapshot!(remedy.unwrap(), @"to land only where it starts: set nodeSelector kubernetes.io/os: linux, kubernetes.io/arch: amd64");
    let windows = "{metadata: {name: web}, spec: {os: {name: linux}, containers: [{name: c, image: 'mcr.microsoft.com/windows/nanoserver:ltsc2022'}]}}";
    let told = answer(&yaml::<Pod>(windows), &cluster(&machines, &BTreeMap::new()));
    assert!(told.nodes.iter().all(|node| node.starts == Some(false)), "{told:#?}");
    // containerd pulls a single manifest for every platform.
    assert_eq!(of(Source::Manifest, &["arm64"]), (vec![None, Some(true)], None));
}

#[test]
fn a_pod_keeps_what_it_was_admitted_with_if_its_class_changes() {
    let waiting = |selector: &str, tolerations: &str| {
        of(&format!(
            "{{metadata: {{name: web}}, spec: {{runtimeClassName: windows-2022, nodeSelector: {{{selector}}}, tolerations: [{tolerations}], \
              containers: [{{name: c, image: 'a:ltsc2022'}}]}}, status: {{phase: Pending}}}}"
        ))
    };
    let build = "kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348";
    // The class had no toleration when the pod was created.
    let told = waiting(build, "");
    assert!(told.nodes.iter().all(|node| !node.possible), "{told:#?}");
    insta::assert_snapshot!(told.remedy.unwrap().text, @"delete and recreate the pod: RuntimeClass windows-2022 has changed since the pod was created");
    let own = waiting(build, "{key: os, operator: Exists}");
    assert_eq!((own.nodes[1].possible, own.remedy), (true, None));
}

/// The day of an upgrade: the class selected the build of the nodes before, and selects its label now, or the other way round.
#[test]
fn a_waiting_pod_is_deleted_if_its_class_selects_other_labels_now() {
    const LABEL: &str = "runs.winpool.dev/10.0.20348: 'true'";
    const BUILD: &str = "node.kubernetes.io/windows-build: 10.0.20348";
    let class = |selected: &str| {
        let class = class(&format!(
            "{{metadata: {{name: windows-2022}}, handler: h, scheduling: {{nodeSelector: {{kubernetes.io/os: windows, {selected}}}}}}}"
        ));
        BTreeMap::from([("windows-2022".to_owned(), Class::from(&*class))])
    };
    let upgraded = machine("win", "10.0.26100", &format!("metadata: {{labels: {{{LABEL}}}}}"));
    let old = machine("win", "10.0.20348", "{}");
    let waiting = |selected: &str, more: &str| {
        yaml::<Pod>(&format!(
            "{{metadata: {{name: web}}, spec: {{runtimeClassName: windows-2022, nodeSelector: {{kubernetes.io/os: windows, {selected}{more}}}, \
              containers: [{{name: c, image: 'a:1'}}]}}, status: {{phase: Pending}}}}"
        ))
    };
    let remedy = |pod: &Pod, node: &view::Node, selected: &str| {
        let told = answer(pod, &cluster(std::slice::from_ref(node), &class(selected)));
        told.remedy.map(|remedy| remedy.text).unwrap_or_default()
    };
    let expected = "delete and recreate the pod: RuntimeClass windows-2022 has changed since the pod was created";
    assert_eq!(remedy(&waiting(BUILD, ""), &upgraded, LABEL), expected);
    assert_eq!(remedy(&waiting(LABEL, ""), &old, BUILD), expected);
    // A new pod would wait too.
    assert_ne!(remedy(&waiting(BUILD, ", zone: a"), &upgraded, LABEL), expected);
    assert_ne!(remedy(&waiting(BUILD, ""), &upgraded, BUILD), expected);
}

/// The DaemonSet controller ignores the class that keeps the pod off a Linux node.
#[test]
fn a_pod_of_a_daemon_set_is_explained_on_its_own_node() {
    let linux: Value = yaml("{metadata: {name: linux, labels: {kubernetes.io/os: linux}}}");
    let machines =
        [machine("win-2022", "10.0.20348", "{}"), machine("win-2025", "10.0.26100", "{}"), crate::machine(&linux)];
    let classes = BTreeMap::from([windows_class("windows-2022", "10.0.20348", "runhcs-wcow-process")]);
    let on = |node: &str, spec: &str| {
        let pod = format!(
            "{{metadata: {{name: agent-x, ownerReferences: [{{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: u, controller: true}}]}}, \
              spec: {{{spec}, containers: [{{name: c, image: 'a:ltsc2022'}}], affinity: {{nodeAffinity: \
              {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchFields: \
              [{{key: metadata.name, operator: In, values: [{node}]}}]}}]}}}}}}}}, status: {{phase: Pending}}}}"
        );
        let told = answer(&yaml::<Pod>(&pod), &cluster(&machines, &classes));
        let [node] = told.nodes.as_slice() else { panic!("{told:#?}") };
        (node.clone(), told.remedy.unwrap().text)
    };
    let by_class = "runtimeClassName: windows-2022, nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}";
    for (on_node, starts) in [("linux", Some(false)), ("win-2025", Some(true))] {
        let (node, remedy) = on(on_node, by_class);
        assert_eq!((node.name.as_str(), node.possible, node.starts), (on_node, false, starts));
        let selects = "kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348";
        assert_eq!(remedy, format!("in the template of the DaemonSet: set nodeSelector {selects}"));
    }
    let (_, remedy) = on("linux", "nodeSelector: {kubernetes.io/os: windows}");
    assert_eq!(remedy, "delete the pod: its DaemonSet creates none for linux");
    let (node, remedy) = on("gone", by_class);
    assert_eq!(node.reasons, ["there is no such node"]);
    assert_eq!(remedy, "wait until the pod is deleted: it is for a node that does not exist");
}

#[test]
fn errors_in_the_status_are_explained_once() {
    let waiting = "{name: c, image: i, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ErrImagePull, \
                   message: 'failed to pull image: no match for platform in manifest: not found'}}}";
    let answer = of(&format!(
        "{{metadata: {{name: web}}, spec: {{nodeName: win-2019, containers: [{{name: c}}]}}, status: {{reason: PodOSNotSupported, \
          containerStatuses: [{waiting}, {waiting}]}}}}"
    ));
    let errors: Vec<&str> = answer.errors.iter().map(|error| error.error).collect();
    assert_eq!(errors, ["no match for platform", "PodOSNotSupported"]);
    assert_eq!(answer.node.as_deref(), Some("win-2019"));
}

#[test]
fn a_daemon_set_that_prepares_new_nodes_is_not_told_to_wait_for_itself() {
    let remedy = |kind: &str, key: &str| {
        let taint = format!("spec: {{taints: [{{key: {key}, value: 'true', effect: NoSchedule}}]}}");
        let object = yaml(
            "{metadata: {name: agent}, spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, \
              image: 'agent:ltsc2022'}]}}}}",
        );
        let machines = [machine("win-1", "10.0.20348", &taint)];
        let kind = WorkloadKind::with_template(kind).unwrap();
        answer_template(kind, &crate::workload_of(kind, object), &[], &cluster(&machines, &BTreeMap::new()))
            .remedy
            .unwrap()
            .text
    };
    let key = "node.cloudprovider.kubernetes.io/uninitialized";
    insta::assert_snapshot!(remedy("DaemonSet", key), @r#"if this DaemonSet is what removes the taint node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule: add the toleration {key: node.cloudprovider.kubernetes.io/uninitialized, operator: Equal, value: "true", effect: NoSchedule} in its template. Otherwise wait until win-1 has lost the taint node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"#);
    assert_eq!(remedy("Deployment", key), format!("wait until win-1 has lost the taint {key}=true:NoSchedule"));
}

#[test]
fn the_device_plugin_is_the_cause_where_a_node_has_none_of_its_resource() {
    let on = |node: &str, number: &str| {
        machine(node, "10.0.26100", &format!("{{status: {{allocatable: {{microsoft.com/directx: {number}}}}}}}"))
    };
    let pod = yaml::<Pod>(
        "{metadata: {name: web}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: 'a:1', \
          resources: {limits: {microsoft.com/directx: 2}}}]}}",
    );
    let remedy =
        |number: &str| answer(&pod, &cluster(&[on("win-2025", number)], &BTreeMap::new())).remedy.unwrap().text;
    let plugin = "see that the device plugin of microsoft.com/directx runs on the node, or do not request it";
    assert!(remedy("'0'").contains(plugin), "{}", remedy("'0'"));
    assert!(remedy("'1'").contains("request less of microsoft.com/directx"), "{}", remedy("'1'"));
}

#[test]
fn a_handler_that_no_node_has_is_a_matter_of_the_class_and_a_wanted_zone_of_the_nodes() {
    let (mut machines, classes) = open_cluster();
    for machine in &mut machines {
        machine.handlers = Some(["other".to_owned()].into());
    }
    let (_, remedy) = remedy_with(
        "{metadata: {name: web}, spec: {runtimeClassName: windows-2022, containers: [{name: c, image: i}]}}",
        &machines,
        &classes,
    );
    insta::assert_snapshot!(remedy.unwrap(), @"RuntimeClass windows-2022: correct the handler of the RuntimeClass, which containerd calls runhcs-wcow-process for Windows, or choose another class");
    let (_, remedy) = remedy_of(
        "{metadata: {name: db}, spec: {nodeSelector: {kubernetes.io/os: windows}, containers: [{name: c, image: i}], \
          affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
          [{matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}}}}",
    );
    insta::assert_snapshot!(remedy.unwrap(), @"to land on win-2019-0, win-2022-0, win-2025-0 and 6 more: remove the required node affinity; or keep it, and add a node that satisfies it");
}
