//! The operator of the model: caches that lag, a memory that a crash wipes out, and requests under way. It mirrors what
//! `src/controllers/` does between the functions of the plan, and asks those for every decision.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock, Mutex},
};

use json_patch::PatchOperation;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::Value;
use winpool_core::{
    api::{NodeCounts, Taint, WindowsPool, names},
    plan::{
        Applied, Observation, Remains, Standing, assess, finalizer_patch, is_to_be_taken_over, node_patch, status,
        status_patch,
    },
};

use crate::{
    common::{UID, apply},
    model::{Break, State},
    world::{self, History, Judges, Node, PoolRecord, Pools, as_written, judges},
};

/// One process, while it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operator {
    /// The version of the node in its cache.
    pub node: usize,
    /// The version of the pools in its cache.
    pub pools: usize,
    /// Pools of which it knows that the cache was not behind when its term began.
    fresh: Vec<u8>,
    /// Each pool as it was when its nodes were let through.
    published: BTreeMap<&'static str, PoolRecord>,
    /// What nodes are judged by: published pools, and others that hold the nodes which they select.
    policy: Option<Judges>,
}

/// A request that was sent and may arrive at any time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// A node patch: the node that it was computed from, and by what.
    Node { seen: Node, judges: Judges },
    /// A pool's status, computed from `seen`.
    Status { seen: PoolRecord, evidence: PoolRecord },
    /// A pool's finalizer.
    Finalizer { seen: PoolRecord, wanted: bool },
}

impl Operator {
    /// A process that begins to lead with caches of these versions.
    pub fn begin(node: usize, pools: usize) -> Self {
        Self { node, pools, ..Self::default() }
    }

    /// The cache takes in the next version of the pools. A pool that went is judged by no more.
    pub fn see_pools(&mut self, pools: &History<Pools>) {
        let before = pools.at(self.pools);
        self.pools += 1;
        let now = pools.at(self.pools);
        let went = |old: &PoolRecord| !now.iter().any(|pool| pool.uid == old.uid);
        if before.iter().any(went) {
            self.published.retain(|name, old| now.iter().any(|pool| pool.name == *name && pool.uid == old.uid));
            self.publish(None, now);
        }
    }

    fn publish(&mut self, ready: Option<PoolRecord>, cached: &[PoolRecord]) {
        self.published.retain(|name, _| cached.iter().any(|pool| pool.name == *name));
        if let Some(pool) = ready {
            self.published.insert(pool.name, pool);
        }
        let judge = |pool: &PoolRecord| match self.published.get(pool.name) {
            Some(published) => (published.clone(), true),
            None => (pool.clone(), false),
        };
        self.policy = Some(judges(cached.iter().map(judge).collect()));
    }
}

impl State {
    /// The requests that this process sent, and not a former one.
    fn own_writes(&self) -> &[Write] {
        &self.writes[self.orphaned..]
    }

    /// The node controller looks at the cached node.
    pub fn plan_node(&mut self, broken: Break) {
        let under_way = self.own_writes().iter().any(|write| matches!(write, Write::Node { .. }));
        let Some(judges) = self.operator.policy.clone().filter(|_| !under_way) else { return };
        let seen = self.node.at(self.operator.node).clone();
        if !standing(&seen, &judge(&judges, &seen, broken)).plan.is_empty() {
            self.writes.push(Write::Node { seen, judges });
        }
    }

    /// The pool controller works on the cached pool of this name. It does one thing at a time.
    pub fn reconcile(&mut self, name: &str, broken: Break) {
        if self.own_writes().iter().any(|write| !matches!(write, Write::Node { .. })) {
            return;
        }
        let cached = self.pools.at(self.operator.pools).clone();
        let Some(seen) = cached.iter().find(|pool| pool.name == name).cloned() else { return };
        if !self.operator.fresh.contains(&seen.uid) && broken != Break::TrustsOldCaches {
            // A read from the API server, once in a term.
            if !self.pools.truth().contains(&seen) {
                return;
            }
            self.operator.fresh.push(seen.uid);
            self.operator.fresh.sort_unstable();
        }
        let pool = seen.pool();
        if seen.deleting {
            self.operator.publish(Some(seen.clone()), &cached);
            if seen.finalizer && !self.remains(&seen, broken).keep(false) {
                self.writes.push(Write::Finalizer { seen, wanted: false });
            }
            return;
        }
        if !seen.finalizer {
            self.writes.push(Write::Finalizer { seen, wanted: true });
            return;
        }
        let standing = standing(self.node.at(self.operator.node), &as_written(&cached));
        let mut observation = Observation::default();
        if standing.pool.as_deref() == Some(name) {
            let lingering = standing.tolerate.iter().filter(|taint| pool.ever_applied.contains(taint));
            observation.carried = standing.owned.iter().chain(lingering).cloned().collect();
        }
        let evidence = PoolRecord { evidence: Some(observation.publishable(&pool).ever_applied), ..seen.clone() };
        if evidence == seen || broken == Break::EvidenceAfterwards {
            self.operator.publish(Some(evidence.clone()), &cached);
        }
        if evidence != seen {
            self.writes.push(Write::Status { seen, evidence });
        }
    }

    /// What a pool that is being deleted still has on the node, as far as this process can tell.
    fn remains(&self, pool: &PoolRecord, broken: Break) -> Remains {
        let judges = as_written(self.pools.at(self.operator.pools));
        let cached = self.node.at(self.operator.node);
        let standing = standing(cached, &judges);
        let pending = standing.releasing.as_deref() == Some(pool.name) && !standing.plan.is_empty();
        let looks = broken != Break::BlindDeletion;
        let marked = |node: &Node| node.seen.labels.get(names::POOL) == Some(pool.name);
        Remains {
            nodes: NodeCounts { pending: pending.into(), ..NodeCounts::default() },
            handing_over: is_to_be_taken_over(&cached.seen, pool.name, &judges.1),
            writing: looks && self.own_writes().iter().any(|write| self.is_older(write)),
            unseen: looks && marked(self.node.truth()) && !marked(cached),
        }
    }

    /// Whether a node patch was computed from another policy than the one in force.
    fn is_older(&self, write: &Write) -> bool {
        matches!(write, Write::Node { judges, .. } if self.operator.policy.as_ref() != Some(judges))
    }

    /// A request arrives at the API server, and the answer at the process that sent it.
    pub fn deliver(&mut self, number: usize, broken: Break) {
        match self.writes.remove(number) {
            Write::Node { seen, judges } => match patched(self.node.truth(), &seen, &judges, broken) {
                Some(node) => {
                    self.node.push(node);
                    self.accepted += 1;
                }
                // Read afresh, plan again.
                None if number >= self.orphaned => {
                    let seen = self.node.truth().clone();
                    if !standing(&seen, &judge(&judges, &seen, broken)).plan.is_empty() {
                        self.writes.push(Write::Node { seen, judges });
                    }
                }
                None => {}
            },
            Write::Status { seen, evidence } => {
                let recorded = |object: &Value| recorded(object, &seen, &evidence, broken);
                let done = self.write_pool(seen.name, recorded, |pool, taints| pool.evidence = Some(taints));
                if done && number >= self.orphaned {
                    let cached = self.pools.at(self.operator.pools).clone();
                    self.operator.publish(Some(evidence), &cached);
                }
            }
            Write::Finalizer { seen, wanted } => {
                let finalizers = seen.finalizer.then(|| vec![names::CLEANUP.to_owned()]);
                let metadata = ObjectMeta { uid: Some(seen.uid.to_string()), finalizers, ..ObjectMeta::default() };
                let patch = finalizer_patch(&metadata, wanted);
                self.write_pool(seen.name, |object| apply(object, &patch).ok(), |pool, _| pool.finalizer = wanted);
            }
        }
        self.orphaned -= usize::from(number < self.orphaned);
    }

    fn write_pool<T>(
        &mut self,
        name: &str,
        patch: impl Fn(&Value) -> Option<T>,
        write: impl Fn(&mut PoolRecord, T),
    ) -> bool {
        let mut pools = self.pools.truth().to_vec();
        let Some(place) = pools.iter().position(|pool| pool.name == name) else { return false };
        let Some(result) = patch(&pools[place].object()) else { return false };
        write(&mut pools[place], result);
        if pools[place].deleting && !pools[place].finalizer {
            pools.remove(place);
        }
        self.pools.push(world::pools(pools));
        true
    }
}

/// How the node stands: as the product judges it.
pub fn standing(node: &Node, judges: &Judges) -> Arc<Standing> {
    type Key = (usize, usize);
    static KNOWN: LazyLock<Mutex<HashMap<Key, Arc<Standing>>>> = LazyLock::new(Mutex::default);
    let key = (node.number(), judges.number());
    Arc::clone(KNOWN.lock().unwrap().entry(key).or_insert_with(|| Arc::new(assess(&node.seen, &judges.1))))
}

/// The node after the patch that was computed from `seen`, if its tests hold.
fn patched(truth: &Node, seen: &Node, judges: &Judges, broken: Break) -> Option<Node> {
    type Key = (usize, usize, usize, bool);
    static KNOWN: LazyLock<Mutex<HashMap<Key, Option<Node>>>> = LazyLock::new(Mutex::default);
    let judges = judge(judges, seen, broken);
    let guarded = broken != Break::NoGuard;
    let apply = || {
        let mut patch = node_patch(UID, &seen.seen, &standing(seen, &judges).plan, &judges.1);
        if !guarded {
            patch.0.retain(|operation| !matches!(operation, PatchOperation::Test(_)));
        }
        apply(&truth.object, &patch).ok().map(world::node)
    };
    let key = (truth.number(), seen.number(), judges.number(), guarded);
    KNOWN.lock().unwrap().entry(key).or_insert_with(apply).clone()
}

/// The taints that the status records after it was written, if its tests hold.
fn recorded(object: &Value, seen: &PoolRecord, evidence: &PoolRecord, broken: Break) -> Option<Vec<Taint>> {
    let before = seen.object();
    let previous = serde_json::from_value::<WindowsPool>(before.clone()).unwrap().status;
    let carried = evidence.evidence.clone().unwrap_or_default();
    let observation = Observation { carried, ..Observation::default() };
    let new = status(&seen.pool(), &observation, previous.as_ref(), Timestamp::UNIX_EPOCH);
    let mut patch = status_patch(&seen.uid.to_string(), before.get("status"), &new);
    if broken == Break::UnguardedStatus {
        patch.0.remove(1);
    }
    let after = apply(object, &patch).ok()?;
    let texts = after["status"]["taints"].as_array().cloned().unwrap_or_default();
    Some(texts.iter().map(|text| text.as_str().unwrap().parse().unwrap()).collect())
}

/// What the operator judges by. Without evidence, whatever a node claims may be taken off it.
fn judge(by: &Judges, node: &Node, broken: Break) -> Judges {
    if broken != Break::NoEvidence {
        return by.clone();
    }
    let claims = node.seen.applied.as_deref().and_then(Applied::parse).unwrap_or_default().taints;
    let mut pools = by.0.clone();
    for (pool, _) in &mut pools {
        let evidence = pool.evidence.get_or_insert_default();
        evidence.extend(claims.iter().filter_map(|claim| claim.parse().ok()));
    }
    judges(pools)
}
