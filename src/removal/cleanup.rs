//! Taking winpool out of a cluster: look at all of it, take off what is winpool's, look again.

use std::{collections::BTreeSet, fmt, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, ResourceExt, api::ListParams};
use thiserror::Error;
use winpool_core::{
    api::{DeletionPolicy, Taint, WindowsPool, WindowsPoolSpec, names},
    plan::{self, ClassRetirement, ClassUsers, Extent, NodePlan, node_patch, retire_class},
    words,
};

use crate::{
    api_server::{
        error::RequestError,
        pages,
        pods::{self, ListedPod},
    },
    cache::node::CachedNode,
    controllers::GuardedPool,
    write::Applier,
};

/// Nodes written at the same time.
const CONCURRENCY: usize = 16;
/// How often a node may change between reading and writing before the whole cluster is looked at again.
const ATTEMPTS: usize = 4;
/// How often the cluster is gone through before what is left is reported.
const ROUNDS: u32 = 5;
/// Between one round and the next, times the number of rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// After so many nodes it is said how far it came.
const MANY: usize = 500;

/// The cluster cannot be looked at.
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

    /// Whether the permission is missing, or the account is gone.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.source.is_forbidden()
    }
}

/// Something of winpool's that is still there.
#[derive(Debug)]
pub struct Leftover {
    /// Kind and name of what it is on.
    pub object: String,
    /// Why.
    pub why: Why,
}

/// Why something is still there.
#[derive(Debug)]
pub enum Why {
    /// It was not to be written.
    Refused(RequestError),
    /// It has to wait for something else that is left.
    Waits,
    /// It was taken off, and is there again.
    CameBack,
}

impl Leftover {
    /// Whether the API server refuses to change it, and will refuse that again.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(&self.why, Why::Refused(error) if error.is_denied())
    }

    /// Whether something puts it back.
    #[must_use]
    pub fn came_back(&self) -> bool {
        matches!(self.why, Why::CameBack)
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        match &self.why {
            Why::Refused(error) => error.fmt(f),
            Why::Waits => f.write_str("waits for the others"),
            Why::CameBack => f.write_str("something put it back"),
        }
    }
}

/// What is in the cluster of winpool's.
pub struct Findings {
    judge: plan::Cleanup,
    /// Nodes with marks, and what takes these off.
    pub nodes: Vec<(CachedNode, NodePlan)>,
    /// Nodes with marks that ask to be left alone.
    pub ignored: Vec<String>,
    /// Taints that stay although the annotation of their node names them, with the names of the nodes.
    pub doubtful: Vec<(String, Taint)>,
    /// winpool's RuntimeClasses.
    pub classes: Vec<(RuntimeClass, ClassRetirement)>,
    /// Pools with winpool's finalizer.
    pub pools: Vec<ObjectMeta>,
}

impl Findings {
    /// Whether there is nothing to take off.
    #[must_use]
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

/// Takes winpool out of a cluster.
pub struct Cleaner {
    applier: Applier,
    nodes: Api<CachedNode>,
    pools: Api<GuardedPool>,
    classes: Api<RuntimeClass>,
    pods: Api<ListedPod>,
    extent: Extent,
}

impl Cleaner {
    /// Looks through `client` and writes through `applier`.
    #[must_use]
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

    /// Looks at the whole cluster. No selector finds a node whose label somebody took off, so all nodes are listed.
    ///
    /// # Errors
    /// When nodes, pools or RuntimeClasses cannot be listed.
    pub async fn look(&self) -> Result<Findings, Unreadable> {
        let unreadable = |what| move |source| Unreadable { what, source };
        let (mut pools, mut all, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        match pages::each(&self.pools, ListParams::default(), |pool| all.push(pool)).await {
            // Without the kind there are no pools.
            Ok(()) | Err(RequestError::Gone) => {}
            Err(source) => return Err(Unreadable { what: "WindowsPools", source }),
        }
        let judge = plan::Cleanup::new(all.iter().map(as_far_as_readable), self.extent);
        pools.extend(all.into_iter().filter(has_finalizer).map(|pool| pool.metadata));

        let (mut nodes, mut ignored, mut doubtful) = (Vec::new(), Vec::new(), Vec::new());
        let mut sort = |node: CachedNode| {
            let parting = judge.node(&node.seen);
            if parting.ignored {
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
        Ok(Findings { judge, nodes, ignored, doubtful, classes, pools })
    }

    async fn retire(&self, classes: Vec<RuntimeClass>) -> Result<Vec<(RuntimeClass, ClassRetirement)>, RequestError> {
        if classes.is_empty() {
            return Ok(Vec::new());
        }
        let none = ClassUsers::default();
        let pods = match pods::list_unfinished(&self.pods).await {
            Ok(pods) => Ok(pods),
            Err(RequestError::Denied(words)) => Err(words),
            Err(error) => return Err(error),
        };
        let names = classes.iter().map(ResourceExt::name_any).collect();
        let users = pods.map(|pods| ClassUsers::count(&pods, &names, &[]));
        let end = |class: RuntimeClass| {
            let users =
                users.as_ref().map(|users| users.get(&class.name_any()).unwrap_or(&none)).map_err(String::as_str);
            let end = retire_class(&class, users);
            (class, end)
        };
        Ok(classes.into_iter().map(end).collect())
    }

    /// Takes off what was found, looks again, and goes on until nothing is found, something comes back, or nothing helps.
    /// Says to `tell` what it does.
    ///
    /// # Errors
    /// When the cluster cannot be looked at again.
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

    /// Nodes first, so that no class goes whose nodes are still tainted, and finalizers last: until then pools are the
    /// evidence of what winpool put where.
    async fn take_off(&self, findings: &Findings, tell: &(dyn Fn(String) + Sync)) -> Done {
        let mut done = self.clean_nodes(findings, tell).await;
        if self.has_to_wait(&done) {
            return done;
        }
        for (class, end) in &findings.classes {
            let name = class.name_any();
            let result = self.applier.retire_class(class, end).await;
            match (&result, end) {
                (Ok(()), ClassRetirement::Delete) => tell(format!("RuntimeClass {name} deleted")),
                (Ok(()), ClassRetirement::Release { why, .. }) => {
                    tell(format!("RuntimeClass {name} stays and is no longer winpool's: {why}"));
                }
                _ => {}
            }
            done.note(format!("RuntimeClass {name}"), result);
        }
        if self.has_to_wait(&done) {
            return done;
        }
        for pool in &findings.pools {
            let name = pool.name.as_deref().unwrap_or_default();
            let result = self.applier.set_finalizer(pool, false).await;
            if result.is_ok() {
                tell(format!("WindowsPool {name} freed of the finalizer {}", names::CLEANUP));
            }
            done.note(format!("WindowsPool {name}"), result);
        }
        done
    }

    /// Somebody who reads the report can mend what is refused and try again. An operator that is being removed cannot
    /// wait for that.
    fn has_to_wait(&self, done: &Done) -> bool {
        done.refused.iter().any(|(_, error)| self.extent == Extent::Everything || !error.is_denied())
    }

    async fn clean_nodes(&self, findings: &Findings, tell: &(dyn Fn(String) + Sync)) -> Done {
        let all = findings.nodes.len();
        let cleaning: Vec<_> =
            findings.nodes.iter().map(|(node, plan)| self.clean_node(node, plan, &findings.judge)).collect();
        let mut results = stream::iter(cleaning).buffer_unordered(CONCURRENCY);
        let (mut count, mut done) = (0, Done::default());
        while let Some((object, result)) = results.next().await {
            count += 1;
            done.note(object, result);
            if count % MANY == 0 && count < all {
                tell(format!("{count} of {all} nodes"));
            }
        }
        if all > 0 {
            tell(format!("{} cleaned", words::count(all - done.refused.len(), "node")));
        }
        done
    }

    async fn clean_node(
        &self,
        node: &CachedNode,
        plan: &NodePlan,
        judge: &plan::Cleanup,
    ) -> (String, Result<(), RequestError>) {
        (format!("Node {}", node.name()), self.take_off_node(node, plan, judge).await)
    }

    /// Sends what the plan says, from fresh reads where the node changed since it was listed.
    async fn take_off_node(
        &self,
        found: &CachedNode,
        plan: &NodePlan,
        judge: &plan::Cleanup,
    ) -> Result<(), RequestError> {
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

/// What became of the objects that were to be written.
#[derive(Default)]
struct Done {
    taken_off: BTreeSet<String>,
    refused: Vec<(String, RequestError)>,
}

impl Done {
    fn note(&mut self, object: String, result: Result<(), RequestError>) {
        match result {
            Ok(()) | Err(RequestError::Gone) => _ = self.taken_off.insert(object),
            Err(error) => self.refused.push((object, error)),
        }
    }
}

/// What is still there and why. A node that refused counts also when its pool is no more, so that it is no longer found.
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

fn has_finalizer(pool: &GuardedPool) -> bool {
    pool.finalizers().iter().any(|finalizer| finalizer == names::CLEANUP)
}

/// A pool whose spec does not decode wants no taint; what its status says that it put on still counts. It has its
/// finalizer if it was to clean up.
fn as_far_as_readable(guarded: &GuardedPool) -> WindowsPool {
    guarded.pool.clone().unwrap_or_else(|_| {
        let deletion_policy = if has_finalizer(guarded) { DeletionPolicy::Delete } else { DeletionPolicy::Retain };
        let spec = WindowsPoolSpec { taints: Some(Vec::new()), deletion_policy, ..WindowsPoolSpec::default() };
        WindowsPool { metadata: guarded.metadata.clone(), spec, status: guarded.status.clone() }
    })
}
