//! Pools in the form that plans use, sorted by precedence.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{DeletionPolicy, Mode, Taint, WindowsPool, WindowsPoolSpec, WindowsPoolStatus, names};
use crate::labels::Labels;
use crate::plan::pools::consent::PoolConsent;
pub use crate::plan::pools::spec::{Hosts, InvalidPool, PoolSpec, WantedTaints};
use crate::windows::Build;
use crate::windows::taint::is_known;

/// A pool: what the user wrote, what status records, and what it may do to nodes at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub spec: Arc<PoolSpec>,
    /// `status.taints`: every taint that winpool ever added for this pool, or took over from another one.
    pub managed_taints: Vec<Taint>,
    pub consent: Arc<PoolConsent>,
}

impl Pool {
    /// Reads `pool`, with the taints that its status records.
    ///
    /// # Errors
    /// Fails as [`PoolSpec::read`] does.
    pub fn read(pool: &WindowsPool) -> Result<Self, InvalidPool> {
        Ok(Self::new(PoolSpec::read(pool)?.into(), pool.status.as_ref()))
    }

    /// The pool with this spec and the taints that this status records.
    pub fn new(spec: Arc<PoolSpec>, status: Option<&WindowsPoolStatus>) -> Self {
        let held_by = status.iter().flat_map(|status| &status.taints).flat_map(|taint| taint.held_by.clone()).collect();
        let consent = PoolConsent { since: added_since(status), held_by, ..PoolConsent::default() };
        Self { spec, managed_taints: managed_taints(status), consent: consent.into() }
    }

    /// The taints that winpool may add to nodes of the pool now.
    pub fn applicable_taints(&self) -> Vec<Taint> {
        let may = |taint: &Taint| self.spec.waits_for_nobody(taint) || self.consent.may_add;
        self.spec.wanted_taints().into_iter().filter(may).collect()
    }

    /// The builds whose capability labels its nodes get: those of declared classes, and of the others as planned.
    pub(crate) fn images(&self) -> BTreeSet<Build> {
        let declared = self.spec.declared.iter().map(|(hosts, _)| hosts).filter(|hosts| hosts.is_by_label());
        declared.filter_map(|hosts| hosts.build()).chain(self.consent.images.iter().copied()).collect()
    }
}

/// `status.taints`, without entries that cannot be parsed.
pub(crate) fn managed_taints(status: Option<&WindowsPoolStatus>) -> Vec<Taint> {
    status.iter().flat_map(|status| &status.taints).filter_map(|listed| listed.taint.parse().ok()).collect()
}

/// The time at which winpool first added each of them to a node.
pub(crate) fn added_since(status: Option<&WindowsPoolStatus>) -> BTreeMap<Taint, Timestamp> {
    let listed = status.into_iter().flat_map(|status| &status.taints);
    listed.filter_map(|listed| Some((listed.taint.parse().ok()?, listed.since.as_ref()?.0))).collect()
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolEntry {
    pub pool: Arc<Pool>,
    /// True if its nodes may be written. While its RuntimeClasses are not ready, the pool keeps the nodes that it
    /// selects, so that no younger pool takes them, and does not change them.
    pub ready: bool,
}

/// The policy that nodes are assessed by: the valid pools, oldest first, and the taints that winpool may remove.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    entries: Vec<PoolEntry>,
    suspended: BTreeSet<String>,
    removable: BTreeSet<Taint>,
    /// By pool.
    demands: BTreeMap<String, u64>,
}

impl Policy {
    /// The policy of these pools. `suspended` are the names of pools that exist and are not valid: their nodes are
    /// left as they are.
    pub fn new(entries: impl IntoIterator<Item = PoolEntry>, suspended: BTreeSet<String>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|a, b| a.pool.spec.age().cmp(&b.pool.spec.age()));
        let removable = entries
            .iter()
            .map(|entry| &entry.pool)
            .flat_map(|pool| {
                [pool.spec.tolerated_taints.clone(), pool.spec.retired_taints.clone(), pool.managed_taints.clone()]
            })
            .flatten()
            .filter(|taint| !taint.has_foreign_key())
            .collect();
        let demands = entries.iter().map(|entry| (entry.pool.spec.name.clone(), demands(entry))).collect();
        Self { entries, suspended, removable, demands }
    }

    /// Identifies what a pool wants of its nodes, so that a conflict with another writer is over when it wants something
    /// else. It does not depend on the node: one that keeps changing what winpool follows is a conflict too.
    pub(crate) fn demands(&self, pool: Option<&str>) -> u64 {
        pool.and_then(|pool| self.demands.get(pool)).copied().unwrap_or_default()
    }

    /// The pools, oldest first.
    pub fn entries(&self) -> &[PoolEntry] {
        &self.entries
    }

    /// The same without their readiness.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.entries.iter().map(|entry| &entry.pool)
    }

    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools().find(|pool| pool.spec.name == name)
    }

    /// True if a pool with this name exists, valid or not, and is not about to be deleted.
    pub fn exists(&self, name: &str) -> bool {
        self.is_suspended(name) || self.pool(name).is_some_and(|pool| !pool.spec.deleting)
    }

    /// True if the first of these pools takes precedence over the second.
    pub fn is_older(&self, name: &str, than: &str) -> bool {
        let position = |name: &str| self.pools().position(|pool| pool.spec.name == name);
        matches!((position(name), position(than)), (Some(a), Some(b)) if a < b)
    }

    /// The enforcing pools that select a node with these labels, oldest first. The first one owns it.
    pub fn selecting(&self, labels: &Labels) -> impl Iterator<Item = &PoolEntry> {
        self.entries.iter().filter(|entry| entry.pool.spec.enforces() && entry.pool.spec.selects(labels))
    }

    /// True if a pool with this name exists and is not valid.
    pub fn is_suspended(&self, name: &str) -> bool {
        self.suspended.contains(name)
    }

    /// The owner of a node with these labels: the oldest enforcing pool that selects it.
    pub fn owner(&self, labels: &Labels) -> Option<&PoolEntry> {
        self.selecting(labels).next()
    }

    /// True if the pool owns a node with these labels, or would own it if it enforced.
    pub(crate) fn is_of(&self, pool: &Pool, labels: &Labels) -> bool {
        let is_it = |found: &Arc<Pool>| found.spec.name == pool.spec.name;
        self.owner(labels).is_some_and(|owner| is_it(&owner.pool)) || self.previews(labels).any(is_it)
    }

    /// The pools in dry run that select a node with these labels.
    pub fn previews(&self, labels: &Labels) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools().filter(|pool| pool.spec.mode == Mode::DryRun && !pool.spec.deleting && pool.spec.selects(labels))
    }

    /// All label keys that select nodes for a pool.
    pub fn selector_keys(&self) -> impl Iterator<Item = &str> {
        let keys: BTreeSet<&str> =
            self.pools().flat_map(|pool| pool.spec.node_selector.keys().map(String::as_str)).collect();
        keys.into_iter()
    }

    /// Sorts the Windows taints that pods on nodes of `pool` tolerate: first those that it wants, those that it retires, those
    /// that winpool may have added, and then known spellings. `None` for others, which a kubelet may have made up.
    pub(crate) fn precedence(&self, taint: &Taint, pool: &PoolSpec) -> Option<[bool; 3]> {
        let known = [&pool.tolerated_taints, &pool.retired_taints].map(|taints| taints.contains(taint));
        let known = [known[0], known[1], self.may_remove(taint)];
        (known.contains(&true) || is_known(&taint.key, &taint.value)).then(|| known.map(|is_known| !is_known))
    }

    /// True if winpool may have added this taint to a node. The node's annotation does not prove it, because a kubelet can write the
    /// annotation too.
    pub fn may_remove(&self, taint: &Taint) -> bool {
        self.removable.contains(taint)
    }
}

/// The number of Windows taints that a pod tolerates because winpool adds it: a node can have any number.
pub(crate) const TOLERATED: usize = 4;

fn demands(PoolEntry { pool, ready }: &PoolEntry) -> u64 {
    let (Pool { spec, consent, .. }, mut hasher) = (pool.as_ref(), DefaultHasher::new());
    (&spec.name, spec.enforces(), ready).hash(&mut hasher);
    (&spec.tolerated_taints, &spec.retired_taints, discriminant(&spec.taint_policy)).hash(&mut hasher);
    consent.may_add.hash(&mut hasher);
    pool.images().hash(&mut hasher);
    hasher.finish()
}

// Pools as they are watched. A pool that cannot be decoded must not stop the watch of the others.

/// A pool that may not decode, with its status. The status is read separately, because the taints that it records are
/// needed even if the spec cannot be read.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = WindowsPool)]
#[serde(from = "WirePool")]
pub struct GuardedPool {
    pub metadata: ObjectMeta,
    /// The pool, or the decoding error.
    pool: Result<WindowsPool, String>,
    /// Its spec, read once; or what is wrong with it.
    spec: Result<Arc<PoolSpec>, InvalidPool>,
    /// `status`, if it can be decoded.
    pub status: Option<WindowsPoolStatus>,
    /// An object with `status.taints` as the API server sent it, which guards the next status.
    pub recorded: Option<Value>,
}

/// A pool as the API server writes it. The CRD limits the depth of spec and status, which other releases may have written.
#[derive(Deserialize)]
struct WirePool {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl From<WirePool> for GuardedPool {
    fn from(WirePool { metadata, spec, status: written }: WirePool) -> Self {
        let status = readable(&written);
        let pool = WindowsPoolSpec::deserialize(spec).map_err(|error| error.to_string());
        let pool = pool.map(|spec| WindowsPool { metadata: metadata.clone(), spec, status: status.clone() });
        let recorded = written.is_object().then(|| json!({"taints": written.get("taints")}));
        Self { spec: spec_of(&metadata, &pool), metadata, pool, status, recorded }
    }
}

/// The status, or only the members and list items that this release can decode: another release may have written
/// others. The taints and uids that the status records must not be lost with them.
fn readable(status: &Value) -> Option<WindowsPoolStatus> {
    if let Ok(status) = WindowsPoolStatus::deserialize(status) {
        return Some(status);
    }
    let decodes = |key: &str, value: &Value| WindowsPoolStatus::deserialize(json!({ key: value })).is_ok();
    let members = status.as_object()?.iter().filter_map(|(key, value)| {
        let items =
            value.as_array().map(|items| items.iter().filter(|item| decodes(key, &json!([item]))).cloned().collect());
        let value = items.map_or_else(|| value.clone(), Value::Array);
        decodes(key, &value).then(|| (key.clone(), value))
    });
    WindowsPoolStatus::deserialize(Value::Object(members.collect())).ok()
}

/// The part of a status that guards the next one.
pub(crate) fn recorded(status: &WindowsPoolStatus) -> Value {
    json!({"taints": json!(status).get("taints")})
}

impl From<WindowsPool> for GuardedPool {
    fn from(pool: WindowsPool) -> Self {
        let status = pool.status.clone();
        let (metadata, recorded, pool) = (pool.metadata.clone(), status.as_ref().map(recorded), Ok(pool));
        Self { spec: spec_of(&metadata, &pool), metadata, recorded, status, pool }
    }
}

impl GuardedPool {
    /// The pool as it was decoded, or the decoding error.
    pub fn pool(&self) -> Result<&WindowsPool, &str> {
        self.pool.as_ref().map_err(String::as_str)
    }

    /// True if its status has the taints of this one: winpool acts on them as soon as they are recorded.
    pub(crate) fn records(&self, status: &WindowsPoolStatus) -> bool {
        self.status.as_ref().is_some_and(|stored| stored.taints == status.taints)
    }

    /// True if this status was stored but for its taints, or for fields of them.
    pub(crate) fn lost_taints_of(&self, status: &WindowsPoolStatus) -> bool {
        self.status.as_ref().is_some_and(|stored| stored.conditions == status.conditions)
    }

    /// True if the deletion of the pool waits for winpool.
    pub fn has_finalizer(&self) -> bool {
        has_finalizer(&self.metadata)
    }

    /// A pool of this name that does not exist, and so has no uid. It wants no taint, because nothing proves that winpool added
    /// one.
    pub fn missing(name: &str) -> Self {
        WindowsPool::new(name, WindowsPoolSpec { taints: Some(Vec::new()), ..WindowsPoolSpec::default() }).into()
    }

    /// The pool as if it were being deleted.
    pub fn deleted(&self) -> Self {
        let mut pool = self.clone();
        pool.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::UNIX_EPOCH));
        if let Ok(object) = &mut pool.pool {
            object.metadata = pool.metadata.clone();
        }
        Self { spec: spec_of(&pool.metadata, &pool.pool), ..pool }
    }

    /// The pool in the form that plans use.
    ///
    /// # Errors
    /// Fails if it cannot be decoded, or as [`PoolSpec::read`] does.
    pub fn read(&self) -> Result<Pool, InvalidPool> {
        Ok(Pool::new(Arc::clone(self.spec.as_ref().map_err(Clone::clone)?), self.status.as_ref()))
    }
}

/// True if the deletion of the object waits for winpool.
pub fn has_finalizer(object: &ObjectMeta) -> bool {
    object.finalizers.iter().flatten().any(|finalizer| finalizer == names::CLEANUP)
}

fn spec_of(metadata: &ObjectMeta, pool: &Result<WindowsPool, String>) -> Result<Arc<PoolSpec>, InvalidPool> {
    match pool {
        Ok(pool) => PoolSpec::read(pool).map(Arc::new),
        // It wants no taint. The taints that its status records still count, and it has the finalizer if it was to clean up.
        Err(_) if metadata.deletion_timestamp.is_some() => {
            let deletion_policy = if has_finalizer(metadata) { DeletionPolicy::Delete } else { DeletionPolicy::Retain };
            let spec = WindowsPoolSpec { taints: Some(Vec::new()), deletion_policy, ..WindowsPoolSpec::default() };
            PoolSpec::read(&WindowsPool { metadata: metadata.clone(), spec, status: None }).map(Arc::new)
        }
        Err(error) => {
            let name = metadata.name.clone().unwrap_or_default();
            Err(InvalidPool { name, errors: vec![format!("spec: {error}")] })
        }
    }
}

/// The valid pools, and the names of the others.
pub fn read_all<P: Borrow<GuardedPool>>(pools: &[P]) -> (Vec<Arc<Pool>>, BTreeSet<String>) {
    let (mut valid, mut invalid) = (Vec::new(), BTreeSet::new());
    for guarded in pools {
        match guarded.borrow().read() {
            Ok(pool) => valid.push(Arc::new(pool)),
            Err(error) => drop(invalid.insert(error.name)),
        }
    }
    (valid, invalid)
}

/// The policy of these pools. It assumes that all of their RuntimeClasses are ready.
pub fn policy_of<P: Borrow<GuardedPool>>(pools: &[P]) -> Policy {
    let (valid, invalid) = read_all(pools);
    Policy::new(valid.into_iter().map(|pool| PoolEntry { pool, ready: true }), invalid)
}
