//! The metrics that Prometheus scrapes. No label has the name of a node as its value.

mod gauges;
mod process;
pub mod reference;

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use winpool_core::api::RuntimeClassStatus;

use self::{gauges::Gauges, process::Process};
use crate::{
    api_server::{asked::Asked, error::RequestError},
    cache::index::Index,
};

/// The metrics of one process.
pub struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    durations: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    node_writes: Family<WriteLabels, Counter>,
    class_writes: Family<WriteLabels, Counter>,
    convergence: Histogram,
    requests: Family<RequestLabels, Counter>,
    gauges: Gauges,
    leader: Gauge,
}

/// Values of the label `controller`.
const CONTROLLERS: [&str; 2] = ["node", "pool"];
/// Values of the label `result` of reconciles.
const RESULTS: [&str; 2] = ["ok", "error"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    controller: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    resource: &'static str,
    code: String,
}

/// An operation of a write, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Patch,
    Delete,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Create, Self::Patch, Self::Delete];

    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// Buckets from a millisecond to a minute.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    /// Creates all metrics, at zero. Gauges of nodes are read from `index` when they are scraped.
    pub fn new(index: Arc<Index>) -> Self {
        let leader = Gauge::default();
        let mut metrics = Self {
            registry: Registry::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(histogram),
            node_writes: Family::default(),
            class_writes: Family::default(),
            convergence: histogram(),
            requests: Family::default(),
            gauges: Gauges::new(index, leader.clone()),
            leader,
        };
        metrics.start_at_zero();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.registry = registry;
        metrics
    }

    /// Creates the counters at zero: Prometheus does not see the growth of a counter that first appears at 1.
    fn start_at_zero(&self) {
        for controller in CONTROLLERS {
            drop(self.durations.get_or_create(&ControllerLabels { controller }));
            for result in RESULTS {
                drop(self.reconciles.get_or_create(&ReconcileLabels { controller, result }));
            }
            for reason in RequestError::WORDS {
                drop(self.errors.get_or_create(&ErrorLabels { controller, reason }));
            }
        }
        for result in ["ok"].into_iter().chain(RequestError::WORDS) {
            let labels = |operation: Operation| WriteLabels { operation: operation.as_str(), result };
            drop(self.node_writes.get_or_create(&labels(Operation::Patch)));
            for operation in Operation::ALL {
                drop(self.class_writes.get_or_create(&labels(operation)));
            }
        }
    }

    fn register(&self, registry: &mut Registry) {
        let build: Family<[(&str, &str); 1], Gauge> = Family::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        reference::BUILD_INFO.register(registry, build);
        reference::LEADER.register(registry, self.leader.clone());
        reference::RECONCILES.register(registry, self.reconciles.clone());
        reference::RECONCILE_ERRORS.register(registry, self.errors.clone());
        reference::RECONCILE_DURATION.register(registry, self.durations.clone());
        reference::NODE_WRITES.register(registry, self.node_writes.clone());
        reference::CLASS_WRITES.register(registry, self.class_writes.clone());
        reference::CONVERGENCE.register(registry, self.convergence.clone());
        reference::KUBE_REQUESTS.register(registry, self.requests.clone());
        registry.register_collector(Box::new(self.gauges.clone()));
        registry.register_collector(Box::new(Process));
    }

    /// Encodes all metrics as `OpenMetrics` text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Records if this process leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Records a reconcile; `error` is one word for why it failed.
    pub fn reconciled(&self, controller: &'static str, took: Duration, error: Option<&'static str>) {
        let [ok, failed] = RESULTS;
        let result = if error.is_some() { failed } else { ok };
        self.reconciles.get_or_create(&ReconcileLabels { controller, result }).inc();
        self.durations.get_or_create(&ControllerLabels { controller }).observe(took.as_secs_f64());
        if let Some(reason) = error {
            self.errors.get_or_create(&ErrorLabels { controller, reason }).inc();
        }
    }

    /// Records a patch of a Node.
    pub fn node_write<T>(&self, result: &Result<T, RequestError>) {
        self.node_writes.get_or_create(&labels(Operation::Patch, result)).inc();
    }

    /// Records a write of a RuntimeClass.
    pub fn class_write<T>(&self, operation: Operation, result: &Result<T, RequestError>) {
        self.class_writes.get_or_create(&labels(operation, result)).inc();
    }

    /// Records that a node that needed a write has it.
    pub fn converged(&self, took: Duration) {
        self.convergence.observe(took.as_secs_f64());
    }

    /// Records a request to the API server; `code` is its answer.
    pub fn kube_request(&self, Asked { verb, resource }: Asked, code: String) {
        self.requests.get_or_create(&RequestLabels { verb, resource, code }).inc();
    }

    /// Records the RuntimeClasses of a pool.
    pub fn classes(&self, pool: &str, classes: &[RuntimeClassStatus]) {
        self.gauges.classes(pool, classes);
    }

    /// Records the conditions of a pool.
    pub fn conditions(&self, pool: &str, conditions: &[Condition]) {
        self.gauges.conditions(pool, conditions);
    }

    /// Forgets deleted pools.
    pub fn keep_pools(&self, exists: impl Fn(&str) -> bool) {
        self.gauges.keep_pools(exists);
    }
}

fn labels<T>(operation: Operation, result: &Result<T, RequestError>) -> WriteLabels {
    let result = result.as_ref().map_or_else(RequestError::as_str, |_| "ok");
    WriteLabels { operation: operation.as_str(), result }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        reference::{Description, METRICS},
        *,
    };

    #[test]
    fn the_reference_has_what_is_exposed_and_nothing_else() {
        let metrics = Metrics::new(Arc::default());
        metrics.leads(true);
        // HTTP codes are no closed list, so this metric does not start at zero.
        metrics.kube_request(Asked { verb: "get", resource: "nodes" }, "200".to_owned());
        let text = metrics.encode().unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let mut exposed: BTreeSet<&str> = types.collect();
        for Description { name, .. } in METRICS {
            let there = exposed.remove(name.trim_end_matches("_total"));
            assert!(there, "{name}: register it in src/metrics.rs, or encode it in src/metrics/gauges.rs");
        }
        assert_eq!(exposed, BTreeSet::new(), "missing in METRICS in src/metrics/reference.rs");
    }

    #[test]
    fn text_has_every_metric_with_its_prefix_and_the_standard_ones() {
        let metrics = Metrics::new(Arc::default());
        metrics.reconciled("node", Duration::from_millis(3), Some("denied"));
        metrics.node_write(&Err::<(), _>(RequestError::Stale));
        let text = metrics.encode().unwrap();
        for line in [
            "winpool_build_info{version=",
            "winpool_leader 0",
            "winpool_reconcile_total{controller=\"node\",result=\"error\"} 1",
            "winpool_reconcile_errors_total{controller=\"node\",reason=\"denied\"} 1",
            "winpool_reconcile_duration_seconds_count{controller=\"node\"} 1",
            "winpool_node_writes_total{operation=\"patch\",result=\"stale\"} 1",
            "winpool_node_convergence_seconds_count 0",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
