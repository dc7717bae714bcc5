//! The operator at work on a copy of a cluster.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;

use crate::api::{Mode, Problem, Taint, names::reason};

use super::{
    super::{
        ClassAction, ClassesPlan, Entry, Held, InvalidPool, Node, Pod, Policy, Pool, Retirement, Seen, assess,
        assess_as, classes_of_others, ever_applied, held_back, owner, plan_classes, retire_class,
    },
    Snapshot, by_name,
    changes::{self, Reasons},
    view::View,
};

/// The operator at work on a copy of a cluster: every pool and every node in rounds, until nothing changes.
pub(super) struct Rehearsal {
    pub pools: Vec<Arc<Pool>>,
    pub invalid: Vec<InvalidPool>,
    pub nodes: BTreeMap<String, Node>,
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub pods: Result<Vec<Pod>, String>,
    /// Why each pool holds its taints; absent as long as nobody has to look.
    pub looks: BTreeMap<String, Option<Held>>,
    pub reasons: Reasons,
    pub problems: BTreeMap<String, Vec<Problem>>,
    /// Pools that were deleted and went.
    pub gone: Vec<String>,
}

impl Rehearsal {
    pub fn new(snapshot: Snapshot) -> Self {
        let (mut pools, mut invalid) = (Vec::new(), Vec::new());
        for pool in snapshot.pools {
            match pool {
                Ok(pool) => pools.push(Arc::new(Pool { held: pool.unjudged_taints(), ..pool })),
                Err(error) => invalid.push(error),
            }
        }
        Self {
            pools,
            invalid,
            nodes: snapshot.nodes,
            classes: by_name(&snapshot.classes),
            pods: snapshot.pods,
            looks: BTreeMap::new(),
            reasons: Reasons::default(),
            problems: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    pub fn policy(&self) -> Policy {
        let entries = self.pools.iter().map(|pool| Entry { pool: Arc::clone(pool), ready: true });
        Policy::new(entries, self.invalid.iter().map(|pool| pool.name.clone()).collect())
    }

    pub fn observe(&self, policy: &Policy) -> BTreeMap<String, View> {
        let mut views: BTreeMap<String, View> = BTreeMap::new();
        for (name, node) in &self.nodes {
            let mut standing = assess(node, policy);
            let deleting = |name: &String| policy.pool(name).is_some_and(|pool| pool.deleting);
            standing.pool = standing.pool.or(standing.releasing.take().filter(deleting));
            if let Some(pool) = standing.pool.clone() {
                views.entry(pool.clone()).or_default().add(name, standing, policy.pool(&pool).map(AsRef::as_ref));
            }
            for pool in policy.previews(&node.labels) {
                let standing = assess_as(node, Some(pool), policy);
                views.entry(pool.name.clone()).or_default().add(name, standing, Some(pool));
            }
        }
        views
    }

    /// Every pool and every node once. Tells whether anything changed.
    pub fn round(&mut self) -> bool {
        let policy = self.policy();
        let views = self.observe(&policy);
        let mut changed = false;
        for pool in self.pools.clone() {
            changed |= if pool.deleting {
                self.clean_up(&pool, &policy, &views)
            } else {
                self.bring_up_to_date(&pool, &policy, &views)
            };
        }
        let policy = self.policy();
        for (name, node) in &mut self.nodes {
            let standing = assess(node, &policy);
            if !standing.plan.is_empty() {
                self.reasons.node(name, node, &standing, &policy);
                *node = node.after(&standing.plan);
                changed = true;
            }
        }
        changed
    }

    fn bring_up_to_date(&mut self, pool: &Arc<Pool>, policy: &Policy, views: &BTreeMap<String, View>) -> bool {
        let existing: Vec<Arc<RuntimeClass>> = self.classes.values().cloned().collect();
        let plan = plan_classes(pool, policy, &|pool| seen(views, pool), &existing);
        let none = View::default();
        let view = views.get(&pool.name).unwrap_or(&none);
        let mut updated = Pool::clone(pool);
        self.look(&mut updated, view, &plan, &existing);
        self.note_problems(pool, &plan, view);
        let mut changed = false;
        if pool.mode == Mode::Enforce {
            changed |= self.write_classes(pool, plan);
            let carried: Vec<Taint> = view.carried.iter().cloned().collect();
            updated.ever_applied = ever_applied(&updated, &carried);
        }
        if updated != **pool {
            changed = true;
            self.replace(updated);
        }
        changed
    }

    fn replace(&mut self, pool: Pool) {
        if let Some(current) = self.pools.iter_mut().find(|current| current.name == pool.name) {
            *current = Arc::new(pool);
        }
    }

    /// Who would be stranded is asked when the first node lacks a taint that nobody has judged.
    fn look(&mut self, pool: &mut Pool, view: &View, plan: &ClassesPlan, existing: &[Arc<RuntimeClass>]) {
        if pool.held.is_empty() || view.waiting.is_empty() {
            return;
        }
        let pods = self.pods.as_deref().map_err(String::as_str);
        let held = held_back(pods, |node| view.waiting.contains(node), &pool.held, plan, existing);
        if held.is_none() {
            pool.held.clear();
        }
        self.looks.insert(pool.name.clone(), held);
    }

    fn write_classes(&mut self, pool: &Pool, plan: ClassesPlan) -> bool {
        let mut changed = self.retire(pool, &plan.leftover);
        for planned in plan.classes {
            let name = planned.desired.name.clone();
            let after = match &planned.action {
                ClassAction::Nothing | ClassAction::Conflict(_) => continue,
                ClassAction::Create(class) => RuntimeClass::clone(class),
                ClassAction::Replace(class) => {
                    let current = self.classes.get(&name);
                    let end = current.map(|current| retire_class(current, self.pods()));
                    if let Some(Retirement::Release { why, .. }) = end {
                        let message =
                            format!("gets another handler, which means to make it again, once no pod uses it; {why}");
                        self.problem(pool, reason::CLASS_IN_USE, format!("RuntimeClass/{name}"), message);
                        continue;
                    }
                    RuntimeClass::clone(class)
                }
                ClassAction::Change { changes, .. } => match self.classes.get(&name) {
                    Some(current) => changes::apply(current, changes),
                    None => continue,
                },
            };
            if self.classes.get(&name).is_none_or(|before| **before != after) {
                self.reasons.class(&planned, pool);
                self.classes.insert(name, Arc::new(after));
                changed = true;
            }
        }
        changed
    }

    fn pods(&self) -> Result<&[Pod], &str> {
        self.pods.as_deref().map_err(String::as_str)
    }

    /// Deletes classes that no pod uses, and lets go of the others.
    fn retire(&mut self, pool: &Pool, names: &[String]) -> bool {
        let mut changed = false;
        for name in names {
            let Some(class) = self.classes.get(name).cloned() else { continue };
            changed = true;
            match retire_class(&class, self.pods()) {
                Retirement::Delete => {
                    self.classes.remove(name);
                    self.reasons.class_retired(name, pool, "no pod uses it");
                }
                Retirement::Release { changes, why } => {
                    self.classes.insert(name.clone(), Arc::new(changes::apply(&class, &changes)));
                    self.reasons.class_retired(name, pool, &why);
                }
            }
        }
        changed
    }

    /// A pool that is being deleted: its nodes first, then its classes, then itself.
    fn clean_up(&mut self, pool: &Pool, policy: &Policy, views: &BTreeMap<String, View>) -> bool {
        if pool.needs_cleanup() {
            if views.get(&pool.name).is_some_and(|view| view.pending > 0) {
                return false;
            }
            let existing: Vec<Arc<RuntimeClass>> = self.classes.values().cloned().collect();
            let wanted = classes_of_others(pool, policy, &|pool| seen(views, pool), &existing);
            let owned = self.classes.iter().filter(|(_, class)| owner(class) == Some(&pool.name));
            let (handed_over, given_up): (Vec<String>, Vec<String>) =
                owned.map(|(name, _)| name.clone()).partition(|name| wanted.contains(name));
            let retired = self.retire(pool, &given_up);
            if !handed_over.is_empty() {
                return retired;
            }
        }
        self.pools.retain(|other| other.name != pool.name);
        self.gone.push(pool.name.clone());
        true
    }
}

/// What the nodes of a pool show.
fn seen(views: &BTreeMap<String, View>, pool: &str) -> Seen {
    views.get(pool).map(|view| view.seen.clone()).unwrap_or_default()
}
