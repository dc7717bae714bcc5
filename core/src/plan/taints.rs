//! Plans the taints of a node.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::{Taint, TaintPolicy};

use super::{
    class_retirement::KeptTaints,
    consent::Consent,
    node::NodeFields,
    pool_spec::WantedTaints,
    pools::{Policy, Pool},
    taint_list::{Applied, TaintChange},
};

/// The planned taints of a node.
pub(super) struct TaintPlan {
    /// `None` if the list is right.
    pub change: Option<TaintChange>,
    /// Taints of the new list that winpool added, now or earlier.
    pub owned: Vec<Taint>,
    /// Other writers' taints with the key and effect of a wanted one, and another value.
    pub differing: Vec<Taint>,
    /// Taints that this node lacks and may not get now.
    pub held: Vec<Taint>,
}

/// True if `taint` keeps pods without a toleration off a node and is a known spelling of the Windows taint.
pub(super) fn guards(taint: &Taint) -> bool {
    taint.marks_windows() && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// True if RuntimeClasses of a pool that wants these taints tolerate `taint` while one of its nodes has it: winpool may
/// have added it, it marks Windows nodes, or it is a wanted one with another value.
pub(super) fn is_tolerated(taint: &Taint, wanted: &[Taint], policy: &Policy) -> bool {
    !taint.has_foreign_key()
        && (guards(taint) || policy.may_remove(taint) || wanted.iter().any(|wanted| wanted.same_identity(taint)))
}

/// The taints on a node that [`is_tolerated`] names, with its labels.
pub(super) fn kept_on(node: &NodeFields, wanted: &[Taint], policy: &Policy) -> KeptTaints {
    let kept = node.taints.taints().iter().filter(|taint| is_tolerated(taint, wanted, policy));
    (node.labels.clone(), kept.cloned().collect())
}

/// Plans the taints of a node of `pool`; without a pool, removes winpool's taints.
pub(super) fn plan(
    node: &NodeFields,
    applied: Option<&Applied>,
    pool: Option<&Pool>,
    policy: &Policy,
    consent: Consent<'_>,
) -> TaintPlan {
    let rules = Rules { node, pool, consent, owned: owned(applied, policy) };
    let (held, wanted) = rules.wanted();
    let leaves = |taint: &&Taint| rules.removes(taint, !held.is_empty());
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
    TaintPlan { change, owned, differing, held }
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
        self.pool.map(|pool| &pool.spec).filter(|spec| spec.taint_policy != TaintPolicy::Never).map(|spec| &spec.taints)
    }

    /// The wanted taints: those that the node lacks and may not get now, and the others.
    fn wanted(&self) -> (Vec<Taint>, Vec<Taint>) {
        let stays = |taint: &&Taint| !self.removes(taint, false);
        let stays: Vec<&Taint> = self.node.taints.taints().iter().filter(stays).collect();
        let wanted = match self.wants() {
            None => Vec::new(),
            Some(WantedTaints::Guard) if stays.iter().any(|taint| guards(taint)) => Vec::new(),
            Some(WantedTaints::Guard) => vec![Taint::os_windows()],
            Some(WantedTaints::Exactly(list)) => list.clone(),
        };
        wanted.into_iter().partition(|taint| {
            let is_present = stays.iter().any(|present| present.same_identity(taint));
            !is_present && self.pool.is_some_and(|pool| !self.consent.allows(pool, taint, self.node))
        })
    }

    /// True if the taint leaves the node. A node that waits for a taint keeps the taints that it replaces, so that it is
    /// never without one.
    fn removes(&self, taint: &Taint, waits: bool) -> bool {
        !waits && self.is_outdated(taint)
    }

    /// True if the pool replaces the taint, or if winpool added it and no pool wants it any more.
    fn is_outdated(&self, taint: &Taint) -> bool {
        let is_wanted = match self.wants() {
            None => false,
            Some(WantedTaints::Guard) => guards(taint),
            Some(WantedTaints::Exactly(list)) => list.contains(taint),
        };
        self.is_retired(taint) || (self.owned.contains(taint) && !is_wanted)
    }

    fn is_retired(&self, taint: &Taint) -> bool {
        self.pool.is_some_and(|pool| pool.spec.retired_taints.contains(taint))
    }
}

/// The taints that winpool added to a node, by its record there.
pub(super) fn owned(applied: Option<&Applied>, policy: &Policy) -> BTreeSet<Taint> {
    let recorded = applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok());
    recorded.filter(|taint| policy.may_remove(taint)).collect()
}
