//! What the API server in memory does with a request.

use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::json;
use winpool_core::{
    api::names,
    plan::{
        ClassUsers, Policy,
        reconcile::{Answer, ClassRequest, Refusal, Step},
        runtime_class_patch,
    },
};

use crate::{cluster::World, common::apply};

impl World {
    pub fn execute(&mut self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Judge | Step::Wait(_) => Answer::Done,
            Step::ReadPool { .. } => {
                let found = self.pools.iter().find(|found| found.name_any() == pool);
                Answer::Pool(found.map(|found| Box::new(found.metadata.clone())))
            }
            Step::SetFinalizer(wanted) => {
                self.update_pool(pool, |pool| {
                    pool.metadata.finalizers = wanted.then(|| vec![names::CLEANUP.to_owned()]);
                });
                self.pools.retain(|pool| !pool.is_being_deleted() || pool.has_finalizer());
                Answer::Done
            }
            Step::FindUsers { classes, taints } => Answer::Users(
                self.pods.as_ref().map(|pods| ClassUsers::count(pods, classes, taints)).map_err(Clone::clone),
            ),
            Step::Class(name, request) => self.request(name, request),
            Step::ListMarkedNodes => {
                let marked = self.nodes.iter().filter(|(_, node)| node.labels.get(names::POOL) == Some(pool));
                Answer::Nodes(
                    marked
                        .filter(|(_, node)| node.ignore.as_deref() != Some("true"))
                        .map(|(name, _)| name.clone())
                        .collect(),
                )
            }
            Step::WriteStatus { status, .. } => {
                self.update_pool(pool, |pool| *pool = pool.with_status(status));
                Answer::Done
            }
            Step::Publish(policy) => {
                self.assert_recorded(policy);
                self.published = Some(Arc::clone(policy));
                Answer::Done
            }
        }
    }

    /// Nothing is published that no status records.
    fn assert_recorded(&self, policy: &Policy) {
        for pool in policy.entries().iter().map(|entry| &entry.pool).filter(|pool| pool.enforces()) {
            let status = self.guarded(&pool.name).status.clone().unwrap_or_default();
            let recorded: Vec<_> = status.approved_taints.iter().map(|approved| approved.taint.clone()).collect();
            for approved in &pool.approved {
                assert!(recorded.contains(&approved.taint.to_string()), "{} is approved: {recorded:?}", approved.taint);
            }
            for taint in pool.ever_applied.iter().chain(pool.clean_check.nodes.keys()) {
                assert!(
                    status.managed_taints.contains(&taint.to_string()),
                    "{taint} may be put on: {:?}",
                    status.managed_taints
                );
            }
        }
    }

    fn request(&mut self, name: &str, request: &ClassRequest) -> Answer {
        self.version += 1;
        let version = self.version.to_string();
        let mut object = match (request, self.classes.get(name)) {
            (ClassRequest::Read, current) => return Answer::Class(current.cloned()),
            (ClassRequest::TryCreate(_) | ClassRequest::Create(_), Some(_)) => {
                return Answer::Refused(Refusal::Conflict);
            }
            (ClassRequest::TryCreate(class), None) => return Answer::Class(Some(Arc::new(RuntimeClass::clone(class)))),
            (ClassRequest::Create(class), None) => {
                let mut object = json!(class);
                object["metadata"]["uid"] = json!(format!("{name}-{version}"));
                object
            }
            (ClassRequest::Patch { uid, version, changes }, Some(current)) => {
                match apply(&json!(**current), &runtime_class_patch(uid, version, changes)) {
                    Ok(object) => object,
                    Err(_) => return Answer::Refused(Refusal::Conflict),
                }
            }
            (ClassRequest::Delete(_), Some(_)) => {
                self.classes.remove(name);
                return Answer::Done;
            }
            (_, None) => return Answer::Refused(Refusal::Gone),
        };
        object["metadata"]["resourceVersion"] = json!(version);
        let class: Arc<RuntimeClass> = Arc::new(serde_json::from_value(object).unwrap());
        self.classes.insert(name.to_owned(), Arc::clone(&class));
        Answer::Class(Some(class))
    }
}
