//! Rules about fields that the API server refuses in a pod with `os.name`.
//!
//! Sources: kubernetes/kubernetes `pkg/apis/core/validation/validation.go` (`validateWindows`, `validateLinux`,
//! `validatePodResources`, `validateWindowsHostProcessPod`) and the comment of `PodSpec.os` in kubernetes/api. The list in
//! the Kubernetes documentation is older and incomplete. A control-plane test compares each rule with the API server.
//!
//! If a pod for Windows has no `os.name`, the API server accepts these fields, and they have no effect.

use crate::finding::Consequence::{Ignored, Note, Rejected};
use crate::finding::Severity::{Error, Info, Warning};
use crate::lint::field::{Trigger, containers};
use crate::lint::rule::{FieldChange, Hit, Judgement, Rule, Scope, Subject, Test, own, rule};
use crate::remedy::Edit;
use crate::workload::get;

const REASON: &str = "cannot be set for a Windows pod, not even to its default value";
const HAS_NO_EFFECT: Option<(Judgement, &str)> = Some((
    Judgement(Warning, Ignored),
    "has no effect on Windows, and the API server refuses it in a pod with os.name: windows",
));
const IS_UNKNOWN: Option<(Judgement, &str)> = Some((
    Judgement(Info, Note),
    "is refused in a pod with os.name: windows; what a Windows node does with it otherwise is not documented",
));

/// A field that the API server refuses: removing it is certain.
const fn forbidden(id: &'static str, field: &'static str, from: u32, remedy: &'static str) -> Rule {
    Rule {
        without_os: HAS_NO_EFFECT,
        since: from,
        change: FieldChange::Remove,
        ..rule(id, Judgement(Error, Rejected), Scope::Windows, field, REASON, remedy, Test::Field(Trigger::Present))
    }
}

/// Returns the rule with a test for another value.
const fn triggered(rule: Rule, trigger: Trigger, reason: &'static str) -> Rule {
    Rule { reason, test: Test::Field(trigger), ..rule }
}

const NO_HOST_NAMESPACES: &str = "cannot be true for a Windows pod, which shares no namespace with its host";
const USER_NAME: &str = "remove it: Windows has user names: use securityContext.windowsOptions.runAsUserName";
const NO_GROUPS: &str = "remove it: Windows has access control lists, not group IDs";
const REMOVE: &str = "remove it: Windows has no equivalent";
const NO_CAPABILITIES: &str = "remove it: Windows goes by the rights of windowsOptions.runAsUserName";

pub(super) const RULES: &[Rule] = &[
    triggered(
        forbidden("host-pid", "hostPID", 23, "remove it, or use host-process containers"),
        Trigger::True,
        NO_HOST_NAMESPACES,
    ),
    triggered(
        forbidden("host-ipc", "hostIPC", 23, "remove it, or use host-process containers"),
        Trigger::True,
        NO_HOST_NAMESPACES,
    ),
    forbidden("host-users", "hostUsers", 25, REMOVE),
    forbidden("pod-resources", "resources", 34, "set resources on the containers instead of the pod")
        .fixed_by(FieldChange::Decide),
    forbidden(
        "share-process-namespace",
        "shareProcessNamespace",
        23,
        "remove it: containers of a Windows pod share nothing but the network",
    ),
    forbidden("app-armor-profile", "securityContext.appArmorProfile", 30, REMOVE),
    forbidden("se-linux-options", "securityContext.seLinuxOptions", 23, REMOVE),
    forbidden("se-linux-change-policy", "securityContext.seLinuxChangePolicy", 32, REMOVE),
    forbidden("seccomp-profile", "securityContext.seccompProfile", 23, REMOVE),
    forbidden("fs-group", "securityContext.fsGroup", 23, NO_GROUPS),
    forbidden("fs-group-change-policy", "securityContext.fsGroupChangePolicy", 23, NO_GROUPS),
    triggered(
        forbidden("sysctls", "securityContext.sysctls", 23, REMOVE),
        Trigger::NotEmpty,
        "cannot be set for a Windows pod: they are settings of the Linux kernel",
    ),
    forbidden("run-as-user", "securityContext.runAsUser", 23, USER_NAME),
    forbidden("run-as-group", "securityContext.runAsGroup", 23, NO_GROUPS),
    forbidden("supplemental-groups", "securityContext.supplementalGroups", 23, NO_GROUPS),
    forbidden("supplemental-groups-policy", "securityContext.supplementalGroupsPolicy", 31, NO_GROUPS),
    forbidden("container-app-armor-profile", "containers[*].securityContext.appArmorProfile", 30, REMOVE),
    forbidden("container-se-linux-options", "containers[*].securityContext.seLinuxOptions", 23, REMOVE),
    forbidden("container-seccomp-profile", "containers[*].securityContext.seccompProfile", 23, REMOVE),
    forbidden("container-capabilities", "containers[*].securityContext.capabilities", 23, NO_CAPABILITIES),
    forbidden(
        "container-read-only-root-filesystem",
        "containers[*].securityContext.readOnlyRootFilesystem",
        23,
        "remove it: Windows writes to its registry. Volumes may be read-only",
    ),
    Rule {
        without_os: IS_UNKNOWN,
        ..forbidden(
            "container-privileged",
            "containers[*].securityContext.privileged",
            23,
            "remove it: for access to the host use host-process containers (windowsOptions.hostProcess)",
        )
    },
    forbidden(
        "container-allow-privilege-escalation",
        "containers[*].securityContext.allowPrivilegeEscalation",
        23,
        NO_CAPABILITIES,
    ),
    forbidden("container-proc-mount", "containers[*].securityContext.procMount", 23, REMOVE),
    forbidden("container-run-as-user", "containers[*].securityContext.runAsUser", 23, USER_NAME),
    forbidden("container-run-as-group", "containers[*].securityContext.runAsGroup", 23, NO_GROUPS),
    rule(
        "linux-with-windows-options",
        Judgement(Error, Rejected),
        Scope::LinuxByName,
        "securityContext.windowsOptions",
        "windowsOptions cannot be set for a Linux pod",
        "remove it, or write os.name: windows",
        own(windows_options),
    )
    .since(23),
    rule(
        "host-process-mixed",
        Judgement(Error, Rejected),
        Scope::Any,
        "containers[*].securityContext.windowsOptions.hostProcess",
        "either all containers of a pod are host-process containers or none",
        "set securityContext.windowsOptions.hostProcess: true on the pod and on no container",
        own(mixed_host_process),
    )
    .since(22),
    rule(
        "host-process-contradicts-pod",
        Judgement(Error, Rejected),
        Scope::Any,
        "containers[*].securityContext.windowsOptions.hostProcess",
        "a container must not set another value of hostProcess than its pod",
        "set hostProcess on the pod alone",
        own(host_process_contradiction),
    )
    .since(22),
    rule(
        "host-process-without-host-network",
        Judgement(Error, Rejected),
        Scope::Any,
        "hostNetwork",
        "host-process containers use the host's network, which the pod must declare",
        "set hostNetwork: true",
        own(host_process_network),
    )
    .since(22),
];

/// Returns the fields that the API server would refuse if the pod had `os.name: windows`.
pub(super) fn fields(subject: &Subject<'_>) -> Vec<String> {
    let refused = RULES.iter().filter(|rule| rule.scope == Scope::Windows && rule.holds_for(subject.facts.kubernetes));
    let fields = refused.flat_map(|rule| match rule.test {
        Test::Field(trigger) => trigger.hits(rule.field, subject.workload.raw).collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    fields.collect()
}

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
        hits.push(Hit::at("hostNetwork").remedied_by(vec![Edit::set_field("hostNetwork", true)]));
    }
}
