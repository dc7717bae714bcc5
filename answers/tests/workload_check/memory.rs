//! The memory of a check, in a process of its own.

use std::process::Command;

use winpool_answers::prediction::WorkloadCheck;
use winpool_core::pod::Pod;

use super::scene::{Object, Scene, owned_by, running, workload};

const PODS: usize = 100_000;
const CHILD: &str = "workload_check::memory::many_pods_in_a_process_of_its_own";

/// Every pod has a controller of its own of a kind that winpool does not read, and holds the taint.
#[test]
#[ignore = "a child of the next test"]
fn many_pods_in_a_process_of_its_own() {
    let mut check = WorkloadCheck::start(Scene::default().scope());
    let Object::Pod(pod) = running("pod", "", &owned_by("GameServer", "server")) else { unreachable!() };
    let before = peak();
    for number in 0..PODS {
        let controller = Some(("GameServer".to_owned(), format!("game-server-{number}-abcde")));
        check.pod(&Pod { controller, ..(*pod).clone() });
    }
    let answer = check.finish().remove("default").unwrap();
    assert_eq!(answer.unschedulable.len(), PODS);
    println!("memory: {}", peak() - before);
}

/// The largest memory of this process so far, in kB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_check_of_100_000_pods_of_other_controllers_needs_less_than_40_mb() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", CHILD, "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    let memory = text.lines().find_map(|line| line.strip_prefix("memory: ")).expect(&text);
    println!("{memory} kB");
    assert!(memory.parse::<usize>().unwrap() < 40_000, "{memory} kB");
}

/// Every user of a namespace can write Deployments without pods whose affinity is as large as an object may be.
#[test]
fn what_workloads_require_of_nodes_is_kept_up_to_a_limit_and_counts_for_windows_beyond_it() {
    for (number_of_workloads, is_beyond) in [(20, false), (200, true)] {
        let mut check = WorkloadCheck::start(Scene::default().scope());
        for number in 0..number_of_workloads {
            let values: Vec<String> = (0..2000).map(|value| format!("'a-long-value-{number}-{value}'")).collect();
            let required = format!(
                "{{nodeSelectorTerms: [{{matchExpressions: [{{key: disk, operator: NotIn, values: [{}]}}]}}]}}",
                values.join(", ")
            );
            let template =
                format!("affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {required}}}}}");
            let deployment = workload("Deployment", &format!("web-{number}"), &template, "spec: {replicas: 0}");
            let Object::Workload(kind, deployment) = deployment else { unreachable!() };
            check.workload(kind, &deployment);
        }
        let kept = format!("{check:?}").len();
        assert!(kept < 8_000_000, "{kept} bytes for {number_of_workloads} workloads");
        for choice in check.undecided() {
            check.decide(&choice, true);
        }
        let answer = check.finish().remove("default").unwrap();
        assert_eq!(!answer.held.is_empty(), is_beyond, "{number_of_workloads}");
    }
}
