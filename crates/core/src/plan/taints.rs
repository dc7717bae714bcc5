//! The taints of a node: those that it should have, and if one may be added now.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use crate::api::{Effect, Taint};
use crate::labels::Labels;
use crate::node::{Applied, NodeFields, TaintChange, Watched};
use crate::plan::pools::pool::{Policy, Pool, WantedTaints};
use crate::windows::Build;

/// The taints of a node once its plan is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTaints {
    /// Those that winpool added, now or earlier.
    pub owned: Vec<Taint>,
    /// Those of other writers with the key and effect of a wanted one, and another value.
    pub differing: Vec<Taint>,
    /// Those that it lacks and may not get now.
    pub held: Vec<Taint>,
}

/// True if `taint` keeps pods without a toleration off a node and is a known spelling of the Windows taint.
pub(crate) fn guards(taint: &Taint) -> bool {
    taint.marks_windows() && matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute)
}

/// True if RuntimeClasses of a pool that wants these taints tolerate `taint` while one of its nodes has it: winpool may
/// have added it, it marks Windows nodes, or it is a wanted one with another value.
pub(crate) fn is_tolerated(taint: &Taint, wanted: &[Taint], policy: &Policy) -> bool {
    !taint.has_foreign_key()
        && (guards(taint) || policy.may_remove(taint) || wanted.iter().any(|wanted| wanted.same_identity(taint)))
}

/// The taints of pools that stay on one node, with its labels: the node refuses to be changed or is ignored, its kubelet
/// added the taint, or winpool's record on the node is gone.
pub type KeptTaints = (Labels, Vec<Taint>);

/// The taints on a node that [`is_tolerated`] names, with its labels.
pub(crate) fn kept_on(node: &NodeFields, wanted: &[Taint], policy: &Policy) -> KeptTaints {
    let kept = node.taints.taints().iter().filter(|taint| is_tolerated(taint, wanted, policy));
    (node.labels.clone(), kept.cloned().collect())
}

/// Plans the taints of a node of `pool`; without a pool, removes winpool's taints. No change if the list is right.
pub(crate) fn plan(
    node: &NodeFields,
    applied: Option<&Applied>,
    pool: Option<&Pool>,
    policy: &Policy,
    consent: Consent<'_>,
) -> (Option<TaintChange>, NodeTaints) {
    let rules = Rules { node, pool, consent, owned: owned(applied, policy) };
    let (held, wanted) = rules.wanted();
    // A node that waits for a taint keeps the taints that it replaces, so that it is never without one.
    let leaves = |taint: &&Taint| held.is_empty() && rules.is_outdated(taint);
    let removed: Vec<Taint> = node.taints.taints().iter().filter(leaves).cloned().collect();
    let (mut to, mut kept): (Vec<Value>, Vec<Taint>) = node
        .taints
        .pairs()
        .filter(|(_, taint)| !removed.contains(taint))
        .map(|(raw, taint)| (raw.clone(), taint.clone()))
        .unzip();

    let mut owned: Vec<Taint> = rules.owned.iter().filter(|taint| kept.contains(taint)).cloned().collect();
    let (mut added, mut differing) = (Vec::new(), Vec::new());
    for taint in wanted {
        match kept.iter().find(|present| present.same_identity(&taint)) {
            Some(present) if *present == taint => {}
            Some(present) => differing.push(present.clone()),
            None => {
                to.push(serde_json::to_value(&taint).unwrap_or_default());
                kept.push(taint.clone());
                owned.push(taint.clone());
                added.push(taint);
            }
        }
    }
    owned.sort();
    let change = (!added.is_empty() || !removed.is_empty()).then_some(TaintChange { to, added, removed });
    (change, NodeTaints { owned, differing, held })
}

/// The rules for the taints of one node.
struct Rules<'a> {
    node: &'a NodeFields,
    /// The pool of the node.
    pool: Option<&'a Pool>,
    consent: Consent<'a>,
    /// The taints that winpool added to the node.
    owned: BTreeSet<Taint>,
}

impl Rules<'_> {
    fn wants(&self) -> Option<&WantedTaints> {
        self.pool?.spec.wants.as_ref()
    }

    /// The wanted taints: those that the node lacks and may not get now, and the others.
    fn wanted(&self) -> (Vec<Taint>, Vec<Taint>) {
        let stays = |taint: &&Taint| !self.is_outdated(taint);
        let stays: Vec<&Taint> = self.node.taints.taints().iter().filter(stays).collect();
        let wanted = match self.wants() {
            None => Vec::new(),
            Some(WantedTaints::Guard) if stays.iter().any(|taint| guards(taint)) => Vec::new(),
            Some(wanted) => wanted.list(),
        };
        wanted.into_iter().partition(|taint| {
            let is_present = stays.iter().any(|present| present.same_identity(taint));
            !is_present && self.pool.is_some_and(|pool| !self.consent.allows(pool, taint, self.node))
        })
    }

    /// True if the pool replaces the taint, or if winpool added it and no pool wants it any more.
    fn is_outdated(&self, taint: &Taint) -> bool {
        let is_wanted = match self.wants() {
            None => false,
            Some(WantedTaints::Guard) => guards(taint),
            Some(WantedTaints::Exactly(list)) => list.contains(taint),
        };
        let is_retired = self.pool.is_some_and(|pool| pool.spec.retired_taints.contains(taint));
        is_retired || (self.owned.contains(taint) && !is_wanted)
    }
}

/// The taints that winpool added to a node, by its record there.
pub(crate) fn owned(applied: Option<&Applied>, policy: &Policy) -> BTreeSet<Taint> {
    let recorded = applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok());
    recorded.filter(|taint| policy.may_remove(taint)).collect()
}

// Decides if a taint may be added to a node.
//
// No taint is added while nodes, pools or RuntimeClasses cannot be read. A taint that keeps pods off is added when
// - every RuntimeClass of the pool that selects the node tolerates it,
// - status records it,
// - winpool knows the pods and the `DaemonSets`, and the API server confines what winpool may change in pods,
// - no `DaemonSet` objects: nothing could be done for one that makes no pod for the node any more, and
// - the pods for Windows that run on the node have the toleration, or winpool has tried to add it. Others might move a pod
//   without it away, and find no node for it.
//
// With `taintPolicy: TaintOnly` the last three do not count, nor for a taint that only prefers other nodes.

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
    pub(crate) fn allows(self, pool: &Pool, taint: &Taint, node: &NodeFields) -> bool {
        let (name, watched) = match self {
            Self::Given => return true,
            Self::Withheld => return pool.spec.waits_for_nobody(taint),
            Self::Known { name, watched, .. } => (name, watched),
        };
        // Even a repair needs the present state of RuntimeClasses and of the pool: while they cannot be read, a class may
        // have lost its tolerations, or the pool the taint. A taint that is not recorded in status could not be removed
        // again.
        !pool.consent.cannot_read
            && pool.managed_taints.contains(taint)
            && !waits_for_a_class(pool, taint, node)
            && (pool.spec.waits_for_nobody(taint)
                || pool.consent.may_add && !watched.awaits_pods && !pool.consent.objects(taint, &node.labels, name))
    }

    pub(crate) fn watched(&self) -> Option<&Watched> {
        if let Self::Known { watched, .. } = self { Some(watched) } else { None }
    }

    /// The time until which the build label is left alone although the node reports another build.
    pub(crate) fn label_settles(self) -> Option<Instant> {
        let Self::Known { watched, now, .. } = self else { return None };
        watched.label_settles.filter(|until| now < *until)
    }
}

/// True if a RuntimeClass of the pool that selects the node does not tolerate the taint yet.
pub(crate) fn waits_for_a_class(pool: &Pool, taint: &Taint, node: &NodeFields) -> bool {
    let (spec, consent, build) = (&pool.spec, &pool.consent, node.windows_build());
    let is_planned = |build: Build| !spec.discover || consent.planned_builds.contains(&build);
    taint.effect.keeps_off()
        && (!build.is_none_or(is_planned) || consent.lagging.iter().any(|class| class.holds(taint, node, build)))
}
