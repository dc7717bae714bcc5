//! The pods that fail because of Windows, as far as this process knows.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use winpool_core::plan::{
    failing_pods::{FailingPauses, FailingPods, PodHealth},
    nodes::NodeTable,
};

use super::watch_health::WatchHealth;

/// The pods that fail because of Windows, as far as this process knows.
pub struct FailingPodSearch {
    /// True if the search is enabled.
    pub(super) is_on: bool,
    pub(super) pauses: FailingPauses,
    /// `None` while this process does not search.
    pub(super) table: Mutex<Option<FailingPods>>,
    /// The outages of the watches of Events. They do not make the operator blind.
    pub(super) watch_health: Arc<WatchHealth>,
}

impl FailingPodSearch {
    pub fn new(is_on: bool, pauses: FailingPauses, watch_health: WatchHealth) -> Self {
        Self { is_on, pauses, table: Mutex::default(), watch_health: Arc::new(watch_health) }
    }

    /// Returns what is known of failing pods at this moment.
    pub fn health(&self, nodes: &NodeTable, now: Instant) -> PodHealth {
        if !self.is_on || nodes.objects().next().is_none() {
            return PodHealth::Off;
        }
        let outages = self.watch_health.outages();
        let events = outages.values().find(|outage| outage.counts(now)).map(|outage| outage.message().to_owned());
        self.table.lock().as_ref().map_or(PodHealth::NotYet, |table| table.health(events, now))
    }
}
