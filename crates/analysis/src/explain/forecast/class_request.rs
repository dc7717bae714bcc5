//! What an API server does with a request for a RuntimeClass.

use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::patch::runtime_class_patch;
use winpool_core::plan::reconcile::ClassRequest;

/// Returns the class after this request, as an API server would; `None` if it is absent. A new class gets `uid`.
/// The caller sets the new `resourceVersion`.
///
/// # Errors
/// Fails if the class differs from the one that the request was computed from.
pub fn apply_request(
    request: &ClassRequest,
    current: Option<&RuntimeClass>,
    uid: String,
) -> Result<Option<RuntimeClass>, RequestError> {
    let is_seen = |seen: (Option<String>, Option<String>), class: &RuntimeClass| {
        if seen == (class.uid(), class.resource_version()) { Ok(()) } else { Err(RequestError::Conflict) }
    };
    match (request, current) {
        (ClassRequest::Create(_), Some(_)) => Err(RequestError::Conflict),
        (ClassRequest::Create(class), None) => {
            let mut class = RuntimeClass::clone(class);
            class.metadata.uid = Some(uid);
            Ok(Some(class))
        }
        (ClassRequest::Patch { uid, version, changes }, Some(class)) => {
            is_seen((Some(uid.clone()), Some(version.clone())), class)?;
            let mut object = json!(class);
            let patched = json_patch::patch(&mut object, &runtime_class_patch(uid, version, changes));
            let failed = |message: String| RequestError::failed(&message);
            patched.map_err(|error| failed(error.to_string()))?;
            serde_json::from_value(object).map(Some).map_err(|error| failed(error.to_string()))
        }
        (ClassRequest::Delete(seen), Some(class)) => {
            is_seen((seen.uid(), seen.resource_version()), class)?;
            let mut kept = class.clone();
            kept.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            Ok(Some(kept).filter(|class| !class.finalizers().is_empty()))
        }
        (ClassRequest::Patch { .. } | ClassRequest::Delete(_), None) => Err(RequestError::Gone),
    }
}
