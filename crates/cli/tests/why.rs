//! The output of `winpool why node` for nodes in every state, and of `winpool why class`.

use std::process::Command;

use crate::input::with_input;
use serde_json::{Value, json};

/// The pool `enforced` has added its taint; a DaemonSet holds that of `held`.
const CLUSTER: &str = r#"
apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: enforced, creationTimestamp: 2026-01-01T00:00:00Z}
spec: {nodeSelector: {team: a}}
status: {taints: [{taint: "os=windows:NoSchedule", since: "2026-01-01T00:00:00Z", atRegistration: true}]}
---
apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: held, creationTimestamp: 2026-01-02T00:00:00Z}
spec: {nodeSelector: {team: b}, runtimeClassNameFormat: "b-{version}"}
---
apiVersion: v1
kind: Node
metadata:
  name: converged
  labels:
    kubernetes.io/os: windows
    kubernetes.io/arch: amd64
    node.kubernetes.io/windows-build: 10.0.20348
    team: a
    winpool.dev/pool: enforced
  annotations: {winpool.dev/applied: '{"pool":"enforced","taints":["os=windows:NoSchedule"]}'}
spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2655}}
---
apiVersion: v1
kind: Node
metadata:
  name: held
  labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.17763, team: b}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.6659}}
---
apiVersion: v1
kind: Node
metadata:
  name: blocked
  labels: {kubernetes.io/os: windows, team: a, winpool.dev/pool: enforced}
  annotations: {winpool.dev/applied: '{"pool":"enforced","taints":["os=windows:NoSchedule"]}'}
spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: unknown}}
---
apiVersion: v1
kind: Node
metadata:
  name: ignored
  labels: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.14393, team: a}
  annotations: {winpool.dev/ignore: "true"}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2655}}
---
apiVersion: v1
kind: Node
metadata:
  name: guarded-by-others
  labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.20348, team: a}
spec:
  taints:
  - {key: os, value: Windows, effect: NoSchedule}
  - {key: team, value: a, effect: NoSchedule}
  - {key: node.kubernetes.io/unschedulable, effect: NoSchedule}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2655}}
---
apiVersion: v1
kind: Node
metadata:
  name: nobodys
  labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.29000, team: c}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.29000.1}}
---
apiVersion: v1
kind: Node
metadata:
  name: reimaged
  labels: {kubernetes.io/os: linux, node.kubernetes.io/windows-build: 10.0.20348, team: a, winpool.dev/pool: enforced}
status: {nodeInfo: {operatingSystem: linux, kernelVersion: 6.8.0}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: windows-2022
  labels: {app.kubernetes.io/managed-by: winpool, winpool.dev/pool: enforced}
handler: runhcs-wcow-process
scheduling:
  nodeSelector: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.20348}
  tolerations:
  - {key: os, operator: Equal, value: Windows, effect: NoSchedule}
  - {key: os, operator: Equal, value: windows, effect: NoSchedule}
---
apiVersion: v1
kind: Pod
metadata:
  name: old-x
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: old, uid: "1", controller: true}]
spec: {nodeName: held, os: {name: windows}, containers: [{name: old, image: "example.com/old:ltsc2019"}]}
status: {phase: Running}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec: {template: {spec: {nodeSelector: {kubernetes.io/os: windows, team: b}, containers: [{name: agent, image: example.com/agent}]}}}
"#;

/// A pool with three classes, and what could make nodes for them.
const NO_NODES_YET: &str = r#"
apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: default}
spec:
  mode: DryRun
  runtimeClasses: [{name: windows-2019, version: 2019}, {name: windows-2022, version: 2022}, {name: windows-2025, version: 2025}]
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: windows-2022}
spec: {amiSelectorTerms: [{alias: windows2022@latest}]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: windows-2022}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: windows-2022}}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  weight: 10
  template:
    spec:
      nodeClassRef: {group: karpenter.example.com, kind: NodeClass, name: general}
      requirements: [{key: node.kubernetes.io/windows-build, operator: NotIn, values: ["10.0.17763"]}]
---
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
managedNodeGroups: [{name: old, labels: {kubernetes.io/os: linux}, taints: [{key: gpu, effect: NoSchedule}]}]
"#;

fn winpool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    let output = with_input(command.args(arguments), input);
    assert_ne!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn why(node: &str) -> String {
    winpool(&["why", "node", node, "-f", "-"], CLUSTER)
}

#[test]
fn why_class_names_the_node_pools_that_serve_it_and_what_others_lack() {
    for class in ["windows-2019", "windows-2022", "windows-2025"] {
        insta::assert_snapshot!(class, winpool(&["why", "class", class, "-f", "-"], NO_NODES_YET));
    }
}

#[test]
fn node_pools_in_a_typed_list_are_read_too() {
    let typed = "---\napiVersion: karpenter.sh/v1\nitems: [{metadata: {name: of-list}, spec: {template: {spec: {nodeClassRef: {group: g, kind: k, name: n}}}}}]\nkind: NodePoolList\n";
    let text = winpool(&["why", "class", "windows-2022", "-f", "-"], &format!("{NO_NODES_YET}{typed}"));
    assert!(text.contains("NodePool of-list"), "{text}");
}

#[test]
fn plan_has_a_line_for_each_class_that_starts_from_zero() {
    let plan = winpool(&["plan", "-f", "-"], NO_NODES_YET);
    insta::assert_snapshot!(plan.split_once("Scaling from zero").unwrap().1);
}

#[test]
fn a_linux_node_in_manifests_is_explained_too() {
    let linux = "---\napiVersion: v1\nkind: Node\nmetadata: {name: linux-1, labels: {kubernetes.io/os: linux}}\nstatus: {nodeInfo: \
                 {operatingSystem: linux, kernelVersion: 6.8.0-x}}\n";
    let text = winpool(&["why", "node/linux-1", "-f", "-"], &format!("{CLUSTER}{linux}"));
    assert!(text.contains("its label kubernetes.io/os is linux: no pool selects it"), "{text}");
    assert!(!text.contains("its build is not known"), "{text}");
}

#[test]
fn a_workload_in_manifests_needs_its_class_or_the_pool_that_creates_it() {
    let nodes = "---\napiVersion: v1\nkind: Node\nmetadata: {name: win, labels: {kubernetes.io/os: windows}}\nspec: {taints: \
                 [{key: os, value: windows, effect: NoSchedule}]}\nstatus: {nodeInfo: {operatingSystem: windows, architecture: amd64, \
                 kernelVersion: 10.0.20348.2655, bootID: a, containerRuntimeVersion: 'containerd://2.1.0', kubeProxyVersion: v1, \
                 kubeletVersion: v1, machineID: a, osImage: a, systemUUID: a}}\n";
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {metadata: , spec: \
                      {runtimeClassName: windows-2022, containers: [{name: c, image: 'app:ltsc2022'}]}}}\n";
    let pool = "---\napiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec: {}\n";
    let labelled = nodes.replace(
        "kubernetes.io/os: windows}",
        "kubernetes.io/os: windows, node.kubernetes.io/windows-build: \
                                                               10.0.20348, kubernetes.io/arch: amd64}",
    );
    let why = |input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        command.env("COLUMNS", "80");
        // Objects that name no namespace are in the one that the user names.
        let output = with_input(command.args(["why", "deployment/web", "-n", "shop", "-f", "-"]), input);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, error) = why(&format!("{deployment}{labelled}"));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.starts_with("winpool: the manifests have no RuntimeClass windows-2022, "), "{error}");
    let (code, out, error) = why(&format!("{deployment}{labelled}{pool}"));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(out.contains("Deployment shop/web") && out.contains("No change is needed"), "{out}");
}

#[test]
fn a_toleration_that_winpool_adds_to_new_pods_counts() {
    let explained = |kind: &str, template: &str, policy: &str| {
        let workload = format!(
            "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{template: {{{template}spec: {{nodeSelector: \
             {{kubernetes.io/os: windows}}, containers: [{{name: c, image: 'app:ltsc2022'}}]}}}}}}\n"
        );
        let pool = format!(
            "---\napiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {{name: default}}\nspec: {policy}\n"
        );
        let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: win, labels: {kubernetes.io/os: windows}}\nspec: {taints: \
                    [{key: os, value: windows, effect: NoSchedule}]}\nstatus: {nodeInfo: {operatingSystem: windows, kernelVersion: \
                    10.0.20348.2655}}\n";
        winpool(&["why", &format!("{}/web", kind.to_lowercase()), "-f", "-"], &format!("{workload}{pool}{node}"))
    };
    let note = "Note: winpool adds the toleration of os=windows:NoSchedule to its new pods, while winpool runs";
    let text = explained("Deployment", "", "{}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("win can be scheduled, and starts") && words.contains(note), "{text}");
    let ignored = "metadata: {annotations: {winpool.dev/ignore: 'true'}}, ";
    for (kind, template, policy) in [
        ("Deployment", "", "{taintPolicy: TaintOnly}"),
        ("Deployment", "", "{mode: DryRun}"),
        ("Deployment", ignored, "{}"),
        ("DaemonSet", "", "{}"),
    ] {
        let text = explained(kind, template, policy);
        let is_kept_off = text.contains("the taint os=windows:NoSchedule is not tolerated");
        assert!(is_kept_off && !text.contains("winpool adds the toleration of"), "{kind} {template} {policy}\n{text}");
    }
}

#[test]
fn a_missing_toleration_is_explained_by_what_the_pool_does() {
    let explained = |kind: &str, annotations: &str, spec: &str| {
        let [own, of_pods] = if kind == "DaemonSet" { [annotations, ""] } else { ["", annotations] };
        let workload = format!(
            "---\napiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web{own}}}\nspec: {{template: {{metadata: {{labels: {{}}{of_pods}}}, \
             spec: {{nodeSelector: {{kubernetes.io/os: windows}}, containers: [{{name: c, image: 'app:1'}}]}}}}}}\n"
        );
        let pool = format!(
            "---\napiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {{name: default}}\nspec: {spec}\n"
        );
        let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: win, labels: {kubernetes.io/os: windows}}\n";
        let out =
            winpool(&["why", &format!("{}/web", kind.to_lowercase()), "-f", "-"], &format!("{workload}{pool}{node}"));
        let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
        words.split_once("Suggested change: ").unwrap().1.split(" Not considered").next().unwrap().to_owned()
    };
    let ignored = ", annotations: {winpool.dev/ignore: 'true'}";
    let (will, would) = ("a WindowsPool will add", "a WindowsPool in dry run would add");
    for (annotations, spec, adds, tolerates) in [
        ("", "{}", will, "; while winpool runs, it adds the toleration to each new pod"),
        ("", "{mode: DryRun}", would, "; with mode: Enforce, winpool adds the toleration to each new pod"),
        ("", "{taintPolicy: TaintOnly}", will, ""),
        (ignored, "{}", will, ""),
    ] {
        let text = explained("Deployment", annotations, spec);
        let expected = format!("{adds} to every Windows node that it selects: os=windows:NoSchedule{tolerates}");
        assert!(text.contains(&expected), "{spec}: {text}");
        assert_eq!(text.contains("adds the toleration to each new pod"), !tolerates.is_empty(), "{spec}: {text}");
    }
    for (annotations, spec, end) in [
        ("", "{}", "; winpool holds the taint if the DaemonSet is older than the taint"),
        (
            "",
            "{mode: DryRun}",
            "; with mode: Enforce, winpool holds the taint if the DaemonSet is older than the taint",
        ),
        ("", "{taintPolicy: TaintOnly}", "; winpool does not wait for this DaemonSet before it adds the taint"),
        (ignored, "{}", "; winpool does not wait for this DaemonSet before it adds the taint"),
    ] {
        let text = explained("DaemonSet", annotations, spec);
        assert!(text.ends_with(end), "{spec}: {text}");
    }
}

#[test]
fn why_says_that_another_scheduler_may_decide_otherwise() {
    let with = |scheduler: &str| {
        let pod = format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{schedulerName: {scheduler}, containers: []}}\n"
        );
        let deployment = format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec: {{template: {{spec: {{schedulerName: {scheduler}, containers: []}}}}}}\n"
        );
        ["pod/web", "deployment/web"]
            .map(|object| winpool(&["why", object, "-f", "-"], &format!("{CLUSTER}{pod}{deployment}")))
    };
    for text in with("volcano") {
        assert_eq!(text.matches("spec.schedulerName is volcano").count(), 1, "{text}");
        assert!(text.contains("the answer is that of the default scheduler"), "{text}");
    }
    for text in with("default-scheduler").into_iter().chain(with("\"\"")) {
        assert!(!text.contains("scheduler"), "{text}");
    }
}

#[test]
fn pods_are_not_counted_if_the_manifests_have_none() {
    let pods = |input: &str| -> Value {
        let status: Value = serde_json::from_str(&winpool(&["status", "-f", "-", "-o", "json"], input)).unwrap();
        json!([status["runtimeClasses"][0]["pods"], status["podsWithoutClass"]])
    };
    assert_eq!(pods(CLUSTER), json!([0, 1]));
    assert_eq!(pods(CLUSTER.split_once("---\napiVersion: v1\nkind: Pod").unwrap().0), json!([null, null]));
}

#[test]
fn the_marks_of_a_correct_node_are_explained() {
    insta::assert_snapshot!(why("converged"));
}

#[test]
fn a_held_taint_is_shown_with_the_daemon_sets_that_do_not_tolerate_it() {
    insta::assert_snapshot!(why("held"));
}

#[test]
fn a_node_with_an_unknown_build_is_blocked() {
    insta::assert_snapshot!(why("blocked"));
}

#[test]
fn an_ignored_node_is_explained() {
    insta::assert_snapshot!(why("ignored"));
}

#[test]
fn why_node_distinguishes_taints_of_other_writers() {
    insta::assert_snapshot!(why("guarded-by-others"));
}

#[test]
fn why_node_explains_why_no_pool_selects_it() {
    insta::assert_snapshot!(why("nobodys"));
}

#[test]
fn a_node_that_came_back_as_linux_loses_its_marks() {
    insta::assert_snapshot!(why("reimaged"));
}

#[test]
fn a_cordon_is_answered_with_uncordon_and_never_with_a_change_of_the_pool() {
    let node = |name: &str, build: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/os: windows, kubernetes.io/arch: amd64, \
             node.kubernetes.io/windows-build: {build}}}}}\nspec: {spec}\nstatus: {{nodeInfo: {{operatingSystem: windows, \
             kernelVersion: {build}.1, containerRuntimeVersion: 'containerd://2.0.4'}}}}\n---\n"
        )
    };
    let input = [
        node("win-2022", "10.0.20348", "{unschedulable: true}"),
        node("win-2025", "10.0.26100", "{}"),
        "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec: {}\n---\n".to_owned(),
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: portal}\nspec:\n  selector: {matchLabels: {app: a}}\n  template:\n    \
         metadata: {labels: {app: a}}\n    spec: {runtimeClassName: windows-2022, containers: [{name: a, image: 'app:ltsc2022'}]}\n"
            .to_owned(),
    ];
    let (_, out, error) = crate::assembled::winpool(&["why", "deployment/portal", "-o", "json"], &input.concat());
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    assert_eq!(answer["remedy"]["text"], "kubectl uncordon win-2022", "{answer:#}");
}

/// After Windows was upgraded in place on the only node: the pool reports what pods of the old class wait for.
const AFTER_AN_UPGRADE: &str = r#"
apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: default}
spec: {}
status:
  problems:
  - {reason: ClassWithoutNodes, object: {kind: RuntimeClass, name: windows-2022}, message: selects no node and is used by 1 pod}
---
apiVersion: v1
kind: Node
metadata: {name: win-1, labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.29000}}
spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.29000.1, containerRuntimeVersion: containerd://2.0.4}}
---
apiVersion: v1
kind: Node
metadata: {name: win-2, labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.26100}}
spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: banana, containerRuntimeVersion: containerd://2.0.4}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: windows-2022, labels: {app.kubernetes.io/managed-by: winpool, winpool.dev/pool: default}}
handler: runhcs-wcow-process
scheduling:
  nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}
  tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-x, namespace: shop}
spec:
  nodeName: win-1
  runtimeClassName: windows-2022
  nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}
  containers: [{name: web, image: "example.com/web:ltsc2022"}]
status: {phase: Running}
"#;

#[test]
fn on_the_day_of_an_upgrade_node_and_class_say_what_the_status_knows() {
    for (name, parts) in [
        (
            "node/win-1",
            [
                "1 pod selects what the node does not have, such as shop/web-x, which selects node.kubernetes.io/windows-build: \
                 10.0.20348: the kubelet ends it when it starts",
                "name it in spec.buildNames, such as {build: 10.0.29000, version: preview}",
            ],
        ),
        (
            "node/win-2",
            [
                "status.nodeInfo.kernelVersion is \"banana\", which is not a Windows version",
                "10.0.26100. Check the kubelet",
            ],
        ),
        (
            "class/windows-2022",
            ["RuntimeClass windows-2022 selects 0 nodes and is used by 1 pod.", "ClassWithoutNodes: selects no node"],
        ),
    ] {
        let told = winpool(&["why", name, "-f", "-"], AFTER_AN_UPGRADE);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(parts.iter().all(|part| told.contains(part)), "{name}: {told}");
    }
}
