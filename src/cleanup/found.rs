//! What `winpool-operator cleanup` finds in a cluster.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use k8s_openapi::{
    ClusterResourceScope,
    api::{core::v1::Node, node::v1::RuntimeClass},
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};
use winpool_client::{
    error::{RequestError, Unreadable},
    pages,
    terminal::some,
};
use winpool_core::{
    api::{
        Taint,
        names::{self, CLEANUP},
    },
    plan::{nodes::node::Applied, pools::pool::GuardedPool},
    words::count,
};

use crate::uninstall::HeldObject;

/// The number of names that are shown of each kind.
const SHOWN: usize = 20;

/// The objects with winpool's labels or finalizer.
#[derive(Default)]
pub struct Found {
    nodes: Vec<String>,
    classes: Vec<String>,
    /// The pools with the finalizer.
    pools: Vec<String>,
    /// The pools that keep everything.
    keeping: Vec<String>,
    /// Nodes of the others that the annotation `winpool.dev/ignore` protects.
    ignored: Vec<String>,
    /// The pools that do not exist although nodes or classes have their label.
    pub missing: BTreeSet<String>,
    /// Taints that only the annotation of their node claims for winpool, with the command that removes each.
    doubtful: Vec<String>,
}

impl Found {
    /// Reads the pools, and the nodes and RuntimeClasses with the label of a pool.
    pub async fn read(client: &Client) -> Result<Self, Unreadable> {
        let (mut found, mut cleaned, mut keeping) = (Self::default(), BTreeSet::new(), BTreeSet::new());
        let pools: Api<GuardedPool> = Api::all(client.clone());
        let listed = pages::each(&pools, ListParams::default(), |pool: GuardedPool| {
            let needs_cleanup = pool.deleted().read().is_ok_and(|pool| pool.spec.needs_cleanup());
            if needs_cleanup { &mut cleaned } else { &mut keeping }.insert(pool.name_any());
            found.pools.extend(pool.has_finalizer().then(|| pool.name_any()));
        });
        match listed.await {
            // Without the CRD there are no pools.
            Ok(()) | Err(RequestError::Gone) => {}
            Err(error) => return Err(Unreadable::of("WindowsPools")(error)),
        }
        let nodes = labelled::<Node>(client).await.map_err(Unreadable::of("Nodes"))?;
        let classes = labelled::<RuntimeClass>(client).await.map_err(Unreadable::of("RuntimeClasses"))?;
        for (objects, named) in [(nodes, &mut found.nodes), (classes, &mut found.classes)] {
            for Labelled { name, pool, is_ignored, claimed } in objects {
                if keeping.contains(&pool) {
                    continue;
                }
                if !cleaned.contains(&pool) {
                    found.doubtful.extend(claimed.iter().filter(|taint| !taint.has_foreign_key()).map(|taint| {
                        let (key, effect) = (&taint.key, &taint.effect);
                        format!("{taint}; if it is winpool's: kubectl taint nodes {name} {key}:{effect}-")
                    }));
                    found.missing.insert(pool);
                }
                if is_ignored { &mut found.ignored } else { &mut *named }.push(name);
            }
        }
        found.keeping.extend(keeping);
        Ok(found)
    }

    /// True if there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.objects().next().is_none()
    }

    /// Kind and name of each object that is to be cleaned up.
    pub fn objects(&self) -> impl Iterator<Item = String> {
        let kinds = [("Node", &self.nodes), ("RuntimeClass", &self.classes), ("WindowsPool", &self.pools)];
        kinds.into_iter().flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")))
    }

    pub fn show(&self, cluster: &str, held: &[HeldObject], out: &mut impl Write) -> io::Result<()> {
        if self.is_empty() && held.is_empty() {
            writeln!(out, "winpool has nothing to remove in {cluster}.")?;
        } else {
            writeln!(out, "Found in {cluster}:")?;
        }
        let Self { nodes, classes, pools, keeping, ignored, missing, doubtful } = self;
        let missing: Vec<String> = missing.iter().cloned().collect();
        let held: Vec<String> = held.iter().map(HeldObject::object).collect();
        let number = |names: &[String], kind| count(names.len(), kind);
        for (names, heading) in [
            (nodes, format!("{} with winpool's labels, annotation and taints", number(nodes, "Node"))),
            (
                classes,
                format!("{}; those that pods use stay, without winpool's labels", number(classes, "RuntimeClass")),
            ),
            (pools, format!("{}; winpool removes the finalizer {CLEANUP}", number(pools, "WindowsPool"))),
            (&held, format!("Objects of the installation; winpool removes the finalizer {CLEANUP}")),
            (ignored, format!("Not changed: {} with {}: \"true\"", number(ignored, "Node"), names::IGNORE)),
            (keeping, "Not changed: everything of pools in dry run or with deletionPolicy: Retain".to_owned()),
            (&missing, "Pools that do not exist, but whose label some of these have".to_owned()),
        ] {
            if !names.is_empty() {
                writeln!(out, "\n{heading}:\n  {}", some(names, SHOWN))?;
            }
        }
        if self.is_doubtful() {
            let heading = "Not changed: taints that only the annotation of their node claims for winpool";
            writeln!(out, "\n{heading}:\n{}", list(doubtful))?;
        }
        Ok(())
    }

    /// True if taints stay that winpool may have added.
    pub fn is_doubtful(&self) -> bool {
        !self.doubtful.is_empty()
    }
}

/// An object with the label of a pool.
struct Labelled {
    name: String,
    pool: String,
    /// True if it has the annotation `winpool.dev/ignore`.
    is_ignored: bool,
    /// The taints in the annotation of a node.
    claimed: Vec<Taint>,
}

async fn labelled<K>(client: &Client) -> Result<Vec<Labelled>, RequestError>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone,
{
    let (objects, mut found): (Api<PartialObjectMeta<K>>, _) = (Api::all(client.clone()), Vec::new());
    let listed = pages::each(&objects, ListParams::default().labels(names::POOL), |object: PartialObjectMeta<K>| {
        let applied = object.annotations().get(names::APPLIED).and_then(|text| Applied::parse(text));
        found.push(Labelled {
            name: object.name_any(),
            pool: object.labels().get(names::POOL).cloned().unwrap_or_default(),
            is_ignored: object.annotations().get(names::IGNORE).is_some_and(|ignore| ignore == "true"),
            claimed: applied.iter().flat_map(|applied| &applied.taints).filter_map(|text| text.parse().ok()).collect(),
        });
    });
    listed.await?;
    Ok(found)
}

/// The first lines, indented, and the number of the others.
pub fn list(lines: &[String]) -> String {
    let more = lines.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("and {more} more"));
    let lines = lines.iter().take(SHOWN).cloned().chain(more);
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
