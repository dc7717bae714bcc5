//! Builds the scope of a workload check: the nodes, and the questions about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::ResourceExt;

use crate::{
    api::{Taint, names},
    plan::{
        assessment::{Assessment, assess, assess_as},
        consent::{Consent, waits_for_a_class},
        guarded::GuardedPool,
        nodes::NodeObject,
        now::Now,
        pools::{Policy, Pool},
        reconcile::step::CachedCluster,
        watched::Watched,
        workload_check::{CheckScope, ClassSource, PlannedNode, PoolMembers, TaintQuestion},
    },
};

pub(super) struct ScopeBuilder<'a> {
    cluster: &'a CachedCluster<'a>,
    policy: &'a Policy,
    now: Now,
    nodes: Vec<PlannedNode>,
    /// By pool and taint.
    questions: BTreeMap<(String, Taint), TaintQuestion>,
    /// For each pool that asks, its nodes as indexes.
    members: BTreeMap<String, BTreeSet<usize>>,
}

impl<'a> ScopeBuilder<'a> {
    pub fn new(cluster: &'a CachedCluster<'a>, policy: &'a Policy, now: Now) -> Self {
        let (nodes, questions, members) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { cluster, policy, now, nodes, questions, members }
    }

    /// The question of the pool about the taint. At first it is about no node.
    pub fn question(&mut self, pool: &Pool, taint: Taint) -> &mut TaintQuestion {
        self.questions.entry((pool.spec.name.clone(), taint)).or_insert_with_key(|(name, taint)| {
            let mut labels = pool.spec.node_selector.clone();
            labels.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
            let to_approve = PoolMembers { present: BTreeSet::new(), labels };
            TaintQuestion {
                pool: name.clone(),
                taint: taint.clone(),
                candidates: BTreeSet::new(),
                to_approve: Some(to_approve).filter(|_| !pool.consent.approves(taint)),
                enforces: pool.spec.enforces(),
            }
        })
    }

    /// Adds a node, and the questions that these pools have about it.
    pub fn add(&mut self, object: &NodeObject, watched: &Watched, pools: &BTreeSet<&String>) {
        let (NodeObject { name, uid, node, .. }, policy, now) = (object, self.policy, self.now);
        let assessment = assess(node, policy, Consent::Known { uid, watched, now: now.instant });
        let owner = assessment.pool.as_ref().and_then(|name| policy.pool(name));
        if let Some(owner) = owner.filter(|owner| pools.contains(&owner.spec.name)) {
            self.ask(owner, object, &assessment);
        }
        for pool in policy.previews(&node.labels).filter(|pool| pools.contains(&pool.spec.name)) {
            let consent = Consent::Known { uid, watched: &Watched::default(), now: now.instant };
            self.ask(pool, object, &assess_as(node, Some(pool), policy, consent));
        }
        // A node that is about to get a taint, of another pool for example, may not accept pods that need this one.
        let coming = assessment.plan.taints.iter().flat_map(|change| &change.added);
        self.nodes.push(PlannedNode {
            name: Arc::clone(name),
            uid: uid.as_ref().into(),
            labels: node.after(&assessment.plan).labels,
            taints: node.taints.taints().iter().chain(coming).cloned().collect(),
            serves: node.serves(),
        });
    }

    /// Asks about the next node. A node that waits for a class does not get the taint, whatever
    /// the result of the check.
    fn ask(&mut self, pool: &Pool, object: &NodeObject, assessment: &Assessment) {
        let index = self.nodes.len();
        self.members.entry(pool.spec.name.clone()).or_default().insert(index);
        for taint in &assessment.held {
            let is_decided = pool.spec.needs_no_check(taint) || waits_for_a_class(pool, taint, &object.node);
            if !is_decided {
                self.question(pool, taint.clone()).candidates.insert(index);
            }
        }
    }

    /// The scope without its classes.
    pub fn finish(mut self) -> CheckScope {
        for question in self.questions.values_mut() {
            if let Some((pool, present)) = question.to_approve.as_mut().zip(self.members.get(&question.pool)) {
                pool.present.clone_from(present);
            }
        }
        let is_dry_run = self.questions.values().all(|question| !question.enforces);
        let sources = self.cluster.pools.iter().filter_map(|guarded| class_source(guarded, self.policy, is_dry_run));
        CheckScope {
            class_sources: sources.collect(),
            nodes: self.nodes,
            questions: self.questions.into_values().collect(),
            admission: self.cluster.control_plane.admission.clone(),
            now: self.now.time,
            ..CheckScope::default()
        }
    }
}

/// The fields of the pool that the admission policy reads. It acts only while the pool enforces. A dry run shows what
/// would be.
fn class_source(guarded: &GuardedPool, policy: &Policy, is_dry_run: bool) -> Option<(String, ClassSource)> {
    let pool = policy.pool(&guarded.name_any())?;
    let acts = pool.spec.enforces() || !pool.spec.deleting && is_dry_run;
    let defaults = guarded.pool().ok().filter(|_| acts)?.spec.pod_defaults.clone().unwrap_or_default();
    let status = guarded.status.clone().unwrap_or_default();
    Some((pool.spec.name.clone(), ClassSource::new(defaults, &status, pool.spec.enforces())))
}
