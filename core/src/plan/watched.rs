//! The part of a node's past that this process knows.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    api::{Taint, names},
    windows::{Build, KernelVersion},
};

use super::{node::NodeFields, pool_spec::PoolSpec, taint_list::TaintList};

/// The time in which an approved taint that was lost is restored without a check.
pub const AT_ONCE: Duration = Duration::from_mins(1);
/// The time for which winpool does not correct a build label that contradicts the node's report. After an in-place
/// upgrade the kubelet writes the label of the new build first, and reports that build 0.2 seconds later.
pub const LABEL_SETTLES: Duration = Duration::from_millis(1500);

/// The source of a node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A watch event that shows that the node was created.
    Registered,
    /// A watch event; the watch shows all changes in order.
    Changed,
    /// A list, or a repeated assessment: earlier changes are unknown.
    Listed,
}

/// The part of a node's past that this process knows. It is lost when the process ends, when the watch has a gap, and
/// when another pool becomes the owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// The pool that owns it; `None` if there is none, or if the node is ignored.
    pool: Option<Arc<str>>,
    taints: Arc<TaintList>,
    /// The time since which this process has seen it as a node of this pool.
    since: Option<Instant>,
    /// True if this process saw it register as a node of this pool.
    pub(super) registered: bool,
    /// The times at which it was first seen without a taint that it had before, or that it registered without.
    lost: BTreeMap<Taint, Instant>,
    /// Its builds, also for a node without a pool.
    builds: Builds,
}

/// The build in a node's label, the build that it reports, and the time until which a contradiction is tolerated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Builds {
    label: Option<Build>,
    reported: Option<Build>,
    settle: Option<Instant>,
}

impl Builds {
    /// Only a label that has just changed may contradict the report for a while. A label that the node registered
    /// with, or that stays while the report changes, is wrong.
    fn next(before: Option<&Self>, node: &NodeFields, sighting: Sighting, now: Instant) -> Self {
        let label = node.labels.get(names::WINDOWS_BUILD).and_then(|text| text.parse().ok());
        let version = node.kernel_version.as_deref().and_then(|text| text.parse::<KernelVersion>().ok());
        let reported = version.map(|version| version.build);
        let contradicts = label.is_some() && reported.is_some() && label != reported;
        let settle = match before {
            _ if !contradicts || sighting == Sighting::Registered => None,
            Some(before) if before.reported.is_some() && before.reported != reported => None,
            Some(before) if before.label == label || before.settle.is_some() => before.settle,
            _ => Some(now + LABEL_SETTLES),
        };
        Self { label, reported, settle }
    }
}

impl Watched {
    /// The past of `node` after it was seen as a node of `owner`; `before` is its past so far.
    pub fn next(
        before: Option<&Self>,
        node: &NodeFields,
        owner: Option<&PoolSpec>,
        sighting: Sighting,
        now: Instant,
    ) -> Self {
        let owner = owner.filter(|_| !node.is_ignored());
        let builds = Builds::next(before.map(|before| &before.builds), node, sighting, now);
        let Some(owner) = owner else {
            return Self { taints: Arc::clone(&node.taints), builds, ..Self::default() };
        };
        let before = before.filter(|before| before.pool.as_deref() == Some(&*owner.name));
        let carries = |list: &TaintList, taint: &Taint| list.taints().contains(taint);
        let lost = |taint: &Taint| match before {
            Some(before) if sighting != Sighting::Listed && carries(&before.taints, taint) => Some(now),
            Some(before) if sighting != Sighting::Listed => before.lost.get(taint).copied(),
            None if sighting == Sighting::Registered => Some(now),
            _ => None,
        };
        let lacking = owner.wanted_taints().into_iter().filter(|taint| !carries(&node.taints, taint));
        let lost: BTreeMap<Taint, Instant> = lacking.filter_map(|taint| Some((taint.clone(), lost(&taint)?))).collect();
        Self {
            pool: before.and_then(|before| before.pool.clone()).or_else(|| Some(owner.name.as_str().into())),
            taints: Arc::clone(&node.taints),
            since: before.and_then(|before| before.since).or(Some(now)),
            registered: match before {
                Some(before) => before.registered && sighting != Sighting::Listed,
                None => sighting == Sighting::Registered,
            },
            lost,
            builds,
        }
    }

    /// The time until which winpool leaves the build label alone although the node reports another build.
    pub fn label_settles(&self) -> Option<Instant> {
        self.builds.settle
    }

    /// The time since which it has lacked the taint as a node of its pool, if that is known.
    pub(super) fn lacks_since(&self, taint: &Taint) -> Option<Instant> {
        self.lost.get(taint).copied().or(self.since)
    }

    /// True if it lost the taint, or registered without it, a moment ago as a node of this pool.
    pub(super) fn lost_just_now(&self, pool: &PoolSpec, taint: &Taint, now: Instant) -> bool {
        let since = self.lost.get(taint);
        self.pool.as_deref() == Some(&*pool.name) && since.is_some_and(|since| now.duration_since(*since) < AT_ONCE)
    }
}
