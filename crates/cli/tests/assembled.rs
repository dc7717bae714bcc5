//! Workflows of Argo and tasks of Tekton: their controllers assemble pods from fields of their own.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::input::with_input;

pub const NODES: &str = "\
apiVersion: v1
kind: Node
metadata: {name: old, labels: {kubernetes.io/os: windows}}
spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}
status: {nodeInfo: {operatingSystem: windows, kernelVersion: 10.0.17763.1, containerRuntimeVersion: 'containerd://2.0.4'}}
---
apiVersion: v1
kind: Node
metadata: {name: linux, labels: {kubernetes.io/os: linux}}
status: {nodeInfo: {operatingSystem: linux}}
---
";

const WORKFLOW: &str = "\
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: build, namespace: ci}
spec:
  entrypoint: all
  nodeSelector: {kubernetes.io/os: windows}
  tolerations: [{key: os, value: windows, effect: NoSchedule}]
  podSpecPatch: |
    os: {name: windows}
  templates:
  - name: all
    steps: [[{name: compile, template: compile}]]
  - name: compile
    container:
      image: mcr.microsoft.com/dotnet/framework/sdk:4.8-windowsservercore-ltsc2019
      securityContext: {privileged: true}
  - name: test
    script:
      image: mcr.microsoft.com/powershell:lts-nanoserver-1809
      command: [pwsh]
      source: Invoke-Pester
    sidecars:
    - {name: cache, image: 'cache:nanoserver-ltsc2022'}
  - name: publish
    nodeSelector: {kubernetes.io/os: linux}
    podSpecPatch: 'os: {name: linux}'
    container: {image: 'alpine:3', securityContext: {privileged: true}}
";

const CRON: &str = "\
apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: nightly, namespace: ci}
spec:
  schedules: ['0 3 * * *']
  workflowSpec:
    entrypoint: clean
    templates:
    - name: clean
      nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}
      containerSet:
        containers:
        - {name: a, image: 'clean:1'}
        - {name: b, image: 'clean:ltsc2019'}
";

const PIPELINE_RUN: &str = "\
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: release, namespace: ci}
spec:
  taskRunTemplate:
    podTemplate:
      nodeSelector: {kubernetes.io/os: windows}
      tolerations: [{operator: Exists}]
  taskRunSpecs:
  - pipelineTaskName: sign
    podTemplate: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}, runtimeClassName: windows-2019}
  pipelineSpec:
    tasks:
    - name: build
      taskSpec:
        steps:
        - {name: build, image: 'sdk:ltsc2019', securityContext: {privileged: true}}
    finally:
    - name: sign
      taskSpec:
        stepTemplate: {image: 'sign:ltsc2019'}
        steps: [{name: sign}]
";

const TASK: &str = "\
apiVersion: tekton.dev/v1
kind: Task
metadata: {name: mixed, namespace: ci}
spec:
  steps:
  - {name: a, image: 'tool:ltsc2019'}
  - {name: b, image: 'tool:ltsc2022'}
";

const RUN_OF_TASK: &str = "\
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {generateName: clean-, namespace: ci}
spec:
  taskRef: {name: clean}
  podTemplate: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.17763}}
";

pub fn winpool(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).args(["-f", "-"]).current_dir(Path::new("/")).env("KUBECONFIG", "/nonexistent");
    let output = with_input(&mut command, input);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The findings about an input: rule and field.
fn found(input: &str) -> Vec<String> {
    let (_, out, error) = winpool(&["check", "-o", "json"], &format!("{NODES}{input}"));
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    findings
        .filter(|finding| finding["object"]["kind"] != "Node")
        .map(|finding| format!("{} {}", text(&finding["rule"]), text(&finding["field"])))
        .collect()
}

/// The fields that pin the workloads of an input to Windows Server 2019.
pub fn pins(input: &str) -> Vec<String> {
    let (_, out, error) = winpool(&["blockers", "--retire", "2019", "-o", "json"], &format!("{NODES}{input}"));
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    let pins = report["blockers"].as_array().unwrap().iter().flat_map(|blocker| blocker["pins"].as_array().unwrap());
    pins.map(|pin| pin["field"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_templates_of_a_workflow_are_read_as_the_pods_that_argo_makes() {
    let broken = found(WORKFLOW);
    let expected = "container-privileged spec.templates[1].container.securityContext.privileged";
    assert!(broken.iter().any(|found| found == expected), "{broken:#?}");
    assert!(broken.iter().any(|found| found.contains("spec.templates[2].sidecars[0].image")), "{broken:#?}");
    assert!(broken.iter().all(|found| !found.contains("templates[3]")), "a Linux pod may be privileged: {broken:#?}");
    assert_eq!(pins(WORKFLOW), ["spec.templates[1].container.image", "spec.templates[2].script.image"]);
    assert_eq!(
        pins(CRON),
        [
            "spec.workflowSpec.templates[0].nodeSelector",
            "spec.workflowSpec.templates[0].containerSet.containers[1].image"
        ]
    );
}

#[test]
fn the_steps_of_tekton_are_read_as_the_containers_of_a_pod() {
    let broken = found(PIPELINE_RUN);
    let expected = "container-privileged spec.pipelineSpec.tasks[0].taskSpec.steps[0].securityContext.privileged";
    assert!(broken.iter().any(|found| found == expected), "{broken:#?}");
    let expected = [
        "spec.pipelineSpec.tasks[0].taskSpec.steps[0].image",
        "spec.taskRunSpecs[0].podTemplate.nodeSelector",
        "spec.taskRunSpecs[0].podTemplate.runtimeClassName",
        "spec.pipelineSpec.finally[0].taskSpec.steps[0].image",
    ];
    let pinned = pins(&format!("{PIPELINE_RUN}---\n{CLASS}"));
    assert_eq!(pinned, expected);
    assert_eq!(pins(RUN_OF_TASK), ["spec.podTemplate.nodeSelector"], "the task is elsewhere");
    assert!(found(TASK).iter().any(|found| found == "image-builds-differ spec.steps[1].image"), "{:#?}", found(TASK));
}

const CLASS: &str = "\
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: windows-2019}
handler: runhcs-wcow-process
scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}}
";

#[test]
fn a_run_that_has_ended_is_left_out() {
    let ended = format!("{PIPELINE_RUN}status: {{completionTime: '2026-11-24T06:30:00Z'}}\n");
    assert_eq!((pins(&ended), found(&ended)), (Vec::new(), Vec::new()));
}

#[test]
fn fix_leaves_these_kinds_as_they_are_and_says_what_to_do_by_hand() {
    for input in [WORKFLOW, CRON, PIPELINE_RUN, TASK, RUN_OF_TASK] {
        let input = format!("{NODES}{input}");
        let (code, out, notes) = winpool(&["fix", "--retire", "2019", "--move-to", "2022"], &input);
        assert_eq!((code, out), (Some(0), input), "{notes}");
        assert!(notes.contains("0 changed, 1 by hand") || notes.contains("0 changed, 2 by hand"), "{notes}");
        assert!(notes.contains("2022") || notes.contains("20348") || notes.contains("image"), "{notes}");
    }
}

#[test]
fn a_controller_with_several_pod_templates_keeps_those_that_are_not_pinned() {
    let job_set = "\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train, namespace: ci}
spec:
  replicatedJobs:
  - name: driver
    template:
      spec:
        template:
          spec:
            nodeSelector: {kubernetes.io/os: linux}
            containers: [{name: c, image: 'driver:1'}]
  - name: a
    template:
      spec:
        template:
          spec:
            nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}
            containers: [{name: c, image: 'worker:1'}]
  - name: b
    template:
      spec:
        template:
          spec:
            nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}
            containers: [{name: c, image: 'worker:2'}]
";
    let (code, out, notes) = winpool(&["fix", "--retire", "2019", "--move-to", "2022"], job_set);
    assert_eq!(code, Some(0), "{notes}");
    assert_eq!(out, job_set.replace("10.0.17763", "10.0.20348"), "{notes}");
}
