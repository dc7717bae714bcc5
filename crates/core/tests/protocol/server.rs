//! The API server of the model: the results of requests, and their effects on workloads.

use std::collections::BTreeSet;

use json_patch::{Patch, PatchOperation};
use kube::ResourceExt;
use serde_json::Value;
use winpool_core::api::{Taint, TaintStatus, WindowsPoolStatus, names};
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::classes::runtime_class::{lacks_tolerations, owner};
use winpool_core::plan::nodes::NodeAnswer;
use winpool_core::plan::patch::{finalizer_patch, status_patch};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::plan::reconcile::{Answer, ClassRequest, Step};
use winpool_simulation::request::{self, apply};

use super::cluster::{self, Class, Node, PoolObject, Work};
use super::model::{Break, Fault, Write};
use super::operator::{NodePatch, Pods};
use super::shared::fingerprint;
use super::state::{PAUSE, SentPatch, State, Turn, World};

impl State {
    /// The request for this pool arrives, or meets a fault. `None` if it cannot meet that fault.
    pub fn answer(&mut self, pool: &'static str, fault: Option<Fault>, broken: Break) -> Option<()> {
        let (step, sent) = self.process.requests.get(pool)?.clone();
        let kind = match &step {
            Step::SetFinalizer(_) => Some(Write::Finalizer),
            Step::WriteStatus { .. } => Some(Write::Status),
            Step::Class(_) => Some(Write::Class),
            _ => None,
        };
        self.notice_deletion(&step);
        let mut execute = || self.world.execute(pool, &step, &sent, broken);
        let lost = || Answer::Refused(RequestError::failed("no answer"));
        let answer = match fault {
            None => execute(),
            Some(Fault::Fails(write)) if Some(write) == kind => lost(),
            Some(Fault::Lost(write)) if Some(write) == kind => {
                execute();
                lost()
            }
            Some(Fault::Denied(write)) if Some(write) == kind => {
                Answer::Refused(RequestError::Denied("a policy".to_owned()))
            }
            Some(_) => return None,
        };
        self.faults.retain(|left| Some(*left) != fault);
        let key = fingerprint(&answer, self.process.now);
        self.turn(Turn::Answer(pool, key), |process| process.answer(pool, answer));
        Some(())
    }

    /// Records if a class is deleted although the watch of pods has shown a pod that uses it, or has shown nothing yet.
    fn notice_deletion(&mut self, step: &Step) {
        let Step::Class(class) = step else { return };
        let uses = |work: &Work| work.class == Some(class.name.as_str());
        let was_shown = match &self.process.pods {
            Pods::Seen(works) => works.iter().any(uses),
            Pods::Unlisted | Pods::Denied => true,
        };
        let is_deletion = matches!(class.request, ClassRequest::Delete(_));
        self.deletes_in_use |= is_deletion && was_shown && self.world.works.iter().any(uses);
    }

    /// The request for this node arrives, or meets a fault. `None` if it cannot meet that fault.
    pub fn answer_node(&mut self, node: &'static str, fault: Option<Fault>, most: Option<usize>) -> Option<()> {
        let (_, request) = self.process.node_requests.get(node)?.clone();
        let answer = match fault {
            None => self.deliver(node, &request, most),
            Some(Fault::Lost(Write::Node)) => {
                self.deliver(node, &request, most);
                NodeAnswer::Refused(RequestError::failed("timed_out"))
            }
            Some(Fault::Fails(Write::Node)) => NodeAnswer::Refused(RequestError::failed("failed")),
            Some(Fault::Denied(Write::Node)) => NodeAnswer::Refused(RequestError::Denied("a policy".to_owned())),
            Some(Fault::Conflicts(Write::Node)) => NodeAnswer::Refused(RequestError::Conflict),
            Some(_) => return None,
        };
        self.faults.retain(|left| Some(*left) != fault);
        self.turn(Turn::AnswerNode(node, fingerprint(&answer, self.process.now)), |process| {
            process.node_answered(node, answer);
        });
        Some(())
    }

    /// Executes the request for a node.
    pub fn deliver(&mut self, name: &'static str, request: &NodePatch, most: Option<usize>) -> NodeAnswer {
        let NodePatch { operations, known, from } = request;
        let Some(had) = self.world.nodes.truth().get(name).cloned() else {
            return NodeAnswer::Refused(RequestError::Gone);
        };
        let Ok(object) = apply(&had.object, &Patch(operations.clone())) else {
            return NodeAnswer::Refused(RequestError::Stale);
        };
        let changes = operations.iter().filter(|operation| !matches!(operation, PatchOperation::Test(_)));
        let changes: Vec<_> = changes.collect();
        let of_taints = |change: &&PatchOperation| change.path().as_str() == "/spec/taints";
        let is_refused = self.world.refuses_taints && changes.iter().any(of_taints);
        let object = if self.world.reverts_taints { with_taints_of(&had.object, object) } else { object };
        let has_effect = !is_refused && object != had.object;
        // Another write, such as a heartbeat, hides that the patch changes nothing.
        if has_effect || is_refused || *from == had.seen.resource_version {
            self.count_patch(name, fingerprint(&changes, self.process.now), !has_effect, most);
        }
        if is_refused {
            return NodeAnswer::Refused(RequestError::Denied("a policy refuses taints".to_owned()));
        }
        if has_effect {
            self.execute_patch(name, &had, object, known);
        }
        let after = self.world.nodes.truth().get(name);
        NodeAnswer::Written(after.map(|node| node.seen.resource_version.clone()))
    }

    /// Records if winpool sends a refused change again, or writes a node too often.
    fn count_patch(&mut self, node: &'static str, changes: u128, is_refused: bool, most: Option<usize>) {
        let Some(patches) = &mut self.world.patches else { return };
        let sent = SentPatch { node, changes, is_refused, age: 0 };
        let mut before = patches.iter().filter(|before| before.node == node && before.is_refused == is_refused);
        self.insists |= if is_refused {
            before.any(|before| before.changes == changes && before.age < PAUSE)
        } else {
            most.is_some_and(|most| before.count() >= most)
        };
        patches.push(sent);
    }

    fn execute_patch(&mut self, name: &'static str, had: &Node, object: Value, known: &Pods) {
        let before = self.world.nodes.truth().clone();
        let node = cluster::node(object);
        let is_tainted = node.own.iter().any(|taint| !had.own.contains(taint));
        let build = node.seen.node.labels.get(names::WINDOWS_BUILD);
        let is_written = build.is_some() && build != had.seen.node.labels.get(names::WINDOWS_BUILD);
        self.is_mislabelled |= is_written && build.map(str::to_owned) != reported_build(&node);
        self.world.put_node(name, &node);
        self.accepted += 1;
        let after = self.world.nodes.truth().clone();
        let works = match known {
            Pods::Seen(works) => works,
            Pods::Unlisted | Pods::Denied => &self.world.works,
        };
        let loses_node = |work: &Work| work.objects(had) && work.has_node(&before) && !work.has_node(&after);
        self.loses_daemon_set |= is_tainted && works.iter().any(loses_node);
        self.notice_class_behind(name, &had.own);
    }

    /// Records if the node has a taint of winpool's, beside those in `before`, that a class of the wanting pool does
    /// not tolerate. A taint that no pool wants any more may arrive late; it is removed again.
    pub fn notice_class_behind(&mut self, node: &str, before: &[Taint]) {
        let Some(node) = self.world.nodes.truth().get(node) else { return };
        let pools = self.world.pools.truth().values().filter_map(|facts| facts.pool.as_ref());
        let Some(pool) = pools
            .filter(|pool| pool.spec.enforces() && pool.spec.selects(&node.seen.node.labels))
            .min_by_key(|pool| pool.spec.created)
        else {
            return;
        };
        let wanted = &pool.spec.tolerated_taints;
        let added: Vec<&Taint> =
            node.own.iter().filter(|taint| !before.contains(taint) && wanted.contains(taint)).collect();
        let selects = |class: &&Class| {
            let selector = class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.as_ref());
            owner(class) == Some(&pool.spec.name)
                && selector.is_some_and(|selector| node.seen.node.labels.matches(selector))
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
            Step::Class(class) => self.request_class(&class.name, &class.request),
            Step::ListLabelledNodes if broken == Break::BlindDeletion => Answer::Nodes(BTreeSet::new()),
            Step::ListLabelledNodes => {
                let nodes = self.nodes.truth().iter().filter(|(_, node)| {
                    node.seen.node.labels.get(names::POOL) == Some(pool)
                        && node.seen.node.ignore.as_deref() != Some("true")
                });
                Answer::Nodes(nodes.map(|(name, _)| (*name).to_owned()).collect())
            }
            Step::WriteStatus { status, seen, .. } => {
                let mut status = WindowsPoolStatus::clone(status);
                if broken == Break::EarlyRegistration {
                    status.taints = all_at_registration(sent);
                }
                let uid = metadata.uid.clone().unwrap_or_default();
                let mut patch = status_patch(&uid, seen.as_ref(), &status);
                if broken == Break::UnguardedStatus {
                    patch.0.remove(1);
                }
                self.write_pool(pool, &patch)
            }
            Step::Publish(_) | Step::Wait(_) => Answer::Done,
        }
    }

    fn write_pool(&mut self, name: &'static str, patch: &Patch) -> Answer {
        let mut pools = self.pools.truth().clone();
        let Some(pool) = pools.get(name) else { return Answer::Refused(RequestError::Gone) };
        let Ok(object) = apply(&pool.object, patch) else { return Answer::Refused(RequestError::Conflict) };
        let has_finalizer =
            object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        let after = cluster::pool(object);
        let answer = Answer::Written(Box::new(GuardedPool::clone(&after.guarded)));
        if after.is_deleting() && !has_finalizer {
            pools.remove(name);
        } else {
            pools.insert(name, after);
        }
        self.pools.push(pools);
        answer
    }

    fn request_class(&mut self, name: &str, request: &ClassRequest) -> Answer {
        let current = self.classes.truth().get(name).cloned();
        self.made += usize::from(matches!(request, ClassRequest::Create(_)));
        let uid = format!("{name}-{}", self.made);
        let after = match request::class(request, current.as_deref().map(AsRef::as_ref), uid) {
            Err(refusal) => return Answer::Refused(refusal),
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

/// The object with the taints of `before`.
fn with_taints_of(before: &Value, mut object: Value) -> Value {
    let spec = object["spec"].as_object_mut().unwrap();
    match before.pointer("/spec/taints") {
        Some(taints) => drop(spec.insert("taints".to_owned(), taints.clone())),
        None => drop(spec.remove("taints")),
    }
    object
}

fn reported_build(node: &Node) -> Option<String> {
    let version = node.seen.node.kernel_version.as_ref()?.version?;
    Some(version.build.to_string())
}

fn all_at_registration(pool: &PoolObject) -> Vec<TaintStatus> {
    let wanted = pool.pool.iter().flat_map(|pool| pool.spec.tolerated_taints.clone());
    let status =
        |taint: Taint| TaintStatus { taint: taint.to_string(), at_registration: true, ..TaintStatus::default() };
    wanted.map(status).collect()
}
