//! Rules about fields that the API server accepts and that Windows does not support, or supports differently.
//!
//! Source, unless a rule names another: "Windows containers in Kubernetes" in kubernetes/website, in its versions for
//! 1.16 to 1.36. If versions or sources differ, or no source describes the effect, the severity is info.

use serde_json::Value;

use crate::finding::Consequence::{Fails, Ignored, Note};
use crate::finding::Severity::{Error, Info, Warning};
use crate::lint::field::{Trigger, containers, volumes};
use crate::lint::rule::{FieldChange, Hit, Judgement, Rule, Subject, Test, own, rules};
use crate::workload::get;

/// The accounts that exist only in containers.
const CONTAINER_USERS: [&str; 2] = ["ContainerAdministrator", "ContainerUser"];
const NON_ROOT: Rule = Rule {
    verdict: Judgement(Info, Note),
    reason: "on Windows it prevents the container from running as ContainerAdministrator, which many images do",
    remedy: "set windowsOptions.runAsUserName: ContainerUser if the image runs as ContainerAdministrator",
    ..Rule::DEFAULT
};
/// The sources differ: impossible with Docker, possible with containerd.
const SUB_PATH: Rule = Rule {
    verdict: Judgement(Info, Note),
    reason: "the documentation calls subPath unsupported on Windows; with containerd it reportedly works",
    remedy: "try it, or mount the whole volume",
    test: Test::Field(Trigger::OtherThan("")),
    ..Rule::DEFAULT
};
/// The test finds other modes than 0644, the API server's default.
const MODE: Rule = Rule {
    verdict: Judgement(Warning, Ignored),
    reason: "Windows has no file modes: all containers can read the files",
    remedy: "remove it, or split the pod",
    change: FieldChange::Remove,
    test: Test::Field(Trigger::OtherNumberThan(0o644)),
    ..Rule::DEFAULT
};

pub(super) const RULES: &[Rule] = rules!([
    /// The documentation says "not supported"; the kubelet takes it for `ClusterFirst` (kubernetes/kubernetes
    /// `pkg/kubelet/network/dns/dns.go`).
    ///
    /// - Breaks: `dnsPolicy: ClusterFirstWithHostNet`
    /// - Keeps: `dnsPolicy: Default`
    Rule {
        id: "dns-policy-with-host-net",
        verdict: Judgement(Warning, Ignored),
        field: "dnsPolicy",
        reason: "on Windows ClusterFirstWithHostNet means the same as ClusterFirst",
        remedy: "use ClusterFirst",
        change: FieldChange::Set("ClusterFirst"),
        test: Test::Field(Trigger::OneOf(&["ClusterFirstWithHostNet"])),
        ..Rule::DEFAULT
    },
    /// An alpha feature of 1.26 to 1.32 (KEP 3503) was withdrawn.
    ///
    /// - Breaks: `hostNetwork: true`
    /// - Keeps: `hostNetwork: false`
    Rule {
        id: "host-network",
        verdict: Judgement(Info, Note),
        field: "hostNetwork",
        reason: "only host-process containers can use the host's network on Windows; what happens to others is not \
                 documented",
        remedy: "remove it, or use host-process containers",
        change: FieldChange::MayRemove,
        test: own(|subject, hits| {
            if subject.pod.has_host_network && !subject.pod.containers.iter().any(|c| c.is_host_process) {
                hits.push(Hit::at("hostNetwork"));
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `securityContext: {runAsNonRoot: true}`
    Rule {
        id: "run-as-non-root",
        field: "securityContext.runAsNonRoot",
        test: own(|subject, hits| {
            let of_pod = &subject.workload.raw["securityContext"];
            hits.extend(may_be_administrator(of_pod, of_pod).then(|| Hit::at("securityContext.runAsNonRoot")));
        }),
        ..NON_ROOT
    },
    /// - Breaks: `containers: [{securityContext: {runAsNonRoot: true}}]`
    Rule {
        id: "container-run-as-non-root",
        field: "containers[*].securityContext.runAsNonRoot",
        test: own(|subject, hits| {
            let raw = subject.workload.raw;
            let found = containers(raw)
                .filter(|(_, container)| may_be_administrator(&container["securityContext"], &raw["securityContext"]));
            hits.extend(found.map(|(path, _)| Hit::at(format!("{path}.securityContext.runAsNonRoot"))));
        }),
        ..NON_ROOT
    },
    /// Source: "Create a Windows HostProcess Pod" in kubernetes/website.
    ///
    /// - Breaks: `hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true, runAsUserName:
    ///   ContainerAdministrator}}`
    /// - Breaks: `hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers:
    ///   [{securityContext: {windowsOptions: {runAsUserName: containeruser}}}]`
    /// - Keeps: `hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true, runAsUserName: NT
    ///   AUTHORITY\SYSTEM}}`
    /// - Keeps: `securityContext: {windowsOptions: {runAsUserName: ContainerAdministrator}}`
    Rule {
        id: "host-process-user",
        verdict: Judgement(Error, Fails),
        field: "securityContext.windowsOptions.runAsUserName",
        reason: "a host-process container runs as an account of the node, and this one exists only in containers",
        remedy: "write NT AUTHORITY\\SYSTEM, NT AUTHORITY\\LocalService, NT AUTHORITY\\NetworkService, or a local \
                 group of the node",
        test: own(|subject, hits| {
            let raw = subject.workload.raw;
            let of_pod = &raw["securityContext"]["windowsOptions"];
            let own = containers(raw)
                .map(|(path, container)| (format!("{path}."), &container["securityContext"]["windowsOptions"]));
            for (path, options) in own.chain([(String::new(), of_pod)]) {
                let is_host_process =
                    options.get("hostProcess").or(of_pod.get("hostProcess")) == Some(&Value::Bool(true));
                let user = options["runAsUserName"].as_str().unwrap_or_default();
                if is_host_process && CONTAINER_USERS.iter().any(|known| known.eq_ignore_ascii_case(user)) {
                    hits.push(Hit::at(format!("{path}securityContext.windowsOptions.runAsUserName")));
                }
            }
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{resources: {limits: {hugepages-2Mi: 4Mi}}}]`
    /// - Breaks: `containers: [{resources: {requests: {hugepages-1Gi: 1Gi}}}]`
    /// - Keeps: `containers: [{resources: {limits: {cpu: '1', memory: 1Gi}}}]`
    Rule {
        id: "huge-pages",
        verdict: Judgement(Error, Fails),
        field: "containers[*].resources",
        reason: "Windows containers have no huge pages",
        remedy: "remove the hugepages resources",
        test: Test::Own {
            find: huge_pages,
            cel: Some(|| {
                "variables.containers.exists(c, \
                 c.?resources.?limits.orValue({}).exists(k, k.startsWith('hugepages-')) \
                 || c.?resources.?requests.orValue({}).exists(k, k.startsWith('hugepages-')))"
                    .to_owned()
            }),
        },
        ..Rule::DEFAULT
    },
    /// Source: kubernetes/kubernetes#141841.
    ///
    /// - Breaks: `resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]`
    /// - Keeps: `resourceClaims: []`
    Rule {
        id: "resource-claims",
        verdict: Judgement(Error, Fails),
        field: "resourceClaims",
        reason: "the kubelet on Windows does not support dynamic resource allocation",
        remedy: "request the resource of a device plugin instead, such as microsoft.com/directx",
        test: own(|subject, hits| {
            let claims = get(subject.workload.raw, &["resourceClaims"]).and_then(Value::as_array);
            hits.extend(claims.filter(|claims| !claims.is_empty()).map(|_| Hit::at("resourceClaims")));
        }),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{resources: {requests: {memory: 1Gi}}}]`
    /// - Keeps: `containers: [{resources: {requests: {cpu: '1', memory: 1Gi}, limits: {memory: 1Gi}}}]`
    Rule {
        id: "memory-limit-missing",
        verdict: Judgement(Info, Note),
        field: "containers[*].resources.limits.memory",
        reason: "Windows has no out-of-memory killer: a container that uses more memory than the node has makes the \
                 node page to disk",
        remedy: "set resources.limits.memory, equal to the request",
        test: own(memory_limit),
        ..Rule::DEFAULT
    },
    /// Source: kubernetes/mount-utils `mount_windows.go`, which creates a directory for a `tmpfs`.
    ///
    /// - Breaks: `volumes: [{emptyDir: {medium: Memory}}]`
    /// - Keeps: `volumes: [{emptyDir: {medium: ''}}]`
    /// - Keeps: `volumes: [{emptyDir: {}}]`
    Rule {
        id: "empty-dir-memory",
        verdict: Judgement(Warning, Ignored),
        field: "volumes[*].emptyDir.medium",
        reason: "Windows has no volumes in memory: the data is on the node's disk",
        remedy: "remove medium, and keep secrets off the volume",
        change: FieldChange::Remove,
        test: Test::Field(Trigger::OneOf(&["Memory"])),
        ..Rule::DEFAULT
    },
    /// - Breaks: `volumes: [{secret: {secretName: s, defaultMode: 420}}]`
    Rule {
        id: "secret-volume",
        verdict: Judgement(Info, Note),
        field: "volumes[*].secret",
        reason: "on Windows a Secret in a volume is in clear text on the node's disk",
        remedy: "encrypt the node's disk, and restrict access to the kubelet's directory",
        ..Rule::DEFAULT
    },
    /// - Breaks: `volumes: [{secret: {defaultMode: 256}}]`
    Rule { id: "secret-volume-mode", field: "volumes[*].secret.defaultMode", ..MODE },
    /// - Breaks: `volumes: [{configMap: {defaultMode: 256}}]`
    /// - Keeps: `volumes: [{configMap: {defaultMode: 420}}]`
    Rule { id: "config-map-volume-mode", field: "volumes[*].configMap.defaultMode", ..MODE },
    /// - Breaks: `volumes: [{projected: {defaultMode: 256}}]`
    Rule { id: "projected-volume-mode", field: "volumes[*].projected.defaultMode", ..MODE },
    /// - Breaks: `volumes: [{configMap: {items: [{key: k, path: p, mode: 256}]}}]`
    /// - Keeps: `volumes: [{configMap: {items: [{key: k, path: p}]}}]`
    Rule {
        id: "volume-item-mode",
        field: "volumes[*].*.items[*].mode",
        test: Test::Own {
            find: item_modes,
            cel: Some(|| {
                "variables.pod.?volumes.orValue([]).exists(v, \
                 v.?secret.?items.orValue([]).exists(i, i.?mode.hasValue()) \
                 || v.?configMap.?items.orValue([]).exists(i, i.?mode.hasValue()))"
                    .to_owned()
            }),
        },
        ..MODE
    },
    /// - Breaks: `containers: [{volumeMounts: [{subPath: a}]}]`
    /// - Keeps: `containers: [{volumeMounts: [{subPath: ''}]}]`
    Rule { id: "sub-path", field: "containers[*].volumeMounts[*].subPath", ..SUB_PATH },
    /// - Breaks: `containers: [{volumeMounts: [{subPathExpr: '$(A)'}]}]`
    Rule { id: "sub-path-expr", field: "containers[*].volumeMounts[*].subPathExpr", ..SUB_PATH },
    /// - Breaks: `containers: [{volumeMounts: [{mountPropagation: Bidirectional}]}]`
    /// - Keeps: `containers: [{volumeMounts: [{mountPropagation: None}]}]`
    Rule {
        id: "mount-propagation",
        verdict: Judgement(Error, Fails),
        field: "containers[*].volumeMounts[*].mountPropagation",
        reason: "Windows does not support mount propagation",
        remedy: "remove it",
        change: FieldChange::Remove,
        test: Test::Field(Trigger::OneOf(&["HostToContainer", "Bidirectional"])),
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{volumeDevices: [{name: v, devicePath: /d}]}]`
    /// - Keeps: `containers: [{volumeDevices: []}]`
    Rule {
        id: "volume-devices",
        verdict: Judgement(Error, Fails),
        field: "containers[*].volumeDevices",
        reason: "Windows does not support raw block volumes",
        remedy: "mount a volume with a file system",
        test: Test::Field(Trigger::NotEmpty),
        ..Rule::DEFAULT
    },
    /// - Breaks: `volumes: [{nfs: {server: s, path: /}}]`
    Rule {
        id: "nfs-volume",
        verdict: Judgement(Error, Fails),
        field: "volumes[*].nfs",
        reason: "Windows does not support NFS volumes",
        remedy: "use SMB with a CSI driver",
        ..Rule::DEFAULT
    },
    /// - Breaks: `containers: [{terminationMessagePath: C:/log}]`
    /// - Keeps: `containers: [{terminationMessagePath: /dev/termination-log}]`
    Rule {
        id: "termination-message-path",
        verdict: Judgement(Info, Note),
        field: "containers[*].terminationMessagePath",
        reason: "Windows mounts single files only with limits; the default path works because it does not exist there",
        remedy: "remove it, and read the logs instead: terminationMessagePolicy: FallbackToLogsOnError",
        change: FieldChange::MayRemove,
        test: Test::Field(Trigger::OtherThan("/dev/termination-log")),
        ..Rule::DEFAULT
    },
]);

/// Returns true if this security context forbids `ContainerAdministrator`, and neither it nor that of the pod names a user.
fn may_be_administrator(context: &Value, of_pod: &Value) -> bool {
    let options = |context: &Value| context["windowsOptions"].clone();
    // A host-process container runs as an account of the node.
    let is_other = |context| options(context)["runAsUserName"].is_string() || options(context)["hostProcess"] == true;
    context["runAsNonRoot"] == Value::Bool(true) && !is_other(context) && !is_other(of_pod)
}

fn huge_pages(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (path, container) in containers(subject.workload.raw) {
        for kind in ["limits", "requests"] {
            let resources = get(container, &["resources", kind]).and_then(Value::as_object);
            if resources.is_some_and(|resources| resources.keys().any(|name| name.starts_with("hugepages-"))) {
                hits.push(Hit::at(format!("{path}.resources.{kind}")));
            }
        }
    }
}

fn memory_limit(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (path, container) in containers(subject.workload.raw) {
        let memory = |kind| get(container, &["resources", kind, "memory"]).is_some();
        if memory("requests") && !memory("limits") {
            hits.push(Hit::at(format!("{path}.resources.limits.memory")));
        }
    }
}

fn item_modes(subject: &Subject<'_>, hits: &mut Vec<Hit>) {
    for (path, volume) in volumes(subject.workload.raw) {
        for source in ["secret", "configMap"] {
            let items = get(volume, &[source, "items"]).and_then(Value::as_array).into_iter().flatten();
            for (item, _) in items.enumerate().filter(|(_, item)| get(item, &["mode"]).is_some()) {
                hits.push(Hit::at(format!("{path}.{source}.items[{item}].mode")));
            }
        }
    }
}
