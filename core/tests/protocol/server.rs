//! The API server of the model: the results of requests, and their effects on workloads.

use std::collections::BTreeSet;

use json_patch::Patch;
use kube::ResourceExt;
use serde_json::Value;
use winpool_core::{
    api::{ApprovedTaint, Taint, WindowsPoolStatus, names},
    plan::{
        ClassUsers, finalizer_patch, lacks_tolerations, owner,
        reconcile::{Answer, ClassRequest, Refusal, Step},
        status_patch,
    },
};

use super::{
    cluster::{self, Class, PoolObject, TODAY, Work},
    model::{Break, Fault, Write},
    operator::NodePatch,
    shared::fingerprint,
    state::{State, Turn, World},
};
use crate::common::apply;

impl State {
    /// The request for this pool arrives, or meets a fault. `None` if it cannot meet that fault.
    pub fn answer(&mut self, pool: &'static str, fault: Option<Fault>, broken: Break) -> Option<()> {
        let (step, sent) = self.process.requests.get(pool)?.clone();
        let kind = match &step {
            Step::SetFinalizer(_) => Some(Write::Finalizer),
            Step::WriteStatus { .. } => Some(Write::Status),
            Step::Class(class) if class.request != ClassRequest::Read => Some(Write::Class),
            _ => None,
        };
        let mut execute = || self.world.execute(pool, &step, &sent, broken);
        let lost = || Answer::Refused(Refusal::Failed("no answer".to_owned()));
        let answer = match fault {
            None => execute(),
            Some(Fault::Fails(write)) if Some(write) == kind => lost(),
            Some(Fault::Lost(write)) if Some(write) == kind => {
                execute();
                lost()
            }
            Some(Fault::Denied(write)) if Some(write) == kind => {
                Answer::Refused(Refusal::Denied("a policy".to_owned()))
            }
            Some(_) => return None,
        };
        self.faults.retain(|left| Some(*left) != fault);
        let key = fingerprint(&answer, self.process.now);
        self.turn(Turn::Answer(pool, key), |process| process.answer(pool, answer));
        Some(())
    }

    /// The patch of this node arrives, or meets a fault.
    pub fn patch(&mut self, node: &'static str, fault: Option<Fault>) -> Option<()> {
        let patch = self.process.patches.get(node)?.clone();
        let mut fresh = None;
        match fault {
            None => {
                if self.deliver_patch(node, &patch).is_none() {
                    fresh = self.world.nodes.truth().get(node).cloned();
                }
            }
            Some(Fault::Lost(Write::Node)) => self.deliver_patch(node, &patch).unwrap_or_default(),
            Some(Fault::Fails(Write::Node) | Fault::Denied(Write::Node)) => {}
            Some(_) => return None,
        }
        self.faults.retain(|left| Some(*left) != fault);
        let is_refused = fault == Some(Fault::Denied(Write::Node));
        self.turn(Turn::Patched(node, fresh.clone(), is_refused), |process| {
            process.patched(node, fresh.as_ref(), is_refused);
        });
        self.promise_by_patch(node);
        Some(())
    }

    /// Applies a node patch, if its tests pass.
    pub fn deliver_patch(&mut self, name: &'static str, patch: &NodePatch) -> Option<()> {
        let (before, classes) = (self.world.nodes.truth().clone(), self.world.classes.truth().clone());
        let had = before.get(name)?;
        let node = cluster::node(apply(&had.object, &Patch(patch.patch.clone())).ok()?);
        let is_tainted = node.own.iter().any(|taint| !had.own.contains(taint));
        self.world.put_node(name, node);
        self.accepted += 1;
        let after = self.world.nodes.truth().clone();
        let loses_node = |work: &&Work| {
            let is_promised = work.age == cluster::SETTLED || patch.is_checked && work.known.by_patch;
            is_promised && work.has_node(&before, &classes) && !work.has_node(&after, &classes)
        };
        if let Some(work) = self.world.works.iter().find(loses_node).filter(|_| is_tainted) {
            self.unschedulable = Some(work.name);
        }
        self.notice_class_behind(name, &had.own);
        Some(())
    }

    /// Records if the node has a taint of winpool's, beside those in `before`, that a class of the wanting pool does
    /// not tolerate. A taint that no pool wants any more may arrive late; it is removed again.
    pub fn notice_class_behind(&mut self, node: &str, before: &[Taint]) {
        let Some(node) = self.world.nodes.truth().get(node) else { return };
        let pools = self.world.pools.truth().values().filter_map(|facts| facts.pool.as_ref());
        let Some(pool) =
            pools.filter(|pool| pool.enforces() && pool.selects(&node.seen.labels)).min_by_key(|pool| pool.created)
        else {
            return;
        };
        let wanted = pool.wanted_taints();
        let added: Vec<&Taint> =
            node.own.iter().filter(|taint| !before.contains(taint) && wanted.contains(taint)).collect();
        let selects = |class: &&Class| {
            let selector = class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.as_ref());
            owner(class) == Some(&pool.name) && selector.is_some_and(|selector| node.seen.labels.matches(selector))
        };
        let mut classes = self.world.classes.truth().values().filter(selects);
        self.class_behind |= classes.any(|class| lacks_tolerations(class, added.iter().copied()));
    }
}

impl World {
    fn execute(&mut self, pool: &'static str, step: &Step, sent: &PoolObject, broken: Break) -> Answer {
        let metadata = &sent.guarded.metadata;
        match step {
            Step::ReadPool { .. } if matches!(broken, Break::TrustsOldCaches | Break::UnguardedStatus) => {
                Answer::Pool(Some(Box::new(metadata.clone())))
            }
            Step::ReadPool { .. } => {
                let found = self.pools.truth().get(pool);
                Answer::Pool(found.map(|found| Box::new(found.guarded.metadata.clone())))
            }
            Step::SetFinalizer(wanted) => self.write_pool(pool, &finalizer_patch(metadata, *wanted)),
            Step::FindUsers { classes, taints } => {
                let pods: Vec<_> = self.works.iter().filter_map(Work::pod).collect();
                Answer::Users(Ok(ClassUsers::count(&pods, classes, taints)))
            }
            Step::Class(class) => self.request_class(&class.name, &class.request),
            Step::ListMarkedNodes if broken == Break::BlindDeletion => Answer::Nodes(BTreeSet::new()),
            Step::ListMarkedNodes => {
                let nodes = self.nodes.truth().iter().filter(|(_, node)| {
                    node.seen.labels.get(names::POOL) == Some(pool) && node.seen.ignore.as_deref() != Some("true")
                });
                Answer::Nodes(nodes.map(|(name, _)| (*name).to_owned()).collect())
            }
            Step::WriteStatus { status, seen, .. } => {
                let mut status = WindowsPoolStatus::clone(status);
                if broken == Break::EarlyApproval {
                    status.approved_taints = all_approved(sent);
                }
                let uid = metadata.uid.clone().unwrap_or_default();
                let mut patch = status_patch(&uid, seen.as_ref(), &status);
                if broken == Break::UnguardedStatus {
                    patch.0.remove(1);
                }
                self.write_pool(pool, &patch)
            }
            Step::Judge | Step::Publish(_) | Step::Wait(_) => Answer::Done,
        }
    }

    fn write_pool(&mut self, name: &'static str, patch: &Patch) -> Answer {
        let mut pools = self.pools.truth().clone();
        let Some(pool) = pools.get(name) else { return Answer::Refused(Refusal::Gone) };
        let Ok(object) = apply(&pool.object, patch) else { return Answer::Refused(Refusal::Conflict) };
        let has_finalizer =
            object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        let after = cluster::pool(object);
        if after.is_deleting() && !has_finalizer {
            pools.remove(name);
        } else {
            pools.insert(name, after);
        }
        self.pools.push(pools);
        Answer::Done
    }

    fn request_class(&mut self, name: &str, request: &ClassRequest) -> Answer {
        let current = self.classes.truth().get(name).cloned();
        self.made += usize::from(matches!(request, ClassRequest::Create(_)));
        let after = match request.apply(current.as_deref().map(AsRef::as_ref), format!("{name}-{}", self.made)) {
            Err(refusal) => return Answer::Refused(refusal),
            Ok(after) if request.is_a_question() => return Answer::Class(after.map(Into::into)),
            Ok(after) => after,
        };
        let mut classes = self.classes.truth().clone();
        let answer = if let Some(mut class) = after {
            let version = current.as_deref().and_then(|class| class.resource_version()?.parse().ok());
            class.metadata.resource_version = Some((version.unwrap_or(0_usize) + 1).to_string());
            let class = cluster::class(&class);
            classes.insert(name.to_owned(), class.clone());
            Answer::Class(Some(std::sync::Arc::clone(&class)))
        } else {
            classes.remove(name);
            Answer::Done
        };
        self.classes.push(classes);
        answer
    }
}

fn all_approved(pool: &PoolObject) -> Vec<ApprovedTaint> {
    let wanted = pool.pool.iter().flat_map(winpool_core::plan::Pool::wanted_taints);
    let since = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(TODAY);
    wanted.map(|taint| ApprovedTaint { taint: taint.to_string(), since: since.clone() }).collect()
}
