//! Tolerations, compared as Kubernetes reads them.

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;

use crate::api::Taint;
use crate::words::{joined, yaml};

/// Returns the toleration of exactly this taint.
pub fn toleration(taint: &Taint) -> Toleration {
    Toleration {
        key: Some(taint.key.clone()),
        operator: Some("Equal".to_owned()),
        value: Some(taint.value.clone()),
        effect: Some(taint.effect.as_str().to_owned()),
        toleration_seconds: None,
    }
}

/// Returns the lines of a pod template that tolerate these taints: `tolerations: [{…}]`.
pub fn to_write<'a>(taints: impl IntoIterator<Item = &'a Taint>) -> String {
    format!("tolerations: [{}]", joined(taints.into_iter().map(|taint| written(&toleration(taint)))))
}

/// Returns the toleration as YAML on one line: `{key: os, operator: Equal, value: windows, effect: NoSchedule}`.
pub fn written(toleration: &Toleration) -> String {
    let Toleration { key, operator, value, effect, .. } = toleration;
    let fields = [("key", key), ("operator", operator), ("value", value), ("effect", effect)];
    let fields =
        fields.into_iter().filter_map(|(name, field)| Some(format!("{name}: {}", yaml(&json!(field.as_ref()?)))));
    format!("{{{}}}", joined(fields))
}

/// The answer to "do these tolerations tolerate this taint?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tolerance {
    No,
    /// It depends on an operator other than `Equal` and `Exists`. `Gt` and `Lt` need the feature gate
    /// `TaintTolerationComparisonOperators`, which is off by default and which winpool cannot read (alpha since 1.35,
    /// kubernetes/kubernetes `pkg/features/kube_features.go`).
    Unknown,
    Yes,
}

/// Returns the answer for all of `taints`. A taint with effect `PreferNoSchedule` needs no toleration.
pub fn tolerance<'a>(tolerations: &[Toleration], taints: impl IntoIterator<Item = &'a Taint>) -> Tolerance {
    let keeping_off = taints.into_iter().filter(|taint| taint.effect.keeps_off());
    let of_one = |taint| tolerations.iter().map(|own| reach(own, taint)).max().unwrap_or(Tolerance::No);
    keeping_off.map(of_one).min().unwrap_or(Tolerance::Yes)
}

/// True if one of these tolerations certainly tolerates the taint.
pub fn tolerate(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerance(tolerations, [taint]) == Tolerance::Yes
}

/// Follows `Toleration.ToleratesTaint` of kubernetes/api `core/v1/toleration.go`.
fn reach(toleration: &Toleration, taint: &Taint) -> Tolerance {
    let Toleration { key, operator, value, effect, .. } = toleration;
    let [key, operator, value, effect] = [key, operator, value, effect].map(|f| f.as_deref().unwrap_or_default());
    let any_key = key.is_empty() && operator == "Exists";
    if !(any_key || key == taint.key) || !(effect.is_empty() || effect == taint.effect.as_str()) {
        return Tolerance::No;
    }
    match operator {
        "Exists" => Tolerance::Yes,
        "" | "Equal" if value == taint.value => Tolerance::Yes,
        "" | "Equal" => Tolerance::No,
        _ => Tolerance::Unknown,
    }
}

/// Returns tolerations as the API server stores them: empty fields are absent, and `Equal` is the default operator. The
/// result is sorted and unique.
pub fn normalised(tolerations: impl IntoIterator<Item = Toleration>) -> Vec<Toleration> {
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

/// Returns `scheduling.tolerations` of a class, normalised.
pub fn tolerations_of(class: &RuntimeClass) -> Vec<Toleration> {
    normalised(class.scheduling.iter().flat_map(|s| s.tolerations.iter().flatten()).cloned())
}

/// True if `toleration` tolerates everything that `wanted` tolerates.
pub fn covers(toleration: &Toleration, wanted: &Toleration) -> bool {
    let any_key = toleration.key.is_none();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (any_key && exists || toleration.key == wanted.key)
        && (toleration.effect.is_none() || toleration.effect == wanted.effect)
        && (exists || (toleration.operator == wanted.operator && toleration.value == wanted.value))
}
