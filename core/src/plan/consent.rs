//! When a taint may be put on a node. Consent is a fact about a node at a moment, never about a pool for ever.
//!
//! A taint that keeps pods off goes on a node in two cases only:
//! - *at once*: the taint is approved for the pool, and this process saw the node lose it, or register without it, less
//!   than [`AT_ONCE`] ago;
//! - *checked*: a [`WorkloadCheck`](super::WorkloadCheck) that covers the node found nobody who would become
//!   unschedulable, less than [`CHECK_GOOD_FOR`] ago.

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

/// How long after it was lost an approved taint is restored without a check.
pub const AT_ONCE: Duration = Duration::from_mins(1);
/// How long winpool leaves a build label alone that contradicts what the node reports. After an in-place upgrade the kubelet
/// writes the label of the new build first, and reports that build 0.2 seconds later.
pub const LABEL_SETTLES: Duration = Duration::from_millis(1500);
/// How long the result of a workload check is good for, counted from its end.
pub const CHECK_GOOD_FOR: Duration = Duration::from_mins(1);

/// A clean workload check, as far as it concerns one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanCheck {
    /// `metadata.uid` of the nodes that it covers, by taint.
    pub nodes: BTreeMap<Taint, Arc<BTreeSet<Arc<str>>>>,
    /// When it started, and the end of its validity; `None` if it was never made.
    pub valid: Option<(Instant, Instant)>,
}

impl CleanCheck {
    /// Whether it covers a node that has lacked the taint, as a node of the pool, since before it started.
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
    /// `metadata.name`.
    pub name: String,
    /// `scheduling.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// The taints that its pods do not tolerate, or that API servers may not know of yet.
    pub taints: Vec<Taint>,
    /// Whether it has yet to be created: no pod can use it before.
    pub is_missing: bool,
}

impl LaggingClass {
    /// Whether the node may not get the taint before the class tolerates it.
    fn holds(&self, taint: &Taint, node: &Node, version: Option<KernelVersion>) -> bool {
        self.taints.contains(taint) && self.selects(node, version)
    }

    /// Whether the class selects the node once the node has its build label and capability labels.
    fn selects(&self, node: &Node, version: Option<KernelVersion>) -> bool {
        self.selector.iter().all(|(key, value)| match key.as_str() {
            names::WINDOWS_BUILD => version.is_none_or(|version| version.build.to_string() == *value),
            key if key.starts_with(names::CAPABILITY_LABEL_PREFIX) => true,
            key => node.labels.get(key) == Some(value),
        })
    }
}

/// How an event of the watch shows a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// The watch shows that the node was created.
    Registered,
    /// The watch shows the node, in the order of its changes.
    Changed,
    /// The node is in a list, or is looked at anew: what happened before is not known.
    Listed,
}

/// What this process knows of a node's past. It is lost when the process ends, when its watch has a gap, and when the
/// node changes hands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// The pool whose node it is; `None` if it has none, or asks to be ignored.
    pool: Option<Arc<str>>,
    taints: Arc<TaintList>,
    /// Since when it is seen as a node of this pool.
    since: Option<Instant>,
    /// Whether it was seen to register as a node of this pool.
    registered: bool,
    /// When it was seen without a taint that it had before, or that it registered without. Few nodes lack any.
    lost: BTreeMap<Taint, Instant>,
    /// The build in its label and the one that it reports, also of a node without a pool.
    builds: Builds,
}

/// The build in a node's label, the one that it reports, and how long a contradiction between the two is waited out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Builds {
    label: Option<Build>,
    reported: Option<Build>,
    settle: Option<Instant>,
}

impl Builds {
    /// Only a label that has just changed is given time. One that the node registered with, or that stays while the node
    /// reports something new, is wrong.
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
    /// What is known of `node`, of which `before` was known, now that it is seen as a node of `owner`.
    #[must_use]
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

    /// Until when winpool leaves the build label alone although the node reports another build.
    #[must_use]
    pub fn label_settles(&self) -> Option<Instant> {
        self.builds.settle
    }

    /// Since when it lacks the taint as a node of its pool, as far as that is known.
    fn lacks_since(&self, taint: &Taint) -> Option<Instant> {
        self.lost.get(taint).copied().or(self.since)
    }

    fn lost_just_now(&self, pool: &Pool, taint: &Taint, now: Instant) -> bool {
        let since = self.lost.get(taint);
        self.pool.as_deref() == Some(&*pool.name) && since.is_some_and(|since| now.duration_since(*since) < AT_ONCE)
    }
}

/// By what it is decided whether a wanted taint may be put on a node.
#[derive(Clone, Copy, Debug)]
pub enum Consent<'a> {
    /// Everybody agrees: what the node should be in the end.
    Given,
    /// Nobody was asked: no taint goes on that needs a check.
    Withheld,
    /// What is known of the node at this moment.
    Known {
        /// `metadata.uid`.
        uid: &'a str,
        /// The node's past.
        watched: &'a Watched,
        /// The moment.
        now: Instant,
    },
}

impl Consent<'_> {
    /// Whether `taint` may be put on `node` for `pool`.
    pub(super) fn allows(self, pool: &Pool, taint: &Taint, node: &Node) -> bool {
        let (uid, watched, now) = match self {
            Self::Given => return true,
            Self::Withheld => return pool.needs_no_check(taint),
            Self::Known { uid, watched, now } => (uid, watched, now),
        };
        // A taint that is not recorded could not be taken off again.
        pool.ever_applied.contains(taint)
            && !pool.waits_for_a_class(taint, node)
            && (pool.needs_no_check(taint)
                || pool.clean_check.covers(uid, taint, watched, now)
                || (pool.approves(taint) && watched.lost_just_now(pool, taint, now)))
    }

    /// Until when the build label is left alone although the node reports another build.
    pub(super) fn label_settles(self) -> Option<Instant> {
        let Self::Known { watched, now, .. } = self else { return None };
        watched.label_settles().filter(|until| now < *until)
    }

    /// Whether the node has `taint` only because a younger pool's approval put it on at its registration, while the
    /// owner holds it.
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
    /// Whether the pool may put this taint on nodes without a workload check: it keeps no pod off, or the pool says so.
    #[must_use]
    pub fn needs_no_check(&self, taint: &Taint) -> bool {
        taint.effect == "PreferNoSchedule" || self.taint_policy == TaintPolicy::Always
    }

    /// Whether a RuntimeClass that selects the node does not tolerate the taint yet.
    pub(super) fn waits_for_a_class(&self, taint: &Taint, node: &Node) -> bool {
        let version = node.windows_version();
        let is_planned = |version: KernelVersion| !self.discover || self.planned_builds.contains(&version.build);
        taint.effect != "PreferNoSchedule"
            && (!version.is_none_or(is_planned) || self.lagging.iter().any(|class| class.holds(taint, node, version)))
    }

    /// Whether the taint is approved: new nodes get it at once.
    #[must_use]
    pub fn approves(&self, taint: &Taint) -> bool {
        self.approved.iter().any(|approved| approved.taint == *taint)
    }

    /// The wanted taints that go on a node only with the consent of its workloads.
    #[must_use]
    pub fn checked_taints(&self) -> Vec<Taint> {
        let wanted = if self.taint_policy == TaintPolicy::Never { Vec::new() } else { self.wanted_taints() };
        wanted.into_iter().filter(|taint| !self.needs_no_check(taint)).collect()
    }
}
