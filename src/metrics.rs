//! What Prometheus scrapes. No label ever carries a node's name.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};
use winpool_core::api::{ClassState, RuntimeClassStatus};

use crate::{apply::WriteError, index::Index};

/// The metrics of one process.
pub struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    durations: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    node_writes: Family<WriteLabels, Counter>,
    class_writes: Family<WriteLabels, Counter>,
    convergence: Histogram,
    classes: Classes,
    leader: Gauge,
}

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

/// A write, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// POST.
    Create,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// From a millisecond to a minute.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    /// All metrics at zero. Gauges of nodes are read from `index` when they are scraped.
    #[must_use]
    pub fn new(index: Arc<Index>) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(histogram),
            node_writes: Family::default(),
            class_writes: Family::default(),
            convergence: histogram(),
            classes: Classes::default(),
            leader: Gauge::default(),
        };
        metrics.registry.register_collector(Box::new(Process));
        let mut registry = std::mem::take(&mut metrics.registry);
        metrics.register(registry.sub_registry_with_prefix("winpool"), index);
        metrics.registry = registry;
        metrics
    }

    fn register(&self, registry: &mut Registry, index: Arc<Index>) {
        let build: Family<[(&str, &str); 1], Gauge> = Family::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "1, with the version of winpool as its label", build);
        registry.register("leader", "1 if this process leads, 0 if it is a standby", self.leader.clone());
        registry.register("reconcile", "Reconciles by controller and result", self.reconciles.clone());
        registry.register("reconcile_errors", "Reconciles that failed, by reason", self.errors.clone());
        let durations = self.durations.clone();
        registry.register_with_unit("reconcile_duration", "Duration of reconciles", Unit::Seconds, durations);
        registry.register("node_writes", "Requests that write a Node", self.node_writes.clone());
        registry.register("runtimeclass_writes", "Requests that write a RuntimeClass", self.class_writes.clone());
        let help = "Time from the first sight of a Node that needs a write to the accepted patch";
        registry.register_with_unit("node_convergence", help, Unit::Seconds, self.convergence.clone());
        registry.register_collector(Box::new(self.classes.clone()));
        registry.register_collector(Box::new(Nodes { index, leader: self.leader.clone() }));
    }

    /// All metrics as `OpenMetrics` text.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Whether this process leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// A reconcile ended; `error` is one word for why it failed.
    pub fn reconciled(&self, controller: &'static str, took: Duration, error: Option<&'static str>) {
        let result = if error.is_some() { "error" } else { "ok" };
        self.reconciles.get_or_create(&ReconcileLabels { controller, result }).inc();
        self.durations.get_or_create(&ControllerLabels { controller }).observe(took.as_secs_f64());
        if let Some(reason) = error {
            self.errors.get_or_create(&ErrorLabels { controller, reason }).inc();
        }
    }

    /// A Node was patched, or the patch was refused.
    pub fn node_write<T>(&self, result: &Result<T, WriteError>) {
        self.node_writes.get_or_create(&labels(Operation::Patch, result)).inc();
    }

    /// A RuntimeClass was written, or the write was refused.
    pub fn class_write<T>(&self, operation: Operation, result: &Result<T, WriteError>) {
        self.class_writes.get_or_create(&labels(operation, result)).inc();
    }

    /// A node that needed a write has it.
    pub fn converged(&self, took: Duration) {
        self.convergence.observe(took.as_secs_f64());
    }

    /// The RuntimeClasses of a pool.
    pub fn classes(&self, pool: &str, classes: &[RuntimeClassStatus]) {
        let mut states = BTreeMap::new();
        for class in classes {
            *states.entry(class.state).or_default() += 1;
        }
        self.classes.lock().insert(pool.to_owned(), states);
    }

    /// Forgets pools that are no more.
    pub fn keep_pools(&self, exists: impl Fn(&str) -> bool) {
        self.classes.lock().retain(|pool, _| exists(pool));
    }
}

fn labels<T>(operation: Operation, result: &Result<T, WriteError>) -> WriteLabels {
    let result = result.as_ref().map_or_else(WriteError::as_str, |_| "ok");
    WriteLabels { operation: operation.as_str(), result }
}

/// `winpool_runtimeclasses`: numbers by pool and state.
#[derive(Clone, Debug, Default)]
struct Classes(Arc<Mutex<BTreeMap<String, BTreeMap<ClassState, i64>>>>);

impl Classes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<ClassState, i64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Classes {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "RuntimeClasses by pool and state";
        let mut family = encoder.encode_descriptor("runtimeclasses", help, None, MetricType::Gauge)?;
        for (pool, states) in self.lock().iter() {
            for (state, count) in states {
                let labels = [("pool", pool.as_str()), ("state", state.as_str())];
                ConstGauge::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// `winpool_nodes`, read from the index. A standby shows none, so that sums over all processes are right.
struct Nodes {
    index: Arc<Index>,
    leader: Gauge,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nodes")
    }
}

impl Collector for Nodes {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Windows nodes by pool, build and state";
        let mut family = encoder.encode_descriptor("nodes", help, None, MetricType::Gauge)?;
        let states = if self.leader.get() == 1 { self.index.states() } else { Vec::new() };
        for (pool, build, state, count) in states {
            let build = build.map_or_else(|| "unknown".to_owned(), |build| build.to_string());
            let labels = [("pool", pool.as_str()), ("build", build.as_str()), ("state", state.as_str())];
            ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The standard metrics of a process, from `/proc/self`. Absent where there is none.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            let help = "Resident memory size in bytes";
            let metric = encoder.encode_descriptor("process_resident_memory_bytes", help, None, MetricType::Gauge)?;
            ConstGauge::new(bytes).encode(metric)?;
        }
        if let Some(seconds) = cpu_seconds() {
            let help = "Total user and system CPU time spent in seconds";
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        Ok(())
    }
}

/// `VmRSS` of proc(5), which the kernel gives in KiB.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

/// `utime` and `stime` of proc(5), in clock ticks, of which Linux shows programs 100 a second on every architecture.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the program's name, may itself contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u32>().ok().map(f64::from);
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_every_metric_with_its_prefix_and_the_standard_ones() {
        let metrics = Metrics::new(Arc::default());
        metrics.reconciled("node", Duration::from_millis(3), Some("denied"));
        metrics.node_write(&Err::<(), _>(WriteError::Stale));
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
