//! Every name that winpool reads or writes on a cluster, in one place.

/// A name and what it means, for the [reference](super::reference).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    /// The name.
    pub(crate) name: &'static str,
    /// Its doc comment.
    pub(crate) meaning: &'static str,
}

/// Constants, and a table of them with their doc comments, which are what users read.
macro_rules! described {
    ($($(#[doc = $meaning:literal])+ pub const $constant:ident: &str = $name:literal;)+) => {
        $($(#[doc = $meaning])+ pub const $constant: &str = $name;)+
        /// All of the above, in this order.
        pub(crate) const DESCRIBED: &[$crate::api::names::Described] =
            &[$($crate::api::names::Described { name: $name, meaning: concat!($($meaning),+) }),+];
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
    /// Label on nodes: the pool whose marks the node carries. On RuntimeClasses: the pool that owns the class.
    pub const POOL: &str = "winpool.dev/pool";
    /// Annotation on nodes: what winpool added, as JSON: the pool, and taints as `key=value:effect`.
    pub const APPLIED: &str = "winpool.dev/applied";
    /// Annotation on nodes: `"true"` means that winpool neither adds nor removes anything.
    pub const IGNORE: &str = "winpool.dev/ignore";
    /// Prefix of labels on nodes that run the images of a RuntimeClass with `hostMatch: Compatible` or Hyper-V isolation;
    /// the name of the class follows, and the value is `"true"`.
    pub const CAPABILITY_LABEL_PREFIX: &str = "runtimeclass.winpool.dev/";
    /// Label on RuntimeClasses that winpool created: `winpool`.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Label on namespaces: the RuntimeClass that the admission policy `assign-class` gives to their Windows pods.
    pub const RUNTIME_CLASS: &str = "winpool.dev/runtime-class";
    /// Annotation on pods: where `assign-class` took their class from, `namespace`, `image-tags` or `pool`.
    pub const CLASS_FROM: &str = "winpool.dev/class-from";
    /// Label on namespaces: `none` keeps the admission policy `linux-by-default` away.
    pub const DEFAULT_OS: &str = "winpool.dev/default-os";
    /// Finalizer on pools that clean up when they are deleted, and on the operator's own account and rights.
    pub const CLEANUP: &str = "winpool.dev/cleanup";
}

/// Condition types of a WindowsPool.
pub mod condition {
    described! {
        /// Everything that winpool can do for this pool is done.
        pub const READY: &str = "Ready";
        /// Every selected node carries the right `node.kubernetes.io/windows-build`.
        pub const NODES_LABELED: &str = "NodesLabeled";
        /// Every selected node carries its taints.
        pub const TAINTS_APPLIED: &str = "TaintsApplied";
        /// Every RuntimeClass of the pool exists and is right.
        pub const RUNTIME_CLASSES_APPLIED: &str = "RuntimeClassesApplied";
        /// No build in use is past Microsoft's end of support. Never holds up `Ready`.
        pub const WINDOWS_SUPPORTED: &str = "WindowsSupported";
        /// Older pools own nodes that this pool selects too. Absent where there are none.
        pub const OVERLAPPING: &str = "Overlapping";
    }

    /// The condition types that are there only where they have something to say.
    const AT_TIMES: [&str; 1] = [OVERLAPPING];

    /// All condition types.
    pub fn all() -> impl Iterator<Item = &'static str> {
        DESCRIBED.iter().map(|condition| condition.name)
    }

    /// Those that are always there, in the order in which they are written.
    pub fn always() -> impl Iterator<Item = &'static str> {
        all().filter(|name| !AT_TIMES.contains(name))
    }
}

/// Reasons in conditions, problems and Events.
pub mod reason {
    described! {
        /// The condition holds: nothing is left to do.
        pub const DONE: &str = "Done";
        /// Work is under way.
        pub const IN_PROGRESS: &str = "InProgress";
        /// `mode: DryRun`: what would change is reported, nothing is written.
        pub const DRY_RUN: &str = "DryRun";
        /// A build in use is past Microsoft's end of support.
        pub const END_OF_SUPPORT: &str = "EndOfSupport";
        /// No build in use is past Microsoft's end of support.
        pub const SUPPORTED: &str = "Supported";
        /// Older pools own nodes that this pool selects too.
        pub const OLDER_POOL: &str = "OlderPool";
        /// The spec is not valid; nothing is written until it is.
        pub const INVALID_SPEC: &str = "InvalidSpec";
        /// A node reports no build that can be read.
        pub const BUILD_UNKNOWN: &str = "BuildUnknown";
        /// A build has no name in this release nor in `spec.buildNames`.
        pub const BUILD_NOT_NAMED: &str = "BuildNotNamed";
        /// Pods on the nodes do not tolerate a taint that the pool wants.
        pub const WORKLOADS_NOT_TOLERATING: &str = "WorkloadsNotTolerating";
        /// Pods were created before their RuntimeClass tolerated a taint.
        pub const PODS_CREATED_TOO_EARLY: &str = "PodsCreatedTooEarly";
        /// Somebody keeps undoing what winpool writes.
        pub const CONTESTED: &str = "Contested";
        /// The pool is being deleted and its marks are being taken off.
        pub const DELETING: &str = "Deleting";
        /// The API server did not answer a write, or failed. It is sent again.
        pub const WRITE_FAILED: &str = "WriteFailed";
        /// winpool cannot find out who would become unschedulable by a taint.
        pub const WORKLOAD_CHECK_FAILED: &str = "WorkloadCheckFailed";
        /// Taints wait for a workload check, or for RuntimeClasses that do not tolerate them yet.
        pub const WAITING: &str = "Waiting";
        /// The pool selects no node.
        pub const NO_NODES_SELECTED: &str = "NoNodesSelected";
        /// The pool has more RuntimeClasses than winpool keeps.
        pub const TOO_MANY_CLASSES: &str = "TooManyClasses";
        /// A RuntimeClass carries winpool's labels, but winpool did not record that it created it.
        pub const CLASS_NOT_RECORDED: &str = "ClassNotRecorded";
        /// A RuntimeClass stays because pods use it.
        pub const CLASS_IN_USE: &str = "ClassInUse";
        /// The API server, or a policy in it, refuses a write.
        pub const ADMISSION_DENIED: &str = "AdmissionDenied";
        /// A taint of the same key and effect with another value is on a node and is left alone.
        pub const TAINT_VALUE_DIFFERS: &str = "TaintValueDiffers";
        /// A RuntimeClass of that name is not winpool's, or belongs to an older pool.
        pub const CLASS_CONFLICT: &str = "ClassConflict";
        /// Kubernetes' documentation does not support Hyper-V isolation.
        pub const HYPERV_NOT_SUPPORTED: &str = "HyperVNotSupported";
        /// The name that a RuntimeClass would get is no valid object name.
        pub const CLASS_NAME_INVALID: &str = "ClassNameInvalid";
        /// A node or RuntimeClass would be changed if the pool's mode were Enforce.
        pub const WOULD_CHANGE: &str = "WouldChange";
        /// The admission policy `guard` does not let winpool change a taint that the pool wants.
        pub const TAINT_KEY_NOT_LISTED: &str = "TaintKeyNotListed";
        /// The pool has `podDefaults`, and the admission policy `assign-class` that applies them is not installed.
        pub const ADMISSION_POLICY_NOT_INSTALLED: &str = "AdmissionPolicyNotInstalled";
    }
}
