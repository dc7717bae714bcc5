//! The taint list of a node: its present taints, those that winpool added, and the planned ones.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{Taint, TaintPolicy},
    windows::taint::is_known_spelling,
};

use super::{Consent, Node, Policy, Pool, WantedTaints};

/// `spec.taints` of a node as the API server sent it, with its parsed form.
///
/// A patch tests and writes the raw JSON, so that `timeAdded` and fields unknown to this client survive, and so that a
/// value which the API server omits is not tested as `""`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaintList {
    raw: Option<Vec<Value>>,
    taints: Vec<Taint>,
}

impl TaintList {
    /// The list of this raw JSON; `None` if the node has no `spec.taints`.
    pub fn new(raw: Option<Vec<Value>>) -> Self {
        let taints = raw.iter().flatten().map(taint_of).collect();
        Self { raw, taints }
    }

    /// The API server's JSON; `null` if the node has no `spec.taints`.
    pub fn to_json(&self) -> Value {
        self.raw.clone().map_or(Value::Null, Value::Array)
    }

    /// The taints in their order.
    pub fn taints(&self) -> &[Taint] {
        &self.taints
    }

    fn pairs(&self) -> impl Iterator<Item = (&Value, &Taint)> {
        self.raw.iter().flatten().zip(&self.taints)
    }
}

fn taint_of(raw: &Value) -> Taint {
    let part = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default();
    Taint::new(part("key"), part("value"), part("effect"))
}

/// The annotation `winpool.dev/applied`: the pool that manages the node, and the taints that winpool added.
///
/// A kubelet can write it on its own node, so it is only a hint: see [`Policy::may_remove`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub pool: String,
    /// The taints that winpool added, as `key=value:effect`.
    #[serde(default)]
    pub taints: Vec<String>,
}

impl Applied {
    /// Parses the annotation. One that does not parse names no pool and no taint.
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// The annotation's value, as compact JSON.
    pub fn to_annotation(&self) -> String {
        serde_json::json!({ "pool": self.pool, "taints": self.taints }).to_string()
    }
}

/// A change of the taint list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintChange {
    /// The whole list to write.
    pub to: Vec<Value>,
    /// Taints that the new list adds.
    pub added: Vec<Taint>,
    /// Taints that the new list lacks.
    pub removed: Vec<Taint>,
}

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
    is_known_spelling(&taint.key, &taint.value) && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// Plans the taints of a node of `pool`; without a pool, removes winpool's taints.
pub(super) fn plan(
    node: &Node,
    applied: Option<&Applied>,
    pool: Option<&Pool>,
    policy: &Policy,
    consent: Consent<'_>,
) -> TaintPlan {
    let current = &*node.taints;
    let owned: BTreeSet<Taint> = applied
        .iter()
        .flat_map(|a| &a.taints)
        .filter_map(|text| text.parse().ok())
        .filter(|taint| policy.may_remove(taint))
        .collect();
    let retired = |taint: &Taint| pool.is_some_and(|p| p.retired_taints.contains(taint));
    let wants = pool.filter(|p| p.taint_policy != TaintPolicy::Never).map(|p| &p.taints);
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
    let goes = |taint: &Taint| outdated(taint) || premature(taint);
    let stays: Vec<&Taint> = current.taints.iter().filter(|taint| !goes(taint)).collect();
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
    let removed = |taint: &Taint| premature(taint) || (held.is_empty() && outdated(taint));

    let (mut to, mut kept): (Vec<Value>, Vec<Taint>) =
        current.pairs().filter(|(_, taint)| !removed(taint)).map(|(raw, taint)| (raw.clone(), taint.clone())).unzip();
    let removed: Vec<Taint> = current.taints.iter().filter(|taint| removed(taint)).cloned().collect();

    let mut owned: Vec<Taint> = owned.into_iter().filter(|taint| kept.contains(taint)).collect();
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
