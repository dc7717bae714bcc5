//! Rules about fields that the API server refuses in a pod with `os.name`.
//!
//! Sources: kubernetes/kubernetes `pkg/apis/core/validation/validation.go` (`validateWindows`, `validateLinux`,
//! `validatePodResources`, `validateWindowsHostProcessPod`) and the comment of `PodSpec.os` in kubernetes/api. The list in
//! the Kubernetes documentation is older and incomplete. A control-plane test compares each rule with the API server.
//!
//! If a pod for Windows has no `os.name`, the API server accepts these fields, and they have no effect.

use crate::lint::{
    field::{At, FieldTest, Trigger, containers, get},
    rule::{
        Consequence::{Ignored, Note, Rejected},
        Hit, Judgement, Rule, Scope,
        Severity::{Error, Info, Warning},
        Subject, Test, Versions,
    },
};

const REASON: &str = "cannot be set for a Windows pod, not even to its default value";
const HAS_NO_EFFECT: Option<(Judgement, &str)> = Some((
    Judgement(Warning, Ignored),
    "has no effect on Windows, and the API server refuses it in a pod with os.name: windows",
));
const IS_UNKNOWN: Option<(Judgement, &str)> = Some((
    Judgement(Info, Note),
    "is refused in a pod with os.name: windows; what a Windows node does with it otherwise is not documented",
));

const fn forbidden(
    id: &'static str,
    at: At,
    path: &'static [&'static str],
    field: &'static str,
    from: u32,
    remedy: &'static str,
) -> Rule {
    Rule {
        id,
        verdict: Judgement(Error, Rejected),
        without_os: HAS_NO_EFFECT,
        kubernetes: Versions::from(from),
        scope: Scope::Windows,
        field,
        reason: REASON,
        remedy,
        test: Test::Field(FieldTest { at, path, trigger: Trigger::Present }),
    }
}

/// Returns the rule with a test for the value true.
const fn if_true(rule: Rule, reason: &'static str) -> Rule {
    triggered(rule, Trigger::True, reason)
}

const fn triggered(rule: Rule, trigger: Trigger, reason: &'static str) -> Rule {
    match rule.test {
        Test::Field(test) => Rule { reason, test: Test::Field(FieldTest { trigger, ..test }), ..rule },
        Test::Own { .. } | Test::Object(_) => rule,
    }
}

const NO_HOST_NAMESPACES: &str = "cannot be true for a Windows pod, which shares no namespace with its host";
const USER_NAME: &str = "remove it: Windows has user names: use securityContext.windowsOptions.runAsUserName";
const NO_GROUPS: &str = "remove it: Windows has no group IDs: set access control lists on the files";
const REMOVE: &str = "remove it: Windows has no equivalent";
const NO_CAPABILITIES: &str =
    "remove it: what a Windows container may do follows from its user, windowsOptions.runAsUserName";

pub(super) const RULES: &[Rule] = &[
    if_true(
        forbidden("host-pid", At::Pod, &["hostPID"], "hostPID", 23, "remove it, or use host-process containers"),
        NO_HOST_NAMESPACES,
    ),
    if_true(
        forbidden("host-ipc", At::Pod, &["hostIPC"], "hostIPC", 23, "remove it, or use host-process containers"),
        NO_HOST_NAMESPACES,
    ),
    forbidden("host-users", At::Pod, &["hostUsers"], "hostUsers", 25, REMOVE),
    forbidden(
        "pod-resources",
        At::Pod,
        &["resources"],
        "resources",
        34,
        "set resources on the containers instead of the pod",
    ),
    forbidden(
        "share-process-namespace",
        At::Pod,
        &["shareProcessNamespace"],
        "shareProcessNamespace",
        23,
        "remove it: containers of a Windows pod share nothing but the network",
    ),
    forbidden(
        "app-armor-profile",
        At::Pod,
        &["securityContext", "appArmorProfile"],
        "securityContext.appArmorProfile",
        30,
        REMOVE,
    ),
    forbidden(
        "se-linux-options",
        At::Pod,
        &["securityContext", "seLinuxOptions"],
        "securityContext.seLinuxOptions",
        23,
        REMOVE,
    ),
    forbidden(
        "se-linux-change-policy",
        At::Pod,
        &["securityContext", "seLinuxChangePolicy"],
        "securityContext.seLinuxChangePolicy",
        32,
        REMOVE,
    ),
    forbidden(
        "seccomp-profile",
        At::Pod,
        &["securityContext", "seccompProfile"],
        "securityContext.seccompProfile",
        23,
        REMOVE,
    ),
    forbidden("fs-group", At::Pod, &["securityContext", "fsGroup"], "securityContext.fsGroup", 23, NO_GROUPS),
    forbidden(
        "fs-group-change-policy",
        At::Pod,
        &["securityContext", "fsGroupChangePolicy"],
        "securityContext.fsGroupChangePolicy",
        23,
        NO_GROUPS,
    ),
    triggered(
        forbidden("sysctls", At::Pod, &["securityContext", "sysctls"], "securityContext.sysctls", 23, REMOVE),
        Trigger::NotEmpty,
        "cannot be set for a Windows pod: they are settings of the Linux kernel",
    ),
    forbidden("run-as-user", At::Pod, &["securityContext", "runAsUser"], "securityContext.runAsUser", 23, USER_NAME),
    forbidden("run-as-group", At::Pod, &["securityContext", "runAsGroup"], "securityContext.runAsGroup", 23, NO_GROUPS),
    forbidden(
        "supplemental-groups",
        At::Pod,
        &["securityContext", "supplementalGroups"],
        "securityContext.supplementalGroups",
        23,
        NO_GROUPS,
    ),
    forbidden(
        "supplemental-groups-policy",
        At::Pod,
        &["securityContext", "supplementalGroupsPolicy"],
        "securityContext.supplementalGroupsPolicy",
        31,
        NO_GROUPS,
    ),
    forbidden(
        "container-app-armor-profile",
        At::Container,
        &["securityContext", "appArmorProfile"],
        "containers[*].securityContext.appArmorProfile",
        30,
        REMOVE,
    ),
    forbidden(
        "container-se-linux-options",
        At::Container,
        &["securityContext", "seLinuxOptions"],
        "containers[*].securityContext.seLinuxOptions",
        23,
        REMOVE,
    ),
    forbidden(
        "container-seccomp-profile",
        At::Container,
        &["securityContext", "seccompProfile"],
        "containers[*].securityContext.seccompProfile",
        23,
        REMOVE,
    ),
    forbidden(
        "container-capabilities",
        At::Container,
        &["securityContext", "capabilities"],
        "containers[*].securityContext.capabilities",
        23,
        NO_CAPABILITIES,
    ),
    forbidden(
        "container-read-only-root-filesystem",
        At::Container,
        &["securityContext", "readOnlyRootFilesystem"],
        "containers[*].securityContext.readOnlyRootFilesystem",
        23,
        "remove it: Windows writes to its registry. Volumes may be read-only",
    ),
    Rule {
        without_os: IS_UNKNOWN,
        ..forbidden(
            "container-privileged",
            At::Container,
            &["securityContext", "privileged"],
            "containers[*].securityContext.privileged",
            23,
            "remove it: for access to the host use host-process containers (windowsOptions.hostProcess)",
        )
    },
    forbidden(
        "container-allow-privilege-escalation",
        At::Container,
        &["securityContext", "allowPrivilegeEscalation"],
        "containers[*].securityContext.allowPrivilegeEscalation",
        23,
        NO_CAPABILITIES,
    ),
    forbidden(
        "container-proc-mount",
        At::Container,
        &["securityContext", "procMount"],
        "containers[*].securityContext.procMount",
        23,
        REMOVE,
    ),
    forbidden(
        "container-run-as-user",
        At::Container,
        &["securityContext", "runAsUser"],
        "containers[*].securityContext.runAsUser",
        23,
        USER_NAME,
    ),
    forbidden(
        "container-run-as-group",
        At::Container,
        &["securityContext", "runAsGroup"],
        "containers[*].securityContext.runAsGroup",
        23,
        NO_GROUPS,
    ),
    Rule {
        id: "linux-with-windows-options",
        verdict: Judgement(Error, Rejected),
        without_os: None,
        kubernetes: Versions::from(23),
        scope: Scope::LinuxByName,
        field: "securityContext.windowsOptions",
        reason: "windowsOptions cannot be set for a Linux pod",
        remedy: "remove it, or write os.name: windows",
        test: Test::Own { find: windows_options, cel: None },
    },
    Rule {
        id: "host-process-mixed",
        verdict: Judgement(Error, Rejected),
        without_os: None,
        kubernetes: Versions::from(22),
        scope: Scope::Any,
        field: "containers[*].securityContext.windowsOptions.hostProcess",
        reason: "either all containers of a pod are host-process containers or none",
        remedy: "set securityContext.windowsOptions.hostProcess: true on the pod and on no container",
        test: Test::Own { find: mixed_host_process, cel: None },
    },
    Rule {
        id: "host-process-contradicts-pod",
        verdict: Judgement(Error, Rejected),
        without_os: None,
        kubernetes: Versions::from(22),
        scope: Scope::Any,
        field: "containers[*].securityContext.windowsOptions.hostProcess",
        reason: "a container may not say otherwise about hostProcess than its pod",
        remedy: "set hostProcess on the pod alone",
        test: Test::Own { find: host_process_contradiction, cel: None },
    },
    Rule {
        id: "host-process-without-host-network",
        verdict: Judgement(Error, Rejected),
        without_os: None,
        kubernetes: Versions::from(22),
        scope: Scope::Any,
        field: "hostNetwork",
        reason: "host-process containers use the host's network, and the pod has to say so",
        remedy: "set hostNetwork: true",
        test: Test::Own { find: host_process_network, cel: None },
    },
];

/// Rules whose remedy is to use host-process containers.
const HOST_PROCESS_HELPS: [&str; 3] = ["host-pid", "host-ipc", "container-privileged"];

/// Returns the remedy for a broken rule. It does not advise a host-process pod to become one.
pub(super) fn remedy(rule: &Rule, subject: &Subject<'_>) -> &'static str {
    if subject.pod.is_host_process() && HOST_PROCESS_HELPS.contains(&rule.id) {
        return "remove it: host-process containers have access to the host without it";
    }
    rule.remedy
}

fn host_process_contradiction(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let host_process = |value| get(value, &["securityContext", "windowsOptions", "hostProcess"]);
    let Some(of_pod) = host_process(subject.workload.raw) else { return };
    for (path, container) in containers(subject.workload.raw) {
        if host_process(container).is_some_and(|own| own != of_pod) {
            hits.push(Hit::at(format!("{path}.securityContext.windowsOptions.hostProcess")));
        }
    }
}

fn windows_options(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let options = ["securityContext", "windowsOptions"];
    if get(subject.workload.raw, &options).is_some() {
        hits.push(Hit::at("securityContext.windowsOptions"));
    }
    for (path, container) in containers(subject.workload.raw) {
        if get(container, &options).is_some() {
            hits.push(Hit::at(format!("{path}.securityContext.windowsOptions")));
        }
    }
}

fn mixed_host_process(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    let mut all = subject.pod.containers.iter().map(|container| container.is_host_process);
    if let Some(first) = all.next()
        && all.any(|other| other != first)
    {
        hits.push(Hit::at("securityContext.windowsOptions.hostProcess"));
    }
}

fn host_process_network(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    if subject.pod.containers.iter().any(|container| container.is_host_process) && !subject.pod.has_host_network {
        hits.push(Hit::at("hostNetwork"));
    }
}
