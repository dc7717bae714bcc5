//! Every version of every node from a watch, and the changes of foreign taints between them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use winpool_core::api::names;

use super::ledger::{Edit, FOREIGN, Ledger, identity};

/// Keys of taints that pools of these tests want or retire; all others belong to others.
pub const POOLS_KEYS: [&str; 2] = ["os", "dedicated/os"];
/// The taints of the node-lifecycle controller.
const LIFECYCLE: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];

/// The fields of one version of a node for which writers race.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub revision: u64,
    /// The server's own JSON.
    pub taints: Vec<Value>,
    pub labels: BTreeMap<String, String>,
    pub applied: Option<String>,
    /// The time of winpool's last write, by managedFields.
    pub written: Option<String>,
}

impl Version {
    pub fn of(node: &DynamicObject) -> Self {
        let written = node.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some(names::FIELD_MANAGER));
        Self {
            revision: node.resource_version().unwrap().parse().unwrap(),
            taints: node.data["spec"]["taints"].as_array().cloned().unwrap_or_default(),
            labels: node.labels().clone(),
            applied: node.annotations().get(names::APPLIED).cloned(),
            written: written.and_then(|entry| entry.time.as_ref()).map(|time| time.0.to_string()),
        }
    }

    /// The taints of the test's own writers, in order.
    pub fn foreign_taints(&self) -> Vec<Value> {
        self.taints.iter().filter(|taint| identity(taint).0.starts_with(FOREIGN)).cloned().collect()
    }

    pub fn writers_labels(&self) -> BTreeMap<String, String> {
        let labels = self.labels.iter().filter(|(key, _)| key.starts_with(FOREIGN));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// All taints but those of pools, in order.
    fn others_taints(&self) -> Vec<&Value> {
        self.taints.iter().filter(|taint| !POOLS_KEYS.contains(&identity(taint).0)).collect()
    }

    fn others_labels(&self) -> Vec<(&String, &String)> {
        self.labels.iter().filter(|(key, _)| !is_winpools(key)).collect()
    }

    fn lifecycle_taints(&self) -> Vec<&Value> {
        self.taints.iter().filter(|taint| LIFECYCLE.contains(&identity(taint).0)).collect()
    }

    /// The fields that winpool may write.
    fn own(&self) -> (Vec<&Value>, Vec<(&String, &String)>, &Option<String>) {
        let taints = self.taints.iter().filter(|taint| POOLS_KEYS.contains(&identity(taint).0)).collect();
        let labels = self.labels.iter().filter(|(key, _)| is_winpools(key)).collect();
        (taints, labels, &self.applied)
    }

    /// True if winpool wrote the version after this one.
    fn winpool_made(&self, next: &Self) -> bool {
        self.own() != next.own() || (next.written.is_some() && self.written != next.written)
    }

    /// True if both are equal for all writers.
    fn is_like(&self, other: &Self) -> bool {
        let unrevised = Self { revision: other.revision, ..self.clone() };
        unrevised == *other
    }
}

fn is_winpools(label: &str) -> bool {
    [names::POOL, names::WINDOWS_BUILD].contains(&label) || label.starts_with(names::CAPABILITY_LABEL_PREFIX)
}

/// Every version of each node that differs from the one before.
pub type History = BTreeMap<String, Vec<Version>>;

/// Nodes with all fields.
pub fn nodes(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()))
}

/// Records all versions of nodes from now on.
pub struct Recorder {
    history: Arc<Mutex<History>>,
    seen: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub async fn start(client: &Client) -> Self {
        let api = nodes(client);
        let list = api.list(&ListParams::default()).await.unwrap();
        let first = list.iter().map(|node| (node.name_any(), vec![Version::of(node)])).collect();
        let history = Arc::new(Mutex::new(first));
        let (sender, seen) = watch::channel(0);
        let task = tokio::spawn(record(api, list.metadata.resource_version.unwrap(), Arc::clone(&history), sender));
        Self { history, seen, task }
    }

    /// Everything until this revision.
    pub async fn until(mut self, revision: u64) -> History {
        let seen = self.seen.wait_for(|seen| *seen >= revision);
        tokio::time::timeout(winpool_e2e::machine::wait::LIMIT, seen).await.expect("the watch gets there").unwrap();
        self.task.abort();
        std::mem::take(&mut *self.history.lock().unwrap())
    }

    /// Everything so far.
    pub fn so_far(&self) -> History {
        self.history.lock().unwrap().clone()
    }
}

/// One watch after the other, each from where the last one ended: no version is missed.
async fn record(api: Api<DynamicObject>, mut from: String, history: Arc<Mutex<History>>, seen: watch::Sender<u64>) {
    loop {
        let mut events = Box::pin(api.watch(&WatchParams::default(), &from).await.unwrap());
        while let Some(event) = events.try_next().await.unwrap() {
            let node = match event {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => node,
                WatchEvent::Deleted(node) => panic!("{} went", node.name_any()),
                WatchEvent::Bookmark(bookmark) => {
                    from = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => panic!("the watch lost its place: {error:?}"),
            };
            from = node.resource_version().unwrap();
            let version = Version::of(&node);
            let revision = version.revision;
            let mut history = history.lock().unwrap();
            let versions = history.entry(node.name_any()).or_default();
            if versions.last().is_none_or(|last| !last.is_like(&version)) {
                versions.push(version);
            }
            drop(history);
            seen.send_replace(revision);
        }
    }
}

/// The findings of a history.
#[derive(Debug, Default)]
pub struct Findings {
    pub versions: usize,
    /// Versions that winpool wrote.
    pub by_winpool: usize,
    /// Versions in which the node-lifecycle controller added or removed a taint.
    pub by_lifecycle: usize,
    /// Of those, with the taint of a node that does not answer.
    pub unreachable: usize,
    /// Versions that acknowledged edits made.
    pub by_writers: usize,
    pub faults: Vec<String>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { versions, by_winpool, by_lifecycle, unreachable, by_writers, faults } = self;
        write!(
            f,
            "{versions} versions of nodes: {by_writers} by writers, {by_winpool} by winpool, {by_lifecycle} by the \
             node-lifecycle controller ({unreachable} of them about unreachable); {} faults",
            faults.len()
        )
    }
}

/// Checks all versions: winpool's writes change nothing foreign, each edit of the ledger has its effect, and no other client
/// changes what the writers wrote.
pub fn examine(history: &History, ledger: &Ledger) -> Findings {
    let edits = ledger.edits();
    let mut findings = Findings::default();
    for (name, versions) in history {
        for pair in versions.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            findings.versions += 1;
            let edit = edits.get(&after.revision).map(|(_, edit)| edit);
            let fault = judge(before, after, edit, &mut findings);
            let show = |version: &Version| serde_json::to_string(&version.taints).unwrap();
            findings.faults.extend(fault.map(|fault| {
                format!("{name} at {}: {fault}\n  before {}\n  after  {}", after.revision, show(before), show(after))
            }));
        }
    }
    findings
}

fn judge(before: &Version, after: &Version, edit: Option<&Edit>, findings: &mut Findings) -> Option<String> {
    if let Some(edit) = edit {
        findings.by_writers += 1;
        let as_meant = after.foreign_taints() == edit.on_taints(&before.foreign_taints())
            && after.writers_labels() == edit.on_labels(&before.writers_labels());
        return (!as_meant).then(|| format!("an edit did something else: {edit:?}"));
    }
    if before.winpool_made(after) {
        findings.by_winpool += 1;
        let untouched =
            before.others_taints() == after.others_taints() && before.others_labels() == after.others_labels();
        return (!untouched).then(|| "winpool changed what belongs to others".to_owned());
    }
    if before.lifecycle_taints() != after.lifecycle_taints() {
        findings.by_lifecycle += 1;
        let unreachable = |version: &Version| version.taints.iter().any(|taint| identity(taint).0 == LIFECYCLE[0]);
        findings.unreachable += usize::from(unreachable(before) || unreachable(after));
    }
    let untouched =
        before.foreign_taints() == after.foreign_taints() && before.writers_labels() == after.writers_labels();
    (!untouched).then(|| "another client changed what the writers wrote".to_owned())
}
