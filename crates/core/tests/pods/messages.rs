//! The causes that messages have, and messages that have none.

use serde_json::json;
use winpool_core::plan::pods::REASONS;
use winpool_core::pod::known_error;

use super::{counts, creating, creating_on, does_not_start, refused, waits, world};

/// Messages of containerd 1.6 and 1.7, of 2.x, and of Docker, as in reports.
const MESSAGES: [(&str, &str, &str); 14] = [
    (
        "no_variant",
        "Failed",
        r#"Failed to pull image "nginx": rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nginx:latest": no match for platform in manifest: not found"#,
    ),
    (
        "no_variant",
        "Failed",
        r#"Failed to pull image "nginx": failed to pull and unpack image "docker.io/library/nginx:latest": no match for platform in manifest: not found"#,
    ),
    (
        "no_variant",
        "Failed",
        r#"Failed to pull image "nginx": rpc error: code = Unknown desc = no matching manifest for windows/amd64 10.0.17763 in the manifest list entries"#,
    ),
    (
        "linux_image",
        "Failed",
        r#"Failed to pull image "app": rpc error: code = Unknown desc = failed to pull and unpack image "docker.io/app:1": failed to extract layer sha256:59bf: hcsshim::ProcessBaseLayer \\?\C:\ProgramData\containerd\root\io.containerd.snapshotter.v1.windows\snapshots\25: The system cannot find the path specified.: unknown"#,
    ),
    (
        "other_build",
        "Failed",
        "Error: failed to create containerd task: failed to create shim task: hcs::CreateComputeSystem web: The container operating system does not match the host operating system.: unknown",
    ),
    (
        "other_build",
        "Failed",
        "Error: failed to start containerd task \"c\": hcs::CreateComputeSystem c: The container operating system does not match the host operating system.: unknown",
    ),
    (
        "other_build",
        "Failed",
        "Error response from daemon: container 0238 encountered an error during CreateContainer: failure in a Windows system call: The operating system of the container does not match the operating system of the host. (0xc0370101)",
    ),
    (
        "pause_image",
        "FailedCreatePodSandBox",
        r#"Failed to create pod sandbox: rpc error: code = NotFound desc = failed to get sandbox image "registry.k8s.io/pause:3.8": failed to pull image "registry.k8s.io/pause:3.8": failed to pull and unpack image "registry.k8s.io/pause:3.8": no match for platform in manifest: not found"#,
    ),
    (
        "pause_image",
        "FailedCreatePodSandBox",
        r#"Failed to create pod sandbox: rpc error: code = NotFound desc = failed to start sandbox "5d": failed to get sandbox image "registry.k8s.io/pause:3.10": failed to pull image "registry.k8s.io/pause:3.10": failed to pull and unpack image "registry.k8s.io/pause:3.10": no match for platform in manifest: not found"#,
    ),
    (
        "pause_image",
        "FailedCreatePodSandBox",
        r#"(combined from similar events): Failed create pod sandbox: rpc error: code = Unknown desc = failed to start sandbox container for pod "web": Error response from daemon: CreateComputeSystem cf6b: The container operating system does not match the host operating system."#,
    ),
    (
        "network",
        "FailedCreatePodSandBox",
        r#"Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "5116": hcnCreateNetwork failed in Win32: A network with this name already exists. (0x803b0010)"#,
    ),
    (
        "network",
        "FailedCreatePodSandBox",
        r#"Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "6281": plugin type="flannel" failed (add): failed to find HNSEndpoint 6281_flannel.4096"#,
    ),
    ("os_name", "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
    (
        "labels_changed",
        "NodeAffinity",
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
];

#[test]
fn each_cause_is_recognised_in_messages_of_several_releases() {
    for (cause, reason, message) in MESSAGES {
        let mut world = world();
        let failing = match (cause, reason) {
            ("no_variant" | "linux_image", _) => waits("web-5d8f7-a", "win", "app", message),
            (_, "Failed") => does_not_start("web-5d8f7-a", "app", message),
            (_, "FailedCreatePodSandBox") => creating("web-5d8f7-a"),
            _ => refused("web-5d8f7-a", reason),
        };
        world.pods = vec![failing];
        world.list();
        if reason == REASONS[0] {
            world.event("web-5d8f7-a", message);
        }
        // The network has to fail for five minutes.
        let first = world.count();
        assert_eq!(first.counts.is_empty(), cause == "network", "{message}");
        if cause == "network" {
            world.wait(300);
        }
        let failures = world.count();
        assert_eq!(counts(&failures), [(cause, 1)], "{message}");
        let workload = &failures.workloads[0];
        assert_eq!(workload.object.to_string(), "Deployment shop/web", "{message}");
        let text = format!("{reason} {message}");
        let known = known_error(&text).or_else(|| known_error(reason)).unwrap();
        assert!(
            workload.message.contains(known.meaning) && workload.message.contains(known.remedy),
            "{}",
            workload.message
        );
        assert!(workload.message.contains("shop/web-5d8f7-a on node win"), "{}", workload.message);
    }
}

#[test]
fn ordinary_messages_count_nothing() {
    let images = [
        "nginx:1.27",
        "library/redis",
        "registry.example.com:5000/team/app:v1",
        "example.com/sandbox-api:2",
        "gcr.io/p/pause:3.9",
        "windows-exporter:1",
        "app:ltsc2022",
        "mcr.microsoft.com/windows/servercore:ltsc2022",
        "quay.io/x/y@sha256:12",
        "hcn:HNS",
    ];
    let texts = [
        "failed to pull and unpack image \"{}\": failed to resolve reference: pull access denied, repository does not exist",
        "toomanyrequests: You have reached your unauthenticated pull rate limit for {}",
        "secret \"{}\" not found",
        "configmap \"{}\" not found",
        "Back-off pulling image \"{}\"",
        "ErrImageNeverPull: Container image \"{}\" is not present with pull policy of Never",
        "failed to pull image \"{}\": dial tcp: lookup registry: no such host",
        "context deadline exceeded while pulling {}",
        "exec: \"{}\": executable file not found in $PATH",
        "0/5 nodes are available: 5 Insufficient memory for {}",
        "failed to setup network for sandbox \"{}\": plugin type=\"calico\" failed (add): connection refused",
        "failed to get sandbox image \"{}\": dial tcp: i/o timeout",
        "Error: failed to create containerd task for {}: exit status 1",
        "MountVolume.SetUp failed for volume \"{}\": object not registered",
        "The virtual machine or container {} exited unexpectedly. (0xc0370106)",
        "hcs::CreateComputeSystem {}: The requested operation failed. (0xc0370112)",
        "failed to start {}: hcsshim::ActivateLayer: Access is denied.",
        "Readiness probe of {} failed",
        "container {} has runAsNonRoot and image will run as root",
        "Invalid image name \"{}\"",
    ];
    let mut messages = 0;
    let mut world = world();
    for (text, image) in texts.iter().flat_map(|text| images.iter().map(move |image| (text, image))) {
        let message = text.replace("{}", image);
        for node in ["win", "linux"] {
            for wrapped in
                [message.clone(), format!("rpc error: code = Unknown desc = {message}"), format!("Error: {message}")]
            {
                world.pods = vec![waits("a", node, image, &wrapped), creating_on(node, "b")];
                world.list();
                world.event_on(node, "b", &wrapped);
                assert_eq!(counts(&world.count()), [], "on {node}: {wrapped}");
                messages += 1;
            }
        }
    }
    assert!(messages >= 1000, "{messages}");
}

#[test]
fn a_text_counts_only_where_it_is_certain() {
    let no_match = "no match for platform in manifest: not found";
    for (fact, failing, expected) in [
        ("an arm64 node", waits("a", "linux", "nginx", no_match), None),
        (
            "a Windows image on Linux",
            waits("a", "linux", "mcr.microsoft.com/windows/nanoserver:ltsc2022", no_match),
            None,
        ),
        ("an image for another build", waits("a", "win", "app:ltsc2019", no_match), Some("no_variant")),
        ("an image for this build", waits("a", "win", "app:ltsc2022", no_match), Some("no_variant")),
        (
            "an error with many causes",
            does_not_start("a", "app:10.0.20348.9999", "hcs::CreateComputeSystem: (0xc0370106)"),
            None,
        ),
        (
            "a pod that is being deleted",
            {
                let mut pod = waits("a", "win", "nginx", no_match);
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                pod
            },
            None,
        ),
        (
            "an ignored pod",
            {
                let mut pod = waits("a", "win", "nginx", no_match);
                pod["metadata"]["annotations"] = json!({"winpool.dev/ignore": "true"});
                pod
            },
            None,
        ),
        (
            "the last message of a program",
            {
                let mut pod = does_not_start("a", "app", "0xc0370101");
                pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] = json!("Error");
                pod
            },
            None,
        ),
    ] {
        let mut world = world();
        world.pods = vec![failing];
        let failures = world.count();
        let expected: Vec<_> = expected.into_iter().map(|cause| (cause, 1)).collect();
        assert_eq!(counts(&failures), expected, "{fact}");
    }
}
