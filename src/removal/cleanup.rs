//! Removes winpool from a cluster: finds everything that is winpool's, removes it, and looks again.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        node::v1::RuntimeClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use thiserror::Error;
use winpool_core::{
    api::{DeletionPolicy, Taint, WindowsPool, WindowsPoolSpec, names},
    plan::{self, ClassRetirement, ClassUsers, Extent, NodePlan, node_patch, retire_class},
    words,
};

use crate::{
    api_server::{error::RequestError, pages, pods},
    cache::node::CachedNode,
    controllers::GuardedPool,
    write::Applier,
};

const CONCURRENCY: usize = 16;
/// The number of attempts for a node that changes between reading and writing, before the whole cluster is read again.
const ATTEMPTS: usize = 4;
/// The number of rounds through the cluster before the rest is reported.
const ROUNDS: u32 = 5;
/// The pause after a round, times the number of rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of nodes after which progress is reported.
const MANY: usize = 500;

/// The cluster cannot be read.
#[derive(Debug, Error)]
#[error("cannot read {what}: {source}")]
pub struct Unreadable {
    what: &'static str,
    #[source]
    source: RequestError,
}

impl Unreadable {
    pub(crate) fn installation(source: RequestError) -> Self {
        Self { what: "the objects that winpool was installed as", source }
    }

    /// True if the permission is missing, or the account is gone.
    pub fn is_forbidden(&self) -> bool {
        self.source.is_forbidden()
    }
}

/// Something of winpool's that could not be removed.
#[derive(Debug, Error)]
#[error("{object}: {why}")]
pub struct Leftover {
    /// Kind and name of the object.
    pub object: String,
    pub why: Why,
}

/// The reason why something could not be removed.
#[derive(Debug, Error)]
pub enum Why {
    #[error(transparent)]
    Refused(RequestError),
    #[error("waits for the objects that could not be cleaned up")]
    Waits,
    /// It was removed before.
    #[error("another writer put it back")]
    CameBack,
}

impl Leftover {
    /// True if the API server refuses to change it, and will refuse that again.
    pub fn is_denied(&self) -> bool {
        matches!(&self.why, Why::Refused(error) if error.is_denied())
    }

    /// True if another writer puts it back.
    pub fn came_back(&self) -> bool {
        matches!(self.why, Why::CameBack)
    }
}

/// Everything of winpool's in the cluster.
pub struct Findings {
    judge: plan::Cleanup,
    /// Nodes with winpool's labels, annotations or taints, and the change that removes these.
    pub nodes: Vec<(CachedNode, NodePlan)>,
    /// Such nodes with the annotation `winpool.dev/ignore`.
    pub ignored: Vec<String>,
    /// Taints that stay although the annotation of their node names them, with the names of the nodes.
    pub doubtful: Vec<(String, Taint)>,
    /// winpool's taints on the ignored nodes.
    kept: BTreeSet<Taint>,
    /// winpool's RuntimeClasses.
    pub classes: Vec<(RuntimeClass, ClassRetirement)>,
    /// Pools with winpool's finalizer.
    pub pools: Vec<ObjectMeta>,
}

impl Findings {
    /// True if there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.classes.is_empty() && self.pools.is_empty()
    }

    /// Kind and name of each object.
    pub fn objects(&self) -> impl Iterator<Item = String> {
        let nodes = self.nodes.iter().map(|(node, _)| format!("Node {}", node.name()));
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
    pods: Api<Pod>,
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
            pods: Api::all(client),
            extent,
        }
    }

    /// Reads the whole cluster. All nodes are listed, because no selector finds a node whose label another writer
    /// removed.
    pub async fn look(&self) -> Result<Findings, Unreadable> {
        let unreadable = |what| move |source| Unreadable { what, source };
        let (mut pools, mut all, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        match pages::each(&self.pools, ListParams::default(), |pool: GuardedPool| all.push(pool)).await {
            // Without the CRD there are no pools.
            Ok(()) | Err(RequestError::Gone) => {}
            Err(source) => return Err(Unreadable { what: "WindowsPools", source }),
        }
        let judge = plan::Cleanup::new(all.iter().map(as_far_as_readable), self.extent);
        pools.extend(all.into_iter().filter(GuardedPool::has_finalizer).map(|pool| pool.metadata));

        let (mut nodes, mut ignored, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        let mut kept = BTreeSet::new();
        let mut sort = |node: CachedNode| {
            let parting = judge.node(&node.seen);
            if parting.ignored {
                kept.extend(judge.kept_taints(&node.seen));
                ignored.push(node.name().to_owned());
            }
            doubtful.extend(parting.doubtful.into_iter().map(|taint| (node.name().to_owned(), taint)));
            if !parting.plan.is_empty() {
                nodes.push((node, parting.plan));
            }
        };
        pages::each(&self.nodes, ListParams::default(), &mut sort).await.map_err(unreadable("Nodes"))?;

        let mut sort = |class: RuntimeClass| {
            if judge.concerns_class(&class) {
                classes.push(class);
            }
        };
        pages::each(&self.classes, ListParams::default(), &mut sort).await.map_err(unreadable("RuntimeClasses"))?;
        let classes = self.retire(classes).await.map_err(unreadable("Pods"))?;
        Ok(Findings { judge, nodes, ignored, doubtful, kept, classes, pools })
    }

    async fn retire(&self, classes: Vec<RuntimeClass>) -> Result<Vec<(RuntimeClass, ClassRetirement)>, RequestError> {
        if classes.is_empty() {
            return Ok(Vec::new());
        }
        let none = ClassUsers::default();
        let names = classes.iter().map(ResourceExt::name_any).collect();
        let users = pods::users(&self.pods, &names, &[]).await?;
        let end = |class: RuntimeClass| {
            let users =
                users.as_ref().map(|users| users.get(&class.name_any()).unwrap_or(&none)).map_err(String::as_str);
            let end = retire_class(&class, users);
            (class, end)
        };
        Ok(classes.into_iter().map(end).collect())
    }

    /// Removes the findings, reads the cluster again, and goes on until nothing is found, another writer puts
    /// something back, or nothing helps. Reports its progress to `tell`.
    pub async fn run(&self, found: Findings, tell: &(dyn Fn(String) + Sync)) -> Result<Vec<Leftover>, Unreadable> {
        let mut findings = found;
        let mut round = 1;
        loop {
            let done = self.take_off(&findings, tell).await;
            let hopeless = !done.refused.is_empty() && done.refused.iter().all(|(_, error)| error.is_denied());
            findings = self.look().await?;
            let left = leftovers(&findings, done);
            if findings.is_empty() || round == ROUNDS || hopeless || left.iter().any(Leftover::came_back) {
                return Ok(left);
            }
            tokio::time::sleep(PAUSE * round).await;
            round += 1;
        }
    }

    /// Cleans nodes first, so that no class goes whose nodes are still tainted, and removes finalizers last: until
    /// then pools are the record of winpool's changes.
    async fn take_off(&self, findings: &Findings, tell: &(dyn Fn(String) + Sync)) -> Done {
        let mut done = self.clean_nodes(findings, tell).await;
        if self.has_to_wait(&done) {
            return done;
        }
        let kept = &findings.kept | &done.kept;
        for (class, end) in &findings.classes {
            let (name, end) = (class.name_any(), findings.judge.spare(class, end.clone(), &kept));
            let result = self.applier.retire_class(class, &end).await;
            match (&result, end) {
                (Ok(None), ClassRetirement::Delete) => tell(format!("RuntimeClass {name} deleted")),
                (Ok(_), ClassRetirement::Release { why, .. }) => {
                    tell(format!("RuntimeClass {name} stays and is no longer managed: {why}"));
                }
                _ => {}
            }
            done.note(format!("RuntimeClass {name}"), result.map(drop));
        }
        if self.has_to_wait(&done) {
            return done;
        }
        for pool in &findings.pools {
            let name = pool.name.as_deref().unwrap_or_default();
            let result = self.applier.set_finalizer(pool, false).await;
            if result.is_ok() {
                tell(format!("finalizer {} removed from WindowsPool {name}", names::CLEANUP));
            }
            done.note(format!("WindowsPool {name}"), result);
        }
        done
    }

    /// True if the next kind of object has to wait. A person who runs the command can fix what is refused and run it
    /// again. An operator that is being removed cannot wait for that.
    fn has_to_wait(&self, done: &Done) -> bool {
        done.refused.iter().any(|(_, error)| self.extent == Extent::Everything || !error.is_denied())
    }

    async fn clean_nodes(&self, findings: &Findings, tell: &(dyn Fn(String) + Sync)) -> Done {
        let all = findings.nodes.len();
        let cleaning: Vec<_> = findings
            .nodes
            .iter()
            .map(async |(node, plan)| (node, self.clean_node(node, plan, &findings.judge).await))
            .collect();
        let mut results = stream::iter(cleaning).buffer_unordered(CONCURRENCY);
        let (mut count, mut done) = (0, Done::default());
        while let Some((node, result)) = results.next().await {
            count += 1;
            if !matches!(result, Ok(()) | Err(RequestError::Gone)) {
                done.kept.extend(findings.judge.kept_taints(&node.seen));
            }
            done.note(format!("Node {}", node.name()), result);
            if count % MANY == 0 && count < all {
                tell(format!("{count} of {all} nodes"));
            }
        }
        if all > 0 {
            tell(format!("{} cleaned", words::count(all - done.refused.len(), "node")));
        }
        done
    }

    /// Writes the plan, and reads the node again if it has changed.
    async fn clean_node(&self, found: &CachedNode, plan: &NodePlan, judge: &plan::Cleanup) -> Result<(), RequestError> {
        let (mut node, mut plan) = (found.clone(), plan.clone());
        for _ in 0..ATTEMPTS {
            if plan.is_empty() {
                return Ok(());
            }
            let patch = node_patch(node.uid(), &node.seen, &plan, judge.policy());
            match self.applier.patch_node(node.name(), patch).await {
                Ok(()) | Err(RequestError::Gone) => return Ok(()),
                Err(RequestError::Stale | RequestError::Conflict) => {}
                Err(error) => return Err(error),
            }
            node = match self.applier.read_node(node.name()).await {
                Ok(fresh) => fresh,
                Err(RequestError::Gone) => return Ok(()),
                Err(error) => return Err(error),
            };
            plan = judge.node(&node.seen).plan;
        }
        Err(RequestError::Conflict)
    }
}

/// The results of the writes.
#[derive(Default)]
struct Done {
    taken_off: BTreeSet<String>,
    refused: Vec<(String, RequestError)>,
    /// winpool's taints on the nodes that could not be cleaned.
    kept: BTreeSet<Taint>,
}

impl Done {
    fn note(&mut self, object: String, result: Result<(), RequestError>) {
        match result {
            Ok(()) | Err(RequestError::Gone) => _ = self.taken_off.insert(object),
            Err(error) => self.refused.push((object, error)),
        }
    }
}

/// Everything that is left, with the reason. A node whose write was denied counts even if its pool is gone and it is
/// no longer found.
fn leftovers(findings: &Findings, done: Done) -> Vec<Leftover> {
    let mut found: BTreeSet<String> = findings.objects().collect();
    let mut left = Vec::new();
    for (object, error) in done.refused {
        if found.remove(&object) || error.is_denied() {
            left.push(Leftover { object, why: Why::Refused(error) });
        }
    }
    for object in found {
        let why = if done.taken_off.contains(&object) { Why::CameBack } else { Why::Waits };
        left.push(Leftover { object, why });
    }
    left
}

/// A pool whose spec does not decode wants no taint. The taints that its status records still count, and it has the
/// finalizer if it was to clean up.
fn as_far_as_readable(guarded: &GuardedPool) -> WindowsPool {
    guarded.pool.clone().unwrap_or_else(|_| {
        let deletion_policy = if guarded.has_finalizer() { DeletionPolicy::Delete } else { DeletionPolicy::Retain };
        let spec = WindowsPoolSpec { taints: Some(Vec::new()), deletion_policy, ..WindowsPoolSpec::default() };
        WindowsPool { metadata: guarded.metadata.clone(), spec, status: guarded.status.clone() }
    })
}
