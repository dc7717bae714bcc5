//! What the operator would do to a cluster until it rests: the same decisions, made again and again on a copy.

mod changes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Serialize;
use serde_json::Value;

use crate::api::{
    Mode, Problem, Taint, TaintPolicy,
    names::{self, reason},
};

use super::{
    ClassAction, ClassesPlan, Entry, Held, InvalidPool, Node, Pod, Policy, Pool, Retirement, Seen, Standing, assess,
    assess_as, describe, ever_applied, held_back, owner, plan_classes, retire_class, silent, stranded,
};

use changes::Reasons;

/// The operator rests after a few rounds: what a round writes is an input of the next.
const ROUNDS: usize = 32;

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pools.
    pub pools: Vec<Result<Pool, InvalidPool>>,
    /// The nodes by name: those that are Windows or carry winpool's marks.
    pub nodes: BTreeMap<String, Node>,
    /// All RuntimeClasses.
    pub classes: Vec<Arc<RuntimeClass>>,
    /// The unfinished pods, or why they cannot be read.
    pub pods: Result<Vec<Pod>, String>,
}

/// What the operator would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// What it adds up to.
    pub summary: Summary,
    /// The nodes that it would write.
    pub nodes: Vec<NodeForecast>,
    /// The RuntimeClasses that it would write.
    pub runtime_classes: Vec<ClassForecast>,
}

impl Forecast {
    /// Whether nothing would be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.runtime_classes.is_empty()
    }
}

/// What a forecast adds up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Nodes that were looked at.
    pub nodes: usize,
    /// Nodes that would be written.
    pub nodes_to_change: usize,
    /// RuntimeClasses that would be written.
    pub runtime_classes_to_change: usize,
    /// The pools.
    pub pools: Vec<PoolForecast>,
    /// Workloads that run on Windows nodes and say nowhere that they are for Windows, each with the number of its pods.
    pub silent_workloads: BTreeMap<String, usize>,
    /// What cannot be told, and why.
    pub notes: Vec<String>,
}

/// What would become of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolForecast {
    /// Its name.
    pub name: String,
    /// `Enforce` or `DryRun`; `Invalid` for a pool that is left alone until it is corrected; `Deleting` for one that goes.
    pub mode: String,
    /// Nodes that belong to it in the end.
    pub nodes: usize,
    /// Nodes that would be written, or in dry run: that would be if it were enforced.
    pub would_change: usize,
    /// Taints that are not put on, because workloads do not tolerate them.
    pub held_taints: Vec<String>,
    /// The workloads that would find no node after their next rollout, each with the number of its pods.
    pub stranded: BTreeMap<String, usize>,
    /// What needs attention.
    pub problems: Vec<Problem>,
}

/// What would be written to a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeForecast {
    /// Its name.
    pub name: String,
    /// The pool for which it is written.
    pub pool: String,
    /// What differs afterwards.
    pub changes: Vec<Change>,
}

/// What would be written to a RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassForecast {
    /// Its name.
    pub name: String,
    /// The pool for which it is written.
    pub pool: String,
    /// `Create`, `Change`, `Adopt`, `Replace`, `Release` or `Delete`.
    pub action: &'static str,
    /// What differs afterwards.
    pub changes: Vec<Change>,
}

/// A field before and after; `null` stands for absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// Where it is.
    pub field: String,
    /// What it is.
    pub from: Value,
    /// What it would be.
    pub to: Value,
    /// Why.
    pub reason: String,
}

/// The cluster after the operator came to rest, and what it wrote on the way.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The nodes.
    pub nodes: BTreeMap<String, Node>,
    /// The RuntimeClasses.
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// What differs.
    pub forecast: Forecast,
}

/// What the operator would do to this cluster.
#[must_use]
pub fn forecast(snapshot: Snapshot) -> Outcome {
    let before: BTreeMap<String, Arc<RuntimeClass>> = by_name(&snapshot.classes);
    let mut run = Run::new(snapshot);
    let nodes_before = run.nodes.clone();
    for _ in 0..ROUNDS {
        if !run.round() {
            break;
        }
    }
    let pools = run.pool_forecasts();
    let nodes = changes::nodes(&nodes_before, &run.nodes, &run.reasons);
    let runtime_classes = changes::classes(&before, &run.classes, &run.reasons);
    let on_windows =
        |name: &str| run.nodes.get(name).is_some_and(|node| node.labels.get(names::OS) == Some(names::WINDOWS));
    let summary = Summary {
        nodes: run.nodes.len(),
        nodes_to_change: nodes.len(),
        runtime_classes_to_change: runtime_classes.len(),
        silent_workloads: silent(run.pods.iter().flatten(), on_windows),
        notes: Vec::new(),
        pools: with_changes(pools, &nodes),
    };
    Outcome { forecast: Forecast { summary, nodes, runtime_classes }, nodes: run.nodes, classes: run.classes }
}

fn by_name(classes: &[Arc<RuntimeClass>]) -> BTreeMap<String, Arc<RuntimeClass>> {
    classes.iter().map(|class| (class.metadata.name.clone().unwrap_or_default(), Arc::clone(class))).collect()
}

fn with_changes(mut pools: Vec<PoolForecast>, nodes: &[NodeForecast]) -> Vec<PoolForecast> {
    for pool in pools.iter_mut().filter(|pool| pool.mode != "DryRun") {
        pool.would_change = nodes.iter().filter(|node| node.pool == pool.name).count();
    }
    pools
}

/// What the nodes of a pool show in one round.
#[derive(Default)]
struct View {
    seen: Seen,
    carried: BTreeSet<Taint>,
    waiting: BTreeSet<String>,
    nodes: usize,
    pending: usize,
    unreadable: Vec<String>,
    differing: BTreeMap<Taint, Vec<String>>,
}

impl View {
    fn add(&mut self, name: &str, standing: Standing, pool: Option<&Pool>) {
        let Standing { version, ignored, tolerate, differing, held, owned, plan, .. } = standing;
        self.nodes += 1;
        self.pending += usize::from(!plan.is_empty());
        match version {
            Some(version) => *self.seen.builds.entry(version.build).or_default() += 1,
            None if !ignored => self.unreadable.push(name.to_owned()),
            None => {}
        }
        let lingering = tolerate.iter().filter(|taint| pool.is_some_and(|pool| pool.ever_applied.contains(taint)));
        self.carried.extend(owned.into_iter().chain(lingering.cloned()));
        self.seen.tolerate.extend(tolerate);
        if held {
            self.waiting.insert(name.to_owned());
        }
        for taint in differing {
            self.differing.entry(taint).or_default().push(name.to_owned());
        }
    }
}

struct Run {
    pools: Vec<Arc<Pool>>,
    invalid: Vec<InvalidPool>,
    nodes: BTreeMap<String, Node>,
    classes: BTreeMap<String, Arc<RuntimeClass>>,
    pods: Result<Vec<Pod>, String>,
    /// Why each pool holds its taints; absent as long as nobody has to look.
    looks: BTreeMap<String, Option<Held>>,
    reasons: Reasons,
    problems: BTreeMap<String, Vec<Problem>>,
    /// Pools that were deleted and went.
    gone: Vec<String>,
}

impl Run {
    fn new(snapshot: Snapshot) -> Self {
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

    fn policy(&self) -> Policy {
        let entries = self.pools.iter().map(|pool| Entry { pool: Arc::clone(pool), ready: true });
        Policy::new(entries, self.invalid.iter().map(|pool| pool.name.clone()).collect())
    }

    fn observe(&self, policy: &Policy) -> BTreeMap<String, View> {
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
    fn round(&mut self) -> bool {
        let policy = self.policy();
        let views = self.observe(&policy);
        let mut changed = false;
        for pool in self.pools.clone() {
            let view = views.get(&pool.name);
            changed |= if pool.deleting {
                self.clean_up(&pool, &policy, &views)
            } else {
                self.bring_up_to_date(&pool, &policy, view.unwrap_or(&View::default()))
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

    fn bring_up_to_date(&mut self, pool: &Arc<Pool>, policy: &Policy, view: &View) -> bool {
        let existing: Vec<Arc<RuntimeClass>> = self.classes.values().cloned().collect();
        let plan = plan_classes(pool, policy, &view.seen, &existing);
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
            let wanted: BTreeSet<String> = (policy.entries().iter())
                .filter(|entry| entry.pool.name != pool.name && entry.pool.enforces())
                .flat_map(|entry| {
                    let none = Seen::default();
                    let seen = views.get(&entry.pool.name).map_or(&none, |view| &view.seen);
                    plan_classes(&entry.pool, policy, seen, &existing).classes
                })
                .map(|planned| planned.desired.name)
                .collect();
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

    fn problem(&mut self, pool: &Pool, reason: &str, object: String, message: String) {
        let problem = Problem { reason: reason.to_owned(), object, message };
        self.problems.entry(pool.name.clone()).or_default().push(problem);
    }

    /// What needs attention in this round; that of earlier rounds is forgotten.
    fn note_problems(&mut self, pool: &Pool, plan: &ClassesPlan, view: &View) {
        self.problems.insert(pool.name.clone(), plan.problems.clone());
        for planned in &plan.classes {
            if let ClassAction::Conflict(problem) = &planned.action {
                self.problems.entry(pool.name.clone()).or_default().push(problem.clone());
            } else if pool.mode == Mode::DryRun
                && let Some(what) = describe(&planned.action)
            {
                let object = format!("RuntimeClass/{}", planned.desired.name);
                self.problem(pool, reason::WOULD_CHANGE, object, what);
            }
        }
        if let Some(example) = view.unreadable.first() {
            let message = format!(
                "{} node(s) report no Windows build in status.nodeInfo.kernelVersion and carry no well-formed label \
                 node.kubernetes.io/windows-build",
                view.unreadable.len()
            );
            self.problem(pool, reason::BUILD_UNKNOWN, format!("Node/{example}"), message);
        }
        for (taint, nodes) in &view.differing {
            let message = format!(
                "{} node(s) carry {taint}, whose key and effect are those of a wanted taint; it is left alone. To \
                 replace it, add it to spec.retiredTaints",
                nodes.len()
            );
            let example = nodes.first().map(String::as_str).unwrap_or_default();
            self.problem(pool, reason::TAINT_VALUE_DIFFERS, format!("Node/{example}"), message);
        }
    }

    fn pool_forecasts(&self) -> Vec<PoolForecast> {
        let policy = self.policy();
        let mut views = self.observe(&policy);
        let invalid = self.invalid.iter().map(|pool| PoolForecast {
            name: pool.name.clone(),
            mode: "Invalid".to_owned(),
            problems: vec![Problem {
                reason: reason::INVALID_SPEC.to_owned(),
                object: format!("WindowsPool/{}", pool.name),
                message: pool.to_string(),
            }],
            ..PoolForecast::default()
        });
        let valid = policy.entries().iter().map(|Entry { pool, .. }| {
            let view = views.remove(&pool.name).unwrap_or_default();
            let mut problems = self.problems.get(&pool.name).cloned().unwrap_or_default();
            let mut stranded = BTreeMap::new();
            match self.looks.get(&pool.name) {
                Some(Some(Held::Stranded(found))) => stranded.clone_from(found),
                Some(Some(Held::PodsUnreadable(words))) => problems.push(Problem {
                    reason: reason::WORKLOADS_NOT_TOLERATING.to_owned(),
                    object: "Pod".to_owned(),
                    message: format!("it cannot be read which pods tolerate the taints: {words}"),
                }),
                _ if pool.taint_policy == TaintPolicy::Always && pool.enforces() => {
                    stranded = self.stranded_by_force(pool);
                }
                _ => {}
            }
            let held = if view.waiting.is_empty() { BTreeSet::new() } else { pool.held.clone() };
            PoolForecast {
                name: pool.name.clone(),
                mode: if pool.mode == Mode::DryRun { "DryRun" } else { "Enforce" }.to_owned(),
                nodes: view.nodes,
                would_change: if pool.mode == Mode::DryRun { view.pending } else { 0 },
                held_taints: held.iter().map(ToString::to_string).collect(),
                stranded,
                problems,
            }
        });
        let gone = self.gone.iter().map(|name| PoolForecast {
            name: name.clone(),
            mode: "Deleting".to_owned(),
            ..PoolForecast::default()
        });
        valid.chain(invalid).chain(gone).collect()
    }

    /// `taintPolicy: Always` does not ask: these lose their place on the nodes that get a taint now.
    fn stranded_by_force(&self, pool: &Pool) -> BTreeMap<String, usize> {
        let taints: Vec<Taint> =
            pool.applicable_taints().into_iter().filter(|taint| taint.effect != "PreferNoSchedule").collect();
        let gets = |node: &str| taints.iter().any(|taint| self.reasons.adds(node, taint));
        stranded(self.pods.iter().flatten(), gets, &taints)
    }
}
