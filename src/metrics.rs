//! The metrics that Prometheus scrapes. No label has the name of a node as its value.

mod gauges;
pub mod reference;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use winpool_client::error::RequestError;
use winpool_client::request_info::RequestInfo;
use winpool_client::requests;

use crate::nodes::SharedNodes;

use self::gauges::Gauges;
use self::reference::{CONTROLLERS, RESULTS};

/// Labels whose values are closed lists.
type MetricLabels<const N: usize> = [(&'static str, &'static str); N];

pub struct Metrics {
    reconciles: Family<MetricLabels<2>, Counter>,
    errors: Family<MetricLabels<2>, Counter>,
    durations: Family<MetricLabels<1>, Histogram, fn() -> Histogram>,
    /// The times that nodes have waited for a write that they needed.
    pub convergence: Histogram,
    requests: Family<[(&'static str, Cow<'static, str>); 3], Counter>,
    /// 1 if this process leads.
    pub leader: Gauge,
    pub gauges: Gauges,
    registry: Registry,
}

/// Buckets from a millisecond to a minute.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    /// Creates all metrics, at zero. Gauges of nodes are read from `nodes` when they are scraped.
    pub fn new(nodes: Arc<SharedNodes>) -> Self {
        let mut registry = Registry::default();
        let all = &mut registry;
        let build: Family<MetricLabels<1>, Gauge> = reference::BUILD_INFO.register(all, Family::default());
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        let leader = reference::LEADER.register(all, Gauge::default());
        let gauges = Gauges::new(nodes, leader.clone());
        all.register_collector(Box::new(gauges.clone()));
        let metrics = Self {
            reconciles: reference::RECONCILES.register(all, Family::default()),
            errors: reference::RECONCILE_ERRORS.register(all, Family::default()),
            durations: reference::RECONCILE_DURATION.register(all, Family::new_with_constructor(histogram)),
            convergence: reference::CONVERGENCE.register(all, histogram()),
            requests: reference::KUBE_REQUESTS.register(all, Family::default()),
            leader,
            gauges,
            registry,
        };
        metrics.start_at_zero();
        metrics
    }

    /// Creates the counters at zero: Prometheus does not see the growth of a counter that first appears at 1.
    fn start_at_zero(&self) {
        for controller in CONTROLLERS {
            drop(self.durations.get_or_create(&[("controller", controller)]));
            for result in RESULTS {
                drop(self.reconciles.get_or_create(&[("controller", controller), ("result", result)]));
            }
            for reason in RequestError::REASONS {
                drop(self.errors.get_or_create(&[("controller", controller), ("reason", reason)]));
            }
        }
    }

    /// Encodes all metrics as `OpenMetrics` text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Records a reconcile; `error` is one word for why it failed.
    pub fn reconciled(&self, controller: &'static str, took: Duration, error: Option<&'static str>) {
        let [ok, failed] = RESULTS;
        let result = if error.is_some() { failed } else { ok };
        self.reconciles.get_or_create(&[("controller", controller), ("result", result)]).inc();
        self.durations.get_or_create(&[("controller", controller)]).observe(took.as_secs_f64());
        if let Some(reason) = error {
            self.errors.get_or_create(&[("controller", controller), ("reason", reason)]).inc();
        }
    }
}

impl requests::Counter for Metrics {
    fn count(&self, RequestInfo { verb, resource }: RequestInfo, code: String) {
        let labels = [("verb", verb.into()), ("resource", resource.into()), ("code", code.into())];
        self.requests.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::reference::{Description, METRICS};
    use super::*;

    #[test]
    fn the_reference_has_what_is_exposed_and_nothing_else() {
        let metrics = Metrics::new(Arc::default());
        metrics.leader.set(1);
        // HTTP codes are no closed list, so this metric does not start at zero.
        requests::Counter::count(&metrics, RequestInfo { verb: "get", resource: "nodes" }, "200".to_owned());
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
    fn text_has_every_metric_with_its_prefix() {
        let metrics = Metrics::new(Arc::default());
        metrics.reconciled("node", Duration::from_millis(3), Some("denied"));
        requests::Counter::count(&metrics, RequestInfo { verb: "patch", resource: "nodes" }, "422".to_owned());
        let text = metrics.encode().unwrap();
        for line in [
            "winpool_build_info{version=",
            "winpool_leader 0",
            "winpool_reconcile_total{controller=\"node\",result=\"error\"} 1",
            "winpool_reconcile_errors_total{controller=\"node\",reason=\"denied\"} 1",
            "winpool_reconcile_duration_seconds_count{controller=\"node\"} 1",
            "winpool_kube_requests_total{verb=\"patch\",resource=\"nodes\",code=\"422\"} 1",
            "winpool_node_convergence_seconds_count 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
