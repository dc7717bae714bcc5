//! Every metric, in one table: registration, `/metrics` and `docs/reference/metrics.md` are made from it. The page also
//! describes the labels, from a table of its generator.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};

/// Values of the label `controller`.
pub const CONTROLLERS: [&str; 2] = ["node", "pool"];
/// Values of the label `result` of reconciles.
pub const RESULTS: [&str; 2] = ["ok", "error"];

pub struct Description {
    /// The name in queries. A histogram has further names that begin with it.
    pub name: &'static str,
    pub kind: MetricType,
    /// The meaning, as sentences without the last full stop.
    pub meaning: &'static str,
}

/// The values of a condition's status.
pub const CONDITION_STATUS: [&str; 3] = ["True", "False", "Unknown"];

/// Declares metrics, each with its type, its name and its meaning, and a table of them in this order.
macro_rules! metrics {
    ($($metric:ident = $kind:ident $name:literal $meaning:literal;)+) => {
        $(
            pub(super) static $metric: Description =
                Description { name: $name, kind: MetricType::$kind, meaning: $meaning };
        )+
        /// Every metric, in the order of the reference.
        pub static METRICS: &[&Description] = &[$(&$metric),+];
    };
}

metrics! {
    BUILD_INFO = Gauge "winpool_build_info" "Always 1, with the version that runs";
    LEADER = Gauge "winpool_leader" "1 if this process leads, 0 if it is a standby";
    NODES = Gauge "winpool_nodes"
        "Windows nodes of a pool. With mode DryRun, pending nodes are those that would be changed. Combinations \
         without nodes are absent";
    RUNTIME_CLASSES = Gauge "winpool_runtimeclasses" "RuntimeClasses of a pool. States without classes are absent";
    POOL_PROBLEMS = Gauge "winpool_pool_problems"
        "Problems in the status of a pool, which shows 10 at most. Reasons without problems are absent";
    PENDING_CHANGES = Gauge "winpool_pending_changes"
        "Nodes and RuntimeClasses that still need a write. With mode DryRun: what Enforce would write. With Enforce: \
         what is about to be written, and what waits because it is held, contested or refused";
    POOL_CONDITION = Gauge "winpool_pool_condition" "1 for the status that a condition of a pool has, 0 for the others";
    FAILING_PODS = Gauge "winpool_failing_pods"
        "Pods that fail because of Windows. Those that the kubelet refused, or that failed for good, count as 1 for \
         each workload and error. Absent while the pods are not known, and if there are no Windows nodes";
    END_OF_SUPPORT = Gauge "winpool_windows_end_of_support_timestamp_seconds"
        "End of Microsoft's support of a build that nodes of a pool run, in seconds since 1970. Vendors of clusters \
         can end theirs earlier: see winpool status";
    CONVERGENCE = Histogram "winpool_node_convergence_seconds"
        "Time from the first event of a Node that needs a write to the accepted patch. Nodes that are never written \
         are not included: see winpool_nodes";
    RECONCILES = Counter "winpool_reconcile_total"
        "Reconciles of one object each: a Node, or a WindowsPool with its RuntimeClasses. Nodes that need no change \
         are not reconciled";
    RECONCILE_ERRORS = Counter "winpool_reconcile_errors_total"
        "Reconciles that failed and are tried again. Writes that the API server refuses permanently are not counted \
         here: see the state blocked of winpool_nodes";
    RECONCILE_DURATION = Histogram "winpool_reconcile_duration_seconds"
        "Duration of reconciles, including their requests";
    KUBE_REQUESTS = Counter "winpool_kube_requests_total"
        "Requests to the API server, including Events. A watch counts once, when it is answered";
}

impl Description {
    /// The name without the part that the format adds itself.
    fn base_name(&self) -> &'static str {
        self.name.trim_end_matches("_total")
    }

    /// Registers `metric` under this description, and returns it.
    pub(super) fn register<M: Metric + Clone>(&self, registry: &mut Registry, metric: M) -> M {
        registry.register(self.base_name(), self.meaning, metric.clone());
        metric
    }

    /// Writes the description of the samples that follow.
    pub(super) fn encode<'e>(&self, encoder: &'e mut DescriptorEncoder) -> Result<MetricEncoder<'e>, fmt::Error> {
        encoder.encode_descriptor(self.base_name(), &format!("{}.", self.meaning), None, self.kind)
    }
}
