//! Removes winpool from a cluster: finds the objects that it manages, removes its changes, and reads the cluster again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
    api::{Taint, names},
    plan::{
        classes::runtime_class::{ClassRetirement, is_made_by_winpool, owner},
        nodes::{
            capability_labels::LabelUsers,
            node::{NodeObject, NodePlan},
        },
        patch::{REVERTED, node_patch},
        pools::{cleanup::Cleanup, pool::GuardedPool},
    },
    words,
};

use crate::{controllers::now, write::Applier};

const CONCURRENCY: usize = 16;
/// The number of rounds through the cluster before the rest is reported.
const ROUNDS: u32 = 5;
/// The pause after a round, times the number of rounds.
const PAUSE: Duration = Duration::from_secs(1);

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

/// The objects in the cluster that winpool manages.
pub struct ManagedObjects {
    rules: Cleanup,
    /// Nodes with winpool's labels, annotations or taints, and the change that removes these.
    pub nodes: Vec<(NodeObject, NodePlan)>,
    /// Such nodes with the annotation `winpool.dev/ignore`.
    pub ignored: Vec<String>,
    /// Taints that stay although the annotation of their node names them, with the names of the nodes.
    pub doubtful: Vec<(String, Taint)>,
    /// The users of capability labels, which stay because of them.
    pub users: LabelUsers,
    /// winpool's RuntimeClasses.
    pub classes: Vec<(RuntimeClass, ClassRetirement)>,
    /// Pools with winpool's finalizer.
    pub pools: Vec<ObjectMeta>,
}

impl ManagedObjects {
    /// True if there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.objects().next().is_none()
    }

    /// Kind and name of each object.
    pub fn objects(&self) -> impl Iterator<Item = String> {
        let nodes = self.nodes.iter().map(|(node, _)| format!("Node {}", node.name));
        let classes = self.classes.iter().map(|(class, _)| format!("RuntimeClass {}", class.name_any()));
        let pools = self.pools.iter().map(|pool| format!("WindowsPool {}", pool.name.as_deref().unwrap_or_default()));
        nodes.chain(classes).chain(pools)
    }
}

/// The results of the writes, by kind and name of the object.
type CleanupResults = BTreeMap<String, Result<(), RequestError>>;

/// Removes winpool from a cluster.
pub struct Cleaner {
    client: Client,
    applier: Applier,
}

impl Cleaner {
    /// Creates one that reads through `client` and writes through `applier`.
    pub fn new(client: Client, applier: Applier) -> Self {
        Self { client, applier }
    }

    /// Reads the whole cluster. All nodes are listed, because no selector finds a node whose label another writer
    /// removed.
    pub async fn find(&self) -> Result<ManagedObjects, Unreadable> {
        let all = ListParams::default;
        let (client, mut pools) = (&self.client, Vec::new());
        match pages::each(&Api::<GuardedPool>::all(client.clone()), all(), |pool| pools.push(pool)).await {
            // Without the CRD there are no pools.
            Ok(()) | Err(RequestError::Gone) => {}
            Err(error) => return Err(Unreadable::of("WindowsPools")(error)),
        }
        let rules = Cleanup::new(&pools);

        let (mut found, mut kept, mut users) = (Vec::new(), Vec::new(), LabelUsers::default());
        let add = |ListedNode { object, .. }: ListedNode| {
            users.add_node(&object.node);
            kept.extend(rules.kept_taints(&object.node));
            if Cleanup::concerns(&object.node) {
                found.push(object);
            }
        };
        pages::each(&Api::<Node>::all(client.clone()), all(), add).await.map_err(Unreadable::of("Nodes"))?;

        let mut classes: Vec<RuntimeClass> = Vec::new();
        let listed = pages::each(&Api::<RuntimeClass>::all(client.clone()), all(), |class| classes.push(class)).await;
        listed.map_err(Unreadable::of("RuntimeClasses"))?;
        let pods = pods::list(client, now()).await.map_err(Unreadable::of("Pods"))?;
        match &pods {
            Ok(pods) => users.add_pods(pods),
            Err(message) => users.add_unknown(message),
        }
        let is_own = |class: &RuntimeClass| owner(class).is_some() || is_made_by_winpool(class);
        let (own, others): (Vec<_>, Vec<_>) = classes.into_iter().partition(is_own);
        let end = |class: RuntimeClass| {
            let users = pods.as_ref().map(|pods| pods.users(&class.name_any()));
            let end = Cleanup::class(&class, users.as_ref().map_err(|message| message.as_str()), &kept);
            (class, end)
        };
        let classes: Vec<_> = own.into_iter().map(end).collect();
        let staying = classes.iter().filter(|(_, end)| *end != ClassRetirement::Delete).map(|(class, _)| class);
        staying.chain(&others).for_each(|class| users.add_class(class));

        let (mut nodes, mut ignored, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        for object in found {
            let (release, name) = (rules.node(&object.node, &users), object.name.to_string());
            doubtful.extend(release.doubtful.into_iter().map(|taint| (name.clone(), taint)));
            ignored.extend(release.ignored.then_some(name));
            nodes.extend((!release.plan.is_empty()).then_some((object, release.plan)));
        }
        let pools = pools.into_iter().filter(GuardedPool::has_finalizer).map(|pool| pool.metadata).collect();
        Ok(ManagedObjects { rules, nodes, ignored, doubtful, users, classes, pools })
    }

    /// Removes winpool's changes of these objects and reads the cluster again, until no object is left, another writer
    /// restores one, or the API server refuses all others. Passes its progress to `report`.
    pub async fn run(&self, found: ManagedObjects, report: ProgressLog<'_>) -> Result<Vec<Leftover>, Unreadable> {
        let mut managed = found;
        let mut round = 1;
        loop {
            let results = self.remove(&managed, report).await;
            let mut refused = results.values().filter_map(|result| result.as_ref().err()).peekable();
            let is_hopeless = refused.peek().is_some() && refused.all(RequestError::is_denied);
            managed = self.find().await?;
            let left = leftovers(&managed, results);
            if managed.is_empty() || round == ROUNDS || is_hopeless || left.iter().any(Leftover::came_back) {
                return Ok(left);
            }
            tokio::time::sleep(PAUSE * round).await;
            round += 1;
        }
    }

    /// Cleans nodes first, so that no class goes whose nodes are still tainted, and removes finalizers last: until
    /// then pools are the record of winpool's changes. If a write is refused, the next kind of object waits: a person can
    /// fix that, and run the command again.
    async fn remove(&self, managed: &ManagedObjects, report: ProgressLog<'_>) -> CleanupResults {
        let cleaning = managed.nodes.iter().map(async |(node, plan)| {
            (format!("Node {}", node.name), done(self.clean_node(node, plan, &managed.rules).await))
        });
        let mut results: CleanupResults = stream::iter(cleaning).buffer_unordered(CONCURRENCY).collect().await;
        if !results.is_empty() {
            let cleaned = results.values().filter(|result| result.is_ok()).count();
            report(format!("{} cleaned", words::count(cleaned, "node")));
        }
        if results.values().any(Result::is_err) {
            return results;
        }
        for (class, end) in &managed.classes {
            let (name, result) = (class.name_any(), self.applier.retire_class(class, end).await);
            match (&result, end) {
                (Ok(None), ClassRetirement::Delete) => report(format!("RuntimeClass {name} deleted")),
                (Ok(_), ClassRetirement::Release { why, .. }) => {
                    report(format!("winpool no longer manages RuntimeClass {name}, which stays: {why}"));
                }
                _ => {}
            }
            results.insert(format!("RuntimeClass {name}"), done(result));
        }
        if results.values().any(Result::is_err) {
            return results;
        }
        for pool in &managed.pools {
            let (name, result) =
                (pool.name.as_deref().unwrap_or_default(), self.applier.set_finalizer(pool, false).await);
            if result.is_ok() {
                report(format!("finalizer {} removed from WindowsPool {name}", names::CLEANUP));
            }
            results.insert(format!("WindowsPool {name}"), done(result));
        }
        results
    }

    /// Sends one patch. If the node has changed, the next round reads it again.
    async fn clean_node(
        &self,
        NodeObject { name, uid, resource_version, node, .. }: &NodeObject,
        plan: &NodePlan,
        rules: &Cleanup,
    ) -> Result<(), RequestError> {
        let written = self.applier.patch_node(name, node_patch(uid, node, plan, rules.policy())).await?;
        match written.map(|written| written.resource_version) {
            Some(version) if version == *resource_version => Err(RequestError::Denied(REVERTED.to_owned())),
            _ => Ok(()),
        }
    }
}

/// The result of a write. An object that does not exist needs none.
fn done<T>(result: Result<T, RequestError>) -> Result<(), RequestError> {
    match result {
        Ok(_) | Err(RequestError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Everything that is left, with the reason. A node whose write was denied counts even if its pool is gone and it is
/// no longer found.
fn leftovers(managed: &ManagedObjects, mut results: CleanupResults) -> Vec<Leftover> {
    let found: BTreeSet<String> = managed.objects().collect();
    let denied = results.iter().filter(|(_, result)| result.as_ref().is_err_and(RequestError::is_denied));
    let objects: BTreeSet<String> = denied.map(|(object, _)| object.clone()).chain(found).collect();
    let left = |object: String| {
        let why = match results.remove(&object) {
            Some(Err(error)) => LeftoverReason::Refused(error),
            Some(Ok(())) => LeftoverReason::CameBack,
            None => LeftoverReason::Waits,
        };
        Leftover { object, why }
    };
    objects.into_iter().map(left).collect()
}
