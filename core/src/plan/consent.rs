//! Decides if a taint may be added to a node. Consent is a fact about a node at a moment, not about a pool for ever.
//!
//! No taint is added while nodes, pools or RuntimeClasses cannot be read. A taint that keeps pods off is added to a node
//! in two cases only:
//! - *at once*: the taint is approved for the pool, and this process saw the node lose it, or register without it,
//!   less than [`AT_ONCE`](super::AT_ONCE) ago;
//! - *checked*: a workload check that covers the node found no workload that would become
//!   unschedulable, less than [`CHECK_GOOD_FOR`](super::CHECK_GOOD_FOR) ago, and the RuntimeClasses that it read are unchanged.

use std::time::Instant;

use crate::{api::Taint, windows::KernelVersion};

use super::{node::NodeFields, pools::Pool, watched::Watched};

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
    pub(super) fn allows(self, pool: &Pool, taint: &Taint, node: &NodeFields) -> bool {
        let (uid, watched, now) = match self {
            Self::Given => return true,
            Self::Withheld => return pool.spec.needs_no_check(taint),
            Self::Known { uid, watched, now } => (uid, watched, now),
        };
        // Even a repair needs the present state of RuntimeClasses and of the pool: while they cannot be read, a class may
        // have lost its tolerations, or the pool the taint. A taint that is not recorded in status could not be removed
        // again.
        !pool.consent.is_blind
            && pool.managed_taints.contains(taint)
            && !waits_for_a_class(pool, taint, node)
            && (pool.spec.needs_no_check(taint)
                || pool.consent.clean_check.covers(uid, taint, watched, now)
                || (pool.consent.approves(taint) && watched.lost_just_now(&pool.spec, taint, now)))
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
            && claimed_by != pool.spec.name
            && !pool.spec.needs_no_check(taint)
            && !pool.consent.approves(taint)
            && !pool.consent.clean_check.covers(uid, taint, watched, now)
    }
}

/// True if a RuntimeClass of the pool that selects the node does not tolerate the taint yet.
pub(super) fn waits_for_a_class(pool: &Pool, taint: &Taint, node: &NodeFields) -> bool {
    let (spec, consent, version) = (&pool.spec, &pool.consent, node.windows_version());
    let is_planned = |version: KernelVersion| !spec.discover || consent.planned_builds.contains(&version.build);
    taint.effect != "PreferNoSchedule"
        && (!version.is_none_or(is_planned) || consent.lagging.iter().any(|class| class.holds(taint, node, version)))
}
