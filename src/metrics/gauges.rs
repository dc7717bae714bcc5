//! Gauges of pools: read from the index when they are scraped, or kept as the pool controller last saw them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Condition,
    jiff::{ToSpan, tz::TimeZone},
};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::gauge::{ConstGauge, Gauge},
};
use winpool_core::{
    api::{ClassState, RuntimeClassStatus},
    plan::{State, number},
    windows::{Build, product},
};

use super::reference::{self, CONDITION_STATUS};
use crate::cache::index::Index;

/// The label value for nodes that report no build.
pub(super) const UNKNOWN: &str = "unknown";
/// The label value for all builds that neither this release nor a pool names. A node may report any number, and
/// Prometheus stores every value that a label ever had.
pub(super) const OTHER: &str = "other";

/// The gauges of all pools. A standby exposes none, so that sums over all processes are right.
#[derive(Clone)]
pub struct Gauges {
    index: Arc<Index>,
    leader: Gauge,
    pools: Arc<Mutex<BTreeMap<String, Pool>>>,
}

/// The state of a pool as the pool controller last saw it.
#[derive(Default)]
struct Pool {
    classes: BTreeMap<ClassState, i64>,
    /// The conditions' types and statuses.
    conditions: BTreeMap<String, String>,
}

impl Gauges {
    pub fn new(index: Arc<Index>, leader: Gauge) -> Self {
        Self { index, leader, pools: Arc::default() }
    }

    pub fn classes(&self, pool: &str, classes: &[RuntimeClassStatus]) {
        let mut states = BTreeMap::new();
        for class in classes {
            *states.entry(class.state).or_default() += 1;
        }
        self.pools.lock().entry(pool.to_owned()).or_default().classes = states;
    }

    pub fn conditions(&self, pool: &str, conditions: &[Condition]) {
        let conditions = conditions.iter().map(|c| (c.type_.clone(), c.status.clone())).collect();
        self.pools.lock().entry(pool.to_owned()).or_default().conditions = conditions;
    }

    /// Forgets deleted pools.
    pub fn keep_pools(&self, exists: impl Fn(&str) -> bool) {
        self.pools.lock().retain(|pool, _| exists(pool));
    }

    fn encode_nodes(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut counts: BTreeMap<(String, String, State), usize> = BTreeMap::new();
        let mut in_use = BTreeSet::new();
        for nodes in self.index.states() {
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
        for build in in_use {
            if let Some(time) = end_of_support(build) {
                gauge(&mut family, &[("build", &build.to_string())], time)?;
            }
        }
        Ok(())
    }

    fn encode_pools(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let pools = self.pools.lock();
        let mut family = reference::RUNTIME_CLASSES.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            for (state, count) in &seen.classes {
                gauge(&mut family, &[("pool", pool), ("state", state.as_str())], *count)?;
            }
        }
        let mut family = reference::PENDING_CHANGES.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            let classes = seen.classes.get(&ClassState::Pending).copied().unwrap_or_default();
            let nodes = number(self.index.unfinished(pool));
            gauge(&mut family, &[("pool", pool)], nodes.saturating_add(classes))?;
        }
        let mut family = reference::POOL_CONDITION.encode(encoder)?;
        for (pool, seen) in pools.iter() {
            for (type_, is) in &seen.conditions {
                for status in CONDITION_STATUS {
                    let labels = [("pool", pool.as_str()), ("type", type_), ("status", status)];
                    gauge(&mut family, &labels, i64::from(is == status))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
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

fn gauge(family: &mut MetricEncoder, labels: &[(&str, &str)], value: i64) -> fmt::Result {
    ConstGauge::new(value).encode(family.encode_family(&labels)?)
}

/// The first second after the last day of support.
fn end_of_support(build: Build) -> Option<i64> {
    let day_after = product::by_build(build)?.end_of_support().checked_add(1.day()).ok()?;
    Some(day_after.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn support_ends_when_its_last_day_does() {
        // Microsoft supports Windows Server 2019 until 2029-01-09.
        assert_eq!(end_of_support(Build::new(17763)), Some(1_862_697_600));
        assert_eq!(end_of_support(Build::new(29000)), None);
    }
}
