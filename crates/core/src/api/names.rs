//! Every name that winpool reads or writes on a cluster, in one place.

/// Declares constants, and a table of them with their doc comments for the users' [reference](super::reference).
macro_rules! described {
    ($($(#[doc = $meaning:literal])+ pub const $constant:ident: &str = $name:literal;)+) => {
        $($(#[doc = $meaning])+ pub const $constant: &str = $name;)+
        /// All of these constants, in this order, with their meanings.
        pub const DESCRIBED: &[(&str, &str)] = &[$(($name, concat!($($meaning),+))),+];
    };
}

/// API group of [`WindowsPool`](super::WindowsPool) and prefix of winpool's own labels and annotations.
pub const GROUP: &str = "winpool.dev";
/// Field manager of every write.
pub const FIELD_MANAGER: &str = "winpool";

/// Operating system label; the kubelet sets it again on every status sync.
pub const OS: &str = "kubernetes.io/os";
/// Architecture label, set by the kubelet like [`OS`].
pub const ARCH: &str = "kubernetes.io/arch";
/// Value of [`OS`] on Windows nodes.
pub const WINDOWS: &str = "windows";

/// The Lease whose holder leads.
pub const LEASE: &str = "winpool";

described! {
    /// Label on Windows nodes: `10.0.<build>`. The kubelet writes it when it registers the node and never repairs it while
    /// it runs.
    pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
    /// Label on nodes and RuntimeClasses: the pool that they belong to.
    pub const POOL: &str = "winpool.dev/pool";
    /// Annotation on nodes: what winpool added, as JSON: the pool, and taints as `key=value:effect`.
    pub const APPLIED: &str = "winpool.dev/applied";
    /// Annotation on nodes: with `"true"` winpool does not change the node. On pods: winpool adds no
    /// toleration. On DaemonSets: they hold no taint. Their pods get tolerations,
    /// unless the pod template has the annotation too.
    pub const IGNORE: &str = "winpool.dev/ignore";
    /// Prefix of labels on nodes that run images of a build by process isolation; the build follows, and the value is
    /// `"true"`. Nodes get them for RuntimeClasses with `Compatible` hosts, and keep them while they are true.
    pub const CAPABILITY_LABEL_PREFIX: &str = "runs.winpool.dev/";
    /// Label on RuntimeClasses that winpool created: `winpool`.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Label on namespaces: the RuntimeClass that the admission policy `assign-class` gives to their Windows pods.
    pub const RUNTIME_CLASS: &str = "winpool.dev/runtime-class";
    /// Annotation on pods: the source of the class that `assign-class` gave them: `namespace`, `image-tags` or `pool`.
    pub const CLASS_FROM: &str = "winpool.dev/class-from";
    /// Label on namespaces: with `none` the admission policy `linux-by-default` does not change their pods.
    pub const DEFAULT_OS: &str = "winpool.dev/default-os";
    /// Finalizer on pools, and on the operator's ServiceAccount and permissions, until winpool has cleaned up.
    pub const CLEANUP: &str = "winpool.dev/cleanup";
}

/// True for a name that a RuntimeClass of a pool may have.
pub fn is_class_name(text: &str) -> bool {
    text.len() <= 63 && is_dns_subdomain(text)
}

/// True for a DNS subdomain as Kubernetes checks it: at most 253 characters, and no limit for the parts between dots.
pub fn is_dns_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && !part.starts_with('-') && !part.ends_with('-') && part.bytes().all(is_plain)
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Condition types of a WindowsPool.
pub mod condition {
    described! {
        /// winpool has done everything that it can do for this pool.
        pub const READY: &str = "Ready";
        /// Every node of the pool has the right label `node.kubernetes.io/windows-build`, and the capability labels of the
        /// RuntimeClasses that it can serve.
        pub const NODES_LABELED: &str = "NodesLabeled";
        /// Every node of the pool has its taints.
        pub const TAINTS_APPLIED: &str = "TaintsApplied";
        /// Every RuntimeClass of the pool exists and is up to date.
        pub const RUNTIME_CLASSES_APPLIED: &str = "RuntimeClassesApplied";
        /// No pod is known to fail because of Windows. The causes are an image for Linux or another build, the pause image,
        /// the network, labels that no node has, and a refusal by the kubelet. This condition does not affect `Ready`.
        /// Absent if there are no Windows nodes.
        pub const WORKLOADS_HEALTHY: &str = "WorkloadsHealthy";
        /// Older pools own nodes that this pool selects too. Absent if there are none.
        pub const OVERLAPPING: &str = "Overlapping";
    }

    /// The condition types that may be absent.
    const AT_TIMES: [&str; 2] = [WORKLOADS_HEALTHY, OVERLAPPING];

    /// All condition types.
    pub fn all() -> impl Iterator<Item = &'static str> {
        DESCRIBED.iter().map(|(name, _)| *name)
    }

    /// The condition types that are always present, in the order in which winpool writes them.
    pub fn always() -> impl Iterator<Item = &'static str> {
        all().filter(|name| !AT_TIMES.contains(name))
    }
}

/// Reasons in conditions, problems and Events.
pub mod reason {
    described! {
        /// Nothing is left to do.
        pub const DONE: &str = "Done";
        /// winpool is still working.
        pub const IN_PROGRESS: &str = "InProgress";
        /// `mode: DryRun`: winpool reports what it would change and writes nothing.
        pub const DRY_RUN: &str = "DryRun";
        /// Older pools own nodes that this pool selects too.
        pub const OLDER_POOL: &str = "OlderPool";
        /// The spec is not valid; winpool writes nothing until it is fixed.
        pub const INVALID_SPEC: &str = "InvalidSpec";
        /// A node reports no valid Windows version.
        pub const BUILD_UNKNOWN: &str = "BuildUnknown";
        /// A node has the label `kubernetes.io/os: windows` and reports another operating system; winpool does not change it.
        pub const OPERATING_SYSTEM_DIFFERS: &str = "OperatingSystemDiffers";
        /// Neither this release nor `spec.buildNames` has a name for a build, which gets no RuntimeClass.
        pub const BUILD_NOT_NAMED: &str = "BuildNotNamed";
        /// DaemonSets do not tolerate a taint that the pool wants.
        pub const DAEMON_SETS_NOT_TOLERATING: &str = "DaemonSetsNotTolerating";
        /// A DaemonSet for Windows makes no new pods for nodes that have a taint which it does not tolerate.
        pub const DAEMON_SET_WITHOUT_PODS: &str = "DaemonSetWithoutPods";
        /// Every node of the pool has its taints. Only Events have it.
        pub const TAINTS_ADDED: &str = "TaintsAdded";
        /// Pods without a node were created before their RuntimeClass got its selector and tolerations.
        pub const PODS_CREATED_TOO_EARLY: &str = "PodsCreatedTooEarly";
        /// Another writer keeps reverting what winpool writes.
        pub const CONTESTED: &str = "Contested";
        /// The pool is being deleted, and winpool cleans up its nodes and RuntimeClasses.
        pub const DELETING: &str = "Deleting";
        /// winpool cannot read nodes, WindowsPools or RuntimeClasses, so the status may be old. It retries, and adds no taint.
        pub const READ_FAILED: &str = "ReadFailed";
        /// A write failed, or the API server did not answer it; winpool retries it.
        pub const WRITE_FAILED: &str = "WriteFailed";
        /// The API server does not store a field of the status that winpool needs: the CustomResourceDefinition is older than
        /// winpool, or a webhook removes the field.
        pub const STATUS_NOT_STORED: &str = "StatusNotStored";
        /// A policy removes the annotation `winpool.dev/applied` from winpool's writes of nodes.
        pub const RECORD_REMOVED: &str = "RecordRemoved";
        /// Taints wait until winpool has listed the pods, for pods that run on the nodes and get the toleration first, or for
        /// RuntimeClasses that do not yet tolerate them.
        pub const WAITING: &str = "Waiting";
        /// The pool selects no node.
        pub const NO_NODES_SELECTED: &str = "NoNodesSelected";
        /// winpool keeps a RuntimeClass because pods use it.
        pub const CLASS_IN_USE: &str = "ClassInUse";
        /// The API server, or a policy in it, refuses a write, or accepts it and reverts it.
        pub const ADMISSION_DENIED: &str = "AdmissionDenied";
        /// The API server, or a policy in it, refuses the toleration that winpool adds to pods of a workload.
        pub const TOLERATION_REFUSED: &str = "TolerationRefused";
        /// The API server fails whenever winpool adds a toleration to a pod, of this workload and of all others.
        pub const TOLERATIONS_FAIL: &str = "TolerationsFail";
        /// winpool's permission to patch pods is not confined by the policy for that, or winpool lacks the permission. No taint
        /// is added that needs tolerations.
        pub const NOT_CONFINED: &str = "NotConfined";
        /// Pods have waited for a node for ten minutes, or name a node group with nodes of both systems. They do not say their
        /// operating system, and fit a Windows node but for its taint.
        pub const SYSTEM_NOT_STATED: &str = "SystemNotStated";
        /// A node has a taint with the same key and effect and another value; winpool does not change it.
        pub const TAINT_VALUE_DIFFERS: &str = "TaintValueDiffers";
        /// A node has Windows taints whose tolerations winpool does not add to pods: more than four, or some that only the node
        /// names.
        pub const TAINTS_NOT_TOLERATED: &str = "TaintsNotTolerated";
        /// winpool does not manage the RuntimeClass of this name or cannot change its handler, or it belongs to an older pool.
        pub const CLASS_CONFLICT: &str = "ClassConflict";
        /// The name that a RuntimeClass would have is not a valid object name.
        pub const CLASS_NAME_INVALID: &str = "ClassNameInvalid";
        /// winpool would change a node or RuntimeClass if the mode were Enforce.
        pub const WOULD_CHANGE: &str = "WouldChange";
        /// Pods use a RuntimeClass that selects no node.
        pub const CLASS_WITHOUT_NODES: &str = "ClassWithoutNodes";
        /// A RuntimeClass selects its build until every node that runs its images has the capability label of its build.
        pub const WAITING_FOR_LABELS: &str = "WaitingForLabels";
        /// No pod is known to fail because of Windows.
        pub const HEALTHY: &str = "Healthy";
        /// Pods fail because of Windows.
        pub const PODS_FAILING: &str = "PodsFailing";
        /// winpool cannot see all pods, or all Events about them, or does not read some pods of a namespace because they have too
        /// long or too many different node selectors, affinities and tolerations.
        pub const PODS_NOT_SEEN: &str = "PodsNotSeen";
    }
}
