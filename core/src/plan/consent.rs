//! Decides if a taint may be added to a node. Consent is a fact about a node at a moment, not about a pool for ever.
//!
//! A taint that keeps pods off is added to a node in two cases only:
//! - *at once*: the taint is approved for the pool, and this process saw the node lose it, or register without it,
//!   less than [`AT_ONCE`] ago;
//! - *checked*: a [`WorkloadCheck`](super::WorkloadCheck) that covers the node found no workload that would become
//!   unschedulable, less than [`CHECK_GOOD_FOR`] ago, and the RuntimeClasses that it read are unchanged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    api::{Taint, TaintPolicy, names},
    windows::{Build, KernelVersion},
};

use super::{Node, Pool, TaintList};

/// The time in which an approved taint that was lost is restored without a check.
pub const AT_ONCE: Duration = Duration::from_mins(1);
/// The time for which winpool does not correct a build label that contradicts the node's report. After an in-place
/// upgrade the kubelet writes the label of the new build first, and reports that build 0.2 seconds later.
pub const LABEL_SETTLES: Duration = Duration::from_millis(1500);
/// The validity of a workload check, counted from its end.
pub const CHECK_GOOD_FOR: Duration = Duration::from_mins(1);

/// The clean results of a workload check for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanCheck {
    /// `metadata.uid` of the nodes that it covers, by taint.
    pub nodes: BTreeMap<Taint, Arc<BTreeSet<Arc<str>>>>,
    /// Its start, and the end of its validity; `None` if there was no check.
    pub valid: Option<(Instant, Instant)>,
}

impl CleanCheck {
    /// True if it covers a node that has lacked the taint, as a node of the pool, since before the check started.
    fn covers(&self, uid: &str, taint: &Taint, watched: &Watched, now: Instant) -> bool {
        let is_in_time = |(started, until): (Instant, Instant)| {
            now < until && watched.lacks_since(taint).is_none_or(|since| since <= started)
        };
        self.valid.is_some_and(is_in_time) && self.nodes.get(taint).is_some_and(|nodes| nodes.contains(uid))
    }
}

/// A RuntimeClass of a pool that does not tolerate some taints yet. The nodes that it selects wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggingClass {
    pub name: String,
    pub selector: BTreeMap<String, String>,
    /// The taints that its pods do not tolerate, or that some API servers may not know yet.
    pub taints: Vec<Taint>,
    /// True if the class does not exist yet, so that no pod can use it.
    pub is_missing: bool,
}

impl LaggingClass {
    /// True if the node may not get the taint before the class tolerates it.
    fn holds(&self, taint: &Taint, node: &Node, version: Option<KernelVersion>) -> bool {
        self.taints.contains(taint) && self.selects(node, version)
    }

    /// True if the class selects the node once that has its build label and capability labels.
    fn selects(&self, node: &Node, version: Option<KernelVersion>) -> bool {
        self.selector.iter().all(|(key, value)| match key.as_str() {
            names::WINDOWS_BUILD => version.is_none_or(|version| version.build.to_string() == *value),
            key if key.starts_with(names::CAPABILITY_LABEL_PREFIX) => true,
            key => node.labels.get(key) == Some(value),
        })
    }
}

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
    registered: bool,
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
    fn next(before: Option<&Self>, node: &Node, sighting: Sighting, now: Instant) -> Self {
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
    pub fn next(before: Option<&Self>, node: &Node, owner: Option<&Pool>, sighting: Sighting, now: Instant) -> Self {
        let owner = owner.filter(|_| !node.is_ignored());
        let builds = Builds::next(before.map(|before| &before.builds), node, sighting, now);
        let Some(owner) = owner else { return Self { taints: Arc::clone(&node.taints), builds, ..Self::default() } };
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
    fn lacks_since(&self, taint: &Taint) -> Option<Instant> {
        self.lost.get(taint).copied().or(self.since)
    }

    fn lost_just_now(&self, pool: &Pool, taint: &Taint, now: Instant) -> bool {
        let since = self.lost.get(taint);
        self.pool.as_deref() == Some(&*pool.name) && since.is_some_and(|since| now.duration_since(*since) < AT_ONCE)
    }
}

/// The basis on which a wanted taint may be added to a node.
#[derive(Clone, Copy, Debug)]
pub enum Consent<'a> {
    /// Every taint may be added: this gives the final state of the node.
    Given,
    /// No taint may be added that needs a check.
    Withheld,
    /// The known facts about the node decide.
    Known { uid: &'a str, watched: &'a Watched, now: Instant },
}

impl Consent<'_> {
    /// True if `taint` may be added to `node` for `pool`.
    pub(super) fn allows(self, pool: &Pool, taint: &Taint, node: &Node) -> bool {
        let (uid, watched, now) = match self {
            Self::Given => return true,
            Self::Withheld => return pool.needs_no_check(taint),
            Self::Known { uid, watched, now } => (uid, watched, now),
        };
        // A taint that is not recorded in status could not be removed again.
        pool.ever_applied.contains(taint)
            && !pool.waits_for_a_class(taint, node)
            && (pool.needs_no_check(taint)
                || pool.clean_check.covers(uid, taint, watched, now)
                || (pool.approves(taint) && watched.lost_just_now(pool, taint, now)))
    }

    /// The time until which the build label is left alone although the node reports another build.
    pub(super) fn label_settles(self) -> Option<Instant> {
        let Self::Known { watched, now, .. } = self else { return None };
        watched.label_settles().filter(|until| now < *until)
    }

    /// True if the node has `taint` only because a younger pool's approval added it at registration, while its owner
    /// holds it.
    pub(super) fn is_premature(self, pool: &Pool, taint: &Taint, claimed_by: &str) -> bool {
        let Self::Known { uid, watched, now } = self else { return false };
        watched.registered
            && claimed_by != pool.name
            && !pool.needs_no_check(taint)
            && !pool.approves(taint)
            && !pool.clean_check.covers(uid, taint, watched, now)
    }
}

impl Pool {
    /// True if the pool may add this taint without a workload check: it keeps no pod off, or `taintPolicy` is
    /// `Always`.
    pub fn needs_no_check(&self, taint: &Taint) -> bool {
        taint.effect == "PreferNoSchedule" || self.taint_policy == TaintPolicy::Always
    }

    /// True if a RuntimeClass that selects the node does not tolerate the taint yet.
    pub(super) fn waits_for_a_class(&self, taint: &Taint, node: &Node) -> bool {
        let version = node.windows_version();
        let is_planned = |version: KernelVersion| !self.discover || self.planned_builds.contains(&version.build);
        taint.effect != "PreferNoSchedule"
            && (!version.is_none_or(is_planned) || self.lagging.iter().any(|class| class.holds(taint, node, version)))
    }

    /// True if the taint is approved, so that new nodes get it at once.
    pub fn approves(&self, taint: &Taint) -> bool {
        self.approved.iter().any(|approved| approved.taint == *taint)
    }

    /// The wanted taints that need the consent of workloads.
    pub fn checked_taints(&self) -> Vec<Taint> {
        let wanted = if self.taint_policy == TaintPolicy::Never { Vec::new() } else { self.wanted_taints() };
        wanted.into_iter().filter(|taint| !self.needs_no_check(taint)).collect()
    }
}
