//! Rules about fields that the API server accepts and that Windows does not support, or supports differently.
//!
//! Source, unless a rule names another: "Windows containers in Kubernetes" in kubernetes/website, in its versions for
//! 1.16 to 1.36. If versions or sources differ, or no source describes the effect, the severity is info.

use serde_json::Value;

use crate::finding::Consequence::{Fails, Ignored, Note};
use crate::finding::Severity::{Error, Info, Warning};
use crate::lint::field::{Trigger, containers, volumes};
use crate::lint::rule::{FieldChange, Hit, Judgement, Rule, Scope, Subject, Test, own, rule};
use crate::workload::get;

const fn lint(
    id: &'static str,
    verdict: Judgement,
    test: Test,
    field: &'static str,
    reason: &'static str,
    remedy: &'static str,
) -> Rule {
    rule(id, verdict, Scope::Windows, field, reason, remedy, test)
}

/// The accounts that exist only in containers.
const CONTAINER_USERS: [&str; 2] = ["ContainerAdministrator", "ContainerUser"];
const NON_ROOT: &str =
    "on Windows it prevents the container from running as ContainerAdministrator, which many images do";
const NON_ROOT_REMEDY: &str =
    "set windowsOptions.runAsUserName: ContainerUser if the image runs as ContainerAdministrator";
/// The sources differ: impossible with Docker, possible with containerd.
const SUB_PATH: &str = "the documentation calls subPath unsupported on Windows; with containerd it reportedly works";
const SUB_PATH_REMEDY: &str = "try it, or mount the whole volume";
const MODE: &str = "Windows has no file modes: all containers can read the files";
const MODE_REMEDY: &str = "remove it, or split the pod";
/// 0644, the API server's default.
const DEFAULT_MODE: Trigger = Trigger::OtherNumberThan(0o644);

pub(super) const RULES: &[Rule] = &[
    lint(
        "dns-policy-with-host-net",
        // The documentation says "not supported"; the kubelet takes it for ClusterFirst (pkg/kubelet/network/dns/dns.go).
        Judgement(Warning, Ignored),
        Test::Field(Trigger::OneOf(&["ClusterFirstWithHostNet"])),
        "dnsPolicy",
        "on Windows ClusterFirstWithHostNet means the same as ClusterFirst",
        "use ClusterFirst",
    )
    .fixed_by(FieldChange::Set("ClusterFirst")),
    lint(
        "host-network",
        Judgement(Info, Note),
        Test::Own {
            find: |subject, hits| {
                if subject.pod.has_host_network && !subject.pod.containers.iter().any(|c| c.is_host_process) {
                    hits.push(Hit::at("hostNetwork"));
                }
            },
            cel: None,
        },
        "hostNetwork",
        // An alpha feature of 1.26 to 1.32 (KEP 3503), which was withdrawn. No source says if the pod fails or the
        // field is ignored.
        "only host-process containers can use the host's network on Windows; what happens to others is not documented",
        "remove it, or use host-process containers",
    )
    .fixed_by(FieldChange::MayRemove),
    lint(
        "run-as-non-root",
        Judgement(Info, Note),
        own(|subject, hits| {
            let of_pod = &subject.workload.raw["securityContext"];
            hits.extend(may_be_administrator(of_pod, of_pod).then(|| Hit::at("securityContext.runAsNonRoot")));
        }),
        "securityContext.runAsNonRoot",
        NON_ROOT,
        NON_ROOT_REMEDY,
    ),
    lint(
        "container-run-as-non-root",
        Judgement(Info, Note),
        own(|subject, hits| {
            let raw = subject.workload.raw;
            let found = containers(raw)
                .filter(|(_, container)| may_be_administrator(&container["securityContext"], &raw["securityContext"]));
            hits.extend(found.map(|(path, _)| Hit::at(format!("{path}.securityContext.runAsNonRoot"))));
        }),
        "containers[*].securityContext.runAsNonRoot",
        NON_ROOT,
        NON_ROOT_REMEDY,
    ),
    lint(
        "host-process-user",
        // Source: "Create a Windows HostProcess Pod" in kubernetes/website.
        Judgement(Error, Fails),
        own(|subject, hits| {
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
        "securityContext.windowsOptions.runAsUserName",
        "a host-process container runs as an account of the node, and this one exists only in containers",
        "write NT AUTHORITY\\SYSTEM, NT AUTHORITY\\LocalService, NT AUTHORITY\\NetworkService, or a local group of the node",
    ),
    lint(
        "huge-pages",
        Judgement(Error, Fails),
        Test::Own {
            find: huge_pages,
            cel: Some(|| {
                "variables.containers.exists(c, \
                 c.?resources.?limits.orValue({}).exists(k, k.startsWith('hugepages-')) \
                 || c.?resources.?requests.orValue({}).exists(k, k.startsWith('hugepages-')))"
                    .to_owned()
            }),
        },
        "containers[*].resources",
        "Windows containers have no huge pages",
        "remove the hugepages resources",
    ),
    lint(
        "resource-claims",
        // Source: kubernetes/kubernetes#141841.
        Judgement(Error, Fails),
        own(|subject, hits| {
            let claims = get(subject.workload.raw, &["resourceClaims"]).and_then(Value::as_array);
            hits.extend(claims.filter(|claims| !claims.is_empty()).map(|_| Hit::at("resourceClaims")));
        }),
        "resourceClaims",
        "the kubelet on Windows does not support dynamic resource allocation",
        "request the resource of a device plugin instead, such as microsoft.com/directx",
    ),
    lint(
        "memory-limit-missing",
        Judgement(Info, Note),
        own(memory_limit),
        "containers[*].resources.limits.memory",
        "Windows has no out-of-memory killer: a container that uses more memory than the node has makes the node page to disk",
        "set resources.limits.memory, equal to the request",
    ),
    lint(
        "empty-dir-memory",
        Judgement(Warning, Ignored),
        // kubernetes/mount-utils mount_windows.go creates a directory for a mount of type "tmpfs".
        Test::Field(Trigger::OneOf(&["Memory"])),
        "volumes[*].emptyDir.medium",
        "Windows has no volumes in memory: the data is on the node's disk",
        "remove medium, and keep secrets off the volume",
    )
    .fixed_by(FieldChange::Remove),
    lint(
        "secret-volume",
        Judgement(Info, Note),
        Test::Field(Trigger::Present),
        "volumes[*].secret",
        "on Windows a Secret in a volume is in clear text on the node's disk",
        "encrypt the node's disk, and restrict access to the kubelet's directory",
    ),
    lint(
        "secret-volume-mode",
        Judgement(Warning, Ignored),
        Test::Field(DEFAULT_MODE),
        "volumes[*].secret.defaultMode",
        MODE,
        MODE_REMEDY,
    )
    .fixed_by(FieldChange::Remove),
    lint(
        "config-map-volume-mode",
        Judgement(Warning, Ignored),
        Test::Field(DEFAULT_MODE),
        "volumes[*].configMap.defaultMode",
        MODE,
        MODE_REMEDY,
    )
    .fixed_by(FieldChange::Remove),
    lint(
        "projected-volume-mode",
        Judgement(Warning, Ignored),
        Test::Field(DEFAULT_MODE),
        "volumes[*].projected.defaultMode",
        MODE,
        MODE_REMEDY,
    )
    .fixed_by(FieldChange::Remove),
    lint(
        "volume-item-mode",
        Judgement(Warning, Ignored),
        Test::Own {
            find: item_modes,
            cel: Some(|| {
                "variables.pod.?volumes.orValue([]).exists(v, \
                 v.?secret.?items.orValue([]).exists(i, i.?mode.hasValue()) \
                 || v.?configMap.?items.orValue([]).exists(i, i.?mode.hasValue()))"
                    .to_owned()
            }),
        },
        "volumes[*].*.items[*].mode",
        MODE,
        MODE_REMEDY,
    )
    .fixed_by(FieldChange::Remove),
    lint(
        "sub-path",
        Judgement(Info, Note),
        Test::Field(Trigger::OtherThan("")),
        "containers[*].volumeMounts[*].subPath",
        SUB_PATH,
        SUB_PATH_REMEDY,
    ),
    lint(
        "sub-path-expr",
        Judgement(Info, Note),
        Test::Field(Trigger::OtherThan("")),
        "containers[*].volumeMounts[*].subPathExpr",
        SUB_PATH,
        SUB_PATH_REMEDY,
    ),
    lint(
        "mount-propagation",
        Judgement(Error, Fails),
        Test::Field(Trigger::OneOf(&["HostToContainer", "Bidirectional"])),
        "containers[*].volumeMounts[*].mountPropagation",
        "Windows does not support mount propagation",
        "remove it",
    )
    .fixed_by(FieldChange::Remove),
    lint(
        "volume-devices",
        Judgement(Error, Fails),
        Test::Field(Trigger::NotEmpty),
        "containers[*].volumeDevices",
        "Windows does not support raw block volumes",
        "mount a volume with a file system",
    ),
    lint(
        "nfs-volume",
        Judgement(Error, Fails),
        Test::Field(Trigger::Present),
        "volumes[*].nfs",
        "Windows does not support NFS volumes",
        "use SMB with a CSI driver",
    ),
    lint(
        "termination-message-path",
        Judgement(Info, Note),
        Test::Field(Trigger::OtherThan("/dev/termination-log")),
        "containers[*].terminationMessagePath",
        "Windows mounts single files only with limits; the default path works because it does not exist there",
        "remove it, and read the logs instead: terminationMessagePolicy: FallbackToLogsOnError",
    )
    .fixed_by(FieldChange::MayRemove),
];

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
