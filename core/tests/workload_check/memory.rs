//! The memory of a check, in a process of its own.

use std::process::Command;

use winpool_core::{plan::WorkloadCheck, pod::Pod};

use super::scene::{Object, Scene, owned_by, running};

const PODS: usize = 100_000;
const CHILD: &str = "workload_check::memory::many_pods_in_a_process_of_its_own";

/// Every pod has a controller of its own of a kind that winpool does not read, and holds the taint.
#[test]
#[ignore = "a child of the next test"]
fn many_pods_in_a_process_of_its_own() {
    let mut check = WorkloadCheck::start(Scene::default().scope()).unwrap();
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
