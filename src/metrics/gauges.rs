//! Gauges of pools: read from the table of nodes when they are scraped, or kept as the pool controller last saw them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::ToSpan;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use winpool_core::api::{ClassState, WindowsPoolStatus, number};
use winpool_core::plan::nodes::assessment::NodeState;
use winpool_core::pod::Cause;
use winpool_core::windows::builds;

use crate::nodes::SharedNodes;

use super::reference::{self, CONDITION_STATUS};

/// The label value for nodes that report no build.
pub(super) const UNKNOWN: &str = "unknown";
/// The label value for all builds that neither this release nor a pool names. A node may report any number, and
/// Prometheus stores every value that a label ever had.
pub(super) const OTHER: &str = "other";

/// The gauges of all pools. A standby exposes none, so that sums over all processes are right.
#[derive(Clone, Debug)]
pub struct Gauges {
    nodes: Arc<SharedNodes>,
    leader: Gauge,
    pools: Arc<Mutex<BTreeMap<String, PoolGauges>>>,
}

/// The state of a pool as the pool controller last saw it.
#[derive(Debug)]
struct PoolGauges {
    status: WindowsPoolStatus,
    /// The numbers of failing pods by cause, if they are known.
    failing: Option<BTreeMap<Cause, usize>>,
}

impl Gauges {
    pub fn new(nodes: Arc<SharedNodes>, leader: Gauge) -> Self {
        Self { nodes, leader, pools: Arc::default() }
    }

    /// Shows this of the pool from now on.
    pub fn see(&self, pool: &str, status: WindowsPoolStatus, failing: Option<BTreeMap<Cause, usize>>) {
        self.pools.lock().insert(pool.to_owned(), PoolGauges { status, failing });
    }

    /// Forgets deleted pools.
    pub fn keep_pools(&self, exists: impl Fn(&str) -> bool) {
        self.pools.lock().retain(|pool, _| exists(pool));
    }

    fn encode_nodes(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut counts: BTreeMap<(String, String, NodeState), usize> = BTreeMap::new();
        let mut in_use = BTreeSet::new();
        for nodes in self.nodes.lock().states() {
            let build = match nodes.build {
                None => UNKNOWN.to_owned(),
                Some(build) if nodes.named => build.to_string(),
                Some(_) => OTHER.to_owned(),
            };
            in_use.extend(nodes.build);
            *counts.entry((nodes.pool, build, nodes.state)).or_default() += nodes.count;
        }
        let mut family = reference::NODES.encode(encoder)?;
        for ((pool, build, state), count) in &counts {
            gauge(&mut family, &[("pool", pool), ("build", build), ("state", state.as_str())], number(*count))?;
        }
        let mut family = reference::END_OF_SUPPORT.encode(encoder)?;
        for product in in_use.into_iter().filter_map(builds::by_build) {
            if let Some(time) = end_of(product.end_of_support) {
                gauge(&mut family, &[("build", &product.build.to_string())], time)?;
            }
        }
        Ok(())
    }

    fn encode_pools(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let pools = self.pools.lock();
        let mut family = reference::RUNTIME_CLASSES.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            for (state, count) in counts(seen.status.runtime_classes.iter().map(|class| class.state)) {
                gauge(&mut family, &[("pool", pool), ("state", state.as_str())], count)?;
            }
        }
        let mut family = reference::POOL_PROBLEMS.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            for (reason, count) in counts(seen.status.problems.iter().map(|problem| &problem.reason)) {
                gauge(&mut family, &[("pool", pool), ("reason", reason)], count)?;
            }
        }
        let mut family = reference::PENDING_CHANGES.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            let classes = seen.status.runtime_classes.iter().filter(|class| class.state == ClassState::Pending).count();
            let nodes = self.nodes.lock().tally(pool).unfinished;
            gauge(&mut family, &[("pool", pool)], number(nodes + classes))?;
        }
        let mut family = reference::POOL_CONDITION.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            for condition in &seen.status.conditions {
                for status in CONDITION_STATUS {
                    let labels = [("pool", pool.as_str()), ("type", &condition.type_), ("status", status)];
                    gauge(&mut family, &labels, i64::from(condition.status == status))?;
                }
            }
        }
        let mut family = reference::FAILING_PODS.encode(encoder)?;
        for (pool, counts) in pools.iter().filter_map(|(pool, seen)| Some((pool, seen.failing.as_ref()?))) {
            for cause in Cause::ALL {
                let pods = number(counts.get(&cause).copied().unwrap_or_default());
                gauge(&mut family, &[("pool", pool), ("cause", cause.as_str())], pods)?;
            }
        }
        Ok(())
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if self.leader.get() == 1 {
            self.encode_nodes(&mut encoder)?;
            self.encode_pools(&mut encoder)?;
        }
        Ok(())
    }
}

/// Counts equal values.
fn counts<T: Ord>(values: impl Iterator<Item = T>) -> BTreeMap<T, i64> {
    values.fold(BTreeMap::new(), |mut counts, value| {
        *counts.entry(value).or_default() += 1;
        counts
    })
}

fn gauge(family: &mut MetricEncoder, labels: &[(&str, &str)], value: i64) -> fmt::Result {
    ConstGauge::new(value).encode(family.encode_family(&labels)?)
}

/// The first second after this day.
fn end_of(day: Date) -> Option<i64> {
    let next = day.checked_add(1.day()).ok()?;
    Some(next.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use winpool_core::windows::Build;

    use super::*;

    #[test]
    fn support_ends_when_its_last_day_does() {
        // Microsoft supports Windows Server 2019 until 2029-01-09.
        let last_day = builds::by_build(Build::new(17763)).unwrap().end_of_support;
        assert_eq!(end_of(last_day), Some(1_862_697_600));
    }
}
