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
use crate::lint::rule::{FieldChange, Hit, Judgement, Rule, Scope, Subject, Test, own, rules};
use crate::remedy::Edit;
use crate::workload::get;

const HAS_NO_EFFECT: Option<(Judgement, &str)> = Some((
    Judgement(Warning, Ignored),
    "has no effect on Windows, and the API server refuses it in a pod with os.name: windows",
));
const IS_UNKNOWN: Option<(Judgement, &str)> = Some((
    Judgement(Info, Note),
    "is refused in a pod with os.name: windows; what a Windows node does with it otherwise is not documented",
));

/// A field that the API server refuses: removing it is certain.
pub(crate) const REFUSED: Rule = Rule {
    verdict: Judgement(Error, Rejected),
    without_os: HAS_NO_EFFECT,
    since: 23,
    reason: "cannot be set for a Windows pod, not even to its default value",
    change: FieldChange::Remove,
    ..Rule::DEFAULT
};
/// A namespace of the host that a pod for Windows cannot use.
const HOST_NAMESPACE: Rule = Rule {
    reason: "cannot be true for a Windows pod, which shares no namespace with its host",
    remedy: "remove it, or use host-process containers",
    test: Test::Field(Trigger::True),
    ..REFUSED
};
const USER_NAME: &str = "remove it: Windows has user names: use securityContext.windowsOptions.runAsUserName";
const NO_GROUPS: &str = "remove it: Windows has access control lists, not group IDs";
const REMOVE: &str = "remove it: Windows has no equivalent";
const NO_CAPABILITIES: &str = "remove it: Windows goes by the rights of windowsOptions.runAsUserName";

pub(super) const RULES: &[Rule] = rules!([
    /// - Breaks: `hostPID: true`
    /// - Keeps: `hostPID: false`
    /// - Keeps: `hostPID: null`
    Rule { id: "host-pid", field: "hostPID", ..HOST_NAMESPACE },
    /// - Breaks: `hostIPC: true`
    /// - Keeps: `hostIPC: false`
    Rule { id: "host-ipc", field: "hostIPC", ..HOST_NAMESPACE },
    /// - Breaks: `hostUsers: true`
    /// - Breaks: `hostUsers: false`
    /// - Keeps: `hostUsers: null`
    Rule { id: "host-users", since: 25, field: "hostUsers", remedy: REMOVE, ..REFUSED },
    /// - Breaks: `resources: {}`
    /// - Keeps: `resources: null`
    Rule {
        id: "pod-resources",
        since: 34,
        field: "resources",
        remedy: "set resources on the containers instead of the pod",
        change: FieldChange::Decide,
        ..REFUSED
    },
    /// - Breaks: `shareProcessNamespace: false`
    Rule {
        id: "share-process-namespace",
        field: "shareProcessNamespace",
        remedy: "remove it: containers of a Windows pod share nothing but the network",
        ..REFUSED
    },
    /// - Breaks: `securityContext: {appArmorProfile: {type: RuntimeDefault}}`
    /// - Keeps: `securityContext: {}`
    Rule { id: "app-armor-profile", since: 30, field: "securityContext.appArmorProfile", remedy: REMOVE, ..REFUSED },
    /// - Breaks: `securityContext: {seLinuxOptions: {}}`
    /// - Keeps: `securityContext: {seLinuxOptions: null}`
    Rule { id: "se-linux-options", field: "securityContext.seLinuxOptions", remedy: REMOVE, ..REFUSED },
    /// - Breaks: `securityContext: {seLinuxChangePolicy: Recursive}`
    Rule {
        id: "se-linux-change-policy",
        since: 32,
        field: "securityContext.seLinuxChangePolicy",
        remedy: REMOVE,
        ..REFUSED
    },
    /// - Breaks: `securityContext: {seccompProfile: {type: RuntimeDefault}}`
    Rule { id: "seccomp-profile", field: "securityContext.seccompProfile", remedy: REMOVE, ..REFUSED },
    /// - Breaks: `securityContext: {fsGroup: 0}`
    Rule { id: "fs-group", field: "securityContext.fsGroup", remedy: NO_GROUPS, ..REFUSED },
    /// - Breaks: `securityContext: {fsGroupChangePolicy: Always}`
    Rule { id: "fs-group-change-policy", field: "securityContext.fsGroupChangePolicy", remedy: NO_GROUPS, ..REFUSED },
    /// - Breaks: `securityContext: {sysctls: [{name: a, value: '1'}]}`
    /// - Keeps: `securityContext: {sysctls: []}`
    Rule {
        id: "sysctls",
        field: "securityContext.sysctls",
        reason: "cannot be set for a Windows pod: they are settings of the Linux kernel",
        remedy: REMOVE,
        test: Test::Field(Trigger::NotEmpty),
        ..REFUSED
    },
    /// - Breaks: `securityContext: {runAsUser: 0}`
    /// - Keeps: `securityContext: {runAsNonRoot: false}`
    Rule { id: "run-as-user", field: "securityContext.runAsUser", remedy: USER_NAME, ..REFUSED },
    /// - Breaks: `securityContext: {runAsGroup: 0}`
    Rule { id: "run-as-group", field: "securityContext.runAsGroup", remedy: NO_GROUPS, ..REFUSED },
    /// - Breaks: `securityContext: {supplementalGroups: []}`
    Rule { id: "supplemental-groups", field: "securityContext.supplementalGroups", remedy: NO_GROUPS, ..REFUSED },
    /// - Breaks: `securityContext: {supplementalGroupsPolicy: Merge}`
    Rule {
        id: "supplemental-groups-policy",
        since: 31,
        field: "securityContext.supplementalGroupsPolicy",
        remedy: NO_GROUPS,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {appArmorProfile: {type: Unconfined}}}]`
    Rule {
        id: "container-app-armor-profile",
        since: 30,
        field: "containers[*].securityContext.appArmorProfile",
        remedy: REMOVE,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {seLinuxOptions: {}}}]`
    /// - Keeps: `containers: [{securityContext: {}}]`
    Rule {
        id: "container-se-linux-options",
        field: "containers[*].securityContext.seLinuxOptions",
        remedy: REMOVE,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {seccompProfile: {type: Unconfined}}}]`
    Rule {
        id: "container-seccomp-profile",
        field: "containers[*].securityContext.seccompProfile",
        remedy: REMOVE,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {capabilities: {}}}]`
    Rule {
        id: "container-capabilities",
        field: "containers[*].securityContext.capabilities",
        remedy: NO_CAPABILITIES,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {readOnlyRootFilesystem: false}}]`
    Rule {
        id: "container-read-only-root-filesystem",
        field: "containers[*].securityContext.readOnlyRootFilesystem",
        remedy: "remove it: Windows writes to its registry. Volumes may be read-only",
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {privileged: false}}]`
    /// - Keeps: `containers: [{securityContext: {privileged: null}}]`
    Rule {
        id: "container-privileged",
        without_os: IS_UNKNOWN,
        field: "containers[*].securityContext.privileged",
        remedy: "remove it: for access to the host use host-process containers (windowsOptions.hostProcess)",
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {allowPrivilegeEscalation: false}}]`
    Rule {
        id: "container-allow-privilege-escalation",
        field: "containers[*].securityContext.allowPrivilegeEscalation",
        remedy: NO_CAPABILITIES,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {procMount: Default}}]`
    Rule { id: "container-proc-mount", field: "containers[*].securityContext.procMount", remedy: REMOVE, ..REFUSED },
    /// - Breaks: `containers: [{securityContext: {runAsUser: 1000}}]`
    Rule {
        id: "container-run-as-user",
        field: "containers[*].securityContext.runAsUser",
        remedy: USER_NAME,
        ..REFUSED
    },
    /// - Breaks: `containers: [{securityContext: {runAsGroup: 1000}}]`
    Rule {
        id: "container-run-as-group",
        field: "containers[*].securityContext.runAsGroup",
        remedy: NO_GROUPS,
        ..REFUSED
    },
    /// - Breaks: `os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}, securityContext: {windowsOptions: {}}`
    /// - Keeps: `os: {name: linux}, nodeSelector: {kubernetes.io/os: linux}`
    Rule {
        id: "linux-with-windows-options",
        verdict: Judgement(Error, Rejected),
        since: 23,
        scope: Scope::LinuxByName,
        field: "securityContext.windowsOptions",
        reason: "windowsOptions cannot be set for a Linux pod",
        remedy: "remove it, or write os.name: windows",
        test: own(windows_options),
        ..Rule::DEFAULT
    },
    /// - Breaks: `hostNetwork: true, containers: [{name: a, securityContext: {windowsOptions: {hostProcess: true}}},
    ///   {name: b}]`
    /// - Keeps: `hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}`
    Rule {
        id: "host-process-mixed",
        verdict: Judgement(Error, Rejected),
        since: 22,
        scope: Scope::Any,
        field: "containers[*].securityContext.windowsOptions.hostProcess",
        reason: "either all containers of a pod are host-process containers or none",
        remedy: "set securityContext.windowsOptions.hostProcess: true on the pod and on no container",
        test: own(mixed_host_process),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{name: a, securityContext: {windowsOptions: {hostProcess: false}}}], hostNetwork:
    ///   false, securityContext: {windowsOptions: {hostProcess: true}}`
    Rule {
        id: "host-process-contradicts-pod",
        verdict: Judgement(Error, Rejected),
        since: 22,
        scope: Scope::Any,
        field: "containers[*].securityContext.windowsOptions.hostProcess",
        reason: "a container must not set another value of hostProcess than its pod",
        remedy: "set hostProcess on the pod alone",
        test: own(host_process_contradiction),
        ..Rule::DEFAULT
    },
    /// - Breaks: `securityContext: {windowsOptions: {hostProcess: true}}`
    /// - Keeps: `securityContext: {windowsOptions: {hostProcess: false}}`
    Rule {
        id: "host-process-without-host-network",
        verdict: Judgement(Error, Rejected),
        since: 22,
        scope: Scope::Any,
        field: "hostNetwork",
        reason: "host-process containers use the host's network, which the pod must declare",
        remedy: "set hostNetwork: true",
        test: own(host_process_network),
        ..Rule::DEFAULT
    },
]);

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
