//! Decides which taints a pool may add to nodes, and says why others wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::step::CachedCluster;
use super::{Intent, Memory, Round};
use crate::api::names::{self, reason};
use crate::api::{Mode, ObjectReference, Problem, Taint, TaintStatus, number};
use crate::node::{NodeFields, NodeObject};
use crate::plan::classes::ClassesPlan;
use crate::plan::pods::table::UnknownPods;
use crate::plan::pools::consent::PoolConsent;
use crate::plan::pools::objector::Objector;
use crate::plan::pools::pool::{Pool, WantedTaints, added_since};
use crate::plan::reconcile::conditions::Verdict;
use crate::plan::taints::guards;
use crate::pod::tolerations::to_write;
use crate::words::{count, joined};

/// The limit of `DaemonSets` that status names for a taint.
const DAEMON_SETS: usize = 10;

impl Memory {
    /// Returns the changes that the pool may make to nodes from now on.
    pub(super) fn intend(&self, round: &Round<'_>, plan: &ClassesPlan) -> Intent {
        let (cluster, pool, tally) = (round.cluster, &round.pool, round.tally());
        let lagging = if pool.spec.enforces() { self.lagging(round, plan) } else { Vec::new() };
        let seen = tally.seen();
        let objectors = cluster.objectors().ok().cloned().unwrap_or_default();
        // Not what was just recorded: the ages of `DaemonSets`, and where they run, have to be of one moment. Without a
        // `DaemonSet` that lacks the toleration the time decides nothing, and nodes need not be looked at again for it.
        let mut since = cluster.pods.as_ref().map(|table| table.windows.since(round.name())).unwrap_or_default();
        since.retain(|taint, _| objectors.iter().any(|set| set.lacks(taint)));
        let consent = PoolConsent {
            since,
            held_by: BTreeSet::new(),
            may_add: cluster.may_add_taints() && !cluster.has_yet_to_look_for(pool),
            objectors,
            lagging,
            images: plan.images(round.cluster.classes),
            planned_builds: seen.builds.into_keys().chain(plan.builds()).collect(),
            cannot_read: !cluster.unreadable(round.now.instant).is_empty(),
        };
        let lingering = seen.tolerate.into_iter().filter(|taint| pool.managed_taints.contains(taint));
        Intent { consent: consent.into(), carried: tally.owned.keys().cloned().chain(lingering).collect() }
    }

    /// The `DaemonSets` that would lose pods by taints of the pool, or that have lost them.
    pub fn objections(&self, cluster: &CachedCluster<'_>, pool: &Pool) -> Objections {
        let mut objections = Objections::default();
        let Some(consent) = self.consent(pool) else { return objections };
        let wanted = pool.spec.wanted_taints();
        let pairs = wanted.iter().flat_map(|taint| consent.objectors.iter().map(move |set| (taint, set)));
        let pairs: Vec<(&Taint, &Objector)> = pairs.filter(|(taint, set)| set.lacks(taint)).collect();
        if pairs.is_empty() {
            return objections;
        }
        let policy = self.policy(cluster.pools);
        let is_of = |object: &&Arc<NodeObject>| !object.node.is_ignored() && policy.is_of(pool, &object.node.labels);
        for object in cluster.nodes.objects().filter(is_of) {
            let node = &object.node;
            for (taint, set) in pairs.iter().filter(|(_, set)| set.placement.fits(&node.labels, &object.name)) {
                let has_it = node.taints.taints().contains(taint);
                let counted = if has_it && set.gone.is_none() && pool.spec.enforces() {
                    &mut objections.without_pods
                } else if !has_one(node, pool, taint)
                    && !pool.spec.waits_for_nobody(taint)
                    && set.holds(consent.since.get(taint).copied(), &object.name)
                {
                    &mut objections.held
                } else {
                    continue;
                };
                *counted.entry((*taint).clone()).or_default().entry(Arc::clone(&set.name)).or_default() += 1;
            }
        }
        objections
    }

    fn consent(&self, pool: &Pool) -> Option<&PoolConsent> {
        Some(&self.pools.get(&pool.spec.name)?.intent.as_ref()?.consent)
    }

    /// What is to be said of each taint that the pool may add or has added.
    pub(super) fn taints(&self, round: &Round<'_>, objections: &Objections) -> BTreeMap<Taint, TaintStatus> {
        let (pool, tally) = (&round.pool, round.tally());
        let Some(consent) = self.consent(pool) else { return BTreeMap::new() };
        let recorded = self.recorded_status(round.guarded);
        // Others may have emptied the status since this process computed the last one.
        let reported = added_since(self.status_of(round.name()));
        let status = |taint: Taint| {
            let text = taint.to_string();
            let mut known = recorded.iter().flat_map(|status| &status.taints);
            let was_at_registration = known.any(|known| known.taint == text && known.at_registration);
            let nodes_in = |counts: &BTreeMap<Taint, usize>| number(counts.get(&taint).copied().unwrap_or_default());
            let first = |sets: &DaemonSetNodes| {
                sets.get(&taint).into_iter().flatten().take(DAEMON_SETS).map(|(name, _)| name.to_string()).collect()
            };
            let status = TaintStatus {
                at_registration: is_at_registration(pool, consent, &taint, was_at_registration),
                nodes: nodes_in(&tally.owned),
                waiting: nodes_in(&tally.held),
                held_by: first(&objections.held),
                without_pods: first(&objections.without_pods),
                since: reported.get(&taint).map(|since| Time(*since)),
                ..TaintStatus::default()
            };
            (taint, status)
        };
        self.intended(pool).managed_taints.iter().cloned().map(status).collect()
    }

    /// The taints of the pool that wait, if it is known why.
    pub fn held(&self, cluster: &CachedCluster<'_>, pool: &Pool, objections: &Objections) -> Option<HeldTaints> {
        let tally = cluster.nodes.tally(&pool.spec.name);
        let consent = self.consent(pool).filter(|_| !tally.held.is_empty())?;
        let held: BTreeSet<Taint> =
            pool.spec.deniable_taints().into_iter().filter(|taint| tally.held.contains_key(taint)).collect();
        let unconfined = cluster.unconfined.as_ref().filter(|_| !held.is_empty());
        let named = joined(&held);
        let (taints, verdict) = match cluster.objectors() {
            _ if let Some(why) = unconfined => {
                let message = format!(
                    "{named} held: the API server does not confine winpool's permission to patch pods: {why}; install the \
                     policy in config/rbac/confine_pods.yaml for winpool's account, or set taintPolicy: TaintOnly"
                );
                (held, Verdict::no(reason::NOT_CONFINED, message))
            }
            _ if !objections.held.is_empty() => return Some(objections.held_taints(pool.spec.mode)),
            _ if !consent.lagging.is_empty() => {
                let taints: BTreeSet<Taint> = consent.lagging.iter().flat_map(|class| class.taints.clone()).collect();
                let (named, classes) = (joined(&taints), joined(consent.lagging.iter().map(|class| &class.name)));
                let message = format!("{named} held until these RuntimeClasses tolerate it: {classes}; see problems");
                (taints, Verdict::no(reason::WAITING, message))
            }
            Err(UnknownPods::Denied(why) | UnknownPods::Unreadable(why)) => {
                let message = format!(
                    "{named} held: winpool cannot read pods or DaemonSets: {why}; or set taintPolicy: TaintOnly"
                );
                (held, Verdict::unknown(reason::PODS_NOT_SEEN, message))
            }
            Err(UnknownPods::NotListed) | Ok(_) => return None,
        };
        Some(HeldTaints { taints, daemon_sets: BTreeMap::new(), verdict })
    }
}

/// Taints that wait.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldTaints {
    pub taints: BTreeSet<Taint>,
    /// The `DaemonSets` that hold them, each with the number of nodes for which it would make no pods.
    pub daemon_sets: BTreeMap<String, usize>,
    /// What the condition `TaintsApplied` says about them.
    pub verdict: Verdict,
}

/// For each taint the `DaemonSets`, each with a number of nodes.
type DaemonSetNodes = BTreeMap<Taint, BTreeMap<Arc<str>, usize>>;

/// The `DaemonSets` for Windows that do not tolerate taints of a pool.
#[derive(Clone, Debug, Default)]
pub struct Objections {
    /// Those that keep a taint off nodes.
    held: DaemonSetNodes,
    /// Those that make no pods for nodes that have it.
    without_pods: DaemonSetNodes,
}

impl Objections {
    /// The taints that `DaemonSets` keep off nodes.
    fn held_taints(&self, mode: Mode) -> HeldTaints {
        let mut daemon_sets = BTreeMap::new();
        for (name, nodes) in self.held.values().flatten() {
            let most = daemon_sets.entry(name.to_string()).or_insert(*nodes);
            *most = (*most).max(*nodes);
        }
        let taints: BTreeSet<Taint> = self.held.keys().cloned().collect();
        let described = daemon_sets.iter().take(DAEMON_SETS);
        let described = joined(described.map(|(name, nodes)| format!("{name} ({})", count(*nodes, "node"))));
        let others = daemon_sets.len().saturating_sub(DAEMON_SETS);
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        let held = if mode == Mode::DryRun { "would be held" } else { "held" };
        let message = format!(
            "{} {held}: with it these DaemonSets would make no pods: {described}{others}. Add to their pod templates: {}; or \
             annotate them with {}: \"true\"; or set taintPolicy: TaintOnly",
            joined(&taints),
            to_write(&taints),
            names::IGNORE
        );
        HeldTaints { taints, daemon_sets, verdict: Verdict::no(reason::DAEMON_SETS_NOT_TOLERATING, message) }
    }

    /// A problem for each `DaemonSet` that makes no pods for nodes because of taints.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let mut sets: BTreeMap<&Arc<str>, (usize, Vec<&Taint>)> = BTreeMap::new();
        for (taint, nodes_of_sets) in &self.without_pods {
            for (name, nodes) in nodes_of_sets {
                let (most, taints) = sets.entry(name).or_default();
                *most = (*most).max(*nodes);
                taints.push(taint);
            }
        }
        sets.into_iter().map(|(name, (nodes, taints))| {
            let message = format!(
                "it makes no new pods for {} with the taint {}, which it does not tolerate, and its status counts none as \
                 missing; add to its pod template: {}",
                count(nodes, "node"),
                joined(&taints),
                to_write(taints)
            );
            Problem::new(reason::DAEMON_SET_WITHOUT_PODS, ObjectReference::named(name), message)
        })
    }
}

/// True if the node has the taint, or keeps another one in its place.
fn has_one(node: &NodeFields, pool: &Pool, taint: &Taint) -> bool {
    let stays = |present: &Taint| {
        let takes_its_place = pool.spec.wants == Some(WantedTaints::Guard) && guards(present);
        (present.same_identity(taint) || takes_its_place) && !pool.spec.retired_taints.contains(present)
    };
    node.taints.taints().iter().any(stays)
}

/// True if nodes may register with this taint. What is recorded stays while it cannot be known.
fn is_at_registration(pool: &Pool, consent: &PoolConsent, taint: &Taint, is_recorded: bool) -> bool {
    let (spec, since) = (&pool.spec, consent.since.get(taint).copied());
    let is_wanted = spec.wanted_taints().contains(taint);
    if !taint.effect.keeps_off() || !spec.enforces() || !is_wanted {
        return false;
    }
    if spec.waits_for_nobody(taint) {
        return true;
    }
    let lags = consent.lagging.iter().any(|class| class.lags(taint));
    let is_unknown = consent.cannot_read || !consent.may_add;
    let objects = || consent.objectors.iter().any(|objector| objector.would_run_in(spec, taint, since));
    !lags && (if is_unknown { is_recorded } else { !objects() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_daemon_sets_that_hold_a_taint_are_named_and_the_others_counted() {
        let sets = (0..12).map(|number| (format!("DaemonSet shop/agent-{number:02}").into(), 2)).collect();
        let objections = Objections { held: [(Taint::os_windows(), sets)].into(), ..Objections::default() };
        let HeldTaints { taints, daemon_sets, verdict } = objections.held_taints(Mode::Enforce);
        assert_eq!((taints, daemon_sets.len()), ([Taint::os_windows()].into(), 12));
        for part in
            ["os=windows:NoSchedule held", "DaemonSet shop/agent-09 (2 nodes) and 2 more", "taintPolicy: TaintOnly"]
        {
            assert!(verdict.message.contains(part), "{part}: {}", verdict.message);
        }
        assert_eq!((verdict.status, verdict.reason), ("False", reason::DAEMON_SETS_NOT_TOLERATING));
    }
}
