//! Reads Events about pods, in both of their versions.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use winpool_analysis::pod::PodEvent;

const WARNING: &str = "Warning";

/// Returns the Event; `None` if it is not about a pod.
pub(super) fn read(group: &str, value: Value) -> Result<Option<PodEvent>, serde_json::Error> {
    Ok(if group.is_empty() {
        pod_event(core::Event::deserialize(value)?)
    } else {
        newer(events::Event::deserialize(value)?)
    })
}

/// Returns the Event; `None` if it is not about a pod.
pub fn pod_event(event: core::Event) -> Option<PodEvent> {
    let last = event.series.and_then(|series| series.last_observed_time).or(event.event_time);
    let times = [event.last_timestamp, event.first_timestamp, event.metadata.creation_timestamp];
    let parts = Parts { kind: event.type_, reason: event.reason, message: event.message, last: last_of(times, last) };
    of(event.involved_object, event.metadata.namespace, parts)
}

/// Returns an Event of the group `events.k8s.io`.
fn newer(event: events::Event) -> Option<PodEvent> {
    let last = event.series.map(|series| series.last_observed_time).or(event.event_time);
    let times = [event.deprecated_last_timestamp, event.deprecated_first_timestamp, event.metadata.creation_timestamp];
    let parts = Parts { kind: event.type_, reason: event.reason, message: event.note, last: last_of(times, last) };
    of(event.regarding.unwrap_or_default(), event.metadata.namespace, parts)
}

/// Returns the first of these times that is set.
fn last_of(times: [Option<Time>; 3], precise: Option<MicroTime>) -> Option<Timestamp> {
    let [last, first, created] = times.map(|time| time.map(|time| time.0));
    last.or(precise.map(|time| time.0)).or(first).or(created)
}

/// The fields that have other names in the other version.
struct Parts {
    kind: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    last: Option<Timestamp>,
}

fn of(object: core::ObjectReference, namespace: Option<String>, parts: Parts) -> Option<PodEvent> {
    if object.kind.as_deref() != Some("Pod") {
        return None;
    }
    // `spec.containers{web}`.
    let container = object.field_path.as_deref().and_then(|path| path.split_once('{')?.1.strip_suffix('}'));
    Some(PodEvent {
        container: container.map(str::to_owned),
        namespace: object.namespace.or(namespace).unwrap_or_default(),
        pod: object.name.unwrap_or_default(),
        uid: object.uid.unwrap_or_default(),
        is_warning: parts.kind.as_deref() == Some(WARNING),
        reason: parts.reason.unwrap_or_default(),
        message: parts.message.unwrap_or_default(),
        last: parts.last,
    })
}
