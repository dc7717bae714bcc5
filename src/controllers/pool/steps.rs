//! Executes the steps that are requests.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};
use winpool_client::{causes::shortened, error::RequestError, pages};
use winpool_core::{
    api::names,
    plan::{
        patch::runtime_class_patch,
        pools::pool::GuardedPool,
        reconcile::{Answer, ClassRequest, Step},
        refusal::Refusal,
    },
};

use crate::controllers::Context;

use super::TaskResult;

pub(super) async fn execute(context: &Context, guarded: &GuardedPool, step: Step) -> TaskResult {
    let pool = guarded.name_any();
    let result = request(context, guarded, &step).await;
    let error = result.as_ref().err().map(RequestError::as_str);
    let answer = result.unwrap_or_else(|error| {
        let (object, reason) = (object(&step), error.as_str());
        tracing::warn!(pool, object, reason, error = shortened(&error), "a request for the pool failed");
        Answer::Refused(Refusal::from(&error))
    });
    TaskResult::Step { pool, step, answer, error }
}

async fn request(context: &Context, guarded: &GuardedPool, step: &Step) -> Result<Answer, RequestError> {
    let (applier, name) = (&context.applier, guarded.name_any());
    Ok(match step {
        Step::ReadPool { .. } => Answer::Pool(applier.read_pool(&name).await?.map(Box::new)),
        Step::SetFinalizer(wanted) => Answer::Written(Box::new(applier.set_finalizer(guarded.meta(), *wanted).await?)),
        Step::Class(class) => class_request(context, &class.name, &class.request).await?,
        Step::ListLabelledNodes => {
            let mut labelled = BTreeSet::new();
            let labels = format!("{}={name}", names::POOL);
            let nodes: Api<PartialObjectMeta<Node>> = Api::all(context.client.clone());
            let listed = pages::each(&nodes, ListParams::default().labels(&labels), |node: PartialObjectMeta<Node>| {
                if node.annotations().get(names::IGNORE).is_none_or(|ignore| ignore != "true") {
                    labelled.insert(node.name_any());
                }
            });
            listed.await?;
            Answer::Nodes(labelled)
        }
        Step::WriteStatus { status, seen, .. } => {
            Answer::Written(Box::new(applier.write_status(guarded.meta(), seen.as_ref(), status).await?))
        }
        Step::Publish(_) | Step::Wait(_) => Answer::Done,
    })
}

async fn class_request(context: &Context, name: &str, request: &ClassRequest) -> Result<Answer, RequestError> {
    let applier = &context.applier;
    Ok(match request {
        ClassRequest::Create(class) => Answer::Class(Some(applier.create_class(class).await?.into())),
        ClassRequest::Patch { uid, version, changes } => {
            let patch = runtime_class_patch(uid, version, changes);
            Answer::Class(Some(applier.patch_class(name, patch).await?.into()))
        }
        ClassRequest::Delete(class) => Answer::Class(applier.delete_class(class).await?.map(Into::into)),
    })
}

fn object(step: &Step) -> String {
    match step {
        Step::Class(class) => format!("RuntimeClass {}", class.name),
        Step::SetFinalizer(_) => "finalizer".to_owned(),
        Step::ListLabelledNodes => "nodes".to_owned(),
        Step::WriteStatus { .. } => "status".to_owned(),
        Step::ReadPool { .. } | Step::Publish(_) | Step::Wait(_) => "WindowsPool".to_owned(),
    }
}
