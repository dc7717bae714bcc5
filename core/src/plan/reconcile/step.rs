//! What the loop of a pool sees, what it says is to be done, and what it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use serde_json::Value;

use crate::{
    api::{Problem, Taint, WindowsPoolStatus},
    windows::KubernetesVersion,
};

use super::super::{
    Admission, Assessment, Autoscalers, ClassUsers, FieldChange, GuardedPool, Node, PlannedClass, Policy, Tally,
    Watched,
};

/// What the caches show of a cluster.
pub struct Cluster<'a> {
    /// All pools.
    pub pools: &'a [Arc<GuardedPool>],
    /// All RuntimeClasses.
    pub classes: &'a [Arc<RuntimeClass>],
    /// What the nodes of a pool add up to, judged by [`Memory::policy`](super::Memory::policy).
    pub tally: &'a dyn Fn(&str) -> Tally,
    /// Shows every Windows node.
    pub nodes: &'a ShowNodes<'a>,
    /// Whether the API server refuses the change of a node, or another writer keeps reverting it.
    pub is_blocked: &'a dyn Fn(&str, &Assessment) -> bool,
    /// Whether no node patch is under way that was planned by an older policy.
    pub settled: bool,
    /// What the control plane tells of itself.
    pub control_plane: ControlPlaneInfo,
}

/// Shows nodes, one after the other.
pub type ShowNodes<'a> = dyn Fn(&mut dyn FnMut(SeenNode<'_>)) + 'a;

/// A Windows node in the cache.
#[derive(Clone, Copy)]
pub struct SeenNode<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// What winpool reads of it.
    pub node: &'a Node,
    /// Its past.
    pub watched: &'a Watched,
}

/// What the control plane tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlaneInfo {
    /// Its version; `None` as long as it could not be read.
    pub kubernetes: Option<KubernetesVersion>,
    /// The admission policies of winpool's that are installed.
    pub admission: Admission,
    /// What Karpenter knows of nodes that do not exist yet; empty where winpool has no permission to read it.
    pub autoscalers: Autoscalers,
}

/// A moment, for pauses and for people.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On the monotonic clock.
    pub instant: Instant,
    /// On the wall clock.
    pub time: Timestamp,
}

/// What to do next for a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Judge the nodes by [`Memory::policy`](super::Memory::policy), then ask again.
    Judge,
    /// Read the metadata of the pool from the API server, to see whether the cache has this version.
    ReadPool {
        /// `metadata.uid`.
        uid: Option<String>,
        /// `metadata.resourceVersion`.
        version: Option<String>,
    },
    /// Put winpool's finalizer on the pool, or take it off.
    SetFinalizer(bool),
    /// Count the pods of these classes. `taints` are those that they have to tolerate.
    FindUsers {
        /// Names of RuntimeClasses.
        classes: BTreeSet<String>,
        /// What pods of the classes have to tolerate.
        taints: Vec<Taint>,
    },
    /// Read or write a RuntimeClass.
    Class(Box<ClassStep>),
    /// List the nodes that carry the pool's label, whatever system they run, without those that are ignored.
    ListMarkedNodes,
    /// Write the pool's status.
    WriteStatus {
        /// All of it.
        status: Box<WindowsPoolStatus>,
        /// Of the one that it replaces, what the patch tests; `None` if there is none.
        seen: Option<Value>,
        /// The problems that the one before does not have.
        news: Vec<Problem>,
    },
    /// Let nodes be judged by this policy.
    Publish(Arc<Policy>),
    /// Nothing, until something changes or this moment has come.
    Wait(Option<Instant>),
}

impl Step {
    /// The step; if it is a wait, one that ends at this moment at the latest.
    pub(super) fn at_latest(self, moment: Instant) -> Self {
        match self {
            Self::Wait(until) => Self::Wait(until.into_iter().chain([moment]).min()),
            step => step,
        }
    }
}

/// A request about one RuntimeClass, and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassStep {
    /// `metadata.name`.
    pub name: String,
    /// What to send.
    pub request: ClassRequest,
    /// What the pool wants of the class; `None` if the pool gives it up.
    pub planned: Option<PlannedClass>,
    /// The class that the request was computed from.
    pub current: Option<Arc<RuntimeClass>>,
    /// The version in the cache.
    pub cached: Option<String>,
}

/// A request about one RuntimeClass.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRequest {
    /// Read it.
    Read,
    /// Create it.
    Create(Box<RuntimeClass>),
    /// Create it with `dryRun=All`, to see whether that would be allowed. Under a name that is taken, 409 says so too.
    TryCreate(Box<RuntimeClass>),
    /// Patch it, only if it is still the object that was read.
    Patch {
        /// `metadata.uid`.
        uid: String,
        /// `metadata.resourceVersion`.
        version: String,
        /// What to write.
        changes: Vec<FieldChange>,
    },
    /// Delete it, only if it is still the object that was read.
    Delete(Box<RuntimeClass>),
}

/// What came of a step.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// The metadata of the pool; `None` if there is none.
    Pool(Option<Box<ObjectMeta>>),
    /// The users of classes, or why pods cannot be listed.
    Users(Result<BTreeMap<String, ClassUsers>, String>),
    /// The RuntimeClass as it is now; `None` if there is none.
    Class(Option<Arc<RuntimeClass>>),
    /// The names of nodes.
    Nodes(BTreeSet<String>),
    /// It was not accepted.
    Refused(Refusal),
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The object is not what the request was computed from, or exists already.
    Conflict,
    /// The object is gone.
    Gone,
    /// The API server, or a policy in it, refuses the request, and will refuse it again.
    Denied(String),
    /// The API server failed, or did not answer in time.
    Failed(String),
}

/// Something to tell people, apart from status.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A RuntimeClass was written: `RuntimeClassCreated` and so on, and the fields.
    ClassWritten(String, &'static str, Vec<String>),
    /// A RuntimeClass is not written for a while.
    ClassPostponed(String, Problem, Duration),
    /// A RuntimeClass was deleted.
    ClassDeleted(String),
    /// Something stays as it is although the pool goes or does not want it: reason, object and message.
    Left(&'static str, String, String),
    /// The finalizer was put on, or taken off.
    FinalizerWritten(bool),
    /// The pool is cleaned up.
    CleanedUp,
    /// The API server refuses the status of the pool: what is wrong with the pool, or else the API server's words.
    StatusRefused(String),
    /// A new problem of the pool.
    Problem(Problem),
}
