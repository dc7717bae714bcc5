//! Log lines and Events about pools.

use k8s_openapi::{
    api::{apps::v1::DaemonSet, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource,
    runtime::events::{Event, EventType},
};
use winpool_client::causes::shortened;
use winpool_core::{
    api::{self, Problem, names::reason},
    plan::{pools::pool::GuardedPool, reconcile::Note},
};

use crate::{controllers::Context, telemetry::list};

/// Writes the Event: about the pool, or about the `DaemonSet` whose owner has something to do.
pub(super) async fn send(context: &Context, pool: &GuardedPool, event: Event) {
    let of_set = Some(&event.action).filter(|_| event.reason == reason::DAEMON_SET_WITHOUT_PODS);
    let object = of_set.and_then(|name| daemon_set(context, name)).unwrap_or_else(|| pool.object_ref(&()));
    context.applier.event(&object, event).await;
}

/// The `DaemonSet` with a name such as `DaemonSet shop/agent`.
fn daemon_set(context: &Context, name: &str) -> Option<ObjectReference> {
    let table = context.pods.lock();
    let uid = table.objectors()?.iter().find(|set| *set.name == *name)?.uid.to_string();
    let api::ObjectReference { namespace, name, .. } = api::ObjectReference::named(name);
    let set = DaemonSet {
        metadata: ObjectMeta { namespace, name: Some(name), uid: Some(uid), ..ObjectMeta::default() },
        ..DaemonSet::default()
    };
    Some(set.object_ref(&()))
}

pub(super) fn log(pool: &str, note: &Note) {
    match note {
        Note::ClassWritten(class, reason, fields) => {
            tracing::info!(pool, class, reason, fields = list(fields.clone()), "RuntimeClass written");
        }
        Note::ClassPostponed(Problem { reason, object, message }, wait) => {
            let (detail, wait_ms) = (shortened(message), wait.as_millis());
            tracing::warn!(pool, class = object.name, reason, detail, wait_ms, "RuntimeClass not written");
        }
        Note::ClassDeleted(class) => tracing::info!(pool, class, "RuntimeClass deleted"),
        Note::ClassReleased { class, why } => {
            tracing::warn!(
                pool,
                class,
                detail = shortened(why),
                "RuntimeClass released: it stays, and winpool no longer manages it"
            );
        }
        Note::Left(Problem { reason, message, .. }) => {
            tracing::warn!(pool, reason, detail = shortened(message), "left as it is");
        }
        Note::FinalizerWritten(present) => tracing::info!(pool, present, "finalizer written"),
        Note::CleanedUp => tracing::info!(pool, "pool cleaned up"),
        Note::StatusRefused(error) => {
            tracing::warn!(pool, error = shortened(error), "the API server refuses the status of the pool");
        }
        Note::Problem(Problem { reason, object, message }) => {
            tracing::warn!(pool, %object, reason, detail = shortened(message), "problem");
        }
        Note::TaintsChanged { are_applied: true, .. } => tracing::info!(pool, "every node has its taints"),
        Note::TaintsChanged { reason, message, .. } => {
            tracing::warn!(pool, reason, detail = shortened(message), "taints are held");
        }
    }
}

pub(super) fn event(note: &Note) -> Option<Event> {
    let pool_event = |type_, reason: &str, action: &str, note: String| {
        let (reason, action, note) = (reason.to_owned(), action.to_owned(), Some(note));
        Some(Event { type_, reason, action, note, secondary: None })
    };
    match note {
        Note::ClassWritten(class, reason, fields) => {
            let note = if fields.is_empty() { class.clone() } else { format!("{class}: {}", fields.join(", ")) };
            pool_event(EventType::Normal, reason, class, note)
        }
        Note::ClassReleased { class, why } => {
            let note = format!("winpool no longer manages RuntimeClass {class}, which stays: {why}");
            pool_event(EventType::Warning, reason::CLASS_IN_USE, class, note)
        }
        Note::Left(Problem { reason, object, message }) => {
            // Another action than that of a problem of the same object: Events with equal actions and reasons are merged.
            pool_event(EventType::Warning, reason, &object.name, message.clone())
        }
        Note::StatusRefused(error) => pool_event(EventType::Warning, reason::INVALID_SPEC, "Validate", error.clone()),
        Note::Problem(Problem { reason, object, message }) => {
            // A dry run tells what it would change, and warns of nothing.
            let type_ = if reason == reason::WOULD_CHANGE { EventType::Normal } else { EventType::Warning };
            pool_event(type_, reason, &object.to_string(), format!("{object}: {message}"))
        }
        Note::TaintsChanged { are_applied, reason, message } => {
            let (type_, reason) = if *are_applied {
                (EventType::Normal, reason::TAINTS_ADDED)
            } else {
                (EventType::Warning, reason.as_str())
            };
            pool_event(type_, reason, "Taint", message.clone())
        }
        Note::ClassPostponed(..) | Note::ClassDeleted(_) | Note::FinalizerWritten(_) | Note::CleanedUp => None,
    }
}
