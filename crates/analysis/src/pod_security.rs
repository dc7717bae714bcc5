//! PodSecurity: the API server refuses pods because of the level that their namespace enforces.
//!
//! Source: `policy/` of k8s.io/pod-security-admission 0.37, each check of the levels baseline and restricted with the versions in
//! which it changed since 1.24. A control-plane test compares the answers with those of the API server. Annotations for seccomp, which no
//! supported version reads, are left out.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde_json::Value;

use crate::kubernetes::KubernetesVersion;

/// The label of a namespace with the level that its pods must keep.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
pub(crate) const VERSION: &str = "pod-security.kubernetes.io/enforce-version";

/// What a namespace enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSecurity {
    /// False for `baseline`.
    is_restricted: bool,
    /// The minor version of the checks.
    minor: u32,
}

impl PodSecurity {
    /// Reads the labels of a namespace. `None` if it enforces nothing, as far as they say: an API server may have other defaults. The
    /// API server has no newer checks than those of its own version, and uses these if the namespace names no version.
    pub fn of(labels: &BTreeMap<String, String>, server: Option<KubernetesVersion>) -> Option<Self> {
        let is_restricted = match labels.get(ENFORCE)?.as_str() {
            "restricted" => true,
            "baseline" => false,
            _ => return None,
        };
        let minor = labels.get(VERSION).and_then(|version| version.strip_prefix("v1.")?.parse().ok());
        let newest = server.map_or(NEWEST, |version| version.minor);
        Some(Self { is_restricted, minor: minor.unwrap_or(newest).min(newest) })
    }

    /// Returns why the API server refuses these pods in the namespace, if it does.
    pub fn refuses(self, namespace: &str, pod: &Violations) -> Option<Forbidden> {
        let Self { is_restricted, minor } = self;
        let counts = |found: &&Violation| found.levels[usize::from(is_restricted)] && found.minors.contains(&minor);
        let reasons: Vec<_> = pod.0.iter().filter(counts).map(|found| found.reason).collect();
        (!reasons.is_empty()).then(|| Forbidden { namespace: namespace.to_owned(), is_restricted, reasons })
    }
}

/// The reason why the API server refuses pods in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    namespace: String,
    is_restricted: bool,
    /// In the words of the API server: `hostProcess`, `host namespaces`.
    pub reasons: Vec<&'static str>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, reasons) = (if self.is_restricted { "restricted" } else { "baseline" }, self.reasons.join(", "));
        let namespace = &self.namespace;
        write!(
            f,
            "namespace {namespace} enforces the PodSecurity level {level}, so the API server refuses the pod: {reasons}"
        )
    }
}

impl Forbidden {
    /// Returns what to do.
    pub fn remedy(&self) -> String {
        if self.reasons.contains(&HOST_PROCESS) {
            format!("set the label {ENFORCE}: privileged on the namespace, which HostProcess pods need")
        } else {
            CHANGE_FIELDS.to_owned()
        }
    }
}

/// The checks that a pod does not pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Violations(Vec<Violation>);

#[derive(Clone, Debug, PartialEq)]
struct Violation {
    reason: &'static str,
    /// True for each level that has the check: `baseline`, `restricted`.
    levels: [bool; 2],
    /// The minor versions in which the pod does not pass it.
    minors: Range<u32>,
}

impl Violations {
    /// Tries the checks of all levels and versions on a pod with this spec and metadata.
    pub fn of(spec: &Value, metadata: &Value) -> Self {
        let by_level = [(BASELINE, [true, true]), (ONLY_BASELINE, [true, false]), (RESTRICTED, [false, true])];
        let checks = by_level.into_iter().flat_map(|(checks, levels)| checks.iter().map(move |check| (check, levels)));
        let found = checks.filter_map(|((reason, is_violated), levels)| {
            let in_minor = |minor| is_violated(&Pod { spec, metadata, minor });
            let minors = match (in_minor(0), in_minor(NEWEST)) {
                (false, false) => return None,
                (true, true) => 0..u32::MAX,
                // A check has changed at most once: it became stricter, or it allows more.
                (true, false) => 0..CHANGED.into_iter().find(|minor| !in_minor(*minor))?,
                (false, true) => CHANGED.into_iter().find(|minor| in_minor(*minor))?..u32::MAX,
            };
            Some(Violation { reason, levels, minors })
        });
        Self(found.collect())
    }
}

/// The minor versions in which checks changed, and one that is newer.
const CHANGED: [u32; 8] = [25, 27, 29, 31, 32, 34, 35, 37];
const NEWEST: u32 = u32::MAX - 1;

const HOST_PROCESS: &str = "hostProcess";

/// What to do about fields that the level forbids.
pub(crate) const CHANGE_FIELDS: &str = "change these fields, or let the namespace enforce another level, with its label \
                                        pod-security.kubernetes.io/enforce";

/// A pod, and the version of the checks.
struct Pod<'a> {
    spec: &'a Value,
    metadata: &'a Value,
    minor: u32,
}

/// The reason of a check, and whether a pod violates it.
type Check = (&'static str, fn(&Pod<'_>) -> bool);

/// The checks of both levels.
const BASELINE: &[Check] = &[
    (HOST_PROCESS, |pod| pod.any_context(|context| context["windowsOptions"]["hostProcess"] == true)),
    ("host namespaces", |pod| ["hostNetwork", "hostPID", "hostIPC"].iter().any(|field| pod.spec[*field] == true)),
    ("privileged", |pod| pod.any_container_context(|context| context["privileged"] == true)),
    ("hostPort", |pod| {
        // With the host's network each port of a container is one of the host.
        let is_of_host = |port: &Value| pod.spec["hostNetwork"] == true || port["hostPort"].as_i64().unwrap_or(0) != 0;
        pod.containers().any(|container| items(&container["ports"]).any(is_of_host))
    }),
    ("probe or lifecycle host", |pod| pod.minor >= 34 && pod.containers().any(has_host)),
    ("forbidden AppArmor profile", |pod| {
        let is_bad = |value: &str| !value.is_empty() && value != "runtime/default" && !value.starts_with("localhost/");
        let prefix = "container.apparmor.security.beta.kubernetes.io/";
        let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
        let mut annotations =
            annotations.filter(|(key, _)| key.starts_with(prefix)).filter_map(|(_, value)| value.as_str());
        annotations.any(is_bad) || pod.any_context(|context| is_other(&context["appArmorProfile"], &PROFILES))
    }),
    ("seLinuxOptions", |pod| {
        pod.any_context(|context| {
            let options = &context["seLinuxOptions"];
            let text = |field: &str| options[field].as_str().unwrap_or_default();
            let is_known = ["", "container_t", "container_init_t", "container_kvm_t"].contains(&text("type"))
                || text("type") == "container_engine_t" && pod.minor >= 31;
            options.is_object() && (!is_known || !text("user").is_empty() || !text("role").is_empty())
        })
    }),
    ("forbidden sysctls", |pod| {
        let is_allowed = |name: &str| SYSCTLS.iter().any(|(minor, names)| *minor <= pod.minor && names.contains(&name));
        let names = items(&pod.spec["securityContext"]["sysctls"]).filter_map(|sysctl| sysctl["name"].as_str());
        names.into_iter().any(|name| !is_allowed(name))
    }),
];

/// Those of `baseline` for which `restricted` has stricter ones.
const ONLY_BASELINE: &[Check] = &[
    ("procMount", |pod| !pod.has_own_users() && pod.any_container_context(has_unmasked_proc)),
    ("non-default capabilities", |pod| pod.any_container_context(|context| adds(context, &CAPABILITIES))),
    ("hostPath volumes", |pod| items(&pod.spec["volumes"]).any(|volume| volume["hostPath"].is_object())),
    ("seccompProfile", |pod| pod.any_context(|context| is_other(&context["seccompProfile"], &PROFILES))),
];

/// The checks of `restricted` alone. Since 1.25 a pod with `os.name: windows` is exempt from those of fields that Windows does not have.
const RESTRICTED: &[Check] = &[
    ("procMount", |pod| pod.any_container_context(has_unmasked_proc)),
    ("restricted volume types", |pod| {
        items(&pod.spec["volumes"]).any(|volume| VOLUMES.iter().all(|kind| !volume[*kind].is_object()))
    }),
    ("allowPrivilegeEscalation != false", |pod| {
        let is_bad = |container: &Value| container["securityContext"]["allowPrivilegeEscalation"] != false;
        !pod.is_exempt() && pod.containers().any(is_bad)
    }),
    ("runAsNonRoot != true", |pod| {
        let of_pod = &pod.spec["securityContext"]["runAsNonRoot"];
        let is_bad = |container: &Value| match container["securityContext"]["runAsNonRoot"].as_bool() {
            Some(of_container) => !of_container,
            None => *of_pod != true,
        };
        !pod.has_own_users() && (*of_pod == false || pod.containers().any(is_bad))
    }),
    ("runAsUser=0", |pod| !pod.has_own_users() && pod.any_context(|context| context["runAsUser"] == 0)),
    ("seccompProfile", |pod| {
        let of_pod = &pod.spec["securityContext"]["seccompProfile"];
        let is_good = |profile: &Value| profile.is_object() && !is_other(profile, &PROFILES);
        let is_bad = |container: &Value| match &container["securityContext"]["seccompProfile"] {
            Value::Object(_) => !is_good(&container["securityContext"]["seccompProfile"]),
            _ => !is_good(of_pod),
        };
        !pod.is_exempt() && (is_other(of_pod, &PROFILES) || pod.containers().any(is_bad))
    }),
    ("unrestricted capabilities", |pod| {
        let drops_all = |context: &Value| items(&context["capabilities"]["drop"]).any(|dropped| dropped == "ALL");
        let is_bad = |container: &Value| {
            let context = &container["securityContext"];
            !drops_all(context) || adds(context, &["NET_BIND_SERVICE"])
        };
        !pod.is_exempt() && pod.containers().any(is_bad)
    }),
];

const PROFILES: [&str; 2] = ["RuntimeDefault", "Localhost"];

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The allowed sysctls, each with the first minor version.
const SYSCTLS: [(u32, &[&str]); 5] = [
    (
        0,
        &[
            "kernel.shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "net.ipv4.tcp_syncookies",
            "net.ipv4.ping_group_range",
            "net.ipv4.ip_unprivileged_port_start",
        ],
    ),
    (27, &["net.ipv4.ip_local_reserved_ports"]),
    (
        29,
        &[
            "net.ipv4.tcp_keepalive_time",
            "net.ipv4.tcp_fin_timeout",
            "net.ipv4.tcp_keepalive_intvl",
            "net.ipv4.tcp_keepalive_probes",
        ],
    ),
    (32, &["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]),
    (37, &["net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"]),
];

impl Pod<'_> {
    fn containers(&self) -> impl Iterator<Item = &Value> {
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| items(&self.spec[list]))
    }

    fn any_container_context(&self, is_bad: impl Fn(&Value) -> bool) -> bool {
        self.containers().any(|container| is_bad(&container["securityContext"]))
    }

    /// True if this holds for the security context of the pod or of a container.
    fn any_context(&self, is_bad: impl Fn(&Value) -> bool) -> bool {
        is_bad(&self.spec["securityContext"]) || self.any_container_context(is_bad)
    }

    /// True for a pod in a user namespace of its own, which since 1.35 may run as root.
    fn has_own_users(&self) -> bool {
        self.minor >= 35 && self.spec["hostUsers"] == false
    }

    fn is_exempt(&self) -> bool {
        self.minor >= 25 && self.spec["os"]["name"] == "windows"
    }
}

fn has_unmasked_proc(context: &Value) -> bool {
    context["procMount"].as_str().is_some_and(|mount| mount != "Default")
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// True for a profile whose type is not one of these.
fn is_other(profile: &Value, types: &[&str]) -> bool {
    profile.is_object() && profile["type"].as_str().is_none_or(|kind| !types.contains(&kind))
}

/// True if the security context adds a capability that is not one of these.
fn adds(context: &Value, allowed: &[&str]) -> bool {
    items(&context["capabilities"]["add"]).any(|added| added.as_str().is_some_and(|added| !allowed.contains(&added)))
}

/// True if a probe or a hook of the container asks another host.
fn has_host(container: &Value) -> bool {
    let lifecycle = &container["lifecycle"];
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
    let handlers = probes.into_iter().chain([&lifecycle["postStart"], &lifecycle["preStop"]]);
    let mut hosts = handlers.flat_map(|handler| ["httpGet", "tcpSocket"].map(|kind| &handler[kind]["host"]));
    hosts.any(|host| host.as_str().is_some_and(|host| !host.is_empty()))
}
