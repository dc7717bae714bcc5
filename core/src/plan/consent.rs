//! Decides if a taint may be added to a node.
//!
//! No taint is added while nodes, pools or RuntimeClasses cannot be read. A taint that keeps pods off is added when
//! - every RuntimeClass of the pool that selects the node tolerates it,
//! - status records it,
//! - winpool knows the pods and the `DaemonSets`, and the API server confines what winpool may change in pods,
//! - no `DaemonSet` objects: nothing could be done for one that makes no pod for the node any more, and
//! - the pods for Windows that run on the node have the toleration, or winpool has tried to add it. Others might move a pod
//!   without it away, and find no node for it.
//!
//! With `taintPolicy: TaintOnly` the last three do not count, nor for a taint that only prefers other nodes.

use std::time::Instant;

use crate::{api::Taint, windows::KernelVersion};

use super::{node::NodeFields, pools::Pool, watched::Watched};

/// The basis on which a wanted taint may be added to a node.
#[derive(Clone, Copy, Debug)]
pub enum Consent<'a> {
    /// Every taint may be added: this gives the final state of the node.
    Given,
    /// No taint may be added that a `DaemonSet` may object to.
    Withheld,
    /// The known facts about the node with this name decide.
    Known { name: &'a str, watched: &'a Watched, now: Instant },
}

impl Consent<'_> {
    /// True if `taint` may be added to `node` for `pool`.
    pub(super) fn allows(self, pool: &Pool, taint: &Taint, node: &NodeFields) -> bool {
        let (name, watched) = match self {
            Self::Given => return true,
            Self::Withheld => return pool.spec.waits_for_nobody(taint),
            Self::Known { name, watched, .. } => (name, watched),
        };
        // Even a repair needs the present state of RuntimeClasses and of the pool: while they cannot be read, a class may
        // have lost its tolerations, or the pool the taint. A taint that is not recorded in status could not be removed
        // again.
        !pool.consent.is_blind
            && pool.managed_taints.contains(taint)
            && !waits_for_a_class(pool, taint, node)
            && (pool.spec.waits_for_nobody(taint)
                || pool.consent.may_add && !watched.awaits_pods && !pool.consent.objects(taint, &node.labels, name))
    }

    /// The time until which the build label is left alone although the node reports another build.
    pub(super) fn label_settles(self) -> Option<Instant> {
        let Self::Known { watched, now, .. } = self else { return None };
        watched.label_settles().filter(|until| now < *until)
    }
}

/// True if a RuntimeClass of the pool that selects the node does not tolerate the taint yet.
pub(super) fn waits_for_a_class(pool: &Pool, taint: &Taint, node: &NodeFields) -> bool {
    let (spec, consent, version) = (&pool.spec, &pool.consent, node.windows_version());
    let is_planned = |version: KernelVersion| !spec.discover || consent.planned_builds.contains(&version.build);
    taint.effect != "PreferNoSchedule"
        && (!version.is_none_or(is_planned) || consent.lagging.iter().any(|class| class.holds(taint, node, version)))
}
