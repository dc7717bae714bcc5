//! Plans the taints of a node.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    api::{Taint, TaintPolicy},
    windows::taint::is_known_spelling,
};

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
    /// Taints that left the node, now or earlier, for one that is on trial.
    pub replaced: Vec<Taint>,
    /// Other writers' taints with the key and effect of a wanted one, and another value.
    pub differing: Vec<Taint>,
    /// Taints that this node lacks and may not get now.
    pub held: Vec<Taint>,
}

/// True if `taint` keeps pods without a toleration off a node and is a known spelling of the Windows taint.
pub(super) fn guards(taint: &Taint) -> bool {
    is_known_spelling(&taint.key, &taint.value) && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
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
    let current = &*node.taints;
    let owned = owned(applied, policy);
    let retired = |taint: &Taint| pool.is_some_and(|p| p.spec.retired_taints.contains(taint));
    let wants = pool.filter(|p| p.spec.taint_policy != TaintPolicy::Never).map(|p| &p.spec.taints);
    let wanted_still = |taint: &Taint| match wants {
        None => false,
        Some(WantedTaints::Guard) => guards(taint),
        Some(WantedTaints::Exactly(list)) => list.contains(taint),
    };
    let premature = |taint: &Taint| {
        let claim = pool.zip(applied).filter(|_| owned.contains(taint));
        claim.is_some_and(|(pool, applied)| consent.is_premature(pool, taint, &applied.pool))
    };
    let outdated = |taint: &Taint| retired(taint) || (owned.contains(taint) && !wanted_still(taint));
    let taken_back = |taint: &Taint| owned.contains(taint) && pool.is_some_and(|pool| consent.takes_back(pool, taint));
    let goes = |taint: &Taint| outdated(taint) || premature(taint) || taken_back(taint);
    let stays: Vec<&Taint> = current.taints().iter().filter(|taint| !goes(taint)).collect();
    let wanted = match wants {
        None => Vec::new(),
        Some(WantedTaints::Guard) if stays.iter().any(|taint| guards(taint)) => Vec::new(),
        Some(WantedTaints::Guard) => vec![Taint::os_windows()],
        Some(WantedTaints::Exactly(list)) => list.clone(),
    };
    let lacks = |taint: &Taint| !stays.iter().any(|present| present.same_identity(taint));
    let (held, wanted): (Vec<Taint>, Vec<Taint>) = wanted
        .into_iter()
        .partition(|taint| lacks(taint) && pool.is_some_and(|pool| !consent.allows(pool, taint, node)));
    // A node that waits for a taint keeps the taints that it replaces, so that it is never without one.
    let removed = |taint: &Taint| premature(taint) || taken_back(taint) || (held.is_empty() && outdated(taint));

    let (mut to, mut kept): (Vec<Value>, Vec<Taint>) =
        current.pairs().filter(|(_, taint)| !removed(taint)).map(|(raw, taint)| (raw.clone(), taint.clone())).unzip();
    // A node that loses a taint gets back the taints that this one replaced.
    let is_kept_off = |taint: &Taint| pool.is_some_and(|pool| consent.takes_back(pool, taint));
    let is_ours = |taint: &Taint| retired(taint) || policy.may_remove(taint);
    let recorded = applied.iter().flat_map(|applied| &applied.replaced).filter_map(|text| text.parse().ok());
    let mut replaced: Vec<Taint> = recorded.filter(|taint| is_ours(taint)).collect();
    let restored: Vec<Taint> = if held.iter().any(is_kept_off) { std::mem::take(&mut replaced) } else { Vec::new() };
    let removed: Vec<Taint> = current.taints().iter().filter(|taint| removed(taint)).cloned().collect();

    let mut owned: Vec<Taint> = owned.iter().filter(|taint| kept.contains(taint)).cloned().collect();
    let (mut added, mut differing) = (Vec::new(), Vec::new());
    for taint in wanted.into_iter().chain(restored) {
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
    let on_trial = |taint: &Taint| pool.is_some_and(|pool| pool.consent.tries(taint));
    if added.iter().any(on_trial) {
        replaced.extend(removed.iter().filter(|taint| outdated(taint)).cloned());
    }
    // No trial: it ended well. A pool that takes over the taint has yet to record it, and to begin one. A taint that the
    // pool no longer wants is about to be replaced itself.
    let is_known = |pool: &Pool, taint: &Taint| {
        let is_recorded = pool.managed_taints.contains(taint) && pool.spec.wanted_taints().contains(taint);
        is_recorded && pool.consent.trial(taint).is_none()
    };
    let is_its_own = |pool: &Pool| applied.is_none_or(|applied| applied.pool == pool.spec.name);
    let is_over = pool.is_some_and(|pool| is_its_own(pool) && owned.iter().all(|taint| is_known(pool, taint)));
    replaced.retain(|taint| !kept.contains(taint) && !owned.is_empty() && !is_over);
    let change = (!added.is_empty() || !removed.is_empty()).then_some(TaintChange { to, added, removed });
    TaintPlan { change, owned, replaced, differing, held }
}

/// The taints that winpool added to a node, by its record there.
pub(super) fn owned(applied: Option<&Applied>, policy: &Policy) -> BTreeSet<Taint> {
    let recorded = applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok());
    recorded.filter(|taint| policy.may_remove(taint)).collect()
}
