//! The input of a forecast.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use winpool_analysis::explain::forecast::Snapshot;
use winpool_analysis::view::{View, changed_pool};
use winpool_core::api::Mode;
use winpool_core::plan::Now;

/// Sets all pools to Enforce, and returns the names of those in dry run.
pub fn enforce(view: &mut View) -> BTreeSet<String> {
    let pools = view.pools.known_mut().into_iter().flatten();
    let dry = pools.filter_map(|(_, guarded)| {
        let name = guarded.metadata.name.clone()?;
        guarded.pool().ok().filter(|pool| pool.spec.mode == Mode::DryRun)?;
        *guarded = changed_pool(guarded, |pool| pool.spec.mode = Mode::Enforce);
        Some(name)
    });
    dry.collect()
}

/// Converts the view to the input of the operator's decisions, at the present moment.
pub fn snapshot(view: View) -> Snapshot {
    Snapshot::of(view, now())
}

/// Returns the present moment.
pub fn now() -> Now {
    Now { instant: Instant::now(), time: Timestamp::now() }
}
