//! What `winpool-operator cleanup` finds in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use winpool_client::error::{RequestError, Unreadable};
use winpool_client::node::ListedNode;
use winpool_client::pages;
use winpool_client::terminal::some;
use winpool_core::api::Taint;
use winpool_core::api::names::{self, CLEANUP};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::words::count;

use crate::uninstall::InstalledObject;

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
    /// Taints that may be winpool's, without a proof of it, with the command that removes each.
    doubtful: Vec<String>,
}

impl Found {
    /// Reads the pools, and the nodes and RuntimeClasses with the label of a pool.
    pub async fn read(client: &Client) -> Result<Self, Unreadable> {
        let (mut found, mut cleaned, mut keeping) = (Self::default(), BTreeMap::new(), BTreeSet::new());
        let pools: Api<GuardedPool> = Api::all(client.clone());
        let listed = pages::each(&pools, ListParams::default(), |pool: GuardedPool| {
            match pool.deleted().read().ok().filter(|pool| pool.spec.needs_cleanup()) {
                Some(read) => drop(cleaned.insert(pool.name_any(), read.managed_taints)),
                None => drop(keeping.insert(pool.name_any())),
            }
            found.pools.extend(pool.has_finalizer().then(|| pool.name_any()));
        });
        match listed.await {
            // Without the CRD there are no pools.
            Ok(()) | Err(RequestError::Gone) => {}
            Err(error) => return Err(Unreadable::of("WindowsPools")(error)),
        }
        let is_missing = |pool: &str| !keeping.contains(pool) && !cleaned.contains_key(pool);
        let mut place = |pool: &str, name: String, is_ignored: bool, named: &mut Vec<String>| {
            if keeping.contains(pool) {
                return;
            }
            if is_missing(pool) {
                found.missing.insert(pool.to_owned());
            }
            if is_ignored { &mut found.ignored } else { named }.push(name);
        };
        let labelled = || ListParams::default().labels(names::POOL);
        let nodes: Api<Node> = Api::all(client.clone());
        let listed = pages::each(&nodes, labelled(), |ListedNode { object, .. }: ListedNode| {
            let pool = object.node.labels.get(names::POOL).unwrap_or_default();
            if !keeping.contains(pool) {
                let doubtful = object.node.doubtful_taints(cleaned.get(pool).map(Vec::as_slice));
                let told = |taint: &Taint| format!("{taint}; if it is winpool's: {}", taint.removal(&object.name));
                found.doubtful.extend(doubtful.map(told));
            }
            place(pool, object.name.to_string(), object.node.is_ignored(), &mut found.nodes);
        });
        listed.await.map_err(Unreadable::of("Nodes"))?;
        let classes: Api<PartialObjectMeta<RuntimeClass>> = Api::all(client.clone());
        let listed = pages::each(&classes, labelled(), |class: PartialObjectMeta<RuntimeClass>| {
            let pool = class.labels().get(names::POOL).cloned().unwrap_or_default();
            place(&pool, class.name_any(), false, &mut found.classes);
        });
        listed.await.map_err(Unreadable::of("RuntimeClasses"))?;
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

    pub fn show(&self, cluster: &str, installed: &[InstalledObject], out: &mut impl Write) -> io::Result<()> {
        if self.is_empty() && installed.is_empty() {
            writeln!(out, "winpool has nothing to remove in {cluster}.")?;
        } else {
            writeln!(out, "Found in {cluster}:")?;
        }
        let Self { nodes, classes, pools, keeping, ignored, missing, doubtful } = self;
        let missing: Vec<String> = missing.iter().cloned().collect();
        let installed: Vec<String> = installed.iter().map(InstalledObject::full_name).collect();
        let number = |names: &[String], kind| count(names.len(), kind);
        for (names, heading) in [
            (nodes, format!("{} with winpool's labels, annotation and taints", number(nodes, "Node"))),
            (
                classes,
                format!("{}; those that pods use stay, without winpool's labels", number(classes, "RuntimeClass")),
            ),
            (pools, format!("{}; winpool removes the finalizer {CLEANUP}", number(pools, "WindowsPool"))),
            (&installed, format!("Objects of the installation; winpool removes the finalizer {CLEANUP}")),
            (ignored, format!("Not changed: {} with {}: \"true\"", number(ignored, "Node"), names::IGNORE)),
            (keeping, "Not changed: everything of pools in dry run or with deletionPolicy: Retain".to_owned()),
            (&missing, "Pools that do not exist, but whose label some of these have".to_owned()),
        ] {
            if !names.is_empty() {
                writeln!(out, "\n{heading}:\n  {}", some(names, SHOWN))?;
            }
        }
        if !doubtful.is_empty() {
            let heading =
                "Not changed: taints that may be winpool's: only their node says so, or only the status of its pool";
            writeln!(out, "\n{heading}:\n{}", list(doubtful))?;
        }
        Ok(())
    }

    /// True if taints stay that the node says winpool has added. What only a status says is often the kubelet's own taint.
    pub fn is_doubtful(&self) -> bool {
        !self.missing.is_empty() && !self.doubtful.is_empty()
    }
}

/// The first lines, indented, and the number of the others.
pub fn list(lines: &[String]) -> String {
    let more = lines.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("and {more} more"));
    let lines = lines.iter().take(SHOWN).cloned().chain(more);
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
