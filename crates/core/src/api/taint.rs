//! Taints, with Kubernetes' identity: key and effect.

use std::fmt;
use std::str::FromStr;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::windows::taint::marks_windows;

/// A taint on a Node. Kubernetes identifies it by key and effect: a node cannot have two taints that differ only in their
/// value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("self.key.indexOf('/') <= 253 && self.key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')")
        .message("key must be a qualified name such as os or node.kubernetes.io/os"),
    validation = Rule::new("!has(self.value) || self.value.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$')")
        .message("value must be a label value: at most 63 letters, digits, '-', '_' or '.', such as windows"),
    validation = Rule::new("self.effect in ['NoSchedule', 'PreferNoSchedule']")
        .message("effect must be NoSchedule or PreferNoSchedule; NoExecute is not offered because it would evict running pods"),
    validation = Rule::new("!(self.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable', 'node.kubernetes.io/unschedulable', 'node.kubernetes.io/memory-pressure', 'node.kubernetes.io/disk-pressure', 'node.kubernetes.io/pid-pressure', 'node.kubernetes.io/network-unavailable', 'node.kubernetes.io/out-of-service', 'ToBeDeletedByClusterAutoscaler', 'DeletionCandidateOfClusterAutoscaler']) && !self.key.startsWith('node.cloudprovider.kubernetes.io/') && !self.key.startsWith('karpenter.sh/') && !self.key.startsWith('readiness.k8s.io/')")
        .message("key belongs to Kubernetes or to an autoscaler; choose a key of your own such as os"),
)]
pub struct Taint {
    /// Key, such as `os` or `node.kubernetes.io/os`. Keys of Kubernetes and of autoscalers are not allowed.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Value, such as `windows`. Case matters. Empty when omitted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub value: String,
    /// `NoSchedule` or `PreferNoSchedule`. `NoExecute` is not allowed because it would evict running pods.
    #[schemars(with = "String", length(max = 32))]
    pub effect: Effect,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// Such pods are evicted and not scheduled to the node.
    NoExecute,
    /// Such pods are not scheduled to the node.
    NoSchedule,
    /// Such pods prefer other nodes.
    PreferNoSchedule,
    /// One that this release does not know.
    #[serde(untagged)]
    Other(String),
}

impl Effect {
    /// The effect as Kubernetes spells it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::NoExecute => "NoExecute",
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::Other(text) => text,
        }
    }

    /// True if it keeps such pods off the node; false if they only prefer other nodes.
    pub fn keeps_off(&self) -> bool {
        *self != Self::PreferNoSchedule
    }
}

impl From<&str> for Effect {
    fn from(text: &str) -> Self {
        let mut known = [Self::NoExecute, Self::NoSchedule, Self::PreferNoSchedule].into_iter();
        known.find(|known| known.as_str() == text).unwrap_or_else(|| Self::Other(text.to_owned()))
    }
}

/// Keys that winpool never writes or removes.
pub(super) const FOREIGN_KEYS: [&str; 10] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/out-of-service",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
];
/// The last one is that of node-readiness-controller, whose taints go when a node is ready for pods.
pub(super) const FOREIGN_PREFIXES: [&str; 3] =
    ["node.cloudprovider.kubernetes.io/", "karpenter.sh/", "readiness.k8s.io/"];

impl Taint {
    /// `os=windows:NoSchedule`, the spelling of the Kubernetes documentation.
    pub fn os_windows() -> Self {
        Self::new("os", "windows", Effect::NoSchedule)
    }

    /// A taint of these three parts. They are not checked.
    pub fn new(key: &str, value: &str, effect: impl Into<Effect>) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), effect: effect.into() }
    }

    /// True if a node cannot have both: they have the same key and effect.
    pub fn same_identity(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// The command that removes it from this node.
    pub fn removal(&self, node: &str) -> String {
        format!("kubectl taint nodes {node} {}:{}-", self.key, self.effect.as_str())
    }

    /// True if it marks Windows nodes: see [`marks_windows`].
    pub fn marks_windows(&self) -> bool {
        marks_windows(&self.key, &self.value)
    }

    /// True if the key belongs to Kubernetes, a cloud provider or an autoscaler.
    pub fn has_foreign_key(&self) -> bool {
        FOREIGN_KEYS.contains(&self.key.as_str()) || FOREIGN_PREFIXES.iter().any(|prefix| self.key.starts_with(prefix))
    }
}

impl fmt::Display for Taint {
    /// Formats it as kubectl does: `key=value:effect`, and `key:effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { key, value, .. }, effect) = (self, self.effect.as_str());
        if value.is_empty() { write!(f, "{key}:{effect}") } else { write!(f, "{key}={value}:{effect}") }
    }
}

/// The text is not `key=value:effect` or `key:effect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableTaint;

impl FromStr for Taint {
    type Err = UnreadableTaint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (identity, effect) = text.rsplit_once(':').ok_or(UnreadableTaint)?;
        let (key, value) = identity.split_once('=').unwrap_or((identity, ""));
        if key.is_empty() || effect.is_empty() { Err(UnreadableTaint) } else { Ok(Self::new(key, value, effect)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["os=windows:NoSchedule", "node.kubernetes.io/os=Windows:PreferNoSchedule", "windows:NoSchedule"] {
            assert_eq!(text.parse::<Taint>().unwrap().to_string(), text);
        }
        for text in ["", "os", "os=windows", ":NoSchedule", "os:"] {
            assert!(text.parse::<Taint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn value_is_no_part_of_the_identity() {
        let taint = Taint::os_windows();
        assert!(taint.same_identity(&Taint::new("os", "Windows", "NoSchedule")));
        assert!(!taint.same_identity(&Taint::new("os", "windows", "NoExecute")));
    }
}
