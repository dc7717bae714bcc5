//! Removes winpool from a cluster: finds the objects that it manages, removes its changes, and reads the cluster again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::{core::v1::Node, node::v1::RuntimeClass},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use thiserror::Error;
use winpool_client::{
    error::{RequestError, Unreadable},
    node::ListedNode,
    pages, pods,
};
use winpool_core::{
    api::{DeletionPolicy, Taint, WindowsPool, WindowsPoolSpec, names},
    plan::{
        self,
        classes::runtime_class::{ClassRetirement, KeptTaints, retire_class},
        nodes::{Attempt, AttemptState, NodeAnswer, NodeObject, capability_labels::LabelUsers, node::NodePlan},
        pods::PodTable,
        pools::{cleanup::Extent, pool::GuardedPool},
        refusal::Refusal,
    },
    words,
};

use crate::{controllers::now, write::Applier};

const CONCURRENCY: usize = 16;
/// The number of rounds through the cluster before the rest is reported.
const ROUNDS: u32 = 5;
/// The pause after a round, times the number of rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of nodes after which progress is reported.
const MANY: usize = 500;

/// Something of winpool's that could not be removed.
#[derive(Debug, Error)]
#[error("{object}: {why}")]
pub struct Leftover {
    /// Kind and name of the object.
    pub object: String,
    pub why: LeftoverReason,
}

/// The reason why something could not be removed.
#[derive(Debug, Error)]
pub enum LeftoverReason {
    #[error(transparent)]
    Refused(RequestError),
    #[error("waits for the objects that could not be cleaned up")]
    Waits,
    /// It was removed before.
    #[error("another writer restored it")]
    CameBack,
}

impl Leftover {
    /// True if the API server refuses to change it, and will refuse that again.
    pub fn is_denied(&self) -> bool {
        matches!(&self.why, LeftoverReason::Refused(error) if error.is_denied())
    }

    /// True if another writer restored it.
    pub fn came_back(&self) -> bool {
        matches!(self.why, LeftoverReason::CameBack)
    }
}

/// Receives each line of progress.
type ProgressLog<'a> = &'a (dyn Fn(String) + Sync);

/// The nodes that winpool manages, and what stays on them.
#[derive(Default)]
pub struct ManagedNodes {
    /// Nodes with winpool's labels, annotations or taints, and the change that removes these.
    pub plans: Vec<(Arc<NodeObject>, NodePlan)>,
    /// Such nodes with the annotation `winpool.dev/ignore`.
    pub ignored: Vec<String>,
    /// Taints that stay although the annotation of their node names them, with the names of the nodes.
    pub doubtful: Vec<(String, Taint)>,
}

impl ManagedNodes {
    fn add(&mut self, object: NodeObject, rules: &plan::pools::cleanup::Cleanup, users: &LabelUsers) {
        let release = rules.node(&object.node, users);
        let name = || object.name.to_string();
        self.ignored.extend(release.ignored.then(name));
        self.doubtful.extend(release.doubtful.into_iter().map(|taint| (name(), taint)));
        if !release.plan.is_empty() {
            self.plans.push((Arc::new(object), release.plan));
        }
    }
}

/// The objects in the cluster that winpool manages.
pub struct ManagedObjects {
    rules: plan::pools::cleanup::Cleanup,
    /// The users of capability labels, which stay because of them.
    pub users: LabelUsers,
    pub nodes: ManagedNodes,
    /// winpool's RuntimeClasses.
    pub classes: Vec<(RuntimeClass, ClassRetirement)>,
    /// Pools with winpool's finalizer.
    pub pools: Vec<ObjectMeta>,
}

impl ManagedObjects {
    /// True if there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.nodes.plans.is_empty() && self.classes.is_empty() && self.pools.is_empty()
    }

    /// Kind and name of each object.
    pub fn objects(&self) -> impl Iterator<Item = String> {
        let nodes = self.nodes.plans.iter().map(|(node, _)| format!("Node {}", node.name));
        let classes = self.classes.iter().map(|(class, _)| format!("RuntimeClass {}", class.name_any()));
        let pools = self.pools.iter().map(|pool| format!("WindowsPool {}", pool.name.as_deref().unwrap_or_default()));
        nodes.chain(classes).chain(pools)
    }
}

/// Removes winpool from a cluster.
pub struct Cleaner {
    applier: Applier,
    nodes: Api<Node>,
    pools: Api<GuardedPool>,
    classes: Api<RuntimeClass>,
    client: Client,
    extent: Extent,
}

impl Cleaner {
    /// Creates one that reads through `client` and writes through `applier`.
    pub fn new(client: Client, applier: Applier, extent: Extent) -> Self {
        Self {
            applier,
            nodes: Api::all(client.clone()),
            pools: Api::all(client.clone()),
            classes: Api::all(client.clone()),
            client,
            extent,
        }
    }

    /// Reads the whole cluster. All nodes are listed, because no selector finds a node whose label another writer
    /// removed.
    pub async fn find(&self) -> Result<ManagedObjects, Unreadable> {
        let pools = self.find_pools().await?;
        let rules = plan::pools::cleanup::Cleanup::new(pools.iter().map(as_far_as_readable), self.extent);
        let pools = pools.into_iter().filter(GuardedPool::has_finalizer).map(|pool| pool.metadata).collect();

        let (mut nodes, mut labelled, mut kept) = (ManagedNodes::default(), Vec::new(), Vec::new());
        let mut users = LabelUsers::default();
        let add = |ListedNode { object, .. }: ListedNode| {
            let without_taints = object.node.after(&rules.node(&object.node, &LabelUsers::default()).plan);
            kept.extend(rules.kept_taints(&without_taints));
            if users.add_node(&object.node) {
                labelled.push(object);
            } else {
                nodes.add(object, &rules, &LabelUsers::default());
            }
        };
        pages::each(&self.nodes, ListParams::default(), add).await.map_err(Unreadable::of("Nodes"))?;

        let (classes, others) = self.find_classes(&rules).await?;
        let needs_labels = !labelled.is_empty() && self.extent == Extent::Everything;
        let pods = if classes.is_empty() && !needs_labels {
            Ok(PodTable::default())
        } else {
            pods::list(&self.client, now()).await.map_err(Unreadable::of("Pods"))?
        };
        if needs_labels {
            match &pods {
                Ok(pods) => users.add_pods(pods),
                Err(message) => users.add_unknown(message),
            }
        }
        let retire = |class: RuntimeClass| {
            let users = pods.as_ref().map(|pods| pods.users(&class.name_any()));
            let end = retire_class(&class, users.as_ref().map_err(|message| message.as_str()));
            let end = rules.spare(&class, end, &kept);
            (class, end)
        };
        let classes: Vec<_> = classes.into_iter().map(retire).collect();
        let staying = classes.iter().filter(|(_, end)| *end != ClassRetirement::Delete).map(|(class, _)| class);
        staying.chain(&others).for_each(|class| users.add_class(class));
        for object in labelled {
            nodes.add(object, &rules, &users);
        }
        Ok(ManagedObjects { rules, users, nodes, classes, pools })
    }

    async fn find_pools(&self) -> Result<Vec<GuardedPool>, Unreadable> {
        let mut pools = Vec::new();
        match pages::each(&self.pools, ListParams::default(), |pool: GuardedPool| pools.push(pool)).await {
            // Without the CRD there are no pools.
            Ok(()) | Err(RequestError::Gone) => Ok(pools),
            Err(error) => Err(Unreadable::of("WindowsPools")(error)),
        }
    }

    /// winpool's RuntimeClasses, and the others.
    async fn find_classes(
        &self,
        rules: &plan::pools::cleanup::Cleanup,
    ) -> Result<(Vec<RuntimeClass>, Vec<RuntimeClass>), Unreadable> {
        let mut all = Vec::new();
        let listed = pages::each(&self.classes, ListParams::default(), |class: RuntimeClass| all.push(class)).await;
        listed.map_err(Unreadable::of("RuntimeClasses"))?;
        Ok(all.into_iter().partition(|class| rules.concerns_class(class)))
    }

    /// Removes winpool's changes of these objects and reads the cluster again, until no object is left, another writer
    /// restores one, or the API server refuses all others. Passes its progress to `report`.
    pub async fn run(&self, found: ManagedObjects, report: ProgressLog<'_>) -> Result<Vec<Leftover>, Unreadable> {
        let mut managed = found;
        let mut round = 1;
        loop {
            let done = self.remove(&managed, report).await;
            let hopeless = !done.refused.is_empty() && done.refused.iter().all(|(_, error)| error.is_denied());
            managed = self.find().await?;
            let left = leftovers(&managed, done);
            if managed.is_empty() || round == ROUNDS || hopeless || left.iter().any(Leftover::came_back) {
                return Ok(left);
            }
            tokio::time::sleep(PAUSE * round).await;
            round += 1;
        }
    }

    /// Cleans nodes first, so that no class goes whose nodes are still tainted, and removes finalizers last: until
    /// then pools are the record of winpool's changes.
    async fn remove(&self, managed: &ManagedObjects, report: ProgressLog<'_>) -> CleanupResults {
        let mut done = self.clean_nodes(managed, report).await;
        if self.has_to_wait(&done) {
            return done;
        }
        for (class, end) in &managed.classes {
            let (name, end) = (class.name_any(), managed.rules.spare(class, end.clone(), &done.kept));
            let result = self.applier.retire_class(class, &end).await;
            match (&result, end) {
                (Ok(None), ClassRetirement::Delete) => report(format!("RuntimeClass {name} deleted")),
                (Ok(_), ClassRetirement::Release { why, .. }) => {
                    report(format!("RuntimeClass {name} stays and is no longer managed: {why}"));
                }
                _ => {}
            }
            done.note(format!("RuntimeClass {name}"), result.map(drop));
        }
        if self.has_to_wait(&done) {
            return done;
        }
        for pool in &managed.pools {
            let name = pool.name.as_deref().unwrap_or_default();
            let result = self.applier.set_finalizer(pool, false).await.map(drop);
            if result.is_ok() {
                report(format!("finalizer {} removed from WindowsPool {name}", names::CLEANUP));
            }
            done.note(format!("WindowsPool {name}"), result);
        }
        done
    }

    /// True if the next kind of object has to wait. A person who runs the command can fix what is refused and run it
    /// again. An operator that is being removed cannot wait for that.
    fn has_to_wait(&self, done: &CleanupResults) -> bool {
        done.refused.iter().any(|(_, error)| self.extent == Extent::Everything || !error.is_denied())
    }

    async fn clean_nodes(&self, managed: &ManagedObjects, report: ProgressLog<'_>) -> CleanupResults {
        let plans = &managed.nodes.plans;
        let all = plans.len();
        let cleaning: Vec<_> =
            plans.iter().map(async |(node, plan)| (node, self.clean_node(node, plan, managed).await)).collect();
        let mut results = stream::iter(cleaning).buffer_unordered(CONCURRENCY);
        let (mut count, mut done) = (0, CleanupResults::default());
        while let Some((node, result)) = results.next().await {
            count += 1;
            if !matches!(result, Ok(()) | Err(RequestError::Gone)) {
                done.kept.extend(managed.rules.kept_taints(&node.node));
            }
            done.note(format!("Node {}", node.name), result);
            if count % MANY == 0 && count < all {
                report(format!("{count} of {all} nodes"));
            }
        }
        if all > 0 {
            report(format!("{} cleaned", words::count(all - done.refused.len(), "node")));
        }
        done
    }

    /// Executes the plan, and plans again if the node has changed. A refusal is final: the whole cluster is read again.
    async fn clean_node(
        &self,
        found: &Arc<NodeObject>,
        plan: &NodePlan,
        managed: &ManagedObjects,
    ) -> Result<(), RequestError> {
        let policy = managed.rules.policy();
        let (mut attempt, mut step) = Attempt::begin(Arc::clone(found), plan.clone(), policy);
        loop {
            let (answer, error) = match self.applier.execute(&found.name, step).await {
                Ok(answer) => (answer, None),
                Err(error) => (NodeAnswer::Refused(Refusal::from(&error)), Some(error)),
            };
            step = match attempt.answer(answer, policy) {
                AttemptState::Next(step) => step,
                AttemptState::PlanAgain(object) => {
                    let plan = managed.rules.node(&object.node, &managed.users).plan;
                    if plan.is_empty() {
                        return Ok(());
                    }
                    attempt.patch(object, plan, policy)
                }
                AttemptState::Written | AttemptState::Gone => return Ok(()),
                AttemptState::Refused(_, message) => return Err(RequestError::Denied(message)),
                AttemptState::Denied(message) => return Err(error.unwrap_or(RequestError::Denied(message))),
                AttemptState::Failed => return Err(error.unwrap_or(RequestError::Conflict)),
            };
        }
    }
}

/// The results of the writes.
#[derive(Default)]
struct CleanupResults {
    removed: BTreeSet<String>,
    refused: Vec<(String, RequestError)>,
    /// winpool's taints on the nodes that could not be cleaned.
    kept: Vec<KeptTaints>,
}

impl CleanupResults {
    fn note(&mut self, object: String, result: Result<(), RequestError>) {
        match result {
            Ok(()) | Err(RequestError::Gone) => _ = self.removed.insert(object),
            Err(error) => self.refused.push((object, error)),
        }
    }
}

/// Everything that is left, with the reason. A node whose write was denied counts even if its pool is gone and it is
/// no longer found.
fn leftovers(managed: &ManagedObjects, done: CleanupResults) -> Vec<Leftover> {
    let mut found: BTreeSet<String> = managed.objects().collect();
    let mut left = Vec::new();
    for (object, error) in done.refused {
        if found.remove(&object) || error.is_denied() {
            left.push(Leftover { object, why: LeftoverReason::Refused(error) });
        }
    }
    for object in found {
        let why = if done.removed.contains(&object) { LeftoverReason::CameBack } else { LeftoverReason::Waits };
        left.push(Leftover { object, why });
    }
    left
}

/// A pool whose spec does not decode wants no taint. The taints that its status records still count, and it has the
/// finalizer if it was to clean up.
fn as_far_as_readable(guarded: &GuardedPool) -> WindowsPool {
    guarded.pool().cloned().unwrap_or_else(|_| {
        let deletion_policy = if guarded.has_finalizer() { DeletionPolicy::Delete } else { DeletionPolicy::Retain };
        let spec = WindowsPoolSpec { taints: Some(Vec::new()), deletion_policy, ..WindowsPoolSpec::default() };
        WindowsPool { metadata: guarded.metadata.clone(), spec, status: guarded.status.clone() }
    })
}
