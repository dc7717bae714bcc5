//! Gauges of pools: read from the table of nodes when they are scraped, or kept as the pool controller last saw them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::ToSpan;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use winpool_core::api::{ClassState, WindowsPoolStatus, number};
use winpool_core::plan::nodes::assessment::NodeState;
use winpool_core::pod::Cause;
use winpool_core::windows::builds;

use crate::nodes::SharedNodes;

use super::reference::{self, CONDITION_STATUS, Description};

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
        let nodes = counts.iter().map(|((pool, build, state), count)| {
            ([("pool", pool.as_str()), ("build", build), ("state", state.as_str())], number(*count))
        });
        encode(encoder, &reference::NODES, nodes)?;
        let products = in_use.into_iter().filter_map(builds::by_build);
        let ends = products.filter_map(|product| Some((product.build.to_string(), end_of(product.end_of_support)?)));
        let ends: Vec<_> = ends.collect();
        encode(encoder, &reference::END_OF_SUPPORT, ends.iter().map(|(build, end)| ([("build", build.as_str())], *end)))
    }

    fn encode_pools(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let pools = self.pools.lock();
        let pools = || pools.iter().map(|(pool, seen)| (("pool", pool.as_str()), seen, &seen.status));
        let states = pools().flat_map(|(pool, _, status)| {
            let states = counts(status.runtime_classes.iter().map(|class| class.state));
            states.into_iter().map(move |(state, count)| ([pool, ("state", state.as_str())], count))
        });
        encode(encoder, &reference::RUNTIME_CLASSES, states)?;
        let problems = pools().flat_map(|(pool, _, status)| {
            let reasons = counts(status.problems.iter().map(|problem| problem.reason.as_str()));
            reasons.into_iter().map(move |(reason, count)| ([pool, ("reason", reason)], count))
        });
        encode(encoder, &reference::POOL_PROBLEMS, problems)?;
        let pending = pools().map(|(pool, _, status)| {
            let classes = status.runtime_classes.iter().filter(|class| class.state == ClassState::Pending).count();
            ([pool], number(self.nodes.lock().tally(pool.1).unfinished + classes))
        });
        encode(encoder, &reference::PENDING_CHANGES, pending)?;
        let conditions = pools().flat_map(|(pool, _, status)| status.conditions.iter().map(move |found| (pool, found)));
        let conditions = conditions.flat_map(|(pool, found)| {
            let is = |status| i64::from(found.status == status);
            CONDITION_STATUS.map(|status| ([pool, ("type", &found.type_), ("status", status)], is(status)))
        });
        encode(encoder, &reference::POOL_CONDITION, conditions)?;
        let failing = pools().filter_map(|(pool, seen, _)| Some((pool, seen.failing.as_ref()?)));
        let failing = failing.flat_map(|(pool, counts)| {
            let of = |cause| number(counts.get(cause).copied().unwrap_or_default());
            Cause::ALL.iter().map(move |cause| ([pool, ("cause", cause.as_str())], of(cause)))
        });
        encode(encoder, &reference::FAILING_PODS, failing)
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

/// Encodes the samples of a metric, each with its labels.
fn encode<'a, const N: usize>(
    encoder: &mut DescriptorEncoder,
    description: &Description,
    mut samples: impl Iterator<Item = ([(&'static str, &'a str); N], i64)>,
) -> fmt::Result {
    let mut family = description.encode(encoder)?;
    samples.try_for_each(|(labels, value)| ConstGauge::new(value).encode(family.encode_family(&labels)?))
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
