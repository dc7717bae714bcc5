//! The read commands as processes: exit codes, streams, and text from others.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::input::with_input;

const POOL: &str = "examples/windowspool.yaml";
const CLUSTER: &str = "examples/offline";

fn winpool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).args(arguments).stdin(Stdio::null());
    // There is no cluster.
    command.env("KUBECONFIG", "/nonexistent").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    read(&winpool(arguments).output().unwrap())
}

fn read(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn with_stdin(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    read(&with_input(&mut winpool(arguments), input))
}

fn node(name: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}},
        "status": {"nodeInfo": {"kernelVersion": "10.0.20348.1"}},
    })
    .to_string()
}

#[test]
fn exit_codes_tell_nothing_to_do_from_changes_and_from_errors() {
    for (arguments, code) in [
        (&["plan", "-f", POOL][..], 2),
        (&["plan", "-f", POOL, "-f", CLUSTER], 2),
        (&["plan", "-f", CLUSTER], 1),
        (&["plan", "-f", "/nonexistent"], 1),
        (&["plan"], 1),
        (&["plan", "--nonsense"], 1),
        (&["nonsense"], 1),
        (&[], 1),
        (&["--help"], 0),
        (&["plan", "--help"], 0),
        (&["--version"], 0),
        (&["version"], 0),
        (&["builds"], 0),
        (&["completions", "bash"], 0),
        (&["why", "node", "win-2019", "-f", POOL, "-f", CLUSTER], 0),
        (&["why", "node", "nobody", "-f", POOL, "-f", CLUSTER], 1),
        (&["why", "pod", "web-6d5f9", "-n", "shop", "-f", CLUSTER], 0),
        (&["why", "pod/web-6d5f9", "-n", "shop", "-f", CLUSTER], 0),
        (&["why", "node/win-2019", "-f", POOL, "-f", CLUSTER], 0),
        (&["why", "service/web", "-f", CLUSTER], 1),
        (&["why", "node", "-f", CLUSTER], 1),
        (&["why", "deployment/gone", "-f", CLUSTER], 1),
        (&["status", "-f", POOL, "-f", CLUSTER], 0),
        (&["render", "eksctl", "-f", POOL, "--windows", "20h2"], 1),
        (&["render", "karpenter", "-f", POOL, "--windows", "1709"], 1),
        (&["why", "pod", "web-6d5f9", "-f", CLUSTER], 1),
        (&["render", "kubelet", "-f", POOL], 0),
        (&["render", "kubelet", "-f", POOL, "--pool", "other"], 1),
        (&["render", "kubelet", "-f", POOL, "--windows", "2023"], 1),
        (&["render", "gke", "-f", POOL, "--windows", "2025"], 1),
    ] {
        let (found, out, error) = run(arguments);
        assert_eq!(found, Some(code), "{arguments:?}\n{out}\n{error}");
        let (speaks, silent) = if code == 1 { (&error, &out) } else { (&out, &error) };
        assert!(!speaks.is_empty() && silent.is_empty(), "{arguments:?}\n{out}\n{error}");
    }
}

#[test]
fn machines_get_json_or_yaml_of_one_shape() {
    let (_, json, _) = run(&["plan", "-f", POOL, "-f", CLUSTER, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["summary"]["nodesToChange"], 2);
    let change = &json["nodes"][0]["changes"][0];
    assert_eq!((&json["nodes"][0]["name"], &json["nodes"][0]["pool"]), (&"win-2019".into(), &"default".into()));
    assert_eq!(change["field"], "metadata.labels[node.kubernetes.io/windows-build]");
    assert_eq!((&change["from"], &change["to"]), (&serde_json::Value::Null, &"10.0.17763".into()));
    assert_eq!(
        (&json["runtimeClasses"][0]["name"], &json["runtimeClasses"][0]["action"]),
        (&"windows-2019".into(), &"Create".into())
    );
    let (_, yaml, _) = run(&["plan", "-f", POOL, "-f", CLUSTER, "-o", "yaml"]);
    assert_eq!(serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap(), json);
    let (_, pod, _) = run(&["why", "pod", "web-6d5f9", "-n", "shop", "-f", CLUSTER, "-o", "json"]);
    let pod: serde_json::Value = serde_json::from_str(&pod).unwrap();
    assert_eq!((&pod["object"]["name"], &pod["nodes"][1]["possible"]), (&"web-6d5f9".into(), &true.into()));
    let remedy = "it starts on win-2019, but no label distinguishes this node from others: node.kubernetes.io/windows-build is missing, \
                  which winpool adds";
    assert_eq!(pod["remedy"]["text"], remedy, "win-2022 takes it too, and does not run its image");
}

/// A node and a RuntimeClass that are right, and a DaemonSet that does not tolerate the taint that the node lacks.
const ONLY_HELD: &str = r"
{apiVersion: v1, kind: Node,
 metadata: {name: win, labels: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.20348}},
 status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.20348.2655}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: shop},
 spec: {template: {spec: {os: {name: windows}, containers: [{name: agent, image: example.com/agent}]}}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass,
 metadata: {name: windows-2022, labels: {app.kubernetes.io/managed-by: winpool, winpool.dev/pool: default}},
 handler: runhcs-wcow-process, scheduling: {
   nodeSelector: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.20348},
   tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]}}
";

#[test]
fn a_plan_whose_only_change_is_a_held_taint_exits_with_2() {
    let (code, out, error) = with_stdin(&["plan", "-f", POOL, "-f", "-", "-o", "json"], ONLY_HELD);
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["summary"]["pools"][0]["heldTaints"], serde_json::json!(["os=windows:NoSchedule"]));
    assert_eq!((code, error.as_str()), (Some(2), ""));
    assert_eq!((&plan["nodes"], &plan["runtimeClasses"]), (&serde_json::json!([]), &serde_json::json!([])));
    let tolerating = ONLY_HELD.replace("os: {name: windows}", "os: {name: windows}, tolerations: [{operator: Exists}]");
    let (_, out, _) = with_stdin(&["plan", "-f", POOL, "-f", "-", "-o", "json"], &tolerating);
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["summary"]["pools"][0]["heldTaints"], serde_json::json!([]), "nothing is held for others");
}

#[test]
fn standard_input_is_a_file_like_others() {
    let (code, out, error) = with_stdin(&["plan", "-f", POOL, "-f", "-"], &node("piped"));
    assert_eq!(code, Some(2), "{error}");
    assert!(out.contains("~ piped"), "{out}");
}

#[test]
fn an_object_that_is_given_twice_counts_once() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeName: win, containers: []}, status: {phase: Running}}";
    let pool = "{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {name: default}, spec: {}}";
    let once = format!("{pool}\n---\n{}\n---\n{pod}", node("win"));
    let twice = format!("{once}\n---\n{once}");
    for arguments in [
        &["plan"][..],
        &["status"],
        &["check"],
        &["blockers", "--retire", "2022"],
        &["why", "pod/web"],
        &["why", "node/win"],
        &["render", "kubelet"],
    ] {
        let arguments = [arguments, &["-f", "-"]].concat();
        assert_eq!(with_stdin(&arguments, &once), with_stdin(&arguments, &twice), "{arguments:?}");
    }
    let (_, out, _) = with_stdin(&["plan", "-f", "-"], &once);
    assert!(out.contains("Pod default/web (1 pod)"), "{out}");
    // The last one wins, as with kubectl apply.
    let changed = pool.replace("spec: {}", "spec: {nodeSelector: {team: a}}");
    let (_, out, error) = with_stdin(&["plan", "-f", "-", "-o", "json"], &format!("{once}\n---\n{changed}"));
    let note = "winpool: stdin:7: WindowsPool default replaces the one of stdin:1, as with kubectl apply\n";
    assert_eq!(error, note);
    assert_eq!(with_stdin(&["plan", "-f", "-", "-o", "json"], &once.replace(pool, &changed)).1, out);
}

#[test]
fn an_object_whose_name_the_api_server_makes_is_named_by_its_prefix() {
    let spec = "{os: {name: windows}, nodeName: win, containers: []}";
    let job = format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{generateName: import-}}, spec: {{template: {{spec: {spec}}}}}}}"
    );
    let pod = format!("{{apiVersion: v1, kind: Pod, metadata: {{generateName: once-}}, spec: {spec}}}");
    let manifests = format!("{job}\n---\n{pod}\n---\n{}", node("win"));
    let (_, out, _) = with_stdin(&["plan", "-f", POOL, "-f", "-"], &manifests.replace("nodeName: win, ", ""));
    assert!(out.contains("Job default/import-\n") && out.contains("Pod default/once- (1 pod)"), "{out}");
    let (_, _, error) = with_stdin(&["plan", "-f", "-"], &pod.replace(spec, "hello"));
    assert!(error.contains("stdin:1: Pod: spec: spec is not a pod spec"), "{error}");
}

#[test]
fn fields_without_a_value_are_absent() {
    let manifests = "apiVersion: winpool.dev/v1alpha1
kind: WindowsPool
metadata: {name: default, labels: }
spec: {nodeSelector: , taints: , mode: , runtimeClasses: [{name: windows-2022, version: 2022, overhead: }]}
---
apiVersion: v1
kind: Node
metadata: {name: win, labels: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}, annotations: }
spec: {taints: }
status: {allocatable: , nodeInfo: }
---
apiVersion: v1
kind: Pod
metadata: {name: web, ownerReferences: }
spec: {runtimeClassName: windows-2022, containers: [{name: c, image: 'a:ltsc2022', resources: {limits: }}], tolerations: }
status:
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: windows}
spec:
  limits:
  template:
    metadata:
    spec:
      taints:
      requirements: [{key: kubernetes.io/os, operator: In, values: [windows]}]
";
    for arguments in [&["plan"][..], &["status"], &["check"], &["why", "pod/web"], &["why", "class/windows-2022"]] {
        let (code, out, error) = with_stdin(&[arguments, &["-f", "-"]].concat(), manifests);
        assert!(code != Some(1) && error.is_empty(), "{arguments:?}: {error}");
        assert!(!out.contains("cannot be read"), "{out}");
    }
}

#[test]
fn manifests_without_nodes_do_not_show_that_the_cluster_has_none() {
    let pod =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {os: {name: windows}, containers: [{name: c}]}\n";
    for subject in ["pod/web", "node/win"] {
        let (code, _, error) = with_stdin(&["why", subject, "-f", "-"], pod);
        assert!(code == Some(2) && error.to_lowercase().starts_with("winpool: the manifests have no nodes"), "{error}");
    }
    for (command, code) in [("status", 2), ("plan", 2)] {
        let (found, out, _) = with_stdin(&[command, "-f", POOL, "-f", "-"], pod);
        assert_eq!(found, Some(code));
        assert!(out.contains("Note: The manifests have no nodes"), "{command}: {out}");
        let (_, out, _) = with_stdin(&[command, "-f", POOL, "-f", "-"], &node("win"));
        assert!(!out.contains("no nodes"), "{command}: {out}");
    }
}

#[test]
fn plan_does_not_say_that_all_is_well_while_pods_wait() {
    let plan = |problems: &str| {
        let pool = format!(
            "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {{name: default}}\nspec: {{}}\nstatus: {{problems: [{problems}]}}\n"
        );
        let linux = "apiVersion: v1\nkind: Node\nmetadata: {name: linux, labels: {kubernetes.io/os: linux}}\n";
        let (code, out, _) = with_stdin(&["plan", "-f", "-"], &format!("{pool}---\n{linux}"));
        (code, out)
    };
    let (code, out) = plan("");
    assert!(code == Some(0) && out.starts_with("winpool has nothing to change."), "{code:?}: {out}");
    for reason in ["PodsFailing", "ClassWithoutNodes"] {
        let object = "{kind: Deployment, namespace: shop, name: web}";
        let (code, out) = plan(&format!("{{reason: {reason}, object: {object}, message: 2 pods wait}}"));
        assert!(code == Some(2) && out.contains(&format!("{reason} Deployment shop/web")), "{code:?}: {out}");
        assert!(!out.contains("nothing to change") && out.contains("2 pods wait"), "{out}");
    }
}

#[test]
fn status_does_not_take_manifests_without_pools_and_nodes_for_an_empty_cluster() {
    let (code, out, _) = with_stdin(&["status", "-f", "-"], "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    assert!(out.contains("The manifests have no WindowsPool") && out.contains("The manifests have no nodes"), "{out}");
    assert!(code == Some(2) && !out.contains("There is no"), "{code:?}: {out}");
}

#[test]
fn the_pool_that_an_error_suggests_is_valid() {
    let (code, _, error) = with_stdin(&["plan", "-f", "-"], &node("win"));
    assert_eq!(code, Some(1), "{error}");
    let pool = error.trim_end().split_once("such as: ").unwrap().1;
    let (code, out, error) = with_stdin(&["plan", "-f", "-"], &format!("{pool}\n---\n{}", node("win")));
    assert_eq!((code, error.as_str()), (Some(2), ""), "{out}");
}

#[test]
fn plan_shows_the_changes_of_a_pool_in_dry_run() {
    let pool = "{apiVersion: winpool.dev/v1alpha1, kind: WindowsPool, metadata: {name: default}, spec: {mode: DryRun}}";
    let (code, out, error) = with_stdin(&["plan", "-f", "-"], &format!("{pool}\n---\n{}", node("win")));
    assert_eq!((code, error.as_str()), (Some(2), ""), "changes are pending");
    let enforced =
        with_stdin(&["plan", "-f", "-"], &format!("{}\n---\n{}", pool.replace("DryRun", "Enforce"), node("win"))).1;
    assert!(out.starts_with("1 RuntimeClass and 1 of 1 node would be written.\n"), "{out}");
    assert!(out.contains("\nNote: WindowsPool default is in dry run"), "{out}");
    let changes = |out: &str| out[out.find("Step 1: RuntimeClasses").unwrap()..].to_owned();
    assert_eq!(changes(&out), changes(&enforced), "the same changes");
}

#[test]
fn errors_of_manifests_have_a_position() {
    let (code, _, error) = with_stdin(&["plan", "-f", "-"], "apiVersion: v1\nkind: [Node\nmetadata: {}\n");
    assert_eq!((code, error.as_str()), (Some(1), "winpool: stdin:3:9: illegal placement of ':' indicator\n"));
    let wrong = "apiVersion: winpool.dev/v1alpha1\nkind: WindowsPool\nmetadata: {name: default}\nspec: {mode: Maybe}\n";
    let (code, _, error) = with_stdin(&["plan", "-f", "-"], wrong);
    assert_eq!(code, Some(1));
    assert!(error.starts_with("winpool: stdin:1: WindowsPool default: unknown variant `Maybe`"), "{error}");
    let refused = wrong.replace("mode: Maybe", "taints: []");
    let (code, _, error) = with_stdin(&["plan", "-f", "-"], &refused);
    assert_eq!(code, Some(1));
    assert!(error.starts_with("winpool: stdin:1: WindowsPool default: spec: taints: [] is the same as"), "{error}");
}

#[test]
fn colour_is_used_on_terminals_and_if_forced() {
    let plan = ["plan", "-f", POOL, "-f", CLUSTER];
    assert!(!run(&plan).1.contains('\u{1b}'));
    let (_, forced, _) = read(&winpool(&plan).env("CLICOLOR_FORCE", "1").output().unwrap());
    assert!(forced.contains("\u{1b}["), "{forced}");
    let (_, refused, _) = read(&winpool(&plan).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output().unwrap());
    assert!(!refused.contains('\u{1b}'), "{refused}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let manifests: String = (0..3000).map(|index| node(&format!("win-{index}")) + "\n---\n").collect();
    for format in ["json", "text"] {
        let mut child = winpool(&["plan", "-f", POOL, "-f", "-", "-o", format])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        child.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let (code, _, error) = read(&child.wait_with_output().unwrap());
        assert_eq!((code, error.as_str()), (Some(2), ""));
    }
}

#[test]
fn control_characters_are_escaped() {
    // YAML refuses such characters unless they are escaped.
    let hostile = node("a\u{1b}]0;b\u{7}C\u{202e}").replace('C', "\\u009b");
    for format in ["text", "json", "yaml"] {
        let (code, out, _) = with_stdin(&["plan", "-f", POOL, "-f", "-", "-o", format], &hostile);
        assert_eq!(code, Some(2));
        assert!(!out.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{out:?}");
    }
    let (code, _, error) = run(&["plan", "-f", "/no\u{1b}[2Jthing"]);
    assert_eq!(code, Some(1));
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn the_kubectl_plugin_uses_its_own_name() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-winpool");
    std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_winpool")), &plugin).unwrap();
    let help = |argument| read(&Command::new(&plugin).args(["plan", argument]).output().unwrap()).1;
    assert!(help("--help").contains("Usage: kubectl winpool plan"), "{}", help("--help"));
    let script = read(&Command::new(&plugin).args(["completions", "bash"]).output().unwrap()).1;
    assert!(script.contains("kubectl-winpool"), "{script}");
}

#[test]
fn the_error_without_a_cluster_has_a_remedy() {
    let (code, _, error) = run(&["plan"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("KUBECONFIG") && error.contains("-f"), "{error}");
    let (code, _, error) = run(&["plan", "--kubeconfig", "/nonexistent", "--context", "x"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("/nonexistent"), "{error}");
}
