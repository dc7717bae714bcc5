//! The interface of the pool loop: its input, its steps and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::Value;

use crate::api::{Problem, WindowsPoolStatus};
use crate::plan::attempt::{Outage, RequestError};
use crate::plan::classes::runtime_class::PlannedClass;
use crate::plan::nodes::table::NodeTable;
use crate::plan::patch::{FieldChange, REVERTED};
use crate::plan::pods::failures::PodHealth;
use crate::plan::pods::table::{PodTable, UnknownPods};
use crate::plan::pools::objector::Objector;
use crate::plan::pools::pool::{GuardedPool, Policy, Pool};

/// The cluster, as the caches show it.
pub struct CachedCluster<'a> {
    pub pools: &'a [Arc<GuardedPool>],
    pub classes: &'a [Arc<RuntimeClass>],
    pub nodes: &'a mut NodeTable,
    /// The reason why it is not known that a policy confines winpool's permission to patch pods; `None` if it is, or if
    /// winpool runs outside of the cluster.
    pub unconfined: Option<String>,
    /// The kinds whose lists or watches fail, in the plural.
    pub outages: BTreeMap<&'static str, Outage>,
    /// The pods, or the reason why winpool does not know them.
    pub pods: Result<&'a PodTable, UnknownPods>,
    /// The reason why winpool does not know the `DaemonSets`, if it does not.
    pub unknown_daemon_sets: Option<UnknownPods>,
    /// What was last counted of them.
    pub health: PodHealth,
}

impl CachedCluster<'_> {
    /// The `DaemonSets` for Windows, or the reason why winpool does not know them.
    pub(crate) fn objectors(&self) -> Result<&'_ Arc<Vec<Objector>>, &UnknownPods> {
        let table = self.pods.as_ref()?;
        match &self.unknown_daemon_sets {
            Some(unknown) => Err(unknown),
            None => table.objectors.as_ref().ok_or(&UnknownPods::NotListed),
        }
    }

    /// True if pods were not looked at for this pool as it is now, so that it is not known which of them lack tolerations.
    pub(crate) fn has_yet_to_look_for(&self, pool: &Pool) -> bool {
        let is_unseen = |table: &&PodTable| !table.windows.has_pool(&pool.spec);
        pool.spec.adds_tolerations() && self.pods.as_ref().is_ok_and(is_unseen)
    }

    /// True if winpool sees the pods and DaemonSets, and the API server confines what it may do with pods.
    pub(crate) fn may_add_taints(&self) -> bool {
        self.objectors().is_ok() && self.unconfined.is_none()
    }

    /// The kinds that cannot be read, with the reasons. What the caches show of them is old.
    pub(crate) fn unreadable(&self, now: Instant) -> BTreeMap<&'static str, String> {
        let outages = self.outages.iter().filter(|(_, outage)| outage.counts(now));
        outages.map(|(kind, outage)| (*kind, outage.message.clone())).collect()
    }
}

/// The next step for a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the metadata of the pool from the API server, to see if the cache has this version.
    ReadPool { uid: Option<String>, version: Option<String> },
    /// Add winpool's finalizer to the pool, or remove it.
    SetFinalizer(bool),
    /// Write a RuntimeClass.
    Class(Box<ClassStep>),
    /// List the nodes with the pool's label, with any operating system, except ignored ones.
    ListLabelledNodes,
    /// Write the pool's status.
    WriteStatus {
        status: Box<WindowsPoolStatus>,
        /// The part of the present status that the patch tests; `None` if there is no status.
        seen: Option<Value>,
        /// Notes about the changes in it: problems, and taints that are held or no longer held.
        news: Vec<Note>,
    },
    /// Let nodes be assessed by this policy.
    Publish(Arc<Policy>),
    /// Do nothing until something changes or this moment has come.
    Wait(Option<Instant>),
}

impl Step {
    /// Returns the step; a wait ends at this moment at the latest.
    pub(crate) fn at_latest(self, moment: impl Into<Option<Instant>>) -> Self {
        match self {
            Self::Wait(until) => Self::Wait(until.into_iter().chain(moment.into()).min()),
            step => step,
        }
    }
}

/// A request about one RuntimeClass, with its context.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassStep {
    pub name: String,
    pub request: ClassRequest,
    /// The class that the pool wants; `None` if the pool gives it up.
    pub planned: Option<PlannedClass>,
    /// The reason why the class is released, if it is.
    pub released: Option<String>,
    /// The class in the cache, from which the request was computed.
    pub current: Option<Arc<RuntimeClass>>,
}

/// A request about one RuntimeClass.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRequest {
    Create(Box<RuntimeClass>),
    /// Patch it, if it is still the object that was read.
    Patch {
        uid: String,
        version: String,
        changes: Vec<FieldChange>,
    },
    /// Delete it, if it is still the object that was read.
    Delete(Box<RuntimeClass>),
}

/// The answer to a step.
#[derive(Clone, Debug)]
pub enum Answer {
    Done,
    /// The pool after an accepted write of it.
    Written(Box<GuardedPool>),
    /// The metadata of the pool; `None` if it does not exist.
    Pool(Option<Box<ObjectMeta>>),
    /// The present RuntimeClass; `None` if it does not exist.
    Class(Option<Arc<RuntimeClass>>),
    /// The names of nodes.
    Nodes(BTreeSet<String>),
    /// The request was not accepted.
    Refused(RequestError),
}

/// The reason for which winpool adds no taint although the API server accepted the status.
pub(crate) const NOT_STORED: &str = "the API server does not store status.taints with all fields, such as since, and winpool adds \
                                     no taint that it cannot record there; apply the CustomResourceDefinition of this version, and exclude winpool's \
                                     ServiceAccount from webhooks that remove the field";

impl Answer {
    /// The answer as it counts: a write that is accepted and changes nothing is refused.
    pub(crate) fn in_effect(self, step: &Step) -> Self {
        let is_reverted = match (step, &self) {
            (Step::SetFinalizer(wanted), Self::Written(pool)) => pool.has_finalizer() != *wanted,
            (Step::WriteStatus { status, .. }, Self::Written(pool)) => !pool.records(status),
            (Step::Class(class), Self::Class(Some(after))) => match &class.request {
                ClassRequest::Patch { version, .. } => after.resource_version().as_ref() == Some(version),
                _ => false,
            },
            _ => false,
        };
        match (step, self) {
            (Step::WriteStatus { status, .. }, Self::Written(pool)) if is_reverted && pool.lost_taints_of(status) => {
                Self::Refused(RequestError::failed(NOT_STORED))
            }
            _ if is_reverted => Self::Refused(RequestError::Denied(REVERTED.to_owned())),
            (_, answer) => answer,
        }
    }
}

/// A note for logs and Events.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A RuntimeClass was written: `RuntimeClassCreated` and so on, and the fields.
    ClassWritten(String, &'static str, Vec<String>),
    /// A RuntimeClass is not written for a while.
    ClassPostponed(Problem, Duration),
    ClassDeleted(String),
    /// winpool no longer manages a RuntimeClass that the pool does not want, and does not delete it, for this reason.
    ClassReleased(String, String),
    /// An object stays as it is although the pool is deleted or does not want it.
    Left(Problem),
    /// The finalizer was added (true) or removed.
    FinalizerWritten(bool),
    CleanedUp,
    Problem(Problem),
    /// The condition `TaintsApplied` of the pool is True, with this message.
    TaintsApplied(String),
}
