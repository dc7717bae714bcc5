//! Tolerations, compared as Kubernetes reads them.

use k8s_openapi::api::{core::v1::Toleration, node::v1::RuntimeClass};

use crate::api::Taint;

/// What tolerates exactly this taint.
pub(crate) fn toleration(taint: &Taint) -> Toleration {
    Toleration {
        key: Some(taint.key.clone()),
        operator: Some("Equal".to_owned()),
        value: Some(taint.value.clone()),
        effect: Some(taint.effect.clone()),
        toleration_seconds: None,
    }
}

/// Returns whether one of these tolerates the taint. A taint that only advises keeps nobody off.
#[must_use]
pub fn tolerate(tolerations: &[Toleration], taint: &Taint) -> bool {
    all_tolerated(&normalised(tolerations.iter().cloned()), [taint])
}

/// Returns whether these normalised tolerations tolerate all of `taints`.
pub(crate) fn all_tolerated<'a>(tolerations: &[Toleration], taints: impl IntoIterator<Item = &'a Taint>) -> bool {
    let mut keeping_off = taints.into_iter().filter(|taint| taint.effect != "PreferNoSchedule");
    keeping_off.all(|taint| {
        let wanted = normalised([toleration(taint)]);
        wanted.iter().all(|wanted| tolerations.iter().any(|own| covers(own, wanted)))
    })
}

/// Returns whether it cannot be told that one of these tolerates the taint: its operator is one that winpool does not know,
/// such as `Gt` and `Lt` of the feature gate `TaintTolerationComparisonOperators`.
pub(crate) fn may_tolerate(tolerations: &[Toleration], taint: &Taint) -> bool {
    let is_unknown = |t: &&Toleration| !matches!(t.operator.as_deref(), None | Some("" | "Equal" | "Exists"));
    let is_about = |field: Option<&str>, wanted: &str| field.is_none_or(|text| text.is_empty() || text == wanted);
    let unknown = tolerations.iter().filter(is_unknown);
    unknown.into_iter().any(|t| is_about(t.key.as_deref(), &taint.key) && is_about(t.effect.as_deref(), &taint.effect))
}

/// As the API server keeps them: empty fields are absent, `Equal` is the default operator; sorted, without repeats.
pub(crate) fn normalised(tolerations: impl IntoIterator<Item = Toleration>) -> Vec<Toleration> {
    let absent_if_empty = |field: Option<String>| field.filter(|text| !text.is_empty());
    let mut tolerations: Vec<_> = tolerations
        .into_iter()
        .map(|t| Toleration {
            key: absent_if_empty(t.key),
            operator: absent_if_empty(t.operator).or_else(|| Some("Equal".to_owned())),
            value: absent_if_empty(t.value),
            effect: absent_if_empty(t.effect),
            toleration_seconds: t.toleration_seconds,
        })
        .collect();
    let key =
        |t: &Toleration| (t.key.clone(), t.value.clone(), t.effect.clone(), t.operator.clone(), t.toleration_seconds);
    tolerations.sort_by_key(key);
    tolerations.dedup();
    tolerations
}

/// `scheduling.tolerations` of a class, normalised.
pub(crate) fn tolerations_of(class: &RuntimeClass) -> Vec<Toleration> {
    normalised(class.scheduling.iter().flat_map(|s| s.tolerations.iter().flatten()).cloned())
}

/// Returns whether everything that `wanted` tolerates is tolerated by `toleration` too.
pub(crate) fn covers(toleration: &Toleration, wanted: &Toleration) -> bool {
    let any_key = toleration.key.is_none();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (any_key && exists || toleration.key == wanted.key)
        && (toleration.effect.is_none() || toleration.effect == wanted.effect)
        && (exists || (toleration.operator == wanted.operator && toleration.value == wanted.value))
}
